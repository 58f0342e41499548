package relay_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
)

// The server gives the lock of a connection that ends to the next one at once. A holder that learned of it with its next ping would go on sending until
// then.
func TestAHolderWhoseConnectionEndsStopsAtOnce(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	for name, end := range map[string]func(t *testing.T, p *sandbox.Proxy, lock string){
		"cut": func(_ *testing.T, p *sandbox.Proxy, _ string) { p.Cut() },
		"killed by the server": func(t *testing.T, _ *sandbox.Proxy, lock string) {
			db, err := m.Open("")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			var id string
			if err := db.QueryRowContext(t.Context(), "SELECT IS_USED_LOCK(?)", lock).Scan(&id); err != nil {
				t.Fatal(err)
			}
			if _, err := db.ExecContext(t.Context(), "KILL "+id); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxy := sandbox.RunProxy(t, m.Addr())
			relayName := "lease-" + name
			holder := runLease(t, proxy.Addr(), relayName) // first, so it has it
			next := runLease(t, m.Addr(), relayName)
			for before := proxy.Stats().ToServer; proxy.Stats().ToServer == before; { // right behind a ping: the next one is far away
				time.Sleep(time.Millisecond)
			}
			proxy.Refuse(true)
			begin := time.Now()
			end(t, proxy, "outbox-relay/"+relayName)
			waitLease(t, holder, func(s relay.LeaseState) bool { return !s.Held })
			if took := time.Since(begin); took > 1500*time.Millisecond {
				t.Errorf("the holder believed in the lock for %v after the end of its connection", took)
			}
			waitLease(t, next, func(s relay.LeaseState) bool { return s.Held })
			proxy.Refuse(false)
			waitLease(t, holder, func(s relay.LeaseState) bool { return s.Other })
		})
	}
}

// runLease runs a lease until the end of the test, and returns when it is held or another one was seen holding it.
func runLease(t *testing.T, address, name string) relay.Lease {
	t.Helper()
	return runLeaseOf(t, relay.LeaseOptions{Name: name, Addresses: []string{address}})
}

func runLeaseOf(t *testing.T, o relay.LeaseOptions) relay.Lease {
	t.Helper()
	o.Login = binlog.Login{User: "relay", Password: func(context.Context) (string, error) { return "relay", nil }, Program: "lease"}
	o.Logger = slog.New(slog.DiscardHandler)
	l := relay.NewMySQLLease(o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }() // ended below
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	waitLease(t, l, func(s relay.LeaseState) bool { return s.Held || s.Other })
	return l
}

func waitLease(t *testing.T, l relay.Lease, ok func(relay.LeaseState) bool) relay.LeaseState {
	t.Helper()
	timeout := time.After(time.Minute) // for what hangs
	for {
		changed := l.Changed()
		s := l.State()
		if ok(s) {
			return s
		}
		select {
		case <-changed:
		case <-time.After(100 * time.Millisecond): // it stops being held without a change
		case <-timeout:
			t.Fatalf("the lease stays at %+v", s)
		}
	}
}

// Only the server that takes writes keeps the lock, and it moves with that role.
func TestTheLockOfReadersOfThePrimaryIsOnThePrimary(t *testing.T) {
	t.Parallel()
	blue, green := sandbox.RunMySQL(t, sandbox.MySQLOptions{}), sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	do := func(m *sandbox.MySQL, statement string) {
		t.Helper()
		if err := m.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	do(blue, "SET GLOBAL read_only = ON")
	l := runLeaseOf(t, relay.LeaseOptions{Name: "primary", Addresses: []string{blue.Addr(), green.Addr()}, Primary: true})
	on := func(m *sandbox.MySQL) bool {
		var held bool
		if err := m.DB(t, "").QueryRowContext(t.Context(), "SELECT IS_USED_LOCK('outbox-relay/primary') IS NOT NULL").Scan(&held); err != nil {
			t.Fatal(err)
		}
		return held
	}
	if on(blue) || !on(green) {
		t.Error("the lock is not on the server that takes writes")
	}
	do(green, "SET GLOBAL read_only = ON")
	waitLease(t, l, func(s relay.LeaseState) bool { return !s.Held })
	do(blue, "SET GLOBAL read_only = OFF")
	waitLease(t, l, func(s relay.LeaseState) bool { return s.Held })
	if !on(blue) || on(green) {
		t.Error("the lock did not move with the role")
	}
}
