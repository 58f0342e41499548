package main

import (
	"fmt"
	"strings"
	"testing"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/relaytest"
)

// withoutPosition is a relay whose records do not tell the position of their rows, and its table and topic, which takes 2,000 bytes.
func withoutPosition(t *testing.T, rest string) (s *site, table, topic string) {
	t.Helper()
	m, k := sandbox.SharedMySQL(t), sandbox.SharedKafka(t)
	db, topic := m.NewDatabase(t), k.NewTopic(t, 1, map[string]string{"max.message.bytes": "2000"})
	table = db + ".o"
	mysqlExec(t, m, "CREATE TABLE "+table+" (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, aggregatetype VARCHAR(64), aggregateid VARCHAR(64), type VARCHAR(64), payload TEXT)")
	return newSite(t, fmt.Sprintf("source: {address: %q, user: relay, password: relay, start: latest}\nkafka: {brokers: [%q]}\ntables:\n  - {table: %s, preset: debezium, debezium: {topic_prefix: p, topic_replacement: %s, position_header: false}}\n%s",
		m.Addr(), k.Addrs()[0], table, topic, rest)), table, topic
}

// Under exactly-once a row that its topic refuses behind others is found again by its position, so that what is before it is committed; the records need not
// tell that.
func TestExactlyOnceHaltsBeforeARowWhoseRecordTellsNoPosition(t *testing.T) {
	t.Parallel()
	s, table, topic := withoutPosition(t, "")
	c := s.start("run", "--set", "kafka.delivery=exactly-once", "--set", "checkpoint.store=kafka")
	s.awaitReadyz(c, 200, "active")
	mysqlExec(t, sandbox.SharedMySQL(t), "INSERT INTO "+table+" (aggregatetype, aggregateid, type, payload) VALUES ('a', 'k', 't', '1'), ('a', 'k', 't', '2'), ('a', 'k', 't', REPEAT('x', 5000)), ('a', 'k', 't', '4')")
	if code := c.wait(); code != 4 {
		t.Errorf("exit code %d; it said:\n%s", code, c.err.String())
	}
	holds(t, c.last(), []string{"halted at transaction ", "row 3 of ", "can never be published (too_large)"})
	var got []string
	err := relaytest.Consume(t.Context(), relaytest.ConsumeOptions{Brokers: sandbox.SharedKafka(t).Addrs(), Topics: []string{topic}, ReadCommitted: true}, func(r relaytest.Message) error {
		got = append(got, string(r.Value))
		return nil
	})
	if err != nil || strings.Join(got, " ") != "1 2" {
		t.Errorf("committed is %q, %v", got, err)
	}
}
