package kafka_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka"
	"outbox-relay/router"
)

var errRow = errors.New("the row is refused by the caller")

// letter has everything published instead to a topic, with a header that tells why.
func letter(dead string) func(*kafka.PoisonError, *router.Record) kafka.Judgement {
	return func(e *kafka.PoisonError, r *router.Record) kafka.Judgement {
		if r.Topic == dead {
			r.Value = r.Value[:8] // the dead-letter topic refuses it too
			return kafka.Judgement{Instead: r}
		}
		r.Topic, r.TimestampMillis = dead, time.Now().UnixMilli()
		r.Headers = append(r.Headers, router.Header{Key: "reason", Value: []byte(e.Reason)})
		return kafka.Judgement{Instead: r}
	}
}

// What is published instead of the records of a key has their order, whoever refuses them: the caller, the checks before sending, or the broker by a limit
// that was lowered unnoticed; also where the other topic refuses one of them in its turn.
func TestDeadLettersOfAKeyDoNotOvertakeEachOther(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, dead := k.NewTopic(t, 2, nil), k.NewTopic(t, 2, nil)
	h := start(t, k.Addrs(), func(o *kafka.Options) { o.Judge = letter(dead) })
	h.publish(topic, 2, 2)
	h.publish(dead, 2, 2)
	h.drain(20 * time.Second)
	shrinkLimit(t, k, topic, "3000")
	shrinkLimit(t, k, dead, "6000")
	want := map[string][]uint64{}
	reasons := map[string]int{}
	for i := range 120 {
		h.seq++
		r := record(topic, fmt.Sprintf("key-%d", i%3), h.seq)
		var err error
		switch i % 4 {
		case 0:
			r.Value = append(r.Value, noise(4000)...)
			err = h.p.Publish(t.Context(), r, h.seq)
		case 1:
			r.Value = append(r.Value, noise(8000)...)
			err = h.p.Publish(t.Context(), r, h.seq)
		case 2:
			err = h.p.Refuse(t.Context(), r, h.seq, "the caller's", errRow)
		case 3:
			r.TimestampMillis = -1
			err = h.p.Publish(t.Context(), r, h.seq)
		}
		var bad *kafka.PoisonError
		if errors.As(err, &bad) { // nothing before it waits any more, so it is the caller's to replace at once
			err = h.p.Publish(t.Context(), letter(dead)(bad, r).Instead, h.seq)
		}
		if err != nil {
			t.Fatalf("record %d: %v", h.seq, err)
		}
		want[string(r.Key)] = append(want[string(r.Key)], h.seq)
	}
	h.drain(time.Minute)
	h.awaitAcked(124, 10*time.Second)
	got := map[string][]uint64{}
	for _, g := range consume(t, k.Addrs(), dead) {
		if key := string(g.msg.Key); strings.HasPrefix(key, "key-") && g.seq > 4 {
			got[key] = append(got[key], binary.BigEndian.Uint64(g.msg.Value))
			reasons[string(g.msg.Headers[len(g.msg.Headers)-1].Value)]++
		}
	}
	for key, seqs := range want {
		if !slices.Equal(got[key], seqs) {
			t.Errorf("%s: in the dead-letter topic are %v, want %v", key, got[key], seqs)
		}
	}
	if reasons["the caller's"] != 30 || reasons[kafka.ReasonTooLarge] != 60 || reasons[kafka.ReasonInvalidTimestamp] != 30 {
		t.Errorf("reasons: %v", reasons)
	}
	h.noEpochs()
}

// A record without a place in the order of others is given back.
func TestARefusedRecordWithoutOrderIsGivenBack(t *testing.T) {
	t.Parallel()
	_, brokers := fake(t, kfake.SeedTopics(1, "t"))
	h := start(t, brokers, nil)
	h.publish("t", 1, 1)
	h.drain(10 * time.Second)
	for what, change := range map[string]func(*router.Record){
		"no key": func(r *router.Record) { r.Key = nil }, "no topic": func(r *router.Record) { r.Topic = "" }, "nothing waits": func(*router.Record) {},
	} {
		r := record("t", "k", 2)
		change(r)
		err := h.p.Refuse(t.Context(), r, 2, "mine", errRow)
		if !isPoison(err, "mine") || !errors.Is(err, errRow) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if s := h.p.Stats(); s.InFlightRecords != 0 || s.InFlightBytes != 0 {
		t.Errorf("%+v", s)
	}
}

// The refused record of a topic that comes back with fewer partitions stays refused.
func TestARefusedRecordStaysSoWhenItsTopicIsMadeAnew(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(1, "dead"))
	h := start(t, brokers, func(o *kafka.Options) { o.Judge = letter("dead") })
	for range 3 { // the topic is missing, so all of them wait
		h.publish("t", 1, 1)
		h.seq++
		if err := h.p.Refuse(t.Context(), record("t", "key-0", h.seq), h.seq, "mine", errRow); err != nil {
			t.Fatal(err)
		}
	}
	if err := cluster.CreateTopic("t", 1, nil); err != nil {
		t.Fatal(err)
	}
	h.drain(10 * time.Second)
	var got []uint64
	for _, g := range consume(t, brokers, "dead") {
		got = append(got, g.seq)
	}
	if want := []uint64{2, 4, 6}; !slices.Equal(got, want) {
		t.Errorf("instead were published %v, want %v", got, want)
	}
}

// A record of many megabytes that compress to few goes out as any other, between small ones.
func TestLargeRecordsThatCompressWellAreSent(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t)
	if err := cluster.CreateTopic("t", 1, map[string]string{"max.message.bytes": "16777216"}); err != nil {
		t.Fatal(err)
	}
	h := start(t, brokers, func(o *kafka.Options) { o.Window = 32 << 20 })
	for range 3 {
		h.publish("t", 3, 5)
		h.seq++
		r := record("t", "key-0", h.seq)
		r.Value = append(r.Value, make([]byte, 9<<20)...)
		if err := h.p.Publish(t.Context(), r, h.seq); err != nil {
			t.Fatal(err)
		}
	}
	h.publish("t", 3, 5)
	h.drain(time.Minute)
	h.awaitAcked(23, 10*time.Second)
	if n := len(consume(t, brokers, "t")); n != 23 {
		t.Errorf("%d records in the topic, want 23", n)
	}
	h.noEpochs()
}
