package router_test

import (
	"slices"
	"strings"
	"testing"

	"outbox-relay/binlog/event"
	"outbox-relay/router"
)

func TestPoison(t *testing.T) {
	t.Parallel()
	header := func(name, value string) func(*router.Rule) {
		return func(r *router.Rule) { r.Headers = []router.HeaderRule{{Name: name, Value: value}} }
	}
	spread := header("*", "{j}")
	topic := func(r *router.Rule) { r.Topic = "{e}" }
	when := func(r *router.Rule) { r.When = map[string][]string{"e": {"x"}} }
	stamp := func(column string) func(*router.Rule) { return func(r *router.Rule) { r.Timestamp = column } }
	partition := func(r *router.Rule) { r.Partition = "n" }
	for _, c := range []struct {
		name   string
		change func(*router.Rule)
		cells  []event.Cell
		reason router.Reason
		field  string
		column string
	}{
		{"null key", nil, plain("k", null), router.ReasonNullKey, "key", "k"},
		{"null value", nil, plain("v", null), router.ReasonNullValue, "value", "v"},
		{"null topic", topic, plain("e", null), router.ReasonNullTopic, "topic", "e"},
		{"null beside text in the key, nulls allowed", func(r *router.Rule) { r.Key, r.NullKey = "a{k}", "allow" }, plain("k", null), router.ReasonNullInTemplate, "key", "k"},
		{"null beside text in the value, tombstones allowed", func(r *router.Rule) { r.Value, r.Tombstone = "{e}{v}", true }, plain("v", null), router.ReasonNullInTemplate, "value", "v"},
		{"null beside text in a header", header("h", "{e}-{v}"), plain("e", null), router.ReasonNullInTemplate, "headers[0]", "e"},
		{"null beside text in the topic", func(r *router.Rule) { r.Topic = "t.{e}" }, plain("e", null), router.ReasonNullInTemplate, "topic", "e"},

		{"key not in the image, nulls allowed", func(r *router.Rule) { r.NullKey = "allow" }, plain("k", absent), router.ReasonMissingColumn, "key", "k"},
		{"value not in the image, tombstones allowed", func(r *router.Rule) { r.Tombstone = true }, plain("v", absent), router.ReasonMissingColumn, "value", "v"},
		{"header not in the image", header("h", "{e}"), plain("e", absent), router.ReasonMissingColumn, "headers[0]", "e"},
		{"spread not in the image", spread, plain("j", absent), router.ReasonMissingColumn, "headers[0]", "j"},
		{"topic not in the image", topic, plain("e", absent), router.ReasonMissingColumn, "topic", "e"},
		{"condition not in the image", when, plain("e", absent), router.ReasonMissingColumn, "when", "e"},
		{"timestamp not in the image", stamp("at"), plain("at", absent), router.ReasonMissingColumn, "timestamp", "at"},
		{"partition not in the image", partition, plain("n", absent), router.ReasonMissingColumn, "partition", "n"},

		{"empty topic", topic, plain("e", text("")), router.ReasonInvalidTopic, "topic", ""},
		{"dots", topic, plain("e", text("..")), router.ReasonInvalidTopic, "topic", ""},
		{"blank in topic", topic, plain("e", text("a b")), router.ReasonInvalidTopic, "topic", ""},
		{"long topic", topic, plain("e", text(strings.Repeat("x", 250))), router.ReasonInvalidTopic, "topic", ""},
		{"topic of the brokers", topic, plain("e", text("__consumer_offsets")), router.ReasonInvalidTopic, "topic", ""},

		{"uuid of 15 bytes", func(r *router.Rule) { r.Key = "{b|uuid}" }, plain("b", raw(make([]byte, 15))), router.ReasonInvalidFilter, "key", "b"},
		{"damaged number", nil, nil, router.ReasonUndecodable, "key", "k"},
		{"damaged JSON", func(r *router.Rule) { r.Value = "{j}" }, plain("j", raw([]byte{0, 9, 0, 9, 0})), router.ReasonUndecodable, "value", "j"},

		{"array spread", spread, plain("j", raw([]byte{2, 0, 0, 4, 0})), router.ReasonInvalidHeaders, "headers[0]", "j"},
		{"JSON null spread", spread, plain("j", raw([]byte{4, 0})), router.ReasonInvalidHeaders, "headers[0]", "j"},
		{"empty name spread", spread, plain("j", raw(jsonDocument(member{"", "x"}))), router.ReasonInvalidHeaders, "headers[0]", "j"},
		{"position forged", spread, plain("j", raw(jsonDocument(member{"a", "1"}, member{"outbox-relay-position", "x"}))), router.ReasonInvalidHeaders, "headers[0]", "j"},

		{"null timestamp", stamp("at"), plain("at", null), router.ReasonInvalidTimestamp, "timestamp", "at"},
		{"zero date", stamp("at"), plain("at", datetime(0, 0, 0, 0, 0, 0, 0)), router.ReasonInvalidTimestamp, "timestamp", "at"},
		{"date without day", stamp("at"), plain("at", datetime(2020, 2, 0, 0, 0, 0, 0)), router.ReasonInvalidTimestamp, "timestamp", "at"},
		{"zero TIMESTAMP", stamp("ts"), plain("ts", timestamp(0)), router.ReasonInvalidTimestamp, "timestamp", "ts"},
		{"before 1970", stamp("at"), plain("at", datetime(1969, 12, 31, 23, 59, 59, 999999)), router.ReasonInvalidTimestamp, "timestamp", "at"},
		{"negative timestamp", stamp("n"), plain("n", bigint(1<<64-1)), router.ReasonInvalidTimestamp, "timestamp", "n"},
		{"null partition", partition, plain("n", null), router.ReasonInvalidPartition, "partition", "n"},
		{"negative partition", partition, plain("n", bigint(1<<64-1)), router.ReasonInvalidPartition, "partition", "n"},
		{"partition too large", partition, plain("n", bigint(2147483648)), router.ReasonInvalidPartition, "partition", "n"},
	} {
		tbl, cells := plainTable(), c.cells
		if cells == nil { // a number of three bytes where eight are due
			tbl.Columns[0] = ofType("k", event.ColumnLongLong, 0)
			cells = plain("k", raw([]byte{1, 2, 3}))
		}
		rule := none(c.change)
		rule.Poison = "skip"
		p, rec := poisoned(t, tbl, cells, rule)
		if p.Reason != c.reason || p.Field != c.field || p.Column != c.column {
			t.Errorf("%s: reason %s field %s column %s, want %s %s %s", c.name, p.Reason, p.Field, p.Column, c.reason, c.field, c.column)
		}
		if c.column != "" && !strings.Contains(p.Error(), ", column "+c.column+": ") {
			t.Errorf("%s: %q does not name the column", c.name, p)
		}
		if p.Table != "app.t" || p.Rule != 0 || p.Policy != "skip" || p.Position != gtidText+"#5" {
			t.Errorf("%s: incomplete: %+v", c.name, p)
		}
		if last := rec.Headers[len(rec.Headers)-1]; last.Key != router.PositionHeader || string(last.Value) != p.Position {
			t.Errorf("%s: the record lost its position: %+v", c.name, last)
		}
	}
}

func TestUnsignedTimestampAboveInt64IsPoison(t *testing.T) {
	t.Parallel()
	tbl := plainTable()
	tbl.Columns[5].Unsigned = true
	for field, change := range map[string]func(*router.Rule){
		"timestamp": func(r *router.Rule) { r.Timestamp = "n" },
		"partition": func(r *router.Rule) { r.Partition = "n" },
	} {
		if p, _ := poisoned(t, tbl, plain("n", bigint(1<<64-1)), none(change)); p.Field != field {
			t.Errorf("%s: %v", field, p)
		}
	}
}

func TestPoisonRecordHoldsWhatThereIs(t *testing.T) {
	t.Parallel()
	tbl := plainTable()
	tbl.Columns[5].PrimaryKey = true
	rule := none(func(r *router.Rule) {
		r.Topic = "{e}"
		r.Headers = []router.HeaderRule{{Name: "a", Value: "{k}"}, {Name: "b", Value: "{b|uuid}"}, {Name: "c", Value: "c"}}
	})
	p, rec := poisoned(t, tbl, plain("v", text("secret"), "e", text("no topic"), "b", raw([]byte("short"))), rule)
	if p.Reason != router.ReasonInvalidTopic || p.Topic != "no topic" || rec.Topic != "" || p.ID != "3" {
		t.Errorf("reason %s, topic %q, record topic %q, id %s", p.Reason, p.Topic, rec.Topic, p.ID)
	}
	if got := show(rec.Key) + show(rec.Value); got != `"key""secret"` {
		t.Errorf("key and value %s", got)
	}
	want := []string{`a="key"`, `c="c"`, `outbox-relay-position="` + gtidText + `#5"`}
	if got := showHeaders(t, rec.Headers); !slices.Equal(got, want) {
		t.Errorf("headers %s, want %s", got, want)
	}
	for _, part := range []string{"app.t", `id "3"`, gtidText + "#5", "rule 0 topic", "invalid_topic", `"no topic"`} {
		if !strings.Contains(p.Error(), part) {
			t.Errorf("%q lacks %s", p.Error(), part)
		}
	}
	if strings.Contains(p.Error(), "secret") {
		t.Errorf("%q shows the payload", p.Error())
	}
}

func TestUnmatchedRowIsFilledByTheLastRule(t *testing.T) {
	t.Parallel()
	rule := func(value, policy string) router.Rule {
		return none(func(r *router.Rule) {
			r.When, r.Poison, r.Topic = map[string][]string{"e": {value}}, policy, "topic."+value
		})
	}
	p, rec := poisoned(t, plainTable(), plain("e", text("z")), rule("x", "skip"), rule("y", "skip"))
	if p.Reason != router.ReasonUnmatched || p.Rule != -1 || p.Policy != "skip" || p.Position != gtidText+"#5" || p.Topic != "topic.y" {
		t.Errorf("%+v", p)
	}
	if show(rec.Key) != `"key"` || show(rec.Value) != `"val"` || rec.Topic != "topic.y" {
		t.Errorf("record %s %s %s", rec.Topic, show(rec.Key), show(rec.Value))
	}
	// Rules of different minds leave the row to the general policy, also when the row lacks the columns for a dead letter.
	p, rec = poisoned(t, plainTable(), plain("e", text("z"), "v", absent), rule("x", "skip"), rule("y", "halt"))
	if p.Reason != router.ReasonUnmatched || p.Policy != "" || rec.Value != nil {
		t.Errorf("%+v, value %s", p, show(rec.Value))
	}
}

func TestSpreadThatFailsLeavesNoHeader(t *testing.T) {
	t.Parallel()
	rule := none(func(r *router.Rule) {
		r.Headers = []router.HeaderRule{{Name: "a", Value: "1"}, {Name: "*", Value: "{j}"}, {Name: "z", Value: "2"}}
	})
	_, rec := poisoned(t, plainTable(), plain("j", raw(jsonDocument(member{"x", "1"}, member{"dead-letter-reason", "y"}))), rule)
	want := []string{`a="1"`, `z="2"`, `outbox-relay-position="` + gtidText + `#5"`}
	if got := showHeaders(t, rec.Headers); !slices.Equal(got, want) {
		t.Errorf("headers %s, want %s", got, want)
	}
}

func TestIDForPeople(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*event.Table)
		cell   event.Cell // of column n
		want   string
	}{
		"no key":         {func(*event.Table) {}, bigint(3), "NULL"},
		"primary key":    {func(t *event.Table) { t.Columns[5].PrimaryKey = true }, bigint(3), `"3"`},
		"two columns":    {func(t *event.Table) { t.Columns[5].PrimaryKey, t.Columns[1].PrimaryKey = true, true }, bigint(3), "NULL"},
		"named ID":       {func(t *event.Table) { t.Columns[5].Name, t.Columns[1].PrimaryKey = "ID", true }, bigint(3), `"3"`},
		"NULL":           {func(t *event.Table) { t.Columns[5].PrimaryKey = true }, null, "NULL"},
		"not in the row": {func(t *event.Table) { t.Columns[5].PrimaryKey = true }, absent, "NULL"},
		"damaged":        {func(t *event.Table) { t.Columns[5].PrimaryKey = true }, raw([]byte{1}), "NULL"},
	} {
		tbl := plainTable()
		c.change(tbl)
		if rec := mustRoute(t, tbl, plain("n", c.cell), none(nil)); show(rec.ID) != c.want {
			t.Errorf("%s: id %s, want %s", name, show(rec.ID), c.want)
		}
	}
}

func TestPoisonDoesNotPointIntoTheRecord(t *testing.T) {
	t.Parallel()
	r, err := router.New(router.Options{Rules: []router.Rule{none(nil)}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Bind(plainTable())
	if err != nil {
		t.Fatal(err)
	}
	rec := new(router.Record)
	_, err = r.Route(b, plain("v", null), meta, 1, rec)
	before := err.Error()
	if _, err := r.Route(b, plain("k", text(strings.Repeat("z", 400))), meta, 2, rec); err != nil {
		t.Fatal(err)
	}
	if err.Error() != before {
		t.Errorf("%q became %q", before, err)
	}
}
