package kafka_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka"
)

// classes is the error table again, by hand: a changed class has to be changed twice.
var classes = map[sarama.KError]string{
	0: "ok", 46: "ok",
	-1: "transient", 2: "transient", 5: "transient", 6: "transient", 7: "transient", 8: "transient", 9: "transient", 13: "transient",
	14: "transient", 15: "transient", 16: "transient", 19: "transient", 20: "transient", 41: "transient", 51: "transient", 52: "transient",
	55: "transient", 56: "transient", 72: "transient", 74: "transient", 75: "transient", 78: "transient", 89: "transient", 100: "transient",
	103: "transient",
	10:  "poison", 18: "poison", 32: "poison", 44: "poison", 87: "poison",
	3: "configuration", 17: "configuration", 21: "configuration", 29: "configuration", 31: "configuration", 33: "configuration",
	34: "configuration", 35: "configuration", 43: "configuration", 50: "configuration", 53: "configuration", 54: "configuration",
	58: "configuration", 76: "configuration",
	45: "producer_state", 47: "producer_state", 48: "producer_state", 49: "producer_state", 59: "producer_state",
	42: "fatal", 90: "fatal",
}

func TestClassOfEachCode(t *testing.T) {
	t.Parallel()
	for code := sarama.KError(-1); code < 140; code++ {
		want, known := classes[code]
		if !known {
			want = "unknown, transient"
		}
		if got := kafka.ClassOf(code); got != want {
			t.Errorf("code %d: class %s, want %s", code, got, want)
		}
	}
}

// One answer with each code, then good ones: everything is delivered once and in order, the error is counted in its class.
func TestRecoversFromOneAnswerOfEachCode(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t)
	codes := []int16{120} // unknown
	for code, class := range classes {
		if class != "ok" && class != "fatal" {
			codes = append(codes, int16(code))
		}
	}
	for _, code := range codes {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			topic := fmt.Sprintf("code%d", code)
			if code < 0 {
				topic = "unknown-server-error"
			}
			if err := cluster.CreateTopic(topic, 3, nil); err != nil {
				t.Fatal(err)
			}
			registry := prometheus.NewRegistry()
			h := start(t, brokers, func(o *kafka.Options) { o.Registerer = registry })
			h.publish(topic, 10, 100)
			h.drain(10 * time.Second)
			fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.TypedErrorForCode(code), Count: 2})
			defer fault.Remove()
			h.publish(topic, 10, 500)
			h.drain(20 * time.Second)
			if fault.Hits() != 2 {
				t.Errorf("the fault was hit %d times", fault.Hits())
			}
			h.verify(topic)
			class := classes[sarama.KError(code)]
			if class == "" {
				class = "transient"
			}
			if n := errorsCounted(t, registry, class); n < 2 {
				t.Errorf("%v errors of class %s counted", n, class)
			}
		})
	}
}

func TestFatalCodesEndRun(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(1, "t"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.ProducerFenced, Count: -1})
	h := start(t, brokers, nil)
	h.publish("t", 1, 1)
	if err := h.p.Drain(ctxTimeout(t, 5*time.Second)); !errors.Is(err, kafka.ErrClosed) {
		t.Errorf("Drain: %v", err)
	}
	var fatal *kafka.FatalError
	if err := h.stop(); !errors.As(err, &fatal) || !errors.Is(err, sarama.ErrProducerFenced) {
		t.Errorf("Run: %v", err)
	}
	h.stop = func() error { return nil }
	if err := h.p.Publish(t.Context(), record("t", "k", 2), 2); !errors.Is(err, kafka.ErrClosed) {
		t.Errorf("Publish after the end: %v", err)
	}
}

// K1: a broker refuses one record for ever. Everything before it in its partition is delivered, nothing behind it, others go on.
func TestHaltsAtARefusedRecordAndHoldsWhatIsBehind(t *testing.T) {
	t.Parallel()
	for _, code := range []*kerr.Error{kerr.PolicyViolation, kerr.MessageTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.RecordListTooLarge} {
		t.Run(code.Message, func(t *testing.T) {
			t.Parallel()
			cluster, brokers := fake(t, kfake.SeedTopics(3, "t"))
			const guilty = 777
			marker := []byte("payload of 777")
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: code, Count: -1, Partitions: []int32{partitionOf(guilty)}, When: func(r kmsg.Request) bool {
				for _, topic := range r.(*kmsg.ProduceRequest).Topics {
					for _, p := range topic.Partitions {
						if bytes.Contains(p.Records, marker) {
							return true
						}
					}
				}
				return false
			}})
			h := start(t, brokers, nil)
			h.publish("t", 30, 2000)
			h.p.Flush()
			e := h.awaitPoison(20 * time.Second)
			if e.Seq != guilty || e.ID != "id-777" || e.Position != "uuid:777#0" || e.Table != "app.outbox" || e.Topic != "t" || e.Partition != partitionOf(guilty) {
				t.Errorf("poison %+v", e)
			}
			h.drain(10 * time.Second)
			h.publish("t", 30, 500)
			h.drain(10 * time.Second)
			h.verify("t")
			h.noEpochs()
			h.mu.Lock()
			defer h.mu.Unlock()
			for s := uint64(1); s <= h.seq; s++ {
				want := 1
				if partitionOf(s) == partitionOf(guilty) && s >= guilty {
					want = 0
				}
				if h.acked[s] != want {
					t.Fatalf("record %d acknowledged %d times, want %d", s, h.acked[s], want)
				}
			}
			if s := h.p.Stats(); len(s.Halted) != 1 || s.HeldRecords != s.InFlightRecords || len(s.Stalled) != 1 || s.Stalled[0].Reason != kafka.StallPoison {
				t.Errorf("%+v", s)
			}
		})
	}
}

// partitionOf is where publish puts a record among 30 keys and 3 partitions.
func partitionOf(seq uint64) int32 {
	return kafka.PartitionOf("murmur2", fmt.Appendf(nil, "key-%d", seq%30), 3)
}

// forgetful loses answers: now and then a connection ends instead of giving what it has read.
type forgetful struct {
	net.Conn
	one int // in how many reads
}

func (c forgetful) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && rand.N(c.one) == 0 {
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}

// K2, K4: leaders move, connections break before and after the append. Nothing is lost, nothing is doubled, order is kept.
func TestExactOrderUnderMovesCutsAndLostAcknowledgements(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(4, "t"))
	l := &lossy{}
	registry := prometheus.NewRegistry()
	h := start(t, brokers, func(o *kafka.Options) {
		o.Window = 256 << 10
		o.Registerer = registry
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := l.dial(ctx, network, addr)
			return forgetful{c, 20}, err
		}
	})
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rand.N(40)+5) * time.Millisecond):
			}
			switch rand.N(3) {
			case 0:
				l.cut()
			case 1:
				_ = cluster.MoveTopicPartition("t", rand.Int32N(4), rand.Int32N(3))
			case 2:
				cluster.ShufflePartitionLeaders()
			}
		}
	}()
	// A fast machine is through before enough has failed, so it goes on until then.
	rounds, enough := 0, func() bool { return errorsCounted(t, registry, "transient") >= 20 }
	for ; rounds < 60 || rounds < 2000 && !enough(); rounds++ {
		h.publish("t", 40, 500)
		h.p.Flush()
	}
	h.drain(30 * time.Second)
	close(stop)
	<-done
	h.verify("t")
	if n := h.ackedCount(); n != rounds*500 {
		t.Errorf("%d of %d acknowledged", n, rounds*500)
	}
	h.noEpochs()
	if !enough() {
		t.Errorf("too few faults met in %d rounds", rounds)
	}
}

// A broker that is starting answers code 14 with producer id -1; batches with that id would lose idempotence.
func TestWaitsForAProducerID(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(1, "t"))
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.CoordinatorLoadInProgress, Count: 3})
	h := start(t, brokers, nil)
	h.publish("t", 1, 10)
	h.drain(10 * time.Second)
	h.verify("t")
	if fault.Hits() != 3 {
		t.Errorf("%d answers", fault.Hits())
	}
	for _, id := range h.p.Producers("t") {
		if id < 0 {
			t.Errorf("producer id %d", id)
		}
	}
}

func TestStallsWithoutPermissionForAProducerID(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(1, "t"))
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, Count: -1})
	h := start(t, brokers, nil)
	h.publish("t", 1, 10)
	h.p.Flush()
	h.awaitStats("a stall", 5*time.Second, func(s kafka.Stats) bool {
		return len(s.Stalled) == 1 && s.Stalled[0].Reason == kafka.StallProducerID && errors.Is(s.LastError, sarama.ErrClusterAuthorizationFailed)
	})
	fault.Remove()
	h.drain(10 * time.Second)
	h.verify("t")
}

func TestSequenceWrapsBehindTheLargestNumber(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic := k.NewTopic(t, 1, nil)
	h := start(t, k.Addrs(), nil)
	h.p.SetFirstSequence(topic, 1<<31-150) // a broker takes any from a producer that it does not know
	for range 3 {
		h.publish(topic, 1, 100)
		h.drain(10 * time.Second)
	}
	h.verify(topic)
	h.noEpochs()
}

func TestTakesANewProducerIDBehindTheLastEpoch(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(1, "t"))
	h := start(t, brokers, nil)
	h.publish("t", 1, 10)
	h.drain(10 * time.Second)
	before := h.p.Producers("t")[0]
	h.p.SetNumbers("t", 1<<15-1, 0)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.OutOfOrderSequenceNumber})
	h.publish("t", 1, 10)
	h.drain(10 * time.Second)
	if after := h.p.Producers("t")[0]; after == before {
		t.Error("the producer id is still the same")
	}
	h.verify("t")
}

func TestCutsAroundTheNamedRecord(t *testing.T) {
	t.Parallel()
	named := func(is ...int32) (e []sarama.ProduceResponseRecordError) {
		for _, i := range is {
			e = append(e, sarama.ProduceResponseRecordError{BatchIndex: i})
		}
		return e
	}
	for _, c := range []struct {
		n     int
		named []sarama.ProduceResponseRecordError
		want  []int
	}{
		{10, nil, []int{5}}, {3, nil, []int{1}}, {10, named(4), []int{4, 5}}, {10, named(7, 3), []int{3, 4}}, {10, named(0), []int{1}},
		{10, named(9), []int{9}}, {2, named(0), []int{1}}, {2, named(1), []int{1}}, {10, named(-1), []int{5}}, {10, named(99), []int{5}},
	} {
		if got := kafka.Cuts(c.n, c.named); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%d records, %v: cut at %v, want %v", c.n, c.named, got, c.want)
		}
	}
}

// errorsCounted reads publish_errors_total of a class.
func errorsCounted(t *testing.T, r *prometheus.Registry, class string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "outbox_relay_publish_errors_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "class" && l.GetValue() == class {
					return m.GetCounter().GetValue()
				}
			}
		}
	}
	return 0
}
