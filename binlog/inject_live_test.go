package binlog_test

import (
	"strconv"
	"strings"
	"testing"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
)

// eachVersion runs a test on a server of its own of each version.
func eachVersion(t *testing.T, test func(*testing.T, *sandbox.MySQL)) {
	for _, version := range []string{"9.7", "8.0"} {
		t.Run(version, func(t *testing.T) { test(t, sandbox.RunMySQL(t, sandbox.MySQLOptions{Version: version})) })
	}
}

func TestBinlogChecksumChangedOnTheServerWhileReading(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, m *sandbox.MySQL) {
		b := newBench(t, m, nil)
		start := b.executed()
		b.exec("INSERT INTO o(aggregate_id) VALUES ('a')")
		equal(t, b.rows(1), "1 a NULL")
		b.exec("SET GLOBAL binlog_checksum = NONE", "INSERT INTO o(aggregate_id) VALUES ('b')")
		equal(t, b.rows(1), "2 b NULL")
		b.exec("INSERT INTO o(aggregate_id, payload) VALUES ('c', REPEAT('p', 1000000))", "SET GLOBAL binlog_checksum = CRC32", "INSERT INTO o(aggregate_id) VALUES ('d')",
			"SET GLOBAL binlog_checksum = NONE", "INSERT INTO o(aggregate_id) VALUES ('e')")
		equal(t, b.rows(3), "3 c "+strings.Repeat("p", 1000000), "4 d NULL", "5 e NULL")
		// A dump that begins with a server that writes none, through files with and without.
		b.reader.Close()
		b.open(start, nil)
		b.exec("SET GLOBAL binlog_checksum = CRC32", "INSERT INTO o(aggregate_id) VALUES ('f')")
		got := b.rows(6)
		got[2] = got[2][:3]
		equal(t, got, "1 a NULL", "2 b NULL", "3 c", "4 d NULL", "5 e NULL", "6 f NULL")
	})
}

func TestThePositionBehindSkippedTransactionsIsTheServers(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, m *sandbox.MySQL) {
		b := newBench(t, m, nil)
		b.exec("INSERT INTO f(v) VALUES ('x')", "INSERT INTO f(v) VALUES ('y')", "INSERT INTO o(aggregate_id) VALUES ('a')")
		b.rows(1)
		file, pos := serverPosition(t, b)
		if b.last.File != file || b.last.Position != pos {
			t.Errorf("the reader is at %s:%d, the server at %s:%d", b.last.File, b.last.Position, file, pos)
		}
		b.reader.Close()
		b.open(b.executed(), nil) // everything is skipped; only a heartbeat tells where the server is
		for b.last.File != file || b.last.Position != pos {
			tx, err := b.reader.Next(b.ctx)
			if err != nil {
				t.Fatalf("the reader never came to %s:%d: %v", file, pos, err)
			}
			b.last = tx
		}
	})
}

func serverPosition(t *testing.T, b *bench) (file string, pos uint64) {
	t.Helper()
	var number string
	var rest [3]any
	var err error
	for _, statement := range []string{"SHOW BINARY LOG STATUS", "SHOW MASTER STATUS"} { // the second before 8.2
		if err = b.db.QueryRow(statement).Scan(&file, &number, &rest[0], &rest[1], &rest[2]); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if pos, err = strconv.ParseUint(number, 10, 64); err != nil {
		t.Fatal(err)
	}
	return file, pos
}

func TestGTIDModeChangedOnTheServerWhileReading(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, m *sandbox.MySQL) {
		b := newBench(t, m, nil)
		b.exec("INSERT INTO o(aggregate_id) VALUES ('a')")
		equal(t, b.rows(1), "1 a NULL")
		start := b.executed()
		b.exec("SET GLOBAL gtid_mode = ON_PERMISSIVE", "INSERT INTO o(aggregate_id) VALUES ('b')", // still has a GTID
			"SET GLOBAL gtid_mode = OFF_PERMISSIVE", "INSERT INTO o(aggregate_id) VALUES ('without')")
		position := start.Clone()
		rows, err := rowsUntilError(b, position)
		equal(t, rows, "2 b NULL")
		place := binlog.Place{Server: b.last.GTID.UUID, File: b.last.File, Position: b.last.Position}
		wantReason(t, err, binlog.ReasonGTIDMode, "gtid_mode", "GTID")
		b.reader.Close()

		// It stays refused for as long as the server is not back. That a transaction without GTID is not seen later is said now.
		b.open(position, nil)
		_, err = rowsUntilError(b, position)
		wantReason(t, err, binlog.ReasonGTIDMode, "gtid_mode=OFF_PERMISSIVE", "gtid_mode=OFF_PERMISSIVE, ON_PERMISSIVE, ON", "by hand")
		b.reader.Close()

		b.exec("SET GLOBAL gtid_mode = ON_PERMISSIVE", "SET GLOBAL gtid_mode = ON", "INSERT INTO o(aggregate_id) VALUES ('c')")
		// The server itself refuses to send a file with such a transaction.
		b.open(start, nil)
		rows, err = rowsUntilError(b, start.Clone())
		equal(t, rows, "2 b NULL")
		wantReason(t, err, binlog.ReasonGTIDMode, "transaction without GTID", "gtid_mode=ON", "by hand")
		b.reader.Close()
		// But it does not know of one in a file that holds nothing else for the reader, who has to look behind where it was.
		b.open(position, func(o *binlog.Options) { o.Place = place })
		_, err = rowsUntilError(b, position.Clone())
		wantReason(t, err, binlog.ReasonGTIDMode, "holds a transaction without GTID at binlog.0", "leaves out", "by hand")
		b.reader.Close()
		// Whoever sets the position behind it says by that that it was dealt with.
		b.open(position, nil)
		equal(t, b.rows(1), "4 c NULL")
		server, file, pos := b.reader.Source()
		b.reader.Close()
		// Nothing is behind the end, nor behind a place that is not there, nor on another server.
		b.exec("FLUSH BINARY LOGS", "FLUSH BINARY LOGS", "INSERT INTO o(aggregate_id) VALUES ('d')")
		for _, place := range []binlog.Place{{Server: server.UUID, File: file, Position: pos}, {Server: server.UUID, File: "gone.000001", Position: 4}, {Server: server.UUID, File: file, Position: 1 << 40}, {Server: gtid.UUID{1}, File: place.File, Position: place.Position}} {
			at := b.executed()
			at.Remove(gtid.GTID{UUID: server.UUID, Number: int64(at.Count())})
			b.open(at, func(o *binlog.Options) { o.Place = place })
			equal(t, b.rows(1), "5 d NULL")
			b.reader.Close()
		}
	})
}

func TestGTIDModeThatWasOffWithoutATransactionLosesNothing(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, m *sandbox.MySQL) {
		b := newBench(t, m, nil)
		b.exec("INSERT INTO o(aggregate_id) VALUES ('a')", "SET GLOBAL gtid_mode = ON_PERMISSIVE", "INSERT INTO o(aggregate_id) VALUES ('b')",
			"SET GLOBAL gtid_mode = OFF_PERMISSIVE", "SET GLOBAL gtid_mode = ON_PERMISSIVE", "SET GLOBAL gtid_mode = ON", "INSERT INTO o(aggregate_id) VALUES ('c')")
		equal(t, b.rows(3), "1 a NULL", "2 b NULL", "3 c NULL")
	})
}

// rowsUntilError reads until the reader stops. The position gains what it has handed on.
func rowsUntilError(b *bench, position *gtid.Set) (rows []string, err error) {
	for {
		tx, err := b.reader.Next(b.ctx)
		if err != nil {
			return rows, err
		}
		rows = append(rows, b.take(tx)...)
		for _, r := range tx.Ranges {
			position.AddRange(r)
		}
	}
}
