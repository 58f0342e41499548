package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// timeline is what was done to a run, and when.
type timeline struct {
	begin time.Time

	mu     sync.Mutex
	spans  []*span
	stalls []stall
}

// span is one fault from its beginning to its undoing.
type span struct {
	name, group string
	from, to    time.Time // to is zero while it lasts
}

// stall is a time without any acknowledgement.
type stall struct {
	from, to time.Time
	causes   string
	alone    time.Duration // how much of it came after the last of its causes was undone
}

func (s stall) length() time.Duration { return s.to.Sub(s.from) }

func (t *timeline) start(name, group string) *span {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &span{name: name, group: group, from: time.Now()}
	t.spans = append(t.spans, s)
	return s
}

func (t *timeline) end(s *span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.to = time.Now()
}

// during tells whether a fault of the group was there at some time since from, less the time that it takes to heal.
func (t *timeline) during(group string, from time.Time, healing time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.spans, func(s *span) bool {
		return s.group == group && (s.to.IsZero() || s.to.Add(healing).After(from))
	})
}

// shortStall is a time without acknowledgements that needs no cause, on a machine that does much else.
const shortStall = time.Second

// quiet records a time without acknowledgements, with the faults of that time; where there were none, with the last one before.
func (t *timeline) quiet(from, to time.Time) {
	if to.Sub(from) < shortStall {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	names, undone := map[string]bool{}, from
	var before *span
	for _, s := range t.spans {
		switch {
		case s.from.After(to):
		case s.to.IsZero() || s.to.After(to):
			names[s.name], undone = true, to
		case s.to.After(from):
			names[s.name] = true
			if s.to.After(undone) {
				undone = s.to
			}
		case before == nil || s.to.After(before.to):
			before = s
		}
	}
	x := stall{from: from, to: to, causes: strings.Join(slices.Sorted(maps.Keys(names)), " + "), alone: to.Sub(undone)}
	switch {
	case x.causes != "":
	case before != nil:
		x.causes = fmt.Sprintf("%.1f s after %s", from.Sub(before.to).Seconds(), before.name)
	default:
		x.causes = "nothing"
	}
	t.stalls = append(t.stalls, x)
}

// watch records the times without acknowledgements until ctx ends, by what the relays say of their last one.
func (t *timeline) watch(ctx context.Context, c *crew) {
	last := time.Now()
	for pause(ctx, 100*time.Millisecond) == nil {
		for i := range c.relays {
			st, err := c.at(i, false).Status(ctx)
			if err == nil && st.LastAckedAt.After(last) {
				t.quiet(last, st.LastAckedAt)
				last = st.LastAckedAt
			}
		}
	}
}

// longest gives the longest stall, and the one that went on longest after its causes were undone.
func (t *timeline) longest() (all, healed stall) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.stalls {
		if s.length() > all.length() {
			all = s
		}
		if s.alone > healed.alone {
			healed = s
		}
	}
	return all, healed
}

// String has a line for each fault and each stall, in the order of their beginnings.
func (t *timeline) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	for _, s := range t.spans {
		length := "not undone"
		if !s.to.IsZero() {
			length = fmt.Sprintf("%.1f s", s.to.Sub(s.from).Seconds())
		}
		lines = append(lines, line{s.from, s.name + ", " + length})
	}
	for _, s := range t.stalls {
		lines = append(lines, line{s.from, fmt.Sprintf("no acknowledgement for %.1f s, %.1f s of them with all undone: %s", s.length().Seconds(), s.alone.Seconds(), s.causes)})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%s  %8.1f s  %s\n", l.at.UTC().Format("15:04:05.000"), l.at.Sub(t.begin).Seconds(), l.text)
	}
	return b.String()
}
