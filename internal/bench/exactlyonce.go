package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"outbox-relay/relay/relaytest"
)

// Targets of exactly-once against at-least-once in the same run.
const (
	wantExactlyRate  = 0.7
	wantExactlyExtra = 100 * time.Millisecond // of the median latency
)

const (
	atLeastOnce = "at-least-once"
	exactlyOnce = "exactly-once"
)

// exactlyOnceCommand drains the same backlog with both deliveries, in turn, and then measures the time from a commit to a consumer of committed records.
func exactlyOnceCommand(ctx context.Context, args []string, out io.Writer) error {
	f := drainFlags{only: "none"}
	var rate int
	var length time.Duration
	flags := flag.NewFlagSet("exactly-once", flag.ContinueOnError)
	flags.StringVar(&f.workload, "workload", "mixed", "one of "+workloadNames())
	flags.IntVar(&f.rows, "rows", 600_000, "outbox rows of the backlog")
	flags.IntVar(&f.rounds, "rounds", 3, "measured drains of each delivery, after one that only warms Kafka up")
	flags.IntVar(&rate, "rate", 500, "transactions per second while the latency is measured")
	flags.DurationVar(&length, "length", 10*time.Second, "how long the latency of each delivery is measured")
	flags.StringVar(&f.program, "relay", "", "the relay's program (default: built from the working tree)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := f.servers(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if f.program == "" {
		if f.program, err = buildRelay(ctx, s.dir, false); err != nil {
			return err
		}
	}
	want, err := s.truth(ctx)
	if err != nil {
		return err
	}
	results, err := f.race(ctx, s, []contestant{delivering(f.program, atLeastOnce), delivering(f.program, exactlyOnce)}, want)
	if err != nil {
		return err
	}
	latency := map[string][]float64{}
	for _, d := range []string{atLeastOnce, exactlyOnce} {
		if latency[d], err = latencies(ctx, s, f.program, d, rate, length); err != nil {
			return err
		}
	}
	fmt.Fprintln(out, s.Workload)
	fmt.Fprintf(out, "medians of %d drains each; every run's topic was consumed: each row exactly once; latency at %d transactions per second for %v, from the end of COMMIT to a consumer of committed records\n", f.rounds, rate, length)
	return printLines(out, exactlyOnceLines(results, latency))
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

// latencies gives the milliseconds from COMMIT to the consumer for each row of a steady load.
func latencies(ctx context.Context, s *servers, program, delivery string, rate int, length time.Duration) (took []float64, err error) {
	prefix := fmt.Sprintf("latency-%s-%d.", delivery, time.Now().Unix())
	topic := prefix + aggregateType
	if err := s.createTopic(topic, 4); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, prefix)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	config, err := writeConfig(s, dir, prefix, "outbox_events")
	if err != nil {
		return nil, err
	}
	args := []string{"run", "--config", config, "--set", "source.start=latest"}
	for _, set := range deliverySets(delivery, prefix) {
		args = append(args, "--set", set)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	c, err := startChild(running, delivery, s.Pids, nil, nil, program, args...)
	if err != nil {
		return nil, err
	}
	defer func() {
		stop()
		_, _ = c.wait() // it was killed
	}()
	l := &steadyLoad{s: s, prefix: prefix, committed: map[uint64]time.Time{}, received: map[uint64]time.Time{}, first: make(chan struct{})}
	consumed := make(chan error, 1)
	consuming, end := context.WithCancel(ctx)
	defer end()
	go func() { // ends with end
		o := relaytest.ConsumeOptions{Brokers: s.Brokers, Topics: []string{topic}, ReadCommitted: true, Follow: true}
		consumed <- relaytest.Consume(consuming, o, l.receive)
	}()
	say(fmt.Sprintf("latency of %s at %d transactions per second", delivery, rate))
	if err := l.run(ctx, rate, length); err != nil {
		return nil, fmt.Errorf("%w; the end of the relay's output:\n%s", err, c.output)
	}
	end()
	if err := <-consumed; err != nil && !errors.Is(err, context.Canceled) {
		return nil, err
	}
	return l.took(), nil
}

// steadyLoad inserts rows at a rate and notes when each was committed and received.
type steadyLoad struct {
	s      *servers
	prefix string

	mu        sync.Mutex
	committed map[uint64]time.Time
	received  map[uint64]time.Time
	first     chan struct{} // closed when a record was received
	once      sync.Once
}

func (l *steadyLoad) receive(m relaytest.Message) error {
	now := time.Now()
	id, err := idOf(m)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.received[id] = now
	l.mu.Unlock()
	l.once.Do(func() { close(l.first) })
	return nil
}

// run inserts until the relay is there, then for the length, and waits until all of that was received.
func (l *steadyLoad) run(ctx context.Context, rate int, length time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, length+time.Minute)
	defer cancel()
	db, err := l.s.open()
	if err != nil {
		return err
	}
	defer db.Close()
	insert := func(n int, counts bool) error {
		r, err := db.ExecContext(ctx, "INSERT INTO "+database+".outbox_events (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES (?, ?, 'OrderCreated', '{\"a\": 1}', ?)",
			aggregateType, n%aggregates, fmt.Sprintf("%s%d", l.prefix, n))
		at := time.Now()
		if err != nil || !counts {
			return err
		}
		id, err := r.LastInsertId()
		l.mu.Lock()
		l.committed[uint64(id)] = at
		l.mu.Unlock()
		return err
	}
	n := 0
	for waiting := true; waiting; n++ {
		if err := insert(n, false); err != nil {
			return err
		}
		select {
		case <-l.first:
			waiting = false
		case <-time.After(100 * time.Millisecond):
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	next := make(chan int)
	for range writers {
		group.Go(func() error { // ends with next
			for n := range next {
				if err := insert(n, true); err != nil {
					return err
				}
			}
			return nil
		})
	}
	begin := time.Now()
	for i := range int(length.Seconds() * float64(rate)) {
		at := begin.Add(time.Duration(i) * time.Second / time.Duration(rate))
		time.Sleep(time.Until(at))
		select {
		case next <- n + i:
		case <-ctx.Done():
			close(next)
			return errors.Join(ctx.Err(), group.Wait())
		}
	}
	close(next)
	if err := group.Wait(); err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); l.missing() > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d rows were not received", l.missing())
		}
	}
	return nil
}

func (l *steadyLoad) missing() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.committed {
		if _, ok := l.received[id]; !ok {
			n++
		}
	}
	return n
}

func (l *steadyLoad) took() (ms []float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, at := range l.committed {
		ms = append(ms, float64(l.received[id].Sub(at).Microseconds())/1000)
	}
	slices.Sort(ms)
	return ms
}

// exactlyOnceLines compares both deliveries.
func exactlyOnceLines(drains map[string][]drainRun, latency map[string][]float64) []line {
	wall := func(r drainRun) float64 { return float64(r.Rows) / r.Wall.Seconds() }
	a, e := medianOf(drains[atLeastOnce], wall), medianOf(drains[exactlyOnce], wall)
	cpuA, cpuE := medianOf(drains[atLeastOnce], drainRun.cpuPerRow), medianOf(drains[exactlyOnce], drainRun.cpuPerRow)
	peak := func(r drainRun) float64 { return mib(r.Peak) }
	pick := func(d string, part float64) float64 {
		if len(latency[d]) == 0 {
			return 0
		}
		return latency[d][int(part*float64(len(latency[d])-1))]
	}
	extra := pick(exactlyOnce, 0.5) - pick(atLeastOnce, 0.5)
	return []line{
		{name: "figure", baseline: atLeastOnce, relay: exactlyOnce, ratio: "ratio", target: "target"},
		{name: "rows/s, start to exit", baseline: fmt.Sprintf("%.0f", a), relay: fmt.Sprintf("%.0f", e), ratio: fmt.Sprintf("%.2f×", e/a), target: fmt.Sprintf("≥ %g×", wantExactlyRate), judged: true, ok: e/a >= wantExactlyRate},
		{name: "µs CPU per row", baseline: fmt.Sprintf("%.2f", cpuA), relay: fmt.Sprintf("%.2f", cpuE), ratio: fmt.Sprintf("%.2f×", cpuE/cpuA)},
		{name: "MiB peak RSS", baseline: fmt.Sprintf("%.1f", medianOf(drains[atLeastOnce], peak)), relay: fmt.Sprintf("%.1f", medianOf(drains[exactlyOnce], peak))},
		{name: "ms to a consumer, p50", baseline: fmt.Sprintf("%.1f", pick(atLeastOnce, 0.5)), relay: fmt.Sprintf("%.1f", pick(exactlyOnce, 0.5)), ratio: fmt.Sprintf("+%.1f", extra), target: fmt.Sprintf("≤ +%d", wantExactlyExtra.Milliseconds()), judged: true, ok: extra <= float64(wantExactlyExtra.Milliseconds())},
		{name: "ms to a consumer, p99", baseline: fmt.Sprintf("%.1f", pick(atLeastOnce, 0.99)), relay: fmt.Sprintf("%.1f", pick(exactlyOnce, 0.99)), ratio: fmt.Sprintf("+%.1f", pick(exactlyOnce, 0.99)-pick(atLeastOnce, 0.99))},
	}
}
