package router_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/binlog/event"
	"outbox-relay/router"
)

func patternRule(table, topic string) router.Rule {
	return router.Rule{Table: table, Preset: "none", Topic: topic, Key: "{k}", Value: "{v}"}
}

// The first rule in order whose table and condition fit takes a row, whether it names the table or a pattern does.
func TestRulesOfPatternsAndNamesInOrder(t *testing.T) {
	t.Parallel()
	first := patternRule("app.special", "special")
	first.When = map[string][]string{"e": {"x"}}
	router1, err := router.New(router.Options{Rules: []router.Rule{first, patternRule("app.spec%", "some"), patternRule("a%.%", "all")}})
	if err != nil {
		t.Fatal(err)
	}
	if got := router1.Tables(); !cmp.Equal(got, []router.TableName{{Schema: "app", Name: "special"}, {Schema: "app", Name: "spec%"}, {Schema: "a%", Name: "%"}}) {
		t.Errorf("tables are %v", got)
	}
	for _, c := range []struct{ schema, name, e, topic string }{
		{"app", "special", "x", "special"},
		{"app", "special", "y", "some"},
		{"app", "spec", "x", "some"},
		{"app", "other", "x", "all"},
		{"axe", "special", "x", "all"},
	} {
		tbl := table(varchar("k"), varchar("v"), varchar("e"))
		tbl.Schema, tbl.Name = c.schema, c.name
		b, err := router1.Bind(tbl)
		if err != nil {
			t.Fatal(err)
		}
		var rec router.Record
		outcome, err := router1.Route(b, []event.Cell{text("key"), text("val"), text(c.e)}, router.Meta{Position: []byte("a:1")}, 0, &rec)
		if err != nil || outcome != router.Routed || rec.Topic != c.topic || rec.Table != c.schema+"."+c.name {
			t.Errorf("a row of %s.%s goes to %q, from %q: %v, %v", c.schema, c.name, rec.Topic, rec.Table, outcome, err)
		}
	}
	if _, err := router1.Bind(&event.Table{Schema: "b", Name: "special"}); !errors.Is(err, router.ErrNotWatched) {
		t.Errorf("a table that no rule names: %v", err)
	}
}

func TestARuleBehindAPatternThatTakesItsRowsIsAFault(t *testing.T) {
	t.Parallel()
	_, err := router.New(router.Options{Rules: []router.Rule{patternRule("app.%", "a"), patternRule("app.orders", "b")}})
	if err == nil || !strings.Contains(err.Error(), "the rule is never used") {
		t.Errorf("got %v", err)
	}
	if _, err = router.New(router.Options{Rules: []router.Rule{patternRule("app.orders", "b"), patternRule("app.%", "a"), patternRule("%.orders", "c")}}); err != nil {
		t.Error(err)
	}
}

func TestColumnsThatATableOfAPatternLacksNameTheTable(t *testing.T) {
	t.Parallel()
	tbl := table(varchar("k"))
	tbl.Name = "outbox_7"
	err := bind(t, tbl, patternRule("app.outbox_%", "a"))
	if err == nil || !strings.Contains(err.Error(), "table app.outbox_7 has no column v") {
		t.Errorf("got %v", err)
	}
}

// Where the server does not tell upper from lower case, patterns do not either.
func TestPatternsFoldCaseAsTheServerDoes(t *testing.T) {
	t.Parallel()
	tbl := table(varchar("k"), varchar("v"))
	tbl.Name = "outbox_a"
	if err := bind(t, tbl, patternRule("App.OutBox_%", "a")); !errors.Is(err, router.ErrNotWatched) {
		t.Errorf("a server that tells case apart: %v", err)
	}
	tbl.FoldCase = true
	if err := bind(t, tbl, patternRule("App.OutBox_%", "a")); err != nil {
		t.Error(err)
	}
}

// Ids are unique in a table: events of two tables of a pattern need two sources.
func TestEventsOfAPatternNameTheirTable(t *testing.T) {
	t.Parallel()
	r := router.Rule{Table: "app.%", Preset: "cloudevents", CloudEvents: &router.CloudEvents{ID: "{id}", Type: "{event_type}", SourcePrefix: "/orders/"}}
	x, err := router.New(router.Options{Rules: []router.Rule{r}})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b_b"} {
		tbl := table(varchar("id"), varchar("aggregate_type"), varchar("aggregate_id"), varchar("event_type"), varchar("payload"))
		tbl.Name = name
		b, err := x.Bind(tbl)
		if err != nil {
			t.Fatal(err)
		}
		var rec router.Record
		if _, err := x.Route(b, []event.Cell{text("1"), text("order"), text("k"), text("Made"), text("{}")}, router.Meta{Position: []byte("a:1")}, 0, &rec); err != nil {
			t.Fatal(err)
		}
		source := ""
		for _, h := range rec.Headers {
			if h.Key == "ce_source" {
				source = string(h.Value)
			}
		}
		if source != "/orders/app."+name {
			t.Errorf("the source of table %s is %q", name, source)
		}
	}
}

func TestWatches(t *testing.T) {
	t.Parallel()
	names := []string{"app.outbox", "shop_%.`out box`", "all.%"}
	for table, want := range map[string]bool{"app.outbox": true, "app.outbox2": false, "shop_1.`out box`": true, "shop_1%.`out box`": true, "shop_%.`out box`": true, "all.x": true, "all.x%": true, "%.x": false, "al%.x": false} {
		if got := router.Watches(names, table); got != want {
			t.Errorf("%s: %t", table, got)
		}
	}
}
