package kafka_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka"
	"outbox-relay/relay/kafka/txn"
	"outbox-relay/router"
)

const headerOf = "of" // of a letter: the topic that refused its record

// parks lets a publisher park the keys of all rules with letters to a topic.
func parks(dead string, limit int) func(*kafka.Options) {
	return func(o *kafka.Options) {
		o.Logger = nil
		o.Judge = func(e *kafka.PoisonError, r *router.Record) kafka.Judgement {
			if r.Topic == dead {
				return kafka.Judgement{}
			}
			r.Headers = append(r.Headers, router.Header{Key: headerOf, Value: []byte(r.Topic)}, router.Header{Key: "reason", Value: []byte(e.Reason)})
			r.Topic, r.TimestampMillis = dead, time.Now().UnixMilli()
			return kafka.Judgement{Instead: r}
		}
		o.Parking = &kafka.Parking{
			Topic: func(int32) string { return dead }, Topics: []string{dead}, Group: "redrive-" + dead, Limit: limit,
			Of: func(letter *router.Record) (string, bool) {
				for _, h := range letter.Headers {
					if h.Key == headerOf {
						return string(h.Value), true
					}
				}
				return "", false
			},
		}
	}
}

// parkedIn gives what is in the topic of letters by key: the number of each record and why it is there.
func parkedIn(t *testing.T, brokers []string, dead string) map[string][]string {
	t.Helper()
	got := map[string][]string{}
	for _, g := range consume(t, brokers, dead) {
		got[string(g.msg.Key)] = append(got[string(g.msg.Key)], fmt.Sprintf("%d %s", g.seq, g.msg.Headers[len(g.msg.Headers)-1].Value))
	}
	return got
}

func publishedIn(t *testing.T, brokers []string, topic string) map[string][]uint64 {
	t.Helper()
	got := map[string][]uint64{}
	for _, g := range consume(t, brokers, topic) {
		got[string(g.msg.Key)] = append(got[string(g.msg.Key)], g.seq)
	}
	return got
}

// openLetters opens the letters as who publishes them again does.
func openLetters(t *testing.T, brokers []string, dead string) *kafka.Letters {
	t.Helper()
	l, err := kafka.OpenLetters(t.Context(), kafka.Options{Brokers: brokers}, dead, "redrive-"+dead)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// redrive publishes what letters there are again, with a publisher of its own, and gives how many. Only then it notes that.
func redrive(t *testing.T, h *harness, l *kafka.Letters) (n int) {
	t.Helper()
	last := map[int32]int64{}
	err := l.Read(t.Context(), kafka.Reading{}, func(x kafka.Letter) error {
		n++
		last[x.Partition] = x.Offset
		rec := x.Record
		for _, head := range rec.Headers {
			if head.Key == headerOf {
				rec.Topic = string(head.Value)
			}
		}
		return h.p.Publish(t.Context(), rec, 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	h.drain(time.Minute)
	for partition, offset := range last {
		if err := l.Done(partition, offset+1); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func (h *harness) awaitParked(n int) {
	h.t.Helper()
	h.awaitStats(fmt.Sprintf("%d parked keys", n), time.Minute, func(s kafka.Stats) bool { return s.ParkedKeys == n })
}

// What follows a dead letter of its key is not published before it, also by the next process, until the letter is published again.
func TestRecordsBehindADeadLetterOfTheirKeyAreParked(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, dead := k.NewTopic(t, 2, map[string]string{"max.message.bytes": "3000"}), k.NewTopic(t, 2, nil)
	h := start(t, k.Addrs(), parks(dead, 10))
	large := func(key string) {
		h.seq++
		r := record(topic, key, h.seq)
		r.Value = append(r.Value, noise(4000)...)
		h.send(r)
	}
	small := func(key string) {
		h.seq++
		h.send(record(topic, key, h.seq))
	}
	small("a") // 1
	large("a") // 2
	small("a") // 3
	small("b") // 4
	large("a") // 5
	small("a") // 6
	h.drain(time.Minute)
	h.awaitParked(1)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	seq := h.seq
	h = start(t, k.Addrs(), parks(dead, 10)) // as after a crash
	h.seq = seq
	small("a") // 7
	small("b") // 8
	h.drain(time.Minute)
	h.awaitParked(1)
	if got, want := parkedIn(t, k.Addrs(), dead), map[string][]string{"a": {"2 too_large", "3 parked", "5 too_large", "6 parked", "7 parked"}}; !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("dead letters are %v, want %v", got, want)
	}
	again := start(t, k.Addrs(), nil)
	shrinkLimit(t, k, topic, "30000")
	if n := redrive(t, again, openLetters(t, k.Addrs(), dead)); n != 5 {
		t.Errorf("%d letters were there, want 5", n)
	}
	h.awaitParked(0)
	small("a") // 9
	h.drain(time.Minute)
	if got, want := publishedIn(t, k.Addrs(), topic), map[string][]uint64{"a": {1, 2, 3, 5, 6, 7, 9}, "b": {4, 8}}; !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("the topic holds %v, want %v", got, want)
	}
	h.noEpochs()
}

// Records of a key that lie in full batches behind the one that the broker refuses are set aside before they are sent, and the others go on.
func TestTheBacklogBehindADeadLetterIsParked(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, dead := k.NewTopic(t, 1, nil), k.NewTopic(t, 3, nil)
	h := start(t, k.Addrs(), parks(dead, 10))
	h.publish(topic, 1, 1)
	h.drain(time.Minute)
	shrinkLimit(t, k, topic, "100000")
	const n = 6000
	want, parked := map[string][]uint64{"key-0": {1}}, map[string][]string{}
	for i := range n {
		h.seq++
		key := fmt.Sprintf("key-%d", i%40)
		r := record(topic, key, h.seq)
		switch {
		case i == 1003 || i == 1011: // keys 3 and 11
			r.Value = append(r.Value, noise(200_000)...)
			parked[key] = append(parked[key], fmt.Sprintf("%d too_large", h.seq))
		case len(parked[key]) > 0:
			parked[key] = append(parked[key], fmt.Sprintf("%d parked", h.seq))
		default:
			want[key] = append(want[key], h.seq)
		}
		h.send(r)
	}
	h.drain(time.Minute)
	if got := publishedIn(t, k.Addrs(), topic); !maps.EqualFunc(got, want, slices.Equal) {
		for key := range want {
			if !slices.Equal(got[key], want[key]) {
				t.Errorf("%s: the topic holds %d records, want %d", key, len(got[key]), len(want[key]))
			}
		}
	}
	if got := parkedIn(t, k.Addrs(), dead); !maps.EqualFunc(got, parked, slices.Equal) {
		t.Errorf("letters: %.600v, want %.600v", fmt.Sprint(got), fmt.Sprint(parked))
	}
	h.awaitParked(2)
	h.noEpochs()
	if s := h.p.Stats(); s.InFlightBytes != 0 || s.InFlightRecords != 0 {
		t.Errorf("%+v", s)
	}
}

// A key that gets records without a pause is let go too, with nothing lost, doubled or out of order.
func TestABusyKeyIsLetGo(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, dead := k.NewTopic(t, 2, map[string]string{"max.message.bytes": "3000"}), k.NewTopic(t, 2, nil)
	h := start(t, k.Addrs(), parks(dead, 10))
	h.seq++
	r := record(topic, "key-0", h.seq)
	r.Value = append(r.Value, noise(4000)...)
	h.send(r)
	h.drain(time.Minute)
	h.awaitParked(1)
	shrinkLimit(t, k, topic, "30000")

	var stop atomic.Bool
	ended := make(chan struct{})
	go func() { // until stop
		defer close(ended)
		for !stop.Load() {
			h.publish(topic, 2, 6)
			h.p.Flush()
			select {
			case <-t.Context().Done():
			case <-time.After(100 * time.Microsecond): // less than an acknowledgement takes, so that a letter is always on its way
			}
		}
	}()
	again := start(t, k.Addrs(), nil)
	l := openLetters(t, k.Addrs(), dead)
	for range 3 { // the stream is faster
		redrive(t, again, l)
	}
	if err := l.Closing(true); err != nil {
		t.Fatal(err)
	}
	rounds := 0
	for ; h.p.Stats().ParkedKeys > 0; rounds++ {
		if redrive(t, again, l) > 0 && rounds > 5000 {
			t.Fatal("the key stays parked: letters come for ever")
		}
	}
	t.Logf("%d rounds", rounds)
	if err := l.Closing(false); err != nil {
		t.Fatal(err)
	}
	stop.Store(true)
	<-ended
	h.drain(time.Minute)
	got := publishedIn(t, k.Addrs(), topic)
	total := 0
	for key, seqs := range got {
		total += len(seqs)
		if !slices.IsSorted(seqs) || len(slices.Compact(seqs)) != len(got[key]) {
			t.Errorf("%s: %d records, not in order: %v", key, len(seqs), seqs[:min(len(seqs), 20)])
		}
	}
	if total != int(h.seq) {
		t.Errorf("%d records in the topic, want %d", total, h.seq)
	}
}

// More keys than may be parked halt, now and at the next start.
func TestMoreKeysThanMayBeParkedHalt(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, dead := k.NewTopic(t, 1, map[string]string{"max.message.bytes": "3000"}), k.NewTopic(t, 1, nil)
	h := start(t, k.Addrs(), parks(dead, 3))
	for i := range 5 {
		for range 2 { // the second one parks nothing more
			h.seq++
			r := record(topic, fmt.Sprintf("key-%d", i), h.seq)
			r.Value = append(r.Value, noise(4000)...)
			h.send(r)
		}
	}
	e := h.awaitPoison(time.Minute)
	if !errors.Is(e, kafka.ErrParkedKeys) || e.Reason != kafka.ReasonTooLarge || e.Seq != 7 || !strings.Contains(e.Error(), "id-7") {
		t.Errorf("halted for %v", e)
	}
	h.drain(time.Minute)
	if n := len(parkedIn(t, k.Addrs(), dead)); n != 3 {
		t.Errorf("letters of %d keys, want 3", n)
	}
	h = start(t, k.Addrs(), parks(dead, 2))
	if e := h.awaitPoison(time.Minute); !errors.Is(e, kafka.ErrParkedKeys) || e.Topic != dead {
		t.Errorf("the next start halted for %v", e)
	}
}

// Nothing of a rule that parks is sent before the letters were read; other rules do not wait.
func TestNothingThatMayBeParkedIsSentBeforeTheLettersWereRead(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(1, "t", "u", "dead"))
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "dead", Err: kerr.TopicAuthorizationFailed, Count: -1})
	h := start(t, brokers, func(o *kafka.Options) {
		parks("dead", 3)(o)
		o.Parking.Topic = func(rule int32) string { return map[int32]string{0: "dead"}[rule] }
	})
	h.publish("t", 1, 1)
	h.seq++
	other := record("u", "k", h.seq)
	other.Rule = 1
	h.send(other)
	h.p.Flush()
	h.awaitAcked(1, time.Minute)
	h.awaitStats("an error", time.Minute, func(s kafka.Stats) bool { return errors.Is(s.LastError, sarama.ErrTopicAuthorizationFailed) })
	if s := h.p.Stats(); s.InFlightRecords != 1 {
		t.Errorf("%d records wait, want that of the rule that parks", s.InFlightRecords)
	}
	fault.Remove()
	h.drain(time.Minute)
	h.verify("t", "u")
}

// A letter of a row that names the topic of letters parks nothing, and letters that come from the caller are not parked.
func TestLettersAreNotParked(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	dead := k.NewTopic(t, 1, nil)
	letters := func(h *harness) {
		for range 3 {
			h.seq++
			r := record(dead, "k", h.seq)
			r.Headers = append(r.Headers, router.Header{Key: headerOf, Value: []byte(dead)})
			h.send(r)
		}
		h.drain(time.Minute)
	}
	h := start(t, k.Addrs(), parks(dead, 10))
	letters(h)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	h2 := start(t, k.Addrs(), parks(dead, 10))
	h2.seq = h.seq
	letters(h2)
	if s := h2.p.Stats(); s.ParkedKeys != 0 {
		t.Errorf("%d keys are parked", s.ParkedKeys)
	}
	if got, want := publishedIn(t, k.Addrs(), dead), map[string][]uint64{"k": {1, 2, 3, 4, 5, 6}}; !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("the topic holds %v, want %v", got, want)
	}
}

// Several parked records in a row may be published to their own topic after all, for what the judge made of them: all of them, in order.
func TestParkedRecordsMayBePublishedToTheirOwnTopic(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, dead := k.NewTopic(t, 1, map[string]string{"max.message.bytes": "3000"}), k.NewTopic(t, 1, nil)
	h := start(t, k.Addrs(), func(o *kafka.Options) {
		parks(dead, 10)(o)
		judge := o.Judge
		o.Judge = func(e *kafka.PoisonError, r *router.Record) kafka.Judgement {
			if e.Reason == kafka.ReasonParked {
				r.Headers = nil
				return kafka.Judgement{Instead: r}
			}
			return judge(e, r)
		}
	})
	h.publish(topic, 1, 1)
	h.drain(time.Minute)
	h.seq++
	large := record(topic, "key-0", h.seq)
	large.Value = append(large.Value, noise(4000)...)
	h.send(large)
	h.publish(topic, 1, 20)
	h.drain(time.Minute)
	got := publishedIn(t, k.Addrs(), topic)["key-0"]
	if len(got) != 21 || !slices.IsSorted(got) {
		t.Errorf("the topic holds %v", got)
	}
	if s := h.p.Stats(); s.InFlightRecords != 0 || s.InFlightBytes != 0 {
		t.Errorf("%+v", s)
	}
}

// Relays may share a topic of letters. A transaction that another one has open there hides the letters behind it from readers; they park their keys all the same.
func TestLettersBehindAnOpenTransactionParkTheirKeys(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic, dead, checkpoints := k.NewTopic(t, 1, map[string]string{"max.message.bytes": "3000"}), k.NewTopic(t, 1, nil), k.NewTopic(t, 1, nil)
	other := startTransactor(t, k.Addrs(), checkpoints, uniqueTopic(t), nil)
	other.publish(dead, 0, 1)
	if err := other.p.Drain(ctxTimeout(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	h := start(t, k.Addrs(), parks(dead, 10))
	h.seq++
	large := record(topic, "a", h.seq)
	large.Value = append(large.Value, noise(4000)...)
	h.send(large)
	h.drain(time.Minute)
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	next := start(t, k.Addrs(), parks(dead, 10))
	next.seq = h.seq + 1
	next.send(record(topic, "a", next.seq))
	next.p.Flush()
	select {
	case <-next.change:
		t.Error("a record overtook a letter of its key")
	case <-time.After(time.Second): // much longer than it would take
	}
	other.cut()
	other.commit()
	next.drain(time.Minute)
	if got := publishedIn(t, k.Addrs(), topic); len(got) > 0 {
		t.Errorf("the topic holds %v", got)
	}
	next.awaitParked(1)
}

// In a transaction a letter is not sent before the letters are read: they are read up to their end, which an open transaction hides, and what it waits for
// waits for them.
func TestAWindowWithLettersIsCommittedThatBeganBeforeTheyWereRead(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(1, "t", "dead", "checkpoints"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "dead", Err: kerr.TopicAuthorizationFailed, Count: 5})
	x := startTransactor(t, brokers, "checkpoints", "id", func(o *kafka.Options, _ *txn.Options) { parks("dead", 10)(o) })
	letter := record("dead", "a", 0) // as of a row without key, which the caller publishes itself
	if err := x.p.Publish(t.Context(), letter, 0); err != nil {
		t.Fatal(err)
	}
	x.publish("t", 1, 10)
	x.cut()
	x.commit()
}
