package kafka_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka"
	"outbox-relay/router"
)

// Brokers of every age take records, whatever newest protocol is configured.
func TestBrokersOfEveryAgeTakeRecords(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string]*kversion.Versions{
		"2.1": kversion.V2_1_0(), "2.3": kversion.V2_3_0(), "2.4": kversion.V2_4_0(), "2.8": kversion.V2_8_0(), "3.6": kversion.V3_6_0(), "3.7": kversion.V3_7_0(), "4.0": kversion.V4_0_0(),
	} {
		for _, configured := range []string{"2.1.0", "2.4.0", "2.8.0", "3.7.0", "4.0.0"} {
			t.Run(fmt.Sprintf("broker %s, protocol %s", name, configured), func(t *testing.T) {
				t.Parallel()
				_, brokers := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"), kfake.MaxVersions(versions))
				h := start(t, brokers, func(o *kafka.Options) { o.Version, o.Compression = configured, "lz4" })
				for range 10 {
					h.publish("t", 30, 100)
					h.p.Flush()
				}
				h.drain(time.Minute)
				h.awaitAcked(1000, time.Minute)
				h.verify("t")
				h.noEpochs()
			})
		}
	}
}

// A broker that is too old for the requests takes records all the same, or is named: nothing is sent again and again in a version that it does not know.
func TestABrokerThatIsTooOldIsNamed(t *testing.T) {
	t.Parallel()
	_, brokers := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"), kfake.MaxVersions(kversion.V2_0_0()))
	h := start(t, brokers, nil)
	h.publish("t", 1, 10)
	h.p.Flush()
	h.awaitStats("an acknowledgement or a reason", 5*time.Second, func(s kafka.Stats) bool {
		return h.ackedCount() == 10 || s.LastError != nil && strings.Contains(s.LastError.Error(), "version")
	})
}

// slow is a connection that takes so many bytes a second.
type slow struct {
	net.Conn
	rate int
}

func (s slow) Write(b []byte) (n int, err error) {
	began := time.Now()
	for n < len(b) && err == nil {
		time.Sleep(time.Duration(n)*time.Second/time.Duration(s.rate) - time.Since(began))
		var m int
		m, err = s.Conn.Write(b[n:min(n+64<<10, len(b))])
		n += m
	}
	return n, err
}

// Seconds for the way of a large record and seconds for its replicas are each within bounds, and so are they together.
func TestLargeRecordOverASlowLineIsAcknowledged(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.NumBrokers(1))
	if err := cluster.CreateTopic("t", 1, map[string]string{"max.message.bytes": "67108864"}); err != nil {
		t.Fatal(err)
	}
	var attempts atomic.Int64
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if len(req.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records) > 1<<20 {
			attempts.Add(1)
			cluster.SleepControl(func() { time.Sleep(2400 * time.Millisecond) }) // below the time for replicas, 2.5 s
		}
		return nil, nil, false
	})
	h := start(t, brokers, func(o *kafka.Options) {
		o.Window = 64 << 20
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return slow{c, 6 << 20}, err
		}
	})
	h.publish("t", 1, 1)
	h.drain(20 * time.Second)
	h.seq++
	r := record("t", "key-0", h.seq)
	r.Value = append(r.Value, noise(24<<20)...)
	h.send(r)
	h.p.Flush()
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
	defer cancel()
	if err := h.p.Drain(ctx); err != nil || h.ackedCount() != 2 {
		t.Errorf("%d acknowledged after %d attempts: %v; last error %v", h.ackedCount(), attempts.Load(), err, h.p.Stats().LastError)
	}
}

// Many topics and partitions share requests, and records have many headers, long keys of them, empty and missing values: each arrives as it was.
func TestRequestsOfManyTopicsAndPartitions(t *testing.T) {
	t.Parallel()
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			t.Parallel()
			var topics []string
			for i := range 5 {
				topics = append(topics, fmt.Sprintf("t%d", i))
			}
			_, brokers := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(4, topics...))
			h := start(t, brokers, func(o *kafka.Options) { o.Compression = codec })
			rng := rand.New(rand.NewPCG(8, 9))
			want := map[uint64]delivered{}
			for range 8 {
				for _, topic := range topics {
					for partition := range int32(4) {
						h.seq++
						r := record(topic, "", h.seq)
						r.Partition = partition
						r.Key = [][]byte{nil, {}, []byte("k"), noise(200)}[rng.IntN(4)]
						r.TimestampMillis = 1_700_000_000_000 - int64(h.seq)*1000
						r.Headers = nil
						for i := range []int{0, 1, 127, 128, 200}[rng.IntN(5)] {
							value := [][]byte{nil, {}, []byte("v"), noise(130)}[rng.IntN(4)]
							key := []string{"", "h", string(bytes.Repeat([]byte("h"), 140))}[i%3]
							r.Headers = append(r.Headers, router.Header{Key: key, Value: value, Null: value == nil})
						}
						want[h.seq] = deliveredOf(r)
						h.send(r)
					}
				}
				h.p.Flush()
			}
			h.drain(time.Minute)
			h.noEpochs()
			n := 0
			for _, topic := range topics {
				for _, g := range consume(t, brokers, topic) {
					n++
					d := delivered{Key: g.msg.Key, Value: g.msg.Value, Millis: g.msg.Timestamp.UnixMilli()}
					for _, hd := range g.msg.Headers {
						d.Headers = append(d.Headers, *hd)
					}
					if diff := differ(want[g.seq], d); diff != "" {
						t.Fatalf("record %d: %s", g.seq, diff)
					}
				}
			}
			if n != len(want) {
				t.Errorf("%d records, want %d", n, len(want))
			}
		})
	}
}

func differ(a, b delivered) string {
	if x, y := fmt.Sprintf("%#v", a), fmt.Sprintf("%#v", b); x != y {
		return x + "\nis not\n" + y
	}
	return ""
}

// A record of tens of megabytes goes out whole with each codec, between small ones of its partition.
func TestHugeRecordsAreSent(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic := k.NewTopic(t, 1, map[string]string{"max.message.bytes": "104857600"})
	for _, codec := range []string{"none", "snappy", "lz4", "zstd", "gzip"} {
		h := start(t, k.Addrs(), func(o *kafka.Options) { o.Compression, o.Window = codec, 16<<20 })
		for _, size := range []int{17 << 20, 60 << 20} {
			h.publish(topic, 3, 5)
			h.seq++
			r := record(topic, "key-0", h.seq)
			r.Value = append(r.Value, noise(1<<20)...)
			r.Value = append(r.Value, bytes.Repeat(noise(1<<10), size>>10)...)
			began := time.Now()
			h.send(r)
			h.publish(topic, 3, 5)
			h.drain(time.Minute)
			t.Logf("%s, %d MiB: %v", codec, size>>20, time.Since(began))
		}
		h.noEpochs()
		if err := h.p.Stats().LastError; err != nil {
			t.Errorf("%s: %v", codec, err)
		}
		h.stop()
	}
}
