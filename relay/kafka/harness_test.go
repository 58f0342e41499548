package kafka_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"

	"outbox-relay/relay/kafka"
	"outbox-relay/router"
)

// harness runs a publisher, remembers what was published and acknowledged, and compares it with what the log holds.
type harness struct {
	t       testing.TB
	p       *kafka.Publisher
	brokers []string
	stop    func() error

	seq       uint64
	published map[uint64]sent

	mu     sync.Mutex
	acked  map[uint64]int
	poison chan *kafka.PoisonError
	halted bool // a poison record was awaited
	change chan struct{}
}

type sent struct {
	topic string
	key   string
}

// start runs a publisher for the test; change may alter the options.
func start(t testing.TB, brokers []string, change func(*kafka.Options)) *harness {
	t.Helper()
	h := &harness{
		t: t, brokers: brokers, published: map[uint64]sent{}, acked: map[uint64]int{},
		poison: make(chan *kafka.PoisonError, 100), change: make(chan struct{}, 1),
	}
	o := kafka.Options{Brokers: brokers, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	o.Acked = func(seqs []uint64) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, s := range seqs {
			h.acked[s]++
		}
		select {
		case h.change <- struct{}{}:
		default:
		}
	}
	o.Poisoned = func(e *kafka.PoisonError) { h.poison <- e }
	if change != nil {
		change(&o)
	}
	p, err := kafka.New(o)
	if err != nil {
		t.Fatal(err)
	}
	h.p = p
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	h.stop = sync.OnceValue(func() error {
		cancel()
		began := time.Now()
		err := <-done
		if d := time.Since(began); d > 1500*time.Millisecond {
			t.Errorf("Run returned %v after the end of its context", d)
		}
		return err
	})
	t.Cleanup(func() {
		if err := h.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return h
}

// record makes the record that belongs to a sequence number.
func record(topic, key string, seq uint64) *router.Record {
	value := binary.BigEndian.AppendUint64(nil, seq)
	value = append(value, fmt.Sprintf(" payload of %d", seq)...)
	return &router.Record{
		Topic: topic, Key: []byte(key), Value: value, TimestampMillis: time.Now().UnixMilli(), Partition: router.AnyPartition,
		Table: "app.outbox", ID: fmt.Appendf(nil, "id-%d", seq),
		Headers: []router.Header{
			{Key: "id", Value: fmt.Appendf(nil, "id-%d", seq)},
			{Key: "none", Null: true},
			{Key: router.PositionHeader, Value: fmt.Appendf(nil, "uuid:%d#0", seq)},
		},
	}
}

// publish sends one record per key, and more of them in turn until there are n.
func (h *harness) publish(topic string, keys, n int) {
	h.t.Helper()
	for range n {
		h.seq++
		h.send(record(topic, fmt.Sprintf("key-%d", h.seq%uint64(keys)), h.seq))
	}
}

// send publishes a record under the number h.seq.
func (h *harness) send(r *router.Record) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := h.p.Publish(ctx, r, h.seq); err != nil {
		h.t.Fatalf("publishing %d: %v", h.seq, err)
	}
	h.published[h.seq] = sent{r.Topic, string(r.Key)}
}

// drain waits for all acknowledgements.
func (h *harness) drain(limit time.Duration) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := h.p.Drain(ctx); err != nil {
		h.t.Fatalf("draining: %v; %+v", err, h.p.Stats())
	}
	s := h.p.Stats()
	if len(s.Halted) > 0 && !h.halted || s.InFlightRecords != s.HeldRecords {
		h.t.Fatalf("drained, halted %v: %+v", s.Halted, s)
	}
}

// ackedCount tells how many were acknowledged.
func (h *harness) ackedCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.acked)
}

// awaitAcked waits until n records were acknowledged.
func (h *harness) awaitAcked(n int, limit time.Duration) {
	h.t.Helper()
	deadline := time.After(limit)
	for h.ackedCount() < n {
		select {
		case <-h.change:
		case <-deadline:
			h.t.Fatalf("%d of %d acknowledged; %+v", h.ackedCount(), n, h.p.Stats())
		}
	}
}

// awaitStats waits until the publisher's state is as wished.
func (h *harness) awaitStats(what string, limit time.Duration, good func(kafka.Stats) bool) kafka.Stats {
	h.t.Helper()
	deadline := time.Now().Add(limit)
	for {
		s := h.p.Stats()
		if good(s) {
			return s
		}
		if time.Now().After(deadline) {
			h.t.Fatalf("waiting for %s: %+v", what, s)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// awaitPoison waits for a report.
func (h *harness) awaitPoison(limit time.Duration) *kafka.PoisonError {
	h.t.Helper()
	select {
	case e := <-h.poison:
		h.halted = true
		return e
	case <-time.After(limit):
		h.t.Fatalf("no poison record reported; %+v", h.p.Stats())
		return nil
	}
}

// got is a record as a consumer sees it.
type got struct {
	partition int32
	offset    int64
	msg       *sarama.ConsumerMessage
	seq       uint64
}

// verify reads the topics whole and fails the test unless the log holds exactly the acknowledged records: each once, those of a key on
// one partition, and each partition in the order of publishing.
func (h *harness) verify(topics ...string) map[string][]got {
	h.t.Helper()
	logs := map[string][]got{}
	seen := map[uint64]bool{}
	for _, topic := range topics {
		log := consume(h.t, h.brokers, topic)
		logs[topic] = log
		last := map[int32]uint64{}
		home := map[string]int32{}
		for _, g := range log {
			s, ok := h.published[g.seq]
			switch {
			case !ok || s.topic != topic || s.key != string(g.msg.Key):
				h.t.Errorf("%s/%d@%d: record %d with key %q was not published so", topic, g.partition, g.offset, g.seq, g.msg.Key)
			case seen[g.seq]:
				h.t.Errorf("%s/%d@%d: record %d again", topic, g.partition, g.offset, g.seq)
			case g.seq <= last[g.partition]:
				h.t.Errorf("%s/%d@%d: record %d behind %d", topic, g.partition, g.offset, g.seq, last[g.partition])
			}
			if p, ok := home[s.key]; ok && p != g.partition && s.key != "" {
				h.t.Errorf("%s: key %q on partitions %d and %d", topic, s.key, p, g.partition)
			}
			home[s.key] = g.partition
			last[g.partition] = g.seq
			seen[g.seq] = true
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.published {
		if h.acked[s] > 1 {
			h.t.Errorf("record %d acknowledged %d times", s, h.acked[s])
		}
		if h.acked[s] > 0 && !seen[s] {
			h.t.Errorf("record %d acknowledged and not in the log", s)
		}
		if h.acked[s] == 0 && seen[s] {
			h.t.Errorf("record %d in the log and not acknowledged", s)
		}
	}
	return logs
}

// consume reads a topic from its start to the high watermark, partition by partition.
func consume(t testing.TB, brokers []string, topic string) []got {
	t.Helper()
	conf := sarama.NewConfig()
	conf.Version = sarama.V3_7_0_0
	client, err := sarama.NewClient(brokers, conf)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	partitions, err := client.Partitions(topic)
	if err != nil {
		t.Fatal(err)
	}
	var log []got
	for _, n := range partitions {
		end, err := client.GetOffset(topic, n, sarama.OffsetNewest)
		if err != nil {
			t.Fatal(err)
		}
		begin, err := client.GetOffset(topic, n, sarama.OffsetOldest)
		if err != nil {
			t.Fatal(err)
		}
		if begin == end {
			continue
		}
		pc, err := consumer.ConsumePartition(topic, n, sarama.OffsetOldest)
		if err != nil {
			t.Fatal(err)
		}
		for m := range pc.Messages() {
			g := got{partition: n, offset: m.Offset, msg: m}
			if len(m.Value) >= 8 {
				g.seq = binary.BigEndian.Uint64(m.Value)
			}
			log = append(log, g)
			if m.Offset >= end-1 {
				break
			}
		}
		if err := pc.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return log
}

// fake starts a cluster of kfake with the topics.
func fake(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, []string) {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, c.ListenAddrs()
}

// lossy is a dialer whose connections can be cut, and can lose answers.
type lossy struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
}

func (l *lossy) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		l.conns = map[net.Conn]bool{}
	}
	l.conns[c] = true
	return c, nil
}

// cut closes all connections.
func (l *lossy) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close()
	}
	clear(l.conns)
}

func ctxTimeout(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func isPoison(err error, reason string) bool {
	var e *kafka.PoisonError
	return errors.As(err, &e) && e.Reason == reason
}

func withCompression(codec string) func(*kafka.Options) {
	return func(o *kafka.Options) { o.Compression = codec }
}

// uniqueTopic is a name that no other test uses, of a topic that does not exist.
func uniqueTopic(t testing.TB) string {
	return fmt.Sprintf("t%016x", rand.Uint64())
}

// noise does not compress.
func noise(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// noEpochs makes sure that broker and publisher never disagreed about sequences.
func (h *harness) noEpochs() {
	h.t.Helper()
	if n := h.p.Epochs(); n != 0 {
		h.t.Errorf("%v new producer epochs", n)
	}
	if n := h.p.Duplicates(); n != 0 {
		h.t.Errorf("%v possible duplicates", n)
	}
}
