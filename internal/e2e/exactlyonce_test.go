package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// judgeOnce demands that consumers of committed records received each row once.
func judgeOnce(t *testing.T, s *e2e.Site) {
	t.Helper()
	if report := judge(t, s, relaytest.Options{}); report.Duplicates != 0 {
		t.Errorf("%d rows came twice", report.Duplicates)
	}
}

// The relay kills itself at each step of a transaction that holds the rows of T; a second one goes on.
func TestExactlyOnceAcrossACrashAtEachStep(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, failpoint string
		early           bool // T is committed before the first start
		visible         int  // rows of T at the crash, where no transaction is open then that a consumer would wait for
	}{
		{"first start, before the first save", "before-save:1", true, 0},
		{"rows handed over", "published:2", false, 0},
		{"partitions are in the transaction, nothing is sent", "txn-added:1", false, 0},
		{"some records are in the log", "txn-acknowledged:1", false, 0},
		{"all records and the checkpoint are in the log", "txn-complete:1", false, 0},
		{"the commit is stored, nobody knows", "published:3,before-save:1,txn-committed:1", false, 3}, // not that of a window without rows
		{"the commit is known", "published:3,before-save:1,after-save:1", false, 3},
		{"the second transaction after a first one", "txn-committed:1,txn-acknowledged:1", false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := site(t, e2e.SiteOptions{ExactlyOnce: true, SaveInterval: 50 * time.Millisecond})
			if c.early {
				insert(t, s, three...)
			}
			r := start(t, s, e2e.RelayOptions{Build: e2e.Build{Failpoints: true}, Failpoint: c.failpoint})
			if !c.early {
				waitActive(t, r)
				insert(t, s, three...)
			}
			foreignUntilExit(t, s, r)
			if code, err := r.WaitExit(testContext(t)); err != nil || code != -1 {
				t.Fatalf("the relay ended with code %d, want its own SIGKILL: %v", code, err)
			}
			if c.visible > 0 {
				if got, _ := deliveries(t, s); got["a"]+got["b"]+got["c"] != c.visible {
					t.Errorf("at the crash %v were committed, want %d rows", got, c.visible)
				}
			}
			next := start(t, s, e2e.RelayOptions{}) // ends the transaction that is open
			waitMarked(t, s, next)
			stop(t, next)
			judgeOnce(t, s)
		})
	}
}

// A transaction of MySQL that is larger than several windows is cut in pieces; killed between two of them and inside one, its rows are not sent again.
func TestExactlyOnceInsideALargeTransaction(t *testing.T) {
	t.Parallel()
	for _, failpoint := range []string{"txn-committed:2", "txn-complete:3", "txn-committed:1,txn-acknowledged:5"} {
		t.Run(failpoint, func(t *testing.T) {
			t.Parallel()
			s := site(t, e2e.SiteOptions{ExactlyOnce: true, Config: "limits: {buffer: 4MiB}"})
			const rows = 180_000
			insertMany(t, s, rows)
			r := start(t, s, e2e.RelayOptions{Build: e2e.Build{Failpoints: true}, Failpoint: failpoint})
			if code, err := r.WaitExit(testContext(t)); err != nil || code != -1 {
				t.Fatalf("the relay ended with code %d, want its own SIGKILL: %v", code, err)
			}
			c := checkpointOf(t, r)
			if c == nil || len(c.Begun) != 1 || c.Begun[0].Rows < 1 || c.Begun[0].Rows >= rows {
				t.Fatalf("the checkpoint is not inside the transaction: %+v", c)
			}
			t.Logf("killed with %d of %d rows committed", c.Begun[0].Rows, rows)
			next := start(t, s, e2e.RelayOptions{})
			waitMarked(t, s, next)
			stop(t, next)
			if c := checkpointOf(t, next); len(c.Begun) != 0 {
				t.Errorf("the checkpoint still has %v", c.Begun)
			}
			judgeOnce(t, s)
		})
	}
}

// insertMany commits rows of many keys in one transaction.
func insertMany(t *testing.T, s *e2e.Site, rows int) {
	t.Helper()
	tx, err := s.DB.BeginTx(testContext(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	const each = 5000
	for from := 0; from < rows; from += each {
		var b strings.Builder
		b.WriteString("INSERT INTO orders_outbox (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ")
		for i := from; i < from+each; i++ {
			if i > from {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, "('order', 'key-%d', 'Written', '{}', 'large-%d')", i%500, i)
		}
		if _, err := tx.ExecContext(testContext(t), b.String()); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// A relay that was paused for longer than the transaction time-out finds its window aborted, and publishes it again under the same name.
func TestExactlyOnceAfterAPauseBeyondTheTransactionTimeout(t *testing.T) {
	t.Parallel()
	s := site(t, e2e.SiteOptions{ExactlyOnce: true, TransactionTimeout: time.Second, Kafka: sandbox.RunKafka(t, e2e.ExactlyOnceKafka)})
	load, err := s.StartLoad(e2e.Load{Seed: 7, Rate: 200})
	if err != nil {
		t.Fatal(err)
	}
	defer load.Stop()
	r := start(t, s, e2e.RelayOptions{Args: []string{"--no-standby"}})
	for again := 0; again < 2; {
		waitActive(t, r)
		waitMarked(t, s, r)
		r.Freeze()
		time.Sleep(2 * time.Second) // longer than the time-out, shorter than the activity lock lives
		r.Thaw()
		waitMarked(t, s, r)
		again = strings.Count(r.Log(), "starting over from the last checkpoint") // not if it was frozen between two transactions
	}
	if stats := load.Stop(); stats.Err != nil {
		t.Fatal(stats.Err)
	}
	waitMarked(t, s, r)
	stop(t, r)
	judgeOnce(t, s)
}

// A frozen relay loses the activity lock, another instance takes its transactional.id, and the first one stands by when it comes back: it cannot finish what
// it had begun.
func TestExactlyOnceTakeover(t *testing.T) {
	t.Parallel()
	s := site(t, e2e.SiteOptions{ExactlyOnce: true, SaveInterval: 100 * time.Millisecond})
	load, err := s.StartLoad(e2e.Load{Seed: 9, Rate: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer load.Stop()
	one := start(t, s, e2e.RelayOptions{})
	waitActive(t, one)
	two := start(t, s, e2e.RelayOptions{})
	waitStandby(t, two)
	one.Freeze()
	waitActive(t, two)
	waitMarked(t, s, two)
	one.Thaw()
	waitStatus(t, one, "the first one stands by", func(st relay.Status) bool { return st.Role == relay.RoleStandby && st.Ready })
	waitMarked(t, s, two)
	two.Kill()
	waitActive(t, one)
	if stats := load.Stop(); stats.Err != nil {
		t.Fatal(stats.Err)
	}
	waitMarked(t, s, one)
	stop(t, one)
	judgeOnce(t, s)
}

// A record that its topic refuses halts: all before it is committed, nothing behind it, and the row is published once it fits. It is refused at once, or when
// what is before it in its partition is in the log: then the window is given up, and the next session halts before the row.
func TestExactlyOnceHaltsBeforeAPoisonRecord(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]int{"refused at once": 0, "refused behind others": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := site(t, e2e.SiteOptions{ExactlyOnce: true, Config: "on_halt: exit"})
			order := s.Topics()[0]
			limitMessages(t, s, order, "2000")
			r := start(t, s, e2e.RelayOptions{})
			waitActive(t, r)
			waitMarked(t, s, r)
			payment := e2e.Row{Kind: "payment", Key: "p"}
			insert(t, s, payment)
			ahead := strings.Repeat("('order', 'large', 'Written', '{}', UUID()), ", 3*again)
			large := "('order', 'large', 'Written', JSON_OBJECT('x', REPEAT('x', 5000)), UUID())"
			if _, err := s.DB.ExecContext(testContext(t), "INSERT INTO orders_outbox (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('payment', 'q', 'Written', '{}', UUID()), "+
				ahead+large+", ('payment', 'r', 'Written', '{}', UUID())"); err != nil {
				t.Fatal(err)
			}
			insert(t, s, payment)
			if code, err := r.WaitExit(testContext(t)); err != nil || code != 4 {
				t.Fatalf("the relay ended with code %d, want 4: %v", code, err)
			}
			got, _ := deliveries(t, s)
			if got["q"] != 1 || got["p"] != 1 || got["large"] != 3*again || got["r"] != 0 {
				t.Errorf("committed at the halt: %v", got)
			}
			if c := checkpointOf(t, r); len(c.Begun) != 1 || c.Begun[0].Rows != 1+3*again {
				t.Errorf("begun at the halt: %+v", c.Begun)
			}
			if n := strings.Count(r.Log(), "starting over from the last checkpoint"); n != again {
				t.Errorf("%d sessions started over, want %d", n, again)
			}
			limitMessages(t, s, order, "100000")
			r = start(t, s, e2e.RelayOptions{})
			waitMarked(t, s, r)
			stop(t, r)
			judgeOnce(t, s)
		})
	}
}

// The short portion of the crash campaign under exactly-once, with a fixed seed and pauses.
func TestExactlyOnceCrashCampaign(t *testing.T) {
	t.Parallel()
	res, err := e2e.Crash(testContext(t), e2e.CrashOptions{
		MySQL: sandbox.SharedMySQL(t), Kafka: sandbox.RunKafka(t, e2e.ExactlyOnceKafka), Builder: builder, Kills: 12, Pauses: 3, ExactlyOnce: true, Seed: 42,
		Load: e2e.Load{Rate: 300, MaxRows: 8},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%v", res)
	if err := res.Err(); err != nil {
		t.Error(err)
	}
}

// limitMessages sets max.message.bytes of a topic.
func limitMessages(t *testing.T, s *e2e.Site, topic, limit string) {
	t.Helper()
	admin, err := sandbox.SharedKafka(t).Admin()
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	err = admin.IncrementalAlterConfig(sarama.TopicResource, topic, map[string]sarama.IncrementalAlterConfigsEntry{"max.message.bytes": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &limit}}, false)
	if err != nil {
		t.Fatal(err)
	}
}
