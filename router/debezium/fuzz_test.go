package debezium_test

import (
	"encoding/json"
	"testing"

	"outbox-relay/binlog/event"
	"outbox-relay/router"
	"outbox-relay/router/debezium"
)

// FuzzExpansion sees that what comes out is JSON whatever goes in, that it has the schema that it says, and that a payload that is JSON
// keeps its members.
func FuzzExpansion(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":[1,2],"c":{"d":null}}`, `{"a":[{"b":1},{"c":"x"}]}`, `[]`, `{"s":"\ud83d\ude00\u0000"}`, `{"a":1e400}`, `{"a":1} x`, `{"a"`, `{"\`, `{"a":-`, `{"a":"\u12`} {
		f.Add(s)
	}
	table := outbox(event.Column{}, integer)
	o := debezium.Options{ExpandJSON: true, JSONNull: "optional_bytes", ValueConverter: "json-with-schema", NoContextHeaders: true}
	r, err := router.New(router.Options{Rules: []router.Rule{{Table: "app.outbox", Preset: "debezium", Debezium: &o}}})
	if err != nil {
		f.Fatal(err)
	}
	b, err := r.Bind(table)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, in string) {
		rec := new(router.Record)
		if _, err := r.Route(b, row(text(in), null), router.Meta{}, 0, rec); err != nil {
			return // no text of the column's charset
		}
		var out struct {
			Schema  *struct{ Type string }
			Payload json.RawMessage
		}
		if err := json.Unmarshal(rec.Value, &out); err != nil {
			t.Fatalf("%q gave %q: %v", in, rec.Value, err)
		}
		structure := len(out.Payload) > 0 && out.Payload[0] == '{'
		if says := out.Schema != nil && out.Schema.Type == "struct"; says != structure {
			t.Fatalf("%q gave %q", in, rec.Value)
		}
		var want, got map[string]json.RawMessage
		if structure && json.Unmarshal([]byte(in), &want) == nil && json.Unmarshal(out.Payload, &got) == nil {
			for name, v := range want {
				if _, kept := got[name]; !kept && string(v) != "[]" && v[0] != '[' {
					t.Fatalf("%q gave %q, without %q", in, rec.Value, name)
				}
			}
		}
	})
}
