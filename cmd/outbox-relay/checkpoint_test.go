package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"outbox-relay/checkpoint"
	"outbox-relay/internal/sandbox"
)

func TestCheckpointCommands(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	k := sandbox.SharedKafka(t)
	mysqlExec(t, m, "CREATE DATABASE app", "CREATE TABLE app.o "+outboxColumns)
	const insert = "INSERT INTO app.o (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', '%s', 'e', '{}')"
	for _, store := range []string{"file", "mysql", "kafka"} {
		t.Run(store, func(t *testing.T) {
			s := newSite(t, rules(m.Addr(), k.Addrs()[0], "app.o", ""))
			do := func(code int, args ...string) string {
				t.Helper()
				c := s.start(append(args, "--set", "checkpoint.store="+store)...)
				if got := c.wait(); got != code {
					t.Errorf("%v: exit code %d, want %d; it said:\n%s%s", args, got, code, c.out.String(), c.err.String())
				}
				return c.out.String() + c.err.String()
			}
			catchUp := func() string { return do(0, "run", "--sink", "stdout", "--until-caught-up") }
			place := s.checkpoint()
			switch store {
			case "mysql":
				place = "table outbox_relay.checkpoints"
			case "kafka":
				place = "topic outbox-relay.TestCheckpointCommands-kafka.checkpoint"
			}

			holds(t, do(1, "checkpoint", "show"), []string{"no checkpoint"})
			catchUp()
			mysqlExec(t, m, fmt.Sprintf(insert, "first"))
			holds(t, catchUp(), []string{`"first"`})
			holds(t, do(0, "checkpoint", "show"), []string{"relay ", place, "position ", "tables ", "app.o", "saved ", "fencing token 2"})
			var before struct {
				GTIDSet string `json:"gtid_set"`
				Tables  []string
			}
			if err := json.Unmarshal([]byte(do(0, "checkpoint", "show", "--json")), &before); err != nil || before.GTIDSet == "" || len(before.Tables) != 1 {
				t.Fatalf("%+v, %v", before, err)
			}

			// Set back, the row comes again; set forth, one never comes.
			mysqlExec(t, m, fmt.Sprintf(insert, "second"))
			if text := catchUp(); !strings.Contains(text, `"second"`) || strings.Contains(text, `"first"`) {
				t.Errorf("got %s", text)
			}
			holds(t, do(0, "checkpoint", "set", before.GTIDSet), []string{"is set", "to be published (again): "})
			if text := catchUp(); !strings.Contains(text, `"second"`) || strings.Contains(text, `"first"`) {
				t.Errorf("got %s", text)
			}
			mysqlExec(t, m, fmt.Sprintf(insert, "skipped"))
			executed := query(t, m, "SELECT @@global.gtid_executed")
			holds(t, do(0, "checkpoint", "set", executed), []string{"is set", "never to be published: "})
			mysqlExec(t, m, fmt.Sprintf(insert, "third"))
			if text := catchUp(); !strings.Contains(text, `"third"`) || strings.Contains(text, `"skipped"`) {
				t.Errorf("got %s", text)
			}

			holds(t, do(64, "checkpoint", "set"), []string{"takes one GTID set"})
			holds(t, do(64, "checkpoint", "set", "nonsense"), []string{"cannot be read"})

			// Neither while a relay runs here, nor while one runs elsewhere.
			r := s.start("run", "--sink", "stdout", "--set", "checkpoint.store="+store)
			s.awaitReadyz(r, 200, "active")
			for _, args := range [][]string{{"checkpoint", "set", executed}, {"checkpoint", "reset"}} {
				holds(t, do(1, args...), []string{"a relay called", "runs", "stop it first"})
				holds(t, do(1, append(args, "--set", "checkpoint.path=elsewhere")...), []string{"a relay called", "runs", "stop it first"})
			}
			do(0, "checkpoint", "show")
			if code := r.stop(); code != 0 {
				t.Errorf("the relay ended with code %d", code)
			}
			holds(t, do(1, "checkpoint", "reset", "--set", "source.address=127.0.0.1:1"), []string{"--offline", "127.0.0.1:1"})

			holds(t, do(0, "checkpoint", "reset"), []string{"is removed", "latest", "it was: "})
			holds(t, do(0, "checkpoint", "reset"), []string{"there is no checkpoint"})
			holds(t, do(1, "checkpoint", "show"), []string{"no checkpoint"})
			mysqlExec(t, m, fmt.Sprintf(insert, "before the start"))
			if text := catchUp(); strings.Contains(text, "before the start") {
				t.Errorf("got %s", text)
			}
			holds(t, do(0, "checkpoint", "set", executed), []string{"is set"})
			holds(t, catchUp(), []string{`"third"`, `"before the start"`})
		})
	}
}

// The documented way from one store to another, through all of them: nothing is published twice, nothing is left out.
func TestMovingTheCheckpointToAnotherStore(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	k := sandbox.SharedKafka(t)
	db := m.NewDatabase(t)
	mysqlExec(t, m, "CREATE TABLE "+db+".o "+outboxColumns)
	s := newSite(t, rules(m.Addr(), k.Addrs()[0], db+".o", ""))
	do := func(args ...string) string {
		t.Helper()
		c := s.start(args...)
		if code := c.wait(); code != 0 {
			t.Fatalf("%v: exit code %d; it said:\n%s%s", args, code, c.out.String(), c.err.String())
		}
		return c.out.String()
	}
	store := func(name string) string { return "--set=checkpoint.store=" + name }
	do("run", "--sink", "stdout", "--until-caught-up", store("file"))
	before := "file"
	for i, next := range []string{"kafka", "mysql", "kafka", "file"} {
		var shown struct {
			GTIDSet string `json:"gtid_set"`
		}
		if err := json.Unmarshal([]byte(do("checkpoint", "show", "--json", store(before))), &shown); err != nil || shown.GTIDSet == "" {
			t.Fatalf("%+v, %v", shown, err)
		}
		do("checkpoint", "set", shown.GTIDSet, store(next))
		name := fmt.Sprintf("row-%d", i)
		mysqlExec(t, m, fmt.Sprintf("INSERT INTO %s.o (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', '%s', 'e', '{}')", db, name))
		text := do("run", "--sink", "stdout", "--until-caught-up", store(next))
		if n := strings.Count(text, "aggregate_type"); n != 1 || !strings.Contains(text, name) {
			t.Errorf("from %s to %s: %d records: %s", before, next, n, text)
		}
		before = next
	}
}

// Two relays with the checkpoint in Kafka and without a common file. The active one is killed; the other goes on, and the first comes back as standby.
func TestAStandbyGoesOnFromTheCheckpointInKafka(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	k := sandbox.SharedKafka(t)
	db := m.NewDatabase(t)
	mysqlExec(t, m, "CREATE TABLE "+db+".o "+outboxColumns)
	insert := func(name string) {
		t.Helper()
		mysqlExec(t, m, fmt.Sprintf("INSERT INTO %s.o (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', '%s', 'e', '{}')", db, name))
	}
	one := newSite(t, rules(m.Addr(), k.Addrs()[0], db+".o", ""))
	two := newSite(t, rules(m.Addr(), k.Addrs()[0], db+".o", ""))
	run := func(s *site) *child {
		return s.start("run", "--sink", "stdout", "--set", "checkpoint.store=kafka", "--set", "checkpoint.interval=50ms")
	}
	first := run(one)
	one.awaitReadyz(first, 200, "active")
	second := run(two)
	two.awaitReadyz(second, 200, "standby")
	insert("row-1")
	first.await(&first.out, "row-1")
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	insert("row-2")
	two.awaitReadyz(second, 200, "active")
	second.await(&second.out, "row-2")
	first = run(one)
	one.awaitReadyz(first, 200, "standby")
	if code := second.stop(); code != 0 {
		t.Errorf("exit code %d: %s", code, second.err.String())
	}
	insert("row-3")
	one.awaitReadyz(first, 200, "active")
	first.await(&first.out, "row-3")
	if text := first.out.String(); strings.Contains(text, "row-1") || strings.Contains(text, "row-2") {
		t.Errorf("published again: %s", text)
	}
	if code := first.stop(); code != 0 {
		t.Errorf("exit code %d: %s", code, first.err.String())
	}
}

// Kafka is away when a relay with its checkpoint there starts: it says so, is not ready, and goes on when Kafka comes.
func TestARelayWaitsForTheKafkaOfItsCheckpoint(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{})
	db := m.NewDatabase(t)
	mysqlExec(t, m, "CREATE TABLE "+db+".o "+outboxColumns)
	if err := k.Broker(1).Kill(); err != nil {
		t.Fatal(err)
	}
	s := newSite(t, rules(m.Addr(), k.Addrs()[0], db+".o", ""))
	c := s.start("run", "--sink", "stdout", "--set", "checkpoint.store=kafka")
	c.awaitLog("the checkpoint cannot be loaded, trying again")
	s.awaitReadyz(c, 503, "")
	if err := k.Broker(1).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.awaitReadyz(c, 200, "active")
	mysqlExec(t, m, fmt.Sprintf("INSERT INTO %s.o (aggregate_type, aggregate_id, event_type, payload) VALUES ('a', 'row-1', 'e', '{}')", db))
	c.await(&c.out, "row-1")
	if code := c.stop(); code != 0 {
		t.Errorf("exit code %d: %s", code, c.err.String())
	}
}

func query(t *testing.T, m *sandbox.MySQL, statement string) string {
	t.Helper()
	var text string
	if err := m.DB(t, "").QueryRow(statement).Scan(&text); err != nil {
		t.Fatal(err)
	}
	return text
}

func TestShowTellsOfABegunTransaction(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	s := shownCheckpoint{Name: "orders", GTIDSet: "a:1-5", Begun: []checkpoint.Begun{{GTID: "a:6", Rows: 50_000}}}
	if err := printStored(&b, &s, time.Now()); err != nil {
		t.Fatal(err)
	}
	holds(t, b.String(), []string{"begun ", "a:6, 50000 of its rows published"})
}
