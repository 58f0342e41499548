package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	status "outbox-relay/relay"
)

// crew keeps the relay processes of a campaign: one that acts, and one on standby where that is wanted. A relay that ends and was not
// told to ends the campaign.
type crew struct {
	site    *Site
	options func(i int) RelayOptions // of each, without Args
	fail    context.CancelCauseFunc

	mu       sync.Mutex
	random   *rand.Rand
	relays   []*Relay
	expected map[*Relay]bool // to end
	kills    int
	stops    int
}

func newCrew(ctx context.Context, site *Site, options func(i int) RelayOptions, size int, seed uint64, fail context.CancelCauseFunc) (*crew, error) {
	c := &crew{site: site, options: options, fail: fail, relays: make([]*Relay, size), expected: map[*Relay]bool{}, random: rand.New(rand.NewPCG(seed, 4))}
	for i := range c.relays {
		if err := c.start(ctx, i); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// settings are what one relay after the other is started with, none of which may matter for what is published.
var settings = [][]string{
	{"limits.buffer=16MiB", "limits.buffer=1MiB", "limits.buffer=4MiB"},
	{"kafka.compression=lz4", "kafka.compression=none", "kafka.compression=zstd", "kafka.compression=gzip", "kafka.compression=snappy"},
	{"kafka.linger=0s", "kafka.linger=5ms"},
	{"checkpoint.interval=1s", "checkpoint.interval=100ms"},
}

// chosen gives one of each.
func (c *crew) chosen() (args []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range settings {
		args = append(args, "--set", of[c.random.IntN(len(of))])
	}
	return args
}

func (c *crew) start(ctx context.Context, i int) error {
	o := c.options(i)
	o.Args = c.chosen()
	r, err := c.site.Start(ctx, o)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.relays[i] = r
	c.mu.Unlock()
	go func() { // ends with the process
		<-r.Exited()
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.expected[r] {
			c.fail(fmt.Errorf("a relay ended by itself with code %d; the end of its log:\n%s", r.ExitCode(), r.LogTail(20)))
		}
	}()
	return nil
}

// at gives a relay, which is about to be ended if ending is true.
func (c *crew) at(i int, ending bool) *Relay {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.relays[i]
	if ending {
		c.expected[r] = true
	}
	return r
}

// active gives the index of the relay that says it is active, else that of the first.
func (c *crew) active(ctx context.Context) int {
	for i := range len(c.relays) {
		if len(c.relays) == 1 {
			break
		}
		st, err := c.at(i, false).Status(ctx)
		if err == nil && st.Role == status.RoleActive {
			return i
		}
	}
	return 0
}

func (c *crew) kill(i int) {
	c.at(i, true).Kill()
	c.mu.Lock()
	c.kills++
	c.mu.Unlock()
}

// stopTime bounds an orderly stop, whose own limits are far below.
const stopTime = 2 * time.Minute

// stop ends a relay by SIGTERM and demands the code 0.
func (c *crew) stop(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	r := c.at(i, true)
	c.mu.Lock()
	c.stops++
	c.mu.Unlock()
	code, took, err := r.Stop(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("a relay stopped with code %d after %v; the end of its log:\n%s", code, took, r.LogTail(20))
	}
	return err
}

// ends is how often a relay was ended, and so how often a partition may be replayed.
func (c *crew) ends() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kills + c.stops
}

// stopAll ends all relays in order.
func (c *crew) stopAll(ctx context.Context) error {
	var errs []error
	for i := range c.relays {
		errs = append(errs, c.stop(ctx, i))
	}
	return errors.Join(errs...)
}

// abort makes the relays write where their goroutines are, and ends them.
func (c *crew) abort() {
	for i := range c.relays {
		r := c.at(i, true)
		r.Thaw()
		r.signal(syscall.SIGQUIT)
		select {
		case <-r.Exited():
		case <-time.After(10 * time.Second):
			r.Kill()
		}
	}
}
