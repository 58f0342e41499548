package fromdebezium_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/config"
	"outbox-relay/config/fromdebezium"
)

const connector = `{"name": "orders outbox", "config": {
 "connector.class": "io.debezium.connector.mysql.MySqlConnector", "tasks.max": 1,
 "database.hostname": "db1", "database.port": "3307", "database.user": "dbz", "database.password": "hunter2", "database.server.id": 184054,
 "database.ssl.mode": "verify_ca", "database.ssl.truststore": "/t.jks", "database.ssl.truststore.password": "hunter3",
 "topic.prefix": "gold", "database.include.list": "app", "table.include.list": "app\\.outbox, shop.out_box",
 "schema.history.internal.kafka.bootstrap.servers": "k1:9092,k2:9092", "schema.history.internal.kafka.topic": "h", "snapshot.mode": "no_data",
 "transforms": "outbox", "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
 "transforms.outbox.table.field.event.id": "event_id", "transforms.outbox.table.field.event.key": "k", "transforms.outbox.table.field.event.payload": "body",
 "transforms.outbox.table.field.event.timestamp": "created_at", "transforms.outbox.route.by.field": "kind",
 "transforms.outbox.route.topic.regex": "(?<a>.*)\\.(?<b>.*)", "transforms.outbox.route.topic.replacement": "ev.${a}-$2",
 "transforms.outbox.table.fields.additional.placement": "type:header:eventType, shard:partition", "transforms.outbox.table.field.additional.missing": "ignore",
 "transforms.outbox.table.expand.json.payload": true, "transforms.outbox.table.json.payload.null.behavior": "optional_bytes",
 "transforms.outbox.route.tombstone.on.empty.payload": "true", "transforms.outbox.table.op.invalid.behavior": "error",
 "key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.json.JsonConverter",
 "value.converter.schemas.enable": "false", "header.converter": "org.apache.kafka.connect.json.JsonConverter",
 "extended.headers.enabled": "false", "binary.handling.mode": "base64-url-safe", "bigint.unsigned.handling.mode": "precise",
 "producer.override.compression.type": "zstd", "producer.override.linger.ms": "5", "heartbeat.interval.ms": "10000",
 "topic.creation.default.partitions": "6", "topic.creation.default.replication.factor": "-1", "topic.creation.default.cleanup.policy": "delete",
 "decimal.handling.mode": "precise"
}}`

const stored = `{"offsets":[{"partition":{"server":"gold"},"offset":{"ts_sec":1,"file":"binlog.000002","pos":197,"gtids":"24da167e-0c0c-11e8-8442-00059a3c7b00:1-3176:zz:1-3,\n24da167e-0c0c-11e8-8442-00059a3c7b01:1-5","row":1,"server_id":1,"event":2}}]}`

func translate(t *testing.T, text, offset string) (yaml string, losses []string, err error) {
	t.Helper()
	var stored []byte
	if offset != "" {
		stored = []byte(offset)
	}
	out, list, err := fromdebezium.Translate([]byte(text), stored)
	for _, l := range list {
		losses = append(losses, l.Key+": "+l.Text)
	}
	return string(out), losses, err
}

func load(t *testing.T, yaml string) (*config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(config.Options{File: path})
}

func TestEverySettingIsTranslated(t *testing.T) {
	t.Parallel()
	yaml, losses, err := translate(t, connector, stored)
	if err != nil || len(losses) > 0 {
		t.Fatalf("%v, %v", losses, err)
	}
	if strings.Contains(yaml, "hunter") {
		t.Errorf("a secret was copied:\n%s", yaml)
	}
	c, err := load(t, yaml)
	if err != nil {
		t.Fatalf("%v\n%s", err, yaml)
	}
	want := config.Debezium{
		ID: "event_id", Key: "k", Payload: "body", Timestamp: "created_at", Route: "kind", TopicRegex: `(?<a>.*)\.(?<b>.*)`, TopicReplacement: "ev.${a}-$2",
		Additional: []string{"type:header:eventType", "shard:partition"}, AdditionalMissing: "ignore", ExpandJSON: true, JSONNull: "optional_bytes", TombstoneOnEmpty: true,
		KeyConverter: "string", ValueConverter: "json", HeaderConverter: "json-with-schema", TopicPrefix: "gold", Binary: "base64-url-safe", BigintUnsigned: "precise",
		JSONText: "debezium", PositionHeader: true,
	}
	for i, table := range []string{"app.outbox", "shop.out_box"} {
		if diff := cmp.Diff(want, c.Tables[i].Debezium); diff != "" || c.Tables[i].Table.String() != table || c.Tables[i].Preset != "debezium" {
			t.Errorf("table %s, -want +got\n%s", c.Tables[i].Table, diff)
		}
	}
	got := []any{c.Name, c.Source.Addresses[0], c.Source.User, c.Source.TLS.Mode, c.Source.Start, c.Kafka.Brokers, c.Kafka.Compression, c.Kafka.Linger.String(), c.Kafka.CreateTopics.Partitions, c.Kafka.CreateTopics.Configs}
	wanted := []any{
		"orders-outbox", "db1:3307", "dbz", "verify-ca", "24da167e-0c0c-11e8-8442-00059a3c7b00:1-3176:zz:1-3,24da167e-0c0c-11e8-8442-00059a3c7b01:1-5",
		[]string{"k1:9092", "k2:9092"}, "zstd", "5ms", int32(6), map[string]string{"cleanup.policy": "delete"},
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for _, part := range []string{
		"published\n  # again from its first row: event 2, row 1, binlog.000002:197.", "# snapshot.mode: the relay takes no snapshot", "#   heartbeat.interval.ms: the checkpoint moves",
		"table.op.invalid.behavior: updates of outbox rows publish nothing", "# replication_factor: -1 is the broker's own", "# database.ssl.truststore: Java's key stores are not read",
	} {
		if !strings.Contains(yaml, part) && !strings.Contains(yaml, strings.Replace(part, "# ", "#   ", 1)) {
			t.Errorf("%q is not in\n%s", part, yaml)
		}
	}
}

// least is the shortest connector, as properties, with more lines.
func least(more ...string) string {
	return strings.Join(append([]string{
		"# a comment", "connector.class = MySqlConnector", "topic.prefix:p", "database.hostname=db", `table.include.list=a\\.b`, "database.user=\\", "  u", "transforms=outbox",
		"transforms.outbox.type=io.debezium.transforms.outbox.EventRouter", "key.converter=org.apache.kafka.connect.storage.StringConverter",
		"value.converter=org.apache.kafka.connect.storage.StringConverter", "producer.override.bootstrap.servers=k:9092",
	}, more...), "\n")
}

func TestPropertiesAreRead(t *testing.T) {
	t.Parallel()
	yaml, losses, err := translate(t, least("name=x"), `{"gtids":"24da167e-0c0c-11e8-8442-00059a3c7b00:1-3","file":"b","pos":4}`)
	if err != nil || len(losses) > 0 {
		t.Fatalf("%v, %v", losses, err)
	}
	c, err := load(t, yaml)
	if err != nil {
		t.Fatalf("%v\n%s", err, yaml)
	}
	if c.Name != "x" || c.Source.User != "u" || c.Source.Addresses[0] != "db:3306" || c.Tables[0].Table.String() != "a.b" || c.Tables[0].Debezium.TopicPrefix != "p" || !c.Tables[0].Debezium.ContextHeaders {
		t.Errorf("got %+v", c)
	}
}

func TestConverters(t *testing.T) {
	t.Parallel()
	for line, want := range map[string][3]string{
		"key.converter=org.apache.kafka.connect.json.JsonConverter":                                             {"json-with-schema", "string", "simple"},
		"value.converter=io.debezium.converters.BinaryDataConverter\nvalue.converter.delegate.converter.type=x": {"string", "binary", "simple"},
		"value.converter=io.debezium.converters.ByteBufferConverter":                                            {"string", "binary", "simple"},
		"value.converter=": {"string", "string", "simple"},
		"header.converter=org.apache.kafka.connect.storage.SimpleHeaderConverter": {"string", "string", "simple"},
		"header.converter=org.apache.kafka.connect.storage.StringConverter":       {"string", "string", "string"},
	} {
		yaml, losses, err := translate(t, least(line), "")
		if err != nil || len(losses) > 0 {
			t.Errorf("%s: %v, %v", line, losses, err)
			continue
		}
		c, err := load(t, yaml)
		if err != nil {
			t.Fatalf("%v\n%s", err, yaml)
		}
		d := c.Tables[0].Debezium
		if got := [3]string{d.KeyConverter, d.ValueConverter, d.HeaderConverter}; got != want {
			t.Errorf("%s: %v, want %v", line, got, want)
		}
	}
}

func TestLossesAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ line, want, inFile string }{
		{"value.converter=io.confluent.connect.avro.AvroConverter", "value.converter: the converter io.confluent.connect.avro.AvroConverter is not known here", "value_converter: io.confluent.connect.avro.AvroConverter"},
		{"time.precision.mode=connect", "time.precision.mode: times in headers, envelopes and keys have the form of adaptive_time_microseconds here", "# NOT TRANSLATED"},
		{"decimal.handling.mode=string", "decimal.handling.mode: decimals in headers", ""},
		{"transforms=unwrap,outbox\ntransforms.unwrap.type=io.debezium.transforms.ExtractNewRecordState\ntransforms.unwrap.drop=x", "transforms.unwrap.type: the transformation io.debezium.transforms.ExtractNewRecordState does not run here", ""},
		{"transforms.outbox.table.field.event.schema.version=v", "transforms.outbox.table.field.event.schema.version: this option of the router is not known here", ""},
		{"column.mask.with.12.chars=a.b.c", "column.mask.with.12.chars: columns are published as they are", ""},
		{"gtid.source.includes=x", "gtid.source.includes: the transactions of all servers are read", ""},
		{"made.up=1", "made.up: the setting is not known here", ""},
	} {
		yaml, losses, err := translate(t, least(c.line), "")
		if err != nil || len(losses) != 1 || !strings.HasPrefix(losses[0], c.want) || !strings.Contains(yaml, c.inFile) || !strings.Contains(yaml, "#   "+losses[0]) {
			t.Errorf("%s: %v, %v, want %s\n%s", c.line, losses, err, c.want, yaml)
		}
	}
}

// TestWhatIsNotKnownIsLeftToThePerson sees that the relay refuses to start with what nobody has filled in.
func TestWhatIsNotKnownIsLeftToThePerson(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"table.include.list=app\\\\.out.*":         "tables[0].table: missing",
		"table.include.list=":                      "tables[0].table: missing",
		"producer.override.bootstrap.servers=":     "kafka.brokers: missing",
		"database.hostname=":                       "source.address: missing",
		"value.converter=io.apicurio.X":            "tables[0].debezium.value_converter: \"io.apicurio.X\" is not a choice",
		"transforms.outbox.route.by.field=a\\n- b": "",
	} {
		yaml, _, err := translate(t, least(line), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := load(t, yaml); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %s\n%s", line, err, want, yaml)
		}
	}
}

func TestWhatCannotBeTranslated(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, offset, want string }{
		{"", "", "the file is empty"},
		{"{", "", "the file is no JSON object"},
		{"connector", "", "line 1 is neither JSON nor key=value"},
		{`{"config": {"a": {}}}`, "", "a is no single value"},
		{"connector.class=io.debezium.connector.postgresql.PostgresConnector", "", "only Debezium's MySQL connector"},
		{"connector.class=MySqlConnector", "", "there is no outbox to translate"},
		{"debezium.source.connector.class=x", "", "Debezium Server"},
		{least(), "{", "the offset is no JSON object"},
		{least(), `{"file":"b","pos":4}`, "the offset has no gtids"},
		{least(), `{"gtids":"u:1","snapshot":"INITIAL"}`, "a snapshot that is not finished"},
		{least(), `{"offsets":[{"offset":{}},{"offset":{}}]}`, "the offsets of 2 partitions"},
	} {
		if _, _, err := translate(t, c.text, c.offset); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %s: %v, want %s", c.text, c.offset, err, c.want)
		}
	}
}
