package kafka_test

import (
	"errors"
	"fmt"
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

// K6: a missing topic holds up its own records only, is named, and goes on by itself in order when it appears.
func TestMissingTopicStallsAloneAndRecovers(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(3, "there"))
	h := start(t, brokers, nil)
	for range 100 {
		h.publish("missing", 10, 1)
		h.publish("there", 10, 9)
	}
	h.p.Flush()
	h.awaitAcked(900, 10*time.Second)
	s := h.awaitStats("the stall", 5*time.Second, func(s kafka.Stats) bool { return len(s.Stalled) == 1 })
	if s.Stalled[0].Topic != "missing" || s.Stalled[0].Reason != kafka.StallMissing || s.InFlightRecords != 100 || s.OldestAge <= 0 {
		t.Errorf("%+v", s)
	}
	if err := cluster.CreateTopic("missing", 2, nil); err != nil {
		t.Fatal(err)
	}
	h.drain(10 * time.Second)
	h.verify("missing", "there")
}

// With a full window the missing topic stops everything, which is the bound of memory; it still heals.
func TestMissingTopicFillsTheWindowAndRecovers(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(1, "there"))
	h := start(t, brokers, func(o *kafka.Options) { o.Window = 64 << 10 })
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2000 {
			h.publish("missing", 10, 1)
		}
	}()
	h.awaitStats("a full window", 10*time.Second, func(s kafka.Stats) bool { return s.InFlightBytes > 56<<10 })
	if used, _ := h.p.Memory(); used > 128<<10 {
		t.Errorf("%d bytes in use with a window of 64 KiB", used)
	}
	if err := cluster.CreateTopic("missing", 2, nil); err != nil {
		t.Fatal(err)
	}
	<-done
	h.drain(10 * time.Second)
	h.verify("missing")
}

// K7: topics seen for the first time at the same moment, and the answer to the first request about them lost.
func TestNewTopicsAtTheSameMoment(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(2, "a", "b", "c", "d"))
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "b", Err: kerr.LeaderNotAvailable, Count: 2})
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "c", Err: kerr.UnknownTopicOrPartition, Count: 2})
	h := start(t, brokers, nil)
	for range 50 {
		for _, topic := range []string{"a", "b", "c", "d"} {
			h.publish(topic, 10, 1)
		}
	}
	h.drain(10 * time.Second)
	h.verify("a", "b", "c", "d")
}

func TestTopicWithoutPermissionStallsAndRecovers(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(1, "t"))
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.TopicAuthorizationFailed, Count: -1})
	h := start(t, brokers, nil)
	h.publish("t", 10, 10)
	h.awaitStats("the stall", 5*time.Second, func(s kafka.Stats) bool {
		return len(s.Stalled) == 1 && s.Stalled[0].Reason == kafka.StallNotAuthorized && errors.Is(s.LastError, sarama.ErrTopicAuthorizationFailed)
	})
	fault.Remove()
	h.drain(10 * time.Second)
	h.verify("t")
}

func TestCreatesMissingTopics(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic := uniqueTopic(t)
	h := start(t, k.Addrs(), func(o *kafka.Options) {
		o.CreateTopics = kafka.CreateTopics{Enabled: true, Partitions: 5, ReplicationFactor: 1, Configs: map[string]string{"max.message.bytes": "5000"}}
	})
	h.publish(topic, 20, 300)
	h.drain(10 * time.Second)
	h.verify(topic)
	in, err := kafka.Inspect(t.Context(), kafka.Options{Brokers: k.Addrs()}, []string{topic, topic + "-not"})
	if err != nil {
		t.Fatal(err)
	}
	want := kafka.TopicInspection{
		Name: topic, Exists: true, Partitions: 5, ReplicationFactor: 1, MinInSync: 1, MaxMessageBytes: 5000, CleanupPolicy: "delete",
		TimestampType: "CreateTime", Write: kafka.PermissionGranted,
	}
	if in.Topics[0] != want {
		t.Errorf("got %+v, want %+v", in.Topics[0], want)
	}
	if in.Topics[1].Exists || in.Topics[1].Err != nil {
		t.Errorf("missing topic: %+v", in.Topics[1])
	}
	if len(in.Brokers) != 1 || in.Brokers[0].Err != nil || in.Seeds[0].Err != nil || in.ProducerID != nil {
		t.Errorf("%+v", in)
	}
}

func TestCreationThatFailsIsNamed(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic := uniqueTopic(t)
	h := start(t, k.Addrs(), func(o *kafka.Options) {
		o.CreateTopics = kafka.CreateTopics{Enabled: true, Partitions: 1, ReplicationFactor: 3}
	})
	h.publish(topic, 1, 1)
	h.awaitStats("the stall", 10*time.Second, func(s kafka.Stats) bool {
		return len(s.Stalled) == 1 && s.Stalled[0].Reason == kafka.StallCreation && s.LastError != nil
	})
}

// K16: partitions are added in a running stream. Records of a key stay in order although the key may move.
func TestAdoptsMorePartitionsWithoutReordering(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic := k.NewTopic(t, 2, nil)
	h := start(t, k.Addrs(), func(o *kafka.Options) { o.Window = 256 << 10 })
	h.publish(topic, 40, 5000)
	growTopic(t, k.Addrs(), topic, 7)
	stop := time.Now().Add(10 * time.Second)
	for h.p.PartitionCount(topic) != 7 {
		h.p.Refresh(topic)
		h.publish(topic, 40, 1000)
		if time.Now().After(stop) {
			t.Fatal("the new partitions were not adopted in a stream without a pause")
		}
	}
	h.publish(topic, 40, 5000)
	h.drain(10 * time.Second)

	used := map[int32]bool{}
	last := map[int32]uint64{}
	log := consume(t, k.Addrs(), topic)
	for _, g := range log {
		used[g.partition] = true
		if g.seq <= last[g.partition] {
			t.Errorf("partition %d: %d behind %d", g.partition, g.seq, last[g.partition])
		}
		last[g.partition] = g.seq
	}
	if len(used) != 7 {
		t.Errorf("%d of 7 partitions used", len(used))
	}
	checkKeysMovedOnce(t, log, 2, 7)
	if n := h.ackedCount(); n != len(h.published) {
		t.Errorf("%d of %d acknowledged", n, len(h.published))
	}
}

// New partitions get nothing while a record is on its way to an old one: a reader that takes both would see a key out of order.
func TestNewPartitionsWaitForTheOldOnes(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.SeedTopics(2, "t"))
	h := start(t, brokers, nil)
	h.publish("t", 40, 100)
	h.drain(10 * time.Second)
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "t", Partitions: []int32{1}, Err: kerr.NotEnoughReplicas, Count: -1})
	h.publish("t", 40, 400)
	h.p.Flush()
	growTopic(t, brokers, "t", 7)
	h.p.Refresh("t")
	h.awaitStats("the new partitions", 10*time.Second, func(kafka.Stats) bool { return h.p.KnownPartitions("t") == 7 })
	h.publish("t", 40, 500)
	h.p.Flush()
	if err := fault.Wait(t.Context(), 10); err != nil {
		t.Fatal(err)
	}
	for n := range int32(5) {
		if info := cluster.PartitionInfo("t", n+2); info == nil || info.HighWatermark != 0 {
			t.Errorf("partition %d while the old ones are not done: %+v", n+2, info)
		}
	}
	fault.Remove()
	h.drain(10 * time.Second)
	h.noEpochs()
	log := consume(t, brokers, "t")
	checkKeysMovedOnce(t, log, 2, 7)
	if len(log) != 1000 || h.ackedCount() != 1000 {
		t.Errorf("%d in the log, %d acknowledged", len(log), h.ackedCount())
	}
}

// growTopic adds partitions. The admin client is closed at the end of the test.
func growTopic(t *testing.T, brokers []string, topic string, partitions int32) sarama.ClusterAdmin {
	t.Helper()
	conf := sarama.NewConfig()
	conf.Version = sarama.V3_7_0_0
	admin, err := sarama.NewClusterAdmin(brokers, conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	if err := admin.CreatePartitions(topic, partitions, nil, false); err != nil {
		t.Fatal(err)
	}
	return admin
}

// checkKeysMovedOnce makes sure that each key used its old partition up to some record and its new one from the next on.
func checkKeysMovedOnce(t *testing.T, log []got, before, after int32) {
	t.Helper()
	type span struct{ oldMax, newMin uint64 }
	spans := map[string]*span{}
	for _, g := range log {
		key := string(g.msg.Key)
		from, to := kafka.PartitionOf("murmur2", g.msg.Key, before), kafka.PartitionOf("murmur2", g.msg.Key, after)
		if from == to {
			continue
		}
		s := spans[key]
		if s == nil {
			s = &span{newMin: 1 << 62}
			spans[key] = s
		}
		switch g.partition {
		case from:
			s.oldMax = max(s.oldMax, g.seq)
		case to:
			s.newMin = min(s.newMin, g.seq)
		default:
			t.Fatalf("key %s on partition %d", key, g.partition)
		}
	}
	if len(spans) == 0 {
		t.Fatal("no key moves")
	}
	for key, s := range spans {
		if s.oldMax >= s.newMin {
			t.Errorf("key %s: %d on the old partition after %d on the new one", key, s.oldMax, s.newMin)
		}
	}
}

// K8: a topic is deleted under traffic and comes back, with as many partitions, fewer or more.
func TestTopicDeletedAndCreatedAgain(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{4, 1, 6} {
		t.Run(fmt.Sprint(partitions), func(t *testing.T) {
			t.Parallel()
			k := sandbox.SharedKafka(t)
			topic := k.NewTopic(t, 4, nil)
			admin, err := k.Admin()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = admin.Close() }()
			h := start(t, k.Addrs(), nil)
			h.publish(topic, 40, 1000)
			h.drain(10 * time.Second)
			if err := admin.DeleteTopic(topic); err != nil {
				t.Fatal(err)
			}
			h.awaitStats("the stall", 20*time.Second, func(s kafka.Stats) bool {
				if len(s.Stalled) == 1 && s.Stalled[0].Reason == kafka.StallMissing {
					return true
				}
				h.publish(topic, 40, 20)
				h.p.Flush()
				return false
			})
			// What was acknowledged until now went with the old topic.
			h.mu.Lock()
			for s := range h.acked {
				delete(h.published, s)
			}
			clear(h.acked)
			h.mu.Unlock()
			h.publish(topic, 40, 1000)
			waiting := len(h.published)
			if err := k.CreateTopic(t.Context(), topic, partitions, 1, nil); err != nil {
				t.Fatal(err)
			}
			h.drain(20 * time.Second)
			h.verify(topic)
			if n := h.ackedCount(); n != waiting {
				t.Errorf("%d of %d acknowledged", n, waiting)
			}
		})
	}
}

// A broker that lags behind names the partitions that a topic had before it grew. Taken for a topic that was created again, that moves keys
// to other partitions.
func TestAStaleCountOfPartitionsIsNotBelieved(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic := k.NewTopic(t, 4, nil)
	h := start(t, k.Addrs(), nil)
	for range 5 {
		h.publish(topic, 40, 400)
		h.drain(10 * time.Second)
		h.p.LearnStale(topic, 2)
	}
	h.publish(topic, 40, 400)
	h.drain(10 * time.Second)
	h.verify(topic)
	h.noEpochs()
}

func TestTopicLabelsAreBounded(t *testing.T) {
	t.Parallel()
	_, brokers := fake(t, kfake.SeedTopics(1, "a", "b", "c", "d"))
	registry := prometheus.NewRegistry()
	h := start(t, brokers, func(o *kafka.Options) { o.Registerer, o.TopicsLimit = registry, 2 })
	for i, topic := range []string{"a", "b", "c", "d"} {
		h.publish(topic, 1, i+1)
	}
	h.drain(10 * time.Second)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := ""
			for _, l := range m.GetLabel() {
				if l.GetName() == "topic" {
					name = l.GetValue()
				}
			}
			if f.GetName() == "outbox_relay_published_total" {
				got[name] = m.GetCounter().GetValue()
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(map[string]float64{"a": 1, "b": 2, "other": 7}) {
		t.Errorf("%v", got)
	}
	if err := h.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := kafka.New(kafka.Options{Brokers: brokers, Registerer: registry, Acked: func([]uint64) {}, Poisoned: func(*kafka.PoisonError) {}}); err != nil {
		t.Errorf("a second publisher on the registry: %v", err)
	}
}

// Records without a key are spread over the partitions in runs.
func TestSpreadsRecordsWithoutKey(t *testing.T) {
	t.Parallel()
	_, brokers := fake(t, kfake.SeedTopics(4, "t"))
	h := start(t, brokers, nil)
	for range 4000 {
		h.seq++
		r := record("t", "", h.seq)
		r.Key = nil
		h.send(r)
	}
	h.drain(10 * time.Second)
	counts := map[int32]int{}
	runs, last := 0, int32(-1)
	bySeq := map[uint64]int32{}
	for _, g := range h.verify("t")["t"] {
		if g.msg.Key != nil {
			t.Fatal("a key")
		}
		counts[g.partition]++
		bySeq[g.seq] = g.partition
	}
	for s := uint64(1); s <= h.seq; s++ {
		if bySeq[s] != last {
			runs, last = runs+1, bySeq[s]
		}
	}
	for p := range int32(4) {
		if counts[p] < 600 {
			t.Errorf("partition %d has %d of 4000", p, counts[p])
		}
	}
	if runs > 200 {
		t.Errorf("%d runs", runs)
	}
}
