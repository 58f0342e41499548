package router_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"outbox-relay/router"
)

// Topics that are remembered are those that a router without memory gives, also where columns of equal length and end take turns, and those that no broker takes.
func TestTopicsOfRowsBeforeAreTheRight(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for _, template := range []string{"outbox.event.{aggregate_type}", "{aggregate_type}", "{aggregate_type}.{event_type}", "{aggregate_type|hex}", "fixed"} {
		rule := router.Rule{Table: "app.outbox_events", Topic: template}
		r, b := prepare(t, outboxTable(), rule)
		var rec router.Record
		for i := range 2000 {
			kinds := []string{"order", "refer", "ab1", "cd1", "ab2", "a b", "", "payment", "shipment", "é"}
			kind, event := kinds[random.IntN(len(kinds))], fmt.Sprint("E", random.IntN(3))
			cells := outboxRow()
			cells[colAggregateType], cells[colEventType] = text(kind), text(event)
			outcome, err := r.Route(b, cells, router.Meta{Position: []byte("g:1")}, i, &rec)
			fresh, without := prepare(t, outboxTable(), rule)
			var want router.Record
			wantOutcome, wantErr := fresh.Route(without, cells, router.Meta{Position: []byte("g:1")}, i, &want)
			if outcome != wantOutcome || rec.Topic != want.Topic || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("template %s, %q, %q: topic %q, %v, %v; without memory %q, %v, %v", template, kind, event, rec.Topic, outcome, err, want.Topic, wantOutcome, wantErr)
			}
		}
	}
}
