package e2e

import (
	"context"
	"fmt"
	"time"

	status "outbox-relay/relay"
)

// twoActive looks all the time whether two relays hold the activity lock at once.
type twoActive struct {
	crew   *crew
	cancel context.CancelFunc
	done   chan struct{}

	// To be read after stop.
	polls    int
	overlaps []overlap     // times for which both believed in the lock
	both     time.Duration // how long both called themselves active: one that cannot reach the lock does, and sends nothing
}

// watchRoles begins to look. It ends with stop or ctx.
func watchRoles(ctx context.Context, c *crew) *twoActive {
	w := &twoActive{crew: c, done: make(chan struct{})}
	ctx, w.cancel = context.WithCancel(ctx)
	go func() { // ends with stop or ctx
		defer close(w.done)
		for pause(ctx, 20*time.Millisecond) == nil {
			w.look(ctx)
		}
	}()
	return w
}

func (w *twoActive) stop() {
	w.cancel()
	<-w.done
}

// look asks one, the other, and the first one again: what it held before and after it held meanwhile.
func (w *twoActive) look(ctx context.Context) {
	begin := time.Now()
	ask := func(i int) (st status.Status) {
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond) // a frozen one does not answer
		defer cancel()
		st, _ = w.crew.at(i, false).Status(ctx) // the zero value holds nothing
		return st
	}
	active := func(st status.Status) bool { return st.Role == status.RoleActive }
	w.polls++
	one := ask(0)
	if !active(one) {
		return
	}
	two := ask(1)
	if !active(two) {
		return
	}
	again := ask(0)
	if !active(again) {
		return
	}
	w.both += time.Since(begin)
	if !one.LeaseHeld || !two.LeaseHeld || !again.LeaseHeld || !one.StartedAt.Equal(again.StartedAt) {
		return
	}
	if n := len(w.overlaps); n > 0 && begin.Sub(w.overlaps[n-1].to) < 100*time.Millisecond {
		w.overlaps[n-1].to = time.Now()
		return
	}
	w.overlaps = append(w.overlaps, overlap{begin, time.Now()})
}

// overlap is a time for which two relays believed in the lock.
type overlap struct{ from, to time.Time }

func (o overlap) String() string {
	return fmt.Sprintf("%s for %.2f s", o.from.UTC().Format("15:04:05.000"), o.to.Sub(o.from).Seconds())
}
