package preflight_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka"
	"outbox-relay/relay/preflight"
	"outbox-relay/router"
)

const nothingListens = "127.0.0.1:1"

const outboxColumns = "(id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, aggregate_type VARCHAR(64), aggregate_id VARCHAR(64), event_type VARCHAR(64), payload JSON, made DATETIME(6), raw BINARY(16), kind ENUM('a','b'), amount DECIMAL(10,2))"

// options are those of a relay for which nothing is amiss but the servers, which are not there.
func options(t *testing.T, rules ...router.Rule) preflight.Options {
	dir := t.TempDir()
	if len(rules) == 0 {
		rules = []router.Rule{{Table: "app.o", Topic: "t"}}
	}
	return preflight.Options{
		Name: "test", Addresses: []string{nothingListens}, Start: "latest", Rules: rules, Login: login("relay"),
		Kafka: kafka.Options{Brokers: []string{nothingListens}}, RowLimit: 16 << 20,
		CheckpointPath: filepath.Join(dir, "c"), ReadCheckpoint: stored(nil, checkpoint.ErrNotFound), SpoolDir: dir, SpoolLimit: 1,
	}
}

func login(user string) binlog.Login {
	return binlog.Login{User: user, Password: func(context.Context) (string, error) { return "relay", nil }}
}

// stored is a store that holds c, or fails.
func stored(c *checkpoint.Checkpoint, err error) func() (*checkpoint.Checkpoint, error) {
	return func() (*checkpoint.Checkpoint, error) { return c, err }
}

func run(t *testing.T, o preflight.Options) *preflight.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	r, err := preflight.Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// expect finds the item of an area that begins so and compares its state and texts.
func expect(t *testing.T, r *preflight.Report, area, name string, state preflight.State, parts ...string) {
	t.Helper()
	var near []string
	for _, item := range r.Items {
		if !strings.HasPrefix(item.Area, area) || item.Name != name {
			continue
		}
		text := strings.Join(append([]string{item.Detail, item.Remedy}, item.Commands...), "\n")
		near = append(near, fmt.Sprintf("%s: %s", item.State, text))
		rest, all := text, item.State == state
		for _, p := range parts {
			var ok bool
			_, rest, ok = strings.Cut(rest, p)
			all = all && ok
		}
		if all {
			return
		}
	}
	t.Errorf("%s, %s: want %s with %q, got:\n%s", area, name, state, parts, strings.Join(near, "\n"))
}

// absent checks that nothing is said about a name.
func absent(t *testing.T, r *preflight.Report, area, name string) {
	t.Helper()
	for _, item := range r.Items {
		if strings.HasPrefix(item.Area, area) && item.Name == name {
			t.Errorf("%s, %s: %s: %s", area, name, item.State, item.Detail)
		}
	}
}

func exec(t *testing.T, m *sandbox.MySQL, statements ...string) {
	t.Helper()
	if err := m.Exec(context.Background(), statements...); err != nil {
		t.Fatal(err)
	}
}

func TestFilesOfThisMachine(t *testing.T) {
	t.Parallel()
	r := run(t, options(t))
	expect(t, r, "checkpoint", "position", preflight.OK, "none yet", "the first run starts at latest")
	expect(t, r, "checkpoint", "directory", preflight.OK)
	expect(t, r, "spool", "space", preflight.OK, "free")
	if left, _ := filepath.Glob(filepath.Join(options(t).SpoolDir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}

	o := options(t)
	o.Start = ""
	o.CheckpointPath, o.SpoolDir, o.SpoolLimit = "/no/such/folder/c", filepath.Join(t.TempDir(), "missing"), 1<<60
	r = run(t, o)
	expect(t, r, "checkpoint", "position", preflight.Failed, "no checkpoint", "source.start is not set", "set source.start")
	expect(t, r, "checkpoint", "directory", preflight.Failed, "/no/such/folder does not exist", "checkpoint.path", "mkdir -p /no/such/folder")
	expect(t, r, "spool", "directory", preflight.Failed, "does not exist", "limits.spool_dir")

	o = options(t)
	o.SpoolLimit = 1 << 60
	expect(t, run(t, o), "spool", "space", preflight.Warning, "limits.spool allows 1024.0 PiB", "lower limits.spool")

	o = options(t)
	o.ReadCheckpoint = stored(nil, &checkpoint.Error{Op: "loading checkpoint", Path: "/c", Err: checkpoint.ErrDamaged, Detail: "it is empty", Hint: "put a copy back"})
	expect(t, run(t, o), "checkpoint", "position", preflight.Failed, "loading checkpoint /c: damaged checkpoint: it is empty", "put a copy back")

	o = options(t)
	if err := os.Symlink("elsewhere", o.CheckpointPath); err != nil {
		t.Fatal(err)
	}
	expect(t, run(t, o), "checkpoint", "file", preflight.Warning, "symbolic link")

	o = options(t, router.Rule{Table: "app.o", Topic: "t"}, router.Rule{Table: "app.p", Topic: "t"}, router.Rule{Table: "app.q", Topic: "t"})
	o.ReadCheckpoint = stored(&checkpoint.Checkpoint{Name: "test", GTIDSet: new(gtid.Set), Tables: []string{"app.o"}, Time: time.Now(), Instance: "host/1"}, nil)
	o.FromLatest = map[int]bool{2: true}
	r = run(t, o)
	expect(t, r, "checkpoint", "position", preflight.OK, "by host/1")
	expect(t, r, "checkpoint", "new table", preflight.Failed, "table app.p is new", "set from on tables[1]")
}

func TestServersThatAreNotThere(t *testing.T) {
	t.Parallel()
	r := run(t, options(t))
	expect(t, r, "source "+nothingListens, "login", preflight.Failed, "nothing listens at the MySQL address", "start the server")
	expect(t, r, "source "+nothingListens, "settings", preflight.Unknown)
	expect(t, r, "kafka", "broker "+nothingListens, preflight.Failed, "nothing listens at the Kafka address", "start the broker")
	expect(t, r, "kafka", "topics", preflight.Unknown)

	o := options(t)
	o.Addresses = []string{"no-such-host.invalid:3306"}
	o.Kafka.Brokers = []string{"no-such-host.invalid:9092"}
	r = run(t, o)
	expect(t, r, "source", "login", preflight.Failed, `MySQL host "no-such-host.invalid" cannot be found`)
	expect(t, r, "kafka", "broker no-such-host.invalid:9092", preflight.Failed, `Kafka host "no-such-host.invalid" cannot be found`)
}

func TestAServerThatSuits(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	db := m.NewDatabase(t)
	exec(t, m, "CREATE TABLE "+db+".o "+outboxColumns)
	o := options(t, router.Rule{Table: db + ".o", Topic: "t", Timestamp: "made", Headers: []router.HeaderRule{{Name: "*", Value: "{payload}"}, {Name: "u", Value: "{raw|uuid}-{kind}-{amount}"}}})
	o.Addresses = []string{m.Addr()}
	r := run(t, o)
	for _, item := range r.Items {
		if strings.HasPrefix(item.Area, "source") && item.State != preflight.OK {
			t.Errorf("%s: %s: %s", item.Name, item.State, item.Detail)
		}
	}
	for _, name := range []string{"login", "server", "REPLICATION SLAVE", "REPLICATION CLIENT", "log_bin", "binlog_format", "binlog_row_image", "binlog_row_metadata", "gtid_mode",
		"enforce_gtid_consistency", "binlog retention", "table " + db + ".o"} {
		expect(t, r, "source "+m.Addr(), name, preflight.OK)
	}
}

// While the binlog names no columns, a run has to read them.
func TestTheRightToReadTablesIsNeededWithoutNamesInTheBinlog(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--binlog-row-metadata=MINIMAL"}})
	exec(t, m, "CREATE DATABASE app", "CREATE TABLE app.o "+outboxColumns, "CREATE USER few@'%' IDENTIFIED BY 'relay'", "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO few@'%'")
	o := options(t, router.Rule{Table: "app.o", Topic: "t"})
	o.Addresses, o.Login = []string{m.Addr()}, login("few")
	expect(t, run(t, o), "source", "table app.o", preflight.Failed, "has to ask for them", "GRANT SELECT ON `app`.`o` TO 'few'@'%';")
	exec(t, m, "GRANT SELECT ON app.o TO few@'%'")
	expect(t, run(t, o), "source", "table app.o", preflight.OK)
}

func TestExactlyTheGrantsThatARunNeeds(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	db := m.NewDatabase(t)
	exec(t, m, "CREATE TABLE "+db+".o "+outboxColumns, "CREATE USER few@'%' IDENTIFIED BY 'relay'", "CREATE USER none@'%' IDENTIFIED BY 'relay'",
		"CREATE ROLE replicating", "GRANT REPLICATION SLAVE ON *.* TO replicating", "GRANT replicating TO few@'%'", "SET DEFAULT ROLE ALL TO few@'%'")
	t.Cleanup(func() { exec(t, m, "DROP USER few@'%', none@'%'", "DROP ROLE replicating") })
	o := options(t, router.Rule{Table: db + ".o", Topic: "t"})
	o.Addresses = []string{m.Addr()}
	o.Login = login("few")
	r := run(t, o)
	expect(t, r, "source", "REPLICATION SLAVE", preflight.OK) // by a role
	expect(t, r, "source", "REPLICATION CLIENT", preflight.Warning, "GRANT REPLICATION CLIENT ON *.* TO 'few'@'%';")
	expect(t, r, "source", "table "+db+".o", preflight.Unknown, "which a run does not need", "GRANT SELECT ON `"+db+"`.`o` TO 'few'@'%';")
	expect(t, r, "source", "XA_RECOVER_ADMIN", preflight.Warning, "cannot see those that are prepared", "GRANT XA_RECOVER_ADMIN ON *.* TO 'few'@'%';")
	for _, item := range r.Items {
		if strings.HasPrefix(item.Area, "source") && item.State == preflight.Failed {
			t.Errorf("%s fails: %s", item.Name, item.Detail)
		}
	}

	o.Login = login("none")
	expect(t, run(t, o), "source", "REPLICATION SLAVE", preflight.Failed, "cannot read the binlog", "GRANT REPLICATION SLAVE ON *.* TO 'none'@'%';")
	exec(t, m, "GRANT SELECT ON "+db+".o TO none@'%'")
	expect(t, run(t, o), "source", "table "+db+".o", preflight.OK)
}

func TestTablesAgainstTheRules(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	db := m.NewDatabase(t)
	exec(t, m, "CREATE TABLE "+db+".o "+outboxColumns, "CREATE VIEW "+db+".v AS SELECT * FROM "+db+".o", "CREATE TABLE "+db+".old "+outboxColumns+" ENGINE=MyISAM",
		"CREATE TABLE "+db+".`odd.name` (`a b` INT PRIMARY KEY)", "CREATE TABLE "+db+".padded (id INT(5) ZEROFILL PRIMARY KEY, f FLOAT(7,3), d DOUBLE, e ENUM('zerofill'))")
	o := options(t,
		router.Rule{Table: db + ".o", Topic: "x.{nope}", Key: "{nada}", Timestamp: "payload", Headers: []router.HeaderRule{{Name: "*", Value: "{event_type}"}, {Name: "u", Value: "{aggregate_id|uuid}"}}},
		router.Rule{Table: db + ".v", Topic: "t"}, router.Rule{Table: db + ".old", Topic: "t"}, router.Rule{Table: db + ".missing", Topic: "t"}, router.Rule{Table: "nosuch.o", Topic: "t"},
		router.Rule{Table: db + ".padded", Preset: "none", Topic: "t", Key: "{id}", Value: "{d}"},
		router.Rule{Table: db + ".`odd.name`", Preset: "none", Topic: "t", Key: "{a b}", Value: "{A B}"})
	o.Addresses = []string{m.Addr()}
	r := run(t, o)
	label := "table " + db + ".o"
	expect(t, r, "source", label, preflight.Failed, "has no column nope, which tables[0].topic needs; its columns are id, aggregate_type")
	expect(t, r, "source", label, preflight.Failed, "has no column nada, which tables[0].key needs")
	expect(t, r, "source", label, preflight.Failed, "column payload cannot serve tables[0].timestamp")
	expect(t, r, "source", label, preflight.Failed, "column event_type cannot serve tables[0].headers[0]: only a JSON column can be spread into headers")
	expect(t, r, "source", label, preflight.Failed, "column aggregate_id cannot serve tables[0].headers[1]: filter uuid takes a binary column")
	expect(t, r, "source", "table "+db+".v", preflight.Failed, "it is a view")
	expect(t, r, "source", "table "+db+".old", preflight.Warning, "MyISAM has no transactions", "ENGINE=InnoDB;")
	expect(t, r, "source", "table "+db+".missing", preflight.Failed, "no such table")
	expect(t, r, "source", "table nosuch.o", preflight.Failed, "no such table")
	expect(t, r, "source", "table "+db+".`odd.name`", preflight.OK)
	padded := "table " + db + ".padded"
	expect(t, r, "source", padded, preflight.Warning, "column id is int(5) unsigned zerofill: its number is published without the zeros")
	expect(t, r, "source", padded, preflight.Warning, "column f is float(7,3)")
	for _, item := range r.Items {
		if item.Name == padded && (strings.Contains(item.Detail, "column d") || strings.Contains(item.Detail, "column e")) {
			t.Errorf("%s", item.Detail)
		}
	}
}
