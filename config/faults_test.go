package config_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/config"
)

// TestFaults holds the sentences. Text is added below the smallest file without
// faults, so its first line is line 4; a section that is given again replaces
// the one of that file.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, text string
		env, sets  []string
		want       []string
	}{
		// Keys
		{"unknown key with another name elsewhere", "source: {port: 3306, address: 'db1:3306', user: relay}", nil, nil,
			[]string{`source.port: unknown key (line 1) - did you mean "address"?`}},
		{"typing error", "chekpoint: {}", nil, nil,
			[]string{`chekpoint: unknown key (line 4) - did you mean "checkpoint"?`}},
		{"dash for underscore", "on-halt: wait", nil, nil,
			[]string{`on-halt: unknown key (line 4) - did you mean "on_halt"?`}},
		{"key of another section", "log: {compression: lz4}", nil, nil,
			[]string{`log.compression: unknown key (line 4) - did you mean "kafka.compression"?`}},
		{"key like no other", "zzzzzzzzzzz: 1", nil, nil, []string{"zzzzzzzzzzz: unknown key (line 4)"}},
		{"key in a list", "tables:\n  - table: a.b\n    tpoic: x", nil, nil,
			[]string{`tables[0].tpoic: unknown key (line 4) - did you mean "topic"?`}},
		{"given twice", "name: a\nname: b", nil, nil, []string{"name: given twice (line 5) - keep one"}},

		// Missing
		{"empty sections", "source:\nkafka: {}\ntables: []", nil, nil, []string{
			"source.address: missing (line 1) - the MySQL server, such as db1:3306",
			"source.user: missing (line 1) - the MySQL user of the relay",
			"tables: missing (line 2) - name at least one outbox table",
			"kafka.brokers: missing (line 3) - one or more of the cluster, such as k1:9092",
		}},
		{"null value", "source: {address: 'db1:3306', user: }", nil, nil,
			[]string{"source.user: missing (line 1) - the MySQL user of the relay"}},
		{"rule without table", "tables:\n  - topic: a", nil, nil, []string{"tables[0].table: missing (line 3) - write schema.table"}},
		{"preset none without templates", "tables: [{table: a.b, preset: none}]", nil, nil, []string{
			"tables[0].topic: missing (line 2) - preset none has no topic of its own",
			"tables[0].value: missing (line 2) - preset none has no value of its own",
		}},
		{"header without name", "tables: [{table: a.b, headers: [{value: x}]}]", nil, nil,
			[]string{"tables[0].headers[0].name: missing (line 2) - the header's key"}},

		// Shapes
		{"section as text", "log: debug", nil, nil, []string{"log: must be a section with keys of its own (line 4)"}},
		{"text as section", "name: {a: b}", nil, nil, []string{"name: must be a single value (line 4)"}},
		{"text as list", "name: [a]", nil, nil, []string{"name: must be a single value (line 4)"}},
		{"list as section", "kafka: {brokers: {a: b}}", nil, nil, []string{"kafka.brokers: must be a list of single values (line 3)"}},
		{"tables as section", "tables: {table: a.b}", nil, nil, []string{"tables: must be a list (line 2) - begin each element with a dash"}},
		{"empty element", "kafka:\n  brokers:\n    -\n    - k1:9092", nil, nil,
			[]string{"kafka.brokers[0]: an element is empty (line 5) - remove it or fill it in"}},
		{"nothing but empty elements", "kafka:\n  brokers:\n    -", nil, nil,
			[]string{"kafka.brokers[0]: an element is empty (line 5) - remove it or fill it in"}},
		{"required section as text", "kafka: k1:9092\nsource: [a]", nil, nil, []string{
			"source: must be a section with keys of its own (line 1)",
			"kafka: must be a section with keys of its own (line 3)",
		}},
		{"broken merge", "tables: [{<<: 1, table: a.b}]", nil, nil, []string{"tables[0]: << on line 2 does not name a mapping (line 2)"}},
		{"merge in a circle", "log: &l\n  <<: *l", nil, nil, []string{"log: << on line 5 does not name a mapping (line 4)"}},

		// Values
		{"duration without unit", "checkpoint: {interval: 5}", nil, nil,
			[]string{`checkpoint.interval: "5" is not a duration (line 4) - write a number with a unit, such as 500ms, 5s or 2m`}},
		{"duration out of range", "checkpoint: {interval: 1ms}", nil, nil,
			[]string{"checkpoint.interval: 1ms is not between 10ms and 1h0m0s (line 4)"}},
		{"size without number", "limits: {row: lots}", nil, nil,
			[]string{`limits.row: "lots" is not a size (line 4) - write a whole number with a unit, such as 16MiB`}},
		{"size with a decimal unit", "limits: {buffer: 16MB}", nil, nil,
			[]string{`limits.buffer: "16MB" has an unknown unit (line 4) - use B, KiB, MiB, GiB or TiB`}},
		{"size out of range", "limits: {row: 2GiB}", nil, nil, []string{"limits.row: 2GiB is not between 1KiB and 1GiB (line 4)"}},
		{"number", "limits: {topics: many}", nil, nil, []string{`limits.topics: "many" is not a whole number (line 4) - write digits only`}},
		{"number too large", "kafka: {brokers: ['k1:9092'], create_topics: {replication_factor: 40000}}", nil, nil,
			[]string{`kafka.create_topics.replication_factor: "40000" is out of range (line 3) - write a smaller number`}},
		{"number too small", "limits: {topics: 0}", nil, nil, []string{"limits.topics: must be at least 1 (line 4)"}},
		{"bool", "poison: {park_keys: yes}", nil, nil, []string{`poison.park_keys: "yes" is neither true nor false (line 4) - write true or false`}},
		{"choice", "log: {level: trace}", nil, nil, []string{`log.level: "trace" is not a choice (line 4) - use debug, info, warn or error`}},
		{"empty choice", "on_halt: ''", nil, nil, []string{`on_halt: "" is not a choice (line 4) - use wait or exit`}},
		{"name", "name: a b", nil, nil, []string{`name: "a b" cannot name a lock, a topic and a transactional id (line 4) - use 1 to 48 of A-Z a-z 0-9 . _ -`}},
		{"start", "source: {address: 'db1:3306', user: relay, start: now}", nil, nil,
			[]string{`source.start: "now" is not a place to start (line 1) - use latest, earliest, snapshot or a GTID set`}},
		{"topic", "poison: {topic: 'dead letters'}", nil, nil,
			[]string{`poison.topic: "dead letters" is not a Kafka topic name (line 4) - use 1 to 249 of A-Z a-z 0-9 . _ -`}},

		{"dead letters to a topic of the brokers", "poison: {topic: __consumer_offsets}", nil, nil,
			[]string{`poison.topic: __consumer_offsets is a topic of the brokers themselves, which refuse producers (line 4) - name one of your own, such as outbox.dead-letter`}},
		{"topic of dots", "poison: {topic: '..'}", nil, nil,
			[]string{`poison.topic: ".." is not a Kafka topic name (line 4) - use 1 to 249 of A-Z a-z 0-9 . _ -`}},

		// Addresses
		{"no port", "source: {address: db1, user: relay}", nil, nil,
			[]string{`source.address: "db1" is not host:port (line 1) - write host:port, an IPv6 address in brackets`}},
		{"second of a list", "kafka:\n  brokers:\n    - k1:9092\n    - k2:0", nil, nil,
			[]string{`kafka.brokers[1]: "k2:0" has no valid port (line 6) - use 1 to 65535`}},
		{"no host", "source: {address: ':3306', user: relay}", nil, nil, []string{`source.address: ":3306" has no host (line 1) - write host:port`}},
		{"user in it", "source: {address: 'relay@db1:3306', user: relay}", nil, nil,
			[]string{`source.address: "relay@db1:3306" is not host:port (line 1) - write host:port alone, without scheme, user or path`}},
		{"list as text", "kafka: {brokers: 'a:1,b:2'}", nil, nil, []string{`kafka.brokers: "a:1,b:2" holds a comma (line 3) - write a list: [a:1, b:2]`}},
		{"http", "http: {address: '9733'}", nil, nil, []string{`http.address: "9733" is not host:port (line 4) - write host:port, an IPv6 address in brackets`}},

		// Tables
		{"no schema", "tables: [{table: outbox}]", nil, nil, []string{`tables[0].table: "outbox" lacks a schema (line 2) - write schema.table`}},
		{"two otherwise", "tables:\n  - {table: a.b, when: {x: 1}, otherwise: poison}\n  - {table: a.b, otherwise: ignore}", nil, nil,
			[]string{"tables[1].otherwise: a.b already has otherwise: poison (line 4) - give it once"}},
		{"time zone alone", "tables: [{table: a.b, time_zone: UTC}]", nil, nil,
			[]string{"tables[0].time_zone: has no effect without a timestamp column (line 2) - give timestamp too"}},
		{"empty when", "tables: [{table: a.b, when: {x: []}}]", nil, nil,
			[]string{"tables[0].when.x: matches nothing (line 2) - list the values that match"}},

		// Secrets, TLS, SASL
		{"two passwords", "source: {address: 'db1:3306', user: relay, password: hunter2, password_file: /x}", nil, nil,
			[]string{"source: more than one of password, password_file and password_command is given (line 1) - keep one"}},
		{"command line", "source: {address: 'db1:3306', user: relay, password_command: cat /x}", nil, nil,
			[]string{"source.password_command: is one word with spaces, and no shell reads it (line 1) - write a list, such as [cat, /run/secrets/password]"}},
		{"certificate without key", "source: {address: 'db1:3306', user: relay, tls: {cert: c.pem}}", nil, nil,
			[]string{"source.tls: cert and key belong together (line 1) - give both"}},
		{"TLS off with a CA", "kafka: {brokers: ['k1:9092'], tls: {ca: ca.pem}}", nil, nil,
			[]string{"kafka.tls.mode: is disabled but certificates are given (line 3) - use verify-identity, or drop ca, cert and key"}},
		{"TLS preferred for Kafka", "kafka: {brokers: ['k1:9092'], tls: {mode: preferred}}", nil, nil,
			[]string{"kafka.tls.mode: Kafka does not negotiate encryption (line 3) - use disabled, required, verify-ca or verify-identity"}},
		{"SASL user alone", "kafka: {brokers: ['k1:9092'], sasl: {user: a}}", nil, nil,
			[]string{"kafka.sasl: has a user or password but no mechanism (line 3) - give kafka.sasl.mechanism"}},
		{"SASL without password", "kafka: {brokers: ['k1:9092'], sasl: {mechanism: plain, user: a}}", nil, nil,
			[]string{"kafka.sasl.password: missing (line 3) - or password_file or password_command; for oauthbearer the token"}},
		{"SASL without user", "kafka: {brokers: ['k1:9092'], sasl: {mechanism: plain, password: a}}", nil, nil,
			[]string{"kafka.sasl.user: missing (line 3) - plain needs one"}},

		{"two ways of a snapshot", "tables: [{table: a.b, when: {x: ['1']}, snapshot: {chunk: 5}}, {table: a.b, snapshot: {order_by: x}}, {table: a.c, snapshot: {chunk: 0}}]", nil, nil, []string{
			"tables[1].snapshot: differs from that of another rule (line 2) - write it under tables[0] alone, the first rule of the table",
			"tables[2].snapshot.chunk: is not between 1 and 1000000 (line 2)",
		}},
		{"debezium with templates", "tables: [{table: a.b, preset: debezium, topic: t, null_key: allow, debezium: {binary: octal}}]", nil, nil, []string{
			`tables[0].debezium.binary: "octal" is not a choice (line 2) - use bytes, base64, base64-url-safe or hex`,
			"tables[0].topic: has no effect with preset debezium (line 2) - set debezium.route, debezium.topic_regex and debezium.topic_replacement",
			"tables[0].null_key: has no effect with preset debezium (line 2) - drop it: a null key is published as Debezium publishes it",
		}},
		{"debezium options elsewhere", "tables: [{table: a.b, debezium: {id: event_id}}]", nil, nil,
			[]string{"tables[0].debezium: has no effect with preset outbox (line 2) - set preset: debezium, or drop it"}},
		{"cloudevents", "tables: [{table: a.b, preset: cloudevents, cloudevents: {mode: batched, id: '', extensions: [{value: x}]}}]", nil, nil, []string{
			`tables[0].cloudevents.mode: "batched" is not a choice (line 2) - use binary or structured`,
			"tables[0].cloudevents.id: is empty, and every event needs one (line 2) - name a column, or drop it to use the preset's",
			"tables[0].cloudevents.extensions[0].name: missing (line 2) - the attribute's name",
		}},
		{"cloudevents options elsewhere", "tables: [{table: a.b, cloudevents: {id: event_id}}]", nil, nil,
			[]string{"tables[0].cloudevents: has no effect with preset outbox (line 2) - set preset: cloudevents, or drop it"}},
		{"exactly once with a file", "kafka: {brokers: ['k1:9092'], delivery: exactly-once}\ncheckpoint: {store: file}", nil, nil, []string{
			"checkpoint.store: exactly-once delivery keeps its checkpoint in Kafka, not in store file (line 4) - use kafka",
		}},
		{"checkpoint on another server without a user", "checkpoint: {store: mysql, address: 'db9:3306'}", nil, nil,
			[]string{"checkpoint.user: missing (line 4) - the account on the server of the checkpoint table"}},
		{"checkpoint user without a server", "checkpoint: {store: mysql, user: x}", nil, nil,
			[]string{"checkpoint.address: a user or password is given and no server (line 4) - name the server, or drop user and password to use the source with its account"}},
		{"checkpoint server without use", "checkpoint: {address: 'db9:3306', user: x}", nil, nil,
			[]string{"checkpoint.address: has no effect with store file (line 4) - set checkpoint.store to mysql, or drop it"}},
		{"no parked keys", "limits: {parked_keys: 0}", nil, nil, []string{"limits.parked_keys: is not between 1 and 1000000 (line 4)"}},
		{"parking without dead letters", "poison: {park_keys: true}", nil, nil,
			[]string{"poison.park_keys: has no effect with policy halt (line 4) - it belongs to policy dead_letter"}},

		// Environment and flags
		{"environment", "", []string{"OUTBOX_RELAY__LOG__LEVEL=loud", "OUTBOX_RELAY__LOG__FROMAT=json"}, nil, []string{
			`log.fromat: unknown key (environment OUTBOX_RELAY__LOG__FROMAT) - did you mean "format"?`,
			`log.level: "loud" is not a choice (environment OUTBOX_RELAY__LOG__LEVEL) - use debug, info, warn or error`,
		}},
		{"flags", "", nil, []string{"tables=x", "kafka.create_topics.configs.a=b", "log=x", "name.x=1", "loglevel"}, []string{
			"tables: tables can only be set in the file (--set tables) - write it there",
			"kafka.create_topics.configs.a: kafka.create_topics.configs can only be set in the file (--set kafka.create_topics.configs.a) - write it there",
			"log: is a section (--set log) - name one key of it",
			"name.x: name has no keys of its own (--set name.x)",
			"lacks = (--set loglevel) - write --set key=value",
		}},
		{"all layers at once", "nmae: x\nlog: {level: loud}", []string{"OUTBOX_RELAY__HTTP__ADDRESS=x"}, []string{"kafka.linger=x"}, []string{
			`nmae: unknown key (line 4) - did you mean "name"?`,
			`log.level: "loud" is not a choice (line 5) - use debug, info, warn or error`,
			`kafka.linger: "x" is not a duration (--set kafka.linger) - write a number with a unit, such as 500ms, 5s or 2m`,
			`http.address: "x" is not host:port (environment OUTBOX_RELAY__HTTP__ADDRESS) - write host:port, an IPv6 address in brackets`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := config.Load(config.Options{File: write(t, replaceSections(least, c.text)), Env: c.env, Sets: c.sets})
			var faults *config.Faults
			if !errors.As(err, &faults) {
				t.Fatalf("got %v, want faults %q", err, c.want)
			}
			var got []string
			for _, f := range faults.List {
				got = append(got, f.String())
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// replaceSections puts each section of text in the place of the line of the base
// that begins with the same key, the rest below it.
func replaceSections(base, text string) string {
	lines := strings.Split(strings.TrimSuffix(base, "\n"), "\n")
	var below []string
	into := -1
	for line := range strings.SplitSeq(text, "\n") {
		key, _, _ := strings.Cut(line, ":")
		if !strings.HasPrefix(line, " ") {
			into = -1
			for i, l := range lines {
				if strings.HasPrefix(l, key+":") && key != "" {
					into, lines[i] = i, ""
				}
			}
		}
		if into < 0 {
			below = append(below, line)
			continue
		}
		lines[into] = strings.TrimPrefix(lines[into]+"\n"+line, "\n")
	}
	return strings.Join(append(lines, below...), "\n")
}

func TestUnreadableFileIsTheOnlyFault(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"syntax":         {"name: [a\nlog: x", "not valid YAML: "},
		"tabs":           {"log:\n\tlevel: info", "YAML is indented with spaces, not tabs"},
		"backquote":      {"tables:\n  - table: `a.b`.c", "a value that begins with a backquote needs single quotes around it"},
		"two documents":  {least + "---\n" + least, "the file holds more than one YAML document - keep one, without ---"},
		"no keys":        {"just text", "the file holds no keys - begin with source:, tables: and kafka:"},
		"a list":         {"- a", "the file holds no keys"},
		"unknown anchor": {"name: *x", "not valid YAML: unknown anchor"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, c.text)
			_, err := config.Load(config.Options{File: path})
			var faults *config.Faults
			if !errors.As(err, &faults) || len(faults.List) != 1 || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want one fault with %q", err, c.want)
			}
			if !strings.HasPrefix(err.Error(), "configuration "+path+": ") {
				t.Errorf("%v does not name the file", err)
			}
		})
	}
}

// Ten mappings that merge the one before twenty times each are 20^9 keys.
func TestAliasesThatMultiplyEndSoon(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("name: x\nlog: &a0 {level: info}\n")
	for i := range 9 {
		fmt.Fprintf(&b, "x%d: &a%d {<<: [%s]}\n", i, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 20))
	}
	b.WriteString("http: *a9\n")
	_, err := config.Load(config.Options{File: write(t, b.String())})
	if err == nil || !strings.Contains(err.Error(), "the file has more than 100000 values - write it with fewer aliases") {
		t.Errorf("got %v", err)
	}
}

func TestEmptyFileLacksWhatIsRequired(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "# only a comment\n", "---\n"} {
		_, err := config.Load(config.Options{File: write(t, text)})
		var faults *config.Faults
		if !errors.As(err, &faults) || len(faults.List) != 4 || !strings.Contains(err.Error(), ": 4 faults\n  source.address: missing - ") {
			t.Errorf("%q gave %v", text, err)
		}
	}
}

// TestFaultsShowNoSecret sets a password wherever one can be, each time with a
// fault beside it or in it.
func TestFaultsShowNoSecret(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	for name, o := range map[string]config.Options{
		"as a list":          {File: write(t, "source: {password: [hunter2]}")},
		"as a section":       {File: write(t, "source: {password: {x: hunter2}}")},
		"two of them":        {File: write(t, "source: {password: hunter2, password_file: x}\nkafka: {sasl: {password: hunter2}}")},
		"in the environment": {File: write(t, "a: b"), Env: []string{"OUTBOX_RELAY__SOURCE__PASWORD=hunter2", "OUTBOX_RELAY__SOURCE__PASSWORD__X=hunter2"}},
		"as a flag":          {File: write(t, "a: b"), Sets: []string{"source.pasword=hunter2", "source.password.x=hunter2"}},
	} {
		if _, err := config.Load(o); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
