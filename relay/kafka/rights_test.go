package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka"
)

// stallOf gives what holds up a topic, nil if nothing does.
func stallOf(s kafka.Stats, topic string) *kafka.Stall {
	for i := range s.Stalled {
		if s.Stalled[i].Topic == topic {
			return &s.Stalled[i]
		}
	}
	return nil
}

// Topics that are missing or forbidden wait, with the time since when, while others go on; creating and granting heals them, and so does granting
// what was revoked while records were under way. Nothing is lost, doubled or reordered.
func TestRightsAndTopicsThatComeAndGoOnARealBroker(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Authorizer: true, Listeners: map[string]sandbox.KafkaListener{
		"LOGIN": {Mechanisms: []string{"PLAIN"}, Users: map[string]string{"relay": password}},
	}})
	free, forbidden, missing := k.NewTopic(t, 2, nil), k.NewTopic(t, 2, nil), uniqueTopic(t)
	write := func(topic string) sandbox.ACL {
		return sandbox.ACL{User: "relay", Resource: "topic", Name: topic, Operation: sarama.AclOperationWrite}
	}
	if err := k.Grant(write(free), write(missing)); err != nil {
		t.Fatal(err)
	}
	h := start(t, k.ListenerAddrs("LOGIN"), func(o *kafka.Options) { o.SASL = login("plain", "relay", password) })
	stalls := func(topic, reason string) *kafka.Stall {
		t.Helper()
		s := h.awaitStats(topic+": "+reason, time.Minute, func(s kafka.Stats) bool { x := stallOf(s, topic); return x != nil && x.Reason == reason })
		return stallOf(s, topic)
	}
	goesOn := func() {
		t.Helper()
		before := h.ackedCount()
		h.publish(free, 5, 20)
		h.p.Flush()
		h.awaitAcked(before+20, time.Minute)
	}

	begun := time.Now()
	h.publish(forbidden, 5, 20)
	h.publish(missing, 5, 20)
	h.p.Flush()
	for topic, reason := range map[string]string{forbidden: kafka.StallNotAuthorized, missing: kafka.StallMissing} {
		if x := stalls(topic, reason); x.Since.Before(begun) || x.Since.After(time.Now()) {
			t.Errorf("%s stands still since %v", topic, x.Since)
		}
	}
	goesOn()
	if s := h.p.Stats(); s.InFlightRecords != 40 || s.OldestAge <= 0 {
		t.Errorf("40 records wait: %+v", s)
	}
	if err := k.Grant(write(forbidden)); err != nil {
		t.Fatal(err)
	}
	h.awaitAcked(40, time.Minute)
	if err := k.CreateTopic(context.Background(), missing, 3, 0, nil); err != nil {
		t.Fatal(err)
	}
	h.awaitAcked(60, time.Minute)
	h.drain(time.Minute)

	// Taken away from a publisher that writes, and given back.
	if err := k.Revoke(write(forbidden)); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); stallOf(h.p.Stats(), forbidden) == nil; { // the broker learns of it a moment later
		h.publish(forbidden, 5, 5)
		h.p.Flush()
		if time.Now().After(deadline) {
			t.Fatal("it goes on without the right")
		}
		time.Sleep(20 * time.Millisecond)
	}
	if x := stalls(forbidden, kafka.StallNotAuthorized); len(x.Partitions) == 0 && !strings.Contains(x.Reason, "authorized") {
		t.Errorf("the stall is %+v", x)
	}
	before := h.ackedCount()
	h.publish(free, 5, 20)
	h.p.Flush()
	h.awaitAcked(before+20, time.Minute)
	if err := k.Grant(write(forbidden)); err != nil {
		t.Fatal(err)
	}
	h.drain(time.Minute)

	// More partitions while it runs.
	admin, err := k.Admin()
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if err := admin.CreatePartitions(free, 5, nil, false); err != nil {
		t.Fatal(err)
	}
	h.awaitStats("five partitions", time.Minute, func(kafka.Stats) bool {
		h.p.Refresh(free)
		return h.p.KnownPartitions(free) == 5
	})
	for range 100 { // of other keys: those of before move
		h.seq++
		h.send(record(free, fmt.Sprintf("later-%d", h.seq%50), h.seq))
	}
	h.drain(time.Minute)
	if n := h.p.PartitionCount(free); n != 5 {
		t.Errorf("%d partitions are in use", n)
	}
	h.noEpochs()
	if err := h.stop(); err != nil {
		t.Error(err)
	}
	h.brokers = k.Addrs()
	h.verify(free, forbidden, missing)
}
