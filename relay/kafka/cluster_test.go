package kafka_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka"
)

// stream publishes records until stop is closed, and tells how long the longest time without an acknowledgement was.
func (h *harness) stream(topic string, keys int, stop <-chan struct{}) (longest time.Duration) {
	last, count := time.Now(), h.ackedCount()
	for {
		select {
		case <-stop:
			return longest
		case <-time.After(2 * time.Millisecond):
		}
		// A stalled publisher keeps at most a window; this feeds slower than that.
		h.publish(topic, keys, 10)
		h.p.Flush()
		if n := h.ackedCount(); n > count {
			last, count = time.Now(), n
		}
		longest = max(longest, time.Since(last))
	}
}

// during streams while f does its harm, then drains and verifies: nothing lost, nothing doubled, order kept.
func (h *harness) during(topic string, name string, f func()) {
	h.t.Helper()
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		time.Sleep(200 * time.Millisecond)
		f()
		time.Sleep(300 * time.Millisecond)
	}()
	before := len(h.published)
	longest := h.stream(topic, 50, stop)
	h.drain(60 * time.Second)
	if h.ackedCount() != len(h.published) {
		h.t.Errorf("%s: %d of %d acknowledged", name, h.ackedCount(), len(h.published))
	}
	h.t.Logf("%s: %d records, longest time without an acknowledgement %v", name, len(h.published)-before, longest.Round(time.Millisecond))
	h.verify(topic)
}

// K3, K13, K14: what a cluster of three goes through. Brokers are killed, frozen, stopped and restarted one after the other while records
// flow; the log has each record once and in order.
func TestClusterFaults(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Brokers: 3})
	topic := k.NewTopic(t, 6, nil)
	h := start(t, k.Addrs(), nil)
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	insync := func() {
		t.Helper()
		if err := k.WaitInSync(ctx, topic); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}

	h.during(topic, "kill -9 of a leader and its restart", func() {
		must(k.Broker(1).Kill())
		time.Sleep(time.Second)
		must(k.Broker(1).Start(ctx))
	})
	insync()
	h.during(topic, "a frozen broker", func() {
		must(k.Broker(2).Pause())
		time.Sleep(14 * time.Second)
		must(k.Broker(2).Resume())
	})
	insync()
	h.during(topic, "all restarted one after the other", func() {
		for id := 1; id <= 3; id++ {
			must(k.Broker(id).Stop(ctx))
			must(k.Broker(id).Start(ctx))
			insync()
		}
	})
	h.noEpochs()
}

// Replicas that are missing: the partition waits, and neighbours on the same broker are not held up by it.
func TestTooFewReplicasHoldUpOnlyTheirPartition(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Brokers: 3})
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	replicated := k.NewTopic(t, 3, map[string]string{"min.insync.replicas": "3"})
	single := uniqueTopic(t)
	if err := k.CreateTopic(ctx, single, 3, 1, map[string]string{"min.insync.replicas": "1"}); err != nil {
		t.Fatal(err)
	}
	h := start(t, k.Addrs(), nil)
	h.publish(replicated, 10, 100)
	h.publish(single, 10, 100)
	h.drain(10 * time.Second)
	alive := keysBesides(t, k, single, 3)
	if err := k.Broker(3).Kill(); err != nil {
		t.Fatal(err)
	}
	// Until the controller notices, appends to the replicated topic wait for the dead replica and end with code 7; then they get 19.
	h.publish(replicated, 10, 100)
	h.p.Flush()
	var longest, held time.Duration
	deadline := time.Now().Add(14 * time.Second)
	for time.Now().Before(deadline) {
		h.seq++
		seq := h.seq
		h.send(record(single, alive[rand.N(len(alive))], seq))
		h.p.Flush()
		began := time.Now()
		h.await(seq, 20*time.Second)
		took := time.Since(began)
		longest = max(longest, took)
		if took > 500*time.Millisecond {
			held += took
		}
	}
	t.Logf("longest acknowledgement of a neighbour: %v, in slow ones together %v", longest, held)
	// One request of the replicated topic is on the first connection of each of the two brokers, its resends are not.
	if longest > 4*time.Second || held > 6*time.Second {
		t.Errorf("a neighbour waited %v, neighbours together %v", longest, held)
	}
	h.awaitStats("the stall", 20*time.Second, func(s kafka.Stats) bool {
		return len(s.Stalled) == 1 && s.Stalled[0].Topic == replicated && s.Stalled[0].Reason == kafka.StallReplicas
	})
	// With the code settled at 19 the stalled partitions are on connections of their own.
	longest = 0
	for range 200 {
		h.seq++
		seq := h.seq
		h.send(record(single, alive[rand.N(len(alive))], seq))
		h.p.Flush()
		began := time.Now()
		h.await(seq, 20*time.Second)
		longest = max(longest, time.Since(began))
	}
	t.Logf("longest acknowledgement of a neighbour while the others get code 19: %v", longest)
	if longest > time.Second {
		t.Errorf("a neighbour waited %v", longest)
	}
	if err := k.Broker(3).Start(ctx); err != nil {
		t.Fatal(err)
	}
	h.drain(30 * time.Second)
	h.verify(replicated, single)
}

// await waits for one acknowledgement.
func (h *harness) await(seq uint64, limit time.Duration) {
	h.t.Helper()
	deadline := time.After(limit)
	for {
		h.mu.Lock()
		done := h.acked[seq] > 0
		h.mu.Unlock()
		if done {
			return
		}
		select {
		case <-h.change:
		case <-deadline:
			h.t.Fatalf("record %d not acknowledged; %+v", seq, h.p.Stats())
		}
	}
}

// keysBesides gives keys whose partition is not led by a broker.
func keysBesides(t *testing.T, k *sandbox.Kafka, topic string, broker int32) (keys []string) {
	t.Helper()
	admin, err := k.Admin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	meta, err := admin.DescribeTopics([]string{topic})
	if err != nil {
		t.Fatal(err)
	}
	replica := map[int32]int32{}
	for _, p := range meta[0].Partitions {
		replica[p.ID] = p.Replicas[0]
	}
	for i := range 20 {
		key := fmt.Sprintf("key-%d", i)
		if replica[kafka.PartitionOf("murmur2", []byte(key), int32(len(replica)))] != broker {
			keys = append(keys, key)
		}
	}
	return keys
}

// Connections are cut in the middle of requests and answers, delayed, frozen and refused by proxies before real brokers.
func TestNetworkFaultsBeforeRealBrokers(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Proxied: true})
	topic := k.NewTopic(t, 4, nil)
	h := start(t, k.Addrs(), nil)
	proxy := k.Broker(1).Proxy()
	h.during(topic, "answers cut", func() {
		for range 25 {
			proxy.CutAfter(int64(rand.N(400)))
			time.Sleep(time.Duration(20+rand.N(60)) * time.Millisecond)
		}
	})
	h.during(topic, "connections cut", func() {
		for range 25 {
			proxy.Cut()
			time.Sleep(time.Duration(20+rand.N(60)) * time.Millisecond)
		}
	})
	h.during(topic, "refused", func() {
		proxy.Refuse(true)
		proxy.Cut()
		time.Sleep(time.Second)
		proxy.Refuse(false)
	})
	h.during(topic, "frozen", func() {
		proxy.Freeze()
		time.Sleep(time.Second)
		proxy.Thaw()
	})
	h.during(topic, "frozen past the read timeout", func() {
		proxy.Freeze()
		time.Sleep(7 * time.Second)
		proxy.Thaw()
	})
	h.during(topic, "broker killed in mid-request", func() {
		if err := k.Broker(1).Kill(); err != nil {
			t.Error(err)
		}
		if err := k.Broker(1).Start(context.Background()); err != nil {
			t.Error(err)
		}
	})
	h.noEpochs()
}
