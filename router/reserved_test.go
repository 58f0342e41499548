package router_test

import (
	"errors"
	"testing"

	"outbox-relay/router"
)

// No record goes where dead letters or checkpoints are, whether the rule names the topic or the row does.
func TestNoRecordGoesToAReservedTopic(t *testing.T) {
	t.Parallel()
	o := router.Options{Reserved: map[string]string{"dead": "dead letters"}}
	o.Rules = []router.Rule{none(func(r *router.Rule) { r.Topic = "dead" })}
	var faults router.Faults
	if _, err := router.New(o); !errors.As(err, &faults) || len(faults) != 1 || faults[0].Field != "topic" || faults[0].Text != "dead is the topic of the relay's dead letters" {
		t.Errorf("a rule that names the topic: %v", err)
	}
	o.Rules = []router.Rule{none(func(r *router.Rule) { r.Topic = "{e}" })}
	r, err := router.New(o)
	if err != nil {
		t.Fatal(err)
	}
	tbl := plainTable()
	b, err := r.Bind(tbl)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // names are remembered
		var rec router.Record
		var p *router.Poison
		outcome, err := r.Route(b, plain("e", text("dead")), router.Meta{}, 0, &rec)
		if outcome != router.Rejected || !errors.As(err, &p) || p.Reason != router.ReasonInvalidTopic || p.Topic != "dead" || rec.Topic != "" {
			t.Errorf("a row that names the topic: %v, %v", outcome, err)
		}
		if outcome, err := r.Route(b, plain("e", text("dead-not")), router.Meta{}, 0, &rec); outcome != router.Routed {
			t.Errorf("another topic: %v, %v", outcome, err)
		}
	}
}
