package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Targets of a drain.
const (
	wantMixed   = 15.0     // rate against Debezium tuned, with ten outbox and ten foreign rows in a transaction
	wantRate    = 10.0     // the same with any other workload
	wantLimit   = 0.8      // rate against the slower limit, instead of a factor
	wantSparse  = 0.9      // rate against counting packets, where nearly all rows are foreign
	wantCPU     = 1.0 / 25 // CPU per row, against Debezium tuned
	wantOver    = 6.0      // rate against the baseline
	wantLess    = 1.0 / 6  // CPU per row, against the baseline
	wantStart   = 0.3      // seconds from the start to the first record
	wantPeakMiB = 64
)

// Figures of a drain.
const (
	figureRate    = "rows/s"
	figureWhole   = "rows/s, start included"
	figureCPU     = "µs CPU per row"
	figureAll     = "µs CPU per row, start included"
	figureServers = "µs CPU per row, MySQL and Kafka"
	figureFirst   = "s, start to first record"
	figurePeak    = "MiB peak RSS"
)

// drainRun is one run of one contestant.
type drainRun struct {
	usage
	progress
	Rows    int64
	Seconds float64 // of a contestant that publishes nothing: what it says of itself
}

// steady is the rate without start, connecting and the last batches.
func (r drainRun) steady() float64 {
	if r.Seconds > 0 {
		return float64(r.Rows) / r.Seconds
	}
	return r.progress.steady(r.Rows)
}

// rate is that from the start of the process to its last record; NaN without records.
func (r drainRun) rate() float64 {
	if r.Last == 0 {
		return math.NaN()
	}
	return float64(r.Rows) / r.Last.Seconds()
}

// cpuPerRow is in microseconds, from the first to the last record.
func (r drainRun) cpuPerRow() float64 {
	if r.Last == 0 {
		return r.allPerRow()
	}
	return float64((r.CPULast - r.CPUFirst).Nanoseconds()) / 1e3 / float64(r.Rows)
}

// allPerRow is in microseconds, from the start of the process to its end, or to the last record if it would not end.
func (r drainRun) allPerRow() float64 { return float64(r.CPU.Nanoseconds()) / 1e3 / float64(r.Rows) }

// serversPerRow is what MySQL and Kafka did for each row, in microseconds.
func (r drainRun) serversPerRow() float64 {
	return float64(r.Servers.Nanoseconds()) / 1e3 / float64(r.Rows)
}

func (r drainRun) first() float64 {
	if r.Last == 0 {
		return math.NaN()
	}
	return r.First.Seconds()
}

// peak is in MiB; NaN for a process that was gone before anybody looked.
func (r drainRun) peak() float64 {
	if r.Peak == 0 {
		return math.NaN()
	}
	return mib(r.Peak)
}

type drainFlags struct {
	workload    string
	rows        int
	rounds      int
	slow        int // rounds of Debezium
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

func drainCommand(ctx context.Context, g global, args []string) ([]*table, error) {
	var f drainFlags
	flags := flag.NewFlagSet("drain", flag.ContinueOnError)
	flags.StringVar(&f.workload, "workload", "mixed", "one of "+workloadNames())
	flags.IntVar(&f.rows, "rows", 0, "outbox rows (default: the workload's own, 300000 for mixed)")
	flags.IntVar(&f.rounds, "rounds", g.rounds(3), "rounds, of one run of each contestant and some more of the first, after runs of that one that only warm Kafka up")
	flags.IntVar(&f.slow, "debezium-rounds", g.rounds(2), "measured runs of Debezium tuned, and with its defaults in the first workload")
	flags.StringVar(&f.only, "only", "", "contestants, with commas between them (default: all, or all but Debezium with -state; relay and debezium-tuned in long workloads)")
	flags.StringVar(&f.state, "state", "", "use the servers and rows of a running `bench serve -state FILE`")
	flags.StringVar(&f.cpuprofile, "cpuprofile", "", "folder for CPU profiles of the relay, one per run")
	flags.StringVar(&f.compression, "compression", "", "compression of all (default: each one's own default, lz4 for the relay and none for others)")
	flags.BoolVar(&f.noVerify, "no-verify", false, "do not consume and compare what was published")
	flags.StringVar(&f.program, "relay", "", "the relay's program (default: built from the working tree)")
	flags.Var(&f.sets, "set", "configuration of the relay, as in -set kafka.linger=5ms; may be repeated")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if w, err := workloadNamed(f.workload); err == nil && w.Long && f.only == "" {
		f.only = "relay,debezium-tuned"
	}
	if g.quick {
		f.shorten(g.parts())
	}
	s, err := f.servers(ctx, g.broker)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	t, err := f.drain(ctx, s)
	if err != nil {
		return nil, err
	}
	return []*table{t}, nil
}

// shorten makes a quick run of it: fewer rows, and Debezium where its figures differ most.
func (f *drainFlags) shorten(parts int) {
	if w, err := workloadNamed(f.workload); err == nil && f.rows == 0 {
		f.rows = w.Rows / parts
	}
	if f.only != "" {
		return
	}
	f.only = "relay,baseline,packets,producer"
	switch f.workload {
	case "mixed":
		f.only = ""
	case "single", "large":
		f.only += ",debezium-tuned"
	}
}

// drain measures all contestants on the backlog of the servers.
func (f *drainFlags) drain(ctx context.Context, s *servers) (*table, error) {
	contestants, err := f.contestants(ctx, s)
	if err != nil {
		return nil, err
	}
	want, err := s.truth(ctx)
	if err != nil {
		return nil, err
	}
	if want.Rows != int64(s.Workload.Rows) {
		return nil, fmt.Errorf("the outbox table holds %d rows instead of %d", want.Rows, s.Workload.Rows)
	}
	results, err := f.race(ctx, s, contestants, want)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range contestants {
		names = append(names, c.name)
	}
	return drainTable(s.Workload, names, results, !f.noVerify), nil
}

func (f *drainFlags) servers(ctx context.Context, b *broker) (*servers, error) {
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
	s, err := startServers(ctx, b)
	if err != nil {
		return nil, err
	}
	if err := s.backlog(ctx, w, f.wants("debezium") || f.wants("debezium-tuned")); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// wants tells whether a contestant takes part.
func (f *drainFlags) wants(name string) bool {
	if f.only == "" {
		return f.state == "" || !strings.HasPrefix(name, "debezium")
	}
	return slices.Contains(strings.Split(f.only, ","), name)
}

func (f *drainFlags) contestants(ctx context.Context, s *servers) ([]contestant, error) {
	theirs, ours := "none", "lz4"
	var debezium []string
	if f.compression != "" {
		theirs, ours = f.compression, f.compression
		f.sets = append(f.sets, "kafka.compression="+f.compression)
		debezium = []string{"producer.override.compression.type=" + f.compression}
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
	if f.program == "" {
		var err error
		if f.program, err = buildRelay(ctx, s.dir, f.cpuprofile != ""); err != nil {
			return nil, err
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	all := []contestant{
		theRelay(f.program, f.cpuprofile, f.sets), theBaseline(self, theirs),
		theDebezium("debezium", debezium...), theDebezium("debezium-tuned", slices.Concat(tuned, debezium)...),
		thePackets(self), theProducer(self, ours),
	}
	known := f.only == ""
	all = slices.DeleteFunc(all, func(c contestant) bool {
		known = known || f.wants(c.name)
		return !f.wants(c.name)
	})
	if !known {
		return nil, fmt.Errorf("-only %s: want some of relay, baseline, debezium, debezium-tuned, packets, producer", f.only)
	}
	return all, nil
}

// race lets the contestants drain in turn, each on servers that are warm and have come to rest.
func (f *drainFlags) race(ctx context.Context, s *servers, contestants []contestant, want truth) (map[string][]drainRun, error) {
	id := time.Now().UnixMilli() // topics of runs on the same servers have names of their own
	results := map[string][]drainRun{}
	warm := contestants[0]
	if warm.limit {
		warm = theRelay(f.program, "", f.sets)
	}
	if err := f.warmUp(ctx, s, warm, id, want); err != nil {
		return nil, err
	}
	for round := 1; round <= max(f.rounds, f.slow); round++ {
		for _, c := range turns(contestants, func(c contestant) bool { return round <= f.roundsOf(c) }) {
			prefix := fmt.Sprintf("%s-%d-%d.", c.name, id, len(results[c.name])+1)
			r, err := f.drainOnce(ctx, s, c, prefix, want)
			if err != nil {
				return nil, err
			}
			say(fmt.Sprintf("round %d, %s: %.0f rows/s, %.2f µs CPU per row, peak %.1f MiB, first record after %d ms; others used %.2f cores",
				round, c.name, r.steady(), r.cpuPerRow(), r.peak(), r.First.Milliseconds(), r.Others))
			results[c.name] = append(results[c.name], r)
			if c.silent {
				continue
			}
			if err := s.deleteTopic(prefix + aggregateType); err != nil {
				return nil, err
			}
		}
	}
	return results, s.deleteTopic(s.records)
}

// turns gives the order of a round: those that take part, and the first of them again after each two others. It is compared with all of them and takes a second where
// they take ten, so that what happens to one run of it, like a busy host, says little.
func turns(contestants []contestant, takesPart func(contestant) bool) (order []contestant) {
	for _, c := range contestants {
		if !takesPart(c) {
			continue
		}
		if n := len(order); n > 0 && n%3 == 0 {
			order = append(order, order[0])
		}
		order = append(order, c)
	}
	return order
}

// roundsOf is how often a contestant is measured. Debezium at its defaults is compared in the first workload; elsewhere one run shows where it stands.
func (f *drainFlags) roundsOf(c contestant) int {
	switch {
	case !c.debezium:
		return f.rounds
	case f.workload != "mixed" && c.name == "debezium":
		return min(f.slow, 1)
	}
	return f.slow
}

// warmUp drains until the broker has compiled what it needs. A Java program does that while it is used, and on two cores its compiler takes half of one from whoever is
// measured meanwhile: 8 s of processor time in all. The topic of the last run holds what the limit of publishing sends.
func (f *drainFlags) warmUp(ctx context.Context, s *servers, c contestant, id int64, want truth) error {
	const most, little = 20, 0.05 // runs, cores
	say("warming up")
	unchecked := *f
	unchecked.noVerify = true
	for run := 1; ; run++ {
		prefix := fmt.Sprintf("%s-%d-warm-%d.", c.name, id, run)
		begun, before := time.Now(), s.compiled()
		if _, err := unchecked.drainOnce(ctx, s, c, prefix, want); err != nil {
			return err
		}
		cores := (s.compiled() - before).Seconds() / time.Since(begun).Seconds()
		if cores < little || run == most {
			say(fmt.Sprintf("the broker is warm after %d runs: its compiler kept %.2f cores busy", run, cores))
			s.records = prefix + aggregateType
			return nil
		}
		if err := s.deleteTopic(prefix + aggregateType); err != nil {
			return err
		}
	}
}

// drainOnce measures one run and checks what it published. The topic stays.
func (f *drainFlags) drainOnce(ctx context.Context, s *servers, c contestant, prefix string, want truth) (r drainRun, err error) {
	r.Rows = want.Rows
	if c.silent {
		if err := s.rest(ctx); err != nil {
			return r, err
		}
		p, err := c.start(ctx, s, prefix)
		if err != nil {
			return r, err
		}
		if r.usage, err = p.wait(); err != nil {
			return r, err
		}
		r.Seconds, err = p.seconds()
		return r, err
	}
	topic := prefix + aggregateType
	if err := s.createTopic(topic, s.Workload.Partitions); err != nil {
		return r, err
	}
	w, err := newWatcher(ctx, s, topic, s.Workload.Partitions)
	if err != nil {
		return r, err
	}
	defer w.close()
	if err := s.rest(ctx); err != nil {
		return r, err
	}
	p, err := c.start(ctx, s, prefix)
	if err != nil {
		return r, err
	}
	var watchErr error
	r.progress, watchErr = w.watch(p, want.Rows)
	if c.debezium {
		p.kill()
	}
	if r.usage, err = p.wait(); err != nil {
		return r, err
	}
	if c.debezium {
		r.CPU = r.CPULast // not what it did until it was dead
	}
	if watchErr != nil || f.noVerify {
		return r, watchErr
	}
	if err := s.verify(ctx, topic, want); err != nil {
		return r, fmt.Errorf("%s: %w; the end of its output:\n%s", c.name, err, p.output)
	}
	return r, nil
}

// drainTable compares the contestants.
func drainTable(w workload, contestants []string, results map[string][]drainRun, verified bool) *table {
	checked := "each run's topic was consumed: every row once"
	if !verified {
		checked = "what was published was NOT checked"
	}
	var others []float64
	for _, rs := range results {
		for _, r := range rs {
			others = append(others, r.Others)
		}
	}
	t := &table{Name: "drain-" + w.Name, Contestants: contestants}
	t.About = fmt.Sprintf("drain of %s; %s; others kept %.2f cores busy", strings.TrimPrefix(w.String(), w.Name+": "), checked, median(others))
	of := func(figure func(drainRun) float64) func(string) []float64 {
		return func(c string) []float64 { return figures(results[c], figure) }
	}
	t.add(figureRate, 0, of(drainRun.steady))
	t.add(figureWhole, 0, of(drainRun.rate))
	t.add(figureCPU, 2, of(drainRun.cpuPerRow))
	t.add(figureAll, 2, of(drainRun.allPerRow))
	t.add(figureServers, 2, of(drainRun.serversPerRow))
	t.add(figureFirst, 3, of(drainRun.first))
	t.add(figurePeak, 1, of(drainRun.peak))
	const tunedName = "debezium-tuned"
	slower := "packets"
	if p, ok := t.median(figureRate, "producer"); ok {
		if q, ok := t.median(figureRate, slower); !ok || p < q {
			slower = "producer"
		}
	}
	limit := t.ratio(figureRate, slower, wantLimit, false)
	switch w.Name {
	case "mixed":
		t.judge(figureRate, t.ratio(figureRate, tunedName, wantMixed, false), limit)
	case "sparse":
		t.judge(figureRate, t.ratio(figureRate, "packets", wantSparse, false))
	case "single":
		t.judge(figureRate, limit)
	}
	if !w.Long { // these are for backlogs that take Debezium ten seconds, compiling its code meanwhile
		t.judge(figureRate, t.ratio(figureRate, tunedName, wantRate, false), limit)
		t.judge(figureRate, t.ratio(figureRate, "baseline", wantOver, false), limit)
		t.judge(figureCPU, t.ratio(figureCPU, tunedName, wantCPU, true))
		t.judge(figureCPU, t.ratio(figureCPU, "baseline", wantLess, true))
	}
	t.judge(figureFirst, t.limit(figureFirst, "s", wantStart))
	t.judge(figurePeak, t.limit(figurePeak, "MiB", wantPeakMiB))
	return t
}

// figures takes one figure of each run.
func figures[R any](runs []R, figure func(R) float64) []float64 {
	var values []float64
	for _, r := range runs {
		values = append(values, figure(r))
	}
	return values
}

// serveCommand keeps servers with a backlog.
func serveCommand(ctx context.Context, args []string, out io.Writer) error {
	f := drainFlags{only: "none"}
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.StringVar(&f.workload, "workload", "mixed", "one of "+workloadNames())
	flags.IntVar(&f.rows, "rows", 0, "outbox rows (default: the workload's own)")
	path := flags.String("state", "", "file to write for drain -state (required)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *path == "" {
		return errors.New("serve: -state is required")
	}
	b := &broker{}
	defer b.Close()
	s, err := f.servers(ctx, b)
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
