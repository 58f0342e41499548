package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// shownDifferences is how many differences are kept in full; all are counted.
const shownDifferences = 20

// report is what a run has compared.
type report struct {
	version     string
	seed        uint64
	tables      int
	rows        int
	selected    int // rows that a snapshot gave, compared with the binlog's
	keyless     int // tables without a key, which a snapshot refuses
	byType      map[string]*tally
	byCharset   map[string]*tally
	ways        map[string]int
	kinds       map[string]int // of transactions
	unnamed     bool           // the binlog names no columns
	refused     int            // values whose column the relay refuses because the server cannot show its members
	documents   int            // JSON documents compared beside the rows
	nodes       map[string]int // of them, by kind
	differences int
	shown       []string
	seen        map[string]bool // columns of which a difference is among shown
	took        time.Duration
}

type tally struct{ values, nulls, differences int }

func newReport() *report {
	return &report{byType: map[string]*tally{}, byCharset: map[string]*tally{}, ways: map[string]int{}, kinds: map[string]int{}, nodes: map[string]int{}, seen: map[string]bool{}}
}

// count gives the counters of a column; the charset's is nil where there is none.
func (r *report) count(info listed) (byType, byCharset *tally) {
	get := func(m map[string]*tally, name string) *tally {
		if m[name] == nil {
			m[name] = &tally{}
		}
		return m[name]
	}
	if info.charset != "" {
		byCharset = get(r.byCharset, info.charset)
	}
	return get(r.byType, info.label), byCharset
}

// differ counts a difference, and keeps the first one of each column or table.
func (r *report) differ(where, text string) {
	if r.differences++; len(r.shown) < shownDifferences && !r.seen[where] {
		r.seen[where], r.shown = true, append(r.shown, text)
	}
}

func (r *report) String() string {
	var s strings.Builder
	for _, text := range r.shown {
		fmt.Fprintf(&s, "DIFFERENCE %s\n\n", text)
	}
	fmt.Fprintf(&s, "%-28s %10s %10s %12s\n", "type", "values", "NULLs", "differences")
	var all tally
	for _, name := range slices.Sorted(maps.Keys(r.byType)) {
		t := r.byType[name]
		fmt.Fprintf(&s, "%-28s %10d %10d %12d\n", name, t.values, t.nulls, t.differences)
		all.values += t.values
		all.nulls += t.nulls
	}
	fmt.Fprintf(&s, "\n%-28s %10s %23s\n", "charset", "values", "differences")
	for _, name := range slices.Sorted(maps.Keys(r.byCharset)) {
		t := r.byCharset[name]
		fmt.Fprintf(&s, "%-28s %10d %23d\n", name, t.values, t.differences)
	}
	fmt.Fprintf(&s, "\n%-28s %10s\n", "written by", "rows")
	for _, name := range slices.Sorted(maps.Keys(r.ways)) {
		fmt.Fprintf(&s, "%-28s %10d\n", name, r.ways[name])
	}
	fmt.Fprintf(&s, "\n%-28s %10s\n", "transactions", "")
	for _, name := range slices.Sorted(maps.Keys(r.kinds)) {
		fmt.Fprintf(&s, "%-28s %10d\n", name, r.kinds[name])
	}
	if r.documents > 0 {
		s.WriteString(r.nodeReport())
	}
	fmt.Fprintf(&s, "\nMySQL %s, seed %d: %d tables, %d rows, %d values, %d NULLs, %d charsets, %d JSON documents beside; %d differences; %s\n", r.version, r.seed, r.tables, r.rows, all.values, all.nulls,
		len(r.byCharset), r.documents, r.differences, r.took.Round(100*time.Millisecond))
	if r.selected > 0 {
		fmt.Fprintf(&s, "%d rows selected by a snapshot equal those of the binlog; %d tables without a key were refused\n", r.selected, r.keyless)
	}
	if r.unnamed {
		fmt.Fprintf(&s, "the binlog named no columns (binlog_row_metadata=MINIMAL); %d values of ENUM and SET refused, since information_schema cannot show their members\n", r.refused)
	}
	return s.String()
}
