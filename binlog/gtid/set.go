package gtid

import (
	"iter"
	"math"
	"slices"
	"strings"
)

// Set is a set of GTIDs. The zero value is the empty set, ready to use. A Set holds slices: copy it with
// Clone, never by assignment. Methods that change it take a pointer and are not safe for concurrent use.
type Set struct {
	entries []entry // by UUID bytes, then by tag; none of them empty
	last    int     // index of the entry that Add used last; may be out of range
}

// entry holds the numbers of one (uuid, tag).
type entry struct {
	uuid UUID
	tag  Tag
	runs []run // ascending, neither overlapping nor adjacent, not empty
}

// run is first … last, both included.
type run struct{ first, last int64 }

func (e *entry) compare(uuid UUID, tag Tag) int {
	if c := e.uuid.Compare(uuid); c != 0 {
		return c
	}
	return strings.Compare(e.tag, tag)
}

// Add puts g into the set. It panics when g.Number is outside 1 … MaxNumber: identifiers come out of the parsers of
// this module, which refuse such numbers, so anything else is a programming error that must not reach a checkpoint.
//
// The successor of the highest number of the (uuid, tag) used by the last call costs O(1) and no allocation.
// Other calls search in O(log n); filling a hole moves the runs behind it (16 bytes each).
func (s *Set) Add(g GTID) {
	if s.last < len(s.entries) {
		e := &s.entries[s.last]
		if r := &e.runs[len(e.runs)-1]; r.last+1 == g.Number && g.Number <= MaxNumber && e.uuid == g.UUID && e.tag == g.Tag {
			r.last = g.Number
			return
		}
	}
	s.AddRange(Range{UUID: g.UUID, Tag: g.Tag, First: g.Number, Last: g.Number})
}

// AddRange puts all transactions of r into the set. Like Add it panics when r is not within 1 … MaxNumber.
func (s *Set) AddRange(r Range) {
	mustBeValid(r)
	i, found := s.find(r.UUID, r.Tag)
	if !found {
		s.entries = slices.Insert(s.entries, i, entry{uuid: r.UUID, tag: r.Tag})
	}
	s.entries[i].runs = addRun(s.entries[i].runs, run{r.First, r.Last})
	s.last = i
}

func mustBeValid(r Range) {
	if r.First < 1 || r.Last > MaxNumber || r.First > r.Last {
		panic("gtid: range outside 1 … MaxNumber")
	}
}

// AddSet puts all transactions of o into s; o is not changed and shares no memory with s.
func (s *Set) AddSet(o *Set) {
	if s == o {
		return
	}
	for j := range o.entries {
		from := &o.entries[j]
		i, found := s.find(from.uuid, from.tag)
		switch {
		case !found:
			s.entries = slices.Insert(s.entries, i, entry{uuid: from.uuid, tag: from.tag, runs: slices.Clone(from.runs)})
		case len(from.runs) <= 4:
			for _, r := range from.runs {
				s.entries[i].runs = addRun(s.entries[i].runs, r)
			}
		default:
			s.entries[i].runs = mergeRuns(s.entries[i].runs, from.runs)
		}
	}
}

// Remove takes g out of the set; nothing happens when it is not in it.
func (s *Set) Remove(g GTID) {
	s.RemoveRange(Range{UUID: g.UUID, Tag: g.Tag, First: g.Number, Last: g.Number})
}

// RemoveRange takes all transactions of r out of the set.
func (s *Set) RemoveRange(r Range) {
	i, found := s.find(r.UUID, r.Tag)
	if !found || r.First > r.Last {
		return
	}
	e := &s.entries[i]
	if e.runs = removeRun(e.runs, run{r.First, r.Last}); len(e.runs) == 0 {
		s.entries = slices.Delete(s.entries, i, i+1)
	}
}

// Subtract takes all transactions of o out of s; o is not changed.
func (s *Set) Subtract(o *Set) {
	if s == o {
		*s = Set{}
		return
	}
	kept := s.entries[:0]
	for _, e := range s.entries {
		if j, found := o.find(e.uuid, e.tag); found {
			e.runs = subtractRuns(e.runs, o.entries[j].runs)
		}
		if len(e.runs) > 0 {
			kept = append(kept, e)
		}
	}
	clear(s.entries[len(kept):])
	s.entries = kept
}

// Minus gives a new set of the transactions that are in a but not in b.
func Minus(a, b *Set) *Set {
	d := a.Clone()
	d.Subtract(b)
	return d
}

// Contains tells whether g is in the set.
func (s *Set) Contains(g GTID) bool {
	i, found := s.find(g.UUID, g.Tag)
	if !found {
		return false
	}
	runs := s.entries[i].runs
	at := searchRun(runs, g.Number)
	return at < len(runs) && runs[at].first <= g.Number
}

// ContainsSet tells whether every transaction of o is in s.
func (s *Set) ContainsSet(o *Set) bool {
	for j := range o.entries {
		i, found := s.find(o.entries[j].uuid, o.entries[j].tag)
		if !found || !containsRuns(s.entries[i].runs, o.entries[j].runs) {
			return false
		}
	}
	return true
}

// Equal tells whether both sets hold the same transactions.
func (s *Set) Equal(o *Set) bool {
	return slices.EqualFunc(s.entries, o.entries, func(a, b entry) bool {
		return a.uuid == b.uuid && a.tag == b.tag && slices.Equal(a.runs, b.runs)
	})
}

// IsEmpty tells whether the set holds no transaction.
func (s *Set) IsEmpty() bool { return len(s.entries) == 0 }

// Count gives the number of transactions in the set, math.MaxUint64 when there are more than that.
func (s *Set) Count() uint64 {
	var n uint64
	for r := range s.Ranges() {
		more := uint64(r.Last-r.First) + 1
		if n > math.MaxUint64-more {
			return math.MaxUint64
		}
		n += more
	}
	return n
}

// HasTags tells whether any transaction has a tag. Servers before 8.3 refuse such sets.
func (s *Set) HasTags() bool {
	return slices.ContainsFunc(s.entries, func(e entry) bool { return e.tag != "" })
}

// Clone gives a copy that shares no memory with s.
func (s *Set) Clone() *Set {
	c := &Set{entries: slices.Clone(s.entries), last: s.last}
	total := 0
	for i := range s.entries {
		total += len(s.entries[i].runs)
	}
	runs := make([]run, 0, total) // one block; appends to an entry move it to a block of its own
	for i := range c.entries {
		from := len(runs)
		runs = append(runs, c.entries[i].runs...)
		c.entries[i].runs = runs[from:len(runs):len(runs)]
	}
	return c
}

// Ranges gives the runs of the set by UUID, tag and number; neighbours are never adjacent. The set must not be
// changed while the sequence is walked.
func (s *Set) Ranges() iter.Seq[Range] {
	return func(yield func(Range) bool) {
		for i := range s.entries {
			e := &s.entries[i]
			for _, r := range e.runs {
				if !yield(Range{UUID: e.uuid, Tag: e.tag, First: r.first, Last: r.last}) {
					return
				}
			}
		}
	}
}

// find gives the index of the entry of (uuid, tag), or the index where it belongs.
func (s *Set) find(uuid UUID, tag Tag) (int, bool) {
	if s.last < len(s.entries) {
		if e := &s.entries[s.last]; e.uuid == uuid && e.tag == tag {
			return s.last, true
		}
	}
	lo, hi := 0, len(s.entries)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		switch c := s.entries[mid].compare(uuid, tag); {
		case c == 0:
			return mid, true
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return lo, false
}
