package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"outbox-relay/internal/sandbox"
)

func TestCheckReportsAndEndsWithTheResult(t *testing.T) {
	t.Parallel()
	m, k := sandbox.SharedMySQL(t), sandbox.SharedKafka(t)
	db, topic := m.NewDatabase(t), k.NewTopic(t, 1, nil)
	mysqlExec(t, m, "CREATE TABLE "+db+".o "+outboxColumns)
	s := newSite(t, strings.Replace(rules(m.Addr(), k.Addrs()[0], db+".o", ""), "topic: t", "topic: "+topic, 1))

	c := s.start("check")
	if code := c.wait(); code != 0 {
		t.Errorf("exit code %d:\n%s%s", code, c.out.String(), c.err.String())
	}
	holds(t, c.out.String(), []string{"source " + m.Addr() + "\n", "  ok       login ", "'relay'@'%' with TLS", "  ok       table " + db + ".o ", "kafka\n", "  warning  topic " + topic,
		"\n           -> give it three replicas", "checkpoint\n", "spool\n", " 0 failed, 0 unknown\n"})
	if strings.Contains(c.out.String(), "\x1b") || c.err.String() != "" {
		t.Errorf("colours without a terminal, or noise:\n%q\n%s", c.out.String(), c.err.String())
	}

	c = s.start("check", "--set", "source.password=wrong-secret", "--json")
	if code := c.wait(); code != 1 || c.err.String() != "" {
		t.Errorf("exit code %d: %s", code, c.err.String())
	}
	var report struct {
		Name  string
		OK    bool
		Items []struct{ Area, Name, State, Detail string }
	}
	if err := json.Unmarshal([]byte(c.out.String()), &report); err != nil {
		t.Fatal(err)
	}
	if report.OK || report.Name != relayName(t) || report.Items[0].Name != "login" || report.Items[0].State != "failed" {
		t.Errorf("got %+v", report)
	}
	if strings.Contains(c.out.String(), "wrong-secret") {
		t.Error("the report shows a password")
	}
}

func TestARunNeedsReplicationSlaveAlone(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	db := m.NewDatabase(t)
	mysqlExec(t, m, "CREATE TABLE "+db+".o "+outboxColumns, "CREATE USER minimal@'%' IDENTIFIED BY 'relay'", "GRANT REPLICATION SLAVE ON *.* TO minimal@'%'")
	t.Cleanup(func() { mysqlExec(t, m, "DROP USER minimal@'%'") })
	s := newSite(t, rules(m.Addr(), nothingListens, db+".o", ""))
	c := s.start("run", "--sink", "stdout", "--set", "source.user=minimal")
	s.awaitReadyz(c, 200, "active")
	mysqlExec(t, m, "INSERT INTO "+db+".o (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', '17', 'Made', '{}')")
	c.await(&c.out, `"17"`)
	if code := c.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestStatusAsksTheRunningRelay(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	db := m.NewDatabase(t)
	mysqlExec(t, m, "CREATE TABLE "+db+".o "+outboxColumns)
	s := newSite(t, rules(m.Addr(), sandbox.SharedKafka(t).Addrs()[0], db+".o", ""))
	_, port, _ := strings.Cut(s.http, ":")
	everywhere := "http.address=:" + port // an empty host, as the default has it

	c := s.start("status", "--set", everywhere)
	if code := c.wait(); code != 1 {
		t.Errorf("exit code %d without a relay", code)
	}
	holds(t, c.last(), []string{"outbox-relay: no relay runs at http.address :" + port + ": nothing listens there; start it with outbox-relay run"})

	relay := s.start("run", "--set", everywhere)
	s.awaitReadyz(relay, 200, "active")
	c = s.start("status", "--set", everywhere)
	if code := c.wait(); code != 0 {
		t.Errorf("exit code %d: %s", code, c.err.String())
	}
	holds(t, c.out.String(), []string{"relay ", relayName(t), "role         active\n", "ready        yes\n", "lag ", "source       connected to " + m.Addr(), "in flight    0 records, 0 bytes, 0 transactions\n", "checkpoint ", "last error   none\n"})

	c = s.start("status", "--json")
	if code := c.wait(); code != 0 {
		t.Errorf("--json: exit code %d: %s", code, c.err.String())
	}
	if !json.Valid([]byte(c.out.String())) || !strings.Contains(c.out.String(), `"role": "active"`) {
		t.Errorf("--json printed %s", c.out.String())
	}

	c = s.start("status", "--set", "name=other")
	if code := c.wait(); code != 1 {
		t.Errorf("exit code %d for another relay", code)
	}
	holds(t, c.last(), []string{`is called "` + relayName(t) + `" and this configuration is of "other"`})

	// Not ready is exit 1, with the reason.
	mysqlExec(t, m, "INSERT INTO "+db+".o (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', NULL, 'Made', '{}')")
	if code := relay.wait(); code != 4 {
		t.Fatalf("exit code %d of the relay", code)
	}
	waiting := s.start("run", "--set", "on_halt=wait")
	s.awaitReadyz(waiting, 503, "halted at transaction ")
	c = s.start("status")
	if code := c.wait(); code != 1 {
		t.Errorf("exit code %d for a halted relay", code)
	}
	holds(t, c.out.String(), []string{"ready        no: halted at transaction ", "last error   halted at transaction "})
	if code := waiting.stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

func TestStatusOfSomethingElse(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	hung := make(chan struct{})
	frozen := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hung }))
	defer frozen.Close()
	defer close(hung)
	s := newSite(t, rules(nothingListens, nothingListens, "app.o", ""))
	for url, want := range map[string]string{other.URL: "is no relay (404 Not Found); correct http.address", frozen.URL: "does not answer within 4s; see its log"} {
		c := s.start("status", "--set", "http.address="+strings.TrimPrefix(url, "http://"))
		if code := c.wait(); code != 1 {
			t.Errorf("exit code %d", code)
		}
		holds(t, c.last(), []string{want})
	}
	c := s.start("status", "--set", "http.address=:0")
	if code := c.wait(); code != 1 || !strings.Contains(c.last(), "set a fixed port") {
		t.Errorf("port 0: %d, %s", code, c.last())
	}
}

func TestReachableAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{":9733": "127.0.0.1:9733", "0.0.0.0:1": "127.0.0.1:1", "[::]:1": "[::1]:1", "10.0.0.7:1": "10.0.0.7:1", "relay.local:1": "relay.local:1"} {
		if got, err := reachable(address); got != want || err != nil {
			t.Errorf("%s: got %q, %v", address, got, err)
		}
	}
}
