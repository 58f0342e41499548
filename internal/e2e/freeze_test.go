package e2e_test

import (
	"testing"
	"time"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
)

// The short portion of the freeze campaign, with a fixed seed.
func TestFreezeCampaign(t *testing.T) {
	t.Parallel()
	o := e2e.FreezeOptions{
		Servers: []*sandbox.MySQL{sandbox.RunMySQL(t, sandbox.MySQLOptions{})}, Links: sandbox.SharedMySQL(t), Kafka: sandbox.SharedKafka(t), Builder: builder,
		Rounds: 4, Longest: 8 * time.Second, Seed: 42, Progress: func(s string) { t.Log(s) },
	}
	res, err := e2e.Freeze(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%v", res)
	if err := res.Err(); err != nil {
		t.Error(err)
	}
}

// The server gives up a stream that nobody reads after net_write_timeout, here two seconds, unless its session has another one.
func TestAnOutageOfKafkaKeepsTheConnectionToTheSource(t *testing.T) {
	t.Parallel()
	o := e2e.DrillOptions{MySQL: sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--net-write-timeout=2"}}), Kafka: sandbox.RunKafka(t, sandbox.KafkaOptions{}), Builder: builder}
	res, err := e2e.Outage(testContext(t), o, 8*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(res)
	if err := res.Err(); err != nil {
		t.Error(err)
	}
}

func TestAStartFarBehindNeedsOneConnection(t *testing.T) {
	t.Parallel()
	o := e2e.DrillOptions{MySQL: sandbox.RunMySQL(t, sandbox.MySQLOptions{}), Kafka: sandbox.SharedKafka(t), Builder: builder}
	res, err := e2e.FarBehind(testContext(t), o, 30)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(res)
	if err := res.Err(); err != nil {
		t.Error(err)
	}
}
