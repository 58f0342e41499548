package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"outbox-relay/relay/relaytest"
)

// Targets at 500 transactions per second. Latencies are judged at 2,000 as well.
const (
	wantP50    = 1.0 / 5 // against Debezium tuned
	wantP99    = 1.0 / 2
	wantDirect = 1.5     // p50 against publishing right after the commit
	wantSteady = 1.0 / 2 // CPU with a linger, against Debezium's defaults
	wantLinger = 20.0    // ms, p99 with that linger
)

// idleAfter is how long nothing is written before that is measured.
const idleAfter = 3 * time.Second

// linger is what relay-linger waits for more records.
const linger = "5ms"

const (
	figureP50     = "ms to a consumer, p50"
	figureP99     = "ms to a consumer, p99"
	figureMessage = "µs CPU per message"
	figureCore    = "% of a core"
	figureWakeups = "wake-ups per message"
	figureCalls   = "reads and writes per message"
)

// latencyRun is what one contestant showed under one load.
type latencyRun struct {
	Took    []float64 // ms, ascending
	CPU     time.Duration
	Wakeups int64
	Calls   int64 // reads and writes
	Length  time.Duration
}

func (r latencyRun) p50() float64 { return quantile(r.Took, 0.5) }
func (r latencyRun) p99() float64 { return quantile(r.Took, 0.99) }

// perMessage is in microseconds; NaN where nothing was measured.
func (r latencyRun) perMessage() float64 {
	if r.CPU == 0 || len(r.Took) == 0 {
		return math.NaN()
	}
	return float64(r.CPU.Microseconds()) / float64(len(r.Took))
}

func (r latencyRun) core() float64 {
	if r.CPU == 0 {
		return math.NaN()
	}
	return r.CPU.Seconds() / r.Length.Seconds() * 100
}

func (r latencyRun) wakeups() float64 { return r.each(r.Wakeups) }
func (r latencyRun) calls() float64   { return r.each(r.Calls) }

// each is a count per message; NaN where nothing was counted.
func (r latencyRun) each(count int64) float64 {
	if count == 0 || len(r.Took) == 0 {
		return math.NaN()
	}
	return float64(count) / float64(len(r.Took))
}

func latencyCommand(ctx context.Context, o global, args []string) ([]*table, error) {
	f := latencyFlags{global: o}
	flags := flag.NewFlagSet("latency", flag.ContinueOnError)
	flags.IntVar(&f.rate, "rate", 500, "transactions per second")
	flags.DurationVar(&f.warm, "warm", o.choose(5*time.Second, 3*time.Second), "load before anything counts")
	flags.DurationVar(&f.length, "length", o.choose(15*time.Second, 8*time.Second), "load that counts")
	flags.IntVar(&f.rounds, "rounds", o.rounds(3), "measurements of each contestant, after a first one that only warms the servers up")
	flags.StringVar(&f.only, "only", "", "contestants, with commas between them (default: all)")
	flags.StringVar(&f.program, "relay", "", "the relay's program (default: built from the working tree)")
	flags.Var(&f.sets, "set", "configuration of the relay, as in -set kafka.linger=5ms; may be repeated")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	s, err := startServers(ctx, o.broker)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	t, err := f.measure(ctx, s)
	if err != nil {
		return nil, err
	}
	return []*table{t}, nil
}

type latencyFlags struct {
	global
	phases
	rounds  int
	only    string
	program string
	sets    list
}

// follower is a program that publishes what is written from now on. Without a start it is the load itself that publishes.
type follower struct {
	name      string
	committed bool          // its records are read as a consumer of committed records does
	idle      time.Duration // measured is a time without load behind it, not the load
	start     func(ctx context.Context, s *servers, topic string) (*child, error)
}

// followers are all that can publish a steady load.
func followers(self, program string, sets []string) []follower {
	return []follower{
		{name: "relay", start: relayFollows(program, sets...)},
		{name: "relay-linger", start: relayFollows(program, append([]string{"kafka.linger=" + linger}, sets...)...)},
		{name: "baseline", start: func(ctx context.Context, s *servers, topic string) (*child, error) {
			start, err := s.now(ctx)
			if err != nil {
				return nil, err
			}
			return startChild(ctx, "baseline", s.Pids, nil, nil, self, "baseline", "-mysql", s.MySQL, "-start", start, "-brokers", strings.Join(s.Brokers, ","), "-topic", topic, "-rows", fmt.Sprint(math.MaxInt32))
		}},
		{name: "debezium", start: debeziumFollows("debezium")},
		{name: "debezium-tuned", start: debeziumFollows("debezium-tuned", tuned...)},
		{name: "direct"},
	}
}

func relayFollows(program string, sets ...string) func(context.Context, *servers, string) (*child, error) {
	return func(ctx context.Context, s *servers, topic string) (*child, error) {
		dir := filepath.Join(s.dir, topic)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		config, err := writeConfig(s, dir, topic, "outbox_events")
		if err != nil {
			return nil, err
		}
		args := []string{"run", "--config", config, "--set", "source.start=latest"}
		for _, set := range sets {
			args = append(args, "--set", set)
		}
		return startChild(ctx, "relay", s.Pids, nil, nil, program, args...)
	}
}

func debeziumFollows(name string, settings ...string) func(context.Context, *servers, string) (*child, error) {
	return func(ctx context.Context, s *servers, topic string) (*child, error) {
		dir := filepath.Join(s.dir, "connect-"+topic)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		s.history = "dbz.history-" + topic + "columns"
		return s.startConnect(ctx, name, dir, topic, settings)
	}
}

// now is the server's position.
func (s *servers) now(ctx context.Context) (string, error) {
	db, err := s.open()
	if err != nil {
		return "", err
	}
	defer db.Close()
	return executed(ctx, db)
}

// measure lets each of them follow the load in turn.
func (f *latencyFlags) measure(ctx context.Context, s *servers) (*table, error) {
	all, err := f.followers(ctx, s)
	if err != nil {
		return nil, err
	}
	t := &table{Name: fmt.Sprintf("latency-%d", f.rate)}
	t.About = fmt.Sprintf("%d single-row transactions per second for %v, from the end of COMMIT to a consumer; every row was received once", f.rate, f.length)
	runs := map[string][]latencyRun{}
	say("warming up")
	if _, err := all[0].follow(ctx, s, f.phases); err != nil { // the first load meets servers that have compiled little of their code yet
		return nil, fmt.Errorf("warming up with %s: %w", all[0].name, err)
	}
	for round := 1; round <= f.rounds; round++ {
		for _, w := range all {
			r, err := w.follow(ctx, s, f.phases)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", w.name, err)
			}
			say(fmt.Sprintf("round %d, %s at %d tx/s: p50 %.2f ms, p99 %.2f ms, %.0f µs CPU and %.2f wake-ups per message", round, w.name, f.rate, r.p50(), r.p99(), r.perMessage(), r.wakeups()))
			runs[w.name] = append(runs[w.name], r)
		}
	}
	for _, w := range all {
		t.Contestants = append(t.Contestants, w.name)
	}
	latencyFigures(t, runs)
	t.judge(figureP50, t.ratio(figureP50, "debezium-tuned", wantP50, true))
	t.judge(figureP99, t.ratio(figureP99, "debezium-tuned", wantP99, true))
	t.judge(figureP50, t.ratio(figureP50, "direct", wantDirect, true))
	if f.rate == 500 && slices.Contains(t.Contestants, "relay-linger") {
		l := &table{Contestants: []string{"relay-linger"}, Figures: t.Figures}
		l.judge("with a linger of "+linger+", "+figureMessage, l.ratio(figureMessage, "debezium", wantSteady, true))
		l.judge("with a linger of "+linger+", "+figureP99, l.limit(figureP99, "ms", wantLinger))
		t.Checks = append(t.Checks, l.Checks...)
	}
	return t, nil
}

func latencyFigures(t *table, runs map[string][]latencyRun) {
	of := func(figure func(latencyRun) float64) func(string) []float64 {
		return func(c string) []float64 { return figures(runs[c], figure) }
	}
	t.add(figureP50, 2, of(latencyRun.p50))
	t.add(figureP99, 2, of(latencyRun.p99))
	t.add(figureMessage, 0, of(latencyRun.perMessage))
	t.add(figureCore, 1, of(latencyRun.core))
	t.add(figureWakeups, 2, of(latencyRun.wakeups))
	t.add(figureCalls, 2, of(latencyRun.calls))
}

func (f *latencyFlags) followers(ctx context.Context, s *servers) ([]follower, error) {
	if err := s.createForeign(ctx); err != nil {
		return nil, err
	}
	if f.program == "" {
		var err error
		if f.program, err = buildRelay(ctx, s.dir, false); err != nil {
			return nil, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	all := followers(self, f.program, f.sets)
	if f.only != "" {
		wanted := strings.Split(f.only, ",")
		all = slices.DeleteFunc(all, func(w follower) bool { return !slices.Contains(wanted, w.name) })
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("-only %s: nobody of that name", f.only)
	}
	return all, nil
}

// follow measures one follower under one load.
func (w follower) follow(ctx context.Context, s *servers, p phases) (r latencyRun, err error) {
	prefix := fmt.Sprintf("latency-%s-%d.", w.name, time.Now().UnixMilli())
	topic := prefix + aggregateType
	if err := s.createTopic(topic, 4); err != nil {
		return r, err
	}
	l := newSteadyLoad(s, prefix)
	measure := func() {}
	output := func() string { return "" }
	if w.start == nil {
		if l.direct, err = newBaselineProducer(s.Brokers, "none"); err != nil {
			return r, err
		}
		go func() { // ends with the producer
			for range l.direct.Successes() {
			}
		}()
		defer l.direct.Close()
	} else {
		c, err := w.start(ctx, s, prefix)
		if err != nil {
			return r, err
		}
		defer func() {
			c.kill()
			_, _ = c.wait() // it was killed
		}()
		output = c.output.String
		measure = func() { // first the one, then the other
			r.CPU, r.Wakeups, r.Calls = c.used()-r.CPU, c.wakeups()-r.Wakeups, c.calls()-r.Calls
		}
	}
	consumed := make(chan error, 1)
	consuming, end := context.WithCancel(ctx)
	defer end()
	go func() { // ends with end
		o := relaytest.ConsumeOptions{Brokers: s.Brokers, Topics: []string{topic}, ReadCommitted: w.committed, Follow: true}
		consumed <- relaytest.Consume(consuming, o, l.receive)
	}()
	begun := time.Now()
	timed := func() {
		measure()
		r.Length, begun = time.Since(begun), time.Now()
	}
	if err := l.run(ctx, p, timed); err != nil {
		return r, fmt.Errorf("%w; the end of its output:\n%s", err, output())
	}
	if w.idle > 0 {
		time.Sleep(idleAfter)
		r = latencyRun{}
		begun = time.Now()
		measure()
		time.Sleep(w.idle)
		timed()
	}
	end()
	if err := <-consumed; err != nil && !errors.Is(err, context.Canceled) {
		return r, err
	}
	r.Took = l.took()
	return r, s.deleteTopic(topic)
}
