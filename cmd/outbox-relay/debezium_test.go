package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/relaytest"
)

// debeziumMessage is a line of the golden messages of package router/debezium.
type debeziumMessage struct {
	Case      string `json:"case"`
	SQL       string `json:"sql"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Key       []byte `json:"key_b64"`
	Value     []byte `json:"value_b64"`
	Headers   []struct {
		Key   string `json:"key"`
		Value []byte `json:"value_b64"`
	} `json:"headers"`
}

// text is what a consumer sees of the message, without the run id that is drawn at each start.
func (m debeziumMessage) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s[%d] %q=%q nulls %v %v", m.Topic, m.Partition, m.Key, m.Value, m.Key == nil, m.Value == nil)
	for _, h := range m.Headers {
		if !strings.HasSuffix(h.Key, ".runId") {
			fmt.Fprintf(&b, " %s:%q %v", h.Key, h.Value, h.Value == nil)
		}
	}
	return b.String()
}

func debeziumMessages(t *testing.T, group string) []debeziumMessage {
	t.Helper()
	file, err := os.Open("../../router/debezium/testdata/golden.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []debeziumMessage
	for lines := json.NewDecoder(z); lines.More(); {
		var m debeziumMessage
		if err := lines.Decode(&m); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(m.Case, group+"/") {
			all = append(all, m)
		}
	}
	return all
}

// TestRelayPublishesWhatDebeziumPublished inserts the golden rows and reads what the relay made of them from Kafka.
func TestRelayPublishesWhatDebeziumPublished(t *testing.T) {
	t.Parallel()
	m, k := sandbox.SharedMySQL(t), sandbox.SharedKafka(t)
	golden := debeziumMessages(t, "json")
	var topics, want, tables []string
	for _, g := range golden {
		want = append(want, g.text())
		if !slices.Contains(topics, g.Topic) {
			topics = append(topics, g.Topic)
		}
		if table := strings.Fields(g.SQL)[2]; !slices.Contains(tables, table) {
			tables = append(tables, table)
		}
	}
	for _, topic := range topics {
		if err := k.CreateTopic(t.Context(), topic, 3, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	db := m.NewDatabase(t)
	creates, err := os.ReadFile("../../router/debezium/testdata/golden.sql")
	if err != nil {
		t.Fatal(err)
	}
	statements := []string{"SET time_zone = '+00:00'", "SET sql_mode = CONCAT(@@sql_mode, ',NO_BACKSLASH_ESCAPES')", "USE " + db}
	for s := range strings.SplitSeq(string(creates), ";\n") {
		if at := strings.Index(s, "CREATE TABLE"); at >= 0 {
			statements = append(statements, s[at:])
		}
	}
	start := query(t, m, "SELECT @@global.gtid_executed")
	for _, g := range golden {
		statements = append(statements, g.SQL)
	}
	mysqlExec(t, m, statements...)

	rule := fmt.Sprintf("source: {address: %q, user: relay, password: relay, start: %q}\nkafka: {brokers: [%q]}\ntables:\n", m.Addr(), start, k.Addrs()[0])
	for _, table := range tables {
		rule += fmt.Sprintf("  - {table: %s.%s, preset: debezium, debezium: {topic_prefix: gold, key_converter: json, value_converter: json, position_header: false}}\n", db, table)
	}
	s := newSite(t, rule)
	if c := s.start("run", "--until-caught-up"); c.wait() != 0 {
		t.Fatalf("the relay said:\n%s", c.err.String())
	}
	var got []string
	if err := relaytest.Consume(t.Context(), relaytest.ConsumeOptions{Brokers: k.Addrs(), Topics: topics}, func(r relaytest.Message) error {
		one := debeziumMessage{Topic: r.Topic, Partition: r.Partition, Key: bytes.Clone(r.Key), Value: bytes.Clone(r.Value)}
		for _, h := range r.Headers {
			one.Headers = append(one.Headers, struct {
				Key   string `json:"key"`
				Value []byte `json:"value_b64"`
			}{h.Key, bytes.Clone(h.Value)})
		}
		got = append(got, one.text())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Errorf("got %.500s\nwant %.500s", got[i], want[i])
				break
			}
		}
		t.Errorf("%d records, want %d", len(got), len(want))
	}
}
