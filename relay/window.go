package relay

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
)

// windows commits what a session publishes to a Transactional sink, window by window, each with its checkpoint.
//
// What the tracker knows to be announced and what the sink has taken have to be the same when a window is cut, and so has the count of rows of the transaction
// under way. The pump changes them together under mu; the cut is made under mu. The pump may wait in Publish with mu held: only for room, which the window
// before makes without it.
type windows struct {
	*session
	sink Transactional
	busy chan struct{} // one token: one commit at a time

	mu   sync.Mutex
	gtid string               // of the transaction under way, of which rows are handed over
	at   int64                // its commit, in µs since 1970
	rows int                  // 0 without one
	base *checkpoint.Snapshot // instead, of rows that were selected: the progress before them, and the key of the last one
	key  []byte
	seen uint64 // records handed over

	pending   *pendingWindow // cut and not committed; guarded by busy
	taken     uint64         // seen, at the last cut; guarded by busy
	committed atomic.Bool
}

// pendingWindow is a window that was cut.
type pendingWindow struct {
	mark       checkpoint.Mark
	position   checkpoint.Position
	checkpoint *checkpoint.Checkpoint
}

func newWindows(s *session, sink Transactional) *windows {
	return &windows{session: s, sink: sink, busy: make(chan struct{}, 1)}
}

// anything tells whether a window was committed.
func (w *windows) anything() bool { return w != nil && w.committed.Load() }

// handed notes how many rows of a transaction are done with as far as the pump goes. mu is held.
func (w *windows) handed(gtid []byte, commitMicros int64, rows int) {
	if w.gtid != string(gtid) {
		w.gtid = string(gtid)
	}
	w.at, w.rows = commitMicros, rows
	w.seen++
}

// handedRow notes that rows that were selected are done with as far as the pump goes: so many behind base, up to the one with the key. mu is held.
func (w *windows) handedRow(base *checkpoint.Snapshot, rows int, key []byte) {
	w.base, w.rows = base, rows
	w.key = append(w.key[:0], key...)
	w.seen++
}

// run commits a window whenever one is due, and in every interval in which the position changed without records.
func (w *windows) run(ctx context.Context) {
	t := time.NewTicker(w.o.SaveInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.sink.Due():
		case <-t.C:
		}
		if !w.allowed() {
			continue
		}
		if err := w.commit(ctx); err != nil && ctx.Err() == nil {
			w.end(fmt.Errorf("publishing: %w", err))
			return
		}
	}
}

// commit makes everything that was handed over visible, with the checkpoint behind it. It blocks until that is so or ctx ends.
func (w *windows) commit(ctx context.Context) error {
	select {
	case w.busy <- struct{}{}:
		defer func() { <-w.busy }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if w.pending != nil {
		if err := w.finish(ctx); err != nil {
			return err
		}
	}
	if err := w.cut(); err != nil || w.pending == nil {
		return err
	}
	return w.finish(ctx)
}

// cut ends the window if there is anything to store.
func (w *windows) cut() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	m, p := w.tracker.Mark()
	columns, err := w.rememberedColumns(p.Set)
	if err != nil {
		return err
	}
	if w.seen == w.taken && p.Generation == w.generation && bytes.Equal(columns, w.columns) && w.saved.paused.Equal(w.pausing.paused()) {
		w.saved.mu.Lock()
		w.saved.at = time.Now()
		w.saved.mu.Unlock()
		return nil
	}
	c := w.checkpoint(p, columns)
	under := ""
	if w.rows > 0 && w.base != nil {
		c.Snapshot = w.base.At(w.key, int64(w.rows))
	} else if w.rows > 0 {
		under = w.gtid
		c.Begun = append(c.Begun, checkpoint.Begun{GTID: w.gtid, Rows: w.rows, CommitMicros: w.at})
	}
	c.Begun = append(c.Begun, w.stillBegun(p.Set, under)...)
	w.o.Points.hit(PointBeforeSave)
	if err := w.sink.Cut(c); err != nil {
		return fmt.Errorf("the checkpoint: %w", err)
	}
	w.pending = &pendingWindow{m, p, c}
	w.taken = w.seen
	return nil
}

// finish commits the window that was cut.
func (w *windows) finish(ctx context.Context) error {
	x := w.pending
	err := w.sink.Commit(ctx)
	w.o.Points.hit(PointAfterSave)
	w.saveMu.Lock()
	defer w.saveMu.Unlock()
	if err = w.stored(x.position, x.checkpoint, err); err != nil {
		return err
	}
	w.pending = nil
	w.committed.Store(true)
	w.lastAck.Store(time.Now().UnixMicro()) // before the tracker, which takes it as the time of what becomes done
	w.advanced(w.tracker.AckedThrough(x.mark))
	return nil
}

// startOver ends a session that another one follows at once: it lost its transaction, which has to be published again from the last checkpoint, or
// what comes next is purged.
type startOver struct {
	cause     error
	poison    *knownPoison
	committed bool // windows were committed before
	// gap is not nil when the source has purged what is to be read next: the tables are read instead.
	gap *binlog.SourceError
}

func (s *startOver) Error() string {
	if s.poison != nil {
		return s.poison.poison.Error()
	}
	return s.cause.Error()
}

func (s *startOver) Unwrap() error { return s.cause }

// knownPoison is a poison record that a transaction met behind records that have to be committed without it: the next session halts before it.
type knownPoison struct {
	poison *Poison
	row    int
}

// rowOf is the number of the row that a poison record comes from, 0 where its record does not tell.
func rowOf(p *Poison) int {
	_, text := cutPosition(p.Position)
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// at tells whether a row is the one, or behind it.
func (k *knownPoison) at(gtid []byte, row int) bool {
	return k != nil && row >= k.row && string(gtid) == k.poison.GTID
}

// begun is a transaction of which the first rows are done with.
type begun struct {
	checkpoint.Begun
	id gtid.GTID
}

// begunOf takes over what a checkpoint says of begun transactions. Their counts hold for the tables of that checkpoint only.
func (s *session) begunOf(c *checkpoint.Checkpoint) ([]begun, error) {
	var out []begun
	for _, b := range c.Begun {
		id, err := gtid.Parse(b.GTID)
		if err != nil {
			return nil, fmt.Errorf("the checkpoint's begun transaction: %w", err)
		}
		out = append(out, begun{b, id})
	}
	if len(out) == 0 {
		return nil, nil
	}
	tables, old := slices.Sorted(slices.Values(s.o.Tables)), slices.Sorted(slices.Values(c.Tables))
	if !slices.Equal(tables, old) {
		return nil, fmt.Errorf("%w: the checkpoint is inside transaction %s and counts its rows in the tables %s; start once with these tables, and change them when the checkpoint has passed it; if the source has lost the transaction, set the checkpoint (outbox-relay checkpoint set)", ErrTables, out[0].GTID, strings.Join(old, ", "))
	}
	return out, nil
}

// done is how many rows of a transaction are done with. A server that lost a transaction may give its GTID to another one, of which none is.
func (s *session) done(gtid []byte, commitMicros int64) int {
	for i := range s.begun {
		b := &s.begun[i]
		if b.GTID != string(gtid) {
			continue
		}
		if b.CommitMicros != 0 && b.CommitMicros != commitMicros {
			s.log.Warn("another transaction has the GTID of one that is published in part and that the source has lost; it is published whole", "gtid", b.GTID, "rows", b.Rows)
			return 0
		}
		return b.Rows
	}
	return 0
}

// stillBegun are the begun transactions that a position does not contain, without the one under way.
func (s *session) stillBegun(position *gtid.Set, under string) (out []checkpoint.Begun) {
	for _, b := range s.begun {
		if b.GTID != under && !position.Contains(b.id) {
			out = append(out, b.Begun)
		}
	}
	return out
}
