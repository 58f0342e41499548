package e2e_test

import (
	"testing"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
)

// The short portion of the XA campaign, with a fixed seed: one phase with ends of the relay and of MySQL, one with ends of the relay.
func TestXACampaign(t *testing.T) {
	t.Parallel()
	res, err := e2e.XA(testContext(t), e2e.XAOptions{
		MySQL: sandbox.RunMySQL(t, sandbox.MySQLOptions{}), Kafka: sandbox.SharedKafka(t), Builder: builder, Transactions: 60, Seed: 42,
		Progress: func(s string) { t.Log(s) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%v", res)
	if err := res.Err(); err != nil {
		t.Error(err)
	}
	if res.Held == 0 || res.Load.RolledBackRows == 0 {
		t.Error("no branch was prepared when something ended, or none was rolled back: nothing was tried")
	}
}
