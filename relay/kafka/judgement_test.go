package kafka_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"outbox-relay/relay/kafka"
	"outbox-relay/router"
)

// manyPoison publishes n records without a key, which their compacted topic refuses, before there is the topic, and waits until they were judged.
func manyPoison(t *testing.T, n int, judge func(*kafka.PoisonError, *router.Record) kafka.Judgement) *harness {
	t.Helper()
	cluster, brokers := fake(t, kfake.SeedTopics(1, "dead"))
	h := start(t, brokers, func(o *kafka.Options) { o.Judge, o.Logger = judge, nil })
	for range n {
		h.seq++
		r := record("t", "k", h.seq)
		r.Key = nil
		h.send(r)
	}
	h.publish("t", 1, 1)
	if err := cluster.CreateTopic("t", 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	h.drain(time.Minute)
	h.awaitAcked(n+1, 10*time.Second)
	for s, times := range h.acked {
		if times != 1 {
			t.Errorf("record %d acknowledged %d times", s, times)
		}
	}
	return h
}

// A backlog of which every record is refused is judged record by record, and the stack stays as it is.
func TestManyPoisonRecordsInARowNeedNoStack(t *testing.T) {
	t.Parallel()
	for _, drop := range []bool{true, false} {
		var deepest atomic.Int64
		manyPoison(t, 5000, func(_ *kafka.PoisonError, r *router.Record) kafka.Judgement {
			depth := int64(runtime.Callers(0, make([]uintptr, 5000)))
			for d := deepest.Load(); depth > d && !deepest.CompareAndSwap(d, depth); {
				d = deepest.Load()
			}
			if drop {
				return kafka.Judgement{Drop: true}
			}
			r.Topic = "dead"
			return kafka.Judgement{Instead: r}
		})
		if d := deepest.Load(); d > 100 {
			t.Errorf("drop %v: a record was judged %d calls deep", drop, d)
		}
	}
}

// What Drain gives back as done is acknowledged, also what was dropped.
func TestDrainWaitsUntilADroppedRecordIsToldOf(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t)
	if err := cluster.CreateTopic("t", 1, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	drained, entered := make(chan struct{}), make(chan struct{})
	var told atomic.Bool
	h := start(t, brokers, func(o *kafka.Options) {
		o.Judge = func(*kafka.PoisonError, *router.Record) kafka.Judgement { return kafka.Judgement{Drop: true} }
		o.Acked = func([]uint64) {
			close(entered)
			select {
			case <-drained: // too early
			case <-time.After(200 * time.Millisecond):
			}
			told.Store(true)
		}
	})
	h.seq++
	r := record("t", "k", h.seq)
	r.Key = nil
	h.send(r)
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := h.p.Drain(ctx); err != nil {
		t.Fatal(err)
	}
	early := !told.Load()
	close(drained)
	if early {
		t.Error("drained before Acked returned")
	}
}

// A full window of small records, all of them refused, takes no more memory than it took before they were: they wait in few chunks, and for those that
// are published instead of others, which are ten times as large.
func TestPoisonRecordsThatFillTheWindowStayWithinIt(t *testing.T) {
	t.Parallel()
	const window = 4 << 20
	for _, policy := range []string{"halt", "drop", "instead"} {
		cluster, brokers := fake(t, kfake.SeedTopics(1, "dead"))
		var h *harness
		var most atomic.Int64
		look := func() {
			used, _ := h.p.Memory()
			most.Store(max(most.Load(), used))
		}
		h = start(t, brokers, func(o *kafka.Options) {
			o.Window, o.Logger = window, nil
			if policy == "halt" {
				return
			}
			o.Judge = func(_ *kafka.PoisonError, r *router.Record) kafka.Judgement {
				look()
				if policy == "drop" {
					return kafka.Judgement{Drop: true}
				}
				r.Topic = "dead"
				r.Headers = append(r.Headers, router.Header{Key: "more", Value: make([]byte, 1000)})
				return kafka.Judgement{Instead: r}
			}
		})
		n := 0
		for used := int64(0); used < window*9/10; used, _ = h.p.Memory() {
			h.seq++
			r := record("t", "k", h.seq)
			r.Key = nil
			h.send(r)
			n++
		}
		if err := cluster.CreateTopic("t", 3, map[string]string{"cleanup.policy": "compact"}); err != nil {
			t.Fatal(err)
		}
		if policy == "halt" {
			h.awaitPoison(time.Minute)
			h.drain(time.Minute)
		} else {
			h.awaitAcked(n, time.Minute)
		}
		look()
		if used := most.Load(); used > window*3/2 {
			t.Errorf("%s: %d records needed %d KiB in a window of %d KiB", policy, n, used>>10, window>>10)
		}
	}
}
