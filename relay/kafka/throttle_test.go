package kafka_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"outbox-relay/relay/kafka"
)

// throttling is a fake broker that answers the first produce request well, stores nothing of it, and asks for a pause of an hour. before is called
// with the request in hand.
func throttling(t *testing.T, before func()) (brokers []string) {
	t.Helper()
	cluster, brokers := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "t"))
	var requests atomic.Int32
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if requests.Add(1) > 1 {
			return nil, nil, false
		}
		before()
		answer := req.ResponseKind().(*kmsg.ProduceResponse)
		answer.ThrottleMillis = int32(time.Hour.Milliseconds())
		for _, asked := range req.(*kmsg.ProduceRequest).Topics {
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic, topic.TopicID = asked.Topic, asked.TopicID
			for _, p := range asked.Partitions {
				partition := kmsg.NewProduceResponseTopicPartition()
				partition.Partition = p.Partition
				topic.Partitions = append(topic.Partitions, partition)
			}
			answer.Topics = append(answer.Topics, topic)
		}
		return answer, nil, true
	})
	return brokers
}

// to publishes a record to a partition.
func (h *harness) to(partition int32) {
	h.seq++
	r := record("t", "k", h.seq)
	r.Partition = partition
	h.send(r)
	h.p.Flush()
}

func TestBrokerThatAsksForAnHourDoesNotHoldRecordsForAnHour(t *testing.T) {
	t.Parallel()
	h := start(t, throttling(t, func() {}), func(o *kafka.Options) { o.MaxThrottle = 100 * time.Millisecond })
	h.to(0)
	h.awaitAcked(1, time.Minute)
	h.to(1)
	h.to(0)
	h.awaitAcked(3, time.Minute)
}

// The activity lock can be lost in a pause: what was allowed before it is asked for again behind it.
func TestPermissionToSendIsAskedForAfterAThrottledPause(t *testing.T) {
	t.Parallel()
	var acked, asked, allowed atomic.Bool
	h := start(t, throttling(t, func() {}), func(o *kafka.Options) {
		o.MaxThrottle = 100 * time.Millisecond
		tell := o.Acked
		o.Acked = func(seqs []uint64) { acked.Store(true); tell(seqs) }
		o.Allowed = func() bool {
			if !acked.Load() {
				return true
			}
			asked.Store(true)
			return allowed.Load()
		}
	})
	h.to(0)
	h.awaitAcked(1, time.Minute)
	h.to(1)
	h.awaitStats("the sender has asked whether it may send", time.Minute, func(kafka.Stats) bool { return asked.Load() })
	if n := h.ackedCount(); n != 1 {
		t.Errorf("%d records are acknowledged while sending is not allowed, want 1", n)
	}
	allowed.Store(true)
	h.awaitAcked(2, time.Minute)
}

// stuck is a connection whose next produce request, once armed, is not written before the connection is closed.
type stuck struct {
	net.Conn
	armed  *atomic.Bool
	writes chan struct{} // gets an element when a write is held up
	closed chan struct{}
	once   atomic.Bool
}

func (s *stuck) Write(b []byte) (int, error) {
	// A frame is its length i32, then the number of the call: 0 for Produce.
	if len(b) > 6 && b[4] == 0 && b[5] == 0 && s.armed.CompareAndSwap(true, false) {
		s.writes <- struct{}{}
		<-s.closed
		return 0, net.ErrClosed
	}
	return s.Conn.Write(b)
}

func (s *stuck) Close() error {
	if s.once.CompareAndSwap(false, true) {
		close(s.closed)
	}
	return s.Conn.Close()
}

// An answer asks for a pause while the next request is being written.
func TestPauseThatMeetsARequestUnderWayDoesNotHoldItsSenderUp(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	received, writes := make(chan struct{}), make(chan struct{})
	brokers := throttling(t, func() {
		armed.Store(true)
		close(received)
		<-writes // of the second request
	})
	h := start(t, brokers, func(o *kafka.Options) {
		o.MaxThrottle = 100 * time.Millisecond
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &stuck{Conn: c, armed: &armed, writes: writes, closed: make(chan struct{})}, nil
		}
	})
	h.to(0)
	<-received
	h.seq++
	large := record("t", "k", h.seq) // less would wait for the answer to the first
	large.Partition, large.Value = 1, append(large.Value, make([]byte, 64<<10)...)
	h.send(large)
	h.p.Flush()
	h.awaitAcked(2, time.Minute)
	h.to(0)
	h.to(1)
	h.awaitAcked(4, time.Minute)
	h.mu.Lock()
	defer h.mu.Unlock()
	for seq, n := range h.acked {
		if n != 1 {
			t.Errorf("record %d was acknowledged %d times", seq, n)
		}
	}
}
