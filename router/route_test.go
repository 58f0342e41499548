package router_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/binlog/event"
	"outbox-relay/router"
)

const gtidText = "3e11fa47-71ca-11e1-9e33-c80aa9429562:23"

var meta = router.Meta{Position: []byte(gtidText), CommitMicros: 1_700_000_000_123_999}

// route takes one row through New, Bind and Route with the rules of one table.
func route(t *testing.T, tbl *event.Table, cells []event.Cell, rules ...router.Rule) (router.Outcome, *router.Record, error) {
	t.Helper()
	r, err := router.New(router.Options{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Bind(tbl)
	if err != nil {
		t.Fatal(err)
	}
	rec := new(router.Record)
	outcome, err := r.Route(b, cells, meta, 5, rec)
	return outcome, rec, err
}

// mustRoute is route for a row that is not poison.
func mustRoute(t *testing.T, tbl *event.Table, cells []event.Cell, rules ...router.Rule) *router.Record {
	t.Helper()
	outcome, rec, err := route(t, tbl, cells, rules...)
	if err != nil || outcome != router.Routed {
		t.Fatalf("%v, %v", outcome, err)
	}
	return rec
}

// poisoned is route for a row that is.
func poisoned(t *testing.T, tbl *event.Table, cells []event.Cell, rules ...router.Rule) (*router.Poison, *router.Record) {
	t.Helper()
	outcome, rec, err := route(t, tbl, cells, rules...)
	var p *router.Poison
	if !errors.As(err, &p) {
		t.Fatalf("%v, %v, want a *Poison", outcome, err)
	}
	if want := map[bool]router.Outcome{true: router.Unmatched, false: router.Rejected}[p.Reason == router.ReasonUnmatched]; outcome != want {
		t.Fatalf("outcome %v with reason %s", outcome, p.Reason)
	}
	return p, rec
}

// show writes bytes with the difference between null and empty.
func show(b []byte) string {
	if b == nil {
		return "NULL"
	}
	return fmt.Sprintf("%q", b)
}

func showHeaders(t *testing.T, headers []router.Header) (list []string) {
	t.Helper()
	for _, h := range headers {
		if h.Null != (h.Value == nil) {
			t.Errorf("header %s: Null is %v, Value %s", h.Key, h.Null, show(h.Value))
		}
		list = append(list, h.Key+"="+show(h.Value))
	}
	return list
}

func TestOutboxPreset(t *testing.T) {
	t.Parallel()
	rec := mustRoute(t, outboxTable(), outboxRow(), router.Rule{Table: "app.outbox_events",
		Headers: []router.HeaderRule{{Name: "status", Value: "{STATUS}"}, {Name: "source", Value: "shop"}, {Name: "status", Value: "twice"}}})
	want := []string{
		"outbox.event.order", `"4711"`, fmt.Sprintf("%q", outboxPayload), "1700000000123", "-1", "app.outbox_events", `"18446744073709551615"`,
		`id="18446744073709551615"`, `event_type="OrderPlaced"`, `aggregate_type="order"`, `idempotency_key="2f4e0c2a-0000-4000-8000-00000000002a"`,
		`status="PENDING"`, `source="shop"`, `status="twice"`, `outbox-relay-position="` + gtidText + `#5"`,
	}
	got := append([]string{rec.Topic, show(rec.Key), show(rec.Value), fmt.Sprint(rec.TimestampMillis), fmt.Sprint(rec.Partition), rec.Table, show(rec.ID)},
		showHeaders(t, rec.Headers)...)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

func TestOutboxPresetWithoutIdempotencyKey(t *testing.T) {
	t.Parallel()
	tbl := outboxTable()
	tbl.Columns = tbl.Columns[:colPayload+1]
	rec := mustRoute(t, tbl, outboxRow()[:colPayload+1], router.Rule{Table: "app.outbox_events", Preset: "outbox"})
	want := []string{`id="18446744073709551615"`, `event_type="OrderPlaced"`, `aggregate_type="order"`, `outbox-relay-position="` + gtidText + `#5"`}
	if diff := cmp.Diff(want, showHeaders(t, rec.Headers)); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}

func TestRuleOverridesPreset(t *testing.T) {
	t.Parallel()
	rec := mustRoute(t, outboxTable(), outboxRow(), router.Rule{Table: "app.outbox_events", Topic: "orders", Key: "{aggregate_type}-{aggregate_id}",
		Value: `{{"type":"{event_type}","data":{payload}}}`})
	if rec.Topic != "orders" || string(rec.Key) != "order-4711" || string(rec.Value) != `{"type":"OrderPlaced","data":`+outboxPayload+`}` {
		t.Errorf("topic %s, key %s, value %s", rec.Topic, rec.Key, rec.Value)
	}
}

// The columns of the plain table, each of which is used by some rule below.
func plainTable() *event.Table {
	number := ofType("n", event.ColumnLongLong, 0)
	return table(varchar("k"), varchar("v"), varchar("e"), varbinary("b"), ofType("j", event.ColumnJSON, 4), number,
		ofType("at", event.ColumnDatetime, 6), ofType("ts", event.ColumnTimestamp, 0))
}

// plain gives a row of plainTable; pairs are a column's name and its cell.
func plain(pairs ...any) []event.Cell {
	cells := []event.Cell{text("key"), text("val"), text("x"), raw([]byte("0123456789abcdef")), null, bigint(3), null, null}
	names := map[string]int{"k": 0, "v": 1, "e": 2, "b": 3, "j": 4, "n": 5, "at": 6, "ts": 7}
	for i := 0; i < len(pairs); i += 2 {
		cells[names[pairs[i].(string)]] = pairs[i+1].(event.Cell)
	}
	return cells
}

func TestNullIsNotEmpty(t *testing.T) {
	t.Parallel()
	allow := none(func(r *router.Rule) {
		r.NullKey, r.Tombstone, r.Headers = "allow", true, []router.HeaderRule{{Name: "h", Value: "{e}"}, {Name: "b", Value: "{b|uuid}"}}
	})
	for _, c := range []struct {
		name  string
		cells []event.Cell
		want  string
	}{
		{"values", plain(), `"key" "val" h="x" b="30313233-3435-3637-3839-616263646566"`},
		{"all empty", plain("k", text(""), "v", text(""), "e", text("")), `"" "" h="" b="30313233-3435-3637-3839-616263646566"`},
		{"all null", plain("k", null, "v", null, "e", null, "b", null), `NULL NULL h=NULL b=NULL`},
	} {
		rec := mustRoute(t, plainTable(), c.cells, allow)
		headers := showHeaders(t, rec.Headers)
		got := show(rec.Key) + " " + show(rec.Value) + " " + strings.Join(headers[:len(headers)-1], " ")
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// An empty document is what INSERT IGNORE of a NULL leaves in a NOT NULL column. The server prints it as null, and IS NULL is false for it.
func TestEmptyJSONDocumentIsTheTextNull(t *testing.T) {
	t.Parallel()
	rec := mustRoute(t, plainTable(), plain("j", raw([]byte{})), none(func(r *router.Rule) { r.Value = "{j}" }))
	if show(rec.Value) != `"null"` {
		t.Errorf("value %s", show(rec.Value))
	}
}

func TestRuleWithoutKey(t *testing.T) {
	t.Parallel()
	rec := mustRoute(t, plainTable(), plain(), router.Rule{Table: "app.t", Preset: "none", Topic: "t", Value: "{v}", NullKey: "allow"})
	if rec.Key != nil {
		t.Errorf("key %s, want NULL", show(rec.Key))
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	id := []byte{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	for _, c := range []struct {
		template string
		bytes    []byte
		want     string
	}{
		{"{b}", id, string(id)},
		{"{b|uuid}", id, "00112233-4455-6677-8899-aabbccddeeff"},
		{"<{b|uuid}>", id, "<00112233-4455-6677-8899-aabbccddeeff>"},
		{"{b|hex}", id, "00112233445566778899aabbccddeeff"},
		{"{b|hex}", []byte{}, ""},
		{"{b|base64}", id, "ABEiM0RVZneImaq7zN3u/w=="},
		{"{b|base64}{b|hex}", []byte{0xfb}, "+w==fb"},
		{"{e|hex}", nil, "78"},
	} {
		rec := mustRoute(t, plainTable(), plain("b", raw(c.bytes)), none(func(r *router.Rule) { r.Key = c.template }))
		if string(rec.Key) != c.want || rec.Key == nil {
			t.Errorf("%s of %x: %s, want %q", c.template, c.bytes, show(rec.Key), c.want)
		}
	}
}

func TestBinary16EndingInZeroKeepsItsBytes(t *testing.T) {
	t.Parallel()
	tbl := table(varchar("v"), event.Column{Name: "k", Type: event.ColumnString, Meta: 16, Collation: event.CollationBinary})
	short := []byte{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd} // the server cuts trailing zeros
	for template, want := range map[string]string{"{k}": string(short) + "\x00\x00", "{k|uuid}": "00112233-4455-6677-8899-aabbccdd0000"} {
		rec := mustRoute(t, tbl, []event.Cell{text("x"), raw(short)}, none(func(r *router.Rule) { r.Key = template }))
		if string(rec.Key) != want {
			t.Errorf("%s: %q, want %q", template, rec.Key, want)
		}
	}
}

func TestSpreadHeaders(t *testing.T) {
	t.Parallel()
	rule := none(func(r *router.Rule) {
		r.Headers = []router.HeaderRule{{Name: "first", Value: "1"}, {Name: "*", Value: "{j}"}, {Name: "last", Value: "2"}}
	})
	for _, c := range []struct {
		name string
		cell event.Cell
		want []string
	}{
		{"NULL", null, nil},
		{"empty object", raw(jsonDocument()), nil},
		{"members", raw(jsonDocument(member{"traceparent", "00-ab"}, member{"n", int16(7)}, member{"none", nil}, member{"e", ""}, member{"q\"\n", "a\"\\\x01é"},
			member{"deep", []member{{"a", true}}})),
			[]string{`e=""`, `n="7"`, "q\"\n=" + `"a\"\\\x01é"`, `deep="{\"a\": true}"`, `none=NULL`, `traceparent="00-ab"`}},
	} {
		rec := mustRoute(t, plainTable(), plain("j", c.cell), rule)
		want := append(append([]string{`first="1"`}, c.want...), `last="2"`, `outbox-relay-position="`+gtidText+`#5"`)
		if diff := cmp.Diff(want, showHeaders(t, rec.Headers)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

func TestTimestamps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		column, zone string
		cells        []event.Cell
		want         int64
	}{
		{"", "", plain(), 1700000000123},
		{"n", "", plain("n", bigint(1234)), 1234},
		{"n", "", plain("n", bigint(0)), 0},
		{"{at}", "", plain("at", datetime(2020, 1, 2, 3, 4, 5, 678999)), 1577934245678},
		{"at", "Asia/Tokyo", plain("at", datetime(2020, 1, 2, 3, 4, 5, 678999)), 1577934245678 - 9*3600_000},
		{"at", "Europe/Berlin", plain("at", datetime(2020, 7, 1, 12, 0, 0, 0)), 1593597600000},
		{"ts", "Asia/Tokyo", plain("ts", timestamp(1577934245)), 1577934245000},
	} {
		rec := mustRoute(t, plainTable(), c.cells, none(func(r *router.Rule) { r.Timestamp, r.TimeZone = c.column, c.zone }))
		if rec.TimestampMillis != c.want {
			t.Errorf("column %q zone %q: %d, want %d", c.column, c.zone, rec.TimestampMillis, c.want)
		}
	}
}

func TestPartitionColumn(t *testing.T) {
	t.Parallel()
	for _, n := range []uint64{0, 7, 2147483647} {
		rec := mustRoute(t, plainTable(), plain("n", bigint(n)), none(func(r *router.Rule) { r.Partition = "N" }))
		if uint64(rec.Partition) != n {
			t.Errorf("partition %d, want %d", rec.Partition, n)
		}
	}
}

func TestFirstRuleThatMatchesCounts(t *testing.T) {
	t.Parallel()
	rules := []router.Rule{
		none(func(r *router.Rule) { r.Topic = "first"; r.When = map[string][]string{"e": {"x", "y"}, "n": {"1"}} }),
		none(func(r *router.Rule) {
			r.Topic = "second"
			r.When = map[string][]string{"E": {"x"}}
			r.Otherwise = "ignore"
		}),
		none(func(r *router.Rule) { r.Topic = "third"; r.When = map[string][]string{"n": {"2"}} }),
	}
	for _, c := range []struct {
		cells []event.Cell
		want  string // "" = ignored
	}{
		{plain("e", text("x"), "n", bigint(1)), "first"},
		{plain("e", text("x"), "n", bigint(2)), "second"},
		{plain("e", text("y"), "n", bigint(2)), "third"},
		{plain("e", null, "n", bigint(2)), "third"},
		{plain("e", text("X"), "n", bigint(1)), ""},
		{plain("e", text(""), "n", null), ""},
	} {
		outcome, rec, err := route(t, plainTable(), c.cells, rules...)
		if c.want == "" {
			if outcome != router.Ignored || err != nil {
				t.Errorf("%v, %v, want ignored", outcome, err)
			}
			continue
		}
		if err != nil || rec.Topic != c.want {
			t.Errorf("topic %s, %v, want %s", rec.Topic, err, c.want)
		}
	}
}

func TestWrongNumberOfCellsIsNotPoison(t *testing.T) {
	t.Parallel()
	outcome, _, err := route(t, plainTable(), plain()[:3], none(nil))
	var p *router.Poison
	if err == nil || errors.As(err, &p) || outcome != 0 {
		t.Errorf("%v, %v, want an error that is no poison", outcome, err)
	}
}

// A Record is used again and again: nothing of the last row may stay.
func TestRecordKeepsNothingOfTheLastRow(t *testing.T) {
	t.Parallel()
	r, err := router.New(router.Options{Rules: []router.Rule{none(func(r *router.Rule) {
		r.NullKey, r.Tombstone, r.Partition = "allow", true, "n"
		r.Headers = []router.HeaderRule{{Name: "*", Value: "{j}"}, {Name: "h", Value: "{e}"}}
	})}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Bind(plainTable())
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("long", 5000)
	rec := new(router.Record)
	for i, c := range []struct {
		cells []event.Cell
		want  string
	}{
		{plain("k", text("a"), "v", text(long), "j", raw(jsonDocument(member{"one", "1"}, member{"two", long}))), fmt.Sprintf("%q %q 3 [one=%q two=%q h=\"x\"]", "a", long, "1", long)},
		{plain("k", null, "v", null, "e", null, "n", bigint(0)), `NULL NULL 0 [h=NULL]`},
		{plain("k", text(""), "v", text("b"), "n", bigint(9)), `"" "b" 9 [h="x"]`},
	} {
		if _, err := r.Route(b, c.cells, meta, i, rec); err != nil {
			t.Fatal(err)
		}
		headers := showHeaders(t, rec.Headers)
		if want := fmt.Sprintf(`outbox-relay-position="%s#%d"`, gtidText, i); headers[len(headers)-1] != want {
			t.Errorf("row %d: %s, want %s", i, headers[len(headers)-1], want)
		}
		if got := fmt.Sprintf("%s %s %d %s", show(rec.Key), show(rec.Value), rec.Partition, headers[:len(headers)-1]); got != c.want {
			t.Errorf("row %d: %.200s, want %.200s", i, got, c.want)
		}
	}
}
