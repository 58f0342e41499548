package relay_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/checkpoint"
	"outbox-relay/relay"
)

func scenario(t *testing.T, f func(t *testing.T, g *rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(t, newRig(t)) })
}

func TestFirstPositionIsSavedBeforeTheSourceIsOpened(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		open := g.options.OpenSource
		g.options.OpenSource = nil
		if _, err := relay.New(g.options); err == nil {
			t.Error("a relay without a source is accepted")
		}
		g.options.OpenSource = open
		g.place.fail = errors.New("disk full")
		r, err := relay.New(g.options)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context()); !errors.Is(err, g.place.fail) {
			t.Errorf("Run gives %v, want the error of the first save", err)
		}
		if len(g.opened) != 0 {
			t.Error("the source was opened without a saved position")
		}
		g.place.fail = nil
		g.start()
		g.wantStored(uuid + ":1-10")
		g.mustStop()
	})
}

func TestPositionOfForeignTransactionsIsSavedAtEachInterval(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.start()
		after(interval / 2)
		g.source.foreign(t, 11, true)
		g.wantStored(uuid + ":1-10")
		after(interval)
		g.wantStored(uuid + ":1-11")
		saves := g.place.saves
		after(10 * interval)
		if g.place.saves != saves {
			t.Errorf("%d saves without a change", g.place.saves-saves)
		}
		g.source.foreign(t, 13, true)
		g.mustStop()
		g.wantStored(uuid + ":1-11:13")
	})
}

// A save in a table on the source is a transaction that the source gives back: it is no reason for the next save, but for one now and then, so that
// the newest of them is not purged unread.
func TestTransactionsOfItsOwnSavesAreSeldomSaved(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.start()
		g.source.own(t, 11)
		after(10 * interval)
		g.wantStored(uuid + ":1-10")
		after(time.Hour)
		g.wantStored(uuid + ":1-11")
		saves := g.place.saves
		after(10 * time.Hour)
		if g.place.saves != saves {
			t.Errorf("%d saves without a change", g.place.saves-saves)
		}
		g.source.own(t, 12)
		g.source.foreign(t, 13, true)
		after(2 * interval)
		g.wantStored(uuid + ":1-13")
		g.mustStop()
	})
}

// A frozen relay loses the lease and keeps the store. One that held the lease while waiting for that store kept it from going on.
func TestLeaseIsAskedForOnlyWithTheStoreInHand(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.place.held = true
		g.start()
		after(time.Minute)
		if _, runs := g.lease.runsNow(); runs != 0 {
			t.Error("the lease was asked for without the store")
		}
		if s := g.relay.Status(); s.Role != relay.RoleStandby || !s.Ready {
			t.Errorf("waiting for the store it is %s, ready %t: %s", s.Role, s.Ready, s.Reason)
		}
		g.place.with(func() { g.place.held = false })
		after(interval)
		g.wantRole(relay.RoleActive)
		g.mustStop()
		if running, runs := g.lease.runsNow(); running != 0 || runs != 1 {
			t.Errorf("after the end %d of %d runs of the lease are under way", running, runs)
		}
	})
}

func TestNoStandbyEndsWhereAnotherIsActive(t *testing.T) {
	for name, arrange := range map[string]func(*rig){
		"the store is held": func(g *rig) { g.place.held = true },
		"the lock is held": func(g *rig) {
			g.lease.give = false
			g.lease.loseToOther()
		},
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(t *testing.T, g *rig) {
				g.options.NoStandby = true
				arrange(g)
				g.start()
				if err := <-g.done; !errors.Is(err, relay.ErrActive) {
					t.Errorf("got %v, want ErrActive", err)
				}
			})
		})
	}
}

func TestLeaseLostAndWonAgainReadsNothingTwice(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.start()
		g.lease.lose()
		g.source.foreign(t, 11, true)
		if g.sink.hooks.Allowed() || g.source.allowed() {
			t.Error("it may publish or read without the lease")
		}
		after(time.Minute)
		g.wantStored(uuid + ":1-10")
		g.wantRole(relay.RoleActive)
		g.lease.win()
		synctest.Wait()
		if !g.sink.hooks.Allowed() || !g.source.allowed() {
			t.Error("it may not publish or read with the lease")
		}
		after(interval)
		g.wantStored(uuid + ":1-11")
		if len(g.opened) != 1 {
			t.Errorf("sources were opened at %v", g.opened)
		}
		g.mustStop()
	})
}

// Between two terms of the lease another instance may have been active: until the store has told, nothing may be sent.
func TestNothingIsSentBeforeTheStoreHasToldWhoWasActive(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.start()
		g.lease.lose()
		g.place.with(func() { g.place.blind = errors.New("disk gone") })
		g.lease.win()
		after(time.Minute)
		if g.sink.hooks.Allowed() || g.source.allowed() {
			t.Error("it may publish or read")
		}
		g.place.with(func() { g.place.blind = nil })
		after(2 * interval)
		if !g.sink.hooks.Allowed() {
			t.Error("it may not publish")
		}
		g.mustStop()
	})
}

func TestStopWithoutTheLeaseSavesNothing(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.start()
		g.source.foreign(t, 11, true)
		g.lease.lose()
		g.mustStop()
		g.wantStored(uuid + ":1-10")
	})
}

func TestSessionEndsWhenAnotherIsSeenWithTheLock(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.start()
		g.lease.give = false
		g.source.foreign(t, 11, true)
		g.lease.loseToOther()
		synctest.Wait()
		g.wantRole(relay.RoleStandby)
		if g.sink.running() != 0 {
			t.Error("the session goes on")
		}
		if running, runs := g.lease.runsNow(); running != 1 || runs != 2 { // the other one has it: nobody is fought
			t.Errorf("it does not ask for the lease again: %d of %d runs", running, runs)
		}
		g.wantStored(uuid + ":1-10") // the other one's to write
		// The other one saves and ends.
		g.place.with(func() {
			g.place.stored.GTIDSet = set(t, uuid+":1-20")
			g.place.stored.FencingToken += 5
		})
		token := g.place.token()
		after(time.Minute)
		g.wantRole(relay.RoleStandby)
		g.lease.win()
		after(interval)
		g.wantRole(relay.RoleActive)
		if last := g.opened[len(g.opened)-1]; last != uuid+":1-20" {
			t.Errorf("it goes on from %s", last)
		}
		if got := g.place.token(); got != token+1 {
			t.Errorf("the token is %d, want %d", got, token+1)
		}
		g.mustStop()
	})
}

func TestSessionStartsOverWhenAnotherWasActiveMeanwhile(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.start()
		g.lease.lose()
		g.source.foreign(t, 11, true)
		g.place.with(func() {
			g.place.stored.GTIDSet = set(t, uuid+":1-20")
			g.place.stored.FencingToken++
		})
		g.lease.win()
		after(time.Minute)
		g.wantRole(relay.RoleActive)
		if len(g.opened) != 2 || g.opened[1] != uuid+":1-20" {
			t.Errorf("sources were opened at %v", g.opened)
		}
		g.wantStored(uuid + ":1-20")
		g.mustStop()
	})
}

func TestFencedSaveEndsTheSession(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.options.NoStandby = true
		g.start()
		g.place.with(func() { g.place.stored.FencingToken++ })
		g.source.foreign(t, 11, true)
		if err := <-g.done; !errors.Is(err, relay.ErrActive) {
			t.Errorf("got %v, want ErrActive", err)
		}
		g.wantStored(uuid + ":1-10")
	})
}

func TestFencedSourceEndsTheSession(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.start()
		g.source.fails(binlog.ErrFenced)
		g.wantRole(relay.RoleStandby)
		if running, _ := g.lease.runsNow(); running != 0 {
			t.Error("it asks for the lease at once, and may fight with one that holds another")
		}
		if s := g.relay.Status(); !s.Ready {
			t.Errorf("while another one is active it is not ready: %s", s.Reason)
		}
		after(time.Minute)
		g.wantRole(relay.RoleActive)
		g.mustStop()
	})
}

func TestFailedSavesAreTriedAgainAndShow(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.start()
		g.place.with(func() { g.place.fail = errors.New("disk full") })
		g.source.foreign(t, 11, true)
		after(2 * interval)
		if s := g.relay.Status(); !s.Ready {
			t.Errorf("after two failed saves it is not ready: %s", s.Reason)
		}
		after(10 * interval)
		if s := g.relay.Status(); s.Ready || !strings.Contains(s.Reason, "disk full") {
			t.Errorf("after ten failed saves it is ready %t: %q", s.Ready, s.Reason)
		}
		g.source.foreign(t, 12, true)
		g.place.with(func() { g.place.fail = nil })
		after(interval)
		g.wantStored(uuid + ":1-12")
		if s := g.relay.Status(); !s.Ready {
			t.Errorf("saved again it is not ready: %s", s.Reason)
		}
		g.mustStop()
	})
}

func TestSourceErrorHalts(t *testing.T) {
	fault := &binlog.SourceError{Reason: binlog.ReasonPurged, Detail: "purged"}
	t.Run("and waits", func(t *testing.T) {
		scenario(t, func(t *testing.T, g *rig) {
			g.start()
			g.source.foreign(t, 11, true)
			g.source.fails(fault)
			after(time.Hour)
			if s := g.relay.Status(); s.Ready || s.HaltReason != "purged" {
				t.Errorf("ready %t, halted for %q", s.Ready, s.HaltReason)
			}
			g.wantStored(uuid + ":1-11")
			g.mustStop()
		})
	})
	t.Run("and exits", func(t *testing.T) {
		scenario(t, func(t *testing.T, g *rig) {
			g.options.ExitOnHalt = true
			g.start()
			g.source.foreign(t, 11, true)
			g.source.fails(fault)
			var halt *relay.HaltError
			if err := <-g.done; !errors.As(err, &halt) || halt.Reason() != "purged" {
				t.Errorf("got %v", err)
			}
			g.wantStored(uuid + ":1-11")
		})
	})
}

func TestUntilCaughtUpEndsWithTheLastPosition(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.options.UntilCaughtUp = true
		g.start()
		g.source.foreign(t, 11, false)
		select {
		case err := <-g.done:
			t.Fatalf("ended before it has caught up: %v", err)
		default:
		}
		g.source.foreign(t, 12, true)
		if err := <-g.done; err != nil {
			t.Error(err)
		}
		g.wantStored(uuid + ":1-12")
	})
}

func TestStopWaitsForAcknowledgementsNoLongerThanItsTime(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.sink.stuck = true
		g.start()
		g.source.foreign(t, 11, true)
		took, err := g.stop()
		if err != nil || took != g.options.DrainTimeout {
			t.Errorf("took %v with %v, want %v", took, err, g.options.DrainTimeout)
		}
		g.wantStored(uuid + ":1-11")
	})
}

func TestStopOnStandbyIsImmediate(t *testing.T) {
	for name, arrange := range map[string]func(*rig){
		"waiting for the store": func(g *rig) { g.place.held = true },
		"waiting for the lock":  func(g *rig) { g.lease.give = false },
	} {
		t.Run(name, func(t *testing.T) {
			scenario(t, func(t *testing.T, g *rig) {
				arrange(g)
				g.start()
				after(time.Minute)
				if took, err := g.stop(); err != nil || took != 0 {
					t.Errorf("took %v with %v", took, err)
				}
			})
		})
	}
}

func TestDamagedCheckpointIsRefused(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.options.OpenStore = func() (checkpoint.Store, error) { return damaged{}, nil }
		g.start()
		if err := <-g.done; !errors.Is(err, checkpoint.ErrDamaged) {
			t.Errorf("got %v", err)
		}
		if len(g.opened) != 0 {
			t.Error("the source was opened")
		}
	})
}

// The servers of the store are away when the relay starts, and come back.
func TestAStoreThatIsAwayAtTheStartIsWaitedFor(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.place.blind = &checkpoint.Error{Op: "loading checkpoint", Err: errors.New("nothing listens"), Passing: true, Hint: "start it"}
		g.start()
		after(time.Hour)
		if s := g.relay.Status(); s.Ready || !strings.Contains(s.LastError, "nothing listens; start it") || len(g.opened) != 0 {
			t.Errorf("ready %t, %q, sources %v", s.Ready, s.LastError, g.opened)
		}
		g.place.with(func() { g.place.blind = nil })
		after(interval)
		if s := g.relay.Status(); !s.Ready || s.LastError != "" || len(g.opened) != 1 {
			t.Errorf("ready %t, %q, sources %v", s.Ready, s.LastError, g.opened)
		}
		g.mustStop()
	})
}

var errAway = &checkpoint.Error{Op: "loading checkpoint", Err: errors.New("nothing listens"), Passing: true}

func TestWaitingForTheStoreGivesWayToAnotherInstance(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.place.blind, g.options.NoStandby = errAway, true
		g.start()
		after(10 * interval)
		g.lease.loseToOther()
		if err := <-g.done; !errors.Is(err, relay.ErrActive) {
			t.Errorf("got %v", err)
		}
	})
}

func TestWaitingForTheStoreStopsAtOnce(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.place.blind = errAway
		g.start()
		after(10*interval + interval/2)
		if took, err := g.stop(); err != nil || took != 0 {
			t.Errorf("took %v with %v", took, err)
		}
	})
}

// Another instance took over between the load and the first save.
func TestAFirstSaveThatIsFencedIsATakeover(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.place.fail, g.options.NoStandby = &checkpoint.Error{Op: "saving checkpoint", Err: checkpoint.ErrFenced}, true
		g.start()
		if err := <-g.done; !errors.Is(err, relay.ErrActive) {
			t.Errorf("got %v", err)
		}
	})
}

type damaged struct{ handle }

func (damaged) Load(context.Context) (*checkpoint.Checkpoint, error) {
	return nil, &checkpoint.Error{Op: "loading checkpoint", Err: checkpoint.ErrDamaged}
}

func (damaged) Close() error { return nil }

// Starts, stops and changes of the lease at any moment end in order and leave no goroutine, which the bubble would report.
func TestStartStopStress(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			g := newRig(t)
			g.start()
			for n := range int64(random.IntN(6)) {
				time.Sleep(time.Duration(random.Int64N(int64(3 * interval))))
				switch random.IntN(5) {
				case 0:
					g.lease.lose()
				case 1:
					g.lease.win()
				case 2:
					g.lease.loseToOther()
				case 3:
					g.source.fails(binlog.ErrFenced)
				default:
					g.source.foreign(t, 11+n, true)
				}
			}
			g.mustStop()
			if running, _ := g.lease.runsNow(); running != 0 || g.sink.running() != 0 || g.place.held {
				t.Errorf("seed %d: something goes on after the end", seed)
			}
		})
	}
}
