package debezium

import (
	"fmt"
	"slices"
	"strings"
)

// Options are the options of the Outbox Event Router, of the converters and of the connector, as far as they shape a record. Empty means
// Debezium's default.
type Options struct {
	// ID, Key and Payload name columns: id, aggregateid and payload.
	ID, Key, Payload string
	// Timestamp names a DATETIME column of the record's time. Empty takes the time of the commit.
	Timestamp string
	// RouteBy names the column that makes the topic: aggregatetype.
	RouteBy string
	// TopicRegex is a Java pattern that has to match the whole value, TopicReplacement what its first match becomes; a value that does not
	// match is the topic as it is. The defaults are `(?<routedByValue>.*)` and `outbox.event.${routedByValue}`.
	TopicRegex, TopicReplacement string
	// Additional are columns placed elsewhere, each `column:placement[:alias]` with placement header, envelope or partition.
	Additional []string
	// AdditionalMissing says what a column of Additional is that the table lacks: error or ignore.
	AdditionalMissing string
	// ExpandJSON parses a payload that is text of a JSON object and publishes its structure.
	ExpandJSON bool
	// JSONNull says what an expanded null becomes: ignore leaves it out, optional_bytes keeps it.
	JSONNull string
	// TombstoneOnEmpty makes a null value of an empty, blank or NULL payload.
	TombstoneOnEmpty bool
	// KeyConverter and ValueConverter are string, json, json-with-schema or, for the value, binary. HeaderConverter is simple, string, json
	// or json-with-schema.
	KeyConverter, ValueConverter, HeaderConverter string
	// NoContextHeaders leaves out the four headers that name the connector.
	NoContextHeaders bool
	// TopicPrefix is the connector's topic.prefix: a context header, and the beginning of the names of envelope schemas.
	TopicPrefix string
	// RunID is the context header that Debezium draws anew at each start of a task, a UUID of version 7.
	RunID string
	// Binary is the form of binary columns: bytes, base64, base64-url-safe or hex.
	Binary string
	// UnsignedBigint is the form of BIGINT UNSIGNED: long, where values above 2^63-1 are negative, or precise.
	UnsignedBigint string
	// JSONText is the text of JSON columns: debezium, as the connector writes it when it reads the binlog, or mysql, as SELECT prints it and
	// as Debezium's snapshots have it.
	JSONText string
	// NoPositionHeader leaves out the relay's own header. It is for the router.
	NoPositionHeader bool
}

// Fault is one mistake in the options.
type Fault struct {
	// Field is the key of the configuration, such as `topic_regex`.
	Field string
	// Text explains it, in a sentence without a full stop.
	Text string
}

// Preset is checked options. It serves any number of Bounds.
type Preset struct {
	o          Options
	regex      *pattern
	headers    []placement
	envelope   []placement
	partition  string
	key        converter
	value      converter
	header     converter
	context    []contextHeader
	ignoreGone bool
}

// placement is a column of Options.Additional.
type placement struct{ column, alias string }

// contextHeader is a header that is equal for all records.
type contextHeader struct{ name, value string }

// payloadField is the payload's name in an envelope.
const payloadField = "payload"

// New checks the options; with faults the Preset is nil.
func New(o Options) (*Preset, []Fault) {
	p := &Preset{o: o}
	var faults []Fault
	fault := func(field, format string, args ...any) {
		faults = append(faults, Fault{Field: field, Text: fmt.Sprintf(format, args...)})
	}
	choice := func(field string, word *string, allowed ...string) {
		if *word == "" {
			*word = allowed[0]
		}
		if !slices.Contains(allowed, *word) {
			fault(field, "%q is not one of %s", *word, strings.Join(allowed, ", "))
		}
	}
	p.fillIn()
	choice("additional_missing", &p.o.AdditionalMissing, "error", "ignore")
	choice("json_null", &p.o.JSONNull, "ignore", "optional_bytes")
	choice("key_converter", &p.o.KeyConverter, "string", "json", "json-with-schema")
	choice("value_converter", &p.o.ValueConverter, "string", "json", "json-with-schema", "binary")
	choice("header_converter", &p.o.HeaderConverter, "simple", "string", "json", "json-with-schema")
	choice("binary", &p.o.Binary, "bytes", "base64", "base64-url-safe", "hex")
	choice("bigint_unsigned", &p.o.UnsignedBigint, "long", "precise")
	choice("json_text", &p.o.JSONText, "debezium", "mysql")
	p.ignoreGone = p.o.AdditionalMissing == "ignore"
	p.key, p.value, p.header = converters[p.o.KeyConverter], converters[p.o.ValueConverter], converters[p.o.HeaderConverter]
	p.placements(fault)
	if p.value == asRaw && len(p.envelope) > 0 {
		fault("value_converter", "binary takes the payload alone, and additional places columns beside it")
	}
	if p.value == asRaw && p.o.ExpandJSON {
		fault("expand_json", "has no effect with value_converter binary")
	}
	var err error
	if p.regex, err = compilePattern(p.o.TopicRegex); err != nil {
		fault("topic_regex", "%v", err)
	} else if err = p.regex.replaceWith(p.o.TopicReplacement); err != nil {
		fault("topic_replacement", "%v", err)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	if !o.NoContextHeaders {
		const prefix = "__debezium.context."
		p.context = []contextHeader{
			{prefix + "connectorLogicalName", p.contextValue(o.TopicPrefix)}, {prefix + "taskId", p.contextValue("0")},
			{prefix + "connectorName", p.contextValue("mysql")}, {prefix + "runId", p.contextValue(o.RunID)},
		}
	}
	return p, nil
}

// fillIn sets the names that are not given.
func (p *Preset) fillIn() {
	for _, d := range []struct {
		word     *string
		fallback string
	}{
		{&p.o.ID, "id"}, {&p.o.Key, "aggregateid"}, {&p.o.Payload, "payload"}, {&p.o.RouteBy, "aggregatetype"},
		{&p.o.TopicRegex, defaultRegex}, {&p.o.TopicReplacement, "outbox.event.${routedByValue}"},
	} {
		if *d.word == "" {
			*d.word = d.fallback
		}
	}
}

// placements reads Options.Additional.
func (p *Preset) placements(fault func(field, format string, args ...any)) {
	for i, text := range p.o.Additional {
		field := fmt.Sprintf("additional[%d]", i)
		parts := strings.Split(text, ":")
		for j := range parts {
			parts[j] = strings.TrimSpace(parts[j])
		}
		if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
			fault(field, "%q is not column:placement or column:placement:alias", text)
			continue
		}
		one := placement{column: parts[0], alias: parts[len(parts)-1]}
		if len(parts) == 2 {
			one.alias = one.column
		}
		switch parts[1] {
		case "header":
			p.headers = append(p.headers, one)
		case "envelope":
			if one.alias == payloadField || slices.ContainsFunc(p.envelope, func(o placement) bool { return o.alias == one.alias }) {
				fault(field, "the envelope has a field %q already", one.alias)
			}
			p.envelope = append(p.envelope, one)
		case "partition":
			if p.partition != "" {
				fault(field, "there is a column for the partition already")
			}
			p.partition = one.column
		default:
			fault(field, "%q is not one of header, envelope, partition", parts[1])
		}
	}
}

// contextValue converts a header whose schema is a string that is never null.
func (p *Preset) contextValue(text string) string {
	out, _ := p.header.append(nil, `{"type":"string","optional":false`, &datum{kind: isText, text: []byte(text)})
	return string(out)
}

// HeaderNames are the names that columns give to headers.
func (p *Preset) HeaderNames() []string {
	names := make([]string, len(p.headers))
	for i, h := range p.headers {
		names[i] = h.alias
	}
	return names
}

// PositionHeader tells whether the relay adds its own header.
func (p *Preset) PositionHeader() bool { return !p.o.NoPositionHeader }

// Topic describes the topics for people.
func (p *Preset) Topic() string { return p.o.TopicReplacement }

// TopicPattern is a regular expression of Go that matches every topic that the preset can give.
func (p *Preset) TopicPattern() string {
	if !p.regex.all { // a value that does not match is a topic too
		return "^.+$"
	}
	return p.regex.topics()
}
