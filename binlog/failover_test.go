package binlog_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
)

// onServer runs statements with one account's rights over all.
func onServer(t *testing.T, m *sandbox.MySQL, statements ...string) {
	t.Helper()
	if err := m.Exec(context.Background(), statements...); err != nil {
		t.Fatal(err)
	}
}

// replicate makes a new server a replica of another one, from now on.
func replicate(t *testing.T, b *bench, replica *sandbox.MySQL) {
	t.Helper()
	host, port, err := net.SplitHostPort(b.mysql.Addr())
	if err != nil {
		t.Fatal(err)
	}
	onServer(t, replica, "RESET BINARY LOGS AND GTIDS", fmt.Sprintf("SET GLOBAL gtid_purged = '%s'", b.executed()),
		"CREATE DATABASE "+b.name, "USE "+b.name, outboxTable, "RESET BINARY LOGS AND GTIDS", fmt.Sprintf("SET GLOBAL gtid_purged = '%s'", b.executed()), "SET GLOBAL server_id = 4711",
		fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_PORT=%s, SOURCE_USER='relay', SOURCE_PASSWORD='relay', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1, SOURCE_HEARTBEAT_PERIOD=1", host, port),
		"START REPLICA")
}

func TestAReplicaThatIsBehindIsWaitedFor(t *testing.T) {
	t.Parallel()
	source, replica := sandbox.RunMySQL(t, sandbox.MySQLOptions{}), sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	b := newBench(t, source, nil)
	replicate(t, b, replica)
	b.open(b.executed(), func(o *binlog.Options) {
		o.Addresses = append(o.Addresses, replica.Addr())
		o.ContinueDiverged = true // which is not for what a replica will get still
	})
	b.exec("INSERT INTO o(aggregate_id) VALUES ('both')")
	equal(t, b.rows(1), "1 both NULL")
	waitForSet(t, replica, b.executed())
	onServer(t, replica, "STOP REPLICA SQL_THREAD")
	b.exec("INSERT INTO o(aggregate_id) VALUES ('late')")
	equal(t, b.rows(1), "2 late NULL")
	for begun := time.Now(); text(t, replica, "SELECT RECEIVED_TRANSACTION_SET FROM performance_schema.replication_connection_status") == ""; time.Sleep(10 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			t.Fatal("the replica receives nothing")
		}
	}
	if err := source.Kill(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	got := next(ctx, b.reader)
	waits := func(why string) {
		t.Helper()
		for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			if err := b.reader.Status().LastError; err != nil && strings.Contains(err.Error(), why) {
				return
			}
			select {
			case err := <-got:
				t.Fatalf("the reader went on with a replica that is behind: %v", err)
			default:
			}
			if time.Since(begun) > time.Minute {
				t.Fatalf("the last error is %v", b.reader.Status().LastError)
			}
		}
	}
	waits("its applier is stopped")
	// The applier runs and stands still at a lock, as one does that has much to do.
	locker, err := replica.DB(t, b.name).Conn(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer locker.Close()
	if _, err := locker.ExecContext(b.ctx, "LOCK TABLES o WRITE"); err != nil {
		t.Fatal(err)
	}
	onServer(t, replica, "START REPLICA SQL_THREAD")
	waits("has not executed transactions yet")
	if _, err := locker.ExecContext(b.ctx, "UNLOCK TABLES"); err != nil {
		t.Fatal(err)
	}
	cancel()
	<-got
	onServer(t, replica, "STOP REPLICA", "RESET REPLICA ALL", "USE "+b.name, "INSERT INTO o(aggregate_id) VALUES ('promoted')")
	equal(t, b.rows(1), "3 promoted NULL")
}

func TestATransactionLostInAFailoverIsGivenUpByPolicyOnly(t *testing.T) {
	t.Parallel()
	source, replica := sandbox.RunMySQL(t, sandbox.MySQLOptions{}), sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	b := newBench(t, source, nil)
	replicate(t, b, replica)
	start := b.executed()
	b.exec("INSERT INTO o(aggregate_id) VALUES ('both')")
	waitForSet(t, replica, b.executed())
	both := b.executed()
	onServer(t, replica, "STOP REPLICA", "RESET REPLICA ALL")
	b.exec("INSERT INTO o(aggregate_id) VALUES ('lost')", "XA START 'x'", "INSERT INTO o(aggregate_id) VALUES ('prepared')", "XA END 'x'", "XA PREPARE 'x'")
	lost := gtid.Minus(b.executed(), both)
	reg := prometheus.NewRegistry()
	two := func(policy bool) func(o *binlog.Options) {
		return func(o *binlog.Options) {
			o.Addresses = append(o.Addresses, replica.Addr())
			o.ContinueDiverged, o.Registerer = policy, reg
		}
	}
	b.open(start, two(true))
	equal(t, b.rows(2), "1 both NULL", "2 lost NULL")
	for gaugeValue(t, reg, "outbox_relay_xa_pending") != 1 {
		if _, err := b.reader.Next(b.ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := source.Kill(); err != nil {
		t.Fatal(err)
	}
	onServer(t, replica, "USE "+b.name, "INSERT INTO o(aggregate_id) VALUES ('promoted')")
	var given *gtid.Set
	for {
		tx, err := b.reader.Next(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if tx.Lost != nil {
			given = tx.Lost.Clone()
		}
		if rows := b.take(tx); len(rows) > 0 {
			equal(t, rows, "2 promoted NULL")
			break
		}
	}
	// The number of the PREPARE is lost with the rest, and with it the branch.
	if given == nil || !given.Equal(lost) {
		t.Errorf("given up: %v, lost were %s", given, lost)
	}
	if n := gaugeValue(t, reg, "outbox_relay_xa_pending"); n != 0 {
		t.Errorf("%v branches pending", n)
	}

	// By default it stops where no address has everything.
	b.open(joinedSets(both, lost), func(o *binlog.Options) { o.Addresses = []string{replica.Addr()} })
	wantReason(t, <-next(b.ctx, b.reader), binlog.ReasonDiverged, lost.String())
}

func TestAGapIsSkippedByPolicyOnly(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	b := newBench(t, m, nil)
	start := b.executed()
	b.exec("INSERT INTO o(aggregate_id) VALUES ('1')", "INSERT INTO o(aggregate_id) VALUES ('2')", "FLUSH BINARY LOGS", "PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY", "INSERT INTO o(aggregate_id) VALUES ('3')")
	reg := prometheus.NewRegistry()
	b.open(start, func(o *binlog.Options) { o.SkipGap, o.Registerer = true, reg })
	position := start.Clone()
	for {
		tx, err := b.reader.Next(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range tx.Ranges {
			position.AddRange(r)
		}
		if rows := b.take(tx); len(rows) > 0 {
			equal(t, rows, "3 3 NULL")
			break
		}
	}
	if want := b.executed(); !position.Equal(want) {
		t.Errorf("the position is %s, the server has executed %s", position, want)
	}
	if n := gaugeValue(t, reg, "outbox_relay_gap_transactions"); n != 2 {
		t.Errorf("a gap of %v, want 2", n)
	}
}

func joinedSets(a, b *gtid.Set) *gtid.Set {
	c := a.Clone()
	c.AddSet(b)
	return c
}

func text(t *testing.T, m *sandbox.MySQL, query string) string {
	t.Helper()
	var s string
	if err := m.DB(t, "").QueryRow(query).Scan(&s); err != nil {
		t.Fatal(err)
	}
	return s
}

func waitForSet(t *testing.T, m *sandbox.MySQL, want *gtid.Set) {
	t.Helper()
	if text(t, m, fmt.Sprintf("SELECT WAIT_FOR_EXECUTED_GTID_SET('%s', 60)", want)) != "0" {
		t.Fatalf("%s are not replicated after a minute", want)
	}
}
