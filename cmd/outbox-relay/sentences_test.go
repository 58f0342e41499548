package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
	"outbox-relay/internal/sandbox"
)

// A fault ends in one sentence: what, where and what to do. These tests hold the sentences and the exit codes, each with the real
// command against real servers.

// fault is one case: how the configuration differs, and what the command then says.
type fault struct {
	name string
	sets []string // --set of the run
	args []string // further arguments
	code int
	want []string // parts of the sentence, in order
}

// rules is a configuration with one rule for a table of the server.
func rules(address, kafka, table, rest string) string {
	return fmt.Sprintf("source: {address: %q, user: relay, password: relay, start: latest, heartbeat: 500ms}\nkafka: {brokers: [%q]}\ntables:\n  - {table: %s, topic: t%s}\n", address, kafka, table, rest)
}

const nothingListens = "127.0.0.1:1"

// expect runs the command and compares its end with the case.
func (f fault) expect(t *testing.T, s *site) {
	t.Helper()
	args := append([]string{"run"}, f.args...)
	for _, set := range f.sets {
		args = append(args, "--set", set)
	}
	c := s.start(args...)
	if code := c.wait(); code != f.code {
		t.Errorf("exit code %d, want %d; it said:\n%s", code, f.code, c.err.String())
	}
	holds(t, c.last(), append([]string{"outbox-relay: "}, f.want...))
}

// holds checks that text contains the parts in their order.
func holds(t *testing.T, text string, parts []string) {
	t.Helper()
	rest := text
	for _, p := range parts {
		_, after, ok := strings.Cut(rest, p)
		if !ok {
			t.Errorf("it says %q\nand lacks %q", text, p)
			return
		}
		rest = after
	}
}

func mysqlExec(t *testing.T, m *sandbox.MySQL, statements ...string) {
	t.Helper()
	if err := m.Exec(context.Background(), statements...); err != nil {
		t.Fatal(err)
	}
}

const outboxColumns = "(id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, aggregate_type VARCHAR(64), aggregate_id VARCHAR(64), event_type VARCHAR(64), payload JSON)"

func TestSentencesWithoutAServer(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { taken.Close() })
	for _, f := range []fault{
		{name: "unknown host", sets: []string{"source.address=no-such-host.invalid:3306"}, code: 1,
			want: []string{`MySQL host "no-such-host.invalid" cannot be found`, "; check source.address"}},
		{name: "no start position", sets: []string{"source.start="}, code: 78,
			want: []string{"there is no checkpoint at ", "relay.checkpoint and source.start is not set; set it to latest, earliest, snapshot or a GTID set"}},
		{name: "port in use", sets: []string{"http.address=" + taken.Addr().String()}, code: 1,
			want: []string{"http.address " + taken.Addr().String() + " is in use by another program; stop it or set http.address to a free port"}},
		{name: "no folder for the checkpoint", sets: []string{"checkpoint.path=/no/such/folder/c"}, code: 1,
			want: []string{"/no/such/folder/c", "no such file or directory; create the directory and let the relay's user write to it"}},
		{name: "the checkpoint is a folder", sets: []string{"checkpoint.path=/tmp"}, code: 1, want: []string{"/tmp", "is a directory; the path is a directory: name a file in it"}},
		{name: "no password file", sets: []string{"source.password=", "source.password_file=/no/such/file"}, code: 78,
			want: []string{"configuration ", ": source.password_file: reading the password file: open /no/such/file: no such file or directory (--set source.password_file) - the file must be there for the relay's user to read"}},
		{name: "no password command", sets: []string{"source.password=", "source.password_command=/no/such/program"}, code: 78,
			want: []string{"configuration ", `: source.password_command: exec: "/no/such/program": stat /no/such/program: no such file or directory`, " - name a program that the relay's user may run"}},
		{name: "no CA file", sets: []string{"source.tls.mode=verify-ca", "source.tls.ca=/no/such/file"}, code: 78,
			want: []string{"configuration ", ": source.tls: reading the CA file: open /no/such/file: no such file or directory", " - the file must be there for the relay's user to read"}},
		{name: "no CA file for Kafka", sets: []string{"kafka.tls.mode=verify-ca", "kafka.tls.ca=/no/such/file"}, code: 78, want: []string{"configuration ", ": kafka.tls: reading the CA file: open /no/such/file"}},
		{name: "no password file for Kafka", sets: []string{"kafka.sasl.mechanism=plain", "kafka.sasl.user=relay", "kafka.sasl.password_file=/no/such/file"}, code: 78,
			want: []string{"configuration ", ": kafka.sasl.password_file: reading the password file: open /no/such/file"}},
		{name: "unknown flag", args: []string{"--until-cought-up"}, code: 64, want: []string{"unknown flag: --until-cought-up; see outbox-relay --help"}},
		{name: "unknown sink", args: []string{"--sink", "pulsar"}, code: 64, want: []string{`--sink is kafka or stdout, not "pulsar"; see outbox-relay --help`}},
		{name: "argument", args: []string{"now"}, code: 64, want: []string{`takes no argument, got "now"; see outbox-relay --help`}},
		{name: "no configuration", args: []string{"--config", "/no/such/file"}, code: 78, want: []string{"configuration", "/no/such/file", "no such file"}},
		{name: "one fault of the configuration", sets: []string{"kafka.linger=5"}, code: 78, want: []string{"configuration ", ": kafka.linger: ", "--set kafka.linger", "write a number with a unit"}},
		{name: "dead letters to the topic of a rule", sets: []string{"poison.policy=dead_letter", "poison.topic=t"}, code: 78,
			want: []string{"tables[0].topic: t is the topic of the relay's dead letters"}},
		{name: "dead letters to a topic of the brokers", sets: []string{"poison.policy=dead_letter", "poison.topic=__consumer_offsets"}, code: 78,
			want: []string{"poison.topic: __consumer_offsets is a topic of the brokers themselves"}},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.expect(t, newSite(t, rules(nothingListens, nothingListens, "app.o", "")))
		})
	}
}

func TestAllFaultsOfTheConfigurationAreListed(t *testing.T) {
	t.Parallel()
	s := newSite(t, "")
	s.write("outbox-relay.yaml", `name: "a b"
source: {address: "h", user: u, startt: x}
tables:
  - {table: app.o, topic: "x.{", key: "{a", headers: [{name: "*", value: "x"}]}
  - {table: app.o, topic: "ok"}
  - {table: app.o, topic: "never"}
kafka: {brokers: ["a"], linger: 5}
`)
	for _, command := range []string{"run", "check", "status"} {
		c := s.start(command)
		if code := c.wait(); code != 78 {
			t.Errorf("%s: exit code %d", command, code)
		}
		holds(t, c.err.String(), []string{"10 faults\n", "name: ", "(line 1)", "source.startt: unknown key (line 2)", `did you mean "start"?`, "source.address: ", "tables[0].topic: ", "(line 4)",
			"tables[0].key: ", "tables[0].headers[0].value: ", "tables[1].table: the rule is never used: tables[0] takes its rows (line 5)", "tables[2].table: ", "kafka.linger: ", "(line 7)", "kafka.brokers[0]: "})
	}
}

func TestSentencesAboutTheCheckpoint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, content string
		want          []string
	}{
		{"damaged", "{\"format\": \"outbox-relay chec", []string{"damaged checkpoint: it is cut off after 29 bytes; find out what changed it; then put a copy back, or set a position with"}},
		{"empty", "", []string{"damaged checkpoint: it is empty; find out"}},
		{"something else", "hello\n", []string{"not a checkpoint of this relay: it is no checkpoint; give every relay a checkpoint of its own"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, rules(nothingListens, nothingListens, "app.o", ""))
			s.write("relay.checkpoint", c.content)
			fault{code: 1, want: append([]string{"loading checkpoint " + s.checkpoint()}, c.want...)}.expect(t, s)
		})
	}
}

func TestSentencesOfServersThatAreNotMySQL8(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"5.5.5-10.11.19-MariaDB": "is MariaDB (5.5.5-10.11.19-MariaDB), whose binlog differs; point source.address at MySQL 8.0 or later",
		"5.7.44-log":             "is MySQL 5.7.44-log, which is too old; use MySQL 8.0 or later",
	} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			address := fakeMySQL(t, version, mysql.AUTH_NATIVE_PASSWORD)
			s := newSite(t, rules(address, nothingListens, "app.o", ""))
			fault{code: 3, want: []string{"halted: the server at " + address + " " + want}}.expect(t, s)
			// With a wish to wait the relay stays up and says so.
			c := s.start("run", "--set", "on_halt=wait")
			s.awaitReadyz(c, 503, want)
			c.awaitLog(want)
			if code := c.stop(); code != 0 {
				t.Errorf("exit code %d after SIGTERM", code)
			}
		})
	}
}

func TestSentenceOfAServerWithoutKeysForPasswords(t *testing.T) {
	t.Parallel()
	address := fakeMySQL(t, "8.0.40", mysql.AUTH_CACHING_SHA2_PASSWORD)
	fault{code: 1, want: []string{"MySQL at " + address + ` takes no password for user "relay" without encryption; set source.tls.mode to required or stricter`}}.
		expect(t, newSite(t, rules(address, nothingListens, "app.o", "")))
}

func TestSentencesOfARefusedLogin(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	mysqlExec(t, m, "CREATE USER locked@'%' IDENTIFIED BY 'relay' ACCOUNT LOCK", "CREATE USER expired@'%' IDENTIFIED BY 'relay' PASSWORD EXPIRE",
		"CREATE USER tlsonly@'%' IDENTIFIED BY 'relay' REQUIRE SSL", "CREATE USER nothing@'%' IDENTIFIED BY 'relay'")
	t.Cleanup(func() { mysqlExec(t, m, "DROP USER locked@'%', expired@'%', tlsonly@'%', nothing@'%'") })
	ca := newSite(t, "").write("ca.pem", otherCA)
	at := "MySQL at " + m.Addr() + " "
	for _, f := range []fault{
		{name: "wrong password", sets: []string{"source.password=wrong"}, code: 1, want: []string{at, `refuses user "relay": Access denied`, "; check source.user and source.password"}},
		{name: "no such user", sets: []string{"source.user=nobody"}, code: 1, want: []string{at, `refuses user "nobody": Access denied`, "; check source.user and source.password"}},
		{name: "locked", sets: []string{"source.user=locked"}, code: 1, want: []string{at, `refuses user "locked": the account is locked; unlock it with ALTER USER`}},
		{name: "expired", sets: []string{"source.user=expired"}, code: 1, want: []string{at, `refuses user "expired": the password has expired; set a new one with ALTER USER`}},
		{name: "TLS for this user only", sets: []string{"source.user=tlsonly", "source.tls.mode=disabled"}, code: 1, want: []string{at, `refuses user "tlsonly"`, "; check source.user"}},
		{name: "unknown authority", sets: []string{"source.tls.mode=verify-ca", "source.tls.ca=" + ca}, code: 1, want: []string{"the certificate of " + at, "is signed by an authority that is not trusted", "; set source.tls.ca to the PEM file of the authority that signed it"}},
		{name: "no grant", sets: []string{"source.user=nothing"}, code: 3,
			want: []string{"halted: the server at " + m.Addr(), `does not let user "nothing" read its binlog`, "REPLICATION SLAVE", "; run GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'nothing'@'%'"}},
	} {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			f.expect(t, newSite(t, rules(m.Addr(), nothingListens, "app.o", "")))
		})
	}
}

func TestSentencesOfAServerWithoutBinlogAndTLS(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--skip-log-bin", "--tls-version="}})
	s := newSite(t, rules(m.Addr(), nothingListens, "app.o", ""))
	fault{code: 1, sets: []string{"source.tls.mode=required"}, want: []string{"MySQL at " + m.Addr() + " offers no TLS but source.tls.mode demands it; enable TLS on the server or set source.tls.mode to preferred or disabled"}}.expect(t, s)
	fault{code: 3, want: []string{"halted: the server at " + m.Addr() + " writes no binlog (log_bin=OFF); start it with --log-bin"}}.expect(t, s)
}

func TestSentencesOfAServerWithOtherSettings(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	mysqlExec(t, m, "CREATE DATABASE app", "CREATE TABLE app.o "+outboxColumns)
	// One connection for all changes: it stands also while the server lets nobody in without TLS.
	conn, err := m.DB(t, "").Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	set := func(statement string) {
		if _, err := conn.ExecContext(context.Background(), statement); err != nil {
			t.Fatal(err)
		}
	}
	at := "halted: the server at " + m.Addr() + " "
	for _, c := range []struct {
		name        string
		change, off string
		fault
	}{
		{"statement format", "SET GLOBAL binlog_format = 'STATEMENT'", "SET GLOBAL binlog_format = 'ROW'",
			fault{code: 3, want: []string{at + "runs with binlog_format=STATEMENT; SET PERSIST binlog_format = 'ROW';"}}},
		{"gtid_mode", "SET GLOBAL gtid_mode = 'ON_PERMISSIVE'", "SET GLOBAL gtid_mode = 'ON'",
			fault{code: 3, want: []string{at + "runs with gtid_mode=ON_PERMISSIVE; switch it on"}}},
		{"TLS demanded", "SET GLOBAL require_secure_transport = ON", "SET GLOBAL require_secure_transport = OFF",
			fault{code: 1, sets: []string{"source.tls.mode=disabled"}, want: []string{"MySQL at " + m.Addr() + " accepts encrypted connections only; set source.tls.mode to required or stricter"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			set(c.change)
			defer set(c.off)
			fresh := newSite(t, rules(m.Addr(), nothingListens, "app.o", ""))
			c.expect(t, fresh)
			if c.code != 3 {
				return
			}
			// A relay that has a checkpoint finds the same at its first connect.
			known := newSite(t, rules(m.Addr(), nothingListens, "app.o", ""))
			set(c.off)
			if r := known.start("run", "--sink", "stdout", "--until-caught-up"); r.wait() != 0 {
				t.Fatalf("it does not catch up:\n%s", r.err.String())
			}
			set(c.change)
			c.expect(t, known)
		})
	}
	t.Run("positions", func(t *testing.T) { positions(t, m) })
}

// positions are the sentences of a checkpoint that the server does not match.
func positions(t *testing.T, m *sandbox.MySQL) {
	s := newSite(t, rules(m.Addr(), nothingListens, "app.o", ""))
	if c := s.start("run", "--sink", "stdout", "--until-caught-up"); c.wait() != 0 {
		t.Fatalf("it does not catch up:\n%s", c.err.String())
	}
	own := "33333333-3333-3333-3333-333333333333"
	fault{code: 3, sets: []string{"source.start=" + own + ":1-5", "checkpoint.path=" + s.dir + "/other"}, args: []string{"--sink", "stdout"},
		want: []string{"halted: the server at " + m.Addr() + " lacks transactions that the relay has read: " + own + ":1-5; the server lost them in a failover or is the wrong one: point source.address at the right one, or remove the checkpoint and set source.start to what this server has"}}.expect(t, s)

	fault{code: 78, sets: []string{}, want: []string{"table app.second is new to this relay, whose checkpoint already exists; set from on its rule: latest publishes"}}.expect(t, withSecond(t, s, m))

	mysqlExec(t, m, "INSERT INTO app.o (aggregate_type) VALUES ('x')", "FLUSH BINARY LOGS", "INSERT INTO app.o (aggregate_type) VALUES ('y')", "FLUSH BINARY LOGS", "PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY")
	fault{code: 3, want: []string{"halted: the server at " + m.Addr() + " has purged binlogs that the relay has not read; missing are ", ":", "; their outbox rows, if any, were not published: publish them by hand, then remove the checkpoint and set source.start to earliest"}}.expect(t, s)
	fault{code: 3, sets: []string{"source.start=" + serverUUID(t, m) + ":1", "checkpoint.path=" + s.dir + "/third"},
		want: []string{"halted: the server at " + m.Addr() + " has purged transactions that source.start lacks: ", "; set source.start to earliest, or add them"}}.expect(t, s)
}

// withSecond is the site with a rule for one more table.
func withSecond(t *testing.T, s *site, m *sandbox.MySQL) *site {
	t.Helper()
	config := fmt.Sprintf("name: %s\nhttp: {address: %q}\ncheckpoint: {path: %q}\n", relayName(t), s.http, s.checkpoint()) + rules(m.Addr(), nothingListens, "app.o", "") + "  - {table: app.second}\n"
	next := &site{t: t, dir: t.TempDir(), http: s.http}
	next.write("outbox-relay.yaml", config)
	return next
}

func serverUUID(t *testing.T, m *sandbox.MySQL) string {
	t.Helper()
	var uuid string
	if err := m.DB(t, "").QueryRow("SELECT @@server_uuid").Scan(&uuid); err != nil {
		t.Fatal(err)
	}
	return uuid
}

func TestSentencesAboutRowsAndTopics(t *testing.T) {
	t.Parallel()
	m, k := sandbox.SharedMySQL(t), sandbox.SharedKafka(t)
	db := m.NewDatabase(t)
	mysqlExec(t, m, "CREATE TABLE "+db+".o "+outboxColumns)
	insert := "INSERT INTO " + db + ".o (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', '1', 'Made', '{}')"

	t.Run("unknown column", func(t *testing.T) {
		s := newSite(t, rules(m.Addr(), k.Addrs()[0], db+".o", ", key: \"{nope}\", headers: [{name: h, value: \"{nada}\"}]"))
		c := s.start("run")
		s.awaitReadyz(c, 200, "active")
		mysqlExec(t, m, insert)
		if code := c.wait(); code != 4 {
			t.Errorf("exit code %d", code)
		}
		holds(t, c.last(), []string{"outbox-relay: halted: the rules do not fit the rows of transaction ", ": table " + db + ".o has no column nope, which tables[0].key needs; its columns are id, aggregate_type, ",
			"; table " + db + ".o has no column nada, which tables[0].headers[0] needs", "; correct the rules or the table"})
	})

	t.Run("poison", func(t *testing.T) {
		s := newSite(t, rules(m.Addr(), k.Addrs()[0], db+".o", ""))
		c := s.start("run")
		s.awaitReadyz(c, 200, "active")
		mysqlExec(t, m, "INSERT INTO "+db+".o (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', NULL, 'Made', '{}')")
		if code := c.wait(); code != 4 {
			t.Errorf("exit code %d", code)
		}
		holds(t, c.last(), []string{"outbox-relay: halted at transaction ", ": row ", " of " + db + ".o can never be published (null_key)", "; change the rule or the topic so that the row fits, or set the checkpoint behind it"})
	})

	t.Run("unknown topic", func(t *testing.T) {
		topic := "missing-" + db
		s := newSite(t, strings.Replace(rules(m.Addr(), k.Addrs()[0], db+".o", ""), "topic: t", "topic: "+topic, 1))
		c := s.start("run")
		s.awaitReadyz(c, 200, "active")
		mysqlExec(t, m, insert)
		sentence := "topic " + topic + " does not exist; create it with: kafka-topics.sh --bootstrap-server " + k.Addrs()[0] + " --create --topic " + topic + " --partitions "
		s.awaitReadyz(c, 503, sentence)
		c.awaitLog(sentence)
		_, text := s.get("/readyz")
		_, after, _ := strings.Cut(text, "since ")
		stamp, _, _ := strings.Cut(after, ": topic ")
		if at, err := time.Parse(time.RFC3339, stamp); err != nil || time.Since(at) < 0 || time.Since(at) > time.Hour {
			t.Errorf("it does not say since when: %s", text)
		}
		if err := k.CreateTopic(context.Background(), topic, 1, 0, nil); err != nil {
			t.Fatal(err)
		}
		s.awaitReadyz(c, 200, "active")
		if code := c.stop(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
	})

	t.Run("Kafka unreachable", func(t *testing.T) {
		s := newSite(t, rules(m.Addr(), nothingListens, db+".o", ""))
		c := s.start("run", "--set", "source.heartbeat=100ms")
		s.awaitReadyz(c, 503, "Kafka cannot be used: ") // with nothing to publish too
		sentence := "nothing listens at the Kafka address " + nothingListens + " (connection refused); start the broker or correct kafka.brokers"
		c.awaitLog(`msg="request to broker failed" broker=` + nothingListens + ` err="` + sentence + `"`)
		c.awaitLog(`reason="Kafka cannot be used: ` + sentence + `"`)
		mysqlExec(t, m, insert)
		s.awaitReadyz(c, 503, "Kafka cannot be reached: ")
		if code := c.stop(); code != 0 {
			t.Errorf("exit code %d after SIGTERM", code)
		}
	})
}

func TestSentenceOfARefusedConnection(t *testing.T) {
	t.Parallel()
	s := newSite(t, rules(nothingListens, nothingListens, "app.o", ""))
	c := s.start("run")
	sentence := "nothing listens at the MySQL address " + nothingListens + " (connection refused); start the server or correct source.address"
	s.awaitReadyz(c, 503, sentence)
	c.awaitLog(sentence)
	if code := c.stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

func TestSentenceOfASecondRelay(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	db := m.NewDatabase(t)
	s := newSite(t, rules(m.Addr(), sandbox.SharedKafka(t).Addrs()[0], db+".o", ""))
	c := s.start("run")
	s.awaitReadyz(c, 200, "active")
	var wg sync.WaitGroup
	for name, sets := range map[string][]string{
		"the file":  {"http.address=127.0.0.1:0"},
		"the store": {"http.address=127.0.0.1:0", "checkpoint.path=" + s.dir + "/other"},
	} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			args := []string{"run", "--no-standby"}
			for _, set := range sets {
				args = append(args, "--set", set)
			}
			second := s.start(args...)
			if code := second.wait(); code != 5 {
				t.Errorf("%s: exit code %d", name, code)
			}
			holds(t, second.last(), []string{"outbox-relay: another relay of this name is active", "; stop that one, or leave out --no-standby to take over when it ends"})
		}()
	}
	wg.Wait()
	if code := c.stop(); code != 0 {
		t.Errorf("exit code %d after SIGTERM", code)
	}
}

func TestAForeignCheckpointIsNamed(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	s := newSite(t, rules(m.Addr(), nothingListens, m.NewDatabase(t)+".o", ""))
	if c := s.start("run", "--sink", "stdout", "--until-caught-up"); c.wait() != 0 {
		t.Fatal(c.err.String())
	}
	fault{code: 1, sets: []string{"name=other"}, want: []string{"loading checkpoint " + s.checkpoint(), "not a checkpoint of this relay: it belongs to the relay", `this one is "other"; give every relay a checkpoint of its own`}}.expect(t, s)
	if _, err := os.Stat(s.checkpoint()); err != nil {
		t.Error(err)
	}
}

func TestTablesChangedInsideATransactionAreAFaultOfTheConfiguration(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	s := newSite(t, rules(m.Addr(), nothingListens, m.NewDatabase(t)+".o", ", from: latest"))
	content, err := checkpoint.Marshal(&checkpoint.Checkpoint{Name: "named", GTIDSet: new(gtid.Set), Tables: []string{"app.before"}, Begun: []checkpoint.Begun{{GTID: "0a000000-0000-0000-0000-000000000001:6", Rows: 7}}})
	if err != nil {
		t.Fatal(err)
	}
	s.write("relay.checkpoint", string(content))
	fault{code: 78, sets: []string{"name=named"}, want: []string{"the tables cannot be changed yet: the checkpoint is inside transaction 0a0", "in the tables app.before; start once with these tables"}}.expect(t, s)
}
