package binlog_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
)

// next runs Next in a goroutine and returns its error.
func next(ctx context.Context, r *binlog.Reader) <-chan error {
	done := make(chan error, 1)
	go func() {
		for {
			if _, err := r.Next(ctx); err != nil {
				done <- err
				return
			}
		}
	}()
	return done
}

func wantReason(t *testing.T, err error, want binlog.Reason, words ...string) {
	t.Helper()
	var s *binlog.SourceError
	if !errors.As(err, &s) || s.Reason != want {
		t.Fatalf("got %v, want a source error for %s", err, want)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func TestAFrozenServerDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	b := newBench(t, m, nil)
	b.exec("INSERT INTO o(aggregate_id) VALUES ('k')")
	b.rows(1)
	ctx, cancel := context.WithCancel(b.ctx)
	b.reader.Close()
	b.open(b.executed(), nil)
	done := next(ctx, b.reader)
	waitConnected(t, b.reader)
	if err := m.Pause(); err != nil {
		t.Fatal(err)
	}
	defer m.Resume()
	start := time.Now()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("the end took %s", d)
	}
	// The handshake with a frozen server can be ended as well.
	ctx, cancel = context.WithTimeout(b.ctx, 300*time.Millisecond)
	defer cancel()
	start = time.Now()
	if err := <-next(ctx, b.reader); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if d := time.Since(start); d > 1300*time.Millisecond {
		t.Errorf("the end took %s", d)
	}
}

func waitConnected(t *testing.T, r *binlog.Reader) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !r.Status().Connected || r.Status().Searching; {
		if time.Now().After(deadline) {
			t.Fatalf("not connected: %+v", r.Status())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestASilentLinkIsFoundAndReplaced(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	p := sandbox.RunProxy(t, m.Addr())
	b := newBench(t, m, func(o *binlog.Options) { o.Addresses, o.Heartbeat = []string{p.Addr()}, 200*time.Millisecond })
	b.exec("INSERT INTO o(aggregate_id) VALUES ('before')")
	equal(t, b.rows(1), "1 before NULL")
	p.Freeze() // the sockets stay open, nothing comes through
	b.exec("INSERT INTO o(aggregate_id) VALUES ('meanwhile')")
	go func() {
		for b.reader.Status().Connected {
			time.Sleep(10 * time.Millisecond)
		}
		p.Thaw()
	}()
	equal(t, b.rows(1), "2 meanwhile NULL")
}

func TestAKilledDumpThreadLosesNothing(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	b := newBench(t, m, nil)
	for i := range 5 {
		b.exec("INSERT INTO o(aggregate_id) VALUES ('k')")
		equal(t, b.rows(1), fmt.Sprintf("%d k NULL", i+1))
		var id int
		if err := b.db.QueryRow("SELECT id FROM performance_schema.processlist WHERE command = 'Binlog Dump GTID'").Scan(&id); err != nil {
			t.Fatal(err)
		}
		b.exec(fmt.Sprintf("KILL %d", id))
	}
}

func TestTheNewerReaderOfANameWins(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.SharedMySQL(t), nil)
	first := b.reader
	done := next(b.ctx, first)
	waitConnected(t, first)
	b.open(b.executed(), nil)
	ctx, cancel := context.WithCancel(b.ctx)
	second := next(ctx, b.reader)
	select {
	case err := <-done:
		if !errors.Is(err, binlog.ErrFenced) {
			t.Errorf("the older reader ended with %v", err)
		}
	case err := <-second:
		t.Fatalf("the newer reader ended with %v", err)
	}
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("the newer reader ended with %v", err)
	}
}

func TestAPurgedPositionIsNamed(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	b := newBench(t, m, nil)
	start := b.executed()
	b.exec("INSERT INTO o(aggregate_id) VALUES ('lost')", "FLUSH BINARY LOGS", "INSERT INTO o(aggregate_id) VALUES ('kept')")
	var file, x1, x2, x3, x4 any
	if err := b.db.QueryRow("SHOW BINARY LOG STATUS").Scan(&file, &x1, &x2, &x3, &x4); err != nil {
		t.Fatal(err)
	}
	missing := gtid.Minus(b.executed(), start)
	b.exec(fmt.Sprintf("PURGE BINARY LOGS TO '%s'", file))
	err := <-next(b.ctx, b.reader)
	wantReason(t, err, binlog.ReasonPurged, "purged", "source.start to earliest")
	// Only the first of the two transactions is missing.
	for r := range missing.Ranges() {
		if want := (gtid.GTID{UUID: r.UUID, Number: r.First}).String(); !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %s", err, want)
		}
	}
}

func TestAServerThatLacksWhatWasReadIsRefused(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	b := newBench(t, m, nil)
	set := b.executed()
	set.AddRange(gtid.Range{UUID: gtid.UUID{1, 2, 3}, First: 5, Last: 9}) // the server itself would not notice: it is not its own UUID
	b.open(set, nil)
	wantReason(t, <-next(b.ctx, b.reader), binlog.ReasonDiverged, "01020300-0000-0000-0000-000000000000:5-9")
}

func TestStatementFormatWritesOfAWatchedDatabaseStopTheReader(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	b := newBench(t, m, nil)
	other := m.NewDatabase(t)
	b.exec("SET SESSION binlog_format = STATEMENT", "CREATE TABLE "+other+".x (id INT)", "INSERT INTO "+other+".x VALUES (1)", "SET SESSION binlog_format = ROW", "INSERT INTO o(aggregate_id) VALUES ('k')")
	equal(t, b.rows(1), "1 k NULL") // a foreign database does not matter
	b.exec("SET SESSION binlog_format = STATEMENT", "INSERT INTO o(aggregate_id) VALUES ('unseen')")
	wantReason(t, <-next(b.ctx, b.reader), binlog.ReasonStatementWrite, b.name, "on_statement_write", "transaction ")

	// A trigger of a foreign table writes into the outbox: the event lists both databases.
	b.open(b.executed(), nil)
	b.exec("CREATE TABLE "+other+".y (id INT)", "CREATE TRIGGER "+other+".tr AFTER INSERT ON "+other+".y FOR EACH ROW INSERT INTO "+b.name+".o(aggregate_id) VALUES ('unseen')",
		"SET SESSION binlog_format = STATEMENT", "INSERT INTO "+other+".y VALUES (1)")
	wantReason(t, <-next(b.ctx, b.reader), binlog.ReasonStatementWrite)

	b.open(b.executed(), func(o *binlog.Options) { o.IgnoreStatementWrites = true })
	b.exec("SET SESSION binlog_format = STATEMENT", "INSERT INTO o(aggregate_id) VALUES ('unseen')", "SET SESSION binlog_format = ROW", "INSERT INTO o(aggregate_id) VALUES ('seen')")
	got := b.rows(1)
	if !strings.HasSuffix(got[0], " seen NULL") {
		t.Errorf("got %q", got)
	}
}

func TestTwoSpellingsOfOneTableStopTheReaderWhereCaseDoesNotMatter(t *testing.T) {
	t.Parallel()
	twice := func(o *binlog.Options) {
		o.Tables = append(o.Tables, binlog.TableName{Schema: o.Tables[0].Schema, Name: "O"})
	}
	b := newBench(t, sandbox.RunMySQL(t, sandbox.MySQLOptions{FoldNames: true}), twice)
	wantReason(t, <-next(b.ctx, b.reader), binlog.ReasonTableNames, b.name+".o and "+b.name+".O are one table", "in one way")

	b = newBench(t, sandbox.SharedMySQL(t), twice) // here they are two
	b.exec("CREATE TABLE O LIKE o", "INSERT INTO O(aggregate_id) VALUES ('upper')", "INSERT INTO o(aggregate_id) VALUES ('lower')")
	equal(t, b.rows(2), "1 upper NULL", "1 lower NULL")
}

func TestRowsOfACreateTableSelectInStatementFormatAreNotLostInSilence(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.SharedMySQL(t), nil)
	b.exec("DROP TABLE o", "INSERT INTO f(v) VALUES ('x')", "SET SESSION binlog_format = STATEMENT", "CREATE TABLE o SELECT id, v AS aggregate_id, v AS payload FROM f")
	wantReason(t, <-next(b.ctx, b.reader), binlog.ReasonStatementWrite, b.name)

	other := b.mysql.NewDatabase(t)
	b.open(b.executed(), nil)
	b.exec("DROP TABLE o", outboxTable, "CREATE TABLE "+other+".f SELECT * FROM f", "SET SESSION binlog_format = STATEMENT", "CREATE TABLE "+other+".c SELECT * FROM "+other+".f", "CREATE VIEW v AS SELECT * FROM f", "SET SESSION binlog_format = ROW",
		"CREATE TABLE c SELECT * FROM f", "INSERT INTO o(aggregate_id) VALUES ('k')")
	equal(t, b.rows(1), "1 k NULL")
}

func TestACommitOfAnUnknownBranchStopsTheReader(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.RunMySQL(t, sandbox.MySQLOptions{}), nil)
	b.exec("XA START 'unknown'", "INSERT INTO o(aggregate_id) VALUES ('k')", "XA END 'unknown'", "XA PREPARE 'unknown'")
	b.open(b.executed(), nil)
	b.exec("XA COMMIT 'unknown'", "INSERT INTO o(aggregate_id) VALUES ('behind')")
	wantReason(t, <-next(b.ctx, b.reader), binlog.ReasonUnknownXA, "on_unknown_xa")
}

// flipper is a connection that changes one byte of the stream after n bytes, once.
type flipper struct {
	net.Conn
	left *atomic.Int64
}

func (f flipper) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if left := f.left.Add(int64(-n)); left <= 0 && left+int64(n) > 0 {
		p[left+int64(n)-1] ^= 0x10
	}
	return n, err
}

func TestADamagedByteIsReadAgain(t *testing.T) {
	t.Parallel()
	var left atomic.Int64
	left.Store(1 << 40)
	b := newBench(t, sandbox.SharedMySQL(t), func(o *binlog.Options) {
		o.Login.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, network, address)
			return flipper{c, &left}, err
		}
	})
	b.exec("INSERT INTO o(aggregate_id) VALUES ('first')")
	equal(t, b.rows(1), "1 first NULL")
	for n := range int64(40) {
		// Within the 200 bytes of a small transaction, every few bytes.
		left.Store(1 + n*11)
		want := fmt.Sprintf("v%d", n)
		b.exec("INSERT INTO o(aggregate_id) VALUES ('" + want + "')")
		equal(t, b.rows(1), fmt.Sprintf("%d %s NULL", n+2, want))
	}
}

func TestTaggedTransactionsAndLargeNumbers(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	b := newBench(t, m, nil)
	start := b.executed()
	const large = "eeeeeeee-ffff-ffff-ffff-ffffffffffff:bar:36028797018963968"
	b.exec("SET gtid_next = 'AUTOMATIC:zz'", "INSERT INTO o(aggregate_id) VALUES ('tagged')", "SET gtid_next = 'AUTOMATIC'", "INSERT INTO o(aggregate_id) VALUES ('plain')",
		"SET gtid_next = '"+large+"'", "INSERT INTO o(aggregate_id) VALUES ('large')", "SET gtid_next = 'eeeeeeee-ffff-ffff-ffff-ffffffffffff:7'", "BEGIN", "COMMIT", "SET gtid_next = 'AUTOMATIC'")
	var got []string
	for set := start.Clone(); !set.Equal(b.executed()); {
		tx, err := b.reader.Next(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b.take(tx)...)
		for _, r := range tx.Ranges {
			set.AddRange(r)
		}
		start = set
	}
	equal(t, got, "1 tagged NULL", "2 plain NULL", "3 large NULL")
	b.reader.Close()
	b.open(start, nil) // a tagged set in the dump command
	b.exec("INSERT INTO o(aggregate_id) VALUES ('again')")
	equal(t, b.rows(1), "4 again NULL")
}

func TestServersThatCannotBeReadAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		arg  string
		want binlog.Reason
	}{
		{"--gtid-mode=OFF_PERMISSIVE", binlog.ReasonGTIDMode},
		{"--skip-log-bin", binlog.ReasonBinlogOff},
		{"--binlog-format=MIXED", binlog.ReasonFormat},
	} {
		m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{c.arg}})
		b := newBench(t, m, nil)
		wantReason(t, <-next(b.ctx, b.reader), c.want)
		m.Close()
	}
}

func TestAWrongPasswordIsOneSentence(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.SharedMySQL(t), func(o *binlog.Options) {
		o.Login.Password = func(context.Context) (string, error) { return "wrong", nil }
	})
	err := <-next(b.ctx, b.reader)
	var c *binlog.ConnectError
	if !errors.As(err, &c) || !c.Lasting() || !strings.Contains(err.Error(), `refuses user "relay"`) || !strings.Contains(err.Error(), "source.password") {
		t.Errorf("got %v", err)
	}
}

func TestAReaderWithNothingToReadSaysSoBeforeAHeartbeat(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.RunMySQL(t, sandbox.MySQLOptions{}), nil)
	b.open(b.executed(), func(o *binlog.Options) { o.Heartbeat = time.Hour })
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	tx, err := b.reader.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if !tx.CaughtUp || len(tx.Ranges) > 0 || tx.HasRows {
		t.Errorf("got %+v", tx)
	}
}
