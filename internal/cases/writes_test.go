package cases_test

import (
	"database/sql"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"

	"outbox-relay/binlog"
	"outbox-relay/router"
)

// uniqueTable is an outbox with two unique keys.
const uniqueTable = "CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(9) UNIQUE, payload INT)"

var writeCases = []failureCase{
	{id: "W1", what: "LOAD DATA LOCAL, with columns in another order and set by an expression", steps: loadLocal},
	{
		id: "W2", what: "REPLACE: of no row, of one by its only key, and of one by the first of several keys",
		setup: []string{uniqueTable, "CREATE TABLE p (aggregate_id VARCHAR(9) PRIMARY KEY, payload INT)"},
		rules: []router.Rule{outboxRule("{db}", "o"), outboxRule("{db}", "p")},
		do: []string{
			"REPLACE INTO p VALUES ('a', 1)", "REPLACE INTO p VALUES ('a', 2)", "REPLACE INTO o VALUES (1, 'b', 3)", "REPLACE INTO o VALUES (1, 'c', 4)",
			"REPLACE INTO o VALUES (2, 'c', 5)", "REPLACE INTO o VALUES (3, 'd', 6)", "REPLACE INTO o VALUES (2, 'd', 7)",
		},
		// A conflict by the table's last unique key is logged as an update, one by a key before it as a delete; then the new row is tried again.
		want: []string{"a 1", "b 3", "c 4", "d 6"},
	},
	{
		id: "W3", what: "INSERT … ON DUPLICATE KEY UPDATE and INSERT IGNORE",
		setup: []string{uniqueTable},
		do: []string{
			"INSERT INTO o VALUES (1, 'a', 1), (1, 'b', 2), (2, 'c', 3) ON DUPLICATE KEY UPDATE payload = payload + 10", "INSERT IGNORE INTO o VALUES (1, 'd', 4), (4, 'e', 5), (5, 'a', 6)",
		},
		want: []string{"a 1", "c 3", "e 5"}, ignored: map[string]float64{"update": 1},
	},
	{
		id: "W4", what: "BEFORE triggers on the outbox that change the row, and triggers of another table on INSERT, UPDATE and DELETE",
		setup: []string{
			outboxTable, "CREATE TABLE od (n INT PRIMARY KEY, m INT)",
			"CREATE TRIGGER o1 BEFORE INSERT ON o FOR EACH ROW SET NEW.aggregate_id = UPPER(NEW.aggregate_id), NEW.payload = JSON_SET(NEW.payload, '$.by', 'trigger')",
			"CREATE TRIGGER t1 BEFORE INSERT ON od FOR EACH ROW INSERT INTO o(aggregate_id, payload) VALUES ('insert', JSON_OBJECT('n', NEW.n))",
			"CREATE TRIGGER t2 AFTER UPDATE ON od FOR EACH ROW INSERT INTO o(aggregate_id, payload) VALUES ('update', JSON_OBJECT('n', NEW.n))",
			"CREATE TRIGGER t3 AFTER DELETE ON od FOR EACH ROW INSERT INTO o(aggregate_id, payload) VALUES ('delete', JSON_OBJECT('n', OLD.n))",
		},
		do:   []string{"INSERT INTO od VALUES (1, 1), (2, 1)", "UPDATE od SET m = 2 WHERE n = 1", "DELETE FROM od"},
		want: []string{`INSERT {"n": 1, "by": "trigger"}`, `INSERT {"n": 2, "by": "trigger"}`, `UPDATE {"n": 1, "by": "trigger"}`, `DELETE {"n": 1, "by": "trigger"}`, `DELETE {"n": 2, "by": "trigger"}`},
	},
	{
		id: "W5", what: "procedures with transactions of their own, and a function that writes within SELECT",
		setup: []string{
			outboxTable, "CREATE PROCEDURE p() BEGIN DECLARE i INT DEFAULT 0; WHILE i < 4 DO START TRANSACTION; INSERT INTO o(aggregate_id, payload) VALUES (i, CAST(i AS JSON)); IF i = 2 THEN ROLLBACK; ELSE COMMIT; END IF; SET i = i + 1; END WHILE; END",
			"CREATE FUNCTION f(x INT) RETURNS INT MODIFIES SQL DATA BEGIN INSERT INTO o(aggregate_id, payload) VALUES ('f', CAST(x AS JSON)); RETURN x; END",
		},
		do:   []string{"CALL p()", "SELECT f(7), f(8)"},
		want: []string{"0 0", "1 1", "3 3", "f 7", "f 8"},
	},
	{
		id: "W6", what: "a partitioned outbox, with rows of several partitions in one statement",
		setup: []string{"CREATE TABLE o (id INT AUTO_INCREMENT, aggregate_id INT, payload INT, PRIMARY KEY (id, aggregate_id)) PARTITION BY HASH (aggregate_id) PARTITIONS 4"},
		do: []string{
			"INSERT INTO o(aggregate_id, payload) VALUES (3, 1), (0, 2), (2, 3), (3, 4), (1, 5)", "ALTER TABLE o TRUNCATE PARTITION p1", "ALTER TABLE o REORGANIZE PARTITION", "INSERT INTO o(aggregate_id, payload) VALUES (1, 6), (0, 7)",
		},
		want: []string{"3 1", "0 2", "2 3", "3 4", "1 5", "1 6", "0 7"},
	},
	{id: "W7", what: "outboxes of InnoDB, MyISAM and BLACKHOLE in one session, with a ROLLBACK that MyISAM does not follow", steps: mixedEngines},
	{
		id: "W8", what: "INSERT … SELECT out of the outbox itself, through a view, and of a row with defaults alone",
		setup: []string{"CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(9) DEFAULT 'd', payload JSON DEFAULT (JSON_OBJECT('d', 1)))", "CREATE VIEW v AS SELECT payload AS p, aggregate_id AS a FROM o"},
		do:    []string{"INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')", "INSERT INTO o(aggregate_id, payload) SELECT CONCAT(aggregate_id, 'x'), payload FROM o", "INSERT INTO v(p, a) VALUES ('2', 'v')", "INSERT INTO o VALUES ()"},
		want:  []string{"a 1", "ax 1", "v 2", `d {"d": 1}`},
	},
	{
		id: "W9", what: "CREATE TABLE … SELECT that makes the outbox itself, with rows in it",
		setup: []string{"CREATE TABLE src (aggregate_id VARCHAR(9), payload INT)", "INSERT INTO src VALUES ('a', 1), ('b', 2)"},
		do:    []string{"CREATE TABLE o SELECT * FROM src", "INSERT INTO o VALUES ('c', 3)", "CREATE TABLE copy AS SELECT * FROM o"},
		want:  []string{"a 1", "b 2", "c 3"},
	},
	{
		id: "W10", what: "savepoints, with a rollback of a part",
		do: []string{
			"BEGIN", "INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')", "SAVEPOINT s", "INSERT INTO o(aggregate_id, payload) VALUES ('no', '2')", "SAVEPOINT `t t`", "INSERT INTO o(aggregate_id, payload) VALUES ('no', '3')",
			"ROLLBACK TO s", "INSERT INTO o(aggregate_id, payload) VALUES ('b', '4')", "RELEASE SAVEPOINT s", "COMMIT", "BEGIN", "SAVEPOINT s", "INSERT INTO o(aggregate_id, payload) VALUES ('no', '5')", "ROLLBACK TO s", "COMMIT",
		},
		want: []string{"a 1", "b 4"},
	},
	{
		id: "W11", what: "UPDATE, DELETE and TRUNCATE of the outbox",
		do: []string{
			"INSERT INTO o(aggregate_id, payload) VALUES ('a', '1'), ('b', '2'), ('c', '3')", "UPDATE o SET payload = '9' WHERE aggregate_id = 'a'", "UPDATE o SET payload = JSON_SET(payload, '$[1]', 1)", "DELETE FROM o WHERE aggregate_id = 'b'",
			"SET binlog_row_value_options = PARTIAL_JSON", "UPDATE o SET payload = JSON_SET(payload, '$[0]', 5)", "TRUNCATE TABLE o", "DELETE FROM o",
		},
		want: []string{"a 1", "b 2", "c 3"}, ignored: map[string]float64{"update": 3, "delete": 1, "truncate": 1},
	},
	{id: "W12", what: "statements in statement format: of another database, of one whose trigger writes the outbox, LOAD DATA, and of more databases than are listed", alone: true, steps: foreignStatements},
	{id: "W13", what: "CREATE TABLE … SELECT in statement format that makes the outbox itself", steps: createSelectStatement},
	{
		id: "W14", what: "a temporary table that hides the outbox, and an outbox under another name",
		do: []string{
			"INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')", "CREATE TEMPORARY TABLE o (aggregate_id VARCHAR(64), payload JSON)", "INSERT INTO o VALUES ('temporary', '2')", "DROP TEMPORARY TABLE o",
			"RENAME TABLE o TO p", "INSERT INTO p(aggregate_id, payload) VALUES ('elsewhere', '3')", "RENAME TABLE p TO o", "INSERT INTO o(aggregate_id, payload) VALUES ('b', '4')",
		},
		want: []string{"a 1", "b 4"},
	},
	{
		id: "W15", what: "the text of each statement in the binlog beside its rows",
		do:   []string{"SET binlog_rows_query_log_events = ON", "INSERT /* a comment; BEGIN */ INTO o(aggregate_id, payload) VALUES ('a', '1')", "BEGIN", "INSERT INTO o(aggregate_id, payload) VALUES ('COMMIT', '2')", "INSERT INTO o(aggregate_id, payload) VALUES ('ROLLBACK', '3')", "COMMIT"},
		want: []string{"a 1", "COMMIT 2", "ROLLBACK 3"},
	},
	{
		id: "W16", what: "an unsafe statement in a session of mixed format, which the server logs as rows",
		do:   []string{"SET binlog_format = MIXED", "INSERT INTO o(aggregate_id, payload) VALUES (SUBSTR(UUID(), 1, 0), '1')"},
		want: []string{" 1"},
	},
	{
		id: "W17", what: "temporary tables that are made and dropped within transactions and in statement format",
		do: []string{
			"BEGIN", "INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')", "DROP TEMPORARY TABLE IF EXISTS nope", "CREATE TEMPORARY TABLE tt (id INT)", "INSERT INTO tt VALUES (1)", "INSERT INTO o(aggregate_id, payload) VALUES ('b', '2')", "DROP TEMPORARY TABLE tt", "COMMIT",
			"SET binlog_format = STATEMENT", "CREATE TEMPORARY TABLE tt (id INT)", "DROP TEMPORARY TABLE tt", "SET binlog_format = ROW", "INSERT INTO o(aggregate_id, payload) VALUES ('c', '3')",
		},
		want: []string{"a 1", "b 2", "c 3"},
	},
	{id: "W18", what: "a MyISAM outbox, with a statement that fails in the middle and keeps its first rows", steps: failedHalfWay},
	{id: "W19", what: "row events of the older version", only: "8", alone: true, steps: olderRowEvents},
	{id: "R1", what: "rows of another server that this one has replicated", steps: replicatedThrough},
}

func loadLocal(s *site) {
	s.exec("CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(9) CHARACTER SET latin1, payload JSON)")
	s.begin(nil, nil)
	mysql.RegisterReaderHandler(s.db, func() io.Reader { return strings.NewReader("1;é\n2;b\n") })
	defer mysql.DeregisterReaderHandler(s.db)
	db := s.mysql.DB(s, s.db)
	if _, err := db.ExecContext(s.ctx, "LOAD DATA LOCAL INFILE 'Reader::"+s.db+"' INTO TABLE o CHARACTER SET utf8mb4 FIELDS TERMINATED BY ';' (@n, aggregate_id) SET payload = JSON_OBJECT('n', @n)"); err != nil {
		s.Fatal(err)
	}
	s.wantRecords(`é {"n": "1"}`, `b {"n": "2"}`)
}

func mixedEngines(s *site) {
	s.exec(outboxTable, "CREATE TABLE m (aggregate_id VARCHAR(9), payload JSON) ENGINE=MyISAM", "CREATE TABLE b (aggregate_id VARCHAR(9), payload JSON) ENGINE=BLACKHOLE")
	s.begin([]router.Rule{outboxRule(s.db, "o"), outboxRule(s.db, "m"), outboxRule(s.db, "b")}, nil)
	s.exec("INSERT INTO m VALUES ('m', '1')", "INSERT INTO o(aggregate_id, payload) VALUES ('o', '2')", "INSERT INTO b VALUES ('b', '3')",
		"BEGIN", "INSERT INTO m VALUES ('m stays', '4')", "ROLLBACK", "BEGIN", "INSERT INTO b VALUES ('b', '5')", "INSERT INTO o(aggregate_id, payload) VALUES ('o', '6')", "COMMIT",
		"BEGIN", "INSERT INTO o(aggregate_id, payload) VALUES ('no', '7')", "INSERT INTO b VALUES ('no', '8')", "ROLLBACK")
	s.equal(s.query(s.conn, "SELECT aggregate_id FROM m")[1], []string{"m stays"})
	s.wantRecords("m 1", "o 2", "b 3", "m stays 4", "b 5", "o 6")
}

func foreignStatements(s *site) {
	s.exec(outboxTable, "CREATE TABLE {db2}.x (id INT)", "CREATE TABLE {db2}.y (id INT)", "CREATE TRIGGER {db2}.tr AFTER INSERT ON {db2}.y FOR EACH ROW INSERT INTO {db}.o(aggregate_id, payload) VALUES ('unseen', '0')")
	s.begin(nil, nil)
	stops := func(statement string) {
		s.Helper()
		s.exec("SET binlog_format = STATEMENT", statement, "SET binlog_format = ROW")
		s.wantStop("statement_write")
		s.equal(s.got, nil)
		s.position = s.executed()
		s.restart()
	}
	s.exec("SET binlog_format = STATEMENT", "INSERT INTO {db2}.x VALUES (1)", "USE {db2}", "UPDATE x SET id = 2", "USE {db}", "SET binlog_format = ROW", "INSERT INTO o(aggregate_id, payload) VALUES ('seen', '1')")
	s.wantRecords("seen 1")
	stops("INSERT INTO {db2}.y VALUES (1)")
	stops("INSERT INTO o(aggregate_id, payload) SELECT 'unseen', '2' FROM {db2}.x")
	file := filepath.Join(s.TempDir(), "rows")
	if err := os.WriteFile(file, []byte("1\n"), 0o644); err != nil {
		s.Fatal(err)
	}
	stops("LOAD DATA INFILE '" + file + "' INTO TABLE o (payload)")
	s.exec("SET binlog_format = STATEMENT", "LOAD DATA INFILE '"+file+"' INTO TABLE {db2}.x", "SET @v = 5", "INSERT INTO {db2}.x VALUES (@v + LAST_INSERT_ID())", "INSERT INTO {db2}.x VALUES (RAND())", "SET binlog_format = ROW", "INSERT INTO o(aggregate_id, payload) VALUES ('seen', '2')")
	s.wantRecords("seen 2")
	s.exec("SET SESSION binlog_transaction_compression = ON")
	stops("UPDATE o SET payload = '3'") // it might have been an INSERT: the text is not read

	// More than 16 databases are not listed: any may be among them.
	var tables, sets []string
	for i := range 17 {
		s.exec(fmt.Sprintf("CREATE DATABASE {db2}_%d", i), fmt.Sprintf("CREATE TABLE {db2}_%d.x (id INT)", i), fmt.Sprintf("INSERT INTO {db2}_%d.x VALUES (1)", i))
		tables = append(tables, fmt.Sprintf("{db2}_%d.x x%d", i, i))
		sets = append(sets, fmt.Sprintf("x%d.id = 5", i))
	}
	stops("UPDATE " + strings.Join(tables, ", ") + " SET " + strings.Join(sets, ", "))
	for i := range 17 {
		s.exec(fmt.Sprintf("DROP DATABASE {db2}_%d", i))
	}

	s.configure(nil, func(o *binlog.Options) { o.IgnoreStatementWrites = true })
	s.exec("SET binlog_format = STATEMENT", "INSERT INTO {db2}.y VALUES (1)", "SET binlog_format = ROW", "INSERT INTO o(aggregate_id, payload) VALUES ('seen', '4')")
	s.wantRecords("seen 4")
}

func createSelectStatement(s *site) {
	s.exec("CREATE TABLE src (aggregate_id VARCHAR(9), payload INT)", "INSERT INTO src VALUES ('a', 1), ('b', 2)", "CREATE TABLE {db2}.src SELECT * FROM src")
	s.begin(nil, nil)
	s.exec("SET binlog_format = STATEMENT", "CREATE TABLE {db2}.o SELECT * FROM {db2}.src", "SET binlog_format = ROW")
	s.wantRecords()
	s.exec("SET binlog_format = STATEMENT", "CREATE TABLE o SELECT * FROM src")
	s.wantStop("statement_write", `database "{db}"`, "(transaction ")
}

func failedHalfWay(s *site) {
	s.exec("CREATE TABLE o (id INT PRIMARY KEY, aggregate_id INT, payload INT) ENGINE=MyISAM")
	s.begin(nil, nil)
	if _, err := s.conn.Execute("INSERT INTO o VALUES (1, 1, 1), (2, 2, 2), (1, 3, 3)"); err == nil {
		s.Error("the statement did not fail")
	}
	s.exec("LOCK TABLES o WRITE", "INSERT INTO o VALUES (4, 4, 4)", "UNLOCK TABLES")
	s.wantRecords("1 1", "2 2", "4 4")
}

func olderRowEvents(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	s.exec("SET GLOBAL log_bin_use_v1_row_events = ON")
	defer s.exec("SET GLOBAL log_bin_use_v1_row_events = OFF")
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')", "UPDATE o SET payload = '2'", "DELETE FROM o")
	s.wantRecords("a 1")
	if u, d := s.ignored("o", "update"), s.ignored("o", "delete"); u != 1 || d != 1 {
		s.Errorf("%v updates and %v deletes were counted", u, d)
	}
}

func replicatedThrough(s *site) {
	m := s.replica()
	s.exec(outboxTable)
	s.begin(nil, func(o *binlog.Options) { o.Addresses = []string{m.Addr()} })
	s.awaitReplica(m)
	replica := s.connect(m, s.db)
	s.execOn(replica, "STOP REPLICA") // so that its own commits come later
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')", "BEGIN", "INSERT INTO o(aggregate_id, payload) VALUES ('b', '2'), ('c', '3')", "COMMIT")
	var now sql.NullFloat64
	if err := s.mysql.DB(s, "").QueryRowContext(s.ctx, "SELECT UNIX_TIMESTAMP(NOW(6)), SLEEP(0.01)").Scan(&now, new(int)); err != nil {
		s.Fatal(err)
	}
	s.execOn(replica, "START REPLICA")
	s.wantRecords("a 1", "b 2", "c 3")
	source := s.value("SELECT @@server_uuid")
	for i, meta := range s.metas {
		if !strings.HasPrefix(meta.gtid, source) {
			s.Errorf("record %d is of %s, want one of %s", i, meta.gtid, source)
		}
		if float64(meta.millis)/1000 > now.Float64 {
			s.Errorf("record %d has the time %d, that of the replica; the source committed before %f", i, meta.millis, now.Float64)
		}
	}
	if s.reader.Status().ServerUUID.String() == source {
		s.Error("the source was read, not its replica")
	}
}
