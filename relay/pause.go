package relay

import (
	"context"
	"errors"
	"sync"
	"time"
)

// pausing is whether publishing stands still because a person said so. The active instance keeps it in the checkpoint, so that it outlives
// a restart and a takeover; what an instance is told while it is not active, it keeps for when it is.
type pausing struct {
	mu       sync.Mutex
	since    time.Time     // zero while publishing goes on
	unsaved  bool          // told, and not in the checkpoint yet
	standing bool          // the pump waits: nothing is read, and the connection to the source is closed
	stop     func()        // ends the stretch that the pump reads; nil outside one
	changed  chan struct{} // closed at the next change
}

// errPaused ends a stretch of reading.
var errPaused = errors.New("publishing is paused")

// update changes the state. mu is held by it.
func (p *pausing) update(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	if !p.since.IsZero() && p.stop != nil {
		p.stop()
		p.stop = nil
	}
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// next is closed at the next change. mu is held.
func (p *pausing) next() <-chan struct{} {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	return p.changed
}

// paused is since when; zero while publishing goes on.
func (p *pausing) paused() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.since
}

// loaded takes over what the checkpoint says, unless this instance was told otherwise since.
func (p *pausing) loaded(since time.Time) {
	p.update(func() {
		if !p.unsaved {
			p.since = since
		}
	})
}

// saved notes what the checkpoint says now.
func (p *pausing) saved(since time.Time) {
	p.update(func() { p.unsaved = p.unsaved && !since.Equal(p.since) })
}

// inactive forgets what the checkpoint said, which the next active instance may change. What it does not say yet is kept.
func (p *pausing) inactive() {
	p.update(func() {
		if !p.unsaved {
			p.since = time.Time{}
		}
	})
}

// stretch gives the context under which the source is read: it ends with ctx, and with the cause errPaused at the next pause.
func (p *pausing) stretch(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	p.update(func() { p.stop = func() { cancel(errPaused) } })
	return ctx, func() {
		p.update(func() { p.stop = nil })
		cancel(nil)
	}
}

// wait blocks until publishing goes on, or ctx ends.
func (p *pausing) wait(ctx context.Context) error {
	p.update(func() { p.standing = true })
	defer p.update(func() { p.standing = false })
	return p.until(ctx, func() bool { return p.since.IsZero() })
}

// until blocks until ok, which is called with mu held, or ctx ends.
func (p *pausing) until(ctx context.Context, ok func() bool) error {
	for {
		p.mu.Lock()
		if ok() {
			p.mu.Unlock()
			return nil
		}
		changed := p.next()
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// Pause stops publishing until Resume, also over restarts and takeovers. It blocks until nothing more is read and the checkpoint says so, or until
// ctx ends. What was handed over before is still published; rows committed after Pause returned nil are not. The text says what was reached: an
// instance that is not active pauses as soon as it is. Safe for concurrent use.
func (r *Relay) Pause(ctx context.Context) (string, error) {
	r.pausing.update(func() {
		if r.pausing.since.IsZero() {
			r.pausing.since, r.pausing.unsaved = time.Now().UTC().Truncate(time.Millisecond), true
		}
	})
	if !r.acts() {
		return "this instance is not active: it pauses when it becomes active, and what is active now goes on", nil
	}
	halted := r.Status().Halted != "" // nothing is read
	done := func() bool {
		return r.pausing.since.IsZero() || (r.pausing.standing || halted) && !r.pausing.unsaved
	}
	if err := r.pausing.until(ctx, done); err != nil {
		return "", r.pauseFault("paused", "a transaction is still being handed over")
	}
	return "paused", nil
}

// Resume ends a pause. It blocks until the checkpoint says so, or until ctx ends. Safe for concurrent use.
func (r *Relay) Resume(ctx context.Context) (string, error) {
	active := r.acts()
	r.pausing.update(func() {
		if !r.pausing.since.IsZero() {
			r.pausing.since, r.pausing.unsaved = time.Time{}, active
		}
	})
	if !active {
		return "this instance is not active: it will do what the checkpoint says when it becomes active", nil
	}
	if err := r.pausing.until(ctx, func() bool { return !r.pausing.unsaved }); err != nil {
		return "", r.pauseFault("publishing goes on", "the save has not ended")
	}
	return "publishing goes on", nil
}

// acts tells whether a session runs.
func (r *Relay) acts() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.session != nil
}

// pauseFault says what of a pause or its end was not reached in time.
func (r *Relay) pauseFault(reached, why string) error {
	s := r.Status()
	r.pausing.mu.Lock()
	unsaved := r.pausing.unsaved
	r.pausing.mu.Unlock()
	if unsaved {
		return errors.New(reached + ", but the checkpoint does not say so yet, and a restart would not know: " + firstOf(s.Checkpoint.Error, why))
	}
	return errors.New("not " + reached + " yet: " + why + "; it will be as soon as that ends")
}
