package config

// Debezium are the options of the preset debezium: those of Debezium's Outbox
// Event Router, of the converters and of the connector, under names of this
// file. Their defaults are Debezium's.
type Debezium struct {
	// ID, Key and Payload name columns.
	ID      string `yaml:"id"`
	Key     string `yaml:"key"`
	Payload string `yaml:"payload"`
	// Timestamp names a DATETIME column; empty means the commit time.
	Timestamp string `yaml:"timestamp"`
	// Route names the column that makes the topic by TopicRegex, a Java
	// pattern, and TopicReplacement.
	Route            string `yaml:"route"`
	TopicRegex       string `yaml:"topic_regex"`
	TopicReplacement string `yaml:"topic_replacement"`
	// Additional are column:placement[:alias] with placement header, envelope
	// or partition.
	Additional        []string `yaml:"additional"`
	AdditionalMissing string   `yaml:"additional_missing" oneof:"error ignore"`
	ExpandJSON        bool     `yaml:"expand_json"`
	JSONNull          string   `yaml:"json_null" oneof:"ignore optional_bytes"`
	TombstoneOnEmpty  bool     `yaml:"tombstone_on_empty"`
	KeyConverter      string   `yaml:"key_converter" oneof:"string json json-with-schema"`
	ValueConverter    string   `yaml:"value_converter" oneof:"string json json-with-schema binary"`
	HeaderConverter   string   `yaml:"header_converter" oneof:"simple string json json-with-schema"`
	ContextHeaders    bool     `yaml:"context_headers"`
	// TopicPrefix is the connector's topic.prefix; Config.Name where it is not
	// given.
	TopicPrefix    string `yaml:"topic_prefix"`
	Binary         string `yaml:"binary" oneof:"bytes base64 base64-url-safe hex"`
	BigintUnsigned string `yaml:"bigint_unsigned" oneof:"long precise"`
	JSONText       string `yaml:"json_text" oneof:"debezium mysql"`
	PositionHeader bool   `yaml:"position_header"`
}

// defaultTable is a rule before its keys are read.
func defaultTable(given any) Table {
	t := Table{Preset: PresetOutbox, NullKey: PolicyPoison, Snapshot: Snapshot{Chunk: 10_000}}
	keys, _ := given.(map[string]any)
	preset, _ := keys["preset"].(string)
	if preset == PresetCloudEvents {
		t.CloudEvents = defaultCloudEvents()
	}
	if preset == PresetDebezium {
		t.Debezium = Debezium{
			ID: "id", Key: "aggregateid", Payload: "payload", Route: "aggregatetype",
			TopicRegex: "(?<routedByValue>.*)", TopicReplacement: "outbox.event.${routedByValue}",
			AdditionalMissing: "error", JSONNull: "ignore",
			KeyConverter: "string", ValueConverter: "string", HeaderConverter: "simple",
			ContextHeaders: true, Binary: "bytes", BigintUnsigned: "long", JSONText: "debezium", PositionHeader: true,
		}
	}
	return t
}

// debezium checks the section of a rule.
func (c *collector) debezium(t *Table, path string) {
	if _, given := c.origins[path+".debezium"]; given && t.Preset != PresetDebezium {
		c.check(false, path+".debezium", "set preset: debezium, or drop it", "has no effect with preset %s", t.Preset)
	}
	if t.Preset != PresetDebezium {
		return
	}
	for _, one := range []struct {
		given        bool
		key, instead string
	}{
		{t.Topic != "", "topic", "set debezium.route, debezium.topic_regex and debezium.topic_replacement"},
		{t.Key != "", "key", "set debezium.key"},
		{t.Value != "", "value", "set debezium.payload"},
		{t.Timestamp != "", "timestamp", "set debezium.timestamp"},
		{t.Partition != "", "partition", "place a column with debezium.additional: [column:partition]"},
		{t.Tombstone, "tombstone", "set debezium.tombstone_on_empty"},
		{t.NullKey == PolicyAllow, "null_key", "drop it: a null key is published as Debezium publishes it"},
	} {
		c.check(!one.given, path+"."+one.key, one.instead, "has no effect with preset debezium")
	}
}
