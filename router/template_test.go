package router_test

import (
	"slices"
	"strings"
	"testing"

	"outbox-relay/router"
)

func TestTemplates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, canonical string
		columns         []string
	}{
		{"", "", nil},
		{"plain", "plain", nil},
		{"{a}", "{a}", []string{"a"}},
		{"x.{a}.{b}", "x.{a}.{b}", []string{"a", "b"}},
		{"{a}{b}", "{a}{b}", []string{"a", "b"}},
		{`{{"id":{id}}}`, `{{"id":{id}}}`, []string{"id"}},
		{"{{{{", "{{{{", nil},
		{"{ a | uuid }", "{a|uuid}", []string{"a"}},
		{"{a|hex}{b|base64}", "{a|hex}{b|base64}", []string{"a", "b"}},
		{"{event id}", "{event id}", []string{"event id"}},
		{"{`a}b|c``d`}", "{`a}b|c``d`}", []string{"a}b|c`d"}},
		{"{`a`|hex}", "{a|hex}", []string{"a"}},
		{"{` a`}", "{` a`}", []string{" a"}},
	} {
		canonical, columns, err := router.CanonicalTemplate(c.text)
		if err != nil || canonical != c.canonical || !slices.Equal(columns, c.columns) {
			t.Errorf("%q: %q %q %v, want %q %q", c.text, canonical, columns, err, c.canonical, c.columns)
		}
	}
}

func TestTemplatesRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"{", "{ without }"},
		{"}", "} without {"},
		{"{}", "names no column"},
		{"{ }", "names no column"},
		{"{``}", "names no column"},
		{"{a", "{ without }"},
		{"{a}}", "} without {"},
		{"{{a}", "} without {"},
		{"{a{b}}", "} is missing"},
		{"{a|", "{ without }"},
		{"{a|}", "unknown filter"},
		{"{a|upper}", `unknown filter "upper": there are uuid, hex and base64`},
		{"{a|hex|uuid}", "unknown filter"},
		{"{`a}", "without its partner"},
		{"{`a`b}", "} is missing"},
	} {
		_, _, err := router.CanonicalTemplate(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want one with %q", c.text, err, c.want)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"outbox.event.{aggregate_type}", "{{{a}}}", "{a|uuid}", "{`x``}`|hex}y", "}{", "{{", "{a", "{ b }"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		canonical, columns, err := router.CanonicalTemplate(text)
		if err != nil {
			return
		}
		again, columnsAgain, err := router.CanonicalTemplate(canonical)
		if err != nil || again != canonical || !slices.Equal(columns, columnsAgain) {
			t.Fatalf("%q is %q with %q; that again %q with %q, %v", text, canonical, columns, again, columnsAgain, err)
		}
		if !strings.ContainsAny(text, "{}") && canonical != text {
			t.Fatalf("%q without braces became %q", text, canonical)
		}
	})
}
