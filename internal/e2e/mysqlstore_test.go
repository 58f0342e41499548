package e2e_test

import (
	"testing"
	"time"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// The checkpoint in a table on the source: each save is a transaction that the relay reads, and must not be the reason of the next one.
func TestACheckpointOnTheSourceDoesNotKeepTheRelayBusy(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	s := site(t, e2e.SiteOptions{MySQL: m, MySQLStore: true, SaveInterval: 20 * time.Millisecond})
	r := start(t, s, e2e.RelayOptions{})
	insert(t, s, three...)
	waitMarked(t, s, r)
	saves := func() uint64 {
		t.Helper()
		set, err := s.Executed(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		return set.Count()
	}
	time.Sleep(time.Second) // what was under way ends; it lasts for 50 intervals
	before := saves()
	time.Sleep(time.Second)
	if after := saves(); after != before {
		t.Errorf("%d transactions while nothing happened", after-before)
	}
	insert(t, s, three...)
	waitMarked(t, s, r)
	r.Kill()
	insert(t, s, three...)
	r = start(t, s, e2e.RelayOptions{})
	waitMarked(t, s, r)
	stop(t, r)
	judge(t, s, relaytest.Options{Restarts: 1})
}

// Relays on two hosts share the table. The active one freezes, the other takes over once the activity lock has run out, and the first one stands by
// when it comes back: it can neither send nor save.
func TestAFrozenRelayIsReplacedFromAnotherHost(t *testing.T) {
	t.Parallel()
	s := site(t, e2e.SiteOptions{MySQLStore: true, SaveInterval: 100 * time.Millisecond})
	load, err := s.StartLoad(e2e.Load{Seed: 4, Rate: 50})
	if err != nil {
		t.Fatal(err)
	}
	defer load.Stop()
	host := func(name string) *e2e.Relay {
		return start(t, s, e2e.RelayOptions{Checkpoint: s.CheckpointPath() + "." + name})
	}
	one := host("one")
	waitActive(t, one)
	two := host("two")
	waitStandby(t, two)

	one.Freeze()
	begin := time.Now()
	waitActive(t, two)
	t.Logf("taking over from a frozen relay took %v", time.Since(begin))
	waitMarked(t, s, two)
	one.Thaw()
	waitStatus(t, one, "the first one stands by", func(st relay.Status) bool { return st.Role == relay.RoleStandby && st.Ready })
	waitMarked(t, s, two)

	two.Kill()
	begin = time.Now()
	waitActive(t, one)
	t.Logf("taking over from a killed relay took %v", time.Since(begin))
	if stats := load.Stop(); stats.Err != nil {
		t.Fatal(stats.Err)
	}
	waitMarked(t, s, one)
	stop(t, one)
	judge(t, s, relaytest.Options{Restarts: 2})
}
