package kafka_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"outbox-relay/internal/sandbox"
)

func TestPublishesInOrder(t *testing.T) {
	t.Parallel()
	_, brokers := fake(t, kfake.SeedTopics(4, "orders"))
	h := start(t, brokers, nil)
	h.publish("orders", 50, 20_000)
	h.drain(20 * time.Second)
	if n := h.ackedCount(); n != 20_000 {
		t.Errorf("%d acknowledged", n)
	}
	log := h.verify("orders")["orders"]
	m := log[0].msg
	if len(m.Headers) != 3 || string(m.Headers[0].Key) != "id" || m.Headers[1].Value != nil || m.Headers[2].Value == nil {
		t.Errorf("headers %v", m.Headers)
	}
	if s := h.p.Stats(); s.InFlightRecords != 0 || s.InFlightBytes != 0 || s.OldestAge != 0 || len(s.Stalled) != 0 || len(s.Connected) == 0 {
		t.Errorf("after draining: %+v", s)
	}
}

func TestPublishesInOrderToRealKafka(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			t.Parallel()
			topic := k.NewTopic(t, 4, nil)
			h := start(t, k.Addrs(), withCompression(codec))
			h.publish(topic, 50, 20_000)
			h.drain(20 * time.Second)
			if n := h.ackedCount(); n != 20_000 {
				t.Errorf("%d acknowledged", n)
			}
			h.verify(topic)
		})
	}
}
