package router_test

import (
	"strings"
	"testing"

	"outbox-relay/router"
)

func TestParseTableName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want router.TableName
		back string // String of the result where it differs from text
	}{
		{text: "app.outbox_events", want: router.TableName{Schema: "app", Name: "outbox_events"}},
		{text: "`app`.outbox", want: router.TableName{Schema: "app", Name: "outbox"}, back: "app.outbox"},
		{text: "`my.app`.`outbox events`", want: router.TableName{Schema: "my.app", Name: "outbox events"}},
		{text: "my-app.outbox$1", want: router.TableName{Schema: "my-app", Name: "outbox$1"}},
		{text: "`a``b`.```c```", want: router.TableName{Schema: "a`b", Name: "`c`"}},
		{text: "`50%`.t", back: "50%.t", want: router.TableName{Schema: "50%", Name: "t"}},
		{text: "ä.表", want: router.TableName{Schema: "ä", Name: "表"}},
		{text: strings.Repeat("é", 64) + ".t", want: router.TableName{Schema: strings.Repeat("é", 64), Name: "t"}},
	} {
		got, err := router.ParseTableName(c.text)
		if err != nil || got != c.want {
			t.Errorf("ParseTableName(%q) = %q, %v; want %q", c.text, got, err, c.want)
		}
		want := c.text
		if c.back != "" {
			want = c.back
		}
		if got.String() != want {
			t.Errorf("String of %q = %s, want %s", c.text, got, want)
		}
	}
}

func TestParseTableNameRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"", "schema: empty name"},
		{"outbox", "schema.table"},
		{"app.", "table: empty name"},
		{".outbox", "schema: empty name"},
		{"a.b.c", "stands in backquotes"},
		{"my app.t", "stands in backquotes"},
		{"app.'t'", "stands in backquotes"},
		{"`app.t", "without its partner"},
		{"`app`t.x", "schema.table"},
		{"app.`t`x", "text after schema.table"},
		{"``.t", "schema: empty name"},
		{"app.`t `", "ends with a blank"},
		{"app.`t\x00`", "zero byte"},
		{"app.t\xff", "UTF-8"},
		{"app." + strings.Repeat("t", 65), "longer than 64"},
	} {
		_, err := router.ParseTableName(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("ParseTableName(%q): error %v, want one with %q", c.text, err, c.want)
		}
	}
}

func FuzzParseTableName(f *testing.F) {
	for _, s := range []string{"app.outbox", "`my.app`.`outbox events`", "`a``b`.c", "a.b.c", "`", "a.%", "é.表"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, err := router.ParseTableName(text)
		if err != nil {
			return
		}
		if name.Schema == "" || name.Name == "" {
			t.Fatalf("%q parsed to an empty part: %q", text, name)
		}
		again, err := router.ParseTableName(name.String())
		if err != nil || again != name {
			t.Fatalf("%q parsed to %q, written %q, parsed again to %q, %v", text, name, name.String(), again, err)
		}
	})
}
