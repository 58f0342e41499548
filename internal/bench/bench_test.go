package main

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{8, 2, 4, 100}, 6}} {
		if got := median(c.values); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.values, got, c.want)
		}
	}
}

// A run of 1000 rows that shows no record for 1 s, half of them by 2 s and all by 3 s.
func halfway() progress {
	return progress{First: time.Second, Last: 3 * time.Second, samples: []sample{{2 * time.Second, 500}, {3 * time.Second, 1000}}}
}

func TestSteadyRateLeavesOutStartAndEnd(t *testing.T) {
	t.Parallel()
	// 200 rows at 1.4 s, 800 at 2.6 s.
	if got := halfway().steady(1000); got < 499.9 || got > 500.1 {
		t.Errorf("steady rate is %v, want 500", got)
	}
	if got := (progress{samples: []sample{{time.Second, 100}}}).steady(1000); got != 0 {
		t.Errorf("steady rate of an unfinished run is %v, want 0", got)
	}
}

// run of 1000 rows at a rate and a CPU time per row in µs.
func run(rate, cpu float64, first time.Duration, peak int64) drainRun {
	d := time.Duration(1000 / rate * float64(time.Second))
	p := progress{First: first, Last: first + d, CPULast: time.Duration(cpu * 1000 * float64(time.Microsecond))}
	for n := range int64(10) {
		p.samples = append(p.samples, sample{first + d*time.Duration(n+1)/10, (n + 1) * 100})
	}
	return drainRun{Rows: 1000, usage: usage{Wall: p.Last, CPU: p.CPULast, Peak: peak}, progress: p}
}

func TestDrainJudgesEachTarget(t *testing.T) {
	t.Parallel()
	others := map[string][]drainRun{
		"baseline":       {run(25_000, 40, 400*time.Millisecond, 100<<20)},
		"debezium-tuned": {run(10_000, 200, 12*time.Second, 1000<<20)},
		"packets":        {{Rows: 1000, Seconds: 0.002, usage: usage{CPU: time.Millisecond}}},
		"producer":       {run(400_000, 2, time.Second, 1)},
	}
	for _, c := range []struct {
		name     string
		workload string
		relay    drainRun
		missed   string
	}{
		{"all met", "mixed", run(160_000, 6, 299*time.Millisecond, 64<<20), ""},
		{"slower than asked against Debezium", "mixed", run(149_000, 6, time.Millisecond, 1), "rows/s, rows/s"},
		{"the same where less is asked, but slow against the baseline", "small", run(149_000, 6, time.Millisecond, 1), "rows/s"},
		{"near to the slower limit", "single", run(330_000, 6, time.Millisecond, 1), ""},
		{"not near to it", "single", run(300_000, 6, time.Millisecond, 1), "rows/s"},
		{"not near to counting packets", "sparse", run(440_000, 6, time.Millisecond, 1), "rows/s"},
		{"too much CPU for both", "mixed", run(160_000, 9, time.Millisecond, 1), "µs CPU per row, µs CPU per row"},
		{"late first record", "mixed", run(160_000, 1, 301*time.Millisecond, 1), "s, start to first record"},
		{"too much memory", "mixed", run(160_000, 1, time.Millisecond, 65<<20), "MiB peak RSS"},
	} {
		results := map[string][]drainRun{"relay": {c.relay}}
		maps.Copy(results, others)
		table := drainTable(workload{Name: c.workload, PerTx: 1}, []string{"relay", "baseline", "debezium-tuned", "packets", "producer"}, results, true)
		var missed []string
		for _, one := range table.Checks {
			if !one.met() {
				missed = append(missed, one.What)
			}
		}
		if got := strings.Join(missed, ", "); got != c.missed {
			t.Errorf("%s: missed are %q, want %q: %+v", c.name, got, c.missed, table.Checks)
		}
		var out bytes.Buffer
		table.print(&out)
		if said := strings.Contains(out.String(), "MISSED"); said != (c.missed != "") || table.met() == said {
			t.Errorf("%s: the report is\n%s", c.name, out.String())
		}
	}
}

// What a compiled Debezium does is shown beside the relay; start and memory are judged as everywhere.
func TestALongBacklogIsShownAndNotJudgedByItsRatios(t *testing.T) {
	t.Parallel()
	long, err := workloadNamed("mixed-long")
	if err != nil {
		t.Fatal(err)
	}
	results := map[string][]drainRun{"relay": {run(20_000, 100, 400*time.Millisecond, 65<<20)}, "debezium-tuned": {run(10_000, 200, 12*time.Second, 1000<<20)}}
	table := drainTable(long, []string{"relay", "debezium-tuned"}, results, true)
	var judged []string
	for _, c := range table.Checks {
		judged = append(judged, c.What)
		if c.met() {
			t.Errorf("%s is met", c.What)
		}
	}
	if got := strings.Join(judged, ", "); got != "s, start to first record, MiB peak RSS" {
		t.Errorf("judged are %s", got)
	}
}

func TestContestantsThatAreMissingAreNotCompared(t *testing.T) {
	t.Parallel()
	table := drainTable(workload{Name: "mixed", PerTx: 1}, []string{"relay"}, map[string][]drainRun{"relay": {run(1, 1000, time.Millisecond, 1)}}, true)
	for _, c := range table.Checks {
		if c.What != figureFirst && c.What != figurePeak {
			t.Errorf("judged is %+v", c)
		}
	}
}

// A contestant that starts slowly is not called slow for it.
func TestCostsOfTheStartAreLeftOut(t *testing.T) {
	t.Parallel()
	r := run(1000, 20, 10*time.Second, 1)
	r.CPUFirst = 15 * time.Millisecond // of 20
	if got := r.cpuPerRow(); got != 5 {
		t.Errorf("CPU per row is %v µs, want 5", got)
	}
	if got := r.steady(); got < 999 || got > 1001 {
		t.Errorf("rate is %v, want 1000", got)
	}
	if got := r.rate(); got < 90 || got > 91 {
		t.Errorf("rate with the start is %v, want 90.9", got)
	}
}

func TestTransactionsHoldTheWholeWorkload(t *testing.T) {
	t.Parallel()
	w := workload{Name: "odd", Rows: 25, PerTx: 10, Foreign: 3, JSON: 290}
	outbox, foreign := 0, 0
	for n := range w.transactions() {
		text := w.transaction(n)
		outbox += strings.Count(text, "'OrderCreated'")
		foreign += strings.Count(text, "'created'")
	}
	if outbox != 25 || foreign != 9 {
		t.Errorf("%d outbox and %d foreign rows, want 25 and 9", outbox, foreign)
	}
}

func TestPayloadsAreJSONOfTheWantedSize(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 290, 10_000} {
		for n := range 1000 {
			var b strings.Builder
			writeJSON(&b, n, size)
			if !json.Valid([]byte(b.String())) {
				t.Fatalf("payload %d is no JSON: %s", n, b.String())
			}
			if b.Len() < size*8/10 || b.Len() > size*12/10 {
				t.Fatalf("payload %d has %d bytes, want about %d", n, b.Len(), size)
			}
		}
	}
}

func TestPeakIsReadFromStatus(t *testing.T) {
	t.Parallel()
	got, err := parsePeak([]byte("VmPeak:\t 1234 kB\nVmHWM:\t   49664 kB\nVmRSS:\t 10 kB\n"))
	if err != nil || got != 49664<<10 {
		t.Errorf("parsePeak = %d, %v; want %d", got, err, 49664<<10)
	}
	if _, err := parsePeak([]byte("Name:\tx\n")); err == nil {
		t.Error("a process without memory has a peak")
	}
}

// The child needs 64 MiB for its one block and works for a while. This process is larger than that, which a child inherits in the
// figures of getrusage.
func TestChildIsMeasured(t *testing.T) {
	t.Parallel()
	dd, err := exec.LookPath("dd")
	if err != nil {
		t.Fatal(err)
	}
	own := make([]byte, 200<<20)
	for i := 0; i < len(own); i += 4096 {
		own[i]++
	}
	c, err := startChild(context.Background(), "dd", nil, nil, nil, dd, "if=/dev/zero", "of=/dev/null", "bs=64M", "count=40")
	if err != nil {
		t.Fatal(err)
	}
	u, err := c.wait()
	runtime.KeepAlive(own)
	if err != nil {
		t.Fatal(err)
	}
	if u.Peak < 64<<20 || u.Peak > 80<<20 {
		t.Errorf("peak is %.1f MiB, want 64 and a little", mib(u.Peak))
	}
	if u.CPU < 10*time.Millisecond || u.CPU > 2*u.Wall || u.Wall > runTimeout {
		t.Errorf("wall %v and CPU %v of a child that wrote 2.5 GiB of zeros", u.Wall, u.CPU)
	}
}

func TestChildThatFailsShowsItsOutput(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	c, err := startChild(context.Background(), "sh", nil, nil, nil, sh, "-c", "echo no such luck >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.wait(); err == nil || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("error is %v", err)
	}
}

func TestUnknownCommandsAreRefused(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{nil, {"drian"}, {"drain", "-workload", "tiny"}, {"drain-tiny"}, {"drain-mixed", "-only", "nobody", "-state", "none"}, {"latency", "-rate"}, {"all", "-rounds", "3"}, {"serve"}, {"read", "-how", "fast"}} {
		if err := dispatch(context.Background(), args, &bytes.Buffer{}); err == nil {
			t.Errorf("bench %v succeeded", args)
		}
	}
}
