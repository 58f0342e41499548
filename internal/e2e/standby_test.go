package e2e_test

import (
	"strings"
	"testing"
	"time"

	"outbox-relay/internal/e2e"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

func waitStandby(t *testing.T, r *e2e.Relay) {
	t.Helper()
	waitStatus(t, r, "the relay stands by and is ready", func(s relay.Status) bool {
		return s.Role == relay.RoleStandby && s.Ready && strings.Contains(r.Log(), `msg="standing by`)
	})
}

// takeover is how soon a standby has to be active after the kill of the active one.
const takeover = 5 * time.Second

// Both relays have the checkpoint file, as two on one host.
func TestStandbyTakesOverAfterAKill(t *testing.T) {
	t.Parallel()
	s := site(t, e2e.SiteOptions{})
	load, err := s.StartLoad(e2e.Load{Seed: 2, Rate: 100, MaxRows: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer load.Stop()
	active := start(t, s, e2e.RelayOptions{})
	waitActive(t, active)

	refused := start(t, s, e2e.RelayOptions{Args: []string{"--no-standby"}})
	if code, err := refused.WaitExit(testContext(t)); err != nil || code != 5 {
		t.Errorf("with --no-standby the second relay ended with code %d, want 5: %v", code, err)
	}

	const kills = 3
	for i := range kills {
		next := start(t, s, e2e.RelayOptions{})
		waitStandby(t, next)
		active.Kill()
		begin := time.Now()
		waitActive(t, next)
		took := time.Since(begin)
		t.Logf("takeover %d took %v", i+1, took)
		if took > takeover {
			t.Errorf("taking over took %v", took)
		}
		active = next
	}
	if stats := load.Stop(); stats.Err != nil {
		t.Fatal(stats.Err)
	}
	waitMarked(t, s, active)
	stop(t, active)
	judge(t, s, relaytest.Options{Restarts: kills})
}

// Relays on two hosts with file stores of their own share nothing but the activity lock in MySQL.
func TestTheActivityLockKeepsASecondRelayOfTheNameOut(t *testing.T) {
	t.Parallel()
	s := site(t, e2e.SiteOptions{SaveInterval: 100 * time.Millisecond})
	active := start(t, s, e2e.RelayOptions{})
	waitMarked(t, s, active)

	elsewhere := s.CheckpointPath() + ".elsewhere"
	refused := start(t, s, e2e.RelayOptions{Args: []string{"--no-standby"}, Checkpoint: elsewhere})
	if code, err := refused.WaitExit(testContext(t)); err != nil || code != 5 {
		t.Errorf("with --no-standby the second relay ended with code %d, want 5: %v", code, err)
	}
	other := start(t, s, e2e.RelayOptions{Checkpoint: elsewhere})
	waitStandby(t, other)
	waitMarked(t, s, active) // the second one disturbs nothing
	if report := judge(t, s, relaytest.Options{}); report.Duplicates != 0 {
		t.Error(report)
	}
	active.Kill()
	begin := time.Now()
	waitActive(t, other)
	if took := time.Since(begin); took > takeover {
		t.Errorf("taking over took %v", took)
	}
	waitMarked(t, s, other) // from its own first position: all again
	stop(t, other)
	judge(t, s, relaytest.Options{Restarts: 1})
}

// A frozen relay keeps the lock on its checkpoint file, so a standby on the same host waits for its end or its return.
func TestAFrozenRelayGoesOnAfterItsReturn(t *testing.T) {
	t.Parallel()
	s := site(t, e2e.SiteOptions{SaveInterval: 100 * time.Millisecond})
	load, err := s.StartLoad(e2e.Load{Seed: 3, Rate: 50})
	if err != nil {
		t.Fatal(err)
	}
	defer load.Stop()
	active := start(t, s, e2e.RelayOptions{})
	waitActive(t, active)
	standby := start(t, s, e2e.RelayOptions{})
	waitStandby(t, standby)

	active.Freeze()
	time.Sleep(13 * time.Second) // longer than the server keeps a silent session with the activity lock
	if st, err := standby.Status(testContext(t)); err != nil || st.Role != relay.RoleStandby {
		t.Errorf("while the active relay is frozen the standby is %s: %v", st.Role, err)
	}
	active.Thaw()
	waitStatus(t, active, "it holds the activity lock again", func(s relay.Status) bool { return s.Role == relay.RoleActive && s.LeaseHeld })
	if stats := load.Stop(); stats.Err != nil {
		t.Fatal(stats.Err)
	}
	waitMarked(t, s, active)

	// Once it is gone the standby goes on.
	active.Freeze()
	active.Kill()
	waitActive(t, standby)
	waitMarked(t, s, standby)
	stop(t, standby)
	judge(t, s, relaytest.Options{Restarts: 1})
}
