package kafkastore_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"testing"

	"github.com/IBM/sarama"

	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/kafkastore"
	"outbox-relay/internal/sandbox"
)

// TestAStartOnATopicOf100000Records has at its end, behind the last checkpoint: an aborted transaction, an open one of another program, and an open
// one of an instance that died. A reader that stops at the last stable offset sees a part of it; one that believes all sees too much.
func TestAStartOnATopicOf100000Records(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	log := newCapture("checkpoint topic read")
	o := options(k, unique())
	o.Logger = slog.New(log)
	if err := kafkastore.EnsureTopic(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	stranger := newWriter(t, k, unique(), o.Topic)
	stranger.send("somebody else", []byte("open to the end"))
	own := newWriter(t, k, o.Name, o.Topic)
	const transactions, each = 100, 1000
	values := make([][]byte, each)
	for i := range uint64(transactions) {
		for j := range uint64(each) {
			values[j] = value(t, o.Name, i*each+j)
		}
		if i%10 == 9 {
			own.abort(o.Name, values...)
		} else {
			own.commit(o.Name, values...)
		}
	}
	const last = 98*each + each - 1
	impostor := newWriter(t, k, unique(), o.Topic)
	impostor.send(o.Name, value(t, o.Name, 5_000_001))
	own.send(o.Name, value(t, o.Name, 5_000_002))

	c, err := kafkastore.Read(t.Context(), o)
	wantNumber(t, c, err, last)
	c, err = open(t, o).Load(t.Context())
	wantNumber(t, c, err, last)
	<-log.got
	said := <-log.got
	t.Logf("read %v records (%v aborted) in %.2f s", said["records"], said["aborted"], said["seconds"].Float64())
	if got := said["records"].Int64(); got != transactions*each+3 {
		t.Errorf("read %d records, want all %d", got, transactions*each+3)
	}
	if said["seconds"].Float64() <= 0 {
		t.Error("the time was not told")
	}
}

func TestWhatIsLastInThePartition(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	for name, test := range map[string]struct {
		write func(w, other *writer, v func(uint64) []byte)
		want  uint64 // 0: none
	}{
		"nothing":        {func(_, _ *writer, _ func(uint64) []byte) {}, 0},
		"only an abort":  {func(w, _ *writer, v func(uint64) []byte) { w.abort(w.key(), v(1)) }, 0},
		"only open":      {func(w, _ *writer, v func(uint64) []byte) { w.send(w.key(), v(1)) }, 0},
		"other keys":     {func(w, _ *writer, v func(uint64) []byte) { w.commit(w.key(), v(1)); w.commit("other", v(2)) }, 1},
		"several in one": {func(w, _ *writer, v func(uint64) []byte) { w.commit(w.key(), v(1), v(2), v(3)) }, 3},
		"a removed one":  {func(w, _ *writer, v func(uint64) []byte) { w.commit(w.key(), v(1)); w.commit(w.key(), nil) }, 0},
		"a removal that was aborted": {func(w, _ *writer, v func(uint64) []byte) {
			w.commit(w.key(), v(1))
			w.abort(w.key(), nil)
		}, 1},
		"commits and aborts in turn": {func(w, _ *writer, v func(uint64) []byte) {
			for n := range uint64(9) {
				w.abort(w.key(), v(100+n))
				w.commit(w.key(), v(1+n))
			}
			w.abort(w.key(), v(200))
		}, 9},
		"behind a transaction of another program that stays open": {func(w, other *writer, v func(uint64) []byte) {
			other.send("other", v(100))
			w.commit(w.key(), v(1))
			w.commit(w.key(), v(2))
		}, 2},
		"inside another program's that is aborted later": {func(w, other *writer, v func(uint64) []byte) {
			other.send("other", v(100))
			w.commit(w.key(), v(1))
			if err := other.p.AbortTxn(); err != nil {
				w.t.Fatal(err)
			}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(k, unique())
			if err := kafkastore.EnsureTopic(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			w, other := newWriter(t, k, o.Name, o.Topic), newWriter(t, k, unique(), o.Topic)
			test.write(w, other, func(n uint64) []byte { return value(t, o.Name, n) })
			check := func(c *checkpoint.Checkpoint, err error) {
				t.Helper()
				switch {
				case test.want > 0:
					wantNumber(t, c, err, test.want)
				case c != nil:
					t.Errorf("got %+v", c)
				default:
					wantHint(t, err, checkpoint.ErrNotFound, o.Topic)
				}
			}
			// Read comes second: a commit returns before its control record is written, and only the fence of Load waits for that.
			check(open(t, o).Load(t.Context()))
			check(kafkastore.Read(t.Context(), o))
		})
	}
}

// key is the transactional.id, which a relay's records have as key.
func (w *writer) key() string { return w.id }

// Records are deleted from the front, and batches at the end are gone by compaction: the offsets asked for are not there.
func TestHolesInThePartition(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	o := options(k, unique())
	// Segments that are full after a few records, and a cleaner that takes what it can at once.
	if err := k.CreateTopic(t.Context(), o.Topic, 1, 0, map[string]string{
		"cleanup.policy": "compact,delete", "segment.bytes": fmt.Sprint(1 << 20), "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "0", "segment.ms": "100", "max.compaction.lag.ms": "100",
	}); err != nil {
		t.Fatal(err)
	}
	w := newWriter(t, k, o.Name, o.Topic)
	pad := bytes.Repeat([]byte("x"), 1000)
	w.commit(o.Name, value(t, o.Name, 1))
	for range 3 {
		var values [][]byte
		for range 500 {
			values = append(values, pad)
		}
		w.commit("other", values...)
		w.abort(o.Name, values...)
	}
	w.commit(o.Name, value(t, o.Name, 2))
	w.abort(o.Name, pad)
	admin, err := k.Admin()
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if err := admin.DeleteRecords(o.Topic, map[int32]int64{0: 3}); err != nil {
		t.Fatal(err)
	}
	policy := "compact"
	if err := admin.IncrementalAlterConfig(sarama.TopicResource, o.Topic, map[string]sarama.IncrementalAlterConfigsEntry{"cleanup.policy": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &policy}}, false); err != nil {
		t.Fatal(err)
	}
	// The cleaner passes every now and then; whatever it has done by the time of a read, the result is the same. It is watched until it has taken records away.
	log := newCapture("checkpoint topic read")
	o.Logger = slog.New(log)
	for before := int64(3002); ; {
		c, err := kafkastore.Read(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		wantNumber(t, c, err, 2)
		seen := (<-log.got)["records"].Int64()
		if t.Failed() || seen < before-2000 {
			t.Logf("%d of %d records were left", seen, before)
			break
		}
		w.commit("other", pad) // makes the segment roll, once it is old enough
	}
	c, err := open(t, o).Load(t.Context())
	wantNumber(t, c, err, 2)
}
