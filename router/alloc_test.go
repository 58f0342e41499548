package router_test

import (
	"runtime"
	"strings"
	"testing"

	"outbox-relay/binlog/event"
	"outbox-relay/router"
	"outbox-relay/router/debezium"
)

func prepare(tb testing.TB, tbl *event.Table, rules ...router.Rule) (*router.Router, *router.Binding) {
	tb.Helper()
	r, err := router.New(router.Options{Rules: rules})
	if err != nil {
		tb.Fatal(err)
	}
	b, err := r.Bind(tbl)
	if err != nil {
		tb.Fatal(err)
	}
	return r, b
}

// everything is a rule that goes through each part of the code on the way of a good row.
var everything = router.Rule{Table: "app.outbox_events", Value: `{{"k":"{idempotency_key|hex}","p":{payload}}}`, Timestamp: "created_at", TimeZone: "Europe/Berlin",
	Partition: "attempts", When: map[string][]string{"event_type": {"OrderPlaced", "OrderPaid"}, "status": {"PENDING"}},
	Headers: []router.HeaderRule{{Name: "*", Value: "{payload}"}, {Name: "mixed", Value: "{aggregate_type}/{aggregate_id}"}, {Name: "nothing", Value: "{locked_by}"}}}

// Not parallel: allocations of other tests would count.
func TestRouteDoesNotAllocate(t *testing.T) {
	other := everything
	other.When = map[string][]string{"event_type": {"Other"}}
	for name, rules := range map[string][]router.Rule{
		"preset":            {{Table: "app.outbox_events"}},
		"everything":        {other, everything},
		"binary event":      {{Table: "app.outbox_events", Preset: "cloudevents"}},
		"structured event":  {{Table: "app.outbox_events", Preset: "cloudevents", CloudEvents: &router.CloudEvents{Mode: "structured", ID: "{id}", Source: "/s/{aggregate_type}", Type: "{event_type}", DataContentType: "application/json"}}},
		"checked event":     {{Table: "app.outbox_events", Preset: "cloudevents", Value: `{{"p":{payload}}}`, CloudEvents: &router.CloudEvents{Mode: "structured", ID: "{id}", Source: "/s", Type: "{event_type}", DataContentType: "application/json"}}},
		"ignored unmatched": {{Table: "app.outbox_events", When: other.When, Otherwise: "ignore"}},
	} {
		r, b := prepare(t, outboxTable(), rules...)
		cells := outboxRow()
		rec := new(router.Record)
		allocs := testing.AllocsPerRun(100, func() {
			if _, err := r.Route(b, cells, meta, 12345, rec); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations per row, want 0", name, allocs)
		}
	}
}

// Topic names and header names from data must not pile up, and names in steady use must not cost an allocation each.
func TestNamesFromDataAreBounded(t *testing.T) {
	r, err := router.New(router.Options{MaxTopics: 8, Rules: []router.Rule{none(func(r *router.Rule) { r.Topic = "t.{e}" })}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Bind(plainTable())
	if err != nil {
		t.Fatal(err)
	}
	rec := new(router.Record)
	run := func(names int) {
		for i := range names {
			name := strings.Repeat("x", i+1)
			if _, err := r.Route(b, plain("e", text(name)), meta, 0, rec); err != nil || rec.Topic != "t."+name {
				t.Fatalf("topic %s, %v", rec.Topic, err)
			}
		}
	}
	run(200)
	if kept := router.KeptTopics(r); kept > 8 {
		t.Errorf("%d topic names are kept, 8 are allowed", kept)
	}
	cells := plain("e", text("same"))
	if allocs := testing.AllocsPerRun(100, func() { _, _ = r.Route(b, cells, meta, 0, rec) }); allocs != 0 {
		t.Errorf("%v allocations for a topic in steady use", allocs)
	}
}

func TestLargeBufferIsNotKept(t *testing.T) {
	t.Parallel()
	r, b := prepare(t, plainTable(), none(nil))
	rec := new(router.Record)
	for _, size := range []int{8 << 20, 1, 1} {
		if _, err := r.Route(b, plain("v", raw(make([]byte, size))), meta, 0, rec); err != nil {
			t.Fatal(err)
		}
	}
	if kept := router.BufferSize(rec); kept > 1<<20 {
		t.Errorf("%d bytes are kept after a large row", kept)
	}
}

func BenchmarkRoute(b *testing.B) {
	payload := raw(jsonDocument(member{"order_id", "2f4e0c2a-0000-4000-8000-00000000002a"}, member{"customer", int16(4711)}, member{"currency", "EUR"},
		member{"lines", []member{{"sku", "A-1"}, {"quantity", int16(2)}, {"price", int16(1999)}}}, member{"paid", true}, member{"note", strings.Repeat("n", 100)}))
	noJSON := none(func(r *router.Rule) {
		r.Table, r.Topic, r.Key, r.Value = "app.outbox_events", "outbox.event.{aggregate_type}", "{aggregate_id}", "{last_error}"
		for _, column := range []string{"id", "event_type", "aggregate_type", "idempotency_key"} {
			r.Headers = append(r.Headers, router.HeaderRule{Name: column, Value: "{" + column + "}"})
		}
	})
	for _, c := range []struct {
		name string
		rule router.Rule
	}{
		{"preset", router.Rule{Table: "app.outbox_events"}},
		{"preset-text-payload", noJSON},
		{"everything", everything},
		{"debezium", router.Rule{Table: "app.outbox_events", Preset: "debezium", Debezium: &debezium.Options{Key: "aggregate_id", RouteBy: "aggregate_type"}}},
		{"debezium-json-with-schema", router.Rule{Table: "app.outbox_events", Preset: "debezium", Debezium: &debezium.Options{
			Key: "aggregate_id", RouteBy: "aggregate_type", KeyConverter: "json-with-schema", ValueConverter: "json-with-schema"}}},
		{"debezium-expanded", router.Rule{Table: "app.outbox_events", Preset: "debezium", Debezium: &debezium.Options{
			Key: "aggregate_id", RouteBy: "aggregate_type", ValueConverter: "json", ExpandJSON: true}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r, binding := prepare(b, outboxTable(), c.rule)
			cells := outboxRow()
			cells[colPayload] = payload
			cells[5] = raw([]byte{1})
			cells[9] = text(strings.Repeat("p", 260))
			rec := new(router.Record)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := r.Route(binding, cells, meta, i, rec); err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(rec.Value)))
		})
	}
}

// A large value must not be moved by what comes behind it, nor grow step by step.
func TestLargeValueIsCopiedOnce(t *testing.T) {
	const size = 8 << 20
	tbl := plainTable()
	r, b := prepare(t, tbl, none(func(r *router.Rule) {
		r.Headers = []router.HeaderRule{{Name: "a", Value: "{k}"}, {Name: "b", Value: "{e}"}}
	}))
	cells, rec := plain("v", raw(make([]byte, size))), new(router.Record)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := r.Route(b, cells, meta, 0, rec)
	runtime.ReadMemStats(&after)
	if err != nil || len(rec.Value) != size {
		t.Fatalf("a value of %d bytes, %v", len(rec.Value), err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > size+size/16 {
		t.Errorf("%d bytes are allocated for a value of %d", got, size)
	}
	rec.Release()
	if kept := router.BufferSize(rec); kept != 0 {
		t.Errorf("%d bytes are kept of a released large record", kept)
	}
}
