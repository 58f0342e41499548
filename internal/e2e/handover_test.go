package e2e_test

import (
	"context"
	"testing"
	"time"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
)

// The short portion of the campaign with two relays, with a fixed seed, for each place of the checkpoint: faults after which the other one takes over
// at once.
func TestHandoverCampaign(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		o    e2e.HandoverOptions
	}{
		{"checkpoint on the source", e2e.HandoverOptions{Seed: 2}},
		{"checkpoint in Kafka", e2e.HandoverOptions{Seed: 3, KafkaStore: true}},
		{"exactly-once", e2e.HandoverOptions{Seed: 4, ExactlyOnce: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // for what hangs
			defer cancel()
			c.o.MySQL, c.o.Kafka, c.o.Builder = sandbox.SharedMySQL(t), sandbox.RunKafka(t, e2e.HandoverKafka), builder
			c.o.Rounds, c.o.Only, c.o.Longest = 4, []string{"kill", "restart", "mysql-cut", "both-cut", "kafka-stall"}, 3*time.Second
			c.o.Progress = func(s string) { t.Log(s) }
			res, err := e2e.Handover(ctx, c.o)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("\n%v", res)
			if err := res.Err(); err != nil {
				t.Error(err)
			}
			if res.Takeovers() == 0 {
				t.Error("no relay was replaced")
			}
		})
	}
}
