package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/preflight"
)

// allow makes the account that config grants names for the site, and gives what it was allowed.
func (s *site) allow(m *sandbox.MySQL, sets ...string) *rights {
	s.t.Helper()
	c := s.start(append([]string{"config", "grants", "--mysql"}, sets...)...)
	if c.wait() != 0 {
		s.t.Fatal(c.err.String())
	}
	for line := range strings.Lines(strings.ReplaceAll(c.out.String(), "<password>", "relay")) {
		if !strings.HasPrefix(line, "--") {
			mysqlExec(s.t, m, strings.TrimSuffix(line, ";\n"))
		}
	}
	return s.rights(sets...)
}

// rights are what config grants names, as JSON.
func (s *site) rights(sets ...string) *rights {
	s.t.Helper()
	c := s.start(append([]string{"config", "grants", "--json"}, sets...)...)
	if c.wait() != 0 {
		s.t.Fatal(c.err.String())
	}
	r := &rights{}
	if err := json.Unmarshal([]byte(c.out.String()), r); err != nil {
		s.t.Fatal(err)
	}
	return r
}

// items gives the states of a report of check, by name, and all its commands.
func (s *site) items(args ...string) (states map[string]string, commands []string) {
	s.t.Helper()
	c := s.start(append([]string{"check", "--json"}, args...)...)
	c.wait()
	var report struct {
		Items []struct {
			Name, State, Remedy string
			Commands            []string
		}
	}
	if err := json.Unmarshal([]byte(c.out.String()), &report); err != nil {
		s.t.Fatalf("%v:\n%s%s", err, c.out.String(), c.err.String())
	}
	states = map[string]string{}
	for _, item := range report.Items {
		states[item.Name] = item.State
		commands = append(append(commands, item.Remedy), item.Commands...)
	}
	return states, commands
}

// An account with what config grants names, and nothing else, does all that a relay does; without any one of its rights check and the relay name the
// statement that gives it back.
func TestTheLeastRightsInMySQL(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "8.0"} {
		t.Run("MySQL "+version, func(t *testing.T) {
			t.Parallel()
			m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Version: version, Args: []string{"--binlog-row-metadata=MINIMAL"}})
			mysqlExec(t, m, "DROP USER relay@'%'", "CREATE DATABASE app", "CREATE TABLE app.o "+outboxColumns)
			s := newSite(t, rules(m.Addr(), nothingListens, "app.o", ""))
			inTable := []string{"--set", "checkpoint.store=mysql"}
			r := s.allow(m, inTable...)
			t.Run("are enough", func(t *testing.T) { leastRightsAreEnough(t, m, s.in(t), inTable) })
			t.Run("are needed", func(t *testing.T) { leastRightsAreNeeded(t, m, s.in(t), r.MySQL[0].Grants, inTable) })
		})
	}
}

// in is the site for a part of its test.
func (s *site) in(t *testing.T) *site {
	part := *s
	part.t = t
	return &part
}

func insertO(t *testing.T, m *sandbox.MySQL, id int) {
	t.Helper()
	mysqlExec(t, m, fmt.Sprintf("INSERT INTO app.o (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'key-%d', 'Made', '{}')", id))
}

func leastRightsAreEnough(t *testing.T, m *sandbox.MySQL, s *site, inTable []string) {
	states, commands := s.items(inTable...)
	for name, state := range states {
		if state != "ok" && !strings.HasPrefix(name, "broker") && name != "topics" && name != "binlog_row_metadata" {
			t.Errorf("check: %s is %s", name, state)
		}
	}
	if i := slices.IndexFunc(commands, func(c string) bool { return strings.Contains(c, "GRANT") }); i >= 0 {
		t.Errorf("check: %s", commands[i])
	}
	// A first start at latest sees a prepared XA branch and waits for its end.
	mysqlExec(t, m, "XA START 'x'", "INSERT INTO app.o (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'xa', 'Made', '{}')", "XA END 'x'", "XA PREPARE 'x'")
	run := func(args ...string) *child {
		return s.start(append(append([]string{"run", "--sink", "stdout", "--set", "source.heartbeat=300ms"}, inTable...), args...)...)
	}
	c := run()
	c.awaitLog("waiting for XA branches that are prepared")
	mysqlExec(t, m, "XA COMMIT 'x'")
	s.awaitReadyz(c, 200, "active")
	insertO(t, m, 1)
	c.await(&c.out, `"key-1"`)
	// Connections that end; heartbeats of an idle source; the distance to a purge.
	for range 2 {
		kill(t, m, "relay")
		insertO(t, m, 2)
		c.await(&c.out, `"key-2"`)
	}
	s.awaitReadyz(c, 200, "active")
	s.awaitMetric(c, "outbox_relay_binlog_distance_bytes")
	for _, bad := range []string{"denied", "privilege", "GRANT", "cannot be seen"} {
		if strings.Contains(c.err.String(), bad) {
			t.Errorf("the log says %q:\n%s", bad, c.err.String())
		}
	}
	if code := c.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	// What the commands do with the table of the checkpoint.
	if c := s.start(append([]string{"checkpoint", "reset"}, inTable...)...); c.wait() != 0 {
		t.Errorf("checkpoint reset: %s", c.err.String())
	}
	c = run("--set", "source.start=earliest", "--until-caught-up")
	if c.wait() != 0 || !strings.Contains(c.out.String(), `"key-1"`) {
		t.Errorf("from earliest: %s", c.err.String())
	}
	// A snapshot of what is there.
	c = run("--set", "source.start=snapshot", "--set", "name=least-snapshot", "--until-caught-up")
	if c.wait() != 0 || strings.Count(c.out.String(), `"key-1"`) != 1 {
		t.Errorf("from a snapshot: %s%s", c.out.String(), c.err.String())
	}
	// A purge is seen for what it is.
	insertO(t, m, 3)
	mysqlExec(t, m, "FLUSH BINARY LOGS", "PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY")
	c = run()
	if code := c.wait(); code != 3 || !strings.Contains(c.err.String(), "has purged binlogs that the relay has not read") {
		t.Errorf("behind a purge: %d, %s", code, c.err.String())
	}
}

func leastRightsAreNeeded(t *testing.T, m *sandbox.MySQL, s *site, grants []preflight.Grant, inTable []string) {
	next := 0
	// without runs a relay of a new name, which has no checkpoint, and check, after a right is taken away.
	without := func(t *testing.T, s *site, privilege, on string) (c *child, states map[string]string, commands []string) {
		next++
		mysqlExec(t, m, "REVOKE "+privilege+" ON "+on+" FROM relay@'%'")
		t.Cleanup(func() { mysqlExec(t, m, "GRANT "+privilege+" ON "+on+" TO relay@'%'") })
		args := append([]string{"--set", fmt.Sprintf("name=least-%d", next), "--set", "source.start=latest"}, inTable...)
		states, commands = s.items(args...)
		c = s.start(append([]string{"run", "--sink", "stdout", "--set", "source.heartbeat=300ms"}, args...)...)
		return c, states, commands
	}
	named := func(t *testing.T, commands []string, c *child, part string) {
		t.Helper()
		pattern := regexp.MustCompile(`GRANT [^;]*` + part)
		if !slices.ContainsFunc(commands, pattern.MatchString) {
			t.Errorf("check does not name it: %q", commands)
		}
		if c != nil && !pattern.MatchString(c.err.String()) {
			t.Errorf("the relay does not name it:\n%s", c.err.String())
		}
	}
	tried := map[string]bool{}
	for _, g := range grants {
		for _, privilege := range strings.Split(g.Privileges, ", ") {
			tried[privilege] = true
			t.Run(privilege+" on "+g.On, func(t *testing.T) {
				s := s.in(t)
				c, states, commands := without(t, s, privilege, g.On)
				switch {
				case privilege == "REPLICATION SLAVE":
					if code := c.wait(); code != 3 || states[privilege] != "failed" {
						t.Errorf("exit code %d, check says %s", code, states[privilege])
					}
					named(t, commands, c, "REPLICATION SLAVE")
				case privilege == "REPLICATION CLIENT":
					s.awaitReadyz(c, 200, "active")
					insertO(t, m, 10)
					c.await(&c.out, `"key-10"`)
					c.awaitLog("how far a purge of binlogs is cannot be seen")
					if states[privilege] != "warning" {
						t.Errorf("check says %s", states[privilege])
					}
					named(t, commands, c, "REPLICATION CLIENT")
				case privilege == "XA_RECOVER_ADMIN":
					c.awaitLog("prepared XA branches cannot be seen")
					if states[privilege] != "warning" {
						t.Errorf("check says %s", states[privilege])
					}
					insertO(t, m, 11)
					c.await(&c.out, `"key-11"`)
					named(t, commands, c, "XA_RECOVER_ADMIN")
				case g.On == "`app`.`o`":
					c.awaitLog("outbox-relay starts")
					s.awaitReadyz(c, 200, "active")
					insertO(t, m, 12)
					if code := c.wait(); code != 3 || states["table app.o"] != "failed" {
						t.Errorf("exit code %d, check says %s", code, states["table app.o"])
					}
					named(t, commands, c, "SELECT ON `app`.`o`")
				case privilege == "CREATE": // the table is there; that it is needed without one, mysqlstore's tests tell
					if states["rights"] != "ok" {
						t.Errorf("check says %s", states["rights"])
					}
					s.awaitReadyz(c, 200, "active")
				case privilege == "DELETE": // for checkpoint reset alone
					s.awaitReadyz(c, 200, "active")
					if code := c.stop(); code != 0 {
						t.Errorf("exit code %d", code)
					}
					named(t, commands, nil, "ON `outbox_relay`")
				default: // SELECT, INSERT and UPDATE of the checkpoint
					if code := c.wait(); code == 0 {
						t.Errorf("exit code %d", code)
					}
					named(t, commands, c, "ON `outbox_relay`")
				}
			})
		}
	}
	if len(tried) != 8 {
		t.Errorf("tried %v", tried)
	}
}

// kill ends all connections of a user.
func kill(t *testing.T, m *sandbox.MySQL, user string) {
	t.Helper()
	rows, err := m.DB(t, "").Query("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = ?", user)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var ids []string
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		_, _ = m.DB(t, "").Exec("KILL " + id) // it may have ended
	}
}

// A user with what config grants names publishes under each delivery, and without any one of its rights check or the relay names the command.
func TestTheLeastRightsInKafka(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Authorizer: true, Listeners: map[string]sandbox.KafkaListener{
		"LOGIN": {Mechanisms: []string{"PLAIN"}, Users: map[string]string{"relay": "relay"}},
	}})
	for name, sets := range map[string][]string{
		"at-least-once, fixed topics":     {"kafka.delivery=at-least-once"},
		"exactly-once, topics by pattern": {"kafka.delivery=exactly-once", "checkpoint.store=kafka", "kafka.create_topics.enabled=true", "kafka.create_topics.replication_factor=1"},
	} {
		t.Run(name, func(t *testing.T) {
			db := m.NewDatabase(t)
			mysqlExec(t, m, "CREATE TABLE "+db+".o "+outboxColumns)
			topic := k.NewTopic(t, 1, nil)
			if strings.Contains(name, "pattern") {
				topic = db + ".{aggregate_type}"
			}
			s := newSite(t, fmt.Sprintf("source: {address: %q, user: relay, password: relay, start: latest}\nkafka: {brokers: [%q]}\ntables:\n  - {table: %s.o, topic: %q}\n", m.Addr(), k.ListenerAddrs("LOGIN")[0], db, topic))
			args := []string{"--set", "kafka.sasl.mechanism=plain", "--set", "kafka.sasl.user=relay", "--set", "kafka.sasl.password=relay", "--set", "poison.policy=dead_letter", "--set", "poison.topic=" + db + ".dead"}
			for _, set := range sets {
				args = append(args, "--set", set)
			}
			if !strings.Contains(name, "pattern") {
				if err := k.CreateTopic(t.Context(), db+".dead", 1, 0, nil); err != nil {
					t.Fatal(err)
				}
			}
			acls := s.aclsOf(args)
			if err := k.Grant(acls...); err != nil {
				t.Fatal(err)
			}
			states, _ := s.items(args...)
			for item, state := range states {
				if state == "failed" || state == "unknown" && !strings.HasPrefix(item, "table") {
					t.Errorf("check: %s is %s", item, state)
				}
			}
			c := s.start(append([]string{"run"}, args...)...)
			s.awaitReadyz(c, 200, "active")
			mysqlExec(t, m, "INSERT INTO "+db+".o (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', 'key', 'Made', '{}'), ('order', NULL, 'Made', '{}')")
			s.awaitMetric(c, "outbox_relay_published_total{")
			s.awaitMetric(c, "outbox_relay_dead_letters_total{")
			if code := c.stop(); code != 0 {
				t.Errorf("exit code %d:\n%s", code, c.err.String())
			}
			for _, command := range []string{"list", "redrive"} {
				if c := s.start(append([]string{"dead-letter", command}, args...)...); c.wait() != 0 {
					t.Errorf("dead-letter %s: %s", command, c.err.String())
				}
			}
		})
	}
}

// awaitMetric waits until a metric that begins so is there with another value than 0.
func (s *site) awaitMetric(c *child, name string) {
	s.t.Helper()
	for deadline := time.Now().Add(40 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		_, body := s.get("/metrics")
		for line := range strings.Lines(body) {
			if strings.HasPrefix(line, name) && !strings.HasSuffix(line, " 0\n") {
				return
			}
		}
	}
	_, status := s.get("/status")
	s.t.Fatalf("there is no %s; the status is %s, the log:\n%s", name, status, c.err.String())
}

// aclsOf are the rights that config grants names.
func (s *site) aclsOf(args []string) (acls []sandbox.ACL) {
	s.t.Helper()
	for _, a := range s.rights(args...).Kafka {
		for _, name := range a.Operations {
			var op sarama.AclOperation
			if err := op.UnmarshalText([]byte(name)); err != nil {
				s.t.Fatal(err)
			}
			acls = append(acls, sandbox.ACL{User: "relay", Resource: a.Resource, Name: a.Name, Prefixed: a.Prefixed, Operation: op})
		}
	}
	return acls
}
