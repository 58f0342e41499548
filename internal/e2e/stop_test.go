package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// stopTime is what a stop may take in all; slack is for a machine that does much else.
const (
	stopTime = 5 * time.Second
	slack    = time.Second
)

func TestSIGTERMUnderLoadLosesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	s := site(t, e2e.SiteOptions{})
	load, err := s.StartLoad(e2e.Load{Seed: 1, MaxRows: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer load.Stop()
	const restarts = 5
	for i := range restarts {
		r := start(t, s, e2e.RelayOptions{})
		waitStatus(t, r, "records were acknowledged", func(st relay.Status) bool { return !st.LastAckedAt.IsZero() })
		time.Sleep(time.Duration(100+150*i) * time.Millisecond) // a moment of its own each time, in the middle of the load
		if took := stop(t, r); took > stopTime {
			t.Errorf("stopping took %v", took)
		}
		if want := fmt.Sprintf("position=%s\n", checkpointOf(t, r).GTIDSet); !strings.Contains(r.Log(), want) {
			t.Errorf("the log does not tell the last %q", want)
		}
	}
	stats := load.Stop()
	if stats.Err != nil {
		t.Fatal(stats.Err)
	}
	r := start(t, s, e2e.RelayOptions{})
	waitMarked(t, s, r)
	stop(t, r)
	// No restart is allowed for: each of them has to go on right behind the last acknowledged record.
	report := judge(t, s, relaytest.Options{})
	if report.Duplicates != 0 || report.Committed < restarts*10 {
		t.Error(report)
	}
	t.Logf("%d transactions at %.0f per second; %v", stats.Transactions, stats.PerSecond(), report)
}

func TestSIGTERMWhileKafkaIsFrozen(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{})
	s := site(t, e2e.SiteOptions{Kafka: k})
	r := start(t, s, e2e.RelayOptions{})
	waitMarked(t, s, r)
	if err := k.Broker(1).Pause(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		insert(t, s, three...)
	}
	waitStatus(t, r, "records are in flight", func(st relay.Status) bool { return st.Sink.InFlightRecords == 60 })
	if took := stop(t, r); took > stopTime+slack {
		t.Errorf("stopping took %v", took)
	}
	if err := k.Broker(1).Resume(); err != nil {
		t.Fatal(err)
	}
	r = start(t, s, e2e.RelayOptions{})
	waitMarked(t, s, r)
	stop(t, r)
	// The broker may finish the request that the first relay left behind.
	judge(t, s, relaytest.Options{Restarts: 1, LateRequests: true})
}

func TestSIGTERMWhileMySQLIsFrozen(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	s := site(t, e2e.SiteOptions{MySQL: m, SaveInterval: time.Minute})
	for _, frozen := range []time.Duration{0, 12 * time.Second} { // with the activity lock, and after it has run out
		r := start(t, s, e2e.RelayOptions{})
		waitActive(t, r)
		insert(t, s, three...)
		waitStatus(t, r, "the records are acknowledged", func(st relay.Status) bool {
			return !st.LastAckedAt.IsZero() && st.Sink.InFlightTransactions == 0
		})
		if err := m.Pause(); err != nil {
			t.Fatal(err)
		}
		if frozen > 0 {
			waitStatus(t, r, "the activity lock has run out", func(st relay.Status) bool { return !st.LeaseHeld })
		}
		if took := stop(t, r); took > stopTime+slack {
			t.Errorf("frozen for %v, stopping took %v", frozen, took)
		}
		if err := m.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	// Acknowledgements of what is replayed say nothing about the marker: this one saves often, and its checkpoint tells.
	r := start(t, s, e2e.RelayOptions{Args: []string{"--set", "checkpoint.interval=50ms"}})
	waitMarked(t, s, r)
	stop(t, r)
	// The first stop saved its checkpoint although MySQL was frozen; the second may not, since another relay may be active by then.
	report := judge(t, s, relaytest.Options{Restarts: 1})
	if report.Duplicates > 3 {
		t.Error(report)
	}
	t.Log(report)
}
