package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"outbox-relay/internal/sandbox"
)

// drill is something that happens to a server while the relay is down. The relay has published the row "before" by then; each drill ends with the
// row "after".
type drill struct {
	name string
	do   []string // statements; <ROW x> writes the row x
	// reason is the label of the metric halted, and want what is said.
	reason string
	want   []string
	// policy is the setting under which the relay goes on, and published what it publishes then. What is lost under it was given up by whoever set it.
	policy    string
	published []string
	// late writes the row "after" only when the relay goes on under the policy.
	late bool
}

var drills = []drill{
	{
		name: "purge", do: []string{"<ROW lost>", "FLUSH BINARY LOGS", "<ROW after>", "FLUSH BINARY LOGS", "<PURGE TO 2>"},
		reason: "purged", want: []string{"has purged binlogs that the relay has not read", "publish them by hand"},
		policy: "source.on_gap=skip", published: []string{"after"},
	},
	{
		name: "restored from an older backup", do: []string{"<FORGET 1>"},
		reason: "diverged", want: []string{"lacks transactions that the relay has read", "failover or is the wrong one"},
		policy: "source.on_divergence=continue", late: true, published: []string{"after"}, // which has the number of the one that was forgotten
	},
	{
		name: "restored from an older backup, and written to since", do: []string{"<FORGET 1>", "<ROW lost>", "<ROW after>"},
		reason: "diverged", want: []string{"has given GTIDs a second time", "its binlogs were set back", "outbox-relay checkpoint set"},
	},
	{
		name: "reset server", do: []string{"<RESET>", "<ROW after>"},
		reason: "diverged", want: []string{"lacks transactions that the relay has read"},
	},
	{
		name: "another server", do: []string{"<CHECKPOINT 33333333-3333-3333-3333-333333333333:1-7>", "<ROW after>"},
		reason: "diverged", want: []string{"lacks transactions that the relay has read: 33333333-3333-3333-3333-333333333333:1-7"},
		policy: "source.on_divergence=continue", published: []string{"before", "after"}, // nothing of this server was read
	},
	{
		name: "statement format", do: []string{"SET SESSION binlog_format = 'STATEMENT'", "<ROW lost>", "SET SESSION binlog_format = 'ROW'", "<ROW after>"},
		reason: "statement_write", want: []string{"a statement-format change in database", "may have written outbox rows that the binlog does not hold"},
		policy: "source.on_statement_write=ignore", published: []string{"after"},
	},
}

// Each drill ends in a halt with its reason, in every place where a person looks, with nothing published; under the policy for it the relay goes on.
func TestDrills(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	mysqlExec(t, m, "CREATE DATABASE app", "CREATE TABLE app.o "+outboxColumns)
	for i, d := range drills {
		t.Run(d.name, func(t *testing.T) {
			s := newSite(t, rules(m.Addr(), nothingListens, "app.o", ""))
			write := func(row string) string {
				return fmt.Sprintf("INSERT INTO app.o (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', '%d-%s', 'Made', '{}')", i, row)
			}
			published := func(c *child) (rows []string) {
				for _, row := range []string{"before", "lost", "after"} {
					if strings.Contains(c.out.String(), fmt.Sprintf(`"%d-%s"`, i, row)) {
						rows = append(rows, row)
					}
				}
				return rows
			}
			c := s.start("run", "--sink", "stdout")
			s.awaitReadyz(c, 200, "active")
			mysqlExec(t, m, write("before"))
			c.await(&c.out, fmt.Sprintf(`"%d-before"`, i))
			if code := c.stop(); code != 0 {
				t.Fatalf("exit code %d:\n%s", code, c.err.String())
			}
			var statements []string
			for _, step := range d.do {
				verb, rest, _ := strings.Cut(strings.Trim(step, "<>"), " ")
				switch {
				case !strings.HasPrefix(step, "<"):
					statements = append(statements, step)
				case verb == "ROW":
					statements = append(statements, write(rest))
				case verb == "PURGE":
					statements = append(statements, "DO 0")
					mysqlExec(t, m, statements...)
					statements = nil
					purgeAllBut(t, m, 2)
				case verb == "RESET":
					statements = append(statements, "RESET BINARY LOGS AND GTIDS")
				case verb == "FORGET":
					statements = append(statements, "RESET BINARY LOGS AND GTIDS", "SET GLOBAL gtid_purged = '"+lessOne(t, m)+"'")
				case verb == "CHECKPOINT":
					if c := s.start("checkpoint", "set", rest); c.wait() != 0 {
						t.Fatal(c.err.String())
					}
				}
			}
			mysqlExec(t, m, statements...)

			kept := s.read("relay.checkpoint")
			c = s.start("run", "--sink", "stdout", "--set", "on_halt=wait")
			s.awaitReadyz(c, 503, "halted")
			_, readyz := s.get("/readyz")
			_, status := s.get("/status")
			for place, text := range map[string]string{"/readyz": readyz, "/status": status, "the log": c.err.String()} {
				if !strings.Contains(text, d.want[0]) {
					t.Errorf("%s does not say it: %s", place, text)
				}
			}
			_, metrics := s.get("/metrics")
			if halted := regexp.MustCompile(`(?m)^outbox_relay_halted\{[^}]*reason="` + d.reason + `"[^}]*\} 1$`); !halted.MatchString(metrics) {
				t.Errorf("the metric halted has no reason %s", d.reason)
			}
			if code := c.stop(); code != 0 {
				t.Errorf("a stop of a halted relay ends with %d", code)
			}
			if rows := published(c); len(rows) > 0 {
				t.Errorf("%v were published before the halt", rows)
			}
			s.write("relay.checkpoint", kept)

			c = s.start("run", "--sink", "stdout") // on_halt: exit
			if code := c.wait(); code != 3 {
				t.Errorf("exit code %d, want 3", code)
			}
			holds(t, c.last(), d.want)
			if rows := published(c); len(rows) > 0 {
				t.Errorf("%v were published before the exit", rows)
			}
			if d.policy == "" {
				return
			}
			s.write("relay.checkpoint", kept)
			c = s.start("run", "--sink", "stdout", "--set", d.policy)
			s.awaitReadyz(c, 200, "active")
			if d.late {
				mysqlExec(t, m, write("after"))
			}
			c.await(&c.out, fmt.Sprintf(`"%d-after"`, i))
			if code := c.stop(); code != 0 {
				t.Errorf("under %s: exit code %d:\n%s", d.policy, code, c.err.String())
			}
			if rows := published(c); !slices.Equal(rows, d.published) {
				t.Errorf("under %s %v were published, want %v:\n%s", d.policy, rows, d.published, c.err.String())
			}
		})
	}
}

// purgeAllBut leaves the newest n binlogs.
func purgeAllBut(t *testing.T, m *sandbox.MySQL, n int) {
	t.Helper()
	rows, err := m.DB(t, "").Query("SHOW BINARY LOGS")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var files []string
	for rows.Next() {
		var name, size, encrypted string
		if err := rows.Scan(&name, &size, &encrypted); err != nil {
			t.Fatal(err)
		}
		files = append(files, name)
	}
	mysqlExec(t, m, "PURGE BINARY LOGS TO '"+files[len(files)-n]+"'")
}

// lessOne is what the server has executed, but for its last transaction.
func lessOne(t *testing.T, m *sandbox.MySQL) string {
	t.Helper()
	var n int
	if err := m.DB(t, "").QueryRow("SELECT SUBSTRING_INDEX(@@global.gtid_executed, '-', -1)").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s:1-%d", serverUUID(t, m), n-1)
}
