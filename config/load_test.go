package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"outbox-relay/config"
)

// least is the smallest file without faults.
const least = `source: {address: "db1:3306", user: relay}
tables: [{table: app.outbox_events}]
kafka: {brokers: ["k1:9092"]}
`

// write puts a configuration file into a new directory and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "outbox-relay.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, text string, o config.Options) *config.Config {
	t.Helper()
	o.File = write(t, text)
	c, err := config.Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// withoutOrigins compares what a Config says, not where it was written.
var withoutOrigins = cmp.Options{cmpopts.IgnoreUnexported(config.Config{}), cmpopts.IgnoreFields(config.Config{}, "File")}

func TestDefaults(t *testing.T) {
	t.Parallel()
	want := &config.Config{
		Name: "outbox-relay",
		Source: config.Source{
			Addresses: []string{"db1:3306"}, User: "relay", TLS: config.TLS{Mode: "preferred"},
			OnGap: "halt", OnDivergence: "halt", ReadFrom: "any", OnStatementWrite: "halt", OnUnknownXA: "halt", Heartbeat: 5 * time.Second,
		},
		Tables: []config.Table{{
			Table: config.TableName{Schema: "app", Table: "outbox_events"}, Preset: "outbox",
			Otherwise: "poison", NullKey: "poison", Snapshot: config.Snapshot{Chunk: 10_000}, Poison: config.Poison{Policy: "halt", Topic: "outbox.dead-letter"},
		}},
		Kafka: config.Kafka{
			Brokers: []string{"k1:9092"}, Delivery: "at-least-once", Compression: "lz4", Partitioner: "murmur2",
			TransactionTimeout: time.Minute, CreateTopics: config.CreateTopics{Partitions: 6, ReplicationFactor: 3},
			TLS: config.TLS{Mode: "disabled"},
		},
		Checkpoint: config.Checkpoint{
			Store: "file", Path: "./outbox-relay.checkpoint", Table: config.TableName{Schema: "outbox_relay", Table: "checkpoints"},
			Topic: "outbox-relay.outbox-relay.checkpoint", TLS: config.TLS{Mode: "preferred"}, Interval: time.Second,
		},
		Poison: config.Poison{Policy: "halt", Topic: "outbox.dead-letter"},
		OnHalt: "wait",
		Limits: config.Limits{Buffer: 16 << 20, Row: 16 << 20, Spool: 10 << 30, Topics: 1000, ParkedKeys: 10_000},
		HTTP:   config.HTTP{Address: ":9733"},
		Log:    config.Log{Level: "info", Format: "text"},
	}
	if diff := cmp.Diff(want, load(t, least, config.Options{}), withoutOrigins); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

const everything = `
name: orders
source:
  address: [db1:3306, "[::1]:3306"]
  user: relay
  password: 0123
  tls: {mode: verify-identity, ca: ca.pem, cert: c.pem, key: k.pem}
  server_id: 4294967295
  start: >
    0a000000-0000-0000-0000-000000000001:1-100:102:blue:1-3,
    0B000000-0000-0000-0000-000000000002:7
  on_gap: halt
  on_divergence: halt
  read_from: primary
  on_statement_write: ignore
  on_unknown_xa: skip
  heartbeat: 500ms
tables:
  - &first
    table: '` + "`my.app`.`outbox ``events``%`" + `'
    preset: none
    topic: "{t}"
    key: "{k}"
    value: "{v}"
    headers:
      - {name: tenant, value: "{tenant_id}"}
      - {name: "*", value: "{headers}"}
    timestamp: created_at
    time_zone: Europe/Berlin
    partition: shard
    when: {event_type: [OrderPlaced, 7], region: eu}
    otherwise: ignore
    tombstone: true
    null_key: allow
    from: latest
    snapshot: {where: "x = 'y'", order_by: created_at, chunk: 500}
  - <<: *first
    when:
    value: null
    poison: {topic: my.dead}
    preset: outbox
kafka:
  brokers: [k1:9092, k2:9092]
  delivery: at-least-once
  compression: zstd
  partitioner: crc32
  linger: 5ms
  transaction_timeout: 2m
  create_topics: {enabled: true, partitions: 12, replication_factor: 1, configs: {cleanup.policy: delete, retention.ms: 1000}}
  tls: {mode: required}
  sasl: {mechanism: scram-sha-512, user: relay, password_file: /secret}
checkpoint: {store: mysql, path: /data/cp, table: a.b, address: ['db9:3306'], user: cp, password: pw, tls: {mode: required}, topic: "cp.{name}", interval: 250ms}
poison: {policy: halt, topic: dead, park_keys: false}
on_halt: exit
limits: {buffer: 1MiB, row: 512KiB, spool: 1TiB, spool_dir: /spool, topics: 5}
http: {address: "127.0.0.1:0"}
log: {level: debug, format: json}
`

func TestEveryKey(t *testing.T) {
	t.Parallel()
	c := load(t, everything, config.Options{})
	first := config.Table{
		Table: config.TableName{Schema: "my.app", Table: "outbox `events`%"}, Preset: "none", Topic: "{t}", Key: "{k}", Value: "{v}",
		Headers:   []config.Header{{Name: "tenant", Value: "{tenant_id}"}, {Name: "*", Value: "{headers}"}},
		Timestamp: "created_at", TimeZone: "Europe/Berlin", Partition: "shard",
		When:      map[string][]string{"event_type": {"OrderPlaced", "7"}, "region": {"eu"}},
		Otherwise: "ignore", Tombstone: true, NullKey: "allow", From: "latest", Poison: config.Poison{Policy: "halt", Topic: "dead"},
		Snapshot: config.Snapshot{Where: "x = 'y'", OrderBy: "created_at", Chunk: 500},
	}
	second := first
	second.Preset, second.When, second.Value = "outbox", nil, ""
	second.Poison.Topic = "my.dead"
	want := &config.Config{
		Name: "orders",
		Source: config.Source{
			Addresses: []string{"db1:3306", "[::1]:3306"}, User: "relay", Password: config.Secret{Value: "0123"},
			TLS:      config.TLS{Mode: "verify-identity", CA: "ca.pem", Cert: "c.pem", Key: "k.pem"},
			ServerID: 1<<32 - 1,
			Start:    "0a000000-0000-0000-0000-000000000001:1-100:102:blue:1-3, 0B000000-0000-0000-0000-000000000002:7\n",
			OnGap:    "halt", OnDivergence: "halt", ReadFrom: "primary", OnStatementWrite: "ignore", OnUnknownXA: "skip", Heartbeat: 500 * time.Millisecond,
		},
		Tables: []config.Table{first, second},
		Kafka: config.Kafka{
			Brokers: []string{"k1:9092", "k2:9092"}, Delivery: "at-least-once", Compression: "zstd", Partitioner: "crc32",
			Linger: 5 * time.Millisecond, TransactionTimeout: 2 * time.Minute,
			CreateTopics: config.CreateTopics{Enabled: true, Partitions: 12, ReplicationFactor: 1,
				Configs: map[string]string{"cleanup.policy": "delete", "retention.ms": "1000"}},
			TLS:  config.TLS{Mode: "required"},
			SASL: config.SASL{Mechanism: "scram-sha-512", User: "relay", Password: config.Secret{File: "/secret"}},
		},
		Checkpoint: config.Checkpoint{
			Store: "mysql", Path: "/data/cp", Table: config.TableName{Schema: "a", Table: "b"}, Topic: "cp.orders", Interval: 250 * time.Millisecond,
			Addresses: []string{"db9:3306"}, User: "cp", Password: config.Secret{Value: "pw"}, TLS: config.TLS{Mode: "required"},
		},
		Poison: config.Poison{Policy: "halt", Topic: "dead"},
		OnHalt: "exit",
		Limits: config.Limits{Buffer: config.MiB, Row: 512 * config.KiB, Spool: config.TiB, SpoolDir: "/spool", Topics: 5, ParkedKeys: 10_000},
		HTTP:   config.HTTP{Address: "127.0.0.1:0"},
		Log:    config.Log{Level: "debug", Format: "json"},
	}
	if diff := cmp.Diff(want, c, withoutOrigins); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestFlagsWinOverEnvironmentWinsOverFile(t *testing.T) {
	t.Parallel()
	c := load(t, least+"name: file\nlog: {level: warn, format: json}\n", config.Options{
		Env: []string{
			"OUTBOX_RELAY__NAME=environment", "OUTBOX_RELAY__LOG__LEVEL=error", "PATH=/bin",
			"OUTBOX_RELAY__KAFKA__BROKERS=a:9092, b:9092", "OUTBOX_RELAY__SOURCE__PASSWORD=with,comma=and equals",
			// What Kubernetes injects for a service called outbox-relay.
			"OUTBOX_RELAY_PORT=tcp://10.0.0.1:9733", "OUTBOX_RELAY_SERVICE_HOST=10.0.0.1",
		},
		Sets: []string{"name=flag", "kafka.linger=1ms", "kafka.linger=5ms", "kafka.create_topics.enabled=true"},
	})
	if c.Name != "flag" || c.Log.Level != "error" || c.Log.Format != "json" || c.Kafka.Linger != 5*time.Millisecond || !c.Kafka.CreateTopics.Enabled {
		t.Errorf("got name %q, log %+v, linger %s", c.Name, c.Log, c.Kafka.Linger)
	}
	if diff := cmp.Diff([]string{"a:9092", "b:9092"}, c.Kafka.Brokers); diff != "" {
		t.Errorf("brokers, -want +got\n%s", diff)
	}
	if c.Source.Password.Value != "with,comma=and equals" {
		t.Error("a scalar from the environment was split")
	}
	if c.Source.User != "relay" {
		t.Errorf("an override of one key took away another: user %q", c.Source.User)
	}
}

func TestFileLookup(t *testing.T) {
	t.Parallel()
	flag, variable, first, second := write(t, least+"name: flag"), write(t, least+"name: variable"), write(t, least+"name: first"), write(t, least+"name: second")
	absent := filepath.Join(t.TempDir(), "absent.yaml")
	env := []string{"OUTBOX_RELAY__CONFIG_FILE=" + variable}
	for want, o := range map[string]config.Options{
		"flag":     {File: flag, Env: env, Search: []string{first}},
		"variable": {Env: env, Search: []string{first}},
		"first":    {Search: []string{first, second}},
		"second":   {Search: []string{absent, second}},
	} {
		if c, err := config.Load(o); err != nil || c.Name != want {
			t.Errorf("want the file %q, got %v, %v", want, c, err)
		}
	}
	for want, o := range map[string]config.Options{
		"configuration: no file found - give --config, set OUTBOX_RELAY__CONFIG_FILE, or write one of " + absent: {Search: []string{absent}},
		"configuration " + absent + ": reading the file: open " + absent + ": no such file or directory":         {File: absent, Search: []string{first}},
	} {
		_, err := config.Load(o)
		var faults *config.Faults
		if !errors.As(err, &faults) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if got := strings.Join(config.DefaultFiles, " "); got != "./outbox-relay.yaml /etc/outbox-relay/outbox-relay.yaml" {
		t.Errorf("default files are %s", got)
	}
}

func TestOtherwiseHoldsForAllRulesOfATable(t *testing.T) {
	t.Parallel()
	c := load(t, `source: {address: "db1:3306", user: relay}
kafka: {brokers: ["k1:9092"]}
tables:
  - {table: app.a, when: {x: 1}}
  - {table: app.b}
  - {table: app.a, when: {x: 2}, otherwise: ignore}
`, config.Options{})
	for i, want := range []string{"ignore", "poison", "ignore"} {
		if got := c.Tables[i].Otherwise; got != want {
			t.Errorf("tables[%d].otherwise is %s, want %s", i, got, want)
		}
	}
}

func TestFaultOfAnotherPackageHasThePlace(t *testing.T) {
	t.Parallel()
	c := load(t, everything, config.Options{Sets: []string{"name=x"}})
	for path, want := range map[string]string{
		"tables[0].topic":        "(line 22)",
		"tables[0].headers[1]":   "(line 27)",
		"tables[0].no_such_key":  "(line 19)",
		"name":                   "(--set name)",
		"checkpoint.other.thing": "(line 52)",
	} {
		if got := c.Fault(path, "is wrong", "do").String(); got != path+": is wrong "+want+" - do" {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
