package binlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
)

// read takes events until there is a step to hand on.
func (r *Reader) read() (*Transaction, error) {
	for {
		if r.lookupDue && !r.group.open {
			r.lookUpDue()
		}
		if !r.group.open && !r.told && r.caughtUp() {
			r.told = true // without waiting for a heartbeat of an idle server
			return r.emitStep(), nil
		}
		if !r.group.open && r.hasPending() && (r.pendingCount >= maxPending || !r.pk.ready()) {
			return r.emitStep(), nil
		}
		ev := &r.event
		if err := r.pk.next(ev); err != nil {
			return nil, err
		}
		r.advance(&ev.Header)
		tx, err := r.handle(ev)
		if tx != nil || err != nil {
			return tx, err
		}
	}
}

// advance follows the position within the file. Positions in headers have 32 bits and wrap beyond 4 GiB; artificial events carry 0. What the
// server skips may be longer than that: the HEARTBEAT_V2 at its end tells the whole position.
func (r *Reader) advance(h *event.Header) {
	if h.LogPos == 0 || h.Flags&event.FlagArtificial != 0 {
		return
	}
	pos := r.pos&^0xffffffff | uint64(h.LogPos)
	if pos < r.pos {
		pos += 1 << 32
	}
	r.pos = pos
}

// handle processes one event of the stream or of a payload. It returns a step when the event ends a transaction with rows.
func (r *Reader) handle(ev *raw) (*Transaction, error) {
	if r.group.known && ev.Type != event.TypeRotate && ev.Type != event.TypeFormatDescription {
		return nil, r.known(ev)
	}
	switch ev.Type {
	case event.TypeTableMap:
		return nil, r.tableMap(ev)
	case event.TypeWriteRows, event.TypeWriteRowsV1, event.TypeUpdateRows, event.TypeUpdateRowsV1,
		event.TypeDeleteRows, event.TypeDeleteRowsV1, event.TypePartialUpdateRows:
		return nil, r.rows(ev)
	case event.TypeTransactionPayload:
		return r.payload(ev)
	case event.TypeRowsQuery, event.TypeIgnorable, event.TypeIntVar, event.TypeRand, event.TypeUserVar, event.TypeStop,
		event.TypeAppendBlock, event.TypeBeginLoadQuery, event.TypeDeleteFile, event.TypeTransactionContext, event.TypeViewChange, event.TypePreviousGTIDs:
		return nil, ev.skip()
	case event.TypeQuery, event.TypeExecuteLoadQuery:
		return r.query(ev)
	}
	if ev.Big != nil {
		return nil, r.bigEvent(ev)
	}
	switch ev.Type {
	case event.TypeGTID, event.TypeGTIDTagged, event.TypeAnonymousGTID:
		return nil, r.beginGroup(ev)
	case event.TypeXID:
		if err := r.inGroup(ev.Type); err != nil {
			return nil, err
		}
		return r.commit(r.group.rows), nil
	case event.TypeXAPrepare:
		return r.xaPrepare(ev.Body)
	case event.TypeRotate:
		return nil, r.rotate(ev)
	case event.TypeFormatDescription:
		return nil, r.formatDescription(ev.Body)
	case event.TypeHeartbeat, event.TypeHeartbeatV2:
		return r.heartbeat(ev)
	case event.TypeIncident:
		return nil, r.incident(ev.Body)
	}
	if ev.Flags&event.FlagIgnorable != 0 {
		return nil, nil
	}
	return nil, r.unknownEvent(ev)
}

func (r *Reader) unknownEvent(ev *raw) error {
	return r.stop(ReasonUnknownEvent, fmt.Sprintf("the binlog holds an event of unknown type %d (%s) at %s:%d", ev.Type, ev.Type, r.file, r.pos), hintNewer, nil)
}

// bigEvent handles an event larger than the buffer whose type is none of those that may be so large.
func (r *Reader) bigEvent(ev *raw) error {
	if ev.Type.Known() {
		return fmt.Errorf("%w: %s of %d bytes", errCorrupt, ev.Type, ev.Size)
	}
	if err := ev.Big.Skip(); err != nil { // its checksum stands at its end: a damaged type is no unknown one
		return err
	}
	if ev.Flags&event.FlagIgnorable != 0 {
		return nil
	}
	return r.unknownEvent(ev)
}

// skip forgets the event's body.
func (ev *raw) skip() error {
	if ev.Big != nil {
		return ev.Big.Skip()
	}
	return nil
}

// stop makes the error for a condition that time cannot heal, naming the open transaction.
func (r *Reader) stop(reason Reason, detail, hint string, err error) error {
	return &SourceError{Reason: reason, GTID: r.openGTID(), Detail: detail, Hint: hint, Err: err}
}

func (r *Reader) inGroup(t event.Type) error {
	if !r.group.open {
		return r.stop(ReasonUnknownEvent, fmt.Sprintf("%s outside a transaction at %s:%d", t, r.file, r.pos), "report it with this part of the binlog", nil)
	}
	return nil
}

func (r *Reader) beginGroup(ev *raw) error {
	g := &r.head
	if err := g.Parse(ev.Type, ev.Body, &r.tags); err != nil {
		return fmt.Errorf("%w: %w", errCorrupt, err)
	}
	if g.Anonymous {
		return r.stop(ReasonGTIDMode, fmt.Sprintf("the binlog holds a transaction without GTID at %s:%d", r.file, r.pos), hintAnonymous, nil)
	}
	if r.group.open {
		return r.stop(ReasonUnknownEvent, fmt.Sprintf("transaction %s begins at %s:%d before the one before ended", g.GTID, r.file, r.pos), "report it with this part of the binlog", nil)
	}
	r.progress()
	r.group.begin(g)
	if r.sample.Micros != 0 && g.GTID == r.sample.Last {
		r.group.known = true
		return r.compareSample(g)
	}
	r.group.known = r.again && r.seen.Contains(g.GTID)
	return nil
}

func (r *Reader) rotate(ev *raw) error {
	rot, err := event.ParseRotate(ev.Body)
	if err != nil {
		return fmt.Errorf("%w: %w", errCorrupt, err)
	}
	if ev.Flags&event.FlagArtificial != 0 {
		r.group.drop() // a group that was cut off in the file before is sent again from its start
		if err := r.beginsAt(string(rot.File)); err != nil {
			return err
		}
	}
	r.file, r.pos = string(rot.File), rot.Position
	return nil
}

func (r *Reader) formatDescription(body []byte) error {
	if _, err := event.ParseFormatDescription(body); err != nil {
		return r.stop(ReasonUnsupportedServer, fmt.Sprintf("the binlog %s has a format that is not known", r.file), hintNewer, err)
	}
	return nil
}

func (r *Reader) heartbeat(ev *raw) (*Transaction, error) {
	if ev.Type == event.TypeHeartbeatV2 {
		hb, err := event.ParseHeartbeat(ev.Header, ev.Body)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errCorrupt, err)
		}
		if string(hb.File) != r.file {
			r.file = string(hb.File)
		}
		r.pos = hb.Position
	}
	r.progress()
	r.forgive()
	if r.group.open {
		return nil, nil
	}
	if err := r.unsent(); err != nil {
		return nil, err
	}
	return r.emitStep(), nil
}

func (r *Reader) incident(body []byte) error {
	inc, err := event.ParseIncident(body)
	if err != nil {
		return fmt.Errorf("%w: %w", errCorrupt, err)
	}
	return r.stop(ReasonIncident, fmt.Sprintf("the server reports lost events: incident %d (%s) at %s:%d", inc.Number, inc.Message, r.file, r.pos), "rows may be missing: compare the outbox with the topics, then set the checkpoint behind it", nil)
}

func (r *Reader) tableMap(ev *raw) error {
	if err := r.inGroup(ev.Type); err != nil {
		return err
	}
	body := ev.Body
	if ev.Big != nil {
		body = make([]byte, min(tableNameEnd, ev.Big.Len()))
		if _, err := io.ReadFull(ev.Big, body); err != nil {
			return err
		}
	}
	id, schema, table, err := event.TableMapName(body)
	if err != nil {
		return fmt.Errorf("%w: %w", errCorrupt, err)
	}
	m := tableMap{id: id}
	var w *watchedTable
	if r.own.find(schema, table) != nil {
		r.group.own = true // also where a pattern stands for it
	} else {
		r.group.others = true
		w = r.watched.find(schema, table)
	}
	if w != nil && ev.Big != nil {
		if body, err = readRest(body, ev.Big); err != nil {
			return err
		}
	}
	if w != nil {
		if m.table, err = w.columnsOf(body, r.watched.fold); err != nil {
			return fmt.Errorf("%w: %w", errCorrupt, err)
		}
	}
	r.group.maps = append(r.group.maps, m)
	return ev.skip()
}

const (
	// tableNameEnd is where the names of a TABLE_MAP end at the latest: id, flags, two names with length and end.
	tableNameEnd = 8 + 2*(1+255+1)
	// maxTableMap is the largest TABLE_MAP of a watched table: thousands of columns, or long lists of ENUM members.
	maxTableMap = 16 << 20
)

// readRest appends what is left of a large event that has to be held as a whole.
func readRest(head []byte, b bigBody) ([]byte, error) {
	if b.Len() > maxTableMap {
		return nil, fmt.Errorf("%w: table map of %d bytes", errCorrupt, b.Len())
	}
	rest, err := io.ReadAll(b) // grows with what comes, whatever the event says of its size
	return append(head, rest...), err
}

// rowsHeadSize is how much of a row event tells its table and flags.
const rowsHeadSize = 8

func (r *Reader) rows(ev *raw) error {
	if err := r.inGroup(ev.Type); err != nil {
		return err
	}
	big := r.rowsHead[:] // on the stack it would escape with each row event
	head := ev.Body
	if ev.Big != nil {
		if _, err := io.ReadFull(ev.Big, big); err != nil {
			return err
		}
		head = big
	}
	id, flags, err := event.RowsTableID(head)
	if err != nil {
		return fmt.Errorf("%w: %w", errCorrupt, err)
	}
	table, known := r.group.table(id)
	if !known && id != event.DummyTableID {
		return r.stop(ReasonUnknownEvent, fmt.Sprintf("%s for table id %d without a table map at %s:%d", ev.Type, id, r.file, r.pos), "report it with this part of the binlog", nil)
	}
	if table != nil && !table.HasNames && (ev.Type == event.TypeWriteRows || ev.Type == event.TypeWriteRowsV1) {
		if err := r.name(table); err != nil {
			return err
		}
	}
	err = r.keepRows(ev, table, big)
	if flags&event.RowsStatementEnd != 0 {
		r.group.maps = r.group.maps[:0]
	}
	return err
}

// keepRows puts an insert into a watched table into the log and forgets everything else. bigHead is what was read of a large event already.
func (r *Reader) keepRows(ev *raw, table *event.Table, bigHead []byte) error {
	if table == nil {
		return ev.skip()
	}
	switch ev.Type {
	case event.TypeWriteRows, event.TypeWriteRowsV1:
	case event.TypeDeleteRows, event.TypeDeleteRowsV1:
		r.metrics.ignored.WithLabelValues(r.metrics.tables.Of(table.Schema+"."+table.Name), "delete").Inc()
		return ev.skip()
	default:
		r.metrics.ignored.WithLabelValues(r.metrics.tables.Of(table.Schema+"."+table.Name), "update").Inc()
		return ev.skip()
	}
	size := int64(len(ev.Body))
	body := io.Reader(nil) // the whole body where it lies in no buffer
	if ev.Big != nil {
		size = int64(len(bigHead) + ev.Big.Len())
		body = io.MultiReader(bytes.NewReader(bigHead), ev.Big)
	}
	log := r.group.rows
	var err error
	switch {
	case size > r.o.RowLimit:
		if body == nil {
			body = bytes.NewReader(ev.Body)
		}
		err = r.splitRows(table, ev.Type, body, size)
	case body == nil:
		err = log.add(table, byte(ev.Type), ev.Body)
	default:
		err = log.addFrom(table, byte(ev.Type), int(size), body)
	}
	if err == nil {
		err = ev.skip() // for the checksum
	}
	r.metrics.spooled.Set(float64(r.spool.used))
	return err
}

// splitRows puts the rows of an event beyond the row limit into the log one by one.
func (r *Reader) splitRows(table *event.Table, t event.Type, body io.Reader, size int64) error {
	err := r.splitter.Reset(table, t, body, uint64(size), uint64(r.o.RowLimit))
	if err == nil {
		err = r.group.rows.addSplit(table, &r.splitter, r.o.RowLimit)
	}
	if errors.Is(err, event.ErrMalformed) {
		return fmt.Errorf("%w: %w", errCorrupt, err)
	}
	return err
}

func (r *Reader) commit(rows *rowLog) *Transaction {
	g := &r.group
	r.seen.Add(g.gtid)
	r.addPending(gtid.Range{UUID: g.gtid.UUID, Tag: g.gtid.Tag, First: g.gtid.Number, Last: g.gtid.Number})
	r.endGroup()
	if rows.entries == 0 {
		return nil
	}
	return r.emitRows(rows)
}

// endGroup closes the group and counts it for the next step.
func (r *Reader) endGroup() {
	r.pendingCount++
	if r.group.own && !r.group.others {
		r.pendingOwn++
	}
	r.pendingTime = r.group.commitMicros
	r.place.Last, r.place.Micros = r.group.gtid, r.group.commitMicros
	r.closeGroup()
}

// closeGroup ends the group, which was read to its end: a connection made now goes on behind it.
func (r *Reader) closeGroup() {
	r.group.open = false
	r.place.Server, r.place.File, r.place.Position = r.server.UUID, r.file, r.pos
	r.group.maps = r.group.maps[:0]
	r.corrupt = 0
	r.forgive()
	r.closed++
}

// addPending puts g to the ranges of the next step. The binlog of a server with several sources alternates between few UUIDs, and numbers of
// one of them may come out of order, so g is joined with its neighbours among the newest ranges: their order within a step has no meaning.
func (r *Reader) addPending(g gtid.Range) {
	if n := len(r.pending); n > 0 {
		if p := &r.pending[n-1]; p.Last+1 == g.First && p.UUID == g.UUID && p.Tag == g.Tag && n == 1 {
			p.Last = g.Last
			return
		}
	}
	const newest = 16
	for i := len(r.pending) - 1; i >= max(0, len(r.pending)-newest); i-- {
		p := &r.pending[i]
		if p.Last+1 != g.First && g.Last+1 != p.First || p.UUID != g.UUID || p.Tag != g.Tag {
			continue
		}
		g.First, g.Last = min(p.First, g.First), max(p.Last, g.Last)
		r.pending = slices.Delete(r.pending, i, i+1)
	}
	r.pending = append(r.pending, g)
}

func (r *Reader) hasPending() bool { return r.pendingCount > 0 }

// emitStep hands on the stretch of transactions without watched rows.
func (r *Reader) emitStep() *Transaction {
	t := &r.tx
	t.Ranges, r.pending = append(t.Ranges[:0], r.pending...), r.pending[:0]
	t.Lost, r.lost = r.lost, nil
	t.Own = r.pendingOwn > 0 && r.pendingOwn == r.pendingCount
	t.Transactions, r.pendingCount, r.pendingOwn = r.pendingCount, 0, 0
	t.CommitMicros = r.pendingTime
	t.GTID, t.GTIDText, t.HasRows = gtid.GTID{}, t.GTIDText[:0], false
	t.rows.stop()
	t.File, t.Position, t.Last = r.file, r.pos, r.place.Last
	t.CaughtUp = r.caughtUp()
	r.count()
	return t
}

// count tells the metrics what has been read since it was called last.
func (r *Reader) count() {
	if r.pk != nil {
		r.metrics.readBytes.Add(float64(r.pk.bytes - r.pk.counted))
		r.pk.counted = r.pk.bytes
	}
	r.metrics.transactions.Add(float64(r.closed))
	r.closed = 0
}

func (r *Reader) emitRows(rows *rowLog) *Transaction {
	t := r.emitStep()
	t.GTID, t.HasRows, t.Own = r.group.gtid, true, false
	t.GTIDText = t.GTID.AppendText(t.GTIDText)
	t.rows.start(rows)
	t.rowLimit = r.o.RowLimit
	return t
}

// caughtUp reports whether everything that was executed at connect has been read, the connection stands, and nothing more lies in the buffer.
func (r *Reader) caughtUp() bool {
	if r.pk == nil || r.pk.ready() {
		return false
	}
	if r.target != nil && r.seen.ContainsSet(r.target) {
		r.target = nil
	}
	return r.target == nil
}

var errUnfinished = errors.New("payload ends inside its transaction")
