package e2e_test

import (
	"testing"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
)

// The short portion of the failover campaign, with a fixed seed: one promotion of each kind but the kill without loss.
func TestFailoverCampaign(t *testing.T) {
	t.Parallel()
	o := e2e.FailoverOptions{
		Servers: [2]*sandbox.MySQL{sandbox.RunMySQL(t, sandbox.MySQLOptions{}), sandbox.RunMySQL(t, sandbox.MySQLOptions{})},
		Kafka:   sandbox.SharedKafka(t), Builder: builder, Promotions: 4, Seed: 42, Progress: func(s string) { t.Log(s) },
	}
	res, err := e2e.Failover(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%v", res)
	if err := res.Err(); err != nil {
		t.Error(err)
	}
	if res.Published == 0 {
		t.Error("no published transaction was lost: nothing was compared")
	}
}
