package relay_test

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
	"outbox-relay/relay"
	"outbox-relay/router"
)

// These tests drive a Relay with scripted parts under a false clock. Rows, and what they need of real servers, are in internal/e2e.

const interval = time.Second

// rig is a relay with its parts.
type rig struct {
	t       *testing.T
	options relay.Options
	lease   *lease
	place   *place
	source  *source
	sink    *sink
	opened  []string // first positions of the sources, in order
	relay   *relay.Relay
	cancel  context.CancelFunc
	done    chan error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, lease: newLease(), place: &place{}, source: newSource(), sink: &sink{}, done: make(chan error, 1)}
	routes, err := router.New(router.Options{Rules: []router.Rule{{Table: "app.outbox_events"}}})
	if err != nil {
		t.Fatal(err)
	}
	g.options = relay.Options{
		Name: "orders", Instance: "one", Tables: []string{"app.outbox_events"}, Router: routes,
		OpenStore: g.place.open, Lease: g.lease,
		FirstPosition: func(context.Context) (*gtid.Set, error) { return set(t, uuid+":1-10"), nil },
		OpenSource: func(start *gtid.Set, hooks relay.SourceHooks, _ prometheus.Registerer) (relay.Source, error) {
			g.opened = append(g.opened, start.String())
			g.source.allowed = hooks.Allowed
			return g.source, nil
		},
		OpenSink: func(h relay.SinkHooks, _ prometheus.Registerer) (relay.Sink, error) {
			g.sink.hooks = h
			return g.sink, nil
		},
		SaveInterval: interval, Heartbeat: 5 * time.Second, DrainTimeout: 4 * time.Second, MaxInFlight: 100,
	}
	return g
}

// start runs the relay until the end of the test, or until stop.
func (g *rig) start() {
	g.t.Helper()
	r, err := relay.New(g.options)
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.relay, g.cancel = r, cancel
	go func() { g.done <- r.Run(ctx) }() // ends with cancel
	synctest.Wait()
}

// stop asks for the end and gives Run's error and how long it took.
func (g *rig) stop() (time.Duration, error) {
	begin := time.Now()
	g.cancel()
	err := <-g.done
	return time.Since(begin), err
}

func (g *rig) mustStop() {
	g.t.Helper()
	if _, err := g.stop(); err != nil {
		g.t.Errorf("Run gives %v after the wish to stop", err)
	}
}

func (g *rig) wantRole(want relay.Role) {
	g.t.Helper()
	if got := g.relay.Status().Role; got != want {
		g.t.Errorf("the role is %s, want %s", got, want)
	}
}

func (g *rig) wantStored(want string) {
	g.t.Helper()
	if got := g.place.set(); got != want {
		g.t.Errorf("stored is %q, want %q", got, want)
	}
}

// after lets time pass and everything come to rest.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

const uuid = "0a000000-0000-0000-0000-000000000001"

func set(t *testing.T, text string) *gtid.Set {
	t.Helper()
	s, err := gtid.ParseSet(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lease is a scripted relay.Lease: it is what the test says, while it runs.
type lease struct {
	mu      sync.Mutex
	state   relay.LeaseState
	changed chan struct{}
	running int
	runs    int
	give    bool // hold it as soon as Run begins
}

func newLease() *lease { return &lease{changed: make(chan struct{}), give: true} }

func (l *lease) Run(ctx context.Context) error {
	l.mu.Lock()
	l.running++
	l.runs++
	give := l.give
	l.mu.Unlock()
	if give {
		l.win()
	}
	<-ctx.Done()
	l.set(func(s *relay.LeaseState) { *s = relay.LeaseState{Term: s.Term} })
	l.mu.Lock()
	l.running--
	l.mu.Unlock()
	return nil
}

func (l *lease) State() relay.LeaseState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

func (l *lease) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

func (l *lease) set(f func(*relay.LeaseState)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.state)
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *lease) win() {
	l.set(func(s *relay.LeaseState) { *s = relay.LeaseState{Held: true, Term: s.Term + 1} })
}

func (l *lease) lose() { l.set(func(s *relay.LeaseState) { s.Held = false }) }

func (l *lease) loseToOther() {
	l.set(func(s *relay.LeaseState) { s.Held, s.Other = false, true })
}

// runsNow tells how many Run are under way and how many there were.
func (l *lease) runsNow() (running, runs int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running, l.runs
}

// place is where a checkpoint is stored. One handle may be open, as with the file store.
type place struct {
	mu     sync.Mutex
	stored *checkpoint.Checkpoint
	held   bool
	fail   error // of Save
	blind  error // of Load
	saves  int
}

func (p *place) open() (checkpoint.Store, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held {
		return nil, &checkpoint.Error{Op: "opening checkpoint", Err: checkpoint.ErrHeld}
	}
	p.held = true
	return handle{p}, nil
}

// with changes the place while nobody else looks.
func (p *place) with(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *place) set() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stored == nil {
		return ""
	}
	return p.stored.GTIDSet.String()
}

func (p *place) token() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stored.FencingToken
}

type handle struct{ *place }

func (h handle) Load(context.Context) (*checkpoint.Checkpoint, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.blind != nil {
		return nil, h.blind
	}
	if h.stored == nil {
		return nil, &checkpoint.Error{Op: "loading checkpoint", Err: checkpoint.ErrNotFound}
	}
	c := *h.stored
	c.GTIDSet = c.GTIDSet.Clone()
	return &c, nil
}

func (h handle) Save(_ context.Context, c *checkpoint.Checkpoint) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.saves++
	if h.fail != nil {
		return h.fail
	}
	if h.stored != nil && c.FencingToken < h.stored.FencingToken {
		return &checkpoint.Error{Op: "saving checkpoint", Err: checkpoint.ErrFenced}
	}
	kept := *c
	kept.GTIDSet = c.GTIDSet.Clone()
	h.stored = &kept
	return nil
}

func (h handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = false
	return nil
}

// source gives the steps that the test sends.
type source struct {
	steps   chan step
	allowed func() bool
	columns func(position *gtid.Set) json.RawMessage // nil: nothing is remembered
	at      string                                   // address
	away    atomic.Bool                              // not connected
}

type step struct {
	tx  *binlog.Transaction
	err error
}

func newSource() *source { return &source{steps: make(chan step, 100)} }

func (s *source) Next(ctx context.Context) (*binlog.Transaction, error) {
	if ctx.Err() != nil { // as a Reader: nothing is given after the end of ctx
		return nil, ctx.Err()
	}
	select {
	case x := <-s.steps:
		return x.tx, x.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// foreign sends a transaction without rows.
func (s *source) foreign(t *testing.T, number int64, caughtUp bool) {
	t.Helper()
	s.send(t, number, &binlog.Transaction{CaughtUp: caughtUp})
}

// own sends a transaction that wrote nothing but the relay's checkpoint.
func (s *source) own(t *testing.T, number int64) {
	t.Helper()
	s.send(t, number, &binlog.Transaction{Own: true, CaughtUp: true})
}

func (s *source) send(t *testing.T, number int64, tx *binlog.Transaction) {
	t.Helper()
	u, err := gtid.ParseUUID(uuid)
	if err != nil {
		t.Fatal(err)
	}
	tx.Ranges, tx.Transactions = []gtid.Range{{UUID: u, First: number, Last: number}}, 1
	if tx.CommitMicros == 0 {
		tx.CommitMicros = time.Now().UnixMicro()
	}
	s.steps <- step{tx: tx}
	synctest.Wait()
}

func (s *source) fails(err error) {
	s.steps <- step{err: err}
	synctest.Wait()
}

func (s *source) Status() binlog.Status {
	return binlog.Status{Connected: !s.away.Load(), Address: s.at, Login: binlog.Login{Address: s.at}, Since: time.Now()}
}

func (s *source) Source() (*binlog.Server, string, uint64) { return nil, "", 0 }
func (s *source) Close() error                             { return nil }

func (s *source) Columns(position *gtid.Set) (json.RawMessage, error) {
	if s.columns == nil {
		return nil, nil
	}
	return s.columns(position), nil
}

// sink takes nothing; its Run and Drain are what is tested.
type sink struct {
	hooks relay.SinkHooks
	mu    sync.Mutex
	runs  int
	stuck bool // Drain waits for the end of its context
}

func (s *sink) Run(ctx context.Context) error {
	s.count(1)
	defer s.count(-1)
	<-ctx.Done()
	return nil
}

func (s *sink) count(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs += n
}

func (s *sink) running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs
}

func (s *sink) Publish(context.Context, *router.Record, uint64) error                       { return nil }
func (s *sink) Refuse(_ context.Context, _ *router.Record, _ uint64, p *relay.Poison) error { return p }
func (s *sink) Flush()                                                                      {}
func (s *sink) Stats() relay.SinkStats                                                      { return relay.SinkStats{} }

func (s *sink) Drain(ctx context.Context) error {
	if !s.stuck {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}
