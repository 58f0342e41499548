package relaytest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/relaytest"
)

// TestReadOutbox publishes by hand what the relay would publish of a table, and judges that with the table as the oracle.
func TestReadOutbox(t *testing.T) {
	t.Parallel()
	server := sandbox.SharedMySQL(t)
	database := server.NewDatabase(t)
	db := server.DB(t, database)
	exec := func(statement string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec("CREATE TABLE `out box` (id BIGINT UNSIGNED PRIMARY KEY, aggregate_type VARCHAR(64), aggregate_id VARBINARY(20), event_type VARCHAR(100), payload JSON," +
		" idempotency_key VARCHAR(128), at TIMESTAMP(3) NULL, seq INT)")
	exec("INSERT INTO `out box` VALUES (18446744073709551615, 'order', 'k', 'Placed', '{\"b\":1.0,\"a\":\"é\"}', 'i1', NULL, 1)," +
		" (7, 'order', 'k', 'Paid', 'null', '', CONVERT_TZ('2026-01-02 03:04:05.678', '+00:00', @@session.time_zone), 2), (8, 'payment', '', '', '[]', NULL, NULL, 3), (9, 'order', 'skip', 'x', '{}', 'x', NULL, 4)")

	cluster := fakeKafka(t)
	p := producer(t, cluster.ListenAddrs(), nil)
	prefix := "box."
	publish := func(n int, topic, key, value string, headers ...any) {
		t.Helper()
		m := &sarama.ProducerMessage{Topic: prefix + topic, Key: sarama.StringEncoder(key), Value: sarama.StringEncoder(value)}
		names := []string{"id", "event_type", "aggregate_type", "idempotency_key", "at"}
		for i, h := range append(headers, fmt.Sprintf("u:%d#0", n)) {
			header := sarama.RecordHeader{Key: []byte("outbox-relay-position")}
			if i < len(names) {
				header.Key = []byte(names[i])
			}
			if h != nil {
				header.Value = []byte(h.(string))
			}
			m.Headers = append(m.Headers, header)
		}
		if _, _, err := p.SendMessage(m); err != nil {
			t.Fatal(err)
		}
	}
	for _, topic := range []string{"order", "payment"} {
		if err := cluster.CreateTopic(prefix+topic, 1, nil); err != nil {
			t.Fatal(err)
		}
	}
	publish(1, "order", "k", `{"a": "é", "b": 1.0}`, "18446744073709551615", "Placed", "order", "i1", nil)
	publish(2, "order", "k", "null", "7", "Paid", "order", "", "2026-01-02 03:04:05.678")
	publish(3, "payment", "", "[]", "8", "", "payment", nil, nil)

	judge := func(order string) *relaytest.Report {
		t.Helper()
		v := relaytest.NewValidator(relaytest.Options{})
		n, err := relaytest.ReadOutbox(t.Context(), db, relaytest.OutboxQuery{Table: "`out box`", Order: order, Where: "id <> 9", TopicPrefix: prefix, Headers: []string{"at"}}, v)
		if err != nil || n != 3 {
			t.Fatalf("%d rows, %v", n, err)
		}
		err = relaytest.Consume(t.Context(), relaytest.ConsumeOptions{Brokers: cluster.ListenAddrs(), Topics: []string{prefix + "order", prefix + "payment"}}, func(m relaytest.Message) error {
			v.Received(m)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return v.Report()
	}
	if err := judge("seq").Err(); err != nil {
		t.Error(err)
	}
	if r := judge(""); r.Count(relaytest.OutOfOrder) != 1 { // by id the two rows of k are the other way round
		t.Errorf("wrong order of the oracle: %v", r)
	}
	if _, err := relaytest.ReadOutbox(t.Context(), db, relaytest.OutboxQuery{Table: "nowhere"}, relaytest.NewValidator(relaytest.Options{})); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("table that does not exist: %v", err)
	}
}
