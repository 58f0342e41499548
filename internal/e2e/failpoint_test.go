package e2e_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
	"outbox-relay/internal/e2e"
	"outbox-relay/relay/relaytest"
)

// These tests are the lines of the crash table in which the relay itself dies: it kills itself at a named moment of the transaction T, and
// a second one goes on.

// crash is one line.
type crash struct {
	name      string
	failpoint string
	rows      []e2e.Row // T
	missing   bool      // the topics of T's rows are missing but that of the first; they are made after the crash
	early     bool      // T is committed before the first start
	atCrash   map[string]int
	stored    fate // of T in the checkpoint at the crash
}

// fate says whether the checkpoint contains T.
type fate int

const (
	none   fate = iota // there is no checkpoint
	before             // a checkpoint without T
	with               // a checkpoint with T
	either             // one of both, whole
)

var (
	three = []e2e.Row{{Kind: "order", Key: "a"}, {Kind: "payment", Key: "b"}, {Kind: "shipment", Key: "c"}}
	one   = three[:1]
)

var crashTable = []crash{
	{name: "first start, before the first save", failpoint: "before-save:1", rows: three, early: true, stored: none},
	{name: "first start, first save begun", failpoint: "save-created:1", rows: three, early: true, stored: none},
	{name: "first start, first save not renamed", failpoint: "save-synced:1", rows: three, early: true, stored: none},
	{name: "first start, first save renamed", failpoint: "save-renamed:1", rows: three, early: true, stored: before},
	{name: "first start, after the first save", failpoint: "save-durable:1", rows: three, early: true, stored: before},
	{name: "before any record is sent", failpoint: "before-publish:1", rows: three, stored: before},
	{name: "in the middle of handing over", failpoint: "before-publish:3", rows: three, atCrash: nil, stored: before},
	{name: "some records acknowledged", failpoint: "acked:1", rows: three, missing: true, atCrash: map[string]int{"a": 1}, stored: before},
	{name: "all acknowledged, checkpoint not saved", failpoint: "acked:1,before-save:1", rows: one, atCrash: map[string]int{"a": 1}, stored: before},
	{name: "during save, file created", failpoint: "acked:1,before-save:2,save-created:1", rows: one, atCrash: map[string]int{"a": 1}, stored: either},
	{name: "during save, file written", failpoint: "acked:1,before-save:2,save-written:1", rows: one, atCrash: map[string]int{"a": 1}, stored: either},
	{name: "during save, file synced", failpoint: "acked:1,before-save:2,save-synced:1", rows: one, atCrash: map[string]int{"a": 1}, stored: either},
	{name: "during save, file renamed", failpoint: "acked:1,before-save:2,save-renamed:1", rows: one, atCrash: map[string]int{"a": 1}, stored: with},
	{name: "checkpoint saved", failpoint: "acked:1,before-save:2,after-save:1", rows: one, atCrash: map[string]int{"a": 1}, stored: with},
}

func TestCrashTable(t *testing.T) {
	t.Parallel()
	for _, c := range crashTable {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t)
		})
	}
}

func (c crash) run(t *testing.T) {
	s := site(t, e2e.SiteOptions{SaveInterval: 100 * time.Millisecond, NoTopics: c.missing})
	if c.missing {
		createTopics(t, s, s.Topics()[:1])
	}
	if c.early {
		insert(t, s, c.rows...)
	}
	r := start(t, s, e2e.RelayOptions{Build: e2e.Build{Failpoints: true}, Failpoint: c.failpoint})
	if !c.early {
		insert(t, s, c.rows...)
	}
	foreignUntilExit(t, s, r)
	if code, err := r.WaitExit(testContext(t)); err != nil || code != -1 {
		t.Fatalf("the relay ended with code %d, want its own SIGKILL: %v", code, err)
	}

	stored := checkpointOf(t, r)
	if c.missing {
		createTopics(t, s, s.Topics()[1:])
	}
	atCrash, _ := deliveries(t, s)
	if c.atCrash != nil && !maps.Equal(atCrash, c.atCrash) {
		t.Errorf("at the crash Kafka had %v, want %v", atCrash, c.atCrash)
	}

	next := start(t, s, e2e.RelayOptions{})
	waitMarked(t, s, next)
	stop(t, next)
	after, _ := deliveries(t, s)
	_, transaction := deliveriesOf(t, s, c.rows[0].Key)
	c.checkFate(t, stored, transaction)
	again := 1
	if stored != nil && stored.GTIDSet.Contains(mustParse(t, transaction)) {
		again = 0
	}
	for _, row := range c.rows {
		if got, want := after[row.Key], atCrash[row.Key]+again; got != want {
			t.Errorf("the row of key %s was received %d times after the restart, want %d", row.Key, got, want)
		}
	}
	judge(t, s, relaytest.Options{Restarts: 1})
}

func (c crash) checkFate(t *testing.T, stored *checkpoint.Checkpoint, transaction string) {
	t.Helper()
	got := none
	if stored != nil {
		got = before
		if stored.GTIDSet.Contains(mustParse(t, transaction)) {
			got = with
		}
	}
	if got != c.stored && !(c.stored == either && got != none) {
		t.Errorf("the checkpoint at the crash: got fate %d of %s, want %d", got, transaction, c.stored)
	}
}

func mustParse(t *testing.T, text string) gtid.GTID {
	t.Helper()
	g, err := gtid.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func createTopics(t *testing.T, s *e2e.Site, topics []string) {
	t.Helper()
	for _, topic := range topics {
		if err := s.CreateTopic(testContext(t), topic); err != nil {
			t.Fatal(err)
		}
	}
}

// foreignUntilExit writes transactions without outbox rows, so that there is always a new position to save.
func foreignUntilExit(t *testing.T, s *e2e.Site, r *e2e.Relay) {
	t.Helper()
	ctx, cancel := context.WithTimeout(testContext(t), time.Minute)
	defer cancel()
	for {
		select {
		case <-r.Exited():
			return
		case <-ctx.Done():
			return // WaitExit tells
		case <-time.After(20 * time.Millisecond):
		}
		if _, err := s.DB.ExecContext(ctx, "INSERT INTO orders (customer, amount) VALUES ('foreign', 1)"); err != nil {
			t.Fatal(err)
		}
	}
}
