package e2e_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/filestore"
	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/kafka"
	"outbox-relay/router"
)

// inprocess is a relay in this process with real servers, whose parts can be wrapped. It is wired as the binary is.
type inprocess struct {
	site   *e2e.Site
	kafka  *sandbox.Kafka
	source string // address of MySQL
	// openStore opens the checkpoint store; nil means the site's file.
	openStore func() (checkpoint.Store, error)
	// wrapSink makes the sink from a way to open real ones; nil means a single real one.
	wrapSink func(h relay.SinkHooks, open openSink) (relay.Sink, error)
	// gates hold back the requests of the real sinks, in the order in which they are opened.
	gates []*gate
	drain time.Duration
}

type openSink func(relay.SinkHooks) (relay.Sink, error)

// gate holds back requests to Kafka while it is shut, as a broker that does not answer would.
type gate struct{ shut atomic.Bool }

// running is a relay that runs.
type running struct {
	*relay.Relay
	cancel context.CancelFunc
	done   chan error
}

const saveInterval = 20 * time.Millisecond

func (p *inprocess) start(t *testing.T) *running {
	t.Helper()
	rules := make([]router.Rule, 0, 3)
	tables := []string{p.site.Database() + ".orders_outbox", p.site.Database() + ".shipments_outbox"}
	rules = append(rules,
		router.Rule{Table: tables[0], Topic: p.site.Name + ".{aggregate_type}"},
		router.Rule{Table: tables[1], Topic: p.site.Name + ".shipment"})
	routes, err := router.New(router.Options{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	first, err := gtid.ParseSet(p.site.First)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	login := binlog.Login{User: "relay", Password: func(context.Context) (string, error) { return "relay", nil }, Program: "e2e", TLS: nil}
	openStore := p.openStore
	if openStore == nil {
		openStore = func() (checkpoint.Store, error) {
			return filestore.Open(filestore.Options{Path: p.site.CheckpointPath(), Name: p.site.Name})
		}
	}
	drain := p.drain
	if drain == 0 {
		drain = 4 * time.Second
	}
	spool := t.TempDir()
	r, err := relay.New(relay.Options{
		Name: p.site.Name, Instance: "in process", Tables: tables, Router: routes, OpenStore: openStore,
		Lease:         relay.NewMySQLLease(relay.LeaseOptions{Login: login, Addresses: []string{p.source}, Name: p.site.Name, Logger: log}),
		FirstPosition: func(context.Context) (*gtid.Set, error) { return first, nil },
		OpenSource: func(start *gtid.Set, hooks relay.SourceHooks, reg prometheus.Registerer) (relay.Source, error) {
			return binlog.New(binlog.Options{
				Name: p.site.Name, Login: login, Addresses: []string{p.source}, Start: start, Heartbeat: time.Second, Memory: 1 << 20, RowLimit: 1 << 20,
				Tables:   []binlog.TableName{{Schema: p.site.Database(), Name: "orders_outbox"}, {Schema: p.site.Database(), Name: "shipments_outbox"}},
				SpoolDir: spool, SpoolLimit: 1 << 30, Columns: hooks.Columns, Place: hooks.Place, BeforeWait: hooks.BeforeWait, Allowed: hooks.Allowed, Logger: log, Registerer: reg,
			})
		},
		OpenSink:     p.openSink(t, log),
		SaveInterval: saveInterval, Heartbeat: time.Second, DrainTimeout: drain, MaxInFlight: 10_000, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	run := &running{Relay: r, cancel: cancel, done: make(chan error, 1)}
	go func() { run.done <- r.Run(ctx) }() // ended by stop
	t.Cleanup(func() { run.stop(t) })
	return run
}

func (p *inprocess) openSink(t *testing.T, log *slog.Logger) func(relay.SinkHooks, prometheus.Registerer) (relay.Sink, error) {
	return func(h relay.SinkHooks, _ prometheus.Registerer) (relay.Sink, error) {
		opened := 0
		open := func(h relay.SinkHooks) (relay.Sink, error) {
			allowed := h.Allowed
			if opened < len(p.gates) {
				g := p.gates[opened]
				allowed = func() bool { return !g.shut.Load() && h.Allowed() }
			}
			opened++
			k, err := kafka.New(kafka.Options{
				Brokers: p.kafka.Addrs(), Acked: h.Acked, Allowed: allowed, Logger: log,
				Poisoned: func(e *kafka.PoisonError) { t.Errorf("a record is poison: %v", e) },
			})
			return realSink{k}, err
		}
		if p.wrapSink == nil {
			return open(h)
		}
		return p.wrapSink(h, open)
	}
}

// stop ends the relay as SIGTERM does; it may be called again.
func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	err, ok := <-r.done
	if !ok {
		return
	}
	close(r.done)
	if err != nil {
		t.Errorf("the relay ended with: %v", err)
	}
}

// wait polls the status, which has no event to wait on.
func (r *running) wait(t *testing.T, what string, ok func(relay.Status) bool) {
	t.Helper()
	for ctx := testContext(t); !ok(r.Status()); time.Sleep(5 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatalf("still not: %s; %+v", what, r.Status())
		}
	}
}

// waitSaved waits until the stored position contains all that was executed.
func (r *running) waitSaved(t *testing.T, s *e2e.Site) {
	t.Helper()
	executed, err := s.Executed(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	r.wait(t, "the checkpoint contains "+executed.String(), func(st relay.Status) bool {
		saved, err := gtid.ParseSet(st.Checkpoint.GTIDSet)
		return err == nil && saved.ContainsSet(executed)
	})
}

// realSink is a kafka.Publisher as a relay.Sink.
type realSink struct{ *kafka.Publisher }

func (s realSink) Stats() relay.SinkStats {
	st := s.Publisher.Stats()
	return relay.SinkStats{Records: st.InFlightRecords, Bytes: st.InFlightBytes, OldestAge: st.OldestAge, Connected: st.Connected}
}

func (s realSink) Refuse(_ context.Context, _ *router.Record, _ uint64, p *relay.Poison) error {
	return p
}

// sharedStore is a checkpoint store that several relays can have open, as those in MySQL or Kafka: only the fencing token keeps them apart.
type sharedStore struct {
	mu     sync.Mutex
	stored *checkpoint.Checkpoint
	saves  map[uint64]int // by token
}

func (s *sharedStore) open() (checkpoint.Store, error) { return sharedHandle{s}, nil }

type sharedHandle struct{ *sharedStore }

func (h sharedHandle) Load(ctx context.Context) (*checkpoint.Checkpoint, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stored == nil {
		return nil, &checkpoint.Error{Op: "loading checkpoint", Err: checkpoint.ErrNotFound}
	}
	c := *h.stored
	c.GTIDSet = c.GTIDSet.Clone()
	return &c, ctx.Err()
}

func (h sharedHandle) Save(_ context.Context, c *checkpoint.Checkpoint) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stored != nil && c.FencingToken < h.stored.FencingToken {
		return &checkpoint.Error{Op: "saving checkpoint", Err: checkpoint.ErrFenced}
	}
	kept := *c
	kept.GTIDSet = c.GTIDSet.Clone()
	h.stored = &kept
	h.saves[c.FencingToken]++
	return nil
}

func (h sharedHandle) Close() error { return nil }
