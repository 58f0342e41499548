package router_test

import (
	"testing"

	"outbox-relay/router"
)

func TestTopicsAreFixedOrPatterns(t *testing.T) {
	t.Parallel()
	r, err := router.New(router.Options{Rules: []router.Rule{
		{Table: "app.a"},
		{Table: "app.b", Topic: "fixed.one"},
		{Table: "app.c", Topic: "x.{tenant}.events"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got := r.Topics()
	if len(got) != 3 || got[0].Rule != 0 || got[2].Table.String() != "app.c" {
		t.Fatalf("got %v", got)
	}
	if got[0].Topic != "" || got[0].Template != "outbox.event.{aggregate_type}" || got[1].Topic != "fixed.one" {
		t.Errorf("got %+v", got)
	}
	for _, c := range []struct {
		use  int
		name string
		want bool
	}{
		{0, "outbox.event.order", true}, {0, "outbox.event.", false}, {0, "my.outbox.event.order", false}, {0, "outboxXevent.order", false},
		{1, "fixed.one", true}, {1, "fixed.one.more", false},
		{2, "x.t1.events", true}, {2, "x.t1.eventsX", false},
	} {
		if got[c.use].Matches(c.name) != c.want {
			t.Errorf("rule %d, topic %s: want %t", c.use, c.name, c.want)
		}
	}
}
