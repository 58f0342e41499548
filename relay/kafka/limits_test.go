package kafka_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka"
	"outbox-relay/router"
)

func TestChecksBeforeSending(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	plain := k.NewTopic(t, 2, map[string]string{"max.message.bytes": "2000"})
	compacted := k.NewTopic(t, 1, map[string]string{"cleanup.policy": "compact"})
	logTime := k.NewTopic(t, 1, map[string]string{"message.timestamp.type": "LogAppendTime"})
	bounded := k.NewTopic(t, 1, map[string]string{"message.timestamp.before.max.ms": "600000"})
	for _, known := range []bool{false, true} {
		t.Run(fmt.Sprintf("known=%v", known), func(t *testing.T) {
			t.Parallel()
			for _, c := range []struct {
				name, reason string
				change       func(*router.Record)
			}{
				{"too large", kafka.ReasonTooLarge, func(r *router.Record) { r.Value = make([]byte, 2000) }},
				{"compressible and too large", kafka.ReasonTooLarge, func(r *router.Record) { r.Value = make([]byte, 100_000) }},
				{"future", kafka.ReasonInvalidTimestamp, func(r *router.Record) { r.TimestampMillis += 3 * 3600_000 }},
				{"past", kafka.ReasonInvalidTimestamp, func(r *router.Record) { r.Topic, r.TimestampMillis = bounded, 1000 }},
				{"partition", kafka.ReasonInvalidPartition, func(r *router.Record) { r.Partition = 2 }},
				{"null key", kafka.ReasonNullKey, func(r *router.Record) { r.Topic, r.Key = compacted, nil }},
				{"log append time", "", func(r *router.Record) { r.Topic, r.TimestampMillis = logTime, 1000 }},
				{"old", "", func(r *router.Record) { r.TimestampMillis = 1000 }},
				{"empty key", "", func(r *router.Record) { r.Topic, r.Key = compacted, []byte{} }},
				{"last partition", "", func(r *router.Record) { r.Partition = 1 }},
			} {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					h := start(t, k.Addrs(), withCompression("zstd"))
					r := record(plain, "k", 1)
					c.change(r)
					if known {
						first := record(r.Topic, "k", 1)
						h.seq = 1
						h.send(first)
						h.drain(10 * time.Second)
					}
					h.seq = 2
					err := h.p.Publish(t.Context(), r, 2)
					switch {
					case c.reason == "" && err == nil:
						h.drain(10 * time.Second)
						h.awaitAcked(map[bool]int{false: 1, true: 2}[known], time.Second)
					case c.reason == "":
						t.Errorf("refused: %v", err)
					case known:
						if !isPoison(err, c.reason) {
							t.Errorf("got %v, want %s", err, c.reason)
						}
						h.drain(time.Second)
					default:
						if err != nil {
							t.Fatal(err)
						}
						if e := h.awaitPoison(10 * time.Second); e.Reason != c.reason || e.Seq != 2 {
							t.Errorf("got %v, want %s", e, c.reason)
						}
						h.drain(time.Second)
					}
				})
			}
		})
	}
}

func TestChecksThatNeedNoTopic(t *testing.T) {
	t.Parallel()
	_, brokers := fake(t, kfake.SeedTopics(1, "t"))
	h := start(t, brokers, nil)
	h.publish("t", 1, 1)
	for _, c := range []struct {
		reason string
		change func(*router.Record)
	}{
		{kafka.ReasonInvalidTopic, func(r *router.Record) { r.Topic = "" }},
		{kafka.ReasonInvalidTopic, func(r *router.Record) { r.Topic = ".." }},
		{kafka.ReasonInvalidTopic, func(r *router.Record) { r.Topic = "a b" }},
		{kafka.ReasonInvalidTopic, func(r *router.Record) { r.Topic = "ünï" }},
		{kafka.ReasonInvalidTopic, func(r *router.Record) { r.Topic = strings.Repeat("a", 250) }},
		{kafka.ReasonInvalidTopic, func(r *router.Record) { r.Topic = "__consumer_offsets" }},
		{kafka.ReasonInvalidTimestamp, func(r *router.Record) { r.TimestampMillis = -1 }},
		{kafka.ReasonInvalidTimestamp, func(r *router.Record) { r.TimestampMillis = 253402300799000 }},
		{kafka.ReasonTooLarge, func(r *router.Record) { r.Value = make([]byte, 100<<20) }},
	} {
		for range 2 { // the second time with the topic of the last good record
			h.drain(10 * time.Second) // behind a record that waits it would wait too
			r := record("t", "k", 1)
			c.change(r)
			err := h.p.Publish(t.Context(), r, 1)
			if !isPoison(err, c.reason) {
				t.Errorf("got %v, want %s", err, c.reason)
			}
			h.publish("t", 1, 1)
		}
	}
	h.drain(10 * time.Second)
	h.verify("t")
}

// The broker compares a batch of 61 bytes and the record with max.message.bytes; equal is accepted.
func TestSizeLimitIsExact(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic := k.NewTopic(t, 1, map[string]string{"max.message.bytes": "5000"})
	for _, codec := range []string{"none", "lz4", "snappy", "gzip", "zstd"} {
		h := start(t, k.Addrs(), withCompression(codec))
		h.publish(topic, 1, 1)
		h.drain(10 * time.Second)
		var size int
		h.seq++
		r := record(topic, "k", h.seq)
		r.Value = append(r.Value, noise(5000-len(r.Value))...)
		var e *kafka.PoisonError
		if err := h.p.Publish(t.Context(), r, h.seq); !errors.As(err, &e) {
			t.Fatalf("%s: %v", codec, err)
		}
		size = e.Size
		r.Value = r.Value[:len(r.Value)-(size-5000)]
		h.send(r)
		h.drain(10 * time.Second)
		h.seq++
		r = record(topic, "k", h.seq)
		r.Value = append(r.Value, noise(5001-(size-5000)-len(r.Value))...)
		if err := h.p.Publish(t.Context(), r, h.seq); !errors.As(err, &e) || e.Size != 5001 {
			t.Errorf("%s: one byte more: %v", codec, err)
		}
	}
}

// shrinkLimit sets max.message.bytes and returns when the broker goes by it, which is a moment after it has said so: a second topic is changed
// after the first one, and brokers apply changes in their order.
func shrinkLimit(t *testing.T, k *sandbox.Kafka, topic, limit string) {
	t.Helper()
	probe := k.NewTopic(t, 1, nil)
	admin, err := k.Admin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	for _, name := range []string{topic, probe} {
		if err := admin.AlterConfig(sarama.TopicResource, name, map[string]*string{"max.message.bytes": &limit}, false); err != nil {
			t.Fatal(err)
		}
	}
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = 0
	producer, err := sarama.NewSyncProducer(k.Addrs(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = producer.Close() }()
	for deadline := time.Now().Add(20 * time.Second); ; {
		_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: probe, Value: sarama.ByteEncoder(make([]byte, 100_000))})
		if errors.Is(err, sarama.ErrMessageSizeTooLarge) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the limit has no effect: %v", err)
		}
	}
}

// The limit shrinks while records wait: the broker refuses the batch without saying why, and only the guilty record stops.
func TestLimitThatShrinksFindsTheGuiltyRecord(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic := k.NewTopic(t, 1, nil)
	h := start(t, k.Addrs(), nil)
	h.publish(topic, 1, 1)
	h.drain(10 * time.Second)
	shrinkLimit(t, k, topic, "3000")
	h.publish(topic, 1, 99)
	h.seq++
	r := record(topic, "k", h.seq)
	r.Value = append(r.Value, noise(3000)...)
	h.send(r)
	h.publish(topic, 1, 100)
	h.p.Flush()
	e := h.awaitPoison(10 * time.Second)
	if e.Reason != kafka.ReasonTooLarge || e.Seq != 101 || e.ID != "id-101" {
		t.Errorf("%+v", e)
	}
	h.drain(10 * time.Second)
	h.verify(topic)
	h.noEpochs()
	if n := h.ackedCount(); n != 100 {
		t.Errorf("%d acknowledged", n)
	}
}

// A topic's limit was raised: what was known of it before does not make a record poison.
func TestOldKnowledgeDoesNotRefuse(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic := k.NewTopic(t, 1, map[string]string{"max.message.bytes": "2000"})
	admin, err := k.Admin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	h := start(t, k.Addrs(), nil)
	h.publish(topic, 1, 1)
	h.drain(10 * time.Second)
	large := "9000"
	if err := admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"max.message.bytes": &large}, false); err != nil {
		t.Fatal(err)
	}
	growTopic(t, k.Addrs(), topic, 3)
	h.p.Age(topic, time.Minute)
	h.seq++
	r := record(topic, "k", h.seq)
	r.Value = append(r.Value, make([]byte, 5000)...)
	h.send(r)
	h.publish(topic, 1, 10)
	h.drain(10 * time.Second)
	h.p.Age(topic, time.Minute)
	h.seq++
	r = record(topic, "k", h.seq)
	r.Partition = 2
	h.send(r)
	h.drain(10 * time.Second)
	if n := h.ackedCount(); n != 13 {
		t.Errorf("%d acknowledged", n)
	}
}

// The same for a record that waited while the topic grew: it is looked at when the old partitions are done, by what is known then.
func TestOldKnowledgeDoesNotRefuseWhatWaited(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t)
	small, large := "2000", "9000"
	if err := cluster.CreateTopic("t", 1, map[string]string{"max.message.bytes": small}); err != nil {
		t.Fatal(err)
	}
	h := start(t, brokers, nil)
	h.publish("t", 1, 1)
	h.drain(10 * time.Second)
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
	h.publish("t", 1, 10)
	h.p.Flush()
	admin := growTopic(t, brokers, "t", 3)
	if err := admin.AlterConfig(sarama.TopicResource, "t", map[string]*string{"max.message.bytes": &large}, false); err != nil {
		t.Fatal(err)
	}
	h.p.Refresh("t")
	h.awaitStats("the new partitions", 10*time.Second, func(kafka.Stats) bool { return h.p.KnownPartitions("t") == 3 })
	h.p.Age("t", time.Minute)
	h.seq++
	r := record("t", "k", h.seq)
	r.Value = append(r.Value, make([]byte, 5000)...)
	h.send(r)
	h.publish("t", 1, 10)
	fault.Remove()
	h.drain(10 * time.Second)
	h.noEpochs()
	if n := h.ackedCount(); n != 22 {
		t.Errorf("%d acknowledged", n)
	}
}
