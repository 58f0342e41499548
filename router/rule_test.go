package router_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/router"
)

// none is a rule of preset none that is complete; change makes the case.
func none(change func(*router.Rule)) router.Rule {
	r := router.Rule{Table: "app.t", Preset: "none", Topic: "t", Key: "{k}", Value: "{v}"}
	if change != nil {
		change(&r)
	}
	return r
}

func TestNewNamesEveryFault(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 250)
	for _, c := range []struct {
		name  string
		rules []router.Rule
		want  []string
	}{
		{"no rules", nil, []string{"tables[0].table: missing: at least one table is needed"}},
		{"table", []router.Rule{{Table: "outbox"}}, []string{"tables[0].table: a table is named as schema.table"}},
		{"unknown preset", []router.Rule{{Table: "a.b", Preset: "box"}}, []string{`tables[0].preset: unknown preset "box": there are outbox, debezium, cloudevents and none`}},
		{"none is empty", []router.Rule{{Table: "a.b", Preset: "none"}}, []string{
			"tables[0].topic: missing: preset none has none",
			"tables[0].value: missing: preset none has none",
			"tables[0].key: missing: preset none has none, and records without key need null_key: allow, since they have no order"}},
		{"many in one rule", []router.Rule{{Table: "x", Topic: "{", Key: "{a|md5}", Value: "}", NullKey: "yes", Otherwise: "skip", Poison: "drop",
			Timestamp: "{a}{b}", Partition: "{p|hex}", TimeZone: "Mars/Olympus", Headers: []router.HeaderRule{{Name: "", Value: "{"}}}},
			[]string{
				"tables[0].table: a table is named as schema.table",
				"tables[0].topic: { without }: a brace that is meant as text is doubled",
				`tables[0].key: unknown filter "md5": there are uuid, hex and base64`,
				"tables[0].value: } without {: a brace that is meant as text is doubled",
				"tables[0].headers[0].value: { without }: a brace that is meant as text is doubled",
				"tables[0].headers[0].name: empty header name",
				"tables[0].timestamp: takes the name of one column, without text or filter",
				"tables[0].partition: takes the name of one column, without text or filter",
				`tables[0].time_zone: unknown zone "Mars/Olympus"`,
				`tables[0].null_key: "yes" is not one of poison, allow`,
				`tables[0].otherwise: "skip" is not one of poison, ignore`,
				`tables[0].poison: "drop" is not one of halt, dead_letter, skip`,
			}},
		{"topic text", []router.Rule{none(func(r *router.Rule) { r.Topic = "a b" }), none(func(r *router.Rule) { r.Table = "a.b"; r.Topic = "a/{k}" }),
			none(func(r *router.Rule) { r.Table = "a.c"; r.Topic = long + "{k}" }), none(func(r *router.Rule) { r.Table = "a.d"; r.Topic = "__consumer_offsets" })},
			[]string{
				`tables[0].topic: topic name with ' ': letters, digits, dot, underscore and hyphen are allowed`,
				`tables[1].topic: topic name with '/': letters, digits, dot, underscore and hyphen are allowed`,
				"tables[2].topic: text of 250 bytes beside the columns, 249 are allowed for a topic name",
				"tables[3].topic: topic of the brokers themselves, which refuse producers",
			}},
		{"header names", []router.Rule{none(func(r *router.Rule) {
			r.Headers = []router.HeaderRule{{"outbox-relay-position", "x"}, {"dead-letter-reason", "x"}, {"a\xff", "x"}, {"*", "{a}{b}"}, {"*", "{a|hex}"}, {"*", "x"}}
		})}, []string{
			"tables[0].headers[0].name: header name is reserved: the relay itself writes outbox-relay-position and dead-letter-*",
			"tables[0].headers[1].name: header name is reserved: the relay itself writes outbox-relay-position and dead-letter-*",
			"tables[0].headers[2].name: header name is not valid UTF-8",
			"tables[0].headers[3].value: a header named * takes one column without filter, such as {headers}",
			"tables[0].headers[4].value: a header named * takes one column without filter, such as {headers}",
			"tables[0].headers[5].value: a header named * takes one column without filter, such as {headers}",
		}},
		{"zone", []router.Rule{none(func(r *router.Rule) { r.TimeZone = "Europe/Berlin" }), none(func(r *router.Rule) { r.Table = "a.b"; r.Timestamp = "at"; r.TimeZone = "Local" })},
			[]string{"tables[0].time_zone: has no effect without timestamp", "tables[1].time_zone: name the zone: Local would depend on the machine"}},
		{"when", []router.Rule{none(func(r *router.Rule) {
			r.When = map[string][]string{"": {"x"}, "A": {"x", "x"}, "a": {"y"}, "b": nil}
		})}, []string{
			"tables[0].when: empty column name",
			`tables[0].when.A: value "x" is named twice`,
			"tables[0].when.a: the column is named twice, in upper and lower case",
			"tables[0].when.b: no value, so the rule would match no row",
		}},
	} {
		_, err := router.New(router.Options{Rules: c.rules})
		var faults router.Faults
		if !errors.As(err, &faults) {
			t.Errorf("%s: New gave %v, want Faults", c.name, err)
			continue
		}
		if diff := cmp.Diff(c.want, strings.Split(err.Error(), "\n")); diff != "" {
			t.Errorf("%s: faults (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestNewFindsRulesThatAreNeverUsed(t *testing.T) {
	t.Parallel()
	rule := func(table string, when map[string][]string) router.Rule {
		return none(func(r *router.Rule) { r.Table, r.When = table, when })
	}
	many := func(prefix string, n int) (list []string) {
		for i := range n {
			list = append(list, prefix+strings.Repeat("x", i))
		}
		return list
	}
	on := func(pairs ...string) map[string][]string {
		m := map[string][]string{}
		for _, p := range pairs {
			column, values, _ := strings.Cut(p, "=")
			m[column] = strings.Split(values, ",")
		}
		return m
	}
	for _, c := range []struct {
		name  string
		rules []router.Rule
		fold  bool
		want  string // "" = no fault
	}{
		{name: "two tables", rules: []router.Rule{rule("a.t", nil), rule("a.u", nil)}},
		{name: "case of the table counts", rules: []router.Rule{rule("a.t", nil), rule("a.T", nil)}},
		{name: "case of the table folded", rules: []router.Rule{rule("a.t", nil), rule("A.T", nil)}, fold: true, want: "tables[1].table: the rule is never used: tables[0] takes its rows"},
		{name: "same table twice", rules: []router.Rule{rule("a.t", nil), rule("a.t", nil)}, want: "tables[1].table: the rule is never used: tables[0] takes its rows"},
		{name: "condition behind catch-all", rules: []router.Rule{rule("a.t", nil), rule("a.t", on("e=x"))}, want: "tables[1].when: the rule is never used: tables[0] takes its rows"},
		{name: "catch-all last", rules: []router.Rule{rule("a.t", on("e=x")), rule("a.t", nil)}},
		{name: "same condition", rules: []router.Rule{rule("a.t", on("e=x,y")), rule("a.t", on("E=y,x"))}, want: "tables[1].when: the rule is never used: tables[0] takes its rows"},
		{name: "subset", rules: []router.Rule{rule("a.t", on("e=x,y")), rule("a.t", on("e=y"))}, want: "tables[1].when: the rule is never used: tables[0] takes its rows"},
		{name: "overlap", rules: []router.Rule{rule("a.t", on("e=x,y")), rule("a.t", on("e=y,z"))}},
		{name: "values compare with case", rules: []router.Rule{rule("a.t", on("e=x")), rule("a.t", on("e=X"))}},
		{name: "narrower in another column", rules: []router.Rule{rule("a.t", on("e=x")), rule("a.t", on("e=x", "f=1"))}, want: "tables[1].when: the rule is never used: tables[0] takes its rows"},
		{name: "wider in another column", rules: []router.Rule{rule("a.t", on("e=x", "f=1")), rule("a.t", on("e=x"))}},
		{name: "empty value in another column", rules: []router.Rule{rule("a.t", on("f=")), rule("a.t", on("e=x"))}},
		{name: "union of two", rules: []router.Rule{rule("a.t", on("e=x", "f=1,2")), rule("a.t", on("e=x", "f=3")), rule("a.t", on("e=x", "f=2,3"))},
			want: "tables[2].when: the rule is never used: tables[1] takes its rows|tables[2].when: the rule is never used: tables[0] takes its rows"},
		{name: "beyond the bound", rules: []router.Rule{none(func(r *router.Rule) { r.When = map[string][]string{"a": many("a", 70), "b": many("b", 70)} }),
			none(func(r *router.Rule) { r.When = map[string][]string{"a": many("a", 70), "b": many("b", 70)} })}},
	} {
		_, err := router.New(router.Options{Rules: c.rules, FoldCase: c.fold})
		got := ""
		if err != nil {
			got = err.Error()
		}
		if !slices.Contains(strings.Split(c.want, "|"), got) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestNewRefusesTwoMeaningsOfOtherwise(t *testing.T) {
	t.Parallel()
	rules := []router.Rule{
		none(func(r *router.Rule) { r.When = map[string][]string{"e": {"x"}}; r.Otherwise = "ignore" }),
		none(func(r *router.Rule) { r.When = map[string][]string{"e": {"y"}}; r.Otherwise = "poison" }),
	}
	_, err := router.New(router.Options{Rules: rules})
	if want := "tables[1].otherwise: differs from that of tables[0], which names the same table"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	rules[1].Otherwise = ""
	if _, err := router.New(router.Options{Rules: rules}); err != nil {
		t.Errorf("one rule speaks for the table: %v", err)
	}
}

func TestTablesOnceInOrder(t *testing.T) {
	t.Parallel()
	r, err := router.New(router.Options{FoldCase: true, Rules: []router.Rule{
		none(func(r *router.Rule) { r.Table = "b.T"; r.When = map[string][]string{"e": {"x"}} }),
		none(func(r *router.Rule) { r.Table = "`a b`.t" }),
		none(func(r *router.Rule) { r.Table = "B.t" }),
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := []router.TableName{{Schema: "b", Name: "T"}, {Schema: "a b", Name: "t"}}
	if got := r.Tables(); !slices.Equal(got, want) {
		t.Errorf("Tables() = %v, want %v", got, want)
	}
}

func TestTopicNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "outbox.event.order", "A-1_b.C", "...", "__mine", strings.Repeat("x", 249)} {
		if err := router.CheckTopic([]byte(name)); err != nil {
			t.Errorf("%q refused: %v", name, err)
		}
	}
	for _, name := range []string{"", ".", "..", "a b", "a/b", "é", "a\x00", strings.Repeat("x", 250), "__consumer_offsets", "__transaction_state", "__share_group_state"} {
		if err := router.CheckTopic([]byte(name)); err == nil {
			t.Errorf("%q accepted", name)
		}
	}
}
