package e2e_test

import (
	"testing"
	"time"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
)

// The short portion of the crash campaign, with a fixed seed and transactions of several rows.
func TestCrashCampaign(t *testing.T) {
	t.Parallel()
	res, err := e2e.Crash(testContext(t), e2e.CrashOptions{
		MySQL: sandbox.SharedMySQL(t), Kafka: sandbox.SharedKafka(t), Builder: builder, Kills: 15, Seed: 42, Load: e2e.Load{Rate: 300, MaxRows: 8},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%v", res)
	if err := res.Err(); err != nil {
		t.Error(err)
	}
	if res.Report.Duplicates == 0 {
		t.Error("no kill caused a duplicate: nothing was killed in the middle of its work")
	}
}

// The short portion of the fault campaign, with a fixed seed and freezes just longer than the relay's patience.
func TestFaultCampaign(t *testing.T) {
	t.Parallel()
	o := e2e.FaultsOptions{
		MySQL: sandbox.RunMySQL(t, sandbox.MySQLOptions{}), Kafka: sandbox.RunKafka(t, sandbox.KafkaOptions{}), Builder: builder,
		Rounds: 1, Seed: 42, Load: e2e.Load{Rate: 100}, Freeze: 4 * time.Second, Progress: func(s string) { t.Log(s) },
	}
	res, err := e2e.Faults(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%v", res)
	if err := res.Err(); err != nil {
		t.Error(err)
	}
}

// The short portion of the snapshot campaign, with a fixed seed, in each way of delivery and with disturbances of MySQL.
func TestSnapshotCampaign(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]e2e.SnapshotOptions{"at least once": {Servers: true}, "exactly once": {ExactlyOnce: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if o.MySQL = sandbox.SharedMySQL(t); o.Servers {
				o.MySQL = sandbox.RunMySQL(t, sandbox.MySQLOptions{})
			}
			o.Kafka, o.Builder, o.Rows, o.Kills, o.Seed, o.Load = sandbox.SharedKafka(t), builder, 60_000, 5, 42, e2e.Load{Rate: 100}
			res, err := e2e.Snapshot(testContext(t), o)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("\n%v", res)
			if err := res.Err(); err != nil {
				t.Error(err)
			}
			if res.Selected < int64(o.Rows) {
				t.Errorf("the snapshot has %d rows of %d", res.Selected, o.Rows)
			}
		})
	}
}
