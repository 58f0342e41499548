package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
	"outbox-relay/router"
	"outbox-relay/snapshot"
)

// session is one stretch of activity: from a checkpoint to a stop, a halt or the loss of the lease.
type session struct {
	*Relay
	store checkpoint.Store
	reg   prometheus.Registerer

	source  Source
	rows    *snapshot.Reader // of a session that begins with a snapshot, or nil
	reading atomic.Bool      // rows are read, not yet the source
	sink    Sink
	windows *windows // nil without transactions
	tracker *checkpoint.Tracker
	begun   []begun // transactions of which the checkpoint says that some rows are done
	token   uint64
	columns json.RawMessage // remembered columns as they are stored; owned by save once the session runs
	term    uint64          // the lease's term that the session acts under; written by guard only

	confirmed atomic.Uint64 // term under which nobody else can have been active since the last look into the store
	room      chan struct{} // signalled when transactions in flight became fewer
	proof     atomic.Int64  // unix µs of the last proof of being caught up; 0 for none
	caughtUp  atomic.Bool
	lastAck   atomic.Int64 // unix µs of the last acknowledgement

	endOnce sync.Once
	cause   error // why the session ends: *HaltError, errTakenOver or an error of a part
	ended   chan struct{}
	refused chan *startOver // of a row that keeps the window from being committed; room for one

	saveMu     sync.Mutex // one save at a time
	generation uint64     // of the tracker's position that is stored
	saved      savedState

	keeps keptState
}

// place is where the source before was, for the source that goes on.
func (s *session) place() binlog.Place {
	u, err := gtid.ParseUUID(s.saved.server)
	if err != nil {
		return binlog.Place{}
	}
	p := binlog.Place{Server: u, File: s.saved.file, Position: s.saved.pos}
	if l := s.saved.last; l != nil {
		if p.Last, err = gtid.Parse(l.GTID); err == nil {
			p.Micros = l.CommitMicros
		}
	}
	return p
}

// savedState is what the store holds, for the status.
type savedState struct {
	mu      sync.Mutex
	set     *gtid.Set
	at      time.Time // when the store was last known to hold the position
	changed time.Time // when it was last written
	file    string
	pos     uint64
	server  string // that file and pos belong to
	last    *checkpoint.Last
	paused  time.Time
	err     error
	failed  int
}

// begin loads the checkpoint. While the store cannot be reached it tries again, as long as nobody else holds the lease.
func (s *session) begin(ctx context.Context) error {
	for said := false; ; said = true {
		err := s.load(ctx)
		var fault *checkpoint.Error
		switch {
		case errors.Is(err, checkpoint.ErrFenced):
			return errTakenOver
		case !errors.As(err, &fault) || !fault.Passing || ctx.Err() != nil:
			return err
		}
		if !said {
			s.log.Warn("the checkpoint cannot be loaded, trying again", "err", Sentence(err))
		}
		s.setError(err)
		pause := time.NewTimer(s.o.SaveInterval)
		for passed := false; !passed || !s.o.Lease.State().Held; {
			changed := s.o.Lease.Changed()
			if s.o.Lease.State().Other {
				pause.Stop()
				return errTakenOver
			}
			select {
			case <-ctx.Done():
				pause.Stop()
				return ctx.Err()
			case <-pause.C:
				passed = true
			case <-changed:
			}
		}
		s.term = s.o.Lease.State().Term
	}
}

// load reads the checkpoint or makes the first one. The first position is stored before anything is read from it.
func (s *session) load(ctx context.Context) error {
	s.room, s.ended, s.refused = make(chan struct{}, 1), make(chan struct{}), make(chan *startOver, 1)
	c, err := s.store.Load(ctx)
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		set, err := s.o.FirstPosition(ctx)
		if err != nil {
			return err
		}
		s.log.Info("no checkpoint: starting", "position", set.String())
		c = &checkpoint.Checkpoint{Name: s.o.Name, GTIDSet: set}
		if s.o.StartSnapshot {
			if c.Snapshot, err = s.newSnapshot(ctx, nil, s.o.Tables); err != nil {
				return err
			}
		}
	case err != nil:
		return err
	default:
		var added []string
		for _, t := range s.o.Tables {
			if !router.Watches(c.Tables, t) {
				added = append(added, t)
			}
		}
		if len(added) > 0 && s.o.AddedTables != nil {
			read, err := s.o.AddedTables(ctx, added)
			if err != nil {
				return err
			}
			if len(read) > 0 {
				s.log.Info("tables are new: their rows are read before the relay goes on", "tables", strings.Join(read, ", "))
				if c.Snapshot, err = s.newSnapshot(ctx, c.Snapshot, read); err != nil {
					return err
				}
			}
		}
	}
	if err := s.overGap(ctx, c); err != nil {
		return err
	}
	var dropped []string
	if c.Snapshot, dropped = c.Snapshot.Only(func(table string) bool { return router.Watches(s.o.Tables, table) }); len(dropped) > 0 {
		s.log.Warn("tables are not watched any more: their snapshot ends unfinished", "tables", strings.Join(dropped, ", "))
	}
	if s.begun, err = s.begunOf(c); err != nil {
		return err
	}
	s.token, s.columns = c.FencingToken+1, c.Columns
	s.pausing.loaded(c.Paused)
	s.tracker = checkpoint.NewTracker(c.GTIDSet)
	s.tracker.Snapshot(c.Snapshot)
	s.tracker.Observe(func(commitMicros int64) {
		s.metrics.publishSeconds.Observe(float64(max(s.lastAck.Load()-commitMicros, 0)) / 1e6)
	})
	s.confirmed.Store(s.term)
	s.saved.file, s.saved.pos, s.saved.server, s.saved.last = c.BinlogFile, c.BinlogPosition, c.SourceUUID, c.Last
	// Storing the token now fences whoever was active before.
	return s.save(ctx, true)
}

// end ends the session for a cause; the first one counts.
func (s *session) end(cause error) {
	switch {
	case errors.Is(cause, ErrSinkFenced):
		cause = errTakenOver
	case errors.Is(cause, ErrSinkAborted):
		cause = &startOver{cause: cause, committed: s.windows.anything()}
	}
	s.endOnce.Do(func() {
		s.cause = cause
		close(s.ended)
	})
}

// allowed reports whether records may be sent and checkpoints saved right now.
func (s *session) allowed() bool {
	l := s.o.Lease.State()
	return l.Held && l.Term == s.confirmed.Load()
}

func (s *session) run(ctx context.Context) error {
	// read ends with the wish to stop or with the session; hand, under which records are handed over and drained, lives on for the drain
	// timeout after that wish and ends at once with a halt; work ends last.
	work, cancelWork := context.WithCancel(context.WithoutCancel(ctx))
	hand, cancelHand := context.WithCancel(work)
	read, cancelRead := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() {
		cancelRead()
		cancelHand()
		cancelWork()
		wg.Wait()
		s.closeSource()
	}()
	if err := s.open(); err != nil {
		return err
	}
	s.mu.Lock()
	s.Relay.session = s // from now on Status asks its parts
	s.mu.Unlock()
	spawn := func(f func(context.Context)) {
		wg.Add(1)
		go func() { defer wg.Done(); f(work) }() // all end with cancelWork
	}
	spawn(func(ctx context.Context) {
		if err := s.sink.Run(ctx); err != nil && ctx.Err() == nil {
			s.end(fmt.Errorf("publishing: %w", err))
		}
	})
	if s.windows != nil {
		spawn(s.windows.run)
	} else {
		spawn(s.keepSaving)
	}
	spawn(s.guard)
	if s.o.Distance != nil {
		spawn(s.watchDistance)
	}
	spawn(func(work context.Context) {
		select {
		case <-s.ended:
			cancelRead()
			cancelHand()
			if !isHalt(s.cause) {
				cancelWork()
			}
		case <-ctx.Done():
			select {
			case <-time.After(s.o.DrainTimeout):
				cancelHand()
			case <-s.ended:
				cancelHand()
			case <-work.Done():
			}
		case <-work.Done():
		}
	})

	err := s.pump(read, hand)
	if again := (*startOver)(nil); errors.As(err, &again) && again.gap != nil {
		s.drain(hand) // the next session begins at another position
	}
	if err != nil && read.Err() == nil {
		s.end(err)
	}
	if !s.hasEnded() {
		s.drain(hand) // a wish to stop, or caught up
	}
	h := (*HaltError)(nil)
	switch {
	case !s.hasEnded():
		return s.lastSave()
	case errors.As(s.cause, &h):
		return s.stand(ctx, work, h)
	}
	return s.cause
}

func isHalt(err error) bool {
	var h *HaltError
	return errors.As(err, &h)
}

func (s *session) open() error {
	var err error
	if s.sink, err = s.o.OpenSink(SinkHooks{Acked: s.acked, Judge: s.judge, Poisoned: s.poisoned, Allowed: s.allowed}, s.reg); err != nil {
		return err
	}
	if t, ok := s.sink.(Transactional); ok {
		s.windows = newWindows(s, t)
		s.tracker.Gather()
	}
	p := s.tracker.Position()
	s.source, err = s.o.OpenSource(p.Set, SourceHooks{Columns: s.columns, Place: s.place(), BeforeWait: s.sink.Flush, Allowed: s.allowed, Gap: s.gap}, s.reg)
	if err == nil && p.Snapshot.Reading() {
		s.rows, err = s.o.OpenSnapshot(p.Snapshot, p.Set, s.sink.Flush)
		s.reading.Store(err == nil)
	}
	return err
}

// closeSource closes what is read. The pump has ended.
func (s *session) closeSource() {
	if s.rows != nil {
		s.rows.Close()
	}
	if s.source != nil {
		s.source.Close()
	}
}

// acked is called by the sink for acknowledged records.
func (s *session) acked(seqs []uint64) {
	s.o.Points.hit(PointAcked)
	s.lastAck.Store(time.Now().UnixMicro()) // before the tracker, which takes it as the time of what becomes done
	a := s.tracker.Acked(seqs)
	s.advanced(a)
}

// advanced wakes a pump that waits for room after a call to the tracker that made some.
func (s *session) advanced(a checkpoint.Advance) {
	if a.Transactions > 0 {
		select {
		case s.room <- struct{}{}:
		default:
		}
	}
}

// judge is called by the sink for a record that was refused for ever.
func (s *session) judge(p *Poison, rec *router.Record) (instead *router.Record, drop bool) {
	p.locate()
	return s.verdict(p, rec)
}

func (s *session) poisoned(p *Poison) {
	p.locate()
	if s.windows == nil || p.GTID == "" { // no row: another session would come no further
		s.end(&HaltError{Poison: p})
		return
	}
	again := &startOver{poison: &knownPoison{p, rowOf(p)}, committed: s.windows.anything()} // records behind it are in the same window
	s.end(again)
	select {
	case s.refused <- again: // for a session that stands
	default:
	}
}

// drain waits until everything handed over is acknowledged, or ctx ends.
func (s *session) drain(ctx context.Context) {
	s.sink.Flush()
	drain := s.sink.Drain
	if s.windows != nil {
		drain = s.windows.commit
	}
	if err := drain(ctx); err != nil && !s.hasEnded() {
		s.log.Warn("stopping with records unacknowledged: they are published again after the restart", "records", s.sink.Stats().Records)
	}
}

// drainUnlessRefused drains a session that stands. A row before the cause may be refused meanwhile: its window can only be committed by a session that
// stands before that row.
func (s *session) drainUnlessRefused(ctx context.Context) *startOver {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	drained := make(chan struct{})
	go func() { defer close(drained); s.drain(ctx) }() // ends with ctx
	select {
	case again := <-s.refused:
		cancel()
		<-drained
		return again
	case <-drained:
		return nil
	}
}

func (s *session) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// lastSave stores the final position. A relay that lost its lease leaves the store to the next one.
func (s *session) lastSave() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.o.DrainTimeout)
	defer cancel()
	if !s.allowed() {
		s.log.Warn("stopping without a last save: the activity lock is not held")
		return nil
	}
	if s.windows == nil {
		if err := s.save(ctx, false); err != nil {
			return err
		}
	}
	s.saved.mu.Lock()
	defer s.saved.mu.Unlock()
	s.log.Info("checkpoint saved", "position", s.saved.set.String())
	return nil
}

// stand is a halted session: everything before the cause is drained and saved, then it stays up, not ready, or exits.
func (s *session) stand(ctx, work context.Context, h *HaltError) error {
	s.mu.Lock()
	s.halt = h
	s.mu.Unlock()
	attrs := []any{"reason", h.Reason(), "err", h}
	if h.Poison != nil {
		attrs = append(attrs, "gtid", h.Poison.GTID, "table", h.Poison.Table, "id", h.Poison.ID)
	}
	if h.Poison != nil {
		s.metrics.poison.WithLabelValues(h.Poison.Reason).Inc()
	}
	s.log.Error("halted", attrs...)
	s.closeSource()
	wait := ctx // staying up, it drains for as long as that takes
	if s.o.ExitOnHalt {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(work, s.o.DrainTimeout)
		defer cancel()
	}
	if again := s.drainUnlessRefused(wait); again != nil {
		return again
	}
	if s.o.ExitOnHalt {
		return errors.Join(h, s.lastSave())
	}
	if err := s.lastSave(); err != nil {
		s.log.Warn("saving the checkpoint of a halted relay", "err", Sentence(err))
	}
	<-ctx.Done()
	return s.lastSave()
}

// guard watches the lease. When another instance holds it, the session ends. When it was lost and is held again, the store tells whether
// another instance was active meanwhile.
func (s *session) guard(ctx context.Context) {
	for {
		changed := s.o.Lease.Changed()
		l := s.o.Lease.State()
		if l.Other {
			s.end(errTakenOver)
			return
		}
		if l.Held && l.Term != s.confirmed.Load() {
			switch err := s.confirm(ctx); {
			case errors.Is(err, errTakenOver):
				s.end(err)
				return
			case err != nil:
				s.log.Warn("looking into the checkpoint after the activity lock was lost", "err", Sentence(err))
				select {
				case <-ctx.Done():
					return
				case <-time.After(s.o.SaveInterval):
				}
				continue
			}
			s.confirmed.Store(l.Term)
			s.log.Info("activity lock held again")
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

func (s *session) confirm(ctx context.Context) error {
	if s.windows != nil {
		return nil // the sink learns with its next request whether another instance has taken its place
	}
	c, err := s.store.Load(ctx)
	if err != nil {
		return err
	}
	if c.FencingToken != s.token {
		return errTakenOver
	}
	return nil
}
