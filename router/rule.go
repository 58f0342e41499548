package router

import (
	"fmt"
	"strings"

	"outbox-relay/router/debezium"
)

// Rule says what becomes of the rows of one table, or of those of its rows that When selects. It is the configuration as the user wrote
// it; [New] checks it. In the templates `{column}` stands for the text of a column and `{column|filter}` for another form of its bytes
// (filters uuid, hex, base64); `{{` and `}}` are single braces.
type Rule struct {
	// Table is `schema.table`, see [ParseTableName]. Several rules may name one table: the first that matches a row counts.
	Table string
	// Preset fills what the rule leaves empty: outbox (also when empty), cloudevents or none. With debezium the preset makes the whole record: of the
	// fields below it takes Headers, When, Otherwise and Poison alone.
	Preset string
	// Debezium are the options of the preset debezium; nil means its defaults.
	Debezium *debezium.Options
	// CloudEvents are the options of the preset cloudevents; nil means its defaults.
	CloudEvents *CloudEvents
	// Topic, Key and Value are templates. Empty takes the preset's.
	Topic string
	Key   string
	Value string
	// Headers come after the preset's, in this order.
	Headers []HeaderRule
	// Timestamp names the column of the record's time: DATETIME, TIMESTAMP or an integer of milliseconds. Empty takes the commit time.
	Timestamp string
	// TimeZone is the zone of a DATETIME column, such as Europe/Berlin; empty means UTC. A local time that the zone skips or has twice is
	// resolved as by time.Date. A TIMESTAMP needs no zone.
	TimeZone string
	// Partition names an integer column that holds the partition. Empty leaves it to the partitioner.
	Partition string
	// When selects rows: each column's text has to be equal, byte for byte, to one of the listed ones. A NULL equals nothing.
	When map[string][]string
	// Otherwise says what happens to rows that no rule of the table matches: poison (also when empty) or ignore.
	Otherwise string
	// Tombstone publishes a NULL in the value column as a null value. Without it such a row is poison.
	Tombstone bool
	// NullKey says what happens to a row whose key column is NULL: poison (also when empty) or allow, a record without key and order.
	NullKey string
	// Poison is the policy for poison rows of this rule: halt, dead_letter or skip. Empty leaves it to the general one.
	Poison string
}

// HeaderRule makes one header, or with the name `*` and a JSON column as value one header for each member of the column's object.
type HeaderRule struct {
	// Name is the key of the header, not a template.
	Name string
	// Value is a template. One column that is NULL makes a null header value.
	Value string
}

// Fault is one mistake in one rule.
type Fault struct {
	// Rule is the index in [Options.Rules].
	Rule int
	// Field is the key of the mistake in the configuration, such as `topic`, `headers[1].name` or `when.event_type`.
	Field string
	// Text explains it, in a sentence without a full stop.
	Text string
}

// String gives `tables[2].topic: text`, the way of the configuration file.
func (f Fault) String() string { return ruleName(f.Rule) + "." + f.Field + ": " + f.Text }

// Faults is the error of [New]: everything that is wrong with the rules, in their order, and never empty.
type Faults []Fault

// Error gives one line for each fault.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// presets are the rules behind the names. A header of a preset that is optional is left out where the table lacks its column.
var presets = map[string]preset{
	"outbox": {
		topic: "outbox.event.{aggregate_type}",
		key:   "{aggregate_id}",
		value: "{payload}",
		headers: []presetHeader{
			{column: "id"},
			{column: "event_type"},
			{column: "aggregate_type"},
			{column: "idempotency_key", optional: true},
		},
	},
	"cloudevents": {
		topic: "outbox.event.{aggregate_type}",
		key:   "{aggregate_id}",
		value: "{payload}",
	},
	"none":     {},
	"debezium": {},
}

type preset struct {
	topic, key, value string
	headers           []presetHeader
}

// presetHeader is a header that has the name of its column.
type presetHeader struct {
	column   string
	optional bool
}

// ruleName is how messages call a rule.
func ruleName(index int) string { return fmt.Sprintf("tables[%d]", index) }
