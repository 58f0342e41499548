package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"outbox-relay/internal/sandbox"
	status "outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// FreezeOptions configure [Freeze]. Servers, Links, Kafka and Builder are required.
type FreezeOptions struct {
	// Servers are frozen, each under a relay of its own.
	Servers []*sandbox.MySQL
	// Links is a server that is not frozen. As many relays as there are Servers read it, each by a link of its own that stalls.
	Links   *sandbox.MySQL
	Kafka   *sandbox.Kafka
	Builder *Builder
	Build   Build
	// Rounds is the number of freezes and stalls in all.
	Rounds int
	// Longest is the longest of them. 0 means 60 s.
	Longest time.Duration
	Seed    uint64
	// Progress gets a line for each round.
	Progress func(string)
}

// FreezeResult is the account of a freeze campaign.
type FreezeResult struct {
	Seed             uint64
	Freezes, Stalls  int
	Total            time.Duration // of all of them
	Rows, Received   int
	Lost, OutOfOrder int
	Duplicates       int
	Connects         int
	// Unnoticed counts those that were longer than the patience and were not noticed, Late those that were noticed later.
	Unnoticed, Late int
	Detections      []time.Duration // from the begin of one that was longer than the patience to the end of the connection
	Recoveries      []time.Duration // from its end to a row committed after it, in Kafka
	Errs            []error
}

const (
	// freezePatience is after how long a silent source is left: three heartbeats, which are one second in a Site.
	freezePatience = 3 * time.Second
	// freezeGrace is what the campaign allows on top.
	freezeGrace = time.Second
	// freezeBusy is what a machine that does much else may add.
	freezeBusy = 3 * time.Second
)

// freezeSite is one relay and what is frozen under it.
type freezeSite struct {
	name         string
	server       *sandbox.MySQL
	site         *Site
	proxy        *sandbox.Proxy
	relay        *Relay
	load         *Running
	freeze, thaw func() error
	rounds       []*freezeRound
}

// freezeRound is one freeze.
type freezeRound struct {
	begin, end time.Time
	marker     string
	recovered  time.Time
}

// Freeze stops servers and stalls links for a random time between a second and Longest, again and again and several at a time, while relays publish under
// load, and judges every row. What lasts has to be noticed, and everything has to heal.
func Freeze(ctx context.Context, o FreezeOptions) (*FreezeResult, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Longest == 0 {
		o.Longest = time.Minute
	}
	res := &FreezeResult{Seed: o.Seed}
	lengths := make(chan time.Duration, o.Rounds)
	random := rand.New(rand.NewPCG(o.Seed, 6))
	for range o.Rounds {
		lengths <- within(random, time.Second, o.Longest)
	}
	close(lengths)

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sites []*freezeSite
	defer func() {
		for _, s := range sites {
			s.close()
		}
	}()
	for i := range 2 * len(o.Servers) {
		s, err := newFreezeSite(ctx, o, i)
		if s != nil {
			sites = append(sites, s)
		}
		if err != nil {
			return nil, err
		}
	}
	errs := make([]error, len(sites))
	var work sync.WaitGroup
	for i, s := range sites {
		work.Go(func() { // ends with the lengths
			if errs[i] = s.run(ctx, o, lengths); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w\n%s", s.name, errs[i], s.site.LogTails())
				cancel()
			}
		})
	}
	work.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	for i, s := range sites {
		if err := s.judge(ctx, res, i < len(o.Servers)); err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return res, nil
}

// newFreezeSite makes the site of a number: those of frozen servers come first.
func newFreezeSite(ctx context.Context, o FreezeOptions, number int) (*freezeSite, error) {
	s := &freezeSite{}
	so := SiteOptions{Kafka: o.Kafka, Builder: o.Builder, AppendTime: true}
	if number < len(o.Servers) {
		m := o.Servers[number]
		s.name, s.freeze, s.thaw = fmt.Sprintf("server %d", number+1), m.Pause, m.Resume
		so.MySQL, so.Label = m, "freeze"
	} else {
		var err error
		if s.proxy, err = sandbox.NewProxy(o.Links.Addr()); err != nil {
			return nil, err
		}
		s.name = fmt.Sprintf("link %d", number+1-len(o.Servers))
		s.freeze, s.thaw = func() error { s.proxy.Freeze(); return nil }, func() error { s.proxy.Thaw(); return nil }
		so.MySQL, so.Label, so.Source = o.Links, "stall", s.proxy.Addr()
	}
	s.server = so.MySQL
	var err error
	if s.site, err = NewSite(ctx, so); err != nil {
		return s, err
	}
	if s.relay, err = s.site.Start(ctx, RelayOptions{Build: o.Build}); err != nil {
		return s, err
	}
	err = s.relay.WaitStatus(ctx, "the relay is connected", func(st status.Status) bool { return st.Source.Connected && st.Role == status.RoleActive })
	if err != nil {
		return s, err
	}
	s.load, err = s.site.StartLoad(Load{Rate: 20, Workers: 4, MaxRows: 3, Seed: o.Seed + uint64(number)})
	return s, err
}

func (s *freezeSite) close() {
	if s.thaw != nil {
		_ = s.thaw() // it may be thawed already
	}
	if s.load != nil {
		s.load.Stop()
	}
	if s.site != nil {
		s.site.Close()
	}
	if s.proxy != nil {
		s.proxy.Close()
	}
}

func (s *freezeSite) run(ctx context.Context, o FreezeOptions, lengths <-chan time.Duration) error {
	random := rand.New(rand.NewPCG(o.Seed, uint64(len(s.name))))
	for length := range lengths {
		if err := pause(ctx, within(random, 100*time.Millisecond, 2*time.Second)); err != nil {
			return err
		}
		r := &freezeRound{begin: time.Now(), marker: fmt.Sprintf("thaw-%d", len(s.rounds)+1)}
		s.rounds = append(s.rounds, r)
		if err := hold(ctx, length, s.freeze, s.thaw); err != nil {
			return err
		}
		r.end = time.Now()
		limited, cancel := context.WithTimeout(ctx, recoveryTime)
		err := s.site.Insert(limited, Row{Kind: "order", Key: r.marker})
		if err == nil {
			err = s.site.WaitRelayed(limited, s.relay)
		}
		cancel()
		if err != nil {
			return fmt.Errorf("after %.1f s: the relay did not recover: %w", length.Seconds(), err)
		}
		o.Progress(fmt.Sprintf("%s: %.1f s, all published and saved %.1f s later", s.name, length.Seconds(), time.Since(r.end).Seconds()))
	}
	if err := s.load.Stop().Err; err != nil {
		return err
	}
	if err := s.site.WaitRelayed(ctx, s.relay); err != nil {
		return err
	}
	code, _, err := s.relay.Stop(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("the relay stopped with code %d", code)
	}
	return errors.Join(err, s.site.Check())
}

// lostAt is the line of the relay's log that tells the end of a connection.
var lostAt = regexp.MustCompile(`(?m)^time=(\S+) .*msg="source connection lost"`)

func (s *freezeSite) judge(ctx context.Context, res *FreezeResult, server bool) error {
	v := relaytest.NewValidator(relaytest.Options{})
	if err := s.site.ReadOracle(ctx, v); err != nil {
		return err
	}
	err := s.site.Consume(ctx, func(m relaytest.Message) error {
		for _, r := range s.rounds {
			if string(m.Key) == r.marker {
				r.recovered = time.UnixMilli(m.Appended)
			}
		}
		v.Received(m)
		return nil
	})
	if err != nil {
		return err
	}
	report := v.Report()
	res.Rows += report.Committed
	res.Received += report.Received
	res.Lost += report.Count(relaytest.Lost)
	res.OutOfOrder += report.Count(relaytest.OutOfOrder)
	res.Duplicates += report.Duplicates
	if err := report.Err(); err != nil {
		res.Errs = append(res.Errs, fmt.Errorf("%s: %w", s.name, err))
	}
	log := s.relay.Log()
	res.Connects += strings.Count(log, `msg="source connected"`)
	var ends []time.Time
	for _, m := range lostAt.FindAllStringSubmatch(log, -1) {
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			return err
		}
		ends = append(ends, at)
	}
	for _, r := range s.rounds {
		res.round(s.name, r, ends, server)
	}
	return nil
}

// round counts a freeze. Ends are those of connections.
func (r *FreezeResult) round(name string, f *freezeRound, ends []time.Time, server bool) {
	if server {
		r.Freezes++
	} else {
		r.Stalls++
	}
	length := f.end.Sub(f.begin)
	r.Total += length
	r.Recoveries = append(r.Recoveries, max(f.recovered.Sub(f.end), 0))
	i := slices.IndexFunc(ends, func(at time.Time) bool { return at.After(f.begin) })
	if i >= 0 && ends[i].Before(f.end) {
		took := ends[i].Sub(f.begin)
		r.Detections = append(r.Detections, took)
		if took > freezePatience+freezeGrace {
			r.Late++
		}
		if took > freezePatience+freezeGrace+freezeBusy {
			r.Errs = append(r.Errs, fmt.Errorf("%s: what lasted %v was noticed after %v", name, length, took))
		}
		return
	}
	if length > freezePatience+freezeGrace+freezeBusy {
		r.Unnoticed++
		r.Errs = append(r.Errs, fmt.Errorf("%s: what lasted %v was not noticed", name, length))
	}
}

// Err is nil when the promise was kept and everything was noticed in time.
func (r *FreezeResult) Err() error {
	errs := slices.Clone(r.Errs)
	if r.Duplicates > 0 {
		errs = append(errs, fmt.Errorf("%d duplicates without a restart", r.Duplicates))
	}
	return errors.Join(errs...)
}

// String is the table of figures.
func (r *FreezeResult) String() string {
	spread := func(times []time.Duration) string {
		if len(times) == 0 {
			return "none"
		}
		m := median(times) // sorts
		return fmt.Sprintf("median %.1f s, 90 %% below %.1f s, longest %.1f s", m.Seconds(), times[len(times)*9/10].Seconds(), times[len(times)-1].Seconds())
	}
	return table([][2]string{
		{"freezes of MySQL, stalls of links", fmt.Sprintf("%d, %d, in all %.0f s", r.Freezes, r.Stalls, r.Total.Seconds())},
		{"seed", fmt.Sprint(r.Seed)},
		{"committed rows", fmt.Sprint(r.Rows)},
		{"received", fmt.Sprint(r.Received)},
		{"lost", fmt.Sprint(r.Lost)},
		{"out of order", fmt.Sprint(r.OutOfOrder)},
		{"duplicates", fmt.Sprint(r.Duplicates)},
		{"connections to a source", fmt.Sprint(r.Connects)},
		{"noticed", fmt.Sprintf("%d, after %s", len(r.Detections), spread(r.Detections))},
		{"noticed later than 3 heartbeats and 1 s", fmt.Sprint(r.Late)},
		{"not noticed though longer", fmt.Sprint(r.Unnoticed)},
		{"recovery", spread(r.Recoveries)},
	}) + "recovery: from the end of a freeze to the first row committed after it, in Kafka\n"
}
