package snapshot_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
	"outbox-relay/binlog/value"
	"outbox-relay/checkpoint"
	"outbox-relay/internal/sandbox"
	"outbox-relay/snapshot"
)

// bench is a database of a test.
type bench struct {
	t        *testing.T
	ctx      context.Context
	m        *sandbox.MySQL
	db       *sql.DB
	database string
}

func newBench(t *testing.T, statements ...string) *bench {
	t.Helper()
	return newBenchOn(t, sandbox.SharedMySQL(t), statements...)
}

func newBenchOn(t *testing.T, m *sandbox.MySQL, statements ...string) *bench {
	t.Helper()
	b := &bench{t: t, m: m, database: fmt.Sprintf("snap_%x", time.Now().UnixNano())}
	var cancel context.CancelFunc
	b.ctx, cancel = context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	if err := m.Exec(b.ctx, "CREATE DATABASE "+b.database); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.db, err = m.Open(b.database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = m.Exec(context.Background(), "DROP DATABASE "+b.database)
		b.db.Close()
	})
	b.exec(statements...)
	return b
}

func (b *bench) exec(statements ...string) {
	b.t.Helper()
	for _, s := range statements {
		if _, err := b.db.ExecContext(b.ctx, s); err != nil {
			b.t.Fatalf("%.300s: %v", s, err)
		}
	}
}

// column gives one column of a query.
func (b *bench) column(query string) (out []string) {
	b.t.Helper()
	rows, err := b.db.QueryContext(b.ctx, query)
	if err != nil {
		b.t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var s sql.NullString
		if err := rows.Scan(&s); err != nil {
			b.t.Fatal(err)
		}
		out = append(out, s.String)
	}
	if err := rows.Err(); err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *bench) name(table string) binlog.TableName {
	return binlog.TableName{Schema: b.database, Name: table}
}

func (b *bench) begin(tables ...string) *checkpoint.Snapshot {
	var names []string
	for _, t := range tables {
		names = append(names, b.name(t).String())
	}
	return checkpoint.NewSnapshot(names, time.Now())
}

// open opens a reader behind a progress that went through a store.
func (b *bench) open(progress *checkpoint.Snapshot, tables ...snapshot.Table) *snapshot.Reader {
	b.t.Helper()
	stored, err := checkpoint.Marshal(&checkpoint.Checkpoint{Name: "t", GTIDSet: new(gtid.Set), Snapshot: progress})
	if err != nil {
		b.t.Fatal(err)
	}
	c, err := checkpoint.Unmarshal(stored, "t")
	if err != nil {
		b.t.Fatal(err)
	}
	r, err := snapshot.New(snapshot.Options{
		Login:     binlog.Login{User: "relay", Password: func(context.Context) (string, error) { return "relay", nil }},
		Addresses: []string{b.m.Addr()}, Tables: tables, Progress: c.Snapshot, Position: new(gtid.Set), RowLimit: 1 << 20,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { r.Close() })
	return r
}

// got is a row that was read: the text of a column, and the position.
type got struct{ text, position string }

// step reads a step.
func (b *bench) step(r *snapshot.Reader, column string) (rows []got, progress *checkpoint.Snapshot) {
	b.t.Helper()
	s, err := r.Next(b.ctx)
	if err != nil {
		b.t.Fatal(err)
	}
	var row binlog.Row
	for {
		ok, err := s.NextRow(&row)
		if err != nil {
			b.t.Fatal(err)
		}
		if !ok {
			return rows, s.Progress()
		}
		rows = append(rows, got{textOf(b.t, &row, column), string(s.Position())})
	}
}

func textOf(t *testing.T, row *binlog.Row, column string) string {
	t.Helper()
	i := slices.IndexFunc(row.Table.Columns, func(c event.Column) bool { return c.Name == column })
	if i < 0 {
		return "(none)"
	}
	if row.Cells[i].State != event.CellValue {
		return fmt.Sprint("state ", row.Cells[i].State)
	}
	text, err := value.Append(nil, &row.Table.Columns[i], row.Cells[i].Raw)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// all reads a table to its end, with a new reader now and then.
func (b *bench) all(t snapshot.Table, column string) (rows []got, end *checkpoint.Snapshot) {
	b.t.Helper()
	progress := checkpoint.NewSnapshot([]string{t.Name.String()}, time.Now())
	var r *snapshot.Reader
	for steps := 0; progress.Reading(); steps++ {
		if steps%3 == 0 {
			r = b.open(progress, t)
		}
		var more []got
		more, progress = b.step(r, column)
		rows = append(rows, more...)
	}
	return rows, progress
}

func texts(rows []got) (out []string) {
	for _, r := range rows {
		out = append(out, r.text)
	}
	return out
}

// Whatever the key, each row comes once, in the order of the key, also when every step is made by another reader.
func TestEveryKeyIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	numbers := "WITH RECURSIVE s AS (SELECT 0 AS i UNION ALL SELECT i + 1 FROM s WHERE i < 39) SELECT "
	for name, c := range map[string]struct {
		create, insert string
		orderBy, where string
		order          string // of the oracle
	}{
		"auto increment": {"id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, v INT", "(v) " + numbers + "i FROM s", "", "", "id"},
		"above 2^63":     {"id BIGINT UNSIGNED PRIMARY KEY, v INT", numbers + "18446744073709551615 - i * 200000000000000000, i FROM s", "", "", "id"},
		"below zero":     {"id INT PRIMARY KEY, v INT", numbers + "(i - 20) * 1000, i FROM s", "", "", "id"},
		"uuid":           {"id BINARY(16) PRIMARY KEY, v INT", numbers + "UUID_TO_BIN(UUID(), i % 2), i FROM s", "", "", "id"},
		"uuid text":      {"id CHAR(36) CHARACTER SET ascii PRIMARY KEY, v INT", numbers + "LEFT(SHA2(i, 256), 36), i FROM s", "", "", "id"},
		"binary zeros":   {"id VARBINARY(8) PRIMARY KEY, v INT", numbers + "REPEAT(CHAR(0), i % 8), i FROM s WHERE i < 8", "", "", "id"},
		"case folding":   {"id VARCHAR(40) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, v INT", numbers + `CONCAT(CASE i % 6 WHEN 0 THEN 'Ärger' WHEN 1 THEN 'arGes' WHEN 2 THEN '😀' WHEN 3 THEN 'o''b\\"' WHEN 4 THEN '%_' ELSE 'straße' END, i), i FROM s`, "", "", "id"},
		"latin1 spaces":  {"id VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_german2_ci PRIMARY KEY, v INT", numbers + "CONCAT('ü ', i), i FROM s", "", "", "id"},
		"gbk":            {"id VARCHAR(40) CHARACTER SET gbk PRIMARY KEY, v INT", numbers + "CONCAT(_utf8mb4'汉字\\\\', i), i FROM s", "", "", "id"},
		"composite":      {"a VARCHAR(10) COLLATE utf8mb4_general_ci, b DATETIME(6), c DECIMAL(10, 3), v INT, PRIMARY KEY (a, b, c)", numbers + "IF(i % 3, 'x', 'Y'), TIMESTAMPADD(MICROSECOND, i % 5, '2024-01-01'), i / 7, i FROM s", "", "", "a, b, c"},
		"descending":     {"a INT, b INT, v INT, PRIMARY KEY (a DESC, b)", numbers + "i % 4, i, i FROM s", "", "", "a, b"},
		"enum":           {"e ENUM('z', 'a', 'm'), n INT, v INT, PRIMARY KEY (e, n)", numbers + "1 + i % 3, i, i FROM s", "", "", "e, n"},
		"set and bit":    {"e SET('z', 'a'), n BIT(20), v INT, PRIMARY KEY (e, n)", numbers + "i % 4, i * 100, i FROM s", "", "", "e, n"},
		"time and year":  {"a TIME(2), y YEAR, d DATE, v INT, PRIMARY KEY (a, y, d)", numbers + "SEC_TO_TIME((i - 20) * 100), 2000 + i % 3, '2024-02-29', i FROM s", "", "", "a, y, d"},
		"double":         {"a DOUBLE, v INT, PRIMARY KEY (a)", numbers + "(i - 20) / 3, i FROM s", "", "", "a"},
		"timestamp":      {"a TIMESTAMP(3) NOT NULL, v INT, UNIQUE KEY (a)", numbers + "TIMESTAMPADD(SECOND, i, '2024-01-01'), i FROM s", "", "", "a"},
		"unique key":     {"a INT NULL UNIQUE, b INT NOT NULL, v INT, UNIQUE KEY u (b)", numbers + "NULL, 40 - i, i FROM s", "", "", "b"},
		"prefix":         {"a TEXT NOT NULL, v INT, PRIMARY KEY (a(3))", numbers + "CONCAT(LPAD(i, 3, '0'), 'abc'), i FROM s", "", "", "a"},
		"order":          {"id INT PRIMARY KEY, at DATETIME NULL, v INT, KEY (at)", numbers + "i, IF(i % 5 = 0, NULL, TIMESTAMPADD(HOUR, i % 3, '2024-01-01')), i FROM s", "at", "", "at, id"},
		"order texts":    {"id INT PRIMARY KEY, at VARCHAR(10) NULL, v INT, KEY (at)", numbers + "i, IF(i % 5 = 0, NULL, ELT(1 + i % 3, 'a', 'A', 'á')), i FROM s", "at", "", "at, id"},
		"order all null": {"id INT PRIMARY KEY, at DATETIME NULL, v INT, KEY (at)", numbers + "i, NULL, i FROM s", "at", "", "at, id"},
		"order is key":   {"id INT PRIMARY KEY, v INT", numbers + "i, i FROM s", "ID", "", "id"},
		"where":          {"id INT PRIMARY KEY, v INT", numbers + "i, i FROM s", "", "v % 7 = 0 OR v > 30 -- not all", "id"},
		"where none":     {"id INT PRIMARY KEY, v INT", numbers + "i, i FROM s", "", "v < 0", "id"},
		"where, order":   {"id INT PRIMARY KEY, at INT, v INT, KEY (at)", numbers + "i, i % 4, i FROM s", "at", "v % 2 = 0", "at, id"},
		"no rows":        {"id INT PRIMARY KEY, v INT", numbers + "i, i FROM s WHERE i < 0", "", "", "id"},
		"chunk of rows":  {"id INT PRIMARY KEY, v INT", numbers + "i, i FROM s WHERE i < 14", "", "", "id"},
	} {
		table := "t" + strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' {
				return r
			}
			return -1
		}, name)
		b.exec("CREATE TABLE "+table+" ("+c.create+")", "INSERT INTO "+table+" "+c.insert)
		condition := c.where
		if condition == "" {
			condition = "TRUE"
		}
		want := b.column("SELECT v FROM " + table + " WHERE (" + condition + "\n) ORDER BY " + c.order)
		rows, end := b.all(snapshot.Table{Name: b.name(table), Chunk: 7, OrderBy: c.orderBy, Where: c.where}, "v")
		if diff := cmp.Diff(want, texts(rows)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		seen := map[string]bool{}
		for _, r := range rows {
			if !strings.HasPrefix(r.position, "snapshot:"+b.database+"."+table+":") || strings.Contains(r.position, "#") || seen[r.position] {
				t.Errorf("%s: the position %q", name, r.position)
			}
			seen[r.position] = true
		}
		if end.Rows() != int64(len(want)) {
			t.Errorf("%s: the progress has %d rows of %d", name, end.Rows(), len(want))
		}
	}
}

func TestPositionsNameTheKey(t *testing.T) {
	t.Parallel()
	b := newBench(t, "CREATE TABLE t (a VARCHAR(20), b BINARY(3), c INT, at INT, PRIMARY KEY (a, b, c))", `INSERT INTO t VALUES ('k#1, ü', x'00ff10', -7, 1)`)
	rows, _ := b.all(snapshot.Table{Name: b.name("t"), OrderBy: "at"}, "c")
	want := []got{{"-7", "snapshot:" + b.database + ".t:k%231%2C%20%C3%BC,00ff10,-7"}}
	if !slices.Equal(rows, want) {
		t.Errorf("got %v, want %v", rows, want)
	}
}

// What is written after the snapshot has begun is in the binlog, and need not be read; it must not keep the snapshot from its end.
func TestRowsBehindTheLastOneAreLeftToTheBinlog(t *testing.T) {
	t.Parallel()
	b := newBench(t, "CREATE TABLE a (id INT PRIMARY KEY)", "CREATE TABLE b (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1), (2), (3)", "INSERT INTO b VALUES (1)")
	r := b.open(b.begin("a", "b"), snapshot.Table{Name: b.name("a"), Chunk: 2}, snapshot.Table{Name: b.name("b")})
	b.step(r, "id") // looks at all tables
	b.exec("INSERT INTO a VALUES (4), (5)", "INSERT INTO b VALUES (2)")
	var rows []got
	progress := (*checkpoint.Snapshot)(nil)
	for progress == nil || progress.Reading() {
		var more []got
		more, progress = b.step(r, "id")
		rows = append(rows, more...)
	}
	if got := texts(rows); !slices.Equal(got, []string{"1", "2", "3", "1"}) {
		t.Errorf("got %v", got)
	}
	if progress.Ended.IsEmpty() {
		t.Error("the end does not tell what was executed")
	}
}

func TestATableWithoutKeyIsRefusedWithWhatToDo(t *testing.T) {
	t.Parallel()
	b := newBench(t, "SET SESSION sql_generate_invisible_primary_key = 0", "CREATE TABLE t (a INT NULL UNIQUE, b INT NOT NULL, KEY (b))", "INSERT INTO t VALUES (1, 1)")
	r := b.open(b.begin("t"), snapshot.Table{Name: b.name("t")})
	_, err := r.Next(b.ctx)
	var s *binlog.SourceError
	if !errors.As(err, &s) || s.Reason != binlog.ReasonSnapshot || !strings.Contains(err.Error(), "has no primary key") || !strings.Contains(err.Error(), "ALTER TABLE") {
		t.Errorf("got %v", err)
	}
	for what, table := range map[string]snapshot.Table{
		"condition": {Name: b.name("u"), Where: "nothing = 1"}, "syntax": {Name: b.name("u"), Where: "a ="}, "column": {Name: b.name("u"), OrderBy: "nothing"}, "JSON": {Name: b.name("u"), OrderBy: "j"},
	} {
		b.exec("CREATE TABLE IF NOT EXISTS u (a INT PRIMARY KEY, j JSON)", "INSERT IGNORE INTO u VALUES (1, '1')")
		r := b.open(b.begin("u"), table)
		_, err := r.Next(b.ctx)
		for err == nil {
			_, err = r.Next(b.ctx)
		}
		if !errors.As(err, &s) || s.Reason != binlog.ReasonSnapshot || !strings.Contains(err.Error(), "snapshot.") {
			t.Errorf("%s: got %v", what, err)
		}
	}
	found, err := snapshot.Check(b.ctx, binlog.Login{Address: b.m.Addr(), User: "relay", Password: func(context.Context) (string, error) { return "relay", nil }},
		[]snapshot.Table{{Name: b.name("t")}, {Name: b.name("u")}, {Name: b.name("u"), Where: "x"}, {Name: b.name("none")}})
	if err != nil || found[0].Err == nil || found[1].Err != nil || !found[1].Exists || found[1].Ordered || found[2].Err == nil || found[3].Err != nil || found[3].Exists {
		t.Errorf("got %+v, %v", found, err)
	}
}

// Nothing uncommitted is read, whatever the server's isolation level is.
func TestUncommittedRowsAreNotRead(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--transaction-isolation=READ-UNCOMMITTED"}})
	b := newBenchOn(t, m, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1), (3)")
	tx, err := b.db.BeginTx(b.ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(b.ctx, "INSERT INTO t VALUES (2)"); err != nil {
		t.Fatal(err)
	}
	rows, _ := b.all(snapshot.Table{Name: b.name("t")}, "id")
	if got := texts(rows); !slices.Equal(got, []string{"1", "3"}) {
		t.Errorf("got %v", got)
	}
}

// Columns that come, go and move between two chunks never shift values: each row has those of the moment of its chunk.
func TestColumnsThatChangeBetweenChunksKeepTheirNames(t *testing.T) {
	t.Parallel()
	b := newBench(t, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(10), w VARCHAR(10))", "INSERT INTO t VALUES (1, 'v1', 'w1'), (2, 'v2', 'w2'), (3, 'v3', 'w3'), (4, 'v4', 'w4'), (5, 'v5', 'w5')")
	r := b.open(b.begin("t"), snapshot.Table{Name: b.name("t"), Chunk: 1})
	b.step(r, "v")
	read := func(column, want string) {
		t.Helper()
		rows, _ := b.step(r, column)
		if len(rows) != 1 || rows[0].text != want {
			t.Errorf("got %v, want %s", rows, want)
		}
	}
	read("v", "v1")
	b.exec("ALTER TABLE t ADD COLUMN x VARCHAR(10) DEFAULT 'x' FIRST")
	read("v", "v2")
	b.exec("ALTER TABLE t DROP COLUMN v")
	read("w", "w3")
	b.exec("ALTER TABLE t RENAME COLUMN w TO v, MODIFY id BIGINT")
	read("v", "w4")
	// Another key: what was read does not tell where to go on, so all of it comes again.
	b.exec("ALTER TABLE t ADD COLUMN k INT NOT NULL DEFAULT 0, DROP PRIMARY KEY, ADD PRIMARY KEY (k, id)")
	if rows, _ := b.step(r, "id"); len(rows) > 0 {
		t.Errorf("got %v before the new key was looked at", rows)
	}
	read("id", "1")
	b.exec("DROP TABLE t")
	for rows, progress := b.step(r, "id"); progress.Reading(); rows, progress = b.step(r, "id") {
		if len(rows) > 0 {
			t.Errorf("got %v of a table that is gone", rows)
		}
	}
}

// A chunk that is read slowly ends early: its read view is closed, and the next chunk goes on behind the last row.
func TestASlowReaderKeepsNoReadViewOpen(t *testing.T) {
	t.Parallel()
	b := newBench(t, "CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v MEDIUMTEXT)",
		"INSERT INTO t (v) WITH RECURSIVE s AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM s WHERE i < 300) SELECT REPEAT('x', 100000) FROM s") // more than sockets hold
	r := b.open(b.begin("t"), snapshot.Table{Name: b.name("t")})
	r.SetHold(200 * time.Millisecond)
	b.step(r, "id")
	s, err := r.Next(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	var row binlog.Row
	if ok, err := s.NextRow(&row); !ok || err != nil {
		t.Fatal(ok, err)
	}
	rows := []string{textOf(t, &row, "id")}
	statements := "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '%" + b.database + "%' AND info NOT LIKE '%processlist%'"
	for deadline := time.Now().Add(time.Minute); b.column(statements)[0] != "0"; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the statement of a chunk that nobody reads goes on")
		}
	}
	r.SetHold(time.Minute)
	for {
		ok, err := s.NextRow(&row)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		rows = append(rows, textOf(t, &row, "id"))
	}
	if len(rows) >= 300 {
		t.Fatal("the chunk was not cut")
	}
	for progress := s.Progress(); progress.Reading(); {
		var more []got
		more, progress = b.step(r, "id")
		rows = append(rows, texts(more)...)
	}
	if want := b.column("SELECT id FROM t ORDER BY id"); !slices.Equal(rows, want) {
		t.Errorf("%d rows of %d", len(rows), len(want))
	}
}

// A row beyond the limit is given as the reader of the binlog gives it: named, with its short values, and never held.
func TestARowBeyondTheLimitComesShortened(t *testing.T) {
	t.Parallel()
	b := newBench(t, "CREATE TABLE t (id INT PRIMARY KEY, a LONGTEXT, j JSON, n LONGTEXT NULL, s TEXT)",
		"INSERT INTO t VALUES (1, 'a', '{}', NULL, 's'), (2, REPEAT('x', 2000000), '{}', NULL, 's'), (3, 'a', JSON_OBJECT('k', REPEAT('x', 2000000)), 'n', REPEAT('s', 5000)), (4, 'a', '{}', 'n', 's')")
	r := b.open(b.begin("t"), snapshot.Table{Name: b.name("t")})
	b.step(r, "id")
	s, err := r.Next(b.ctx)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	var row binlog.Row
	for {
		ok, err := s.NextRow(&row)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		line := fmt.Sprintf("%s %d", textOf(t, &row, "id"), row.Limit)
		for i := range row.Cells {
			line += fmt.Sprint(" ", row.Cells[i].State)
		}
		if row.Limit > 0 && (row.Size < 2000000 || row.Size > 2010000) {
			t.Errorf("size %d", row.Size)
		}
		lines = append(lines, line)
	}
	want := []string{"1 0 2 2 2 1 2", "2 1048576 2 3 2 1 2", "3 1048576 2 2 3 2 3", "4 0 2 2 2 2 2"}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Error(diff)
	}
}

// Rows are read of no server that lacks what is not read in the binlog.
func TestAServerThatLacksThePositionIsNotRead(t *testing.T) {
	t.Parallel()
	b := newBench(t, "CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
	foreign, err := gtid.ParseSet("0a000000-0000-0000-0000-0000000000aa:1-5")
	if err != nil {
		t.Fatal(err)
	}
	r, err := snapshot.New(snapshot.Options{
		Login:     binlog.Login{User: "relay", Password: func(context.Context) (string, error) { return "relay", nil }},
		Addresses: []string{b.m.Addr()}, Tables: []snapshot.Table{{Name: b.name("t")}}, Progress: b.begin("t"), Position: foreign, RowLimit: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var s *binlog.SourceError
	if _, err := r.Next(b.ctx); !errors.As(err, &s) || s.Reason != binlog.ReasonDiverged {
		t.Errorf("got %v", err)
	}
}
