package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// median of the values; of an even number the mean of the middle two. 0 without any.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// medianOf takes one figure of each run.
func medianOf[R any](runs []R, figure func(R) float64) float64 {
	var values []float64
	for _, r := range runs {
		values = append(values, figure(r))
	}
	return median(values)
}

// least takes the smallest figure of the runs; 0 without any.
func least[R any](runs []R, figure func(R) float64) float64 {
	var values []float64
	for _, r := range runs {
		values = append(values, figure(r))
	}
	if len(values) == 0 {
		return 0
	}
	return slices.Min(values)
}

// line is one figure of the report. A line without a verdict informs only.
type line struct {
	name            string
	baseline, relay string
	ratio           string
	target          string
	judged, ok      bool
}

func (l line) verdict() string {
	switch {
	case !l.judged:
		return ""
	case l.ok:
		return "PASS"
	}
	return "FAIL"
}

// printLines prints the report and returns errMissed if a line failed.
func printLines(out io.Writer, lines []line) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	var err error
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", l.name, l.baseline, l.relay, l.ratio, l.target, l.verdict())
		if l.judged && !l.ok {
			err = errMissed
		}
	}
	if ferr := t.Flush(); ferr != nil {
		return ferr
	}
	return err
}

func reportDrain(out io.Writer, w workload, results map[string][]drainRun, verified bool) error {
	fmt.Fprintln(out, w)
	checked := "every run's topic was consumed: each row exactly once"
	if !verified {
		checked = "what was published was NOT checked"
	}
	var runs, others []float64
	for _, rs := range results {
		runs = append(runs, float64(len(rs)))
		for _, r := range rs {
			others = append(others, r.Others)
		}
	}
	fmt.Fprintf(out, "medians of %.0f runs each; %s; others kept %.2f cores busy (median; at most %.2f)\n", slices.Max(runs), checked, median(others), slices.Max(others))
	return printLines(out, drainLines(results["baseline"], results["relay"]))
}

// drainLines compares the medians. With one contestant missing nothing that needs both is judged.
func drainLines(base, relay []drainRun) []line {
	both := len(base) > 0 && len(relay) > 0
	figure := func(name, format string, of func(drainRun) float64) (line, float64) {
		l := line{name: name}
		b, r := medianOf(base, of), medianOf(relay, of)
		if len(base) > 0 {
			l.baseline = fmt.Sprintf(format, b)
		}
		if len(relay) > 0 {
			l.relay = fmt.Sprintf(format, r)
		}
		if !both || b == 0 {
			return l, 0
		}
		l.ratio = fmt.Sprintf("%.2f×", r/b)
		return l, r / b
	}
	seconds := func(d func(drainRun) time.Duration) func(drainRun) float64 {
		return func(r drainRun) float64 { return d(r).Seconds() }
	}
	rate, rateRatio := figure("rows/s, start to last", "%.0f", drainRun.rate)
	rate.target, rate.judged, rate.ok = fmt.Sprintf("≥ %g×", wantRate), both, rateRatio >= wantRate
	steady, _ := figure("rows/s, steady", "%.0f", drainRun.steady)
	cpu, cpuRatio := figure("µs CPU per row", "%.2f", drainRun.cpuPerRow)
	cpu.target, cpu.judged, cpu.ok = fmt.Sprintf("≤ %g×", wantCPU), both, cpuRatio <= wantCPU
	first, _ := figure("s, start to first record", "%.3f", seconds(func(r drainRun) time.Duration { return r.First }))
	startup := medianOf(relay, seconds(func(r drainRun) time.Duration { return r.First }))
	first.target, first.judged, first.ok = "< "+fmt.Sprint(wantStart.Seconds())+" s", len(relay) > 0, startup < wantStart.Seconds()
	wall, _ := figure("s, start to exit", "%.2f", seconds(func(r drainRun) time.Duration { return r.Wall }))
	peak, _ := figure("MiB peak RSS", "%.1f", func(r drainRun) float64 { return mib(r.Peak) })
	peak.target, peak.judged, peak.ok = fmt.Sprintf("≤ %.0f MiB", mib(wantPeak)), len(relay) > 0, medianOf(relay, func(r drainRun) float64 { return float64(r.Peak) }) <= wantPeak
	head := line{name: "figure", baseline: "baseline", relay: "relay", ratio: "ratio", target: "target"}
	return []line{head, rate, steady, cpu, first, wall, peak}
}
