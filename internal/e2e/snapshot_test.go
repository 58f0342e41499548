package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"outbox-relay/checkpoint"
	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// fill writes rows into both tables at once.
func fill(t *testing.T, s *e2e.Site, rows int) {
	t.Helper()
	if err := s.Fill(testContext(t), rows, 200); err != nil {
		t.Fatal(err)
	}
}

// waitRead waits until a snapshot has ended.
func waitRead(t *testing.T, r *e2e.Relay) {
	t.Helper()
	waitStatus(t, r, "the snapshot has ended", func(st relay.Status) bool {
		return st.Role == relay.RoleActive && st.Source.Connected && st.Snapshot == nil
	})
}

// judgeSnapshot compares the tables with the topics after a snapshot with so many ends of the relay. What was committed after the first position and
// before its row was read comes a second time.
func judgeSnapshot(t *testing.T, s *e2e.Site, ends int) *relaytest.Report {
	t.Helper()
	report, err := s.Judge(testContext(t), relaytest.Options{Restarts: ends + 1, LateRequests: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	return report
}

func TestAStartBySnapshotPublishesTheRowsThatExistAndThenTheBinlog(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]e2e.SiteOptions{
		"file": {}, "mysql": {MySQLStore: true}, "exactly-once": {ExactlyOnce: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := site(t, o)
			const rows = 5000
			fill(t, s, rows)
			s.First = "snapshot"
			load, err := s.StartLoad(e2e.Load{Seed: 1, MaxRows: 2, Rate: 100})
			if err != nil {
				t.Fatal(err)
			}
			defer load.Stop()
			for i, failpoint := range []string{"before-save:1", "before-publish:700", "snapshot-step:1", "snapshot-step:3", "before-save:2"} {
				r := start(t, s, e2e.RelayOptions{Build: e2e.Build{Failpoints: true}, Failpoint: failpoint})
				if _, err := r.WaitExit(testContext(t)); err != nil {
					t.Fatalf("end %d at %s: %v\n%s", i, failpoint, err, r.Log())
				}
			}
			r := start(t, s, e2e.RelayOptions{})
			waitRead(t, r)
			load.Stop()
			waitMarked(t, s, r)
			report := judgeSnapshot(t, s, 5)
			t.Log(report, fmt.Sprint(rows))
			stop(t, r)
		})
	}
}

// The checkpoint's successors are purged: the rows that exist are read instead, also those that were published before, and then what follows.
func TestAGapIsFilledByASnapshot(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]e2e.SiteOptions{"at least once": {}, "exactly once": {ExactlyOnce: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.MySQL = sandbox.RunMySQL(t, sandbox.MySQLOptions{})
			s := site(t, o)
			r := start(t, s, e2e.RelayOptions{})
			insert(t, s, three...)
			waitMarked(t, s, r)
			stop(t, r)
			insert(t, s, three...)
			fill(t, s, 300)
			purge(t, o.MySQL)
			insert(t, s, three...)
			r = start(t, s, e2e.RelayOptions{Args: []string{"--set", "source.on_gap=snapshot"}})
			waitStatus(t, r, "the snapshot is over", func(st relay.Status) bool { return st.CaughtUp })
			waitMarked(t, s, r)
			judgeSnapshot(t, s, 1)
			for _, want := range []string{"source.on_gap: snapshot", "snapshot ends"} {
				if !strings.Contains(r.Log(), want) {
					t.Errorf("the log has no %q", want)
				}
			}
			stop(t, r)
			// What was read is done with: the next start goes on in the binlog, and a halt would show.
			insert(t, s, three...)
			r = start(t, s, e2e.RelayOptions{})
			waitMarked(t, s, r)
			judgeSnapshot(t, s, 2)
			if strings.Contains(r.Log(), "snapshot") {
				t.Error("the second start reads rows again")
			}
		})
	}
}

// purge removes all binlogs but a new one.
func purge(t *testing.T, m *sandbox.MySQL) {
	t.Helper()
	db, err := m.Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	ctx := testContext(t)
	if err := m.Exec(ctx, "FLUSH BINARY LOGS"); err != nil {
		t.Fatal(err)
	}
	logs, err := db.QueryContext(ctx, "SHOW BINARY LOGS")
	if err != nil {
		t.Fatal(err)
	}
	defer logs.Close()
	var last, size, encrypted string
	for logs.Next() {
		if err := logs.Scan(&last, &size, &encrypted); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(logs.Err(), m.Exec(ctx, "PURGE BINARY LOGS TO '"+last+"'")); err != nil {
		t.Fatal(err)
	}
}

// A table that is added to a relay with a checkpoint: without from the start is refused with the choices, with from: snapshot its rows come first.
func TestAnAddedTableIsReadBeforeTheRelayGoesOn(t *testing.T) {
	t.Parallel()
	m, k := sandbox.SharedMySQL(t), sandbox.SharedKafka(t)
	topic := fmt.Sprintf("extra-%x", time.Now().UnixNano())
	if err := k.CreateTopic(testContext(t), topic, 2, 0, nil); err != nil {
		t.Fatal(err)
	}
	rule := `  - {table: <database>.extra, preset: none, topic: "` + topic + `", key: "{id}", value: "{v}", headers: [{name: id, value: "{id}"}]`
	for from, want := range map[string]string{"": "whose checkpoint already exists; set from on its rule", ", from: snapshot": "", ", from: latest": ""} {
		t.Run(from, func(t *testing.T) {
			s := site(t, e2e.SiteOptions{MySQL: m, Kafka: k, Rules: rule + from + "}\n"})
			if _, err := s.DB.ExecContext(testContext(t), "CREATE TABLE extra (id INT PRIMARY KEY, v VARCHAR(20))"); err != nil {
				t.Fatal(err)
			}
			if err := m.Exec(testContext(t), fmt.Sprintf("GRANT SELECT ON %s.extra TO '%s'@'%%'", s.Database(), s.Database())); err != nil {
				t.Fatal(err)
			}
			r := start(t, s, e2e.RelayOptions{})
			waitMarked(t, s, r)
			stop(t, r)
			forget(t, s, s.Database()+".extra")
			if err := s.ExecMany(testContext(t), "SET SESSION sql_log_bin = 0; INSERT INTO extra VALUES (1, 'one'), (2, 'two')"); err != nil { // in no binlog, as if long ago
				t.Fatal(err)
			}
			insert(t, s, three...)
			r = start(t, s, e2e.RelayOptions{})
			if want != "" {
				code, err := r.WaitExit(testContext(t))
				if err != nil || code != 78 || !strings.Contains(r.Log(), want) {
					t.Errorf("ended with %d, %v\n%s", code, err, r.Log())
				}
				return
			}
			waitMarked(t, s, r)
			judgeSnapshot(t, s, 1)
			if read := strings.Contains(r.Log(), "snapshot of a table ends"); read != (from == ", from: snapshot") {
				t.Errorf("the table was read by a snapshot: %v", read)
			}
			c, err := r.Checkpoint()
			if err != nil || !slices.Contains(c.Tables, s.Database()+".extra") || c.Snapshot != nil {
				t.Errorf("the checkpoint is %+v, %v", c, err)
			}
		})
	}
	seen := map[string]int{}
	err := relaytest.Consume(testContext(t), relaytest.ConsumeOptions{Brokers: k.Addrs(), Topics: []string{topic}}, func(m relaytest.Message) error {
		seen[string(m.Value)]++
		return nil
	})
	if err != nil || seen["one"] == 0 || seen["two"] == 0 {
		t.Errorf("received %v, %v", seen, err)
	}
}

// forget takes a table out of those that the checkpoint knows.
func forget(t *testing.T, s *e2e.Site, table string) {
	t.Helper()
	data, err := os.ReadFile(s.CheckpointPath())
	if err != nil {
		t.Fatal(err)
	}
	c, err := checkpoint.Unmarshal(data, s.Name)
	if err != nil {
		t.Fatal(err)
	}
	c.Tables = slices.DeleteFunc(c.Tables, func(name string) bool { return name == table })
	if data, err = checkpoint.Marshal(c); err == nil {
		err = os.WriteFile(s.CheckpointPath(), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A pause amid a snapshot closes the connection, and the snapshot goes on behind the last row; a restart meanwhile changes nothing.
func TestAPauseAmidASnapshot(t *testing.T) {
	t.Parallel()
	s := site(t, e2e.SiteOptions{SaveInterval: 100 * time.Millisecond})
	fill(t, s, 60_000)
	s.First = "snapshot"
	r := start(t, s, e2e.RelayOptions{})
	waitStatus(t, r, "rows are read", func(st relay.Status) bool { return st.Snapshot != nil && st.Snapshot.Rows > 0 })
	control(t, r, "/pause")
	waitPaused(t, r)
	st, err := r.Status(testContext(t))
	if err != nil || st.Snapshot == nil {
		t.Skip("the snapshot was faster than the pause")
	}
	r.Kill()
	r = start(t, s, e2e.RelayOptions{})
	waitPaused(t, r)
	control(t, r, "/resume")
	waitRead(t, r)
	waitMarked(t, s, r)
	judgeSnapshot(t, s, 1)
	stop(t, r)
}

// A row that can never be published halts the snapshot before it and is named; all before it is saved, and with a policy the snapshot goes on behind it.
func TestAPoisonRowAmidASnapshot(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]e2e.SiteOptions{"at least once": {}, "exactly once": {ExactlyOnce: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := site(t, o)
			fill(t, s, 3000)
			if _, err := s.DB.ExecContext(testContext(t), "UPDATE orders_outbox SET aggregate_type = 'no topic' WHERE id IN (500, 1500)"); err != nil {
				t.Fatal(err)
			}
			s.First = "snapshot"
			r := start(t, s, e2e.RelayOptions{})
			waitStatus(t, r, "the relay stands still with nothing in flight", func(st relay.Status) bool {
				return st.HaltReason == "poison" && st.Sink.InFlightRecords == 0 && st.Sink.InFlightTransactions == 0
			})
			st, err := r.Status(testContext(t))
			if err != nil || !strings.Contains(st.Halted, "halted, reading the rows that exist: row 500 of ") || !strings.Contains(st.Halted, "snapshot.where") {
				t.Errorf("halted with %q, %v", st.Halted, err)
			}
			stop(t, r)
			c, err := r.Checkpoint()
			if err != nil || !c.Snapshot.Reading() || string(c.Snapshot.Tables[0].After) != `["499"]` {
				t.Errorf("the checkpoint is %+v, %v", c.Snapshot, err)
			}
			r = start(t, s, e2e.RelayOptions{Args: []string{"--set", "poison.policy=skip"}})
			waitRead(t, r)
			if _, err := s.DB.ExecContext(testContext(t), "DELETE FROM orders_outbox WHERE aggregate_type = 'no topic'"); err != nil {
				t.Fatal(err)
			}
			waitMarked(t, s, r)
			judgeSnapshot(t, s, 1)
			stop(t, r)
		})
	}
}
