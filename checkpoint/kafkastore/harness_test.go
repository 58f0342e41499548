package kafkastore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/kafkastore"
	"outbox-relay/checkpoint/storetest"
	"outbox-relay/internal/sandbox"
)

// unique makes a name that no other test has: names are transactional ids, which a cluster has in common.
func unique() string { return fmt.Sprintf("cp-%016x", rand.Uint64()) }

func options(k *sandbox.Kafka, name string) kafkastore.Options {
	return kafkastore.Options{Name: name, Topic: "outbox-relay." + name + ".checkpoint", Brokers: k.Addrs()}
}

func open(t *testing.T, o kafkastore.Options) *kafkastore.Store {
	t.Helper()
	s, err := kafkastore.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// numbered is storetest's checkpoint n for a relay.
func numbered(name string, n uint64) *checkpoint.Checkpoint {
	c := storetest.Checkpoint(n)
	c.Name = name
	return c
}

func value(t *testing.T, name string, n uint64) []byte {
	t.Helper()
	v, err := kafkastore.Value(numbered(name, n))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// wantNumber compares what a load gave with checkpoint n.
func wantNumber(t *testing.T, c *checkpoint.Checkpoint, err error, n uint64) {
	t.Helper()
	switch {
	case err != nil:
		t.Errorf("got %v, want checkpoint %d", err, n)
	case c.BinlogPosition != 4+n:
		t.Errorf("got checkpoint %d, want %d", c.BinlogPosition-4, n)
	}
}

func wantHint(t *testing.T, err, reason error, words ...string) {
	t.Helper()
	var e *checkpoint.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a *checkpoint.Error", err)
	}
	if reason != nil && !errors.Is(err, reason) {
		t.Errorf("got %v, want %v", err, reason)
	}
	for _, w := range words {
		if text := e.Error() + " | " + e.Hint; !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
}

// writer is a transactional producer of another program, or of an instance that died.
type writer struct {
	id    string
	t     *testing.T
	p     sarama.AsyncProducer
	topic string
}

func newWriter(t *testing.T, k *sandbox.Kafka, id, topic string) *writer {
	t.Helper()
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.Producer.Transaction.ID = id
	c.Producer.Transaction.Timeout = 10 * time.Minute
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Net.MaxOpenRequests = 1
	c.Producer.Retry.Max = 100
	p, err := sarama.NewAsyncProducer(k.Addrs(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.AsyncClose() })
	return &writer{id, t, p, topic}
}

// send opens a transaction and waits until records of a key are in the log.
func (w *writer) send(key string, values ...[]byte) {
	w.t.Helper()
	if err := w.p.BeginTxn(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		for _, v := range values {
			w.p.Input() <- &sarama.ProducerMessage{Topic: w.topic, Key: sarama.StringEncoder(key), Value: sarama.ByteEncoder(v)}
		}
	}()
	for range values {
		select {
		case <-w.p.Successes():
		case err := <-w.p.Errors():
			w.t.Fatal(err)
		}
	}
}

func (w *writer) commit(key string, values ...[]byte) {
	w.t.Helper()
	w.send(key, values...)
	if err := w.p.CommitTxn(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *writer) abort(key string, values ...[]byte) {
	w.t.Helper()
	w.send(key, values...)
	if err := w.p.AbortTxn(); err != nil {
		w.t.Fatal(err)
	}
}

// capture keeps the attributes of a logger's records of one message.
type capture struct {
	slog.Handler
	message string
	got     chan map[string]slog.Value
}

func newCapture(message string) *capture {
	return &capture{slog.DiscardHandler, message, make(chan map[string]slog.Value, 100)}
}

func (c *capture) Enabled(context.Context, slog.Level) bool { return true }

func (c *capture) Handle(_ context.Context, r slog.Record) error {
	if r.Message == c.message {
		attrs := map[string]slog.Value{}
		r.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value; return true })
		c.got <- attrs
	}
	return nil
}
