// Package fleet runs several relays in one process, each with a source, a checkpoint and a lock of its own.
//
// They share the process and nothing else: one that halts, waits or fails touches no other. One that fails is made anew after a while, as a
// supervisor would start a process again. The package knows nothing of configurations, sources and sinks.
package fleet

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/relay"
)

// Runner is a relay. *relay.Relay is one.
type Runner interface {
	Run(ctx context.Context) error
	Status() relay.Status
	Pause(ctx context.Context) (string, error)
	Resume(ctx context.Context) (string, error)
}

// Options configure a Member. All are required but Logger.
type Options struct {
	Name string
	// Open makes a relay that has not run; it is called again after each failure. What it registers goes when the next one is made.
	Open func(reg prometheus.Registerer) (Runner, error)
	// Exit ends the process with the first failure instead of trying again.
	Exit       bool
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Member is one relay of the process, through all its failures. Its methods but Run are safe for concurrent use.
type Member struct {
	o       Options
	began   time.Time
	metrics *relay.Registrations

	mu     sync.Mutex
	relay  Runner // the present one, or the one that failed; nil if none could be made
	failed error  // why there is none at work; nil while there is
}

// Backoff after failures.
const (
	minPause = time.Second
	maxPause = time.Minute
	// calm is after how long without a failure the next one counts as the first.
	calm = 5 * time.Minute
)

// New makes a member. It starts nothing. The first relay is made at once, so that what is wrong with its options shows.
func New(o Options) (*Member, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	m := &Member{o: o, began: time.Now()}
	return m, m.open()
}

// open makes the next relay.
func (m *Member) open() error {
	if m.metrics != nil {
		m.metrics.UnregisterAll()
	}
	m.metrics = &relay.Registrations{Registerer: m.o.Registerer}
	r, err := m.o.Open(m.metrics)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed = err; err == nil {
		m.relay = r
	}
	return err
}

// Run runs all members until ctx ends, which is the wish to stop, or until one ends that may not be made anew; then it stops the others. It returns nil or
// the first such error, once all have ended.
func Run(ctx context.Context, members []*Member) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		wg    sync.WaitGroup
		once  sync.Once
		cause error
	)
	for _, m := range members {
		wg.Go(func() { // ends with ctx, or with an error that ends it
			if err := m.run(ctx); err != nil {
				once.Do(func() { cause = err })
				cancel()
			}
		})
	}
	wg.Wait()
	return cause
}

func (m *Member) run(ctx context.Context) error {
	for failures := 0; ; {
		began := time.Now()
		err := m.runOnce(ctx)
		if err == nil || m.o.Exit || errors.Is(err, relay.ErrActive) || ctx.Err() != nil {
			return err
		}
		if time.Since(began) > calm {
			failures = 0
		}
		wait := min(minPause<<min(failures, 10), maxPause)
		failures++
		m.mu.Lock()
		m.failed = err
		m.mu.Unlock()
		m.o.Logger.Error("failed, trying again", "err", relay.Sentence(err), "in", wait.String())
		t := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}

// runOnce runs the relay that New or the failure before has left, or a new one.
func (m *Member) runOnce(ctx context.Context) error {
	m.mu.Lock()
	failed := m.failed
	m.mu.Unlock()
	if failed != nil {
		if err := m.open(); err != nil {
			return err
		}
	}
	return m.relay.Run(ctx)
}

// CauseFailed is the cause of a member whose relay failed and is made anew soon.
const CauseFailed relay.Cause = "failed"

// Status is that of the relay at work, or tells why there is none.
func (m *Member) Status() relay.Status {
	m.mu.Lock()
	r, failed := m.relay, m.failed
	m.mu.Unlock()
	var s relay.Status
	if r != nil {
		s = r.Status()
	} else {
		s = relay.Status{Name: m.o.Name, Role: relay.RoleStandby, StartedAt: m.began}
	}
	if failed != nil {
		s.Ready, s.Cause, s.Reason = false, CauseFailed, "failed, and tries again: "+relay.Sentence(failed)
		s.LastError = relay.Sentence(failed)
	}
	return s
}

// Pause pauses the relay at work.
func (m *Member) Pause(ctx context.Context) (string, error) {
	return m.control(func(r Runner) (string, error) { return r.Pause(ctx) })
}

// Resume ends a pause of the relay at work.
func (m *Member) Resume(ctx context.Context) (string, error) {
	return m.control(func(r Runner) (string, error) { return r.Resume(ctx) })
}

func (m *Member) control(do func(Runner) (string, error)) (string, error) {
	m.mu.Lock()
	r, failed := m.relay, m.failed
	m.mu.Unlock()
	if failed != nil {
		return "", errors.New("it has failed and tries again, ask again then: " + relay.Sentence(failed))
	}
	return do(r)
}
