package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
	"outbox-relay/router"
	"outbox-relay/snapshot"
)

// Source gives committed transactions in order. *binlog.Reader is the real one.
type Source interface {
	Next(ctx context.Context) (*binlog.Transaction, error)
	Status() binlog.Status
	Source() (server *binlog.Server, file string, position uint64)
	// Columns is what the next source has to know of columns when it starts at a position; nil for nothing. Safe to call from any goroutine.
	Columns(position *gtid.Set) (json.RawMessage, error)
	Close() error
}

// Sink publishes records.
type Sink interface {
	// Run publishes until ctx ends, then drops what is unacknowledged and returns soon.
	Run(ctx context.Context) error
	// Publish takes a copy of the record; seq comes back with its acknowledgement. It blocks while the sink's window is full. Its error is a *Poison
	// when the record can never be published and nothing before it of its key waits, and ctx's otherwise.
	Publish(ctx context.Context, rec *router.Record, seq uint64) error
	// Refuse takes a copy of what there is of a record that can never be published, as p says, and has it judged when everything before it of its key is
	// acknowledged. It blocks like Publish. It gives p back where there is no such order to wait for; then it has taken nothing.
	Refuse(ctx context.Context, rec *router.Record, seq uint64, p *Poison) error
	// Flush says that nothing more comes right now.
	Flush()
	// Drain waits until all is acknowledged but what a poison record stops.
	Drain(ctx context.Context) error
	// Stats is the state of the moment.
	Stats() SinkStats
}

// Transactional is a Sink that publishes in transactions, each with the checkpoint that follows it: consumers that read committed records see each once.
// It tells no acknowledgements; what is published counts when its window is committed.
type Transactional interface {
	Sink
	// Due receives when the window that gathers should end: nothing more comes right now, or it is large or old.
	Due() <-chan struct{}
	// Cut ends the window behind what was published so far; c becomes visible with it. What is published later belongs to the next one. It does not block,
	// Publish must not run meanwhile, and a Commit that gives nil has to come before the next Cut.
	Cut(c *checkpoint.Checkpoint) error
	// Commit returns nil once the window that was cut is visible. An error of ctx leaves that open; it may be called again then. Any other one
	// says that the sink has ended.
	Commit(ctx context.Context) error
}

// Ends of a Transactional: errors of Run, Publish and Commit.
var (
	// ErrSinkFenced means that another instance publishes under the name.
	ErrSinkFenced = errors.New("another instance publishes under this name")
	// ErrSinkAborted means that the window was lost and nobody else is active: it has to be published again from the last checkpoint.
	ErrSinkAborted = errors.New("the transaction was aborted")
)

// SinkStats is the state of a Sink.
type SinkStats struct {
	Records   int           // taken and not acknowledged
	Bytes     int64         // memory they hold
	OldestAge time.Duration // how long the oldest of them waits; 0 without one
	// ParkedKeys have dead letters that were not published again, and send what follows after them.
	ParkedKeys int
	Connected  []string // brokers that records can go to; nil where there are none by design
	Stalled    []string // sentences: a topic and why it stands still
	// Unreachable is why the sink could not work at all since it began; empty once it could.
	Unreachable string
	LastError   string
	// LastAnswer is when the sink's servers were last heard of, also while idle; zero if never, or where there are none.
	LastAnswer time.Time
}

// SourceHooks connect a source to its session. They are safe to call from any goroutine and do not block.
type SourceHooks struct {
	Columns    json.RawMessage // what the source before remembered of columns; nil for nothing
	Place      binlog.Place    // where the source before was; zero where that is not known
	BeforeWait func()          // called before a wait for the server: what was gathered goes out
	Allowed    func() bool     // asked before the source begins to read in the relay's name
	Gap        uint64          // how many transactions before the position were given up since they were purged
}

// SinkHooks connect a sink to its session. All are safe to call from any goroutine and none blocks.
type SinkHooks struct {
	Acked func(seqs []uint64) // one element per acknowledged record
	// Judge says what becomes of a record that was refused for ever: something else is published in its place, it is dropped and acknowledged, or
	// neither: then its partition stands still and Poisoned is told.
	Judge    func(p *Poison, rec *router.Record) (instead *router.Record, drop bool)
	Poisoned func(*Poison) // a record was refused for ever; its partition stands still
	Allowed  func() bool   // asked before every request
}

// Options configure a Relay. All but AddedTables, PoisonPolicy, Distance, Logger, Registerer and Points are required.
type Options struct {
	Name     string
	Instance string // identifies this process in the checkpoint
	Tables   []string
	Router   *router.Router

	// OpenStore opens the checkpoint store. checkpoint.ErrHeld means that another process has it.
	OpenStore func() (checkpoint.Store, error)
	Lease     Lease
	// FirstPosition gives the position of a relay without checkpoint. It blocks until the source answers.
	FirstPosition func(ctx context.Context) (*gtid.Set, error)
	// StartSnapshot reads the rows that exist in the tables before what comes after the first position. SnapshotGap does so when the position is purged,
	// from the present position, which Latest gives.
	StartSnapshot, SnapshotGap bool
	Latest                     func(ctx context.Context) (*gtid.Set, error)
	// TablesOf gives the tables that names stand for now: a pattern among them stands for what the source has, and all others for themselves. It blocks until
	// the source answers. nil leaves names as they are.
	TablesOf func(ctx context.Context, names []string) ([]string, error)
	// AddedTables judges tables that a checkpoint does not know, and gives those of which the rows that exist are read; an error refuses to run.
	AddedTables func(ctx context.Context, added []string) (read []string, err error)
	// OpenSnapshot opens the reader of rows that exist; position is that of the checkpoint. Required where one of the three above asks for it.
	OpenSnapshot func(progress *checkpoint.Snapshot, position *gtid.Set, beforeWait func()) (*snapshot.Reader, error)
	OpenSource   func(start *gtid.Set, hooks SourceHooks, reg prometheus.Registerer) (Source, error)
	OpenSink     func(hooks SinkHooks, reg prometheus.Registerer) (Sink, error)
	// PoisonPolicy says what becomes of poison records of the rule with an index, or of router.NoRule; nil halts at all of them.
	PoisonPolicy func(rule int) PoisonPolicy
	// Distance tells what a server keeps of its binlog, seen from a position; nil if nobody wants to know.
	Distance func(ctx context.Context, server binlog.Login, file string, pos uint64) (binlog.Kept, error)

	SaveInterval  time.Duration
	Heartbeat     time.Duration // of the source: three of them without contact and the relay is not ready
	DrainTimeout  time.Duration // how long a stop waits for acknowledgements
	MaxInFlight   int           // transactions in flight at most: the memory of the tracker
	NoStandby     bool          // return ErrActive instead of standing by
	UntilCaughtUp bool          // stop once everything executed at the first connect is published
	ExitOnHalt    bool          // return the *HaltError instead of staying up with it

	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Points     Points
}

// Relay is one relay process. Run may be called once.
type Relay struct {
	o       Options
	log     *slog.Logger
	metrics *metrics

	mu       sync.Mutex
	role     Role
	session  *session            // the active session, nil on standby
	halt     *HaltError          // why it stands still
	known    *knownPoison        // where the next session halts; of Run's goroutine
	purged   *binlog.SourceError // the next session begins with a snapshot, since what it would read is purged; of Run's goroutine
	gap      uint64              // transactions that were given up by that; of Run's goroutine
	lost     int                 // sessions in a row that lost their transaction; of Run's goroutine
	started  time.Time
	lastErr  error
	waiting  bool       // for another instance, which has the store or has just taken over
	replaced LeaseState // what the last session's lease was at its end; of Run's goroutine

	pausing pausing
}

// Role is what an instance does.
type Role string

const (
	RoleStandby Role = "standby"
	RoleActive  Role = "active"
)

// New checks the options. It starts nothing.
func New(o Options) (*Relay, error) {
	switch {
	case o.Name == "", o.Router == nil, o.OpenStore == nil, o.Lease == nil, o.FirstPosition == nil, o.OpenSource == nil, o.OpenSink == nil:
		return nil, errors.New("relay: incomplete options")
	case o.SaveInterval <= 0 || o.DrainTimeout <= 0 || o.MaxInFlight < 1 || o.Heartbeat <= 0:
		return nil, errors.New("relay: intervals and limits must be positive")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	r := &Relay{o: o, log: o.Logger, role: RoleStandby, started: time.Now()}
	r.metrics = newMetrics(r, o.Registerer)
	return r, nil
}

// Run relays until ctx ends, which is the wish to stop: it drains, saves and returns nil. It returns a *HaltError under ExitOnHalt,
// ErrActive under NoStandby, and other errors when it cannot work at all.
func (r *Relay) Run(ctx context.Context) error {
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	watched := make(chan struct{})
	go func() { defer close(watched); r.watch(watching) }() // ends with stopWatching
	defer func() {
		stopWatching()
		<-watched
	}()
	for {
		err := r.act(ctx)
		if !errors.Is(err, errTakenOver) {
			return err
		}
		r.log.Warn("standing by: another instance has taken over")
		if r.o.NoStandby {
			return ErrActive
		}
		if err := r.stayAside(ctx); err != nil {
			return nil
		}
	}
}

// stayAside waits before an instance that was replaced asks for the lease again. Whoever took over may have done so without the lease, by way of
// another server, and must not be fought: two readers of one name end each other. One that was seen holding the lease needs no such care.
func (r *Relay) stayAside(ctx context.Context) error {
	if r.replaced.Other {
		return nil
	}
	r.setWaiting(true)
	defer r.setWaiting(false)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(takeoverPause/2 + rand.N(takeoverPause)):
		return nil
	}
}

// act waits for the store, then for the lease, and is active until the session ends. It asks for the lease only with the store in hand and
// gives it up first: a frozen relay loses the lease and keeps the store, and somebody who held the lease while waiting for that store would
// keep the frozen one from going on when it comes back.
func (r *Relay) act(ctx context.Context) (err error) {
	store, err := r.waitStore(ctx)
	if err != nil {
		return stopped(ctx, err)
	}
	leaseCtx, stopLease := context.WithCancel(context.WithoutCancel(ctx))
	lease := make(chan error, 1)
	go func() { lease <- r.o.Lease.Run(leaseCtx) }() // ends with stopLease, or by an error that waitLease takes
	defer func() {
		stopLease()
		<-lease
		if cerr := store.Close(); err == nil {
			err = cerr
		}
	}()
	if err := r.waitLease(ctx, lease); err != nil {
		return stopped(ctx, err)
	}
	r.known, r.lost = nil, 0
	defer r.pausing.inactive()
	for {
		err := r.runSession(ctx, store)
		r.replaced = r.o.Lease.State() // before it is given up
		var again *startOver
		if !errors.As(err, &again) {
			return err
		}
		if err := r.before(ctx, again); err != nil {
			return stopped(ctx, err)
		}
		if err := r.waitLease(ctx, lease); err != nil {
			return stopped(ctx, err)
		}
	}
}

// before waits before a session begins again from the store.
func (r *Relay) before(ctx context.Context, again *startOver) error {
	r.mu.Lock()
	r.halt = nil
	r.mu.Unlock()
	if again.committed {
		r.lost = 0
	}
	if again.gap != nil {
		r.purged = again.gap
		return ctx.Err()
	}
	if again.poison != nil {
		r.known = again.poison
		r.log.Warn("starting over from the last checkpoint, to commit what is before a poison record", "err", again)
	} else {
		r.log.Warn("starting over from the last checkpoint", "err", again)
	}
	wait := time.Duration(0)
	if r.lost > 0 {
		wait = min(100*time.Millisecond<<min(r.lost, 6), 5*time.Second)
	}
	r.lost++
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(wait/2 + rand.N(wait/2+1)):
		return nil
	}
}

// takeoverPause is about how long an instance stays out of the way of one that took over.
const takeoverPause = 5 * time.Second

// stopped turns the end of ctx into a clean stop.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// waitStore opens the store, waiting while another process on this machine has it.
func (r *Relay) waitStore(ctx context.Context) (checkpoint.Store, error) {
	defer r.setWaiting(false)
	for said := false; ; said = true {
		store, err := r.o.OpenStore()
		if err == nil || !errors.Is(err, checkpoint.ErrHeld) {
			return store, err
		}
		if r.o.NoStandby {
			return nil, fmt.Errorf("%w: %w", ErrActive, err)
		}
		if !said {
			r.setWaiting(true)
			r.log.Info("standing by", "err", Sentence(err))
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (r *Relay) setWaiting(waiting bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = waiting
}

// waitLease waits until the lease is held. An error of the lease itself arrives on failed and is put back for act.
func (r *Relay) waitLease(ctx context.Context, failed chan error) error {
	said := false
	for {
		changed := r.o.Lease.Changed()
		s := r.o.Lease.State()
		if s.Held {
			return nil
		}
		if s.Other && r.o.NoStandby {
			return ErrActive
		}
		if s.Other && !said {
			r.log.Info("standing by: another relay of this name holds the activity lock")
			said = true
		}
		r.setError(s.Err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		case err := <-failed:
			failed <- err
			if err == nil {
				err = errors.New("the activity lock ended")
			}
			return err
		}
	}
}

func (r *Relay) setError(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lastErr = err
}

// runSession is active with the store until the session ends.
func (r *Relay) runSession(ctx context.Context, store checkpoint.Store) error {
	reg := &Registrations{Registerer: r.o.Registerer}
	defer reg.UnregisterAll()
	s := &session{Relay: r, store: store, reg: reg, term: r.o.Lease.State().Term}
	if err := s.begin(ctx); err != nil {
		var source *binlog.SourceError
		if errors.As(err, &source) {
			return r.standAside(ctx, &HaltError{Source: err})
		}
		return stopped(ctx, err)
	}
	r.mu.Lock()
	r.role, r.lastErr = RoleActive, nil
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.role, r.session = RoleStandby, nil
		r.mu.Unlock()
	}()
	return s.run(ctx)
}
