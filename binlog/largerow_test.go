package binlog_test

import (
	"fmt"
	"strings"
	"testing"

	"outbox-relay/binlog"
	"outbox-relay/internal/sandbox"
)

const mb = 1_000_000

// numberedRows reads until n rows have come and returns each as "number: text", with "size > limit" behind it where it is beyond the limit.
// Texts longer than 40 bytes are given by their length.
func (b *bench) numberedRows(n int) []string {
	b.t.Helper()
	var got []string
	var row binlog.Row
	for len(got) < n {
		tx, err := b.reader.Next(b.ctx)
		if err != nil {
			b.t.Fatalf("after %q: %v", got, err)
		}
		b.last = tx
		for {
			ok, err := tx.NextRow(&row)
			if err != nil {
				b.t.Fatalf("after %q: %v", got, err)
			}
			if !ok {
				break
			}
			text := rowText(b.t, &row)
			if len(text) > 40 {
				text = fmt.Sprintf("%.8s… of %d", text, len(text))
			}
			text = fmt.Sprintf("%d: %s", row.Number, text)
			if row.Limit > 0 {
				text += fmt.Sprintf(" %d > %d", row.Size, row.Limit)
			}
			got = append(got, text)
		}
	}
	return got
}

// of is a row of o beyond a limit: null bitmap, id, and the variable columns with their lengths.
func of(number, id int, aggregate string, payload, limit int) string {
	return fmt.Sprintf("%d: %d %s dropped %d > %d", number, id, aggregate, 1+8+2+len(aggregate)+4+payload, limit)
}

func TestRowBeyondTheLimitComesWithItsShortValues(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	b := newBench(t, sandbox.SharedMySQL(t), func(o *binlog.Options) { o.RowLimit = limit })
	b.exec("BEGIN", "INSERT INTO o(aggregate_id) VALUES ('before')", "INSERT INTO o(aggregate_id, payload) VALUES ('k', REPEAT('y', 3000000))",
		"INSERT INTO o(aggregate_id) VALUES ('behind')", "COMMIT")
	equal(t, b.numberedRows(3), "0: 1 before NULL", of(1, 2, "k", 3*mb, limit), "2: 3 behind NULL")
	b.exec("INSERT INTO o VALUES (9, NULL, REPEAT('z', 2000000))", "INSERT INTO o VALUES (10, '', '')") // NULL and empty stay what they are
	equal(t, b.numberedRows(2), fmt.Sprintf("0: 9 NULL dropped %d > %d", 1+8+4+2*mb, limit), "0: 10  ")
}

// A row event holds several rows up to binlog_row_event_max_size; the limit is about rows.
func TestRowsOfOneEventAreJudgedOneByOne(t *testing.T) {
	t.Parallel()
	for _, o := range []sandbox.MySQLOptions{
		{Version: "9.7", Args: []string{"--binlog-row-event-max-size=4M"}},
		{Version: "8.0", Args: []string{"--binlog-row-event-max-size=4M", "--log-bin-use-v1-row-events=ON"}}, // the older form of row events
	} {
		t.Run(o.Version, func(t *testing.T) {
			const limit = 100_000
			b := newBench(t, sandbox.RunMySQL(t, o), func(o *binlog.Options) { o.RowLimit = limit })
			const insert = "INSERT INTO o(aggregate_id, payload) VALUES ('a', REPEAT('y', 50000)), ('b', REPEAT('y', 200000)), ('c', NULL), ('d', REPEAT('y', 1000000)), ('e', REPEAT('y', 99000))"
			rows := []string{"0: 1 a yyyy… of 50004", of(1, 2, "b", 200_000, limit), "2: 3 c NULL", of(3, 4, "d", 1_000_000, limit), "4: 5 e yyyy… of 99004"}
			b.exec(insert)
			equal(t, b.numberedRows(5), rows...)
			b.exec("SET SESSION binlog_transaction_compression = ON", "TRUNCATE o", insert)
			equal(t, b.numberedRows(5), rows...)
		})
	}
}

// largeServer takes rows of more than 100 MB.
func largeServer(t *testing.T, version string) *sandbox.MySQL {
	t.Helper()
	return sandbox.RunMySQL(t, sandbox.MySQLOptions{Version: version, Args: []string{"--max-allowed-packet=1G", "--max-binlog-size=1G", "--innodb-redo-log-capacity=512M"}})
}

// Not parallel: allocations of other tests would count.
func TestRowsOf100MBTakeNoMemory(t *testing.T) {
	const limit = 16 << 20
	b := newBench(t, largeServer(t, "9.7"), func(o *binlog.Options) { o.RowLimit, o.Memory = limit, 64<<10 })
	// Rows before them are in the spool file already, and a prepared branch goes there.
	b.exec("BEGIN", "INSERT INTO o VALUES (1, 'spooled', REPEAT('s', 500000))", "INSERT INTO o VALUES (2, 'k', REPEAT('y', 20000000))", "INSERT INTO o VALUES (3, 'k', REPEAT('y', 100000000))",
		"INSERT INTO o VALUES (4, 'near', REPEAT('n', 16000000))", "INSERT INTO o(id) VALUES (5)", "COMMIT",
		"XA START 'x'", "INSERT INTO o VALUES (6, 'xa', REPEAT('y', 100000000))", "INSERT INTO o(id) VALUES (7)", "XA END 'x'", "XA PREPARE 'x'",
		"INSERT INTO o(id) VALUES (8)", "XA COMMIT 'x'",
		"UPDATE o SET payload = REPEAT('u', 100000000) WHERE id = 8", "DELETE FROM o WHERE id = 8", "INSERT INTO o(id) VALUES (9)")
	before := allocated()
	equal(t, b.numberedRows(5), "0: 1 spoole… of 500010", of(1, 2, "k", 20*mb, limit), of(2, 3, "k", 100*mb, limit), "3: 4 near n… of 16000007", "4: 5 NULL NULL")
	equal(t, b.numberedRows(4), "0: 8 NULL NULL", of(0, 6, "xa", 100*mb, limit), "1: 7 NULL NULL", "0: 9 NULL NULL")
	// The row of nearly the limit is read, spooled, read again and shown by this test; the others are in no memory at all.
	if got := allocated() - before; got > 6*limit {
		t.Errorf("%d bytes were allocated", got)
	}
}

// A few kilobytes of the binlog can stand for any number of bytes.
// Not parallel: allocations of other tests would count.
func TestCompressedRowsOf100MBTakeNoMemory(t *testing.T) {
	const limit = 1 << 20
	b := newBench(t, largeServer(t, "8.0"), func(o *binlog.Options) { o.RowLimit = limit })
	value := "REPEAT('z', 100000000)"
	b.exec("SET SESSION binlog_transaction_compression = ON",
		"BEGIN", "INSERT INTO o VALUES (1, 'first', '')", "INSERT INTO o VALUES (2, 'k', "+value+"), (3, 'k', "+value+"), (4, 'k', "+value+")", "INSERT INTO o VALUES (5, 'last', '')", "COMMIT",
		"INSERT INTO o VALUES (6, 'next', '')")
	before := allocated()
	equal(t, b.numberedRows(6), "0: 1 first ", of(1, 2, "k", 100*mb, limit), of(2, 3, "k", 100*mb, limit), of(3, 4, "k", 100*mb, limit), "4: 5 last ", "0: 6 next ")
	if got := allocated() - before; got > 16<<20 { // the window of the decompression and buffers
		t.Errorf("%d bytes were allocated", got)
	}
}

// A table whose only column is the large one: nothing at all of the row is kept, and it comes all the same.
func TestRowOfNothingButALargeValueComes(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.SharedMySQL(t), func(o *binlog.Options) { o.RowLimit = 1 << 20 })
	b.exec("DROP TABLE o", "CREATE TABLE o (v LONGTEXT)", "INSERT INTO o VALUES (REPEAT('y', 2000000))", "INSERT INTO o VALUES (NULL)")
	var got []string
	for _, row := range b.numberedRows(2) {
		got = append(got, strings.TrimSpace(row))
	}
	equal(t, got, fmt.Sprintf("0: dropped %d > %d", 1+4+2*mb, 1<<20), "0: NULL")
}
