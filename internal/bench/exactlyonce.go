package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"
)

// Targets of exactly-once against at-least-once in the same run.
const (
	wantExactlyRate  = 0.7
	wantExactlyExtra = 100 // ms of the median latency
)

const (
	atLeastOnce = "at-least-once"
	exactlyOnce = "exactly-once"
)

// exactlyOnceCommand drains the same backlog with both deliveries, in turn, and then measures the time from a commit to a consumer of committed records.
func exactlyOnceCommand(ctx context.Context, g global, args []string) ([]*table, error) {
	f := drainFlags{only: "none"}
	p := phases{}
	flags := flag.NewFlagSet("exactly-once", flag.ContinueOnError)
	flags.StringVar(&f.workload, "workload", "mixed", "one of "+workloadNames())
	flags.IntVar(&f.rows, "rows", 600_000/g.parts(), "outbox rows of the backlog")
	flags.IntVar(&f.rounds, "rounds", g.rounds(3), "measured drains of each delivery, after runs that only warm Kafka up")
	flags.IntVar(&p.rate, "rate", 500, "transactions per second while the latency is measured")
	flags.DurationVar(&p.warm, "warm", time.Second, "load before anything counts")
	flags.DurationVar(&p.length, "length", g.choose(10*time.Second, 5*time.Second), "how long the latency of each delivery is measured")
	flags.StringVar(&f.program, "relay", "", "the relay's program (default: built from the working tree)")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	s, err := f.servers(ctx, g.broker)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if f.program == "" {
		if f.program, err = buildRelay(ctx, s.dir, false); err != nil {
			return nil, err
		}
	}
	want, err := s.truth(ctx)
	if err != nil {
		return nil, err
	}
	drains, err := f.race(ctx, s, []contestant{delivering(f.program, exactlyOnce), delivering(f.program, atLeastOnce)}, want)
	if err != nil {
		return nil, err
	}
	latencies := map[string][]latencyRun{}
	for _, d := range []string{exactlyOnce, atLeastOnce} {
		say(fmt.Sprintf("latency of %s at %d transactions per second", d, p.rate))
		w := follower{name: d, committed: true, start: relayFollowsDelivering(f.program, d)}
		r, err := w.follow(ctx, s, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d, err)
		}
		latencies[d] = append(latencies[d], r)
	}
	return []*table{exactlyOnceTable(s.Workload, drains, latencies)}, nil
}

// relayFollowsDelivering is the relay with one of both deliveries, from now on.
func relayFollowsDelivering(program, delivery string) func(context.Context, *servers, string) (*child, error) {
	return func(ctx context.Context, s *servers, topic string) (*child, error) {
		return relayFollows(program, deliverySets(delivery, topic)...)(ctx, s, topic)
	}
}

// delivering is the relay with one of both deliveries, from start to exit.
func delivering(program, delivery string) contestant {
	return contestant{name: delivery, start: func(ctx context.Context, s *servers, topic string) (*child, error) {
		return theRelay(program, "", deliverySets(delivery, topic)).start(ctx, s, topic)
	}}
}

// deliverySets is the configuration of a run: each has a name of its own, and with that a checkpoint.
func deliverySets(delivery, topic string) []string {
	sets := []string{"name=" + strings.TrimSuffix(topic, "."), "kafka.delivery=" + delivery}
	if delivery == exactlyOnce {
		sets = append(sets, "checkpoint.store=kafka")
	}
	return sets
}

// exactlyOnceTable compares both deliveries.
func exactlyOnceTable(w workload, drains map[string][]drainRun, latencies map[string][]latencyRun) *table {
	t := &table{Name: "exactly-once", Contestants: []string{exactlyOnce, atLeastOnce}}
	t.About = "both deliveries of the relay; drain of " + strings.TrimPrefix(w.String(), w.Name+": ") + "; each run's topic was consumed: every row once; then the latency to a consumer of committed records"
	of := func(figure func(drainRun) float64) func(string) []float64 {
		return func(c string) []float64 { return figures(drains[c], figure) }
	}
	t.add("rows/s, start to exit", 0, of(func(r drainRun) float64 { return float64(r.Rows) / r.Wall.Seconds() }))
	t.add(figureAll, 2, of(drainRun.allPerRow))
	t.add(figurePeak, 1, of(drainRun.peak))
	latencyFigures(t, latencies)
	t.judge("rows/s, start to exit", t.ratio("rows/s, start to exit", atLeastOnce, wantExactlyRate, false))
	e, _ := t.median(figureP50, exactlyOnce)
	a, _ := t.median(figureP50, atLeastOnce)
	t.judge(figureP50, []bound{{Of: "ms more than " + atLeastOnce, Got: e - a, Want: wantExactlyExtra, AtMost: true}})
	return t
}
