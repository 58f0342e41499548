package router

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"outbox-relay/router/debezium"
)

// rule is a Rule without faults.
type rule struct {
	index     int
	table     TableName
	when      []condition
	topic     template
	fixed     string // the topic where the template has no column
	key       template
	value     template
	headers   []header
	timestamp string
	zone      *time.Location
	partition string
	otherwise string
	tombstone bool
	nullKey   bool
	policy    string
	debezium  *debezium.Preset // nil for the other presets
	event     *cloudEvents     // nil for the other presets
}

// condition holds when the column's text is one of the values.
type condition struct {
	column string
	values map[string]struct{}
}

type header struct {
	name     string
	value    template
	spread   bool
	optional bool
	field    string
}

// compiler collects the faults of one rule.
type compiler struct {
	index  int
	faults Faults
}

func (c *compiler) fault(field, format string, args ...any) {
	c.faults = append(c.faults, Fault{Rule: c.index, Field: field, Text: fmt.Sprintf(format, args...)})
}

func compileRule(index int, in Rule) (rule, Faults) {
	c := &compiler{index: index}
	out := rule{index: index, tombstone: in.Tombstone, policy: in.Poison, otherwise: in.Otherwise}

	var err error
	if out.table, err = ParseTableName(in.Table); err != nil {
		c.fault("table", "%v", err)
	}
	p := c.preset(in.Preset)
	if p.name == "debezium" {
		out.debezium = c.debezium(in)
	} else if in.Debezium != nil {
		c.fault("debezium", "has no effect without preset: debezium")
	}
	if p.name == "cloudevents" {
		out.event = c.cloudEvents(in, out.table)
	} else if in.CloudEvents != nil {
		c.fault("cloudevents", "has no effect without preset: cloudevents")
	}
	out.topic, out.fixed = c.topic(in.Topic, p)
	out.key = c.template("key", in.Key, p.key)
	out.value = c.template("value", in.Value, p.value)
	out.headers = c.headers(in.Headers, p)
	out.when = c.when(in.When)
	out.timestamp = c.column("timestamp", in.Timestamp)
	out.partition = c.column("partition", in.Partition)
	out.zone = c.zone(in)
	out.nullKey = c.choice("null_key", in.NullKey, "poison", "allow") == "allow"
	c.choice("otherwise", in.Otherwise, "poison", "ignore")
	c.choice("poison", in.Poison, "", "halt", "dead_letter", "skip")
	if p.name == "none" {
		c.required(in, out.nullKey)
	}
	return out, c.faults
}

// namedPreset keeps the name for the checks that depend on it.
type namedPreset struct {
	preset
	name string
}

func (c *compiler) preset(name string) namedPreset {
	if name == "" {
		name = "outbox"
	}
	p, ok := presets[name]
	if !ok {
		c.fault("preset", "unknown preset %q: there are outbox, debezium, cloudevents and none", name)
	}
	return namedPreset{preset: p, name: name}
}

// debezium compiles the options of the preset, which says itself what the templates of others say.
func (c *compiler) debezium(in Rule) *debezium.Preset {
	for _, one := range []struct{ field, given, instead string }{
		{"topic", in.Topic, "debezium.route, debezium.topic_regex and debezium.topic_replacement"}, {"key", in.Key, "debezium.key"},
		{"value", in.Value, "debezium.payload"}, {"timestamp", in.Timestamp, "debezium.timestamp"},
		{"partition", in.Partition, "a column with placement partition in debezium.additional"},
	} {
		if one.given != "" {
			c.fault(one.field, "preset debezium has its own: set %s", one.instead)
		}
	}
	if in.Tombstone {
		c.fault("tombstone", "preset debezium has its own: set debezium.tombstone_on_empty")
	}
	var o debezium.Options
	if in.Debezium != nil {
		o = *in.Debezium
	}
	p, faults := debezium.New(o)
	for _, f := range faults {
		c.fault("debezium."+f.Field, "%s", f.Text)
	}
	if p == nil {
		return nil
	}
	for _, name := range p.HeaderNames() {
		if err := checkHeaderName([]byte(name)); err != nil {
			c.fault("debezium.additional", "%v", err)
		}
	}
	return p
}

// required checks what a rule without preset has to say itself.
func (c *compiler) required(in Rule, nullKey bool) {
	if in.Topic == "" {
		c.fault("topic", "missing: preset none has none")
	}
	if in.Value == "" {
		c.fault("value", "missing: preset none has none")
	}
	if in.Key == "" && !nullKey {
		c.fault("key", "missing: preset none has none, and records without key need null_key: allow, since they have no order")
	}
}

func (c *compiler) template(field, text, fallback string) template {
	if text == "" {
		text = fallback
	}
	t, err := parseTemplate(text)
	if err != nil {
		c.fault(field, "%v", err)
	}
	return t
}

func (c *compiler) topic(text string, p namedPreset) (template, string) {
	t := c.template("topic", text, p.topic)
	if fixed, ok := t.literalOnly(); ok {
		if fixed != "" {
			if err := CheckTopic([]byte(fixed)); err != nil {
				c.fault("topic", "%v", err)
			}
		}
		return t, fixed
	}
	literals := 0
	for _, part := range t.parts {
		literals += len(part.literal)
		if err := checkTopicPart([]byte(part.literal)); err != nil {
			c.fault("topic", "%v", err)
			return t, ""
		}
	}
	if literals > maxTopic {
		c.fault("topic", "text of %d bytes beside the columns, %d are allowed for a topic name", literals, maxTopic)
	}
	return t, ""
}

func (c *compiler) headers(in []HeaderRule, p namedPreset) []header {
	var out []header
	for _, h := range p.headers {
		t := template{parts: []part{{column: h.column}}}
		out = append(out, header{name: h.column, value: t, optional: h.optional, field: "headers of preset " + p.name})
	}
	for i, h := range in {
		field := fmt.Sprintf("headers[%d]", i)
		t, err := parseTemplate(h.Value)
		if err != nil {
			c.fault(field+".value", "%v", err)
		}
		spread := h.Name == "*"
		if spread && err == nil && (!t.single() || t.parts[0].filter != filterNone) {
			c.fault(field+".value", "a header named * takes one column without filter, such as {headers}")
		}
		if err := checkHeaderName([]byte(h.Name)); err != nil {
			c.fault(field+".name", "%v", err)
		}
		out = append(out, header{name: h.Name, value: t, spread: spread, field: field})
	}
	return out
}

func (c *compiler) when(in map[string][]string) []condition {
	var out []condition
	for _, column := range slices.Sorted(maps.Keys(in)) {
		field := "when." + column
		if column == "" {
			c.fault("when", "empty column name")
		}
		if len(in[column]) == 0 {
			c.fault(field, "no value, so the rule would match no row")
		}
		same := func(o condition) bool { return strings.EqualFold(o.column, column) }
		if slices.ContainsFunc(out, same) {
			c.fault(field, "the column is named twice, in upper and lower case")
		}
		values := make(map[string]struct{}, len(in[column]))
		for _, v := range in[column] {
			if _, twice := values[v]; twice {
				c.fault(field, "value %q is named twice", v)
			}
			values[v] = struct{}{}
		}
		out = append(out, condition{column: column, values: values})
	}
	return out
}

// column reads a setting that names one column, bare or in braces.
func (c *compiler) column(field, text string) string {
	if text == "" || !strings.ContainsAny(text, "{}") {
		return text
	}
	t, err := parseTemplate(text)
	switch {
	case err != nil:
		c.fault(field, "%v", err)
	case !t.single() || t.parts[0].filter != filterNone:
		c.fault(field, "takes the name of one column, without text or filter")
	default:
		return t.parts[0].column
	}
	return ""
}

func (c *compiler) zone(in Rule) *time.Location {
	if in.TimeZone == "" {
		return time.UTC
	}
	if in.Timestamp == "" {
		c.fault("time_zone", "has no effect without timestamp")
	}
	if in.TimeZone == "Local" {
		c.fault("time_zone", "name the zone: Local would depend on the machine")
		return time.UTC
	}
	zone, err := time.LoadLocation(in.TimeZone)
	if err != nil {
		c.fault("time_zone", "unknown zone %q", in.TimeZone)
		return time.UTC
	}
	return zone
}

// choice checks a word against the allowed ones, of which the first is the default.
func (c *compiler) choice(field, word string, allowed ...string) string {
	if word == "" {
		return allowed[0]
	}
	if !slices.Contains(allowed, word) {
		words := slices.DeleteFunc(slices.Clone(allowed), func(s string) bool { return s == "" })
		c.fault(field, "%q is not one of %s", word, strings.Join(words, ", "))
	}
	return word
}
