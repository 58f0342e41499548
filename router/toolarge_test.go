package router_test

import (
	"errors"
	"strings"
	"testing"

	"outbox-relay/binlog/event"
	"outbox-relay/router"
)

var dropped = event.Cell{State: event.CellDropped}

// routeLarge routes a row of which the binlog holds 3,000,000 bytes where 1,000,000 are allowed.
func routeLarge(t *testing.T, cells []event.Cell, rules ...router.Rule) (router.Outcome, *router.Poison, *router.Record) {
	t.Helper()
	r, b := prepare(t, plainTable(), rules...)
	large, rec := meta, new(router.Record)
	large.Size, large.Limit = 3_000_000, 1_000_000
	outcome, err := r.Route(b, cells, large, 5, rec)
	var p *router.Poison
	if err != nil && !errors.As(err, &p) {
		t.Fatal(err)
	}
	return outcome, p, rec
}

func TestRowBeyondTheLimitIsPoisonWithWhatWasKept(t *testing.T) {
	t.Parallel()
	rule := none(func(r *router.Rule) {
		r.Topic, r.Poison = "topic.{e}", "skip"
		r.When = map[string][]string{"e": {"x"}}
		r.Headers = []router.HeaderRule{{Name: "a", Value: "{k}"}, {Name: "*", Value: "{j}"}}
	})
	for name, cells := range map[string][]event.Cell{
		"value dropped":            plain("v", dropped),
		"value and header dropped": plain("v", dropped, "j", dropped),
		"nothing dropped":          plain(), // a low limit, and every value is short
		"another fault as well":    plain("v", dropped, "k", null),
	} {
		outcome, p, rec := routeLarge(t, cells, rule)
		if outcome != router.Rejected || p == nil || p.Reason != router.ReasonRowTooLarge || p.Policy != "skip" || p.Rule != 0 || p.Topic != "topic.x" || p.Position != gtidText+"#5" {
			t.Errorf("%s: %v, %+v", name, outcome, p)
			continue
		}
		if text := p.Error(); !strings.Contains(text, "the row has 3000000 bytes, limits.row allows 1000000") || strings.Contains(text, "row image") {
			t.Errorf("%s: %s", name, text)
		}
		if wantValue := map[bool]string{true: "NULL", false: `"val"`}[cells[1].State == event.CellDropped]; show(rec.Value) != wantValue || rec.Topic != "topic.x" {
			t.Errorf("%s: topic %s, value %s", name, rec.Topic, show(rec.Value))
		}
	}
}

func TestRowBeyondTheLimitIsIgnoredByShortColumns(t *testing.T) {
	t.Parallel()
	rule := none(func(r *router.Rule) { r.When, r.Otherwise = map[string][]string{"e": {"other"}}, "ignore" })
	if outcome, p, _ := routeLarge(t, plain("v", dropped), rule); outcome != router.Ignored || p != nil {
		t.Errorf("%v, %v", outcome, p)
	}
	// Whether the condition holds is unknown: the row must not be ignored.
	outcome, p, _ := routeLarge(t, plain("e", dropped), rule)
	if outcome != router.Rejected || p.Reason != router.ReasonRowTooLarge || p.Field != "when" || p.Column != "e" || !strings.Contains(p.Detail, "limits.row allows 1000000, so the column was not kept") {
		t.Errorf("%v, %+v", outcome, p)
	}
	// Nor may it pass because of a rule that no row can match.
	rule.Otherwise = "poison"
	if outcome, p, _ := routeLarge(t, plain("v", dropped), rule); outcome != router.Unmatched || p.Reason != router.ReasonUnmatched {
		t.Errorf("%v, %+v", outcome, p)
	}
}

// The server leaves columns out of the image with binlog_row_image=MINIMAL; raising limits.row would not bring them back.
func TestColumnThatTheImageLacksIsNotBlamedOnTheSize(t *testing.T) {
	t.Parallel()
	rule := none(func(r *router.Rule) { r.When = map[string][]string{"e": {"x"}} })
	if _, p, _ := routeLarge(t, plain("e", absent, "v", dropped), rule); p == nil || p.Reason != router.ReasonMissingColumn || !strings.Contains(p.Detail, "binlog_row_image") {
		t.Errorf("%+v", p)
	}
}
