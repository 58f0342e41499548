package txn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka/conn"
	"outbox-relay/relay/kafka/txn"
	"outbox-relay/relay/relaytest"
)

func open(t *testing.T, brokers []string, id string, change func(*txn.Options)) *txn.Coordinator {
	t.Helper()
	o := txn.Options{Conn: conn.Options{ClientID: "test", Version: sarama.V3_7_0_0}, Brokers: brokers, ID: id, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&o)
	}
	c, err := txn.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func newID() string { return fmt.Sprintf("id-%016x", rand.Uint64()) }

func fence(t *testing.T, c *txn.Coordinator) txn.Producer {
	t.Helper()
	p, err := c.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if p.ID < 0 || p != c.Producer() {
		t.Fatalf("fenced as %+v, is %+v", p, c.Producer())
	}
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// produce writes one record as a part of the transaction.
func produce(t *testing.T, addr, id string, p txn.Producer, topic, value string, sequence int32) sarama.KError {
	t.Helper()
	b := sarama.NewBroker(addr)
	conf := sarama.NewConfig()
	conf.Version = sarama.V3_7_0_0
	must(t, b.Open(conf))
	defer func() { _ = b.Close() }()
	now := time.Now().Truncate(time.Millisecond)
	req := &sarama.ProduceRequest{TransactionalID: &id, RequiredAcks: sarama.WaitForAll, Timeout: 5000, Version: 10}
	req.AddBatch(topic, 0, &sarama.RecordBatch{
		Version: 2, IsTransactional: true, ProducerID: p.ID, ProducerEpoch: p.Epoch, FirstSequence: sequence, FirstTimestamp: now, MaxTimestamp: now,
		Records: []*sarama.Record{{Value: []byte(value)}},
	})
	for {
		resp, err := b.Produce(req)
		must(t, err)
		if code := resp.Blocks[topic][0].Err; code != sarama.ErrNotLeaderForPartition { // as it is for a moment when the topic is new
			return code
		}
	}
}

// committed gives what a read_committed consumer sees.
func committed(t *testing.T, brokers []string, topic string) (values []string) {
	t.Helper()
	o := relaytest.ConsumeOptions{Brokers: brokers, Topics: []string{topic}, ReadCommitted: true}
	must(t, relaytest.Consume(t.Context(), o, func(m relaytest.Message) error {
		values = append(values, string(m.Value))
		return nil
	}))
	return values
}

func TestCommittedIsVisibleAndAbortedIsNot(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, id, addr := k.NewTopic(t, 1, nil), newID(), k.Addrs()[0]
	c := open(t, k.Addrs(), id, nil)
	p := fence(t, c)
	parts := map[string][]int32{topic: {0}}
	for i, v := range []string{"one", "two"} {
		must(t, c.Add(t.Context(), parts))
		must(t, c.Add(t.Context(), parts)) // harmless
		if code := produce(t, addr, id, p, topic, v, int32(i)); code != 0 {
			t.Fatalf("producing %s: %v", v, code)
		}
		must(t, c.Commit(t.Context()))
		must(t, c.Commit(t.Context())) // as after a lost answer
	}
	must(t, c.Add(t.Context(), parts))
	if code := produce(t, addr, id, p, topic, "aborted", 2); code != 0 {
		t.Fatal(code)
	}
	next, err := c.Abort(t.Context())
	must(t, err)
	if next.ID != p.ID || next.Epoch <= p.Epoch {
		t.Errorf("aborted to %+v from %+v", next, p)
	}
	if code := produce(t, addr, id, p, topic, "late", 3); code != 47 {
		t.Errorf("a late batch of the aborted transaction got code %d", code)
	}
	must(t, c.Add(t.Context(), parts))
	if code := produce(t, addr, id, next, topic, "three", 0); code != 0 {
		t.Fatal(code)
	}
	must(t, c.Commit(t.Context()))
	fence(t, c) // returns when the markers are written
	if got, want := committed(t, k.Addrs(), topic), []string{"one", "two", "three"}; !slices.Equal(got, want) {
		t.Errorf("read_committed sees %q, want %q", got, want)
	}
}

func TestFencedOwnerCanDoNothing(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, id, addr := k.NewTopic(t, 1, nil), newID(), k.Addrs()[0]
	old := open(t, k.Addrs(), id, nil)
	p := fence(t, old)
	parts := map[string][]int32{topic: {0}}
	must(t, old.Add(t.Context(), parts))
	if code := produce(t, addr, id, p, topic, "old", 0); code != 0 {
		t.Fatal(code)
	}
	fence(t, open(t, k.Addrs(), id, nil))
	if code := produce(t, addr, id, p, topic, "zombie", 1); code != 47 {
		t.Errorf("producing when fenced: code %d", code)
	}
	for name, f := range map[string]func() error{
		"commit": func() error { return old.Commit(t.Context()) },
		"add":    func() error { return old.Add(t.Context(), parts) },
		"abort":  func() error { _, err := old.Abort(t.Context()); return err },
	} {
		if err := f(); !errors.Is(err, txn.ErrFenced) || errors.Is(err, txn.ErrAborted) {
			t.Errorf("%s when fenced: %v", name, err)
		}
	}
	if got := committed(t, k.Addrs(), topic); len(got) != 0 {
		t.Errorf("read_committed sees %q", got)
	}
}

// The codes of a transaction that was open for too long are those of a fenced one; the id is still ours.
func TestTimedOutTransactionIsAbortedAndTheIDKept(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Properties: map[string]string{"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}})
	topic, id, addr := k.NewTopic(t, 1, nil), newID(), k.Addrs()[0]
	for name, end := range map[string]func(*txn.Coordinator) error{
		"commit": func(c *txn.Coordinator) error { return c.Commit(t.Context()) },
		"add":    func(c *txn.Coordinator) error { return c.Add(t.Context(), map[string][]int32{topic: {0}}) },
	} {
		c := open(t, k.Addrs(), id, func(o *txn.Options) { o.Timeout = 500 * time.Millisecond })
		p := fence(t, c)
		must(t, c.Add(t.Context(), map[string][]int32{topic: {0}}))
		if code := produce(t, addr, id, p, topic, "late "+name, 0); code != 0 {
			t.Fatal(code)
		}
		for sequence := int32(1); ; sequence++ { // until the coordinator has aborted it
			if code := produce(t, addr, id, p, topic, "later", sequence); code != 0 {
				if code != 47 {
					t.Fatalf("producing after the time-out: code %d", code)
				}
				break
			}
		}
		if err := end(c); !errors.Is(err, txn.ErrAborted) || errors.Is(err, txn.ErrFenced) {
			t.Fatalf("%s after the time-out: %v", name, err)
		}
		if next := c.Producer(); next.ID != p.ID || next.Epoch <= p.Epoch {
			t.Errorf("%s: %+v after %+v", name, next, p)
		}
		must(t, c.Add(t.Context(), map[string][]int32{topic: {0}}))
		if code := produce(t, addr, id, c.Producer(), topic, name, 0); code != 0 {
			t.Fatal(code)
		}
		must(t, c.Commit(t.Context()))
	}
	fence(t, open(t, k.Addrs(), id, nil))
	if got := committed(t, k.Addrs(), topic); len(got) != 2 {
		t.Errorf("read_committed sees %q, want two records", got)
	}
}

// mute lets requests through and loses the answer to the next one.
type mute struct {
	net.Conn
	m *muter
}

type muter struct {
	mu   sync.Mutex
	left int
}

// lose loses the next n answers, and gives how many were still to be lost.
func (m *muter) lose(n int) (before int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, m.left = m.left, n
	return before
}

func (c mute) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if n > 0 && c.m.left > 0 {
		c.m.left--
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	}
	return n, err
}

func TestLostAnswersAreAskedForAgain(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, id, addr := k.NewTopic(t, 1, nil), newID(), k.Addrs()[0]
	m := &muter{}
	c := open(t, k.Addrs(), id, func(o *txn.Options) {
		o.Conn.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, network, addr)
			return mute{nc, m}, err
		}
	})
	lost := func(f func() error) {
		t.Helper()
		m.lose(1)
		must(t, f())
		if m.lose(0) > 0 {
			t.Error("no answer was lost")
		}
	}
	lost(func() error { _, err := c.Fence(t.Context()); return err })
	lost(func() error { return c.Add(t.Context(), map[string][]int32{topic: {0}}) })
	if code := produce(t, addr, id, c.Producer(), topic, "one", 0); code != 0 {
		t.Fatal(code)
	}
	lost(func() error { return c.Commit(t.Context()) })
	must(t, c.Add(t.Context(), map[string][]int32{topic: {0}}))
	lost(func() error { _, err := c.Abort(t.Context()); return err })
	must(t, c.Add(t.Context(), map[string][]int32{topic: {0}}))
	if code := produce(t, addr, id, c.Producer(), topic, "two", 0); code != 0 {
		t.Fatal(code)
	}
	must(t, c.Commit(t.Context()))
	fence(t, c)
	if got, want := committed(t, k.Addrs(), topic), []string{"one", "two"}; !slices.Equal(got, want) {
		t.Errorf("read_committed sees %q, want %q", got, want)
	}
}

// Codes that time heals, and answers that say nothing, are tried again; those that a person has to heal are given back.
func TestCodesOfTheCoordinator(t *testing.T) {
	t.Parallel()
	keys := map[string]kmsg.Key{"find": kmsg.FindCoordinator, "fence": kmsg.InitProducerID, "add": kmsg.AddPartitionsToTxn, "commit": kmsg.EndTxn}
	for code, want := range map[int16]string{
		14: "healed", 15: "healed", 16: "healed", 51: "healed", 52: "healed", 13: "healed", 7: "healed", -1: "healed", 120: "healed",
		53: "refused", 31: "refused", 50: "refused", 49: "fenced", 105: "fenced",
	} {
		for name, key := range keys {
			if name == "find" && want == "fenced" {
				continue
			}
			t.Run(fmt.Sprintf("%s-%d", name, code), func(t *testing.T) {
				t.Parallel()
				cluster, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.SeedTopics(3, "t"))
				must(t, err)
				defer cluster.Close()
				c := open(t, cluster.ListenAddrs(), "id", nil)
				if name != "find" && name != "fence" {
					fence(t, c)
				}
				f := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Err: kerr.TypedErrorForCode(code), Count: 2})
				defer f.Remove()
				_, err = c.Fence(t.Context())
				if err == nil {
					err = c.Add(t.Context(), map[string][]int32{"t": {0, 1, 2}})
				}
				if err == nil {
					err = c.Commit(t.Context())
				}
				got := "healed"
				var e *txn.Error
				switch {
				case errors.Is(err, txn.ErrFenced):
					got = "fenced"
				case errors.As(err, &e) && e.Refused():
					got = "refused"
				case err != nil:
					got = err.Error()
				}
				if name == "find" {
					if want = "healed"; code == 53 || code == 31 || code == 50 {
						want = "refused"
					}
				}
				if got != want {
					t.Errorf("%s, want %s (%v)", got, want, err)
				}
				if want == "healed" && f.Hits() != 2 {
					t.Errorf("%d faults", f.Hits())
				}
			})
		}
	}
}

func TestCallsEndWithTheirContextAndWithClose(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts and says nothing
	must(t, err)
	defer func() { _ = l.Close() }()
	c := open(t, []string{l.Addr().String()}, "id", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.Fence(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the end of the context: %v", err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.Fence(context.WithoutCancel(t.Context()))
		done <- err
	}()
	c.Close()
	if err := <-done; !errors.Is(err, txn.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := c.Abort(t.Context()); err == nil {
		t.Error("aborted without a producer id")
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	good := txn.Options{Brokers: []string{"a:1"}, ID: "id"}
	for name, change := range map[string]func(*txn.Options){
		"brokers": func(o *txn.Options) { o.Brokers = nil }, "id": func(o *txn.Options) { o.ID = "" }, "time-out": func(o *txn.Options) { o.Timeout = -1 },
	} {
		o := good
		change(&o)
		if _, err := txn.New(o); err == nil {
			t.Errorf("bad %s accepted", name)
		}
	}
}
