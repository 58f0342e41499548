package fleet_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/relay"
	"outbox-relay/relay/fleet"
)

// script is what the relays of a member do, one after the other; the last one stays.
type script struct {
	name   string
	fails  []error // of Run, each a minute after its start; nil for one that stays until it is stopped
	opened int
	failOn int // the opening that fails, counted from 1
	ended  time.Time
}

var errScripted = errors.New("the disk is full")

func (s *script) open(reg prometheus.Registerer) (fleet.Runner, error) {
	s.opened++
	if s.opened == s.failOn {
		return nil, errScripted
	}
	reg.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "ready", Help: "Of the test."}))
	return &runner{script: s}, nil
}

type runner struct{ *script }

func (r *runner) Run(ctx context.Context) error {
	defer func() { r.ended = time.Now() }()
	var fail error
	if len(r.fails) > 0 {
		fail, r.fails = r.fails[0], r.fails[1:]
	}
	if fail == nil {
		<-ctx.Done()
		time.Sleep(3 * time.Second) // drains
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(time.Minute):
		return fail
	}
}

func (r *runner) Status() relay.Status {
	return relay.Status{Name: r.name, Role: relay.RoleActive, Ready: true}
}
func (r *runner) Pause(context.Context) (string, error)  { return "paused", nil }
func (r *runner) Resume(context.Context) (string, error) { return "goes on", nil }

// run starts members and gives what ends them.
func run(t *testing.T, exit bool, scripts ...*script) (members []*fleet.Member, stop func() (time.Duration, error), ended chan error) {
	t.Helper()
	for _, s := range scripts {
		reg := prometheus.WrapRegistererWith(prometheus.Labels{"source": s.name}, prometheus.NewRegistry())
		m, err := fleet.New(fleet.Options{Name: s.name, Open: s.open, Exit: exit, Registerer: reg})
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, m)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	ended = make(chan error, 1)
	go func() { ended <- fleet.Run(ctx, members) }() // ends with cancel
	return members, func() (time.Duration, error) {
		begin := time.Now()
		cancel()
		err := <-ended
		return time.Since(begin), err
	}, ended
}

func TestOneThatFailsIsMadeAnewAndTheOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := &script{name: "a", fails: []error{errScripted, errScripted, nil}, failOn: 2}, &script{name: "b"}
		members, stop, _ := run(t, false, bad, good)
		time.Sleep(time.Minute + 100*time.Millisecond)
		s := members[0].Status()
		if s.Ready || s.Cause != fleet.CauseFailed || s.Reason != "failed, and tries again: the disk is full" || s.Name != "a" {
			t.Errorf("after a failure: %+v", s)
		}
		if _, err := members[0].Pause(t.Context()); err == nil {
			t.Error("a member without a relay is paused")
		}
		if !members[1].Status().Ready {
			t.Error("the other one is not ready")
		}
		time.Sleep(2 * time.Minute)
		if s := members[0].Status(); !s.Ready || bad.opened != 4 {
			t.Errorf("after %d openings: %+v", bad.opened, s)
		}
		if text, err := members[0].Pause(t.Context()); err != nil || text != "paused" {
			t.Errorf("%q, %v", text, err)
		}
		if good.opened != 1 || !good.ended.IsZero() {
			t.Error("the other one was disturbed")
		}
		if took, err := stop(); err != nil || took > 3*time.Second {
			t.Errorf("stopping took %v: %v", took, err)
		}
	})
}

func TestOneThatMayNotBeMadeAnewEndsAll(t *testing.T) {
	for name, c := range map[string]struct {
		exit bool
		err  error
	}{
		"on_halt: exit":         {true, &relay.HaltError{Source: errScripted}},
		"another one is active": {false, relay.ErrActive},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad, good := &script{name: "a", fails: []error{c.err}}, &script{name: "b"}
				_, _, ended := run(t, c.exit, bad, good)
				begin := time.Now()
				if err := <-ended; !errors.Is(err, c.err) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(begin); took != time.Minute+3*time.Second || good.ended.IsZero() {
					t.Errorf("it ended after %v; the other one had ended %t", took, !good.ended.IsZero())
				}
			})
		})
	}
}

func TestAFailureOfTheFirstOpeningIsTold(t *testing.T) {
	s := &script{name: "a", failOn: 1}
	if _, err := fleet.New(fleet.Options{Name: "a", Open: s.open, Registerer: prometheus.NewRegistry()}); !errors.Is(err, errScripted) {
		t.Errorf("got %v", err)
	}
}
