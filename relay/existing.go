package relay

import (
	"context"
	"encoding/json"
	"math/big"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
	"outbox-relay/binlog/value"
	"outbox-relay/checkpoint"
	"outbox-relay/router"
	"outbox-relay/snapshot"
)

// existing reads the rows that exist, routes them and hands them over until the snapshot has ended or stretch ends.
func (p *pump) existing(stretch, work context.Context) error {
	for {
		step, err := p.rows.Next(stretch)
		if err != nil {
			return err
		}
		if err := p.waitRoom(stretch); err != nil {
			return err
		}
		if err := p.selected(work, step); err != nil {
			return err
		}
		if end := step.Progress(); !end.Reading() {
			p.log.Info("snapshot ends, the binlog follows from the position at which it was begun", "rows", end.Rows(), "tables", len(end.Done), "took", time.Since(end.Started).Round(time.Second))
			p.reading.Store(false)
			p.overlap = p.overlapOf(end)
			return p.rows.Close()
		}
	}
}

// selected hands the rows of a step over. Unlike a transaction it may end anywhere: a wish to stop ends the reading, and what was read is done.
func (p *pump) selected(work context.Context, step *snapshot.Step) error {
	now := time.Now().UnixMicro()
	seq := p.tracker.BeginRows(now)
	var done []byte // the key of the last row that was handed over
	for {
		ok, err := step.NextRow(&p.row)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		of := origin{step.Position(), step}
		if p.known.at(of.name, p.row.Number) {
			return &HaltError{Poison: p.known.poison}
		}
		if err := p.publish(work, of, router.Meta{Position: of.name, CommitMicros: now}, seq); err != nil {
			if isHalt(err) && done != nil { // what is before the row counts, unless the tracker has it as outstanding
				p.read(seq, step.Base().At(done, int64(step.Rows()-1)))
			}
			return err
		}
		done = append(done[:0], step.Key()...)
	}
	p.o.Points.hit(PointStep)
	p.read(seq, step.Progress())
	return nil
}

// read closes rows that were handed over.
func (p *pump) read(seq uint64, progress *checkpoint.Snapshot) {
	if w := p.windows; w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.rows, w.base = 0, nil
	}
	p.advanced(p.tracker.Read(seq, progress))
}

// overGap makes the checkpoint one that begins with a snapshot of all tables from the present position, if what it would go on with is purged.
func (s *session) overGap(ctx context.Context, c *checkpoint.Checkpoint) error {
	if s.purged == nil {
		return nil
	}
	now, err := s.o.Latest(ctx)
	if err != nil {
		return err
	}
	if s.purged.Missing != nil {
		s.Relay.gap = s.purged.Missing.Count()
	}
	s.log.Warn("the source has purged transactions that were not read: reading the rows that exist in all tables instead; rows that were deleted meanwhile are not published (source.on_gap: snapshot)",
		"reason", s.purged.Detail, "count", s.Relay.gap, "position", now.String())
	c.GTIDSet, c.Begun, c.Columns = now, nil, nil
	c.Snapshot, err = s.newSnapshot(ctx, nil, s.o.Tables)
	s.purged = nil
	return err
}

// newSnapshot adds the tables that names stand for to the progress x, which may be nil. It stays as it is where there are none.
func (s *session) newSnapshot(ctx context.Context, x *checkpoint.Snapshot, names []string) (*checkpoint.Snapshot, error) {
	if s.o.TablesOf != nil {
		var err error
		if names, err = s.o.TablesOf(ctx, names); err != nil {
			return nil, err
		}
	}
	switch {
	case len(names) == 0:
		return x, nil
	case x == nil:
		return checkpoint.NewSnapshot(names, time.Now()), nil
	}
	return x.With(names), nil
}

// overlap counts the rows that the source gives and the snapshot may have published before: those of transactions that were executed after the position at
// which it was begun and before it ended.
type overlap struct {
	*session
	ended  *gtid.Set
	tables map[string]*checkpoint.SnapshotTable
	rows   int64
}

// overlapOf gives nil where the position has passed the end of the last snapshot.
func (s *session) overlapOf(x *checkpoint.Snapshot) *overlap {
	position := s.tracker.Position().Set
	if x == nil || x.Ended == nil || position.ContainsSet(x.Ended) {
		return nil
	}
	o := &overlap{session: s, ended: gtid.Minus(x.Ended, position), tables: map[string]*checkpoint.SnapshotTable{}}
	for i := range x.Done {
		o.tables[x.Done[i].Table] = &x.Done[i]
	}
	return o
}

// row takes a row of a transaction. o may be nil.
func (o *overlap) row(id gtid.GTID, row *binlog.Row) {
	if o == nil || !o.ended.Contains(id) {
		return
	}
	t := o.tables[row.Table.Schema+"."+row.Table.Name]
	if t == nil || behindEnd(t, row) {
		return
	}
	o.rows++
	o.metrics.overlap.Inc()
}

// passed takes the ranges that the position gains, and says so when the overlap is passed. It gives what is left: nil for nothing.
func (o *overlap) passed(ranges []gtid.Range) *overlap {
	if o == nil {
		return nil
	}
	gained := new(gtid.Set)
	for _, r := range ranges {
		gained.AddRange(r)
	}
	if o.ended.Subtract(gained); !o.ended.IsEmpty() {
		return o
	}
	o.log.Info("all that was executed during the snapshot is read; rows that may have been published twice", "rows", o.rows)
	return nil
}

// behindEnd reports whether a row was surely not read, since its key, one integer, is above that of the last row when the table was begun.
func behindEnd(t *checkpoint.SnapshotTable, row *binlog.Row) bool {
	var until []string
	if len(t.Key) != 1 || json.Unmarshal(t.Until, &until) != nil || len(until) != 1 {
		return false
	}
	for i := range row.Table.Columns {
		c := &row.Table.Columns[i]
		if c.Name != t.Key[0] || row.Cells[i].State != event.CellValue {
			continue
		}
		switch c.Type {
		case event.ColumnTiny, event.ColumnShort, event.ColumnInt24, event.ColumnLong, event.ColumnLongLong:
		default:
			return false
		}
		text, err := value.Append(nil, c, row.Cells[i].Raw)
		last, ok := new(big.Int).SetString(until[0], 10)
		key, ok2 := new(big.Int).SetString(string(text), 10)
		return err == nil && ok && ok2 && key.Cmp(last) > 0
	}
	return false
}
