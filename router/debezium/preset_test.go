package debezium_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"outbox-relay/binlog/event"
	"outbox-relay/router"
	"outbox-relay/router/debezium"
)

func raw(b ...byte) event.Cell   { return event.Cell{State: event.CellValue, Raw: b} }
func text(s string) event.Cell   { return raw([]byte(s)...) }
func bigint(n uint64) event.Cell { return raw(binary.LittleEndian.AppendUint64(nil, n)...) }

var null = event.Cell{State: event.CellNull}

// outbox is a table of the router's default columns and one more; types of columns are the fields that change.
func outbox(payload, extra event.Column) *event.Table {
	varchar := func(name string) event.Column {
		return event.Column{Name: name, Type: event.ColumnVarchar, Meta: 1020, Collation: 255, Visible: true}
	}
	payload.Name, extra.Name = "payload", "extra"
	if payload.Type == 0 {
		payload = varchar("payload")
		payload.Nullable = true
	}
	return &event.Table{
		Schema: "app", Name: "outbox", HasNames: true, HasSigns: true,
		Columns: []event.Column{varchar("id"), varchar("aggregatetype"), varchar("aggregateid"), payload, extra},
	}
}

func row(payload, extra event.Cell) []event.Cell {
	return []event.Cell{text("i1"), text("Order"), text("k1"), payload, extra}
}

func route(t *testing.T, o debezium.Options, table *event.Table, cells []event.Cell) (*router.Record, error) {
	t.Helper()
	r, err := router.New(router.Options{Rules: []router.Rule{{Table: "app.outbox", Preset: "debezium", Debezium: &o}}})
	if err != nil {
		return nil, err
	}
	b, err := r.Bind(table)
	if err != nil {
		return nil, err
	}
	rec := new(router.Record)
	_, err = r.Route(b, cells, router.Meta{Position: []byte("g:1"), CommitMicros: 1_500_000}, 3, rec)
	return rec, err
}

var integer = event.Column{Type: event.ColumnLongLong, Nullable: true}

func TestHeadersByDefault(t *testing.T) {
	t.Parallel()
	rec, err := route(t, debezium.Options{TopicPrefix: "shop", RunID: "r"}, outbox(event.Column{}, integer), row(text("{}"), null))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range rec.Headers {
		got = append(got, h.Key+"="+string(h.Value))
	}
	want := "__debezium.context.connectorLogicalName=shop __debezium.context.taskId=0 __debezium.context.connectorName=mysql __debezium.context.runId=r id=i1 outbox-relay-position=g:1#3"
	if strings.Join(got, " ") != want || rec.TimestampMillis != 1500 || rec.Partition != router.AnyPartition {
		t.Errorf("headers %s, want %s; time %d", strings.Join(got, " "), want, rec.TimestampMillis)
	}
}

// TestValuesOfColumns reads types and values that the golden rows do not have.
func TestValuesOfColumns(t *testing.T) {
	t.Parallel()
	date := func(year, month, day uint32) event.Cell {
		v := year<<9 | month<<5 | day
		return raw(byte(v), byte(v>>8), byte(v>>16))
	}
	unsigned := event.Column{Type: event.ColumnLongLong, Unsigned: true}
	small := event.Column{Type: event.ColumnDecimal, Meta: 10<<8 | 9}
	for _, c := range []struct {
		name   string
		column event.Column
		cell   event.Cell
		o      debezium.Options
		header string // by the simple converter
		json   string // in an envelope
	}{
		{"unsigned precise", unsigned, bigint(1<<64 - 1), debezium.Options{UnsignedBigint: "precise"}, "18446744073709551615", `"AP//////////"`},
		{"unsigned", unsigned, bigint(1<<64 - 1), debezium.Options{}, "-1", "-1"},
		{"small decimal", small, raw(0x80, 0, 0, 0, 0x7b), debezium.Options{}, "1.23E-7", `"ew=="`},
		{"negative small decimal", small, raw(0x7f, 0xff, 0xff, 0xff, 0xfe), debezium.Options{}, "-1E-9", `"/w=="`},
		{"decimal of the sign's bit", small, raw(0x80, 0, 0, 0, 0x80), debezium.Options{}, "1.28E-7", `"AIA="`},
		{"negative decimal of eight bits", small, raw(0x7f, 0xff, 0xff, 0xff, 0x7f), debezium.Options{}, "-1.28E-7", `"gA=="`},
		{"zero decimal", small, raw(0x80, 0, 0, 0, 0), debezium.Options{}, "0E-9", `"AA=="`},
		{"one bit", event.Column{Type: event.ColumnBit, Meta: 1}, raw(1), debezium.Options{}, "true", "true"},
		{"many bits", event.Column{Type: event.ColumnBit, Meta: 12}, raw(0x0a, 0xbc), debezium.Options{}, "vAo=", `"vAo="`},
		{"date", event.Column{Type: event.ColumnDate}, date(1970, 1, 3), debezium.Options{}, "2", "2"},
		{"zero date", event.Column{Type: event.ColumnDate, Nullable: true}, date(0, 0, 0), debezium.Options{}, "null", "null"},
		{"zero date where NULL is not allowed", event.Column{Type: event.ColumnDate}, date(2020, 2, 0), debezium.Options{}, "0", "0"},
		{"zero timestamp", event.Column{Type: event.ColumnTimestamp, Nullable: true}, raw(0, 0, 0, 0), debezium.Options{}, "1970-01-01T00:00:00Z", `"1970-01-01T00:00:00Z"`},
		{"zero timestamp with a fraction", event.Column{Type: event.ColumnTimestamp, Meta: 3}, raw(0, 0, 0, 0, 0, 0), debezium.Options{}, "1970-01-01T00:00:00.000Z", `"1970-01-01T00:00:00.000Z"`},
		{"year 0", event.Column{Type: event.ColumnDate, Nullable: true}, date(0, 1, 1), debezium.Options{}, "null", "null"},
		{"YEAR", event.Column{Type: event.ColumnYear}, raw(124), debezium.Options{}, "2024", "2024"},
		{"YEAR 0000", event.Column{Type: event.ColumnYear}, raw(0), debezium.Options{}, "1900", "1900"},
		{"unsigned small integer", event.Column{Type: event.ColumnShort, Unsigned: true}, raw(0xff, 0xff), debezium.Options{}, "65535", "65535"},
	} {
		c.o.Additional, c.o.NoContextHeaders = []string{"extra:header", "extra:envelope:e"}, true
		c.o.ValueConverter = "json"
		rec, err := route(t, c.o, outbox(event.Column{}, c.column), row(text("p"), c.cell))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		header := string(rec.Headers[1].Value)
		if rec.Headers[1].Null {
			header = "null"
		}
		if header != c.header || string(rec.Value) != `{"payload":"p","e":`+c.json+"}" {
			t.Errorf("%s: header %s, value %s, want %s and %s", c.name, header, rec.Value, c.header, c.json)
		}
	}
}

// TestExpansion has what the golden documents do not.
func TestExpansion(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, json, text string }{
		{"fields of several objects", `{"x":[{"a":1},{"b":"s","a":2},null]}`, `{"x":[{"a":1,"b":null},{"a":2,"b":"s"},null]}`, `Struct{x=[Struct{a=1}, Struct{a=2,b=s}, null]}`},
		{"types that differ", `{"x":[{"a":1},{"a":"s"}]}`, "", ""},
		{"arrays that differ", `{"x":[[1],["s"]]}`, "", ""},
		{"an empty array first", `{"x":[[],[1]]}`, "", ""},
		{"an empty array later", `{"x":[[1],[]]}`, `{"x":[[1],[]]}`, `Struct{x=[[1], []]}`},
		{"a pair of escapes", `{"s":"\ud83d\ude00"}`, `{"s":"\uD83D\uDE00"}`, "Struct{s=😀}"},
		{"half a pair", `{"s":"\ud83d"}`, "", ""},
		{"a raw control character", "{\"s\":\"\t\"}", "", ""},
		{"a number with a leading zero", `{"a":01}`, "", ""},
		{"a number of a thousand digits", `{"a":0.` + strings.Repeat("1", 999) + `}`, `{"a":0.1111111111111111}`, "Struct{a=0.1111111111111111}"},
		{"a longer number", `{"a":0.` + strings.Repeat("1", 1000) + `}`, "", ""},
		{"an empty name below", `{"a":{"":1}}`, "", ""},
		{"an empty name without a value", `{"a":{"":null}}`, `{"a":{}}`, "Struct{a=Struct{}}"},
		{"unfinished", `{"a":1`, "", ""},
		{"objects that have no field together", manyObjects(5000), "", ""},
		{"many objects of one kind", `{"x":[` + strings.Repeat(`{"a":1},`, 5000) + `{"a":1}]}`, `{"x":[` + strings.Repeat(`{"a":1},`, 5000) + `{"a":1}]}`, "Struct{x=[" + strings.Repeat("Struct{a=1}, ", 5000) + "Struct{a=1}]}"},
		{"more values than fit into memory", `{"x":[` + strings.Repeat("1,", 1<<20) + "1]}", "", ""},
		{"deep", strings.Repeat(`{"a":`, 1001) + "1" + strings.Repeat("}", 1001), "", ""},
	} {
		for converter, want := range map[string]string{"json": c.json, "string": c.text} {
			o := debezium.Options{ExpandJSON: true, ValueConverter: converter}
			rec, err := route(t, o, outbox(event.Column{}, integer), row(text(c.in), null))
			if err != nil {
				t.Fatal(err)
			}
			if want == "" { // as it is
				o.ExpandJSON = false
				plain, err := route(t, o, outbox(event.Column{}, integer), row(text(c.in), null))
				if err != nil {
					t.Fatal(err)
				}
				want = string(plain.Value)
			}
			if string(rec.Value) != want {
				t.Errorf("%s, %s: %s, want %s", c.name, converter, rec.Value, want)
			}
		}
	}
}

// manyObjects is an array of n objects with a field each. Each would come out with n fields.
func manyObjects(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,{"field%d":1}`, i)
	}
	return `{"x":[` + b.String()[1:] + "]}"
}

func TestManyFieldsAreTheLastOfTheirName(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 100 {
		fmt.Fprintf(&b, `"f%d":%d,`, i%40, i)
	}
	rec, err := route(t, debezium.Options{ExpandJSON: true, ValueConverter: "json"}, outbox(event.Column{}, integer), row(text("{"+b.String()+`"z":0}`), null))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(rec.Value); !strings.HasPrefix(got, `{"f0":80,"f1":81,`) || !strings.HasSuffix(got, `"f39":79,"z":0}`) {
		t.Errorf("got %s", got)
	}
}

func TestTopics(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ regex, replacement, value, want string }{
		{"", "", "Order", "outbox.event.Order"},
		{"a|ab", "x", "ab", "xb"}, // the first match is replaced, not the whole
		{"(.)(.*)", "$2.$1$10", "Order", "rder.OO0"},
		{"(?<a>[a-z]+)", `\$${a}`, "order", ""},
		{"x", "y", "Order", "Order"},
		{"(a)?(b)", "t$1$2", "b", "tb"},
	} {
		rec, err := route(t, debezium.Options{TopicRegex: c.regex, TopicReplacement: c.replacement}, outbox(event.Column{}, integer),
			[]event.Cell{text("i"), text(c.value), text("k"), text("p"), null})
		var poison *router.Poison
		if c.want == "" && errors.As(err, &poison) && poison.Reason == router.ReasonInvalidTopic && poison.Topic == "$order" {
			continue
		}
		if err != nil || rec.Topic != c.want {
			t.Errorf("%s to %s: %v, %v, want %s", c.regex, c.replacement, rec, err, c.want)
		}
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o    debezium.Options
		want string
	}{
		{debezium.Options{TopicRegex: "(?=a)b"}, "tables[0].debezium.topic_regex: the pattern cannot be used here, where there is no lookaround"},
		{debezium.Options{TopicRegex: `(a)\1`}, "there is no lookaround, backreference"},
		{debezium.Options{TopicRegex: "[a-z&&[^b]]"}, "intersection of character classes"},
		{debezium.Options{TopicRegex: "[a[b]]"}, "a character class inside a character class"},
		{debezium.Options{TopicRegex: "(?U)a"}, "the flag U, u, d or x"},
		{debezium.Options{TopicReplacement: "${topic}"}, `debezium.topic_replacement: the pattern has no group named "topic"`},
		{debezium.Options{TopicReplacement: "$2"}, "the pattern has no group 2"},
		{debezium.Options{TopicReplacement: "a$"}, "$ names no group"},
		{debezium.Options{Additional: []string{"a"}}, `debezium.additional[0]: "a" is not column:placement or column:placement:alias`},
		{debezium.Options{Additional: []string{"a:body"}}, `"body" is not one of header, envelope, partition`},
		{debezium.Options{Additional: []string{"a:envelope:payload"}}, `the envelope has a field "payload" already`},
		{debezium.Options{Additional: []string{"a:partition", "b:partition"}}, "there is a column for the partition already"},
		{debezium.Options{Additional: []string{"a:header:outbox-relay-position"}}, "header name is reserved"},
		{debezium.Options{ValueConverter: "avro"}, `debezium.value_converter: "avro" is not one of string, json, json-with-schema, binary`},
		{debezium.Options{ValueConverter: "binary", ExpandJSON: true}, "debezium.expand_json: has no effect with value_converter binary"},
		{debezium.Options{ValueConverter: "binary"}, "value_converter binary takes a binary column"},
		{debezium.Options{Payload: "body"}, "table app.outbox has no column body, which tables[0].debezium.payload needs"},
		{debezium.Options{Timestamp: "extra"}, "the timestamp comes from a DATETIME column"},
		{debezium.Options{Additional: []string{"extra:partition"}}, "the partition comes from an INT, MEDIUMINT or SMALLINT UNSIGNED column"},
	} {
		if _, err := route(t, c.o, outbox(event.Column{}, integer), row(text("p"), null)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.o, err, c.want)
		}
	}
}

func TestTimestampColumn(t *testing.T) {
	t.Parallel()
	at := func(year, month, day uint64) event.Cell {
		v := (year*13+month)<<22 | day<<17 | 1<<39
		return raw(byte(v>>32), byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
	}
	for _, c := range []struct {
		name     string
		nullable bool
		cell     event.Cell
		want     int64
		poison   router.Reason
	}{
		{"a date", false, at(1970, 1, 2), 86_400_000, ""},
		{"NULL", true, null, 1500, ""}, // the commit
		{"zero", true, at(0, 0, 0), 1500, ""},
		{"zero where NULL is not allowed", false, at(0, 0, 0), 0, ""},
		{"before 1970", false, at(1969, 12, 31), 1500, router.ReasonInvalidTimestamp},
		{"no day of its month", false, at(2020, 2, 31), 1500, router.ReasonUndecodable},
	} {
		column := event.Column{Type: event.ColumnDatetime, Nullable: c.nullable}
		rec, err := route(t, debezium.Options{Timestamp: "extra"}, outbox(event.Column{}, column), row(text("p"), c.cell))
		var poison *router.Poison
		if errors.As(err, &poison) != (c.poison != "") || poison != nil && poison.Reason != c.poison || rec.TimestampMillis != c.want {
			t.Errorf("%s: %d, %v, want %d %s", c.name, rec.TimestampMillis, err, c.want, c.poison)
		}
	}
}

func TestSchemaOfPreciseUnsigned(t *testing.T) {
	t.Parallel()
	o := debezium.Options{UnsignedBigint: "precise", ValueConverter: "json-with-schema", Key: "extra", KeyConverter: "json-with-schema"}
	rec, err := route(t, o, outbox(event.Column{}, event.Column{Type: event.ColumnLongLong, Unsigned: true}), row(text("p"), bigint(1)))
	const want = `{"schema":{"type":"bytes","optional":false,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"0","connect.decimal.precision":"20"}},"payload":"AQ=="}`
	if err != nil || string(rec.Key) != want {
		t.Errorf("%s, %v, want %s", rec.Key, err, want)
	}
}

func TestRowsThatAreNoRecord(t *testing.T) {
	t.Parallel()
	absent := event.Cell{State: event.CellAbsent}
	number := event.Column{Type: event.ColumnLong, Nullable: true}
	for _, c := range []struct {
		name  string
		o     debezium.Options
		cells []event.Cell
		want  router.Reason
	}{
		{"no payload in the row image", debezium.Options{NoPositionHeader: true}, row(absent, null), router.ReasonMissingColumn},
		{"a column that is not needed", debezium.Options{}, row(text("p"), absent), ""},
		{"NULL as topic", debezium.Options{}, []event.Cell{text("i"), null, text("k"), text("p"), null}, router.ReasonNullTopic},
		{"a partition below 0", debezium.Options{Additional: []string{"extra:partition"}}, row(text("p"), raw(0xff, 0xff, 0xff, 0xff)), router.ReasonInvalidPartition},
		{"damaged bytes", debezium.Options{Additional: []string{"extra:header"}}, row(text("p"), raw(1)), router.ReasonUndecodable},
	} {
		rec, err := route(t, c.o, outbox(event.Column{}, number), c.cells)
		var poison *router.Poison
		switch {
		case c.want == "" && err == nil:
		case !errors.As(err, &poison) || poison.Reason != c.want || poison.Position != "g:1#3" || poison.ID == "":
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		case string(rec.Key) != "k1" && string(rec.Key) != "k":
			t.Errorf("%s: the key is not kept for a dead letter: %q", c.name, rec.Key)
		}
	}
}

// Not parallel: allocations of other tests would count.
func TestTextPayloadsDoNotAllocate(t *testing.T) {
	for _, o := range []debezium.Options{{}, {KeyConverter: "json", ValueConverter: "json-with-schema", HeaderConverter: "json"}, {Additional: []string{"extra:header", "extra:envelope"}, ValueConverter: "json"}} {
		r, err := router.New(router.Options{Rules: []router.Rule{{Table: "app.outbox", Preset: "debezium", Debezium: &o}}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Bind(outbox(event.Column{}, integer))
		if err != nil {
			t.Fatal(err)
		}
		cells, rec, meta := row(text(`{"a":1}`), bigint(7)), new(router.Record), router.Meta{Position: []byte("g:1")}
		if allocs := testing.AllocsPerRun(100, func() {
			if _, err := r.Route(b, cells, meta, 0, rec); err != nil {
				t.Fatal(err)
			}
		}); allocs != 0 {
			t.Errorf("%+v: %v allocations per row, want 0", o, allocs)
		}
	}
}
