package relay_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
	"outbox-relay/relay"
)

// ledger is a transactional sink: what it commits is stored in the rig's place.
type ledger struct {
	sink
	place *place
	due   chan struct{}

	mu     sync.Mutex
	cut    *checkpoint.Checkpoint
	refuse error         // of Commit
	lost   chan error    // ends Run
	held   chan struct{} // Commit waits for it, if there is one
	opened int
}

func transactional(g *rig) *ledger {
	l := &ledger{place: g.place, due: make(chan struct{}, 1), lost: make(chan error, 1)}
	g.options.OpenSink = func(h relay.SinkHooks, _ prometheus.Registerer) (relay.Sink, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.hooks, l.cut, l.refuse = h, nil, nil
		l.opened++
		return l, nil
	}
	return l
}

func (l *ledger) Due() <-chan struct{} { return l.due }

func (l *ledger) Run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-l.lost:
		return err
	}
}

func (l *ledger) Cut(c *checkpoint.Checkpoint) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cut != nil {
		return errors.New("cut twice without a commit")
	}
	kept := *c
	kept.GTIDSet = c.GTIDSet.Clone()
	l.cut = &kept
	return nil
}

func (l *ledger) Commit(ctx context.Context) error {
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuse != nil {
		return l.refuse
	}
	c := l.cut
	l.cut = nil
	l.place.with(func() { l.place.stored = c; l.place.saves++ })
	return nil
}

func TestPositionsAreCommittedByTheSink(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		transactional(g)
		g.start()
		g.source.foreign(t, 11, true)
		g.wantStored(uuid + ":1-10")
		after(interval)
		g.wantStored(uuid + ":1-11")
		saves := g.place.saves
		after(10 * interval)
		if g.place.saves != saves {
			t.Errorf("%d commits without a change", g.place.saves-saves)
		}
		if s := g.relay.Status(); !s.Ready || s.Checkpoint.GTIDSet != uuid+":1-11" {
			t.Errorf("ready %t (%s), checkpoint %s", s.Ready, s.Reason, s.Checkpoint.GTIDSet)
		}
		g.source.foreign(t, 12, true)
		g.mustStop() // commits what is there
		g.wantStored(uuid + ":1-12")
	})
}

// What is read while a window is committed is a part of the next one, and a stop waits for both.
func TestReadingGoesOnWhileAWindowIsCommitted(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		l := transactional(g)
		l.held = make(chan struct{})
		g.start()
		g.source.foreign(t, 11, true)
		after(interval)
		g.source.foreign(t, 12, true)
		g.source.foreign(t, 13, true)
		if n := len(g.source.steps); n != 0 {
			t.Errorf("%d transactions were not read while a window is committed", n)
		}
		g.wantStored(uuid + ":1-10")
		l.mu.Lock()
		held := l.held
		l.held = nil
		l.mu.Unlock()
		close(held)
		after(0)
		g.wantStored(uuid + ":1-11")
		g.mustStop()
		g.wantStored(uuid + ":1-13")
	})
}

// A transaction that timed out is nobody's takeover: the same instance goes on from the last checkpoint, also under --no-standby.
func TestAnAbortedTransactionStartsOverFromTheCheckpoint(t *testing.T) {
	for _, where := range []string{"sending", "committing"} {
		t.Run(where, func(t *testing.T) {
			scenario(t, func(t *testing.T, g *rig) {
				l := transactional(g)
				g.options.NoStandby = true
				g.start()
				g.source.foreign(t, 11, true)
				after(interval)
				g.source.foreign(t, 12, true)
				aborted := errors.Join(relay.ErrSinkAborted, errors.New("it took too long"))
				if where == "sending" {
					l.lost <- aborted
				} else {
					l.mu.Lock()
					l.refuse = aborted
					l.mu.Unlock()
				}
				after(2 * interval)
				if want := []string{uuid + ":1-10", uuid + ":1-11"}; strings.Join(g.opened, " ") != strings.Join(want, " ") {
					t.Errorf("sources were opened at %q, want %q", g.opened, want)
				}
				g.wantRole(relay.RoleActive)
				if _, runs := g.lease.runsNow(); runs != 1 {
					t.Errorf("the lease was given up: %d runs", runs)
				}
				g.source.foreign(t, 12, true)
				g.mustStop()
				g.wantStored(uuid + ":1-12")
			})
		})
	}
}

func TestAFencedSinkStandsBy(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		l := transactional(g)
		g.start()
		after(interval)
		l.lost <- errors.Join(relay.ErrSinkFenced)
		after(interval)
		g.wantRole(relay.RoleStandby)
		after(10 * interval) // nobody holds the lease: it was somebody without it
		g.wantRole(relay.RoleActive)
		g.mustStop()
	})
}

func TestAFencedSinkEndsARelayThatMayNotStandBy(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		l := transactional(g)
		g.options.NoStandby = true
		g.start()
		l.lost <- relay.ErrSinkFenced
		if err := <-g.done; !errors.Is(err, relay.ErrActive) {
			t.Errorf("got %v", err)
		}
	})
}

// The rows that a checkpoint calls done stay done until the checkpoint contains their transaction, whatever the delivery is now.
func TestBegunTransactionsStayInTheCheckpoint(t *testing.T) {
	for _, delivery := range []string{"transactional", "plain"} {
		t.Run(delivery, func(t *testing.T) {
			scenario(t, func(t *testing.T, g *rig) {
				if delivery == "transactional" {
					transactional(g)
				}
				g.place.stored = &checkpoint.Checkpoint{Name: "orders", GTIDSet: set(t, uuid+":1-10"), Tables: []string{"app.outbox_events"}, Begun: []checkpoint.Begun{{GTID: uuid + ":12", Rows: 7}}}
				begun := func(want int) {
					t.Helper()
					g.place.with(func() {
						if got := g.place.stored.Begun; len(got) != want {
							t.Errorf("at %s the begun transactions are %v", g.place.stored.GTIDSet, got)
						}
					})
				}
				g.start()
				begun(1)
				g.source.foreign(t, 11, true)
				after(interval)
				begun(1)
				g.source.foreign(t, 12, true)
				after(interval)
				begun(0)
				g.mustStop()
			})
		})
	}
}

func TestBegunTransactionsHoldForTheirTablesOnly(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.place.stored = &checkpoint.Checkpoint{Name: "orders", GTIDSet: new(gtid.Set), Tables: []string{"app.outbox_events", "app.more"}, Begun: []checkpoint.Begun{{GTID: uuid + ":12", Rows: 7}}}
		g.start()
		err := <-g.done
		if !errors.Is(err, relay.ErrTables) || !strings.Contains(err.Error(), "start once with these tables") || !strings.Contains(err.Error(), "app.more") {
			t.Errorf("got %v", err)
		}
	})
}

// Under a halt everything before the row is committed. A row that is refused while the relay stands already, for a cause behind it, is in the window that
// the halt has to commit: without another start the window would wait for it for ever.
func TestARowThatIsRefusedWhileTheRelayStandsStartsOver(t *testing.T) {
	for name, exit := range map[string]bool{"waiting": false, "exiting": true} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(t *testing.T, g *rig) {
				l := transactional(g)
				g.options.ExitOnHalt = exit
				l.held = make(chan struct{}) // the refused row keeps the window from being committed
				g.start()
				g.source.foreign(t, 11, true)
				g.source.fails(&binlog.SourceError{Reason: binlog.ReasonPurged, Detail: "purged"})
				if s := g.relay.Status(); s.HaltReason != string(binlog.ReasonPurged) {
					t.Errorf("the halt is %q", s.Halted)
				}
				l.hooks.Poisoned(&relay.Poison{Reason: "too_large", Position: uuid + ":11#0"})
				l.mu.Lock()
				l.held = nil
				l.mu.Unlock()
				after(interval)
				if s := g.relay.Status(); l.opened != 2 || s.Halted != "" {
					t.Errorf("%d sessions, want 2; the halt is %q", l.opened, s.Halted)
				}
				g.mustStop()
			})
		})
	}
}

// A halt that no row is the cause of, such as more parked keys than may be, stands at once: no other session would get further.
func TestAHaltWithoutARowStandsUnderExactlyOnce(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		l := transactional(g)
		g.start()
		l.hooks.Poisoned(&relay.Poison{Reason: "parked", Topic: "dead", Err: errors.New("too many keys")})
		after(100 * interval)
		if s := g.relay.Status(); l.opened != 1 || !strings.Contains(s.Halted, "rows can not be published (parked)") {
			t.Errorf("%d sessions, the halt is %q", l.opened, s.Halted)
		}
		g.mustStop()
	})
}

// A server that lost a transaction, as by a crash or a failover, gives its GTID to another one: rows of that are not skipped.
func TestRowsAreDoneOfTheTransactionThatWasBegunOnly(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		begun int64
		gtid  string
		at    int64
		want  int
	}{{100, "a:1", 100, 7}, {100, "a:2", 100, 0}, {100, "a:1", 200, 0}, {0, "a:1", 200, 7}} {
		if got := relay.Done(checkpoint.Begun{GTID: "a:1", Rows: 7, CommitMicros: c.begun}, c.gtid, c.at); got != c.want {
			t.Errorf("%+v: %d rows are done", c, got)
		}
	}
}

// A window may be cut amid the rows of a step: they are in it, so its checkpoint is behind them.
func TestAWindowThatIsCutAmidAStepStoresItsRows(t *testing.T) {
	t.Parallel()
	base := checkpoint.NewSnapshot([]string{"app.o", "app.p"}, time.Unix(1, 0))
	c, err := relay.CutAmidStep(base, 7, []byte(`["7"]`))
	if err != nil {
		t.Fatal(err)
	}
	if !c.Snapshot.Reading() || len(c.Snapshot.Tables) != 2 || string(c.Snapshot.Tables[0].After) != `["7"]` || c.Snapshot.Tables[0].Rows != 7 || c.Snapshot.Rows() != 7 {
		t.Errorf("the checkpoint has %+v", c.Snapshot)
	}
	if base.Rows() != 0 {
		t.Error("the progress before was changed")
	}
}
