package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// table holds the figures of one benchmark, in the form in which they are kept.
type table struct {
	Name        string   `json:"name"`
	About       string   `json:"about"`       // what was measured, in a sentence
	Contestants []string `json:"contestants"` // the first is the one that is judged
	Figures     []figure `json:"figures"`
	Checks      []check  `json:"checks,omitempty"`
}

// figure is one line of a table: what each contestant showed.
type figure struct {
	Name   string            `json:"name"` // with its unit
	Digits int               `json:"digits"`
	Values map[string]spread `json:"values"` // by contestant; those that have no such figure are missing
}

// spread is a figure of several runs.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Runs   int     `json:"runs"`
}

func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	round := func(v float64) float64 { // four digits that count, so that a kept figure is readable
		if v == 0 {
			return 0
		}
		scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
		return math.Round(v*scale) / scale
	}
	return spread{round(median(values)), round(slices.Min(values)), round(slices.Max(values)), len(values)}
}

// check is a target. It is met if one of the bounds is.
type check struct {
	What string  `json:"what"`
	Any  []bound `json:"any"`
}

// bound compares a ratio, or a figure as it is.
type bound struct {
	Of     string  `json:"of"`  // what Got is: "× debezium-tuned", "MiB"
	Got    float64 `json:"got"` // NaN never gets here: a bound without figures is left out
	Want   float64 `json:"want"`
	AtMost bool    `json:"atMost"`
}

func (b bound) met() bool {
	if b.AtMost {
		return b.Got <= b.Want
	}
	return b.Got >= b.Want
}

func (b bound) String() string {
	sign := "≥"
	if b.AtMost {
		sign = "≤"
	}
	return fmt.Sprintf("%s %s (%s %s)", digits(b.Got), b.Of, sign, digits(b.Want))
}

// digits prints three that count.
func digits(v float64) string {
	if math.Abs(v) >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func (c check) met() bool { return slices.ContainsFunc(c.Any, bound.met) }

// add puts a line of figures into the table; runs without a figure give NaN, and contestants of which all do are left out.
func (t *table) add(name string, digits int, of func(contestant string) []float64) {
	f := figure{Name: name, Digits: digits, Values: map[string]spread{}}
	for _, c := range t.Contestants {
		values := slices.DeleteFunc(of(c), math.IsNaN)
		if len(values) > 0 {
			f.Values[c] = spreadOf(values)
		}
	}
	if len(f.Values) > 0 {
		t.Figures = append(t.Figures, f)
	}
}

// median gives a figure of a contestant, and whether it has one.
func (t *table) median(name, contestant string) (float64, bool) {
	for _, f := range t.Figures {
		if f.Name == name {
			s, ok := f.Values[contestant]
			return s.Median, ok
		}
	}
	return 0, false
}

// ratio bounds a figure of the first contestant against that of another one. Without either there is nothing to bound.
func (t *table) ratio(name, other string, want float64, atMost bool) []bound {
	r, ok1 := t.median(name, t.Contestants[0])
	o, ok2 := t.median(name, other)
	if !ok1 || !ok2 || o == 0 {
		return nil
	}
	return []bound{{Of: "× " + other, Got: r / o, Want: want, AtMost: atMost}}
}

// limit bounds a figure of the first contestant from above.
func (t *table) limit(name, unit string, want float64) []bound {
	r, ok := t.median(name, t.Contestants[0])
	if !ok {
		return nil
	}
	return []bound{{Of: unit, Got: r, Want: want, AtMost: true}}
}

// judge adds a target. One without bounds cannot be judged and is left out.
func (t *table) judge(what string, bounds ...[]bound) {
	if all := slices.Concat(bounds...); len(all) > 0 {
		t.Checks = append(t.Checks, check{what, all})
	}
}

// met tells whether all targets were.
func (t *table) met() bool {
	return !slices.ContainsFunc(t.Checks, func(c check) bool { return !c.met() })
}

// print writes the table for people.
func (t *table) print(out io.Writer) {
	fmt.Fprintf(out, "\n%s: %s\n", t.Name, t.About)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "\t%s\t\n", strings.Join(t.Contestants, "\t"))
	for _, f := range t.Figures {
		fmt.Fprintf(w, "%s\t", f.Name)
		for _, c := range t.Contestants {
			fmt.Fprintf(w, "%s\t", f.cell(c))
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // as with the other lines, who reads it will see
	for _, c := range t.Checks {
		verdict := "met"
		if !c.met() {
			verdict = "MISSED"
		}
		fmt.Fprintf(out, "  %-6s  %s\n", verdict, c)
	}
}

func (c check) String() string {
	var all []string
	for _, b := range c.Any {
		all = append(all, b.String())
	}
	return c.What + ": " + strings.Join(all, " or ")
}

// cell is the median, and how far the runs are apart.
func (f figure) cell(contestant string) string {
	s, ok := f.Values[contestant]
	if !ok {
		return "–"
	}
	text := strconv.FormatFloat(s.Median, 'f', f.Digits, 64)
	if s.Runs > 1 && s.Median > 0 {
		text += fmt.Sprintf(" ±%.0f%%", (s.Max-s.Min)/2/s.Median*100)
	}
	return text
}
