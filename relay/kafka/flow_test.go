package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"outbox-relay/relay/kafka"
)

// produceRequests counts produce requests at the cluster.
func produceRequests(c *kfake.Cluster) *kfake.FaultHandle {
	return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Observe: true, Count: -1})
}

func TestOneRecordIsSentByFlushOnly(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(1, "t"))
	requests := produceRequests(cluster)
	h := start(t, brokers, nil)
	h.publish("t", 1, 1)
	h.drain(5 * time.Second)
	before := requests.Hits()
	h.publish("t", 1, 10)
	time.Sleep(50 * time.Millisecond)
	if n := requests.Hits() - before; n != 0 {
		t.Errorf("%d requests without a Flush", n)
	}
	h.p.Flush()
	h.awaitAcked(11, 5*time.Second)
	if n := requests.Hits() - before; n != 1 {
		t.Errorf("%d requests for one Flush", n)
	}
}

// While a request is in flight, what comes in small pieces for other partitions gathers: the broker would look at none of it before.
func TestLittleGathersBehindARequestInFlight(t *testing.T) {
	t.Parallel()
	const partitions = 8
	cluster, brokers := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(partitions, "t"))
	h := start(t, brokers, nil)
	h.publish("t", 1, 100)
	h.drain(5 * time.Second)
	requests, hold := 0, make(chan struct{})
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if requests++; requests == 1 {
			<-hold
		}
		return nil, nil, false
	})
	for i := range int32(partitions) {
		h.seq++
		r := record("t", "k", h.seq)
		r.Partition = i
		h.send(r)
		h.p.Flush()
		time.Sleep(20 * time.Millisecond)
	}
	close(hold)
	h.drain(5 * time.Second)
	if requests != 2 {
		t.Errorf("%d requests for one record and %d behind it, want 2", requests, partitions-1)
	}
}

// A record of a rare partition is not left behind while a stream of others goes on without a Flush.
func TestRarePartitionGoesOnInABusyStream(t *testing.T) {
	t.Parallel()
	_, brokers := fake(t, kfake.SeedTopics(1, "rare", "busy"))
	h := start(t, brokers, nil)
	h.publish("rare", 1, 1)
	h.publish("busy", 1, 1)
	h.drain(5 * time.Second)
	h.publish("rare", 1, 1)
	rare := h.seq
	deadline := time.Now().Add(10 * time.Second)
	for {
		h.publish("busy", 1, 100)
		h.mu.Lock()
		done := h.acked[rare] > 0
		h.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the rare record was not sent")
		}
	}
}

// Nothing is sent without permission, and the wait for it holds the window.
func TestSendsNothingWithoutPermission(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(2, "t"))
	requests := produceRequests(cluster)
	var allowed atomic.Bool
	var asked atomic.Int32
	h := start(t, brokers, func(o *kafka.Options) {
		o.Window = 128 << 10
		o.Allowed = func() bool { asked.Add(1); return allowed.Load() }
	})
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	var err error
	for err == nil {
		h.seq++
		if err = h.p.Publish(ctx, record("t", fmt.Sprintf("key-%d", h.seq%10), h.seq), h.seq); err == nil {
			h.published[h.seq] = sent{"t", fmt.Sprintf("key-%d", h.seq%10)}
		}
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if n := requests.Hits(); n != 0 {
		t.Errorf("%d requests without permission", n)
	}
	if used, kept := h.p.Memory(); used > 128<<10+64<<10 || used < 64<<10 || used+kept > 256<<10 {
		t.Errorf("%d bytes used and %d kept of a window of 128 KiB", used, kept)
	}
	if asked.Load() < 2 {
		t.Error("permission was not asked for again")
	}
	allowed.Store(true)
	h.drain(5 * time.Second)
	h.verify("t")
}

func TestLargeRecordIsLetIntoASmallWindowAlone(t *testing.T) {
	t.Parallel()
	_, brokers := fake(t, kfake.SeedTopics(1, "t"))
	h := start(t, brokers, func(o *kafka.Options) { o.Window = 64 << 10 })
	for range 5 {
		h.publish("t", 1, 20)
		h.seq++
		r := record("t", "k", h.seq)
		r.Value = append(r.Value, make([]byte, 500<<10)...)
		h.send(r)
	}
	h.drain(10 * time.Second)
	h.verify("t")
	if used, kept := h.p.Memory(); used != 0 || kept > 64<<10 {
		t.Errorf("%d bytes used and %d kept at rest", used, kept)
	}
}

// frozen is a connection to a broker that was stopped: writes are taken, nothing is read.
type frozen struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *frozen) Read([]byte) (int, error) { <-c.closed; return 0, net.ErrClosed }

func (c *frozen) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Run ends within a second although no broker says anything: while connecting, and with requests in flight.
func TestStopsWithFrozenBrokers(t *testing.T) {
	t.Parallel()
	for _, after := range []string{"at once", "in flight"} {
		t.Run(after, func(t *testing.T) {
			t.Parallel()
			_, brokers := fake(t, kfake.SeedTopics(3, "t"))
			var freeze atomic.Bool
			freeze.Store(after == "at once")
			h := start(t, brokers, func(o *kafka.Options) {
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, network, addr)
					if err != nil {
						return nil, err
					}
					return &thawed{frozen: frozen{Conn: c, closed: make(chan struct{})}, freeze: &freeze}, nil
				}
			})
			if after == "in flight" {
				h.publish("t", 10, 100)
				h.drain(5 * time.Second)
			}
			freeze.Store(true)
			h.publish("t", 10, 5000)
			h.p.Flush()
			time.Sleep(300 * time.Millisecond) // let it run into the silence
			began := time.Now()
			if err := h.stop(); err != nil {
				t.Error(err)
			}
			if d := time.Since(began); d > 850*time.Millisecond {
				t.Errorf("stopped after %v", d)
			}
		})
	}
}

// thawed reads until freeze is set.
type thawed struct {
	frozen
	freeze *atomic.Bool
}

func (c *thawed) Read(b []byte) (int, error) {
	if c.freeze.Load() {
		return c.frozen.Read(b)
	}
	n, err := c.Conn.Read(b)
	if err == nil && c.freeze.Load() {
		return c.frozen.Read(b)
	}
	return n, err
}

// Start, publish, stop at any moment, again and again: no goroutine stays, nothing hangs, the log is never wrong.
func TestStartStopStress(t *testing.T) {
	cluster, brokers := fake(t, kfake.SeedTopics(3, "t"))
	defer cluster.Close()
	runtime.GC()
	before := runtime.NumGoroutine()
	for i := range 60 {
		p, err := kafka.New(kafka.Options{Brokers: brokers, Acked: func([]uint64) {}, Poisoned: func(*kafka.PoisonError) {}, Window: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			for s := uint64(1); ; s++ {
				if err := p.Publish(ctx, record("t", fmt.Sprint(s%10), s), s); err != nil {
					if !errors.Is(err, kafka.ErrClosed) && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				if s%100 == 0 {
					p.Flush()
				}
			}
		})
		wg.Go(func() {
			_ = p.Drain(ctx)
			_ = p.Stats()
		})
		time.Sleep(time.Duration(i) * time.Millisecond)
		cancel()
		wg.Wait()
		if err := p.Drain(t.Context()); err == nil && p.Stats().InFlightRecords > 0 {
			t.Error("Drain of a closed publisher with records in flight")
		}
	}
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > before+3 {
		if time.Now().After(deadline) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines before, %d after\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Without anything to send the state still tells whether Kafka is there.
func TestNoticesTheLossOfAnIdleCluster(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(1, "t"))
	h := start(t, brokers, nil)
	h.publish("t", 1, 1)
	h.drain(5 * time.Second)
	first := h.p.Stats().LastAnswer
	if first.IsZero() {
		t.Error("no answer after an acknowledgement")
	}
	h.awaitStats("a sign of life", time.Minute, func(s kafka.Stats) bool { return s.LastAnswer.After(first.Add(time.Second)) })
	cluster.Close()
	h.awaitStats("the loss", 10*time.Second, func(s kafka.Stats) bool { return s.LastError != nil })
	if s := h.p.Stats(); s.LastErrorAt.Before(s.LastAnswer) {
		t.Errorf("%+v", s)
	}
}

func TestOptionsAreCheckedAtOnce(t *testing.T) {
	t.Parallel()
	_, err := kafka.New(kafka.Options{
		Brokers: []string{"host"}, Version: "0.9", Compression: "brotli", Partitioner: "random", Window: 1, MaxBatch: 5 << 20, Idle: -1,
		CreateTopics: kafka.CreateTopics{Enabled: true}, SASL: kafka.SASL{Mechanism: "gssapi"},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || len(joined.Unwrap()) != 10 {
		t.Errorf("%v", err)
	}
}

// A leader freezes with a request in flight, and the controller gives the partition to another broker. The connection, on which nothing
// will ever come, is cut as soon as metadata names the new leader.
func TestLeavesAFrozenLeaderWhenThereIsAnother(t *testing.T) {
	t.Parallel()
	cluster, _ := fake(t, kfake.SeedTopics(1, "t"))
	leader := cluster.LeaderFor("t", 0)
	other := (leader + 1) % 3
	addrs := cluster.ListenAddrs()
	var freeze atomic.Bool
	h := start(t, []string{addrs[other]}, func(o *kafka.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil || addr != addrs[leader] {
				return c, err
			}
			return &thawed{frozen: frozen{Conn: c, closed: make(chan struct{})}, freeze: &freeze}, nil
		}
	})
	h.publish("t", 1, 10)
	h.drain(5 * time.Second)
	freeze.Store(true)
	h.publish("t", 1, 10)
	h.p.Flush()
	time.Sleep(100 * time.Millisecond) // the request is with the old leader, which appends it: its fate is unknown here
	if err := cluster.MoveTopicPartition("t", 0, other); err != nil {
		t.Fatal(err)
	}
	h.publish("t", 1, 10)
	h.drain(15 * time.Second)
	h.noEpochs()
	h.brokers = addrs
	h.verify("t")
}

// The same for a partition of which nothing is under way: what waits for it behind the request of another does not wait for that request's end.
func TestWhatWaitsBehindAFrozenLeaderGoesToAnother(t *testing.T) {
	t.Parallel()
	cluster, _ := fake(t, kfake.SeedTopics(1, "stays", "moves"))
	leader := cluster.LeaderFor("stays", 0)
	other := (leader + 1) % 3
	if err := cluster.MoveTopicPartition("moves", 0, leader); err != nil {
		t.Fatal(err)
	}
	addrs := cluster.ListenAddrs()
	var freeze atomic.Bool
	var mu sync.Mutex
	var last *thawed
	h := start(t, []string{addrs[other]}, func(o *kafka.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil || addr != addrs[leader] {
				return c, err
			}
			mu.Lock()
			defer mu.Unlock()
			last = &thawed{frozen: frozen{Conn: c, closed: make(chan struct{})}, freeze: &freeze}
			return last, nil
		}
	})
	h.publish("stays", 1, 1)
	h.publish("moves", 1, 1)
	h.drain(5 * time.Second)
	mu.Lock()
	silent := last
	mu.Unlock()
	freeze.Store(true)
	h.publish("stays", 1, 1)
	h.p.Flush()
	time.Sleep(100 * time.Millisecond) // the request is under way
	h.publish("moves", 1, 1)
	h.p.Flush()
	if err := cluster.MoveTopicPartition("moves", 0, other); err != nil {
		t.Fatal(err)
	}
	h.awaitAcked(3, 15*time.Second)
	select {
	case <-silent.closed:
		t.Error("the record waited until the request before it was given up")
	default:
	}
	freeze.Store(false)
	h.drain(15 * time.Second)
	h.brokers = addrs
	h.verify("stays", "moves")
}

func TestInspectNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(2, "good", "hidden"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "hidden", Err: kerr.TopicAuthorizationFailed, Count: -1})
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, Count: -1})
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Resource: "good", Err: kerr.TopicAuthorizationFailed, Count: -1})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	in, err := kafka.Inspect(t.Context(), kafka.Options{Brokers: append([]string{closed.Addr().String()}, brokers...)}, []string{"hidden", "good", "none"})
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Seeds) != 4 || in.Seeds[0].Err == nil || in.Seeds[1].Err != nil || len(in.Brokers) != 3 || in.Brokers[2].Err != nil {
		t.Errorf("brokers %+v, %+v", in.Seeds, in.Brokers)
	}
	if !errors.Is(in.ProducerID, sarama.ErrClusterAuthorizationFailed) {
		t.Errorf("producer id: %v", in.ProducerID)
	}
	if hidden := in.Topics[0]; hidden.Exists || hidden.Write != kafka.PermissionDenied || !errors.Is(hidden.Err, sarama.ErrTopicAuthorizationFailed) {
		t.Errorf("%+v", hidden)
	}
	if good := in.Topics[1]; !good.Exists || good.Partitions != 2 || good.Err != nil || !errors.Is(good.ConfigErr, sarama.ErrTopicAuthorizationFailed) {
		t.Errorf("%+v", good)
	}
	if none := in.Topics[2]; none.Exists || none.Err != nil {
		t.Errorf("%+v", none)
	}
	if _, err := kafka.Inspect(t.Context(), kafka.Options{Brokers: []string{closed.Addr().String()}}, nil); err == nil {
		t.Error("no broker, no error")
	}
	if _, err := kafka.Inspect(t.Context(), kafka.Options{Brokers: brokers}, nil); err != nil {
		t.Errorf("without topics: %v", err)
	}
}
