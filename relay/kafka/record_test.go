package kafka_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka"
	"outbox-relay/router"
)

// What a consumer gets is what was published, byte for byte: null and empty stay apart, headers keep order and repetition, timestamps are
// exact however far they are from each other.
func TestRecordsArriveByteForByte(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	for _, codec := range []string{"none", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			t.Parallel()
			topic := k.NewTopic(t, 1, map[string]string{
				"message.timestamp.after.max.ms": "9223372036854775807",
				"retention.ms":                   "-1", // some records are from 1970
			})
			h := start(t, k.Addrs(), func(o *kafka.Options) { o.Compression, o.MaxBatch = codec, 20_000 })
			rng := rand.New(rand.NewPCG(1, 2))
			var want []delivered
			scratch := &router.Record{} // one record, overwritten for each: Publish has to copy
			for range 3000 {
				h.seq++
				fillRandom(rng, scratch, topic)
				want = append(want, deliveredOf(scratch))
				h.send(scratch)
				wreck(scratch)
			}
			h.drain(20 * time.Second)
			var have []delivered
			for _, g := range consume(t, k.Addrs(), topic) {
				d := delivered{Key: g.msg.Key, Value: g.msg.Value, Millis: g.msg.Timestamp.UnixMilli()}
				for _, hd := range g.msg.Headers {
					d.Headers = append(d.Headers, *hd)
				}
				have = append(have, d)
			}
			if len(want) != len(have) {
				t.Fatalf("%d records of %d", len(have), len(want))
			}
			for i := range want {
				if !reflect.DeepEqual(want[i], have[i]) { // tells null from empty
					t.Fatalf("record %d: got %+v, want %+v", i, have[i], want[i])
				}
			}
		})
	}
}

type delivered struct {
	Key, Value []byte
	Millis     int64
	Headers    []sarama.RecordHeader
}

func deliveredOf(r *router.Record) delivered {
	d := delivered{Key: clone(r.Key), Value: clone(r.Value), Millis: r.TimestampMillis}
	for _, h := range r.Headers {
		d.Headers = append(d.Headers, sarama.RecordHeader{Key: []byte(h.Key), Value: clone(h.Value)})
	}
	return d
}

// clone keeps null and empty apart.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}

func fillRandom(rng *rand.Rand, r *router.Record, topic string) {
	bytes := func(most int) []byte {
		switch rng.IntN(6) {
		case 0:
			return nil
		case 1:
			return []byte{}
		case 2:
			most *= 50
		}
		b := make([]byte, rng.IntN(most)+1)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	*r = router.Record{Topic: topic, Key: bytes(40), Value: bytes(300), Partition: rng.Int32N(2) - 1, Table: fmt.Sprintf("t%d", rng.IntN(5)), ID: bytes(20)}
	switch rng.IntN(4) {
	case 0:
		r.TimestampMillis = rng.Int64N(9223372036854)
	case 1:
		r.TimestampMillis = rng.Int64N(100)
	default:
		r.TimestampMillis = 1_700_000_000_000 + rng.Int64N(1000)
	}
	for i := range rng.IntN(8) {
		v := bytes(30)
		r.Headers = append(r.Headers, router.Header{Key: fmt.Sprintf("header-%d", i%3), Value: v, Null: v == nil})
	}
}

// wreck overwrites what a record pointed to.
func wreck(r *router.Record) {
	for _, b := range [][]byte{r.Key, r.Value, r.ID} {
		for i := range b {
			b[i] = 0xee
		}
	}
	for _, h := range r.Headers {
		for i := range h.Value {
			h.Value[i] = 0xee
		}
	}
}

// The size of a batch of many records is known exactly before it is encoded: batches as large as the topic takes are never refused.
func TestBatchesFillTheLimitOfTheTopic(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic := k.NewTopic(t, 1, map[string]string{"max.message.bytes": "6000"})
	registry := prometheus.NewRegistry()
	h := start(t, k.Addrs(), func(o *kafka.Options) { o.Registerer = registry })
	h.publish(topic, 1, 1)
	h.drain(10 * time.Second)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 4000 {
		h.seq++
		r := record(topic, "k", h.seq)
		r.Value = append(r.Value, make([]byte, rng.IntN(1500))...)
		r.TimestampMillis -= rng.Int64N(100_000)
		h.send(r)
	}
	h.drain(20 * time.Second)
	h.verify(topic)
	if n := errorsCounted(t, registry, "poison"); n != 0 {
		t.Errorf("%v batches were refused", n)
	}
}

// K20: a broker that throttles makes it slower and gives no error, and does not hold up the end.
func TestThrottlingIsNoError(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic := k.NewTopic(t, 1, nil)
	admin, err := k.Admin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	client := uniqueTopic(t)
	entity := []sarama.QuotaEntityComponent{{EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Name: client}}
	if err := admin.AlterClientQuotas(entity, sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: 200_000}, false); err != nil {
		t.Fatal(err)
	}
	filter := []sarama.QuotaFilterComponent{{EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchExact, Match: client}}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) { // until the broker has heard of it
		quotas, err := admin.DescribeClientQuotas(filter, true)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the broker has quotas %v, %v", quotas, err)
		}
		if len(quotas) > 0 {
			break
		}
	}
	registry := prometheus.NewRegistry()
	h := start(t, k.Addrs(), func(o *kafka.Options) { o.ClientID, o.Registerer, o.MaxBatch = client, registry, 20_000 })
	h.publish(topic, 1, 1)
	h.drain(10 * time.Second)
	before := errorsCounted(t, registry, "transient") // a broker that was started just now may have none of its ids ready
	for range 1400 {
		h.seq++
		r := record(topic, "k", h.seq)
		r.Value = append(r.Value, make([]byte, 2000)...)
		h.send(r)
	}
	began := time.Now()
	h.drain(30 * time.Second)
	h.verify(topic)
	// A broker averages over 11 s, so the first 2.2 MB are free.
	if took := time.Since(began); took < time.Second {
		t.Errorf("2.8 MB at 200 kB/s took %v: was not throttled", took)
	}
	if n := errorsCounted(t, registry, "transient") - before; n != 0 {
		t.Errorf("%v errors, the last one %v", n, h.p.Stats().LastError)
	}
	h.seq++
	r := record(topic, "k", h.seq)
	r.Value = append(r.Value, make([]byte, 500_000)...)
	h.send(r)
	h.p.Flush()
	h.await(h.seq, 10*time.Second)
	h.publish(topic, 1, 10)
	h.p.Flush() // its sender waits for the quota now
	if err := h.stop(); err != nil {
		t.Error(err)
	}
}
