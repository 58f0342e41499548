package e2e_test

import (
	"testing"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// The active relay freezes with records in flight, a standby on another host takes over, and the frozen one comes back: it may neither send
// nor save any more. Both share a store that anybody can open, as those in MySQL and Kafka.
func TestFrozenActiveIsReplacedAndStaysOutAfterItsReturn(t *testing.T) {
	t.Parallel()
	m, k := sandbox.SharedMySQL(t), sandbox.SharedKafka(t)
	s := site(t, e2e.SiteOptions{})
	store := &sharedStore{saves: map[uint64]int{}}
	instance := func() (*inprocess, *sandbox.Proxy) {
		proxy := sandbox.RunProxy(t, m.Addr())
		return &inprocess{site: s, kafka: k, source: proxy.Addr(), openStore: store.open, gates: []*gate{{}}}, proxy
	}
	one, proxyOne := instance()
	two, _ := instance()

	a := one.start(t)
	insert(t, s, three...)
	a.waitSaved(t, s)
	b := two.start(t)
	b.wait(t, "the second one stands by", func(st relay.Status) bool { return st.Role == relay.RoleStandby && st.Ready })

	// Frozen: it hears nothing from MySQL, and what it has taken does not leave.
	one.gates[0].shut.Store(true)
	insert(t, s, three...)
	insert(t, s, three...)
	a.wait(t, "six records are in flight", func(st relay.Status) bool { return st.Sink.InFlightRecords == 6 })
	proxyOne.Freeze()

	b.wait(t, "the second one is active", func(st relay.Status) bool { return st.Role == relay.RoleActive && st.Source.Connected })
	b.waitSaved(t, s)
	if a.Status().LeaseHeld {
		t.Error("the first one believes in the activity lock while the second one has it")
	}
	insert(t, s, three...)
	b.waitSaved(t, s)

	token := func() (uint64, int) {
		store.mu.Lock()
		defer store.mu.Unlock()
		return store.stored.FencingToken, store.saves[store.stored.FencingToken-1]
	}
	now, before := token()
	one.gates[0].shut.Store(false)
	proxyOne.Thaw()
	a.wait(t, "the first one stands by", func(st relay.Status) bool { return st.Role == relay.RoleStandby && st.Ready })
	insert(t, s, three...)
	b.waitSaved(t, s)
	if again, after := token(); again != now || after != before {
		t.Errorf("after the return the token is %d and its predecessor was saved %d times, want %d and %d", again, after, now, before)
	}
	if report := judge(t, s, relaytest.Options{Restarts: 1}); report.Duplicates != 0 {
		t.Errorf("nothing of the first one's was acknowledged, so nothing may come twice: %v", report)
	}

	b.stop(t)
	a.wait(t, "the first one is active again", func(st relay.Status) bool { return st.Role == relay.RoleActive && st.Source.Connected })
	insert(t, s, three...)
	a.waitSaved(t, s)
	a.stop(t)
	judge(t, s, relaytest.Options{Restarts: 2})
}
