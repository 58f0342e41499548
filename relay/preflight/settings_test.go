package preflight_test

import (
	"context"
	"testing"
	"time"

	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/preflight"
)

func TestSettingsThatDoNotSuit(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{
		"--binlog-format=MIXED", "--binlog-row-image=MINIMAL", "--binlog-row-metadata=MINIMAL", "--gtid-mode=OFF", "--enforce-gtid-consistency=WARN",
		"--binlog-expire-logs-seconds=7200", "--log-replica-updates=OFF", "--binlog-ignore-db=app", "--lower-case-table-names=0",
	}})
	exec(t, m, "CREATE DATABASE app", "CREATE TABLE app.o "+outboxColumns)
	o := options(t)
	o.Addresses = []string{m.Addr()}
	o.ReadCheckpoint = stored(&checkpoint.Checkpoint{Name: "test", GTIDSet: new(gtid.Set), Tables: []string{"app.o"}, Time: time.Now().Add(-90 * time.Minute)}, nil)
	r := run(t, o)
	expect(t, r, "source", "binlog_format", preflight.Failed, "MIXED", "SET PERSIST binlog_format = 'ROW';")
	expect(t, r, "source", "binlog_row_image", preflight.Warning, "MINIMAL: a row lacks the columns", "SET PERSIST binlog_row_image = 'FULL';")
	expect(t, r, "source", "binlog_row_metadata", preflight.Warning, "MINIMAL: the binlog does not name the columns", "SET PERSIST binlog_row_metadata = 'FULL';")
	expect(t, r, "source", "gtid_mode", preflight.Failed, "OFF", "SET PERSIST gtid_mode = ON_PERMISSIVE;", "SET PERSIST gtid_mode = ON;")
	expect(t, r, "source", "enforce_gtid_consistency", preflight.Failed, "WARN", "SET PERSIST enforce_gtid_consistency = ON;")
	expect(t, r, "source", "binlog retention", preflight.Warning, "2 hours", "SET PERSIST binlog_expire_logs_seconds = 259200;")
	expect(t, r, "source", "checkpoint age", preflight.Warning, "is 2 hours old and binlogs are kept for 2 hours")
	expect(t, r, "source", "log_replica_updates", preflight.Warning, "OFF")
	expect(t, r, "source", "binlog filter", preflight.Failed, "leaves database app out of its binlog")
	expect(t, r, "source", "table app.o", preflight.OK)
}

func TestAServerWithoutBinlog(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--skip-log-bin", "--lower-case-table-names=0"}})
	o := options(t)
	o.Addresses = []string{m.Addr()}
	expect(t, run(t, o), "source", "log_bin", preflight.Failed, "OFF: the server writes no binlog", "start it with --log-bin")
}

func TestPositionsOnTheServer(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	exec(t, m, "CREATE DATABASE app", "CREATE TABLE app.o "+outboxColumns, "FLUSH BINARY LOGS", "INSERT INTO app.o (event_type) VALUES ('x')",
		"PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY", "INSERT INTO app.o (event_type) VALUES ('y')")
	var executed, uuid string
	if err := m.DB(t, "").QueryRow("SELECT @@global.gtid_executed, @@server_uuid").Scan(&executed, &uuid); err != nil {
		t.Fatal(err)
	}
	at := func(set, start string) *preflight.Report {
		o := options(t)
		o.Addresses, o.Start = []string{m.Addr()}, start
		if set != "" {
			s, err := gtid.ParseSet(set)
			if err != nil {
				t.Fatal(err)
			}
			o.ReadCheckpoint = stored(&checkpoint.Checkpoint{Name: "test", GTIDSet: s, Tables: []string{"app.o"}, Time: time.Now()}, nil)
		}
		return run(t, o)
	}
	expect(t, at(executed, ""), "source", "position", preflight.OK, "0 transactions behind")
	expect(t, at(uuid+":1-3", ""), "source", "position", preflight.OK, " transactions behind the server, all of them in its binlogs")
	expect(t, at(uuid+":1", ""), "source", "position", preflight.Failed, "has purged ", uuid+":2", "source.start to earliest")
	expect(t, at(uuid+":1-1000", ""), "source", "position", preflight.Failed, "lacks ", uuid, "-1000", "remove the checkpoint")
	expect(t, at("", uuid+":1"), "source", "source.start", preflight.Failed, "has purged ", "set source.start to earliest")
	expect(t, at("", executed), "source", "source.start", preflight.OK)
	absent(t, at("", "earliest"), "source", "source.start")

	db := m.DB(t, "app")
	conn, err := db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"DO GET_LOCK('outbox-relay/test', 0)", "XA START 'a'", "INSERT INTO o (event_type) VALUES ('xa')", "XA END 'a'", "XA PREPARE 'a'"} {
		if _, err := conn.ExecContext(context.Background(), s); err != nil {
			t.Fatal(err)
		}
	}
	r := at("", "latest")
	expect(t, r, "source", "prepared XA", preflight.Warning, "1 XA branches are prepared", "XA RECOVER CONVERT XID;")
	expect(t, r, "source", "XA_RECOVER_ADMIN", preflight.OK, "granted")
	absent(t, at(executed, "latest"), "source", "XA_RECOVER_ADMIN") // nothing asks for it once there is a checkpoint
	expect(t, r, "source", "activity lock", preflight.OK, "a relay called test is active")
}
