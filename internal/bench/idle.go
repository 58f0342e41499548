package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"time"
)

// wantIdle is how much of a core an idle relay may take, in per cent.
const wantIdle = 0.2

// idleCommand measures what those that follow a binlog take while nothing is written.
func idleCommand(ctx context.Context, o global, args []string) ([]*table, error) {
	f := latencyFlags{global: o, phases: phases{rate: 100, warm: time.Second, length: 2 * time.Second}}
	var length time.Duration
	flags := flag.NewFlagSet("idle", flag.ContinueOnError)
	flags.DurationVar(&length, "length", o.choose(60*time.Second, 15*time.Second), "how long each is measured")
	quick := ""
	if o.quick {
		quick = "relay,debezium-tuned"
	}
	flags.StringVar(&f.only, "only", quick, "contestants, with commas between them (default: all)")
	flags.StringVar(&f.program, "relay", "", "the relay's program (default: built from the working tree)")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	s, err := startServers(ctx, o.broker)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	all, err := f.followers(ctx, s)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(w follower) bool { return w.start == nil || w.name == "relay-linger" })
	runs := map[string][]latencyRun{}
	t := &table{Name: "idle", About: fmt.Sprintf("nothing is written for %v, after %v of load; the relay at its defaults has heartbeats of 5 s on", length, f.warm+f.length)}
	for _, w := range all {
		w.idle = length
		r, err := w.follow(ctx, s, f.phases)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", w.name, err)
		}
		say(fmt.Sprintf("%s idle: %.2f %% of a core, %.1f wake-ups per second", w.name, r.core(), float64(r.Wakeups)/r.Length.Seconds()))
		runs[w.name] = append(runs[w.name], r)
		t.Contestants = append(t.Contestants, w.name)
	}
	of := func(figure func(latencyRun) float64) func(string) []float64 {
		return func(c string) []float64 { return figures(runs[c], figure) }
	}
	t.add(figureCore, 2, of(latencyRun.core))
	t.add("wake-ups per second", 1, of(func(r latencyRun) float64 { return float64(r.Wakeups) / r.Length.Seconds() }))
	t.judge(figureCore, t.limit(figureCore, "% of a core", wantIdle))
	return []*table{t}, nil
}
