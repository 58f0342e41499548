package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/relay/relaytest"
)

const watchEvery = 10 * time.Millisecond

func kafkaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	c.ClientID = "bench"
	c.Metadata.AllowAutoTopicCreation = false
	return c
}

// createTopic creates an empty topic of one contestant's round.
func (s *servers) createTopic(name string, partitions int) error {
	admin, err := sarama.NewClusterAdmin(s.Brokers, kafkaConfig())
	if err != nil {
		return fmt.Errorf("connecting to Kafka: %w", err)
	}
	defer admin.Close()
	if err := admin.CreateTopic(name, &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: 1}, false); err != nil {
		return fmt.Errorf("creating topic %s: %w", name, err)
	}
	// The broker answers a moment before it knows the topic.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		topics, err := admin.DescribeTopics([]string{name})
		if err == nil && len(topics) == 1 && topics[0].Err == sarama.ErrNoError && len(topics[0].Partitions) == partitions && led(topics[0].Partitions) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("topic %s was created and does not appear: %w", name, err)
		}
	}
}

func led(partitions []*sarama.PartitionMetadata) bool {
	for _, p := range partitions {
		if p.Err != sarama.ErrNoError || p.Leader < 0 {
			return false
		}
	}
	return true
}

func (s *servers) deleteTopic(name string) error {
	admin, err := sarama.NewClusterAdmin(s.Brokers, kafkaConfig())
	if err != nil {
		return fmt.Errorf("connecting to Kafka: %w", err)
	}
	defer admin.Close()
	return admin.DeleteTopic(name)
}

// progress is what a topic showed to a consumer, as time since the start of the process that fills it.
type progress struct {
	First    time.Duration // first record
	Last     time.Duration // last record
	CPUFirst time.Duration // processor time of the process when the first record was seen, in ticks
	CPULast  time.Duration // the same at the last record
	samples  []sample
}

type sample struct {
	at      time.Duration
	records int64
}

// watcher looks at a topic that is being filled, over a connection of its own to the only broker.
type watcher struct {
	broker     *sarama.Broker
	topic      string
	partitions int32
}

// newWatcher connects and waits until the topic can be read, so that the watching itself starts at once.
func newWatcher(ctx context.Context, s *servers, topic string, partitions int) (*watcher, error) {
	w := &watcher{broker: sarama.NewBroker(s.Brokers[0]), topic: topic, partitions: int32(partitions)}
	if err := w.broker.Open(kafkaConfig()); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := w.records()
		if err == nil {
			return w, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return nil, errors.Join(fmt.Errorf("waiting for topic %s: %w", topic, err), w.broker.Close())
		}
		time.Sleep(watchEvery)
	}
}

// watch returns once all rows are visible, or done is closed and nothing more can come. The first record is awaited by a fetch that the
// broker holds back until there is one; later only offsets are asked for, which costs next to nothing.
func (w *watcher) watch(c *child, rows int64) (progress, error) {
	var p progress
	for {
		ended := isClosed(c.done)
		some, err := w.awaitSome()
		if err != nil {
			return p, err
		}
		if some {
			p.First, p.CPUFirst = time.Since(c.start), c.used()
			break
		}
		if ended {
			return p, nil
		}
	}
	for {
		ended := isClosed(c.done)
		n, err := w.records()
		if err != nil {
			return p, err
		}
		if len(p.samples) == 0 || p.samples[len(p.samples)-1].records != n {
			p.Last = time.Since(c.start)
			p.samples = append(p.samples, sample{p.Last, n})
		}
		if n >= rows || ended {
			p.CPULast = c.used()
			return p, nil
		}
		time.Sleep(watchEvery)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// awaitSome blocks until a record is visible, or for a moment.
func (w *watcher) awaitSome() (bool, error) {
	r := &sarama.FetchRequest{Version: 11, MaxWaitTime: 200, MinBytes: 1, MaxBytes: 1, SessionEpoch: -1}
	for p := range w.partitions {
		r.AddBlock(w.topic, p, 0, 1, -1)
	}
	answer, err := w.broker.Fetch(r)
	if err != nil {
		return false, fmt.Errorf("fetching from %s: %w", w.topic, err)
	}
	for p := range w.partitions {
		if b := answer.GetBlock(w.topic, p); b != nil && b.HighWaterMarkOffset > 0 {
			return true, nil
		}
	}
	return false, nil
}

// records sums the high watermarks of the partitions.
func (w *watcher) records() (int64, error) {
	r := &sarama.OffsetRequest{Version: 1}
	for p := range w.partitions {
		r.AddBlock(w.topic, p, sarama.OffsetNewest, 1)
	}
	answer, err := w.broker.GetAvailableOffsets(r)
	if err != nil {
		return 0, fmt.Errorf("asking for the offsets of %s: %w", w.topic, err)
	}
	var n int64
	for p := range w.partitions {
		b := answer.GetBlock(w.topic, p)
		if b == nil {
			return 0, fmt.Errorf("no offset of %s[%d]", w.topic, p)
		}
		if b.Err != sarama.ErrNoError {
			return 0, b.Err
		}
		n += b.Offset
	}
	return n, nil
}

func (w *watcher) close() { _ = w.broker.Close() } // of a read-only connection: nothing to do about an error

// steady is the rate per second between one fifth and four fifths of the rows: without start, connecting and the last batches.
func (p progress) steady(rows int64) float64 {
	from, ok1 := p.when(rows / 5)
	to, ok2 := p.when(rows * 4 / 5)
	if !ok1 || !ok2 || to <= from {
		return 0
	}
	return float64(rows*4/5-rows/5) / (to - from).Seconds()
}

// when tells at what time so many records were visible, between two samples in proportion.
func (p progress) when(records int64) (time.Duration, bool) {
	before := sample{at: p.First}
	for _, s := range p.samples {
		if s.records >= records {
			if s.records == before.records {
				return s.at, true
			}
			part := float64(records-before.records) / float64(s.records-before.records)
			return before.at + time.Duration(part*float64(s.at-before.at)), true
		}
		before = s
	}
	return 0, false
}

// truth is what the outbox table holds.
type truth struct {
	Rows int64
	IDs  uint64 // sum of the ids, modulo 2^64
}

func (s *servers) truth(ctx context.Context) (t truth, err error) {
	db, err := s.open()
	if err != nil {
		return t, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, "SELECT COUNT(*), COALESCE(SUM(id), 0) FROM "+database+".outbox_events").Scan(&t.Rows, &t.IDs)
	return t, err
}

// verify consumes a topic to its end and returns an error unless it holds every row of the table exactly once, each key on one partition.
func (s *servers) verify(ctx context.Context, topic string, want truth) error {
	seen := make(map[uint64]struct{}, want.Rows)
	keys := map[string]int32{}
	var got truth
	err := relaytest.Consume(ctx, relaytest.ConsumeOptions{Brokers: s.Brokers, Topics: []string{topic}}, func(m relaytest.Message) error {
		got.Rows++
		id, err := idOf(m)
		if err != nil {
			return err
		}
		got.IDs += id
		seen[id] = struct{}{}
		if p, ok := keys[string(m.Key)]; ok && p != m.Partition {
			return fmt.Errorf("key %s is on partitions %d and %d", m.Key, p, m.Partition)
		}
		keys[string(m.Key)] = m.Partition
		if len(m.Value) == 0 {
			return fmt.Errorf("row %d has no value", id)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("consuming %s: %w", topic, err)
	}
	if got != want || int64(len(seen)) != want.Rows {
		return fmt.Errorf("topic %s holds %d records of %d different rows (sum of ids %d), the table %d rows (%d)", topic, got.Rows, len(seen), got.IDs, want.Rows, want.IDs)
	}
	return nil
}

func idOf(m relaytest.Message) (uint64, error) {
	for _, h := range m.Headers {
		if h.Key == "id" {
			return strconv.ParseUint(string(h.Value), 10, 64)
		}
	}
	return 0, fmt.Errorf("offset %d of %s[%d] has no header id", m.Offset, m.Topic, m.Partition)
}
