package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Targets of a drain. Rates and CPU are judged against the baseline of the same run.
const (
	wantRate  = 4.0
	wantCPU   = 0.25
	wantStart = 500 * time.Millisecond
	wantPeak  = 64 << 20
)

// drainRun is one run of one contestant.
type drainRun struct {
	usage
	progress
	Rows int64
}

func (r drainRun) rate() float64   { return float64(r.Rows) / r.Last.Seconds() }
func (r drainRun) steady() float64 { return r.progress.steady(r.Rows) }

// cpuPerRow is in microseconds.
func (r drainRun) cpuPerRow() float64 { return float64(r.CPU.Nanoseconds()) / 1e3 / float64(r.Rows) }

type drainFlags struct {
	workload    string
	rows        int
	rounds      int
	only        string
	state       string
	cpuprofile  string
	compression string
	noVerify    bool
	program     string
	sets        list
}

// list collects a flag that may be given several times.
type list []string

func (l *list) String() string     { return fmt.Sprint([]string(*l)) }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

func drainCommand(ctx context.Context, args []string, out io.Writer) error {
	var f drainFlags
	flags := flag.NewFlagSet("drain", flag.ContinueOnError)
	flags.StringVar(&f.workload, "workload", "mixed", "mixed, single, large or sparse")
	flags.IntVar(&f.rows, "rows", 0, "outbox rows (default: the workload's own, 300000 for mixed)")
	flags.IntVar(&f.rounds, "rounds", 3, "measured runs of each contestant, after a first one of the relay that only warms Kafka up")
	flags.StringVar(&f.only, "only", "", "relay or baseline: measure one and judge nothing")
	flags.StringVar(&f.state, "state", "", "use the servers and rows of a running `bench serve -state FILE`")
	flags.StringVar(&f.cpuprofile, "cpuprofile", "", "folder for CPU profiles of the relay, one per run")
	flags.StringVar(&f.compression, "compression", "", "compression of both (default: each one's own default, lz4 for the relay and none for the baseline)")
	flags.BoolVar(&f.noVerify, "no-verify", false, "do not consume and compare what was published")
	flags.StringVar(&f.program, "relay", "", "the relay's program (default: built from the working tree)")
	flags.Var(&f.sets, "set", "configuration of the relay, as in -set kafka.linger=5ms; may be repeated")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := f.servers(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	contestants, err := f.contestants(ctx, s)
	if err != nil {
		return err
	}
	want, err := s.truth(ctx)
	if err != nil {
		return err
	}
	if want.Rows != int64(s.Workload.Rows) {
		return fmt.Errorf("the outbox table holds %d rows instead of %d", want.Rows, s.Workload.Rows)
	}
	results, err := f.race(ctx, s, contestants, want)
	if err != nil {
		return err
	}
	return reportDrain(out, s.Workload, results, !f.noVerify)
}

func (f *drainFlags) servers(ctx context.Context) (*servers, error) {
	if f.state != "" {
		return loadServers(f.state)
	}
	w, err := workloadNamed(f.workload)
	if err != nil {
		return nil, err
	}
	if f.rows > 0 {
		w.Rows = f.rows
	}
	s, err := startServers(ctx, true)
	if err != nil {
		return nil, err
	}
	if err := s.backlog(ctx, w); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (f *drainFlags) contestants(ctx context.Context, s *servers) ([]contestant, error) {
	baselineCompression := "none"
	if f.compression != "" {
		baselineCompression = f.compression
		f.sets = append(f.sets, "kafka.compression="+f.compression)
	}
	if f.cpuprofile != "" {
		var err error
		if f.cpuprofile, err = filepath.Abs(f.cpuprofile); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(f.cpuprofile, 0o755); err != nil {
			return nil, err
		}
	}
	program := f.program
	if program == "" {
		var err error
		if program, err = buildRelay(ctx, s.dir, f.cpuprofile != ""); err != nil {
			return nil, err
		}
	}
	base, err := theBaseline(baselineCompression)
	if err != nil {
		return nil, err
	}
	all := []contestant{base, theRelay(program, f.cpuprofile, f.sets)}
	switch f.only {
	case "":
		return all, nil
	case "baseline":
		return all[:1], nil
	case "relay":
		return all[1:], nil
	}
	return nil, fmt.Errorf("-only %s: want relay or baseline", f.only)
}

// race lets the contestants drain in turn. The first run warms the broker up and does not count.
func (f *drainFlags) race(ctx context.Context, s *servers, contestants []contestant, want truth) (map[string][]drainRun, error) {
	id := time.Now().Unix() // topics of runs on the same servers have names of their own
	results := map[string][]drainRun{}
	warm := contestants[len(contestants)-1]
	say("warming up")
	if _, err := f.drainOnce(ctx, s, warm, fmt.Sprintf("%s-%d-warm.", warm.name, id), want); err != nil {
		return nil, err
	}
	for round := 1; round <= f.rounds; round++ {
		for _, c := range contestants {
			r, err := f.drainOnce(ctx, s, c, fmt.Sprintf("%s-%d-%d.", c.name, id, round), want)
			if err != nil {
				return nil, err
			}
			say(fmt.Sprintf("round %d, %s: %.0f rows/s (steady %.0f), %.2f µs CPU per row, peak %.1f MiB, first record after %d ms; others used %.2f cores",
				round, c.name, r.rate(), r.steady(), r.cpuPerRow(), mib(r.Peak), r.First.Milliseconds(), r.Others))
			results[c.name] = append(results[c.name], r)
		}
	}
	return results, nil
}

// drainOnce measures one run and checks what it published.
func (f *drainFlags) drainOnce(ctx context.Context, s *servers, c contestant, prefix string, want truth) (r drainRun, err error) {
	topic := prefix + aggregateType
	if err := s.createTopic(topic); err != nil {
		return r, err
	}
	w, err := newWatcher(ctx, s, topic)
	if err != nil {
		return r, err
	}
	defer w.close()
	p, err := c.start(ctx, s, prefix)
	if err != nil {
		return r, err
	}
	r.Rows = want.Rows
	seen, watchErr := w.watch(p.start, want.Rows, p.done)
	r.progress = seen
	if r.usage, err = p.wait(); err != nil {
		return r, err
	}
	if watchErr != nil {
		return r, watchErr
	}
	if f.noVerify {
		return r, s.deleteTopic(topic)
	}
	if err := s.verify(ctx, topic, want); err != nil {
		return r, fmt.Errorf("%s: %w", c.name, err)
	}
	return r, s.deleteTopic(topic)
}

// serveCommand keeps servers with a backlog.
func serveCommand(ctx context.Context, args []string, out io.Writer) error {
	var f drainFlags
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.StringVar(&f.workload, "workload", "mixed", "mixed, single, large or sparse")
	flags.IntVar(&f.rows, "rows", 0, "outbox rows (default: the workload's own)")
	path := flags.String("state", "", "file to write for drain -state (required)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *path == "" {
		return errors.New("serve: -state is required")
	}
	s, err := f.servers(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.save(*path); err != nil {
		return err
	}
	defer os.Remove(*path)
	fmt.Fprintf(out, "serving; in another terminal: bench drain -state %s\n", *path)
	<-ctx.Done()
	return nil
}
