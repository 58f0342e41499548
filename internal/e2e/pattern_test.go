package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// Tables that match a pattern are taken as they appear, without a restart and without "from", on servers that name columns, that do not, and that fold names.
func TestTablesOfAPatternAreTakenAsTheyAppear(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]*sandbox.MySQLOptions{
		"full": nil, "minimal": {Args: []string{"--binlog-row-metadata=MINIMAL"}}, "folding": {FoldNames: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pattern, k := "<database>_%.Events_%", sandbox.SharedKafka(t)
			if name != "folding" {
				pattern = strings.ToLower(pattern)
			}
			so := e2e.SiteOptions{Kafka: k, SaveInterval: 50 * time.Millisecond, Rules: "  - {table: \"" + pattern + "\", preset: outbox, topic: \"<database>.events\"}\n", Config: "log: {level: debug}"}
			if o != nil {
				so.MySQL = sandbox.RunMySQL(t, *o)
			}
			s := site(t, so)
			topic := s.Database() + ".events"
			if err := k.CreateTopic(testContext(t), topic, 1, 0, nil); err != nil {
				t.Fatal(err)
			}
			exec := func(format string, args ...any) {
				t.Helper()
				if _, err := s.DB.ExecContext(testContext(t), fmt.Sprintf(format, args...)); err != nil {
					t.Fatal(err)
				}
			}
			shard := func(n int) string {
				db := fmt.Sprintf("%s_%d", s.Database(), n)
				exec("CREATE DATABASE %s", db)
				t.Cleanup(func() { _, _ = s.DB.Exec("DROP DATABASE " + db) })
				if name == "minimal" {
					exec("GRANT SELECT ON %s.* TO %s", db, s.Database()) // as config grants says for a pattern
				}
				return db
			}
			published := func() string {
				t.Helper()
				var keys []string
				err := relaytest.Consume(testContext(t), relaytest.ConsumeOptions{Brokers: k.Addrs(), Topics: []string{topic}}, func(m relaytest.Message) error {
					keys = append(keys, string(m.Key))
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				return strings.Join(keys, " ")
			}
			row := func(table, key string) {
				t.Helper()
				exec("INSERT INTO %s (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('event', '%s', 'Written', '{}', UUID())", table, key)
			}
			one := shard(1)
			exec("CREATE TABLE %s.events_a LIKE orders_outbox", one)
			r := start(t, s, e2e.RelayOptions{})
			waitActive(t, r)
			row(one+".events_a", "a")
			waitMarked(t, s, r)
			two := shard(2)
			exec("CREATE TABLE %s.events_b LIKE orders_outbox", two)
			exec("CREATE TABLE %s.other LIKE orders_outbox", two)
			row(two+".other", "not")
			row(two+".events_b", "b")
			waitMarked(t, s, r)
			exec("ALTER TABLE %s.events_a ADD COLUMN more INT FIRST", one)
			row(one+".events_a", "altered")
			waitMarked(t, s, r)
			stop(t, r)
			exec("CREATE TABLE %s.events_c LIKE orders_outbox", one)
			row(one+".events_c", "c")
			r = start(t, s, e2e.RelayOptions{})
			waitMarked(t, s, r)
			row(one+".events_a", "again")
			waitMarked(t, s, r)
			if got := published(); got != "a b altered c again" {
				t.Errorf("published are %q", got)
			}
			exec("CREATE TABLE %s.events_bad (id INT PRIMARY KEY)", two)
			exec("INSERT INTO %s.events_bad VALUES (1)", two)
			waitStatus(t, r, "it halts and names the table", func(st relay.Status) bool {
				return st.HaltReason == "columns" && strings.Contains(st.Halted, two+".events_bad has no column")
			})
			stop(t, r)
		})
	}
}

// The rows that exist in the tables of a pattern are read first where that is asked for.
func TestASnapshotReadsTheTablesOfAPattern(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	s := site(t, e2e.SiteOptions{Kafka: k, SaveInterval: 50 * time.Millisecond, Rules: "  - {table: \"<database>.events_%\", preset: outbox, topic: \"<database>.events\", from: snapshot}\n"})
	topic := s.Database() + ".events"
	if err := k.CreateTopic(testContext(t), topic, 1, 0, nil); err != nil {
		t.Fatal(err)
	}
	statements := []string{"GRANT SELECT ON " + s.Database() + ".* TO " + s.Database()}
	for _, name := range []string{"a", "b"} {
		statements = append(statements, "CREATE TABLE events_"+name+" LIKE orders_outbox",
			"INSERT INTO events_"+name+" (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('event', '"+name+"1', 'Written', '{}', UUID()), ('event', '"+name+"2', 'Written', '{}', UUID())")
	}
	for _, one := range statements {
		if _, err := s.DB.ExecContext(testContext(t), one); err != nil {
			t.Fatal(err)
		}
	}
	r := start(t, s, e2e.RelayOptions{Args: []string{"--set", "source.start=snapshot"}})
	waitStatus(t, r, "the snapshot has ended", func(relay.Status) bool { return strings.Contains(r.Log(), `msg="snapshot ends`) })
	waitMarked(t, s, r)
	stop(t, r)
	n := map[string]int{}
	err := relaytest.Consume(testContext(t), relaytest.ConsumeOptions{Brokers: k.Addrs(), Topics: []string{topic}}, func(m relaytest.Message) error {
		n[string(m.Key)]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"a1", "a2", "b1", "b2"} {
		if n[key] != 1 || len(n) != 4 {
			t.Errorf("published are %v", n)
		}
	}
}
