package router_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/binlog/event"
	"outbox-relay/router"
)

// eventTable has the columns of the preset with data of each form, and further ones.
func eventTable() *event.Table {
	return table(varchar("id"), varchar("aggregate_type"), varchar("aggregate_id"), varchar("event_type"), varchar("payload"), varbinary("bytes"), varchar("extra"),
		ofType("at", event.ColumnDatetime, 6))
}

func eventRow(change ...func([]event.Cell)) []event.Cell {
	cells := []event.Cell{text("7"), text("order"), text("o-1"), text("OrderPlaced"), text(`{"a": 1}`), raw([]byte{0, 1, 0xff}), text("x"), datetime(2026, 5, 6, 7, 8, 9, 123456)}
	for _, c := range change {
		c(cells)
	}
	return cells
}

func setCell(column int, c event.Cell) func([]event.Cell) {
	return func(cells []event.Cell) { cells[column] = c }
}

func events(mode string, change ...func(*router.Rule)) router.Rule {
	r := router.Rule{Table: "app.t", Preset: "cloudevents", CloudEvents: &router.CloudEvents{
		Mode: mode, ID: "{id}", Source: "/shop/{aggregate_type}", Type: "com.example.{event_type}", Subject: "{aggregate_id}", DataContentType: "application/json"}}
	for _, c := range change {
		c(&r)
	}
	return r
}

func routeEvent(t *testing.T, rule router.Rule, cells []event.Cell) (*router.Record, error) {
	t.Helper()
	r, b := prepare(t, eventTable(), rule)
	rec := new(router.Record)
	// 2026-01-02 03:04:05.678901 UTC
	_, err := r.Route(b, cells, router.Meta{Position: []byte("g:1"), CommitMicros: 1767323045678901}, 0, rec)
	return rec, err
}

func headerLines(rec *router.Record) []string {
	var lines []string
	for _, h := range rec.Headers {
		lines = append(lines, h.Key+"="+string(h.Value))
	}
	return lines
}

func TestBinaryEvents(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rule  router.Rule
		cells []event.Cell
		want  []string
		value string
	}{
		"defaults": {router.Rule{Table: "app.t", Preset: "cloudevents"}, eventRow(), []string{"ce_specversion=1.0", "ce_id=7", "ce_source=/app.t", "ce_type=OrderPlaced",
			"ce_subject=o-1", "ce_time=2026-01-02T03:04:05.678901Z", "content-type=application/json", "outbox-relay-position=g:1#0"}, `{"a": 1}`},
		"all options": {events("", func(r *router.Rule) {
			r.CloudEvents.DataSchema = "https://example.com/{event_type}"
			r.CloudEvents.Extensions = []router.HeaderRule{{Name: "tenant", Value: "{extra}"}, {Name: "region", Value: "eu"}}
			r.Headers = []router.HeaderRule{{Name: "mine", Value: "{extra}"}}
			r.Timestamp = "at"
		}), eventRow(), []string{"ce_specversion=1.0", "ce_id=7", "ce_source=/shop/order", "ce_type=com.example.OrderPlaced", "ce_subject=o-1", "ce_time=2026-05-06T07:08:09.123Z",
			"ce_dataschema=https://example.com/OrderPlaced", "ce_tenant=x", "ce_region=eu", "content-type=application/json", "mine=x", "outbox-relay-position=g:1#0"}, `{"a": 1}`},
		"optional ones that are NULL or empty are left out": {events("binary", func(r *router.Rule) {
			r.CloudEvents.Subject, r.CloudEvents.Extensions = "{extra}", []router.HeaderRule{{Name: "one", Value: "{extra}"}}
			r.CloudEvents.DataContentType = ""
		}), eventRow(setCell(6, null)), []string{"ce_specversion=1.0", "ce_id=7", "ce_source=/shop/order", "ce_type=com.example.OrderPlaced", "ce_time=2026-01-02T03:04:05.678901Z", "outbox-relay-position=g:1#0"}, `{"a": 1}`},
		"a tombstone has no content": {events("binary", func(r *router.Rule) { r.Tombstone = true }), eventRow(setCell(4, null)), []string{"ce_specversion=1.0", "ce_id=7", "ce_source=/shop/order",
			"ce_type=com.example.OrderPlaced", "ce_subject=o-1", "ce_time=2026-01-02T03:04:05.678901Z", "outbox-relay-position=g:1#0"}, "<nil>"},
		"bytes are the value": {events("binary", func(r *router.Rule) { r.Value, r.CloudEvents.DataContentType = "{bytes}", "application/octet-stream" }), eventRow(), []string{"ce_specversion=1.0", "ce_id=7", "ce_source=/shop/order",
			"ce_type=com.example.OrderPlaced", "ce_subject=o-1", "ce_time=2026-01-02T03:04:05.678901Z", "content-type=application/octet-stream", "outbox-relay-position=g:1#0"}, "\x00\x01\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec, err := routeEvent(t, test.rule, test.cells)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, headerLines(rec)); diff != "" {
				t.Errorf("headers, -want +got\n%s", diff)
			}
			value := string(rec.Value)
			if rec.Value == nil {
				value = "<nil>"
			}
			if value != test.value || string(rec.Key) != "o-1" || rec.Topic != "outbox.event.order" {
				t.Errorf("value %q, key %q, topic %q", value, rec.Key, rec.Topic)
			}
		})
	}
}

func TestStructuredEvents(t *testing.T) {
	t.Parallel()
	const head = `{"specversion":"1.0","id":"7","source":"/shop/order","type":"com.example.OrderPlaced","subject":"o-1","time":"2026-01-02T03:04:05.678901Z"`
	value := func(column, contentType string) func(*router.Rule) {
		return func(r *router.Rule) { r.Value, r.CloudEvents.DataContentType = column, contentType }
	}
	for name, test := range map[string]struct {
		rule  router.Rule
		cells []event.Cell
		want  string
	}{
		"JSON in a text":          {events("structured"), eventRow(), head + `,"datacontenttype":"application/json","data":{"a": 1}}`},
		"JSON of another type":    {events("structured", value("{payload}", "application/vnd.x+json; charset=utf-8")), eventRow(), head + `,"datacontenttype":"application/vnd.x+json; charset=utf-8","data":{"a": 1}}`},
		"JSON of a template":      {events("structured", value(`{{"p":{payload}}}`, "application/json")), eventRow(), head + `,"datacontenttype":"application/json","data":{"p":{"a": 1}}}`},
		"text":                    {events("structured", value("{payload}", "text/plain")), eventRow(setCell(4, text("a\"b\\c\n\t\x01é\u2028"))), head + `,"datacontenttype":"text/plain","data":"a\"b\\c\n\t\u0001é` + "\u2028" + `"}`},
		"text without a type":     {events("structured", value("{payload}", "")), eventRow(), head + `,"data":"{\"a\": 1}"}`},
		"bytes":                   {events("structured", value("{bytes}", "application/octet-stream")), eventRow(), head + `,"datacontenttype":"application/octet-stream","data_base64":"AAH/"}`},
		"bytes of a type of JSON": {events("structured", value("{bytes}", "application/json")), eventRow(), head + `,"datacontenttype":"application/json","data_base64":"AAH/"}`},
		"bytes by a filter":       {events("structured", value("{bytes|hex}", "text/plain")), eventRow(), head + `,"datacontenttype":"text/plain","data":"0001ff"}`},
		"no data":                 {events("structured", func(r *router.Rule) { r.Tombstone = true }), eventRow(setCell(4, null)), head + `}`},
		"no bytes":                {events("structured", value("{bytes}", "application/octet-stream"), func(r *router.Rule) { r.Tombstone = true }), eventRow(setCell(5, null)), head + `}`},
		"extensions, and a schema": {events("structured", func(r *router.Rule) {
			r.CloudEvents.DataSchema = "/schemas/1"
			r.CloudEvents.Extensions = []router.HeaderRule{{Name: "tenant", Value: "{extra}"}}
		}), eventRow(setCell(6, text(`say "hi"`))), head + `,"dataschema":"/schemas/1","tenant":"say \"hi\"","datacontenttype":"application/json","data":{"a": 1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec, err := routeEvent(t, test.rule, test.cells)
			if err != nil {
				t.Fatal(err)
			}
			if string(rec.Value) != test.want || !json.Valid(rec.Value) {
				t.Errorf("value\n%s, want\n%s", rec.Value, test.want)
			}
			if want := []string{"content-type=application/cloudevents+json; charset=UTF-8", "outbox-relay-position=g:1#0"}; !slices.Equal(headerLines(rec), want) {
				t.Errorf("headers %q, want %q", headerLines(rec), want)
			}
		})
	}
}

func TestPoisonEvents(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		rule   router.Rule
		change func([]event.Cell)
		reason router.Reason
		field  string
		says   string
	}{
		"no id":            {events("binary"), setCell(0, null), router.ReasonInvalidAttribute, "cloudevents.id", "the attribute id is NULL, and every event needs one"},
		"empty id":         {events("structured"), setCell(0, text("")), router.ReasonInvalidAttribute, "cloudevents.id", "the attribute id is empty"},
		"no type":          {events("binary", func(r *router.Rule) { r.CloudEvents.Type = "{event_type}" }), setCell(3, null), router.ReasonInvalidAttribute, "cloudevents.type", "is NULL"},
		"part of a type":   {events("binary"), setCell(3, null), router.ReasonNullInTemplate, "cloudevents.type", "stands beside other text"},
		"empty source":     {events("binary", func(r *router.Rule) { r.CloudEvents.Source = "{extra}" }), setCell(6, text("")), router.ReasonInvalidAttribute, "cloudevents.source", "the attribute source is empty"},
		"no URI":           {events("structured", func(r *router.Rule) { r.CloudEvents.Source = "/{extra}" }), setCell(6, text("a b")), router.ReasonInvalidAttribute, "cloudevents.source", "percent-encoded"},
		"control":          {events("binary"), setCell(3, text("a\nb")), router.ReasonInvalidAttribute, "cloudevents.type", "control character"},
		"control of C1":    {events("binary"), setCell(3, text("a\u0085b")), router.ReasonInvalidAttribute, "cloudevents.type", "control character"},
		"bytes as text":    {events("binary", func(r *router.Rule) { r.CloudEvents.Type = "{bytes}" }), nil, router.ReasonInvalidAttribute, "cloudevents.type", "not valid UTF-8"},
		"no JSON":          {events("structured"), setCell(4, text("{")), router.ReasonInvalidData, "value", "it is no JSON"},
		"no text":          {events("structured", func(r *router.Rule) { r.Value, r.CloudEvents.DataContentType = "x{bytes}", "text/plain" }), nil, router.ReasonInvalidData, "value", "not valid UTF-8"},
		"NULL data":        {events("structured"), setCell(4, null), router.ReasonNullValue, "value", "the value column is NULL"},
		"NULL data, plain": {events("binary"), setCell(4, null), router.ReasonNullValue, "value", "the value column is NULL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cells := eventRow()
			if test.change != nil {
				test.change(cells)
			}
			rec, err := routeEvent(t, test.rule, cells)
			var p *router.Poison
			if !errors.As(err, &p) || p.Reason != test.reason || p.Field != test.field || !strings.Contains(p.Error(), test.says) {
				t.Errorf("got %v, want %s in %s with %q", err, test.reason, test.field, test.says)
			}
			// What a dead letter gets is whole in itself.
			if structured := test.rule.CloudEvents.Mode == "structured"; structured && !json.Valid(rec.Value) {
				t.Errorf("value %q", rec.Value)
			}
			if got := headerLines(rec); got[len(got)-1] != "outbox-relay-position=g:1#0" || strings.Contains(strings.Join(got, " "), "ce_id=ce") {
				t.Errorf("headers %q", got)
			}
		})
	}
}

func TestFaultsOfEvents(t *testing.T) {
	t.Parallel()
	_, err := router.New(router.Options{Rules: []router.Rule{
		events("batched", func(r *router.Rule) {
			r.CloudEvents.ID, r.CloudEvents.Source, r.CloudEvents.Type, r.CloudEvents.Subject = "", "a b", "{", "x\x01"
			r.CloudEvents.DataContentType = "a\nb"
			r.CloudEvents.Extensions = []router.HeaderRule{{Name: "Tenant", Value: "x"}, {Name: "time", Value: "x"}, {Name: "a", Value: "x"}, {Name: "a", Value: "x"}, {Name: strings.Repeat("x", 21), Value: "x"}}
			r.Headers = []router.HeaderRule{{Name: "ce_x", Value: "x"}, {Name: "Content-Type", Value: "x"}}
		}),
		{Table: "app.b", CloudEvents: &router.CloudEvents{}},
	}})
	for _, want := range []string{
		`tables[0].cloudevents.mode: "batched" is not one of binary, structured`, "tables[0].cloudevents.id: missing", "tables[0].cloudevents.source: it holds a character that no URI has",
		"tables[0].cloudevents.type: ", "tables[0].cloudevents.subject: it holds a control character", "tables[0].cloudevents.data_content_type: it holds a control character",
		`tables[0].cloudevents.extensions[0].name: "Tenant" is no name of an attribute`, "tables[0].cloudevents.extensions[1].name: time is an attribute of the specification",
		"tables[0].cloudevents.extensions[3].name: a is there twice", "tables[0].cloudevents.extensions[4].name: ", "tables[0].headers[0].name: ce_x is a header of the preset", "tables[0].headers[1].name: ",
		"tables[1].cloudevents: has no effect without preset: cloudevents",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
}
