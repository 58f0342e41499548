package binlog_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/fakemysql"
)

const (
	// fuzzAllocations is how many bytes a reader may allocate for any input: a zstd window of the largest size that is accepted takes half of it.
	fuzzAllocations = 64 << 20
	// fuzzHang is after how long one input counts as a hang. Inputs take less than a millisecond.
	fuzzHang = time.Minute
	// Small buffers, so that small events are taken the way of large ones.
	fuzzStreamBuffer, fuzzInnerBuffer = 2 << 10, 512
	fuzzMemory, fuzzRowLimit          = 32 << 10, 4 << 10
)

// fuzzed is the reader's work on one stream.
type fuzzed struct {
	transactions []fuzzedTransaction
	ranges       []gtid.Range // that the position gained
	err          error        // what ended the reading
}

type fuzzedTransaction struct {
	gtid string
	rows int
}

// readFuzzed lets a reader read one stream to its end and looks after what holds for any bytes: it ends, it allocates in proportion, it gives back
// memory and disk.
func readFuzzed(t *testing.T, dir string, play []byte) fuzzed {
	t.Helper()
	before := allocated()
	hang := time.AfterFunc(fuzzHang, func() { panic("the reader hangs") })
	defer hang.Stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	source := &fakemysql.Source{Streams: [][]byte{play}, Ended: cancel, Closed: cancel}
	o := fakeOptions(source)
	o.Tables = append(o.Tables, binlog.TableName{Schema: "g1", Name: "o"}, binlog.TableName{Schema: "g1", Name: "s"})
	o.Memory, o.RowLimit, o.SpoolDir, o.SpoolLimit = fuzzMemory, fuzzRowLimit, dir, 1<<20
	r, err := binlog.New(o)
	if err != nil {
		t.Fatal(err)
	}
	binlog.SetBuffers(r, fuzzStreamBuffer, fuzzInnerBuffer)
	out := nextAll(ctx, t, r, len(play))
	if err := r.Status().LastError; err != nil && !binlog.Explained(err) {
		t.Errorf("the reader takes this for a failure of the network: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if memory, disk := binlog.Held(r); memory != 0 || disk != 0 {
		t.Errorf("after the end %d bytes of memory and %d of disk count as used", memory, disk)
	}
	if n := allocated() - before; n > fuzzAllocations {
		t.Errorf("%d bytes allocated for a stream of %d", n, len(play))
	}
	return out
}

func nextAll(ctx context.Context, t *testing.T, r *binlog.Reader, size int) fuzzed {
	t.Helper()
	var out fuzzed
	// Each step needs at least a heartbeat's packet, but the first and the last.
	for range 3 + size/24 {
		tx, err := r.Next(ctx)
		if err != nil {
			out.err = err
			return out
		}
		out.ranges = append(out.ranges, tx.Ranges...)
		if !tx.HasRows {
			if tx.Transactions == 0 && !tx.CaughtUp && len(tx.Ranges) > 0 {
				t.Error("a step of no transaction moves the position")
			}
			continue
		}
		out.transactions = append(out.transactions, fuzzedTransaction{string(tx.GTIDText), fuzzedRows(t, tx)})
	}
	t.Fatalf("more steps than a stream of %d bytes can have", size)
	return out
}

// fuzzedRows counts the rows of a transaction, up to one that cannot be decoded.
func fuzzedRows(t *testing.T, tx *binlog.Transaction) int {
	t.Helper()
	var row binlog.Row
	for n := 0; ; n++ {
		ok, err := tx.NextRow(&row)
		switch {
		case err != nil || !ok:
			return n
		case row.Number != n:
			t.Fatalf("row %d counts as %d", n, row.Number)
		}
	}
}

// allocated gives the bytes that the process has allocated so far.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// streamEvent is one event of a stream.
type streamEvent struct {
	kind  event.Type
	flags event.Flags
	body  []byte
}

// eventsOf splits a stream as far as its packets and sizes agree. It looks at no checksum: an event more can only excuse.
func eventsOf(b []byte) []streamEvent {
	var out []streamEvent
	crc := true
	for len(b) > 4 {
		n := int(b[0]) | int(b[1])<<8 | int(b[2])<<16
		if len(b) < 4+n || n < 1+event.HeaderSize || b[4] != 0 {
			break
		}
		ev := b[5 : 4+n]
		b = b[4+n:]
		h, err := event.ParseHeader(ev)
		if err != nil || int(h.Size) != len(ev) {
			break
		}
		tail := 0
		if h.Type == event.TypeFormatDescription {
			crc = ev[len(ev)-5] == 1
		}
		if crc || h.Type == event.TypeFormatDescription {
			tail = event.ChecksumSize
		}
		if len(ev) < event.HeaderSize+tail {
			break
		}
		out = append(out, streamEvent{h.Type, h.Flags, ev[event.HeaderSize : len(ev)-tail]})
	}
	return out
}

// wantWholeGroups complains about transactions with rows that the stream does not hold from their GTID to an event that commits them, and about a
// position that has one whose end the stream does not hold. It is a second, simpler opinion on where a transaction ends.
func wantWholeGroups(t *testing.T, events []streamEvent, got fuzzed) {
	t.Helper()
	if len(got.transactions) == 0 && len(got.ranges) == 0 {
		return
	}
	committed, ended, prepared := map[string]int{}, new(gtid.Set), map[event.XABranch][]gtid.GTID{}
	var open gtid.GTID
	tags := &event.Tags{}
	for _, e := range events {
		switch {
		case e.kind == event.TypeGTID || e.kind == event.TypeGTIDTagged:
			g, _ := event.ParseGTID(e.kind, e.body, tags) // a zero GTID is none
			open = g.GTID
		case e.kind == event.TypeRotate && e.flags&event.FlagArtificial != 0:
			open = gtid.GTID{}
		case open.Number != 0 && ends(e):
			if commits(e) {
				committed[open.String()]++
			}
			branch, prepares, decides := branchOf(e)
			if prepares {
				prepared[branch] = append(prepared[branch], open)
				continue
			}
			ended.Add(open)
			if decides {
				for _, g := range prepared[branch] {
					ended.Add(g)
				}
			}
		}
	}
	for _, tx := range got.transactions {
		if committed[tx.gtid]--; committed[tx.gtid] < 0 {
			t.Errorf("transaction %s came with %d rows, and the stream does not hold its end", tx.gtid, tx.rows)
		}
	}
	for _, r := range got.ranges {
		gained := new(gtid.Set)
		gained.AddRange(r)
		if missing := gtid.Minus(gained, ended); !missing.IsEmpty() {
			t.Errorf("the position gained %s, and the stream does not hold the end of %s", gained, missing)
		}
	}
}

// branchOf gives the XA branch that the event prepares, or whose end it is.
func branchOf(e streamEvent) (b event.XABranch, prepares, decides bool) {
	switch e.kind {
	case event.TypeXAPrepare:
		p, err := event.ParseXAPrepare(e.body)
		return p.Branch, err == nil && !p.OnePhase, false
	case event.TypeQuery:
		if q, err := event.ParseQuery(e.body); err == nil && event.Classify(q.Text) == event.StatementXA {
			x, err := event.ParseXAStatement(q.Text)
			return x.Branch, false, err == nil
		}
	case event.TypeTransactionPayload:
		if inside := eventsInside(e.body); len(inside) > 0 {
			return branchOf(inside[len(inside)-1])
		}
	}
	return b, false, false
}

// ends reports whether a transaction may be over with the event.
func ends(e streamEvent) bool {
	switch e.kind {
	case event.TypeXAPrepare:
		return true
	case event.TypeQuery:
		q, err := event.ParseQuery(e.body)
		if err != nil {
			return false
		}
		switch event.Classify(q.Text) {
		case event.StatementBegin, event.StatementSavepoint, event.StatementRollbackTo:
			return false
		case event.StatementXA:
			x, err := event.ParseXAStatement(q.Text)
			return err == nil && (x.Verb == event.XACommit || x.Verb == event.XARollback)
		}
		return true
	case event.TypeTransactionPayload:
		return slices.ContainsFunc(eventsInside(e.body), ends)
	}
	return commits(e)
}

// commits reports whether an event can end a transaction so that its rows count.
func commits(e streamEvent) bool {
	switch e.kind {
	case event.TypeXID, event.TypeExecuteLoadQuery:
		return true
	case event.TypeXAPrepare:
		p, err := event.ParseXAPrepare(e.body)
		return err == nil && p.OnePhase
	case event.TypeQuery:
		q, err := event.ParseQuery(e.body)
		if err != nil {
			return false
		}
		switch event.Classify(q.Text) {
		case event.StatementCommit, event.StatementOther, event.StatementCreateTransaction:
			return true
		case event.StatementXA:
			x, err := event.ParseXAStatement(q.Text)
			return err == nil && x.Verb == event.XACommit
		}
	case event.TypeTransactionPayload:
		return slices.ContainsFunc(eventsInside(e.body), commits)
	}
	return false
}

var unpacker = func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(256<<20))
	if err != nil {
		panic(err)
	}
	return d
}()

// eventsInside gives the events of a payload as far as they are whole.
func eventsInside(body []byte) []streamEvent {
	head, err := event.ParsePayloadHead(body)
	if err != nil || head.Offset > len(body) {
		return nil
	}
	b := body[head.Offset:]
	if head.Compression == event.CompressionZSTD {
		b, _ = unpacker.DecodeAll(b, nil) // up to the damage
	}
	return splitEvents(b)
}

func splitEvents(b []byte) []streamEvent {
	var out []streamEvent
	for len(b) >= event.HeaderSize {
		h, err := event.ParseHeader(b)
		if err != nil || int(h.Size) > len(b) {
			break
		}
		out = append(out, streamEvent{h.Type, h.Flags, b[event.HeaderSize:h.Size]})
		b = b[h.Size:]
	}
	return out
}

// fixtureStreams gives streams to begin with: what a real server wrote, and one of each shape that the tests of this package build.
func fixtureStreams(t testing.TB) map[string][]byte {
	t.Helper()
	out := map[string][]byte{
		"empty":       newStream().bytes(),
		"one row":     newStream().transaction(1, "a").bytes(),
		"foreign":     newStream().foreign(1).foreign(2).heartbeat().transaction(3, "a").bytes(),
		"no checksum": newStream().transaction(1, "a").rotateTo("binlog.000002").format(event.ChecksumNone).transaction(2, "b").bytes(),
		"payload": newStream().gtid(1).payload(inner(func(s *stream) {
			s.query("BEGIN").tableMap(tableO, "o").insert(tableO, 1, "a", "p").xid()
		})).transaction(2, "b").bytes(),
		"xa": newStream().gtid(1).query("XA START X'61',X'',1").tableMap(tableO, "o").insert(tableO, 1, "a", "p").query("XA END X'61',X'',1").
			event(event.TypeXAPrepare, []byte{0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 'a'}).transaction(2, "b").gtid(3).query("XA COMMIT X'61',X'',1").bytes(),
		"large":    newStream().gtid(1).query("BEGIN").tableMap(tableO, "o").insertMore(tableO, 1, "a", string(make([]byte, 5000))).insert(tableO, 2, "b", string(make([]byte, 60000))).xid().bytes(),
		"no end":   newStream().gtid(1).query("BEGIN").tableMap(tableO, "o").insert(tableO, 1, "a", "p").heartbeat().bytes(),
		"cut off":  newStream().gtid(1).query("BEGIN").tableMap(tableO, "o").insert(tableO, 1, "a", "p").rotateTo("binlog.000002").format(event.ChecksumCRC32).xid().bytes(),
		"XID only": newStream().transaction(1, "a").xid().transaction(2, "b").bytes(),
		"payload without an end": newStream().gtid(1).payload(inner(func(s *stream) {
			s.query("BEGIN").tableMap(tableO, "o").insert(tableO, 1, "a", "p")
		})).transaction(2, "b").bytes(),
		"payload and more": newStream().gtid(1).payload(inner(func(s *stream) {
			s.query("BEGIN").tableMap(tableO, "o").insert(tableO, 1, "a", "p").xid().tableMap(tableO, "o").insert(tableO, 2, "b", "p").xid()
		})).transaction(2, "b").bytes(),
		"v2 heartbeat": newStream().transaction(1, "a").heartbeatV2().transaction(2, "b").bytes(),
		"rollback":     newStream().gtid(1).query("BEGIN").tableMap(tableO, "o").insert(tableO, 1, "a", "p").query("ROLLBACK").bytes(),
		"error":        newStream().transaction(1, "a").packet([]byte("\xff\xd4\x04#HY000binlog truncated in the middle of event")).bytes(),
	}
	for i, events := range fixtureGroups(t) {
		s := newStream()
		for _, e := range events {
			s.eventWith(e.kind, e.flags, e.body)
		}
		out[fmt.Sprintf("captured %d", i)] = s.bytes()
	}
	return out
}

// fixtureGroups gives the transactions of the captured files.
func fixtureGroups(t testing.TB) [][]streamEvent {
	t.Helper()
	files, err := filepath.Glob("event/testdata/*.binlog")
	if err != nil || len(files) == 0 {
		t.Fatal("no captured files:", err)
	}
	var out [][]streamEvent
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range splitEvents(b[4:]) {
			e.body = e.body[:len(e.body)-event.ChecksumSize]
			switch e.kind {
			case event.TypeGTID, event.TypeGTIDTagged:
				out = append(out, nil)
			case event.TypeRotate, event.TypePreviousGTIDs, event.TypeFormatDescription:
				continue
			}
			out[len(out)-1] = append(out[len(out)-1], e)
		}
	}
	return out
}

// FuzzStream gives a reader arbitrary bytes as the packets behind its dump command.
func FuzzStream(f *testing.F) {
	for _, b := range fixtureStreams(f) {
		f.Add(b)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		wantWholeGroups(t, eventsOf(b), readFuzzed(t, dir, b))
	})
}

// Records of FuzzEvents: `u8 type, u8 flags, u16 size, body`. Headers, sizes, log positions, checksums and packets are made for them, so that what is
// mutated lies behind all that. Two types that no event has stand for something else:
const (
	recordPacket = 0xff // the body is the payload of a packet
	recordRaw    = 0xfe // the body goes into the stream as it is
)

func appendRecord(b []byte, kind byte, flags event.Flags, body []byte) []byte {
	b = append(b, kind, byte(flags))
	b = binary.LittleEndian.AppendUint16(b, uint16(len(body)))
	return append(b, body...)
}

// streamOf makes the stream that records describe.
func streamOf(records []byte) *stream {
	s := newStream()
	for len(records) >= 4 {
		kind, flags, n := records[0], records[1], int(binary.LittleEndian.Uint16(records[2:]))
		body := records[4:min(len(records), 4+n)]
		records = records[4+len(body):]
		switch {
		case kind == recordPacket:
			s.packet(body)
		case kind == recordRaw:
			s.b = append(s.b, body...)
		case event.Type(kind) == event.TypeFormatDescription && len(body) > 0:
			s.pos += uint64(event.HeaderSize + len(body) + event.ChecksumSize)
			s.raw(sum(makeEvent(event.TypeFormatDescription, event.Flags(flags), uint32(s.pos), body, event.HeaderSize+len(body)+event.ChecksumSize), true))
			s.crc = body[len(body)-1] == byte(event.ChecksumCRC32)
		default:
			s.eventWith(event.Type(kind), event.Flags(flags), body)
		}
	}
	return s
}

// recordsOf is the reverse of streamOf, but for what a stream begins with.
func recordsOf(b []byte) []byte {
	var out []byte
	for i, e := range eventsOf(b) {
		if i >= 2 && len(e.body) <= 0xffff {
			out = appendRecord(out, byte(e.kind), e.flags, e.body)
		}
	}
	return out
}

// FuzzEvents gives a reader arbitrary events in a sound stream.
func FuzzEvents(f *testing.F) {
	for _, b := range fixtureStreams(f) {
		f.Add(recordsOf(b))
	}
	f.Add(appendRecord(recordsOf(newStream().transaction(1, "a").bytes()), recordPacket, 0, []byte{0xfe, 0, 0, 2, 0}))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, records []byte) {
		s := streamOf(records)
		wantWholeGroups(t, eventsOf(s.bytes()), readFuzzed(t, dir, s.bytes()))
	})
}

// How FuzzPayload packs what it is given.
const (
	packRecords = iota // records as in FuzzEvents, zstd
	packPlain          // records, not compressed
	packEvents         // bytes that inflate to what is given
	packNothing        // compressed bytes as given
	packModes
)

// FuzzPayload gives a reader arbitrary events inside a compressed transaction, in several frames and with a size field that may lie.
func FuzzPayload(f *testing.F) {
	for _, b := range fixtureStreams(f) {
		records := recordsOf(b)
		if len(records) > 4 {
			for mode := range byte(packModes) {
				f.Add(records, mode, uint16(len(records)/2), uint16(0))
			}
		}
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, records []byte, mode byte, cut, lie uint16) {
		events := records
		if mode%packModes == packRecords || mode%packModes == packPlain {
			events = innerOf(records)
		}
		body, compression := events, event.CompressionZSTD
		switch mode % packModes {
		case packRecords, packEvents:
			at := min(int(cut), len(events))
			body = packed(events[:at])
			if at < len(events) {
				body = append(body, packed(events[at:])...)
			}
		case packPlain:
			compression = event.CompressionNone
		}
		s := newStream().gtid(1).event(event.TypeTransactionPayload, payloadHead(compression, len(events)+int(lie), len(body)), body).transaction(2, "b")
		wantWholeGroups(t, eventsOf(s.bytes()), readFuzzed(t, dir, s.bytes()))
	})
}

// innerOf gives the events that records describe as they stand inside a payload, but for the GTID, which stands outside.
func innerOf(records []byte) []byte {
	s := &stream{bare: true}
	for len(records) >= 4 {
		kind, flags, n := records[0], records[1], int(binary.LittleEndian.Uint16(records[2:]))
		body := records[4:min(len(records), 4+n)]
		records = records[4+len(body):]
		if k := event.Type(kind); k != event.TypeGTID && k != event.TypeGTIDTagged {
			s.eventWith(k, event.Flags(flags), body)
		}
	}
	return s.b
}
