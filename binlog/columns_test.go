package binlog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
	"outbox-relay/binlog/value"
	"outbox-relay/internal/sandbox"
)

// minimal is a server whose binlog does not name columns, and a reader on it.
func minimal(t *testing.T) *bench {
	t.Helper()
	return newBench(t, sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--binlog-row-metadata=MINIMAL"}}), nil)
}

// named reads n rows and gives them as "column=text …".
func (b *bench) named(n int) []string {
	b.t.Helper()
	got, err := b.tryNamed(n)
	if err != nil {
		b.t.Fatalf("after %q: %v", got, err)
	}
	return got
}

func (b *bench) tryNamed(n int) ([]string, error) {
	b.t.Helper()
	var got []string
	for len(got) < n {
		tx, err := b.reader.Next(b.ctx)
		if err != nil {
			return got, err
		}
		b.position(tx)
		var row binlog.Row
		for {
			ok, err := tx.NextRow(&row)
			if err != nil {
				return got, err
			}
			if !ok {
				break
			}
			var parts []string
			for i := range row.Table.Columns {
				c := &row.Table.Columns[i]
				text := "NULL"
				if row.Cells[i].State == event.CellValue {
					raw, err := value.Append(nil, c, row.Cells[i].Raw)
					if err != nil {
						return got, err
					}
					text = string(raw)
				}
				parts = append(parts, c.Name+"="+text)
			}
			got = append(got, strings.Join(parts, " "))
		}
	}
	return got, nil
}

// at is where the reader of a bench is, as a relay would store it.
type at struct {
	set     *gtid.Set
	columns json.RawMessage
}

func (b *bench) position(tx *binlog.Transaction) {
	for _, r := range tx.Ranges {
		b.done.AddRange(r)
	}
}

// store gives what a relay would store now.
func (b *bench) store() at {
	b.t.Helper()
	columns, err := b.reader.Columns(b.done)
	if err != nil {
		b.t.Fatal(err)
	}
	return at{b.done.Clone(), columns}
}

// resume opens a new reader at a stored place.
func (b *bench) resume(a at) {
	b.t.Helper()
	b.reader.Close()
	b.open(a.set, func(o *binlog.Options) { o.Columns = a.columns })
}

// caughtUp reads until the source has nothing more; rows are a fault.
func (b *bench) caughtUp() {
	b.t.Helper()
	for {
		tx, err := b.reader.Next(b.ctx)
		if err != nil {
			b.t.Fatal(err)
		}
		b.position(tx)
		if tx.HasRows {
			b.t.Fatal("unexpected rows")
		}
		if tx.CaughtUp && b.done.ContainsSet(b.executed()) {
			return
		}
	}
}

func TestColumnsOfTheServerAreThoseOfTheBinlog(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"8.0", "9.7"} {
		m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Version: version})
		b := newBench(t, m, nil)
		vector := ""
		if version > "9" {
			vector = "vec VECTOR(3), "
		}
		var set40 []string
		for i := range 40 {
			set40 = append(set40, fmt.Sprintf("'m%d'", i))
		}
		enum300 := make([]string, 300)
		for i := range enum300 {
			enum300[i] = fmt.Sprintf("'e%d'", i)
		}
		b.exec("DROP TABLE o", "SET sql_generate_invisible_primary_key = ON", "CREATE TABLE o ("+vector+`
 ti TINYINT UNSIGNED NOT NULL, si SMALLINT, mi MEDIUMINT UNSIGNED, i INT, bi BIGINT UNSIGNED, bo BOOL, d DECIMAL(30,9) UNSIGNED, d2 DECIMAL, f FLOAT, f8 FLOAT(40), db DOUBLE UNSIGNED,
 b1 BIT, b64 BIT(64), y YEAR, da DATE, t TIME, t6 TIME(6), dt DATETIME, dt3 DATETIME(3), ts TIMESTAMP NULL, ts1 TIMESTAMP(1) NULL,
 c CHAR(255), c0 CHAR(0), c4 CHAR(10) CHARACTER SET latin1, v VARCHAR(64), v300 VARCHAR(300) CHARACTER SET gbk, bn BINARY(16), vb VARBINARY(300),
 t1 TINYTEXT, t2 TEXT CHARACTER SET utf16, t3 MEDIUMTEXT, t4 LONGTEXT, bl1 TINYBLOB, bl2 BLOB, bl3 MEDIUMBLOB, bl4 LONGBLOB, tn TEXT(100), bln BLOB(70000),
 e ENUM('a','it''s','b\\c','') CHARACTER SET latin1 NOT NULL, e300 ENUM(`+strings.Join(enum300, ",")+`), s SET('x','y'), s40 SET(`+strings.Join(set40, ",")+`), j JSON, g GEOMETRY, p POINT NOT NULL,
 n NATIONAL CHAR(3), inv INT INVISIBLE, gs INT AS (i + 1) STORED, gv VARCHAR(70) AS (CONCAT(v, 'x')) VIRTUAL, z INT(5) ZEROFILL, u_quote INT, INDEX fx ((i + 2)))`,
			"SET sql_mode = ''", "INSERT INTO o (p, i) VALUES (ST_GeomFromText('POINT(1 2)'), 7)")
		var row binlog.Row
		for row.Table == nil {
			tx, err := b.reader.Next(b.ctx)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.NextRow(&row); err != nil {
				t.Fatal(err)
			}
		}
		c, err := binlog.Dial(b.ctx, binlog.Login{Address: m.Addr(), User: "relay", Password: func(context.Context) (string, error) { return "relay", nil }})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		got, err := c.Columns(b.ctx, time.Minute, binlog.TableName{Schema: b.name, Name: "o"})
		if err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(row.Table.Columns)
		for i := range want {
			if want[i].Type == event.ColumnEnum || want[i].Type == event.ColumnSet {
				want[i].Collation = 255 // its text comes from information_schema
			}
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("MySQL %s: %s", m.Version(), diff)
		}
	}
}

func TestMembersThatTheServerCannotShowAreNotInvented(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	b := newBench(t, m, nil)
	b.exec("CREATE TABLE e (a ENUM('x','😀') CHARACTER SET utf8mb4, b ENUM('y'))")
	c, err := binlog.Dial(b.ctx, binlog.Login{Address: m.Addr(), User: "relay", Password: func(context.Context) (string, error) { return "relay", nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got, err := c.Columns(b.ctx, time.Minute, binlog.TableName{Schema: b.name, Name: "e"})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Members != nil || !slices.Equal(got[1].Members, []string{"y"}) {
		t.Errorf("%+v", got)
	}
}

func TestWithoutNamesInTheBinlogColumnsAreAskedOfTheServer(t *testing.T) {
	t.Parallel()
	b := minimal(t)
	b.exec("ALTER TABLE o ADD e ENUM('red','grün') CHARACTER SET latin1", "INSERT INTO o(aggregate_id, e) VALUES ('k', 'grün')")
	b.caughtUpRows("id=1 aggregate_id=k payload=NULL e=grün")
	// The memory goes with the position.
	a := b.store()
	b.exec("INSERT INTO o(aggregate_id, e) VALUES ('l', 'red')")
	b.resume(a)
	b.caughtUpRows("id=2 aggregate_id=l payload=NULL e=red")
}

// caughtUpRows reads as many rows as it is given and compares.
func (b *bench) caughtUpRows(want ...string) {
	b.t.Helper()
	equal(b.t, b.named(len(want)), want...)
}

// alterations change columns such that their types alone do not tell.
var alterations = []struct{ name, alter, insert, after string }{
	{"add first", "ALTER TABLE o ADD z VARCHAR(64) DEFAULT 'new' FIRST", "INSERT INTO o(aggregate_id) VALUES ('k')", "z=new id=2 aggregate_id=k payload=NULL"},
	{"add in the middle, instantly", "ALTER TABLE o ADD z VARCHAR(64) AFTER id, ALGORITHM=INSTANT", "INSERT INTO o(aggregate_id) VALUES ('k')", "id=2 z=NULL aggregate_id=k payload=NULL"},
	{"drop", "ALTER TABLE o DROP payload", "INSERT INTO o(aggregate_id) VALUES ('k')", "id=2 aggregate_id=k"},
	{"rename a column", "ALTER TABLE o RENAME COLUMN aggregate_id TO other", "INSERT INTO o(other) VALUES ('k')", "id=2 other=k payload=NULL"},
	{"swap the names of two columns", "ALTER TABLE o RENAME COLUMN a TO b, RENAME COLUMN b TO a", "INSERT INTO o(a, b) VALUES ('1', '2')", "id=2 aggregate_id=NULL payload=NULL b=2 a=1"},
	{"change the charset", "ALTER TABLE o CONVERT TO CHARACTER SET gbk", "INSERT INTO o(aggregate_id) VALUES ('中')", "id=2 aggregate_id=中 payload=NULL"},
	{"change the order of members", "ALTER TABLE o MODIFY e ENUM('b','a')", "INSERT INTO o(e) VALUES ('b')", "id=2 aggregate_id=NULL payload=NULL e=b"},
	{"swap of tables", "RENAME TABLE o TO o_old, n TO o", "INSERT INTO o(x) VALUES ('k')", "id=1 x=k"},
	{"drop and create again", "DROP TABLE o", "CREATE TABLE o (w VARCHAR(9)); INSERT INTO o VALUES ('k')", "w=k"},
	{"create with rows", "DROP TABLE o", "CREATE TABLE o SELECT 'k' AS q", "q=k"},
}

// before makes the table that an alteration needs and writes a row into it.
func before(name string) (statements []string, row string) {
	switch name {
	case "swap the names of two columns":
		return []string{"ALTER TABLE o ADD a VARCHAR(9), ADD b VARCHAR(9)", "INSERT INTO o(a, b) VALUES ('1', '2')"}, "id=1 aggregate_id=NULL payload=NULL a=1 b=2"
	case "change the order of members":
		return []string{"ALTER TABLE o ADD e ENUM('a','b')", "INSERT INTO o(e) VALUES ('b')"}, "id=1 aggregate_id=NULL payload=NULL e=b"
	case "swap of tables":
		return []string{"CREATE TABLE n (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, x VARCHAR(64))", "INSERT INTO o(aggregate_id) VALUES ('j')"}, "id=1 aggregate_id=j payload=NULL"
	}
	return []string{"INSERT INTO o(aggregate_id) VALUES ('j')"}, "id=1 aggregate_id=j payload=NULL"
}

func TestAnAlterWhileTheReaderWasAwayShiftsNoColumns(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--binlog-row-metadata=MINIMAL"}})
	for _, c := range alterations {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, m, nil)
			statements, want := before(c.name)
			b.exec(statements[:len(statements)-1]...)
			b.exec("INSERT INTO f(v) VALUES ('x')")
			b.caughtUp()
			a := b.store()
			b.reader.Close()
			b.exec(statements[len(statements)-1])
			b.exec(append([]string{c.alter}, strings.Split(c.insert, "; ")...)...)
			b.resume(a)
			b.caughtUpRows(want, c.after)
			// Somebody who moves the position back and keeps the columns gets a halt and no shifted columns.
			later := b.store()
			b.resume(at{a.set, later.columns})
			_, err := b.tryNamed(1)
			wantReason(t, err, binlog.ReasonColumnsUnknown)
		})
	}
}

func TestAnAlterWhileTheReaderFollowsIsFollowed(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--binlog-row-metadata=MINIMAL"}})
	for _, c := range alterations {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, m, nil)
			statements, want := before(c.name)
			b.exec(statements...)
			b.caughtUpRows(want)
			b.exec(append([]string{c.alter}, strings.Split(c.insert, "; ")...)...)
			b.caughtUpRows(c.after)
		})
	}
}

// A statement is in the binlog a moment before the server shows its outcome: whoever asks in between must wait.
func TestColumnsAreNotThoseOfTheMomentBeforeAnAlter(t *testing.T) {
	t.Parallel()
	b := minimal(t)
	b.exec("ALTER TABLE o ADD a VARCHAR(9), ADD b VARCHAR(9)", "INSERT INTO o(a, b) VALUES ('a', 'b')")
	b.caughtUpRows("id=1 aggregate_id=NULL payload=NULL a=a b=b")
	// So the moment lasts 0.2 s.
	b.exec("SET GLOBAL sync_binlog = 0", "SET GLOBAL binlog_group_commit_sync_delay = 200000")
	order := []string{"a", "b"}
	for i := range 4 {
		slices.Reverse(order)
		altered := make(chan error, 1)
		go func() {
			altered <- b.mysql.Exec(b.ctx, "USE "+b.name, "ALTER TABLE o RENAME COLUMN a TO b, RENAME COLUMN b TO a")
		}()
		for at := b.done.Count(); b.done.Count() == at; { // the ALTER is read
			tx, err := b.reader.Next(b.ctx)
			if err != nil {
				t.Fatal(err)
			}
			b.position(tx)
		}
		if err := <-altered; err != nil {
			t.Fatal(err)
		}
		b.exec("INSERT INTO o(a, b) VALUES ('a', 'b')")
		b.caughtUpRows(fmt.Sprintf("id=%d aggregate_id=NULL payload=NULL %s=%s %s=%s", i+2, order[0], order[0], order[1], order[1]))
	}
}

func TestColumnsThatCannotBeKnownHalt(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--binlog-row-metadata=MINIMAL"}})
	t.Run("a row before an ALTER, and nothing is remembered", func(t *testing.T) {
		b := newBench(t, m, nil)
		b.exec("INSERT INTO o(aggregate_id) VALUES ('k')", "ALTER TABLE o RENAME COLUMN aggregate_id TO x")
		_, err := b.tryNamed(1)
		wantReason(t, err, binlog.ReasonColumnsUnknown, b.name+".o", "ALTER TABLE in transaction ", " may have changed them;", "binlog_row_metadata = 'FULL'", "(transaction ")
	})
	t.Run("a row between two ALTERs", func(t *testing.T) {
		b := newBench(t, m, nil)
		b.exec("INSERT INTO f(v) VALUES ('x')")
		b.caughtUp()
		a := b.store()
		b.exec("INSERT INTO o(aggregate_id) VALUES ('before')", "ALTER TABLE o RENAME COLUMN aggregate_id TO x", "INSERT INTO o(x) VALUES ('between')", "ALTER TABLE o RENAME COLUMN x TO y", "INSERT INTO o(y) VALUES ('after')")
		b.resume(a)
		b.caughtUpRows("id=1 aggregate_id=before payload=NULL")
		_, err := b.tryNamed(1)
		wantReason(t, err, binlog.ReasonColumnsUnknown, "since transaction", "ALTER TABLE in transaction ")
		// Without a row in between nothing is in doubt.
		b.exec("INSERT INTO f(v) VALUES ('x')")
		b.resume(at{b.executed(), nil})
		b.exec("INSERT INTO o(y) VALUES ('now')")
		b.caughtUpRows("id=4 y=now payload=NULL")
	})
	t.Run("an ALTER that the binlog does not hold", func(t *testing.T) {
		b := newBench(t, m, nil)
		b.exec("INSERT INTO o(aggregate_id) VALUES ('k')")
		b.caughtUpRows("id=1 aggregate_id=k payload=NULL")
		b.exec("SET sql_log_bin = 0", "ALTER TABLE o ADD n INT FIRST", "SET sql_log_bin = 1", "INSERT INTO o(aggregate_id) VALUES ('l')")
		_, err := b.tryNamed(1)
		wantReason(t, err, binlog.ReasonColumnsUnknown, "4 columns where 3 are known")
	})
	t.Run("a table that is gone", func(t *testing.T) {
		b := newBench(t, m, nil)
		b.exec("INSERT INTO o(aggregate_id) VALUES ('k')", "DROP TABLE o")
		_, err := b.tryNamed(1)
		wantReason(t, err, binlog.ReasonColumnsUnknown, "no such table now")
	})
	t.Run("no right to see them", func(t *testing.T) {
		b := newBench(t, m, nil)
		b.exec("CREATE USER IF NOT EXISTS blind IDENTIFIED BY 'blind'", "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO blind")
		b.open(b.executed(), func(o *binlog.Options) {
			o.Login.User, o.Login.Password = "blind", func(context.Context) (string, error) { return "blind", nil }
		})
		b.exec("INSERT INTO o(aggregate_id) VALUES ('k')")
		_, err := b.tryNamed(1)
		wantReason(t, err, binlog.ReasonColumnsUnknown, "GRANT SELECT ON `"+b.name+"`.`o` TO 'blind'@'%'")
	})
}

// What names the table and cannot change its columns does not make them doubtful, however far the reader is behind.
func TestHarmlessStatementsOnTheTableDoNotHalt(t *testing.T) {
	t.Parallel()
	b := minimal(t)
	b.exec("INSERT INTO o(aggregate_id) VALUES ('a')", "TRUNCATE TABLE o", "truncate`o`", "INSERT INTO o(aggregate_id) VALUES ('b')", "CREATE INDEX i ON o (aggregate_id)", "ANALYZE TABLE o", "OPTIMIZE TABLE o",
		"GRANT SELECT ON o TO relay", "CREATE DEFINER=root TRIGGER tr BEFORE INSERT ON o FOR EACH ROW SET NEW.payload = 't'", "DROP TRIGGER tr", "CREATE VIEW v AS SELECT * FROM o",
		"INSERT INTO o(aggregate_id) VALUES ('c')", "DROP INDEX i ON o", "ALTER TABLE f ADD x INT")
	b.caughtUpRows("id=1 aggregate_id=a payload=NULL", "id=1 aggregate_id=b payload=NULL", "id=2 aggregate_id=c payload=NULL")
}

func TestRowMetadataIsSwitchedWhileReading(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.RunMySQL(t, sandbox.MySQLOptions{}), nil)
	for i, mode := range []string{"FULL", "MINIMAL", "FULL", "MINIMAL"} {
		b.exec("SET GLOBAL binlog_row_metadata = '"+mode+"'", "INSERT INTO o(aggregate_id) VALUES ('"+mode+"')")
		b.caughtUpRows(fmt.Sprintf("id=%d aggregate_id=%s payload=NULL", i+1, mode))
		if mode == "FULL" {
			b.exec("ALTER TABLE o RENAME COLUMN payload TO p", "ALTER TABLE o RENAME COLUMN p TO payload")
		}
	}
}

// A prepared branch keeps its table from being altered, so the remembered columns fit its rows also when they are read again.
func TestAPreparedBranchIsNamedAfterARestart(t *testing.T) {
	t.Parallel()
	b := minimal(t)
	b.exec("XA START 'x'", "INSERT INTO o(aggregate_id) VALUES ('held')", "XA END 'x'", "XA PREPARE 'x'")
	b.exec("INSERT INTO o(aggregate_id) VALUES ('plain')")
	b.caughtUpRows("id=2 aggregate_id=plain payload=NULL")
	a := b.store()
	b.exec("XA COMMIT 'x'", "ALTER TABLE o ADD z INT FIRST", "INSERT INTO o(aggregate_id) VALUES ('last')")
	b.resume(a)
	b.caughtUpRows("id=1 aggregate_id=held payload=NULL", "z=NULL id=3 aggregate_id=last payload=NULL")
}

func TestDamagedMemoryOfColumnsIsRefused(t *testing.T) {
	t.Parallel()
	_, err := binlog.New(binlog.Options{Name: "n", Addresses: []string{"x"}, Tables: []binlog.TableName{{Schema: "a", Name: "b"}}, Start: &gtid.Set{}, Columns: json.RawMessage(`[{"schema":"a","table":"b","versions":[{"since":"nonsense"}]}]`)})
	if err == nil || !strings.Contains(err.Error(), "remembered in the checkpoint") || errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The search of the binlog goes to the server that is being read. That it dies meanwhile is a failure of that server and of no other one.
func TestAServerThatDiesDuringALookupDoesNotHoldUpTheReader(t *testing.T) {
	t.Parallel()
	b := minimal(t)
	proxy, err := sandbox.NewProxy(b.mysql.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	start := b.executed()
	b.exec("INSERT INTO o(aggregate_id) VALUES ('k')", "INSERT INTO f(v) VALUES ('x')")
	dials := 0
	b.open(start, func(o *binlog.Options) {
		o.Addresses = []string{proxy.Addr(), b.mysql.Addr()}
		o.Login.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == proxy.Addr() {
				if dials++; dials == 3 { // the stream and the lookup came before the search
					proxy.Refuse(true)
					proxy.Cut()
				}
			}
			var d net.Dialer
			return d.DialContext(ctx, network, address)
		}
	})
	b.caughtUpRows("id=1 aggregate_id=k payload=NULL")
	if got := b.reader.Status().Address; got != b.mysql.Addr() {
		t.Errorf("the row came from %s", got)
	}
}

func TestWhatWasHandedOnGoesOutBeforeALookup(t *testing.T) {
	t.Parallel()
	b := minimal(t)
	start := b.executed()
	b.exec("INSERT INTO o(aggregate_id) VALUES ('k')", "ALTER TABLE o ADD x INT", "INSERT INTO o(aggregate_id) VALUES ('l')")
	waits, handed, late := 0, false, 0
	b.open(start, func(o *binlog.Options) {
		o.Columns = json.RawMessage(`[{"schema":"` + b.name + `","table":"o","versions":[{"columns":[
{"name":"id","type":8,"unsigned":true,"primary_key":true},{"name":"aggregate_id","type":15,"meta":256,"nullable":true,"collation":255},{"name":"payload","type":252,"meta":4,"nullable":true,"collation":255}]}]}]`)
		o.BeforeWait = func() { waits++ }
		o.Login.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if handed && waits == 0 {
				late++
			}
			var d net.Dialer
			return d.DialContext(ctx, network, address)
		}
	})
	b.caughtUpRows("id=1 aggregate_id=k payload=NULL")
	waits, handed = 0, true
	b.caughtUpRows("id=2 aggregate_id=l payload=NULL x=NULL")
	if late > 0 {
		t.Error("the server was asked while records were still being gathered")
	}
}

// Jobs that rotate partitions and services that make sure at each start that their table is there write such statements again and again, with rows
// in between.
func TestRotatedPartitionsAndTablesMadeIfMissingDoNotHalt(t *testing.T) {
	t.Parallel()
	b := minimal(t)
	b.exec("DROP TABLE o", "CREATE TABLE o (id INT PRIMARY KEY, k VARCHAR(9)) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10))", "INSERT INTO o VALUES (1, 'a')",
		"ALTER TABLE o ADD PARTITION (PARTITION p1 VALUES LESS THAN (20))", "INSERT INTO o VALUES (11, 'b')", "ALTER TABLE o DROP PARTITION p0", "INSERT INTO o VALUES (2, 'c')",
		"CREATE TABLE IF NOT EXISTS o (id INT PRIMARY KEY)", "INSERT INTO o VALUES (3, 'd')", "CREATE TABLE IF NOT EXISTS o SELECT 1 AS x", "INSERT INTO o VALUES (4, 'e')",
		"CREATE TABLE IF NOT EXISTS "+b.name+".o (id INT PRIMARY KEY)", "ALTER TABLE o REORGANIZE PARTITION p1 INTO (PARTITION p2 VALUES LESS THAN (15), PARTITION p3 VALUES LESS THAN (20))", "INSERT INTO o VALUES (5, 'f')")
	b.caughtUpRows("id=1 k=a", "id=11 k=b", "id=2 k=c", "id=3 k=d", "id=4 k=e", "id=5 k=f")
}

// The types of the columns are those of before, so nothing but the statements tells.
func TestATableMadeAnewBehindADroppedDatabaseShiftsNoColumns(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--binlog-row-metadata=MINIMAL"}})
	for _, create := range []string{"CREATE TABLE o # as before\n(a VARCHAR(9), b VARCHAR(9))", "CREATE TABLE o# as before\n(a VARCHAR(9), b VARCHAR(9))", "CREATE TABLE IF NOT EXISTS o (a VARCHAR(9), b VARCHAR(9))"} {
		b := newBench(t, m, nil)
		b.exec("DROP TABLE o", "CREATE TABLE o (b VARCHAR(9), a VARCHAR(9))", "INSERT INTO o (a, b) VALUES ('a', 'b')")
		b.caughtUpRows("b=b a=a")
		b.exec("DROP DATABASE "+b.name, "CREATE DATABASE "+b.name, "USE "+b.name, create, "INSERT INTO o (a, b) VALUES ('a', 'b')")
		b.caughtUpRows("a=a b=b")
	}
}

// The place that the reader began at is far behind by the time of a later lookup.
func TestALookupDoesNotReadAgainWhatLiesBehindTheFirstPlace(t *testing.T) {
	t.Parallel()
	b := minimal(t)
	b.exec("INSERT INTO o(aggregate_id) VALUES ('a')")
	b.caughtUpRows("id=1 aggregate_id=a payload=NULL")
	server, file, pos := b.reader.Source()
	b.reader.Close()
	b.open(b.executed(), func(o *binlog.Options) { o.Place = binlog.Place{Server: server.UUID, File: file, Position: pos} })
	var many []string
	for range 300 {
		many = append(many, "INSERT INTO f(v) VALUES ('x')")
	}
	b.exec(many...)
	b.caughtUp()
	asked := func() (n int) {
		t.Helper()
		var name string
		if err := b.db.QueryRow("SHOW GLOBAL STATUS LIKE 'Com_show_binlog_events'").Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := asked()
	b.exec("ALTER TABLE o ADD x INT", "INSERT INTO o(aggregate_id) VALUES ('b')", "INSERT INTO f(v) VALUES ('x')")
	b.caughtUpRows("id=2 aggregate_id=b payload=NULL x=NULL")
	if n := asked() - before; n > 5 {
		t.Errorf("the server was asked %d times for events of its binlog", n)
	}
}
