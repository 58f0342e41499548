package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/filestore"
	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
	"outbox-relay/router"
)

// A validator that finds nothing may be blind. Each mutant is a relay with one seeded fault; the validator has to find it, and to find nothing
// in the same scenario without the fault.

// mutant is one seeded fault and the scenario that has to show it.
type mutant struct {
	name     string
	wrapSink func(h relay.SinkHooks, open openSink) (relay.Sink, error)
	// wrapStore changes what is saved.
	wrapStore func(checkpoint.Store) checkpoint.Store
	scenario  func(t *testing.T, p *inprocess, mutated bool) *relaytest.Report
	want      relaytest.Kind
	count     int
}

func TestMutantsAreCaught(t *testing.T) {
	t.Parallel()
	// A server of its own: the GTIDs of these tests follow one another.
	m, k := sandbox.RunMySQL(t, sandbox.MySQLOptions{}), sandbox.SharedKafka(t)
	var rolledBack atomic.Value // id of a row that was rolled back
	mutants := []mutant{
		{name: "acknowledging before Kafka did", wrapSink: earlySink, scenario: stopWithoutAcknowledgement, want: relaytest.Lost, count: 2},
		{name: "a checkpoint one transaction ahead", wrapStore: aheadStore, scenario: stopWithoutAcknowledgement, want: relaytest.Lost, count: 1},
		{name: "two batches of a partition in flight", wrapSink: twoInFlight, scenario: oneRequestFails, want: relaytest.OutOfOrder, count: 1},
		{name: "a dropped row", wrapSink: droppingSink, scenario: plainRun(&rolledBack), want: relaytest.Lost, count: 1},
		{name: "a published ROLLBACK", wrapSink: rollbackSink(&rolledBack), scenario: plainRun(&rolledBack), want: relaytest.Phantom, count: 1},
	}
	for _, x := range mutants {
		for _, mutated := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, %t", x.name, mutated), func(t *testing.T) {
				s := site(t, e2e.SiteOptions{MySQL: m, Kafka: k})
				p := &inprocess{site: s, kafka: k, source: m.Addr(), gates: []*gate{{}}, drain: 100 * time.Millisecond}
				if mutated {
					p.wrapSink = x.wrapSink
					p.openStore = wrappedStore(s, x.wrapStore)
				}
				report := x.scenario(t, p, mutated)
				if !mutated {
					if err := report.Err(); err != nil {
						t.Errorf("without the fault: %v", err)
					}
					return
				}
				if got := report.Count(x.want); got != x.count {
					t.Errorf("the validator counts %d for %q, want %d: %v", got, x.want, x.count, report)
				}
			})
		}
	}
}

func wrappedStore(s *e2e.Site, wrap func(checkpoint.Store) checkpoint.Store) func() (checkpoint.Store, error) {
	if wrap == nil {
		return nil
	}
	return func() (checkpoint.Store, error) {
		store, err := filestore.Open(filestore.Options{Path: s.CheckpointPath(), Name: s.Name})
		if err != nil {
			return nil, err
		}
		return wrap(store), nil
	}
}

// clean is the relay without the fault, on the same checkpoint.
func (p *inprocess) clean() *inprocess {
	return &inprocess{site: p.site, kafka: p.kafka, source: p.source}
}

// stopWithoutAcknowledgement stops a relay, as a crash would, while Kafka has not answered for two transactions; a correct one goes on.
func stopWithoutAcknowledgement(t *testing.T, p *inprocess, mutated bool) *relaytest.Report {
	t.Helper()
	r := p.start(t)
	insert(t, p.site, e2e.Row{Kind: "order", Key: "k"})
	r.waitSaved(t, p.site)
	for ctx := testContext(t); ; { // saved does not mean received where a mutant is at work
		if n, _ := deliveriesOf(t, p.site, "k"); n == 1 {
			break
		}
		if ctx.Err() != nil {
			t.Fatal("the first row was not received")
		}
	}
	p.gates[0].shut.Store(true)
	insert(t, p.site, e2e.Row{Kind: "order", Key: "k"})
	insert(t, p.site, e2e.Row{Kind: "payment", Key: "k"})
	r.wait(t, "both records are at the sink", func(st relay.Status) bool { return st.Sink.InFlightRecords == 2 })
	if mutated && p.wrapSink != nil {
		r.waitSaved(t, p.site)
	}
	r.stop(t)
	return goOn(t, p, 1)
}

// goOn lets a correct relay catch up and judges.
func goOn(t *testing.T, p *inprocess, restarts int) *relaytest.Report {
	t.Helper()
	r := p.clean().start(t)
	insert(t, p.site, e2e.Row{Kind: "shipment", Key: "marker"})
	r.waitSaved(t, p.site)
	r.stop(t)
	report, err := p.site.Judge(testContext(t), relaytest.Options{Restarts: restarts})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// oneRequestFails holds the request with the first of two rows of a key back until the second one had its chance.
func oneRequestFails(t *testing.T, p *inprocess, mutated bool) *relaytest.Report {
	t.Helper()
	p.gates[0].shut.Store(true)
	r := p.start(t)
	insert(t, p.site, e2e.Row{Kind: "order", Key: "k"})
	insert(t, p.site, e2e.Row{Kind: "order", Key: "k"})
	if mutated {
		for ctx := testContext(t); ; {
			if n, _ := deliveriesOf(t, p.site, "k"); n == 1 {
				break
			}
			if ctx.Err() != nil {
				t.Fatal("the second batch did not pass the first one")
			}
		}
	} else {
		r.wait(t, "both records are at the sink", func(st relay.Status) bool { return st.Sink.InFlightRecords == 2 })
	}
	p.gates[0].shut.Store(false)
	r.waitSaved(t, p.site)
	r.stop(t)
	return goOn(t, p, 1)
}

// plainRun writes transactions of which one rolls back; its row's id is put where the mutant finds it.
func plainRun(rolledBack *atomic.Value) func(*testing.T, *inprocess, bool) *relaytest.Report {
	return func(t *testing.T, p *inprocess, _ bool) *relaytest.Report {
		t.Helper()
		tx, err := p.site.DB.BeginTx(testContext(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		result, err := tx.ExecContext(testContext(t), e2e.InsertStatement(e2e.Row{Kind: "order", Key: "k"}))
		if err != nil {
			t.Fatal(err)
		}
		id, err := result.LastInsertId()
		if err = errors.Join(err, tx.Rollback()); err != nil {
			t.Fatal(err)
		}
		rolledBack.Store(fmt.Sprint(id))
		r := p.start(t)
		for range 5 {
			insert(t, p.site, e2e.Row{Kind: "order", Key: "k"})
		}
		r.waitSaved(t, p.site)
		r.stop(t)
		return goOn(t, p, 1)
	}
}

// earlySink acknowledges each record as soon as it has taken it.
func earlySink(h relay.SinkHooks, open openSink) (relay.Sink, error) {
	acked := h.Acked
	h.Acked = func([]uint64) {}
	inner, err := open(h)
	return early{inner, acked}, err
}

type early struct {
	relay.Sink
	acked func([]uint64)
}

func (s early) Publish(ctx context.Context, rec *router.Record, seq uint64) error {
	err := s.Sink.Publish(ctx, rec, seq)
	if err == nil {
		s.acked([]uint64{seq})
	}
	return err
}

// aheadStore saves the number behind the last one as well.
func aheadStore(s checkpoint.Store) checkpoint.Store { return ahead{s} }

type ahead struct{ checkpoint.Store }

func (s ahead) Save(ctx context.Context, c *checkpoint.Checkpoint) error {
	set := c.GTIDSet.Clone()
	for r := range c.GTIDSet.Ranges() {
		set.Add(gtid.GTID{UUID: r.UUID, Tag: r.Tag, Number: r.Last + 1})
	}
	wrong := *c
	wrong.GTIDSet = set
	return s.Store.Save(ctx, &wrong)
}

// twoInFlight publishes by two producers in turn, so that a partition has two batches in flight that do not wait for each other.
func twoInFlight(h relay.SinkHooks, open openSink) (relay.Sink, error) {
	a, err := open(h)
	if err != nil {
		return nil, err
	}
	b, err := open(h)
	return &twin{sinks: [2]relay.Sink{a, b}}, err
}

type twin struct {
	sinks [2]relay.Sink
	turn  int
}

func (s *twin) Run(ctx context.Context) error {
	second := make(chan error, 1)
	go func() { second <- s.sinks[1].Run(ctx) }() // ends with ctx
	return errors.Join(s.sinks[0].Run(ctx), <-second)
}

func (s *twin) Publish(ctx context.Context, rec *router.Record, seq uint64) error {
	s.turn++
	return s.sinks[(s.turn-1)%2].Publish(ctx, rec, seq)
}

func (s *twin) Refuse(_ context.Context, _ *router.Record, _ uint64, p *relay.Poison) error {
	return p
}

func (s *twin) Flush() {
	s.sinks[0].Flush()
	s.sinks[1].Flush()
}

func (s *twin) Drain(ctx context.Context) error {
	return errors.Join(s.sinks[0].Drain(ctx), s.sinks[1].Drain(ctx))
}

func (s *twin) Stats() relay.SinkStats {
	a, b := s.sinks[0].Stats(), s.sinks[1].Stats()
	a.Records += b.Records
	return a
}

// droppingSink acknowledges the third record and forgets it.
func droppingSink(h relay.SinkHooks, open openSink) (relay.Sink, error) {
	inner, err := open(h)
	return &dropping{Sink: inner, acked: h.Acked}, err
}

type dropping struct {
	relay.Sink
	acked func([]uint64)
	count int
}

func (s *dropping) Publish(ctx context.Context, rec *router.Record, seq uint64) error {
	if s.count++; s.count == 3 {
		s.acked([]uint64{seq})
		return nil
	}
	return s.Sink.Publish(ctx, rec, seq)
}

// phantom is the sequence number of a record that the relay does not know of.
const phantom = ^uint64(0)

// rollbackSink publishes the row of the rolled-back transaction before the first one, as a relay would that does not look at the end of
// a transaction.
func rollbackSink(id *atomic.Value) func(relay.SinkHooks, openSink) (relay.Sink, error) {
	return func(h relay.SinkHooks, open openSink) (relay.Sink, error) {
		acked := h.Acked
		h.Acked = func(seqs []uint64) {
			acked(slices.DeleteFunc(slices.Clone(seqs), func(seq uint64) bool { return seq == phantom }))
		}
		inner, err := open(h)
		return &rollback{Sink: inner, id: id}, err
	}
}

type rollback struct {
	relay.Sink
	id   *atomic.Value
	done bool
}

func (s *rollback) Publish(ctx context.Context, rec *router.Record, seq uint64) error {
	if !s.done {
		s.done = true
		row := *rec
		row.Headers = slices.Clone(rec.Headers)
		for i := range row.Headers {
			if strings.EqualFold(row.Headers[i].Key, "id") {
				row.Headers[i].Value = []byte(s.id.Load().(string))
			}
		}
		if err := s.Sink.Publish(ctx, &row, phantom); err != nil {
			return err
		}
	}
	return s.Sink.Publish(ctx, rec, seq)
}
