package relaytest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/relaytest"
)

func fakeKafka(t *testing.T, o ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(2), kfake.SeedTopics(3, "orders")}, o...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func producer(t *testing.T, brokers []string, change func(*sarama.Config)) sarama.SyncProducer {
	t.Helper()
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = sarama.WaitForAll
	if change != nil {
		change(config)
	}
	p, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func send(t *testing.T, p sarama.SyncProducer, topic string, partition int32, key, value sarama.Encoder, headers ...sarama.RecordHeader) {
	t.Helper()
	if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: partition, Key: key, Value: value, Headers: headers}); err != nil {
		t.Fatal(err)
	}
}

// consume gives what was received, one string for each message, partition by partition.
func consume(t *testing.T, o relaytest.ConsumeOptions) ([]string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	byPartition := map[int32][]string{}
	err := relaytest.Consume(ctx, o, func(m relaytest.Message) error {
		var b strings.Builder
		fmt.Fprintf(&b, "%s[%d]@%d %s=%s", m.Topic, m.Partition, m.Offset, showBytes(m.Key), showBytes(m.Value))
		for _, h := range m.Headers {
			fmt.Fprintf(&b, " %s:%s", h.Key, showBytes(h.Value))
		}
		byPartition[m.Partition] = append(byPartition[m.Partition], b.String())
		return nil
	})
	return slices.Concat(byPartition[0], byPartition[1], byPartition[2]), err
}

func showBytes(b []byte) string {
	if b == nil {
		return "NULL"
	}
	return fmt.Sprintf("%q", b)
}

func TestConsumeReadsToTheEnd(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t)
	p := producer(t, c.ListenAddrs(), nil)
	send(t, p, "orders", 0, sarama.StringEncoder("a"), sarama.StringEncoder("1"), sarama.RecordHeader{Key: []byte("h"), Value: []byte("v")}, sarama.RecordHeader{Key: []byte("null")},
		sarama.RecordHeader{Key: []byte("empty"), Value: []byte{}})
	send(t, p, "orders", 2, nil, nil)
	send(t, p, "orders", 2, sarama.StringEncoder(""), sarama.StringEncoder(""))
	send(t, p, "orders", 0, sarama.StringEncoder("a"), sarama.StringEncoder("2"))
	got, err := consume(t, relaytest.ConsumeOptions{Brokers: c.ListenAddrs(), Topics: []string{"orders"}})
	want := []string{`orders[0]@0 "a"="1" h:"v" null:NULL empty:""`, `orders[0]@1 "a"="2"`, `orders[2]@0 NULL=NULL`, `orders[2]@1 ""=""`}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\ngot  %q\nwant %q", err, got, want)
	}
}

func TestConsumeReadsManyBatches(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t)
	p := producer(t, c.ListenAddrs(), func(c *sarama.Config) { c.Producer.Compression = sarama.CompressionLZ4 })
	const count = 3000
	for from := 0; from < count; from += 500 {
		var batch []*sarama.ProducerMessage
		for n := from; n < from+500; n++ {
			batch = append(batch, &sarama.ProducerMessage{Topic: "orders", Partition: 1, Value: sarama.StringEncoder(fmt.Sprint(n) + strings.Repeat("x", n%2000))})
		}
		if err := p.SendMessages(batch); err != nil {
			t.Fatal(err)
		}
	}
	got, err := consume(t, relaytest.ConsumeOptions{Brokers: c.ListenAddrs(), Topics: []string{"orders"}})
	if err != nil || len(got) != count {
		t.Fatalf("%d messages, %v, want %d", len(got), err, count)
	}
	for n := range got {
		if !strings.HasPrefix(got[n], fmt.Sprintf("orders[1]@%d NULL=\"%d", n, n)) {
			t.Fatalf("message %d is %.40s", n, got[n])
		}
	}
}

func TestConsumeBeginsWithinABatch(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t)
	p := producer(t, c.ListenAddrs(), func(c *sarama.Config) { c.Producer.Flush.Messages, c.Producer.Flush.Frequency = 4, time.Minute })
	var batch []*sarama.ProducerMessage
	for n := range 4 {
		batch = append(batch, &sarama.ProducerMessage{Topic: "orders", Partition: 1, Value: sarama.StringEncoder(fmt.Sprint(n))})
	}
	if err := p.SendMessages(batch); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteRecords("orders", 1, 2); err != nil {
		t.Fatal(err)
	}
	got, err := consume(t, relaytest.ConsumeOptions{Brokers: c.ListenAddrs(), Topics: []string{"orders"}})
	want := []string{`orders[1]@2 NULL="2"`, `orders[1]@3 NULL="3"`}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\ngot  %q\nwant %q", err, got, want)
	}
}

func TestConsumeLeavesOutAbortedTransactions(t *testing.T) {
	t.Parallel()
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		consumeTransactions(t, fakeKafka(t).ListenAddrs(), "orders")
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		k := sandbox.SharedKafka(t)
		consumeTransactions(t, k.Addrs(), k.NewTopic(t, 1, nil))
	})
}

// consumeTransactions ends with an aborted transaction, so that the partition's last offset is a marker behind records that nobody gets.
func consumeTransactions(t *testing.T, brokers []string, topic string) {
	p := producer(t, brokers, func(c *sarama.Config) {
		c.Producer.Idempotent, c.Producer.Transaction.ID, c.Net.MaxOpenRequests = true, topic, 1
	})
	for n, end := range []func() error{p.AbortTxn, p.CommitTxn, p.AbortTxn, p.CommitTxn, p.AbortTxn} {
		if err := p.BeginTxn(); err != nil {
			t.Fatal(err)
		}
		send(t, p, topic, 0, nil, sarama.StringEncoder(fmt.Sprint(n)))
		send(t, p, topic, 0, nil, sarama.StringEncoder(fmt.Sprint(n)))
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	o := relaytest.ConsumeOptions{Brokers: brokers, Topics: []string{topic}, ReadCommitted: true}
	got, err := consume(t, o)
	want := []string{topic + `[0]@3 NULL="1"`, topic + `[0]@4 NULL="1"`, topic + `[0]@9 NULL="3"`, topic + `[0]@10 NULL="3"`}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("read committed: %v\ngot  %q\nwant %q", err, got, want)
	}
	o.ReadCommitted = false
	if got, err := consume(t, o); err != nil || len(got) != 10 {
		t.Errorf("read uncommitted: %v, %q", err, got)
	}
}

func TestConsumeMissingTopicIsAnError(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t)
	_, err := consume(t, relaytest.ConsumeOptions{Brokers: c.ListenAddrs(), Topics: []string{"orders", "nowhere"}})
	if !errors.Is(err, sarama.ErrUnknownTopicOrPartition) || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("%v", err)
	}
}

func TestConsumeEndsWithTheErrorOfTheFunction(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t)
	p := producer(t, c.ListenAddrs(), nil)
	send(t, p, "orders", 0, nil, sarama.StringEncoder("1"))
	boom := errors.New("boom")
	for _, follow := range []bool{false, true} {
		err := relaytest.Consume(t.Context(), relaytest.ConsumeOptions{Brokers: c.ListenAddrs(), Topics: []string{"orders"}, Follow: follow}, func(relaytest.Message) error { return boom })
		if !errors.Is(err, boom) {
			t.Errorf("follow %v: %v", follow, err)
		}
	}
}

func TestConsumeWithoutBrokerRunsOutOfPatience(t *testing.T) {
	t.Parallel()
	start := time.Now()
	err := relaytest.Consume(t.Context(), relaytest.ConsumeOptions{Brokers: []string{"127.0.0.1:1"}, Topics: []string{"orders"}, Patience: time.Millisecond}, nil)
	if err == nil || time.Since(start) > 20*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
}

func TestConsumeFollowsThroughANewTopicAndMovedLeaders(t *testing.T) {
	t.Parallel()
	c := fakeKafka(t)
	const count = 60
	received := make(chan int64, count)
	done := make(chan error, 1)
	go func() { // ends with ErrStop after the last message, or with the test's context
		n := 0
		done <- relaytest.Consume(t.Context(), relaytest.ConsumeOptions{Brokers: c.ListenAddrs(), Topics: []string{"late"}, Follow: true}, func(m relaytest.Message) error {
			received <- m.Offset
			if n++; n == count {
				return relaytest.ErrStop
			}
			return nil
		})
	}()
	if err := c.CreateTopic("late", 1, nil); err != nil {
		t.Fatal(err)
	}
	p := producer(t, c.ListenAddrs(), nil)
	for n := range count {
		if n%20 == 10 {
			if err := c.MoveTopicPartition("late", 0, int32(n/20%2)); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: "late", Value: sarama.StringEncoder(fmt.Sprint(n))}); err != nil {
			t.Fatal(err)
		}
		select {
		case offset := <-received:
			if offset != int64(n) {
				t.Fatalf("offset %d, want %d", offset, n)
			}
		case <-time.After(time.Minute):
			t.Fatalf("message %d did not arrive", n)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
