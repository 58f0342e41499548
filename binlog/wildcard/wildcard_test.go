package wildcard_test

import (
	"regexp"
	"strings"
	"testing"

	"outbox-relay/binlog/wildcard"
)

func TestMatch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, name string
		fold, want    bool
	}{
		{"app", "app", false, true},
		{"app", "App", false, false},
		{"app", "App", true, true},
		{"app_%", "app_1", false, true},
		{"app_%", "app_", false, true},
		{"app_%", "appx1", false, false}, // _ is no wildcard
		{"%", "", false, true},
		{"%", "anything", false, true},
		{"%_outbox", "a_outbox_outbox", false, true},
		{"%_outbox", "outbox", false, false},
		{"a%b%c", "aXbYbZc", false, true},
		{"a%b%c", "aXbYbZ", false, false},
		{"a%%", "a", false, true},
		{"Ä%", "äpfel", true, true},
		{"Ä%", "äpfel", false, false},
		{"", "a", false, false},
	} {
		if got := wildcard.Match(c.pattern, []byte(c.name), c.fold); got != c.want {
			t.Errorf("%q of %q, fold %t: %t", c.name, c.pattern, c.fold, got)
		}
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("a%b", "axb", false)
	f.Fuzz(func(t *testing.T, pattern, name string, fold bool) {
		var parts []string
		for one := range strings.SplitSeq(pattern, "%") {
			parts = append(parts, regexp.QuoteMeta(one))
		}
		flags := "(?s)^"
		if fold {
			flags = "(?si)^"
			if strings.ContainsFunc(pattern+name, func(r rune) bool { return r >= 0x80 }) {
				return // fold as MySQL does, by lower case; the expression folds more
			}
		}
		e, err := regexp.Compile(flags + strings.Join(parts, ".*") + "$")
		if err != nil {
			return // not UTF-8
		}
		if got, want := wildcard.Match(pattern, name, fold), e.MatchString(name); got != want {
			t.Errorf("%q of %q, fold %t: got %t, want %t", name, pattern, fold, got, want)
		}
	})
}

func TestMatchAllocatesNothing(t *testing.T) {
	name := []byte("app_17")
	if n := testing.AllocsPerRun(100, func() { wildcard.Match("app_%", name, true) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
