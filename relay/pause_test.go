package relay_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"outbox-relay/relay"
)

// told calls Pause or Resume and demands that it succeeds.
func told(t *testing.T, f func(context.Context) (string, error)) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	text, err := f(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (g *rig) wantPaused(want bool) {
	g.t.Helper()
	g.place.with(func() {
		if got := g.place.stored != nil && !g.place.stored.Paused.IsZero(); got != want {
			g.t.Errorf("the checkpoint says paused %t, want %t", got, want)
		}
	})
	if g.relay == nil {
		return
	}
	s := g.relay.Status()
	if got := !s.PausedSince.IsZero(); got != want {
		g.t.Errorf("the status says paused %t, want %t", got, want)
	}
	if s.Role == relay.RoleActive && (s.Cause == relay.CausePaused) != want {
		g.t.Errorf("the cause is %q: %s", s.Cause, s.Reason)
	}
}

func TestNothingIsReadWhilePausedAlsoAfterARestart(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.start()
		g.source.foreign(t, 11, true)
		if got := told(t, g.relay.Pause); got != "paused" {
			t.Error(got)
		}
		g.wantPaused(true)
		g.source.foreign(t, 12, true)
		after(time.Hour)
		g.wantStored(uuid + ":1-11")
		told(t, g.relay.Pause) // again changes nothing
		if since := g.relay.Status().PausedSince; time.Since(since) < time.Hour {
			t.Errorf("paused since %v", since)
		}
		g.mustStop()
		g.start()
		after(time.Minute)
		g.wantPaused(true)
		g.wantStored(uuid + ":1-11")
		if s := g.relay.Status(); s.Ready || !strings.HasPrefix(s.Reason, "paused since ") {
			t.Errorf("ready %t: %s", s.Ready, s.Reason)
		}
		told(t, g.relay.Resume)
		g.wantPaused(false)
		after(2 * interval)
		g.wantStored(uuid + ":1-12")
		told(t, g.relay.Resume)
		g.mustStop()
	})
}

// A person must know when a restart would not stay paused.
func TestAPauseThatCannotBeSavedSaysSo(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.start()
		g.place.with(func() { g.place.fail = errors.New("disk full") })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := g.relay.Pause(ctx); err == nil || !strings.Contains(err.Error(), "does not say so yet") || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("got %v", err)
		}
		g.place.with(func() { g.place.fail = nil })
		after(2 * interval)
		g.wantPaused(true)
		told(t, g.relay.Resume)
		g.mustStop()
	})
}

func TestAPausedStandbyStandsByAndPausesWhenItTakesOver(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.lease.give = false
		g.lease.loseToOther()
		g.start()
		if got := told(t, g.relay.Pause); !strings.Contains(got, "not active") {
			t.Error(got)
		}
		if s := g.relay.Status(); s.Role != relay.RoleStandby || !s.Ready {
			t.Errorf("it is %s, ready %t: %s", s.Role, s.Ready, s.Reason)
		}
		g.source.foreign(t, 11, true)
		g.lease.win()
		after(2 * interval)
		g.wantRole(relay.RoleActive)
		g.wantPaused(true)
		g.wantStored(uuid + ":1-10")
		// The next active instance may go on; what this one was told is over then.
		g.lease.loseToOther()
		after(time.Second)
		if since := g.relay.Status().PausedSince; !since.IsZero() {
			t.Errorf("a standby says that it is paused since %v, which is not for it to know", since)
		}
		g.place.with(func() { g.place.stored.Paused = time.Time{} })
		after(10 * time.Second)
		g.lease.win()
		after(2 * interval)
		g.wantPaused(false)
		g.wantStored(uuid + ":1-11")
		g.mustStop()
	})
}

func TestAStandbyDoesNotEndThePauseOfTheCheckpoint(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		g.start()
		told(t, g.relay.Pause)
		g.mustStop()
		g.lease.give = false
		g.lease.loseToOther()
		g.start()
		told(t, g.relay.Resume)
		g.lease.win()
		after(2 * interval)
		g.wantPaused(true)
		g.mustStop()
	})
}
