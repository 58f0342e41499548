package binlog_test

import (
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
)

// bench is one test's view of a server: a database with an outbox table o and a foreign table f, and a reader that starts at "now".
type bench struct {
	t      *testing.T
	mysql  *sandbox.MySQL
	db     *sql.DB
	name   string
	ctx    context.Context
	reader *binlog.Reader
	last   *binlog.Transaction
	done   *gtid.Set // what the steps have handed on since open; kept by the tests that resume
}

const outboxTable = "CREATE TABLE o (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(64), payload LONGTEXT)"

func newBench(t *testing.T, m *sandbox.MySQL, change func(*binlog.Options)) *bench {
	t.Helper()
	b := &bench{t: t, mysql: m, name: m.NewDatabase(t)}
	b.db = m.DB(t, b.name)
	b.exec(outboxTable, "CREATE TABLE f (id INT AUTO_INCREMENT PRIMARY KEY, v LONGTEXT)")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	b.ctx = ctx
	b.open(b.executed(), change)
	return b
}

func (b *bench) open(start *gtid.Set, change func(*binlog.Options)) {
	b.t.Helper()
	o := binlog.Options{
		Name: b.t.Name(), Addresses: []string{b.mysql.Addr()}, Tables: []binlog.TableName{{Schema: b.name, Name: "o"}},
		Login: binlog.Login{User: "relay", Password: func(context.Context) (string, error) { return "relay", nil }},
		Start: start, Heartbeat: time.Second, Memory: 1 << 20, RowLimit: 16 << 20, SpoolDir: b.t.TempDir(), SpoolLimit: 1 << 30,
	}
	if change != nil {
		change(&o)
	}
	r, err := binlog.New(o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.reader, b.done = r, start.Clone()
	b.t.Cleanup(func() { r.Close() })
}

func (b *bench) executed() *gtid.Set {
	b.t.Helper()
	var text string
	if err := b.db.QueryRow("SELECT @@global.gtid_executed").Scan(&text); err != nil {
		b.t.Fatal(err)
	}
	s, err := gtid.ParseSet(text)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// exec runs statements on one connection inside the test's database.
func (b *bench) exec(statements ...string) {
	b.t.Helper()
	if err := b.mysql.Exec(context.Background(), append([]string{"USE " + b.name}, statements...)...); err != nil {
		b.t.Fatal(err)
	}
}

// rows reads until n rows have come and returns them as "id aggregate_id payload".
func (b *bench) rows(n int) []string {
	b.t.Helper()
	var got []string
	for len(got) < n {
		tx, err := b.reader.Next(b.ctx)
		if err != nil {
			b.t.Fatalf("after %d of %d rows: %v", len(got), n, err)
		}
		got = append(got, b.take(tx)...)
	}
	return got
}

func (b *bench) take(tx *binlog.Transaction) []string {
	b.t.Helper()
	b.last = tx
	var got []string
	var row binlog.Row
	for {
		ok, err := tx.NextRow(&row)
		if err != nil {
			b.t.Fatal(err)
		}
		if !ok {
			return got
		}
		got = append(got, rowText(b.t, &row))
	}
}

func rowText(t *testing.T, row *binlog.Row) string {
	t.Helper()
	var parts []string
	for i := range row.Table.Columns {
		switch c := row.Cells[i]; c.State {
		case event.CellNull:
			parts = append(parts, "NULL")
		case event.CellAbsent:
			parts = append(parts, "absent")
		case event.CellDropped:
			parts = append(parts, "dropped")
		default:
			if len(parts) == 0 {
				parts = append(parts, fmt.Sprint(binary.LittleEndian.Uint64(c.Raw)))
				continue
			}
			parts = append(parts, string(c.Raw))
		}
	}
	return strings.Join(parts, " ")
}

// readUntil adds the steps that come to got until done. Rows are a fault.
func (b *bench) readUntil(got *gtid.Set, done func() bool) *gtid.Set {
	b.t.Helper()
	for !done() {
		tx, err := b.reader.Next(b.ctx)
		if err != nil {
			b.t.Fatal(err)
		}
		if rows := b.take(tx); len(rows) > 0 {
			b.t.Fatalf("unexpected rows: %q", rows)
		}
		for _, r := range tx.Ranges {
			got.AddRange(r)
		}
	}
	return got
}

func equal(t *testing.T, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestRowsOfATransactionComeInOrderAfterItsCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.SharedMySQL(t), nil)
	b.exec("INSERT INTO f(v) VALUES ('x')",
		"BEGIN", `INSERT INTO o(aggregate_id, payload) VALUES ('k1', '{"b": 1}'), ('k2', NULL)`,
		"INSERT INTO f(v) VALUES ('x')", "UPDATE o SET aggregate_id = 'k3' WHERE id = 1", "DELETE FROM o WHERE id = 1",
		"INSERT INTO o(aggregate_id, payload) VALUES ('k4', '1')", "COMMIT")
	equal(t, b.rows(3), `1 k1 {"b": 1}`, "2 k2 NULL", "3 k4 1")
	if b.last.GTID.Number == 0 || string(b.last.GTIDText) != b.last.GTID.String() || b.last.CommitMicros < time.Now().Add(-time.Minute).UnixMicro() {
		t.Errorf("transaction %q of %d committed at %d", b.last.GTIDText, b.last.GTID.Number, b.last.CommitMicros)
	}
}

func TestNothingOfARolledBackTransactionComes(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.RunMySQL(t, sandbox.MySQLOptions{}), nil)
	b.exec("BEGIN", "INSERT INTO o(aggregate_id) VALUES ('no')", "ROLLBACK",
		"BEGIN", "INSERT INTO o(aggregate_id) VALUES ('yes')", "SAVEPOINT s", "INSERT INTO o(aggregate_id) VALUES ('no')", "ROLLBACK TO s", "COMMIT",
		"XA START 'r'", "INSERT INTO o(aggregate_id) VALUES ('no')", "XA END 'r'", "XA PREPARE 'r'", "XA ROLLBACK 'r'",
		"INSERT INTO o(aggregate_id) VALUES ('end')")
	got := b.rows(2)
	equal(t, got, "2 yes NULL", "5 end NULL")
}

func TestAnXATransactionComesOnlyWithItsCommit(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.RunMySQL(t, sandbox.MySQLOptions{}), nil) // prepared branches would meet those of other tests on a shared one
	b.exec("XA START 'a','b1'", "INSERT INTO o(aggregate_id) VALUES ('one')", "XA END 'a','b1'", "XA PREPARE 'a','b1'")
	b.exec("XA START 'a','b2'", "INSERT INTO o(aggregate_id) VALUES ('two')", "XA END 'a','b2'", "XA PREPARE 'a','b2'")
	b.exec("INSERT INTO o(aggregate_id) VALUES ('between')")
	equal(t, b.rows(1), "3 between NULL")
	b.exec("XA COMMIT 'a','b2'")
	equal(t, b.rows(1), "2 two NULL")
	if n := len(b.last.Ranges); n != 2 {
		t.Errorf("the position gains %v, want the PREPARE and the COMMIT in one step", b.last.Ranges)
	}
	b.exec("XA COMMIT 'a','b1'", "XA START 'c'", "INSERT INTO o(aggregate_id) VALUES ('single')", "XA END 'c'", "XA COMMIT 'c' ONE PHASE")
	equal(t, b.rows(2), "1 one NULL", "4 single NULL")
}

func TestPreparedBranchIsTheOnlyHoleOfThePosition(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	b := newBench(t, m, nil)
	start := b.executed()
	b.exec("XA START 'h'", "INSERT INTO o(aggregate_id) VALUES ('held')", "XA END 'h'", "XA PREPARE 'h'", "INSERT INTO f(v) VALUES ('x')")
	want, got := b.executed(), start.Clone()
	b.readUntil(got, func() bool { return gtid.Minus(want, got).Count() == 1 })
	b.reader.Close()

	b.open(got, nil) // a restart from that position sees the branch again
	b.exec("XA COMMIT 'h'")
	equal(t, b.rows(1), "1 held NULL")
	for _, r := range b.last.Ranges {
		got.AddRange(r)
	}
	if missing := gtid.Minus(b.executed(), got); !missing.IsEmpty() {
		t.Errorf("after the commit the position lacks %s", missing)
	}
}

func TestCompressedTransactions(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.RunMySQL(t, sandbox.MySQLOptions{}), nil)
	b.exec("SET SESSION binlog_transaction_compression = ON",
		"BEGIN", "INSERT INTO f(v) VALUES (REPEAT('z', 3000000))", "INSERT INTO o(aggregate_id) VALUES ('small')", "COMMIT",
		"INSERT INTO o(aggregate_id, payload) VALUES ('large', REPEAT('p', 2000000))",
		"XA START 'z'", "INSERT INTO o(aggregate_id) VALUES ('xa')", "XA END 'z'", "XA PREPARE 'z'", "INSERT INTO o(aggregate_id) VALUES ('between')", "XA COMMIT 'z'")
	got := b.rows(4)
	if want := "2 large " + strings.Repeat("p", 2000000); got[1] != want {
		t.Errorf("the large row differs: %d bytes, want %d", len(got[1]), len(want))
	}
	got[1] = "2 large"
	equal(t, got, "1 small NULL", "2 large", "4 between NULL", "3 xa NULL")
}

func TestEventsBeyondThePacketSize(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--max-allowed-packet=64M"}})
	b := newBench(t, m, func(o *binlog.Options) { o.RowLimit = 40 << 20 })
	sizes := []int{600 << 10, 16<<20 - 100, 16 << 20, 17 << 20, 34 << 20}
	for _, n := range sizes {
		b.exec(fmt.Sprintf("INSERT INTO f(v) VALUES (REPEAT('x', %d))", n), fmt.Sprintf("INSERT INTO o(payload) VALUES (REPEAT('y', %d))", n))
	}
	// Around the packet limit every length matters: the one that fills a packet exactly is followed by an empty one.
	for n := 16<<20 - 48; n < 16<<20-43; n++ { // the event is 45 bytes longer than the value
		b.exec(fmt.Sprintf("INSERT INTO f(v) VALUES (REPEAT('x', %d))", n))
	}
	b.exec("INSERT INTO o(aggregate_id) VALUES ('end')")
	for i, row := range b.rows(len(sizes) + 1) {
		if i == len(sizes) {
			equal(t, []string{row}, fmt.Sprintf("%d end NULL", i+1))
			continue
		}
		if want := fmt.Sprintf("%d NULL %s", i+1, strings.Repeat("y", sizes[i])); row != want {
			t.Errorf("row of %d bytes differs: %d bytes", sizes[i], len(row))
		}
	}
}

// Such a row has no bytes in the binlog. It is there all the same, and what is missing is for the rules to say.
func TestAnInsertThatNamesNoColumnIsARow(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.SharedMySQL(t), nil)
	b.exec("DROP TABLE o", "CREATE TABLE o (id BIGINT DEFAULT 5, v VARCHAR(9) DEFAULT 'x')", "SET SESSION binlog_row_image = 'MINIMAL'",
		"BEGIN", "INSERT INTO o() VALUES ()", "INSERT INTO o(v) VALUES ('end')", "COMMIT")
	equal(t, b.rows(2), "absent absent", "absent end")
}

// The row limit says nothing about table maps: one of a foreign table must not stop the reader, nor a long one of a watched table.
func TestTableMapsMayBeLargerThanTheRowLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.SharedMySQL(t), func(o *binlog.Options) { o.RowLimit = 1 << 10 })
	members := make([]string, 4000)
	for i := range members {
		members[i] = fmt.Sprintf("'member-%d-%s'", i, strings.Repeat("m", 30))
	}
	enum := "e ENUM(" + strings.Join(members, ",") + ")"
	b.exec("CREATE TABLE long_map ("+enum+")", "ALTER TABLE o ADD "+enum, "SET SESSION binlog_transaction_compression = ON",
		"INSERT INTO long_map VALUES (1)", "INSERT INTO o(aggregate_id) VALUES ('k')")
	equal(t, b.rows(1), "1 k NULL NULL")
}

func TestALargeTransactionIsSpooledAndCutConnectionsLoseNothing(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	p := sandbox.RunProxy(t, m.Addr())
	dir := t.TempDir()
	b := newBench(t, m, func(o *binlog.Options) { o.Addresses, o.Memory, o.SpoolDir = []string{p.Addr()}, 256<<10, dir })
	const n = 3000
	b.exec("SET SESSION cte_max_recursion_depth = 100000",
		fmt.Sprintf("INSERT INTO o(aggregate_id, payload) WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i < %d) SELECT CONCAT('k', i), REPEAT('y', 1000) FROM s", n))
	for _, after := range []int64{100 << 10, 1 << 20, 2 << 20} {
		// Each cut comes while the reader is inside the transaction: it is read again from its start.
		cut := p.CutAfter(after)
		done := make(chan struct{})
		go func() { <-cut; close(done) }()
		if after == 2<<20 {
			break
		}
		ctx, cancel := context.WithCancel(b.ctx)
		go func() { <-done; cancel() }()
		tx, err := b.reader.Next(ctx)
		for err == nil && !tx.HasRows {
			tx, err = b.reader.Next(ctx)
		}
		if err == nil {
			t.Fatal("the transaction came although its connection was cut")
		}
	}
	got := b.rows(n)
	for i, row := range got {
		if want := fmt.Sprintf("%d k%d %s", i+1, i+1, strings.Repeat("y", 1000)); row != want {
			t.Fatalf("row %d is %.40q", i, row)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
		t.Errorf("spool files are visible: %v", left)
	}
}
