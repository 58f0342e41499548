package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"outbox-relay/config"
)

// debezium is a configuration whose one rule has the preset, with the lines of section under it.
func debezium(section string) string {
	return "name: orders\nsource: {address: 'db1:3306', user: relay}\nkafka: {brokers: ['k1:9092']}\ntables:\n  - table: app.outbox\n    preset: debezium\n" + section
}

func TestDebeziumDefaultsAreThoseOfTheExample(t *testing.T) {
	t.Parallel()
	var section strings.Builder
	_, rest, found := strings.Cut(string(config.Example()), "    # debezium:\n")
	if !found {
		t.Fatal("the example has no section debezium")
	}
	section.WriteString("    debezium:\n")
	keys := 0
	for line := range strings.SplitSeq(rest, "\n") {
		key, ok := strings.CutPrefix(line, "    #   ")
		if !ok {
			break
		}
		section.WriteString("      " + key + "\n")
		keys++
	}
	got, want := load(t, debezium(section.String()), config.Options{}), load(t, debezium(""), config.Options{})
	if diff := cmp.Diff(want, got, withoutOrigins, cmpopts.EquateEmpty()); diff != "" || keys != 21 {
		t.Errorf("%d keys, -default +example\n%s", keys, diff)
	}
	if d := want.Tables[0].Debezium; d.TopicPrefix != "orders" || !d.ContextHeaders || !d.PositionHeader || d.Route != "aggregatetype" {
		t.Errorf("defaults: %+v", d)
	}
	again := load(t, string(config.Print(want)), config.Options{})
	if diff := cmp.Diff(want, again, withoutOrigins, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("what was printed loads differently, -want +got\n%s", diff)
	}
}

func TestDebeziumKeys(t *testing.T) {
	t.Parallel()
	got := load(t, debezium(`    debezium:
      {id: i, key: k, payload: p, timestamp: ts, route: r, topic_regex: a, topic_replacement: b, additional: ["x:header", "y:envelope:z"], additional_missing: ignore,
       expand_json: true, json_null: optional_bytes, tombstone_on_empty: true, key_converter: json, value_converter: json-with-schema, header_converter: string,
       context_headers: false, topic_prefix: pre, binary: hex, bigint_unsigned: precise, json_text: mysql, position_header: false}
`), config.Options{}).Tables[0].Debezium
	want := config.Debezium{
		ID: "i", Key: "k", Payload: "p", Timestamp: "ts", Route: "r", TopicRegex: "a", TopicReplacement: "b", Additional: []string{"x:header", "y:envelope:z"},
		AdditionalMissing: "ignore", ExpandJSON: true, JSONNull: "optional_bytes", TombstoneOnEmpty: true, KeyConverter: "json", ValueConverter: "json-with-schema",
		HeaderConverter: "string", TopicPrefix: "pre", Binary: "hex", BigintUnsigned: "precise", JSONText: "mysql",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
