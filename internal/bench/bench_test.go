package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
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
	return drainRun{Rows: 1000, usage: usage{Wall: d, CPU: time.Duration(cpu * 1000 * float64(time.Microsecond)), Peak: peak}, progress: progress{First: first, Last: d}}
}

func TestDrainReportJudgesEachTarget(t *testing.T) {
	t.Parallel()
	base := []drainRun{run(25_000, 40, 400*time.Millisecond, 100<<20)}
	for _, c := range []struct {
		name  string
		relay drainRun
		fails string
	}{
		{"all met", run(100_001, 10, 499*time.Millisecond, 64<<20), ""},
		{"too slow", run(99_000, 10, time.Millisecond, 1), "rows/s, start to last"},
		{"too much CPU", run(200_000, 10.1, time.Millisecond, 1), "µs CPU per row"},
		{"late first record", run(200_000, 1, 500*time.Millisecond, 1), "s, start to first record"},
		{"too much memory", run(200_000, 1, time.Millisecond, 64<<20+1), "MiB peak RSS"},
	} {
		var failed []string
		for _, l := range drainLines(base, []drainRun{c.relay}) {
			if l.verdict() == "FAIL" {
				failed = append(failed, l.name)
			}
		}
		if got := strings.Join(failed, "; "); got != c.fails {
			t.Errorf("%s: failed are %q, want %q", c.name, got, c.fails)
		}
		var out bytes.Buffer
		err := printLines(&out, drainLines(base, []drainRun{c.relay}))
		if missed := errors.Is(err, errMissed); missed != (c.fails != "") {
			t.Errorf("%s: the report's error is %v:\n%s", c.name, err, out.String())
		}
	}
}

func TestOneContestantAloneIsNotCompared(t *testing.T) {
	t.Parallel()
	for _, l := range drainLines(nil, []drainRun{run(1, 1000, time.Millisecond, 1)}) {
		if l.ratio != "" && l.name != "figure" || l.verdict() == "FAIL" {
			t.Errorf("line %q: ratio %q, verdict %q", l.name, l.ratio, l.verdict())
		}
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
	for _, size := range []int{290, 10_000} {
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
	for _, args := range [][]string{nil, {"drian"}, {"drain", "-workload", "tiny"}, {"serve"}, {"read", "-how", "fast"}} {
		if err := dispatch(context.Background(), args, &bytes.Buffer{}); err == nil {
			t.Errorf("bench %v succeeded", args)
		}
	}
}
