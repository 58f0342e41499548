package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
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
