package e2e_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/IBM/sarama"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// waitHalted waits for a halt and demands that status and log tell all parts of its sentence.
func waitHalted(t *testing.T, r *e2e.Relay, parts ...string) {
	t.Helper()
	var halted string
	waitStatus(t, r, "halted", func(st relay.Status) bool {
		halted = st.Halted
		return !st.Ready && st.Halted != "" && st.Reason == st.Halted
	})
	t.Log(halted)
	for _, part := range parts {
		if !strings.Contains(halted, part) || !strings.Contains(r.Log(), strings.ReplaceAll(part, `"`, `\"`)) {
			t.Errorf("status or log lack %q: %s", part, halted)
		}
	}
}

func TestARowBeyondTheLimitHaltsWithItsIdUntilTheLimitIsRaised(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	s := site(t, e2e.SiteOptions{Kafka: k, Config: "limits: {row: 1MiB}"})
	r := start(t, s, e2e.RelayOptions{})
	waitMarked(t, s, r)
	if err := s.ExecMany(testContext(t), e2e.InsertStatement(e2e.Row{Kind: "order", Key: "before"})+"; BEGIN; "+e2e.InsertStatement(e2e.Row{Kind: "order", Key: "same"})+
		"; INSERT INTO orders_outbox (id, aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES (4711, 'order', 'large', 'Written', JSON_OBJECT('a', REPEAT('x', 3000000)), 'large-1'); "+
		e2e.InsertStatement(e2e.Row{Kind: "order", Key: "same"})+"; COMMIT; "+e2e.InsertStatement(e2e.Row{Kind: "payment", Key: "behind"})); err != nil {
		t.Fatal(err)
	}
	executed, err := s.Executed(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	server, _, _ := strings.Cut(executed.String(), ":")
	topic := s.Name + ".order"
	waitHalted(t, r, "row_too_large", `id "4711"`, "position "+server+":", "#1", s.Database()+".orders_outbox", "the row has 30000", "limits.row allows 1048576", "raise limits.row")
	stop(t, r)
	if n, _ := deliveriesOf(t, s, "same"); n != 1 {
		t.Errorf("%d records of the row before it were published", n)
	}

	// The topic does not take it: its own limit is what is named now.
	r = start(t, s, e2e.RelayOptions{Args: []string{"--set", "limits.row=16MiB"}})
	waitHalted(t, r, "too_large", "4711", topic, "max.message.bytes")
	stop(t, r)
	raiseLimit(t, k, topic, 8<<20)
	r = start(t, s, e2e.RelayOptions{Args: []string{"--set", "limits.row=16MiB"}})
	waitMarked(t, s, r)
	stop(t, r)
	report := judge(t, s, relaytest.Options{Restarts: 2})
	if n, _ := deliveriesOf(t, s, "large"); n != 1 {
		t.Errorf("the large row was published %d times", n)
	}
	t.Log(report)
}

// raiseLimit sets max.message.bytes and returns when the broker goes by it, which is a moment after it has said so: a second topic is changed
// after the first one, and brokers apply changes in their order.
func raiseLimit(t *testing.T, k *sandbox.Kafka, topic string, limit int) {
	t.Helper()
	admin, err := k.Admin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	probe, text := k.NewTopic(t, 1, nil), strconv.Itoa(limit)
	for _, name := range []string{topic, probe} {
		if err := admin.AlterConfig(sarama.TopicResource, name, map[string]*string{"max.message.bytes": &text}, false); err != nil {
			t.Fatal(err)
		}
	}
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Producer.MaxMessageBytes = limit
	producer, err := sarama.NewSyncProducer(k.Addrs(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = producer.Close() }()
	for ctx := testContext(t); ; {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: probe, Value: sarama.ByteEncoder(make([]byte, limit/2))})
		if err == nil {
			return
		}
		if !errors.Is(err, sarama.ErrMessageSizeTooLarge) || ctx.Err() != nil {
			t.Fatalf("the limit has no effect: %v", err)
		}
	}
}
