package cases_test

import (
	"fmt"
	"strings"

	"outbox-relay/binlog"
	"outbox-relay/router"
)

var schemaCases = []failureCase{
	{
		id: "S1", what: "columns are added in front and between, dropped and renamed while the relay is stopped, with rows before and after",
		do: []string{
			"INSERT INTO o(aggregate_id, payload) VALUES ('1', '\"before\"')",
			"ALTER TABLE o ADD first_col INT DEFAULT 3 FIRST", "INSERT INTO o(aggregate_id, payload) VALUES ('2', '\"first\"')",
			"ALTER TABLE o ADD twin VARCHAR(64) DEFAULT 'twin' AFTER id, ALGORITHM=INSTANT", "INSERT INTO o(aggregate_id, payload) VALUES ('3', '\"instant\"')",
			"ALTER TABLE o DROP COLUMN first_col", "INSERT INTO o(aggregate_id, payload) VALUES ('4', '\"dropped\"')",
			"ALTER TABLE o RENAME COLUMN aggregate_id TO x, RENAME COLUMN twin TO aggregate_id", "INSERT INTO o(x, aggregate_id, payload) VALUES ('x', '5', '\"renamed\"')",
		},
		want: []string{`1 "before"`, `2 "first"`, `3 "instant"`, `4 "dropped"`, `5 "renamed"`},
	},
	{id: "S2", what: "DDL of other tables that is hard to parse", steps: foreignDDL},
	{id: "S3", what: "dozens of other tables are created, altered and dropped", steps: manyTables},
	{
		id: "S4", what: "an invisible column in the middle of the outbox",
		do: []string{
			"INSERT INTO o(aggregate_id, payload) VALUES ('k', '1')", "ALTER TABLE o ADD c INT DEFAULT 7 INVISIBLE AFTER id", "INSERT INTO o(aggregate_id, payload) VALUES ('l', '2')",
			"ALTER TABLE o ALTER COLUMN payload SET INVISIBLE", "INSERT INTO o(aggregate_id, payload) VALUES ('m', '3')",
		},
		want: []string{"k 1", "l 2", "m 3"},
	},
	{
		id: "S5", what: "functional indexes, one of them over an array, whose hidden columns are not in the rows",
		do:   []string{"CREATE INDEX fx ON o ((CONCAT(aggregate_id, 'x')))", "INSERT INTO o(aggregate_id, payload) VALUES ('k', '1')", "CREATE INDEX fy ON o ((CAST(payload->'$.n' AS CHAR(9))), aggregate_id)", "INSERT INTO o(aggregate_id, payload) VALUES ('l', '{\"n\": 2}')", "CREATE INDEX mv ON o ((CAST(payload->'$.a' AS UNSIGNED ARRAY)))", "INSERT INTO o(aggregate_id, payload) VALUES ('m', '{\"a\": [3]}')"},
		want: []string{"k 1", `l {"n": 2}`, `m {"a": [3]}`},
	},
	{id: "S6", what: "a column that a rule needs is dropped, and one that a preset only likes to have", steps: droppedColumns},
	{id: "S7", what: "the outbox is created after the relay has started, dropped, and created again with other columns", steps: lateOutbox},
	{
		id: "S8", what: "TRUNCATE of the outbox",
		do: []string{"INSERT INTO o(aggregate_id, payload) VALUES ('k', '1')", "TRUNCATE o", "truncate table `{db}`.`o`", "INSERT INTO o(aggregate_id, payload) VALUES ('l', '2')"},

		want: []string{"k 1", "l 2"}, ignored: map[string]float64{"truncate": 2},
	},
	{id: "S10", what: "binlog_row_metadata MINIMAL: columns are renamed and added while the relay reads, and while it is stopped", alone: true, steps: unnamedColumns},
	{id: "S11", what: "definitions that are larger than limits.row: hundreds of long names, an ENUM of thousands of members, also of another table", steps: largeDefinitions},
	{
		id: "S9", what: "two outbox tables of different columns and rules, in one transaction",
		setup: []string{outboxTable, "CREATE TABLE p (a INT, body BLOB, k BINARY(2), id INT AUTO_INCREMENT PRIMARY KEY)"},
		rules: []router.Rule{
			{Table: "{db}.o", Preset: "none", Topic: "t", Key: "{aggregate_id}", Value: "{payload}"},
			{Table: "{db}.p", Preset: "none", Topic: "u.{a}", Key: "{k|hex}", Value: "{body}", Headers: []router.HeaderRule{{Name: "id", Value: "{id}"}}},
		},
		do: []string{
			"BEGIN", "INSERT INTO o(aggregate_id, payload) VALUES ('k', '1')", "INSERT INTO p(a, body, k) VALUES (5, 'B', 'xy')", "INSERT INTO o(aggregate_id, payload) VALUES ('l', '2')", "COMMIT",
			"INSERT INTO p(a, body, k) VALUES (6, x'00ff', 'z')",
		},
		want: []string{"k 1", "7879 B id=1", "l 2", "7a00 \x00\xff id=2"},
	},
}

// unnamedColumns writes under MINIMAL, where the binlog has no names and the server knows only those of today.
func unnamedColumns(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	defer s.exec("SET GLOBAL binlog_row_metadata = FULL")
	s.exec("SET GLOBAL binlog_row_metadata = MINIMAL", "INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')")
	s.wantRecords("a 1")
	s.exec("ALTER TABLE o ADD first_col VARCHAR(64) DEFAULT 'x' AFTER id")
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('b', '2')")
	s.wantRecords("b 2")
	s.stop()
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('c', '3')", "ALTER TABLE o ADD twin VARCHAR(64) DEFAULT 'y' AFTER id, DROP COLUMN first_col", "INSERT INTO o(aggregate_id, payload) VALUES ('d', '4')")
	before := s.position.Clone()
	s.restart() // with what the checkpoint remembers of the columns
	s.wantRecords("c 3", "d 4")
	s.stop()
	s.position, s.columns = before, nil
	s.restart() // without
	s.wantStop("columns_unknown", "{db}.o", "ALTER TABLE", "binlog_row_metadata")
	s.equal(s.got, nil)
}

func largeDefinitions(s *site) {
	members := make([]string, 2500)
	for i := range members {
		members[i] = fmt.Sprintf("'%s%04d'", strings.Repeat("m", 36), i)
	}
	columns := make([]string, 900)
	for i := range columns {
		columns[i] = fmt.Sprintf("`%s%04d` TINYINT", strings.Repeat("箱", 60), i)
	}
	s.exec("SET SESSION innodb_strict_mode = OFF", "CREATE TABLE o (aggregate_id INT, payload ENUM("+strings.Join(members, ", ")+"))", "CREATE TABLE f LIKE o", "CREATE TABLE l ("+strings.Join(columns, ", ")+", aggregate_id INT, payload INT)")
	s.begin([]router.Rule{outboxRule(s.db, "o"), outboxRule(s.db, "l")}, func(o *binlog.Options) { o.RowLimit = 64 << 10 })
	s.exec("INSERT INTO f VALUES (1, 1)", "INSERT INTO o VALUES (1, 2500)", "INSERT INTO l(aggregate_id, payload) VALUES (2, 3)", "SET SESSION binlog_transaction_compression = ON", "INSERT INTO f VALUES (1, 1)", "INSERT INTO o VALUES (3, 1)", "INSERT INTO l(aggregate_id, payload) VALUES (4, 5)")
	m := strings.Repeat("m", 36)
	s.wantRecords("1 "+m+"2499", "2 3", "3 "+m+"0000", "4 5")
}

func foreignDDL(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	s.exec("USE {db2}",
		"CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(9)) /*!99104 COMPRESSED */",
		"CREATE DEFINER=`root`@`%` TRIGGER tr BEFORE INSERT ON a FOR EACH ROW BEGIN SET NEW.v = CONCAT(NEW.v, ';\\'`'); END",
		"CREATE PROCEDURE p() BEGIN DECLARE x INT DEFAULT 1; WHILE x < 2 DO SET x = x + 1; END WHILE; END",
		"CREATE PROCEDURE q() START TRANSACTION",
		"CREATE FUNCTION f(x INT) RETURNS INT DETERMINISTIC RETURN x + 1",
		"CREATE EVENT ev ON SCHEDULE EVERY 1 DAY DISABLE DO INSERT INTO {db}.o(aggregate_id) VALUES ('no')",
		"SET SESSION sql_mode = 'ANSI_QUOTES'", `CREATE TABLE "we""ird" ("select" INT DEFAULT (1 + 1), CHECK ("select" > 0))`, "SET SESSION sql_mode = DEFAULT",
		"CREATE TABLE parts (id INT, PRIMARY KEY (id)) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))",
		"CREATE TABLE ex (id INT, PRIMARY KEY (id))", "INSERT INTO ex VALUES (5)", "ALTER TABLE parts EXCHANGE PARTITION p0 WITH TABLE ex", "ALTER TABLE parts DROP PARTITION p1",
		"CREATE VIEW vw AS SELECT * FROM a", "CREATE USER IF NOT EXISTS cases IDENTIFIED BY 'x'", "DROP USER cases", "ANALYZE TABLE a", "CREATE TABLE c AS SELECT * FROM a",
		"CREATE TEMPORARY TABLE tt (id INT)", "INSERT INTO tt VALUES (1)", "DROP TEMPORARY TABLE tt", "INSERT INTO a VALUES (1, 'x')", "RENAME TABLE c TO d", "USE {db}")
	if strings.HasPrefix(s.version.number, "9") {
		s.exec("CREATE LIBRARY {db2}.lib LANGUAGE JAVASCRIPT AS 'export function f() { return 1 }'")
	}
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('k', '1')")
	s.wantRecords("k 1")
}

func manyTables(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	d := s.daemon(`  - {table: {db}.o, preset: none, topic: t, key: "{aggregate_id}", value: "{payload}"}`)
	p := d.start()
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('k', '1')")
	p.await("the first record", func() bool { return len(d.lines()) == 1 })
	before := p.peak()
	for i := range 60 {
		s.exec(fmt.Sprintf("CREATE TABLE {db2}.t%d (id INT PRIMARY KEY, v%d VARCHAR(%d))", i, i, 10+i))
	}
	for i := range 60 {
		s.exec(fmt.Sprintf("INSERT INTO {db2}.t%d VALUES (1, 'x')", i))
	}
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('l', '2')")
	p.await("the second record", func() bool { return len(d.lines()) == 2 })
	if grown := p.peak() - before; grown > 8<<20 {
		s.Errorf("60 tables cost %d bytes", grown)
	}
	if code := p.terminate(); code != 0 {
		s.Errorf("exit code %d:\n%s", code, d.log)
	}
	s.exec("DROP TABLE {db2}.t1, {db2}.t2", "ALTER TABLE {db2}.t3 ADD w INT", "INSERT INTO o(aggregate_id, payload) VALUES ('m', '3')")
	d.wantExit(0, d.untilCaughtUp())
	s.equal(d.records(), []string{"m 3"})
}

func droppedColumns(s *site) {
	s.exec("CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_type VARCHAR(9), aggregate_id VARCHAR(9), event_type VARCHAR(9), payload JSON, idempotency_key VARCHAR(9), tenant VARCHAR(9))")
	rule := router.Rule{Table: s.db + ".o", Topic: "t", Headers: []router.HeaderRule{{Name: "tenant", Value: "{tenant}"}}}
	s.begin([]router.Rule{rule}, nil)
	s.exec("INSERT INTO o VALUES (1, 'a', 'k', 'E', '1', 'i', 'n')", "ALTER TABLE o DROP COLUMN idempotency_key", "INSERT INTO o VALUES (2, 'a', 'l', 'E', '2', 'n')")
	s.wantRecords("k 1 id=1 event_type=E aggregate_type=a idempotency_key=i tenant=n", "l 2 id=2 event_type=E aggregate_type=a tenant=n")

	s.exec("ALTER TABLE o DROP COLUMN tenant", "INSERT INTO o VALUES (3, 'a', 'm', 'E', '3')")
	s.wantStop("columns", "table {db}.o has no column tenant", "tables[0].headers[0]", "its columns are id, aggregate_type, aggregate_id, event_type, payload")

	s.configure([]router.Rule{{Table: "{db}.o", Topic: "t"}}, nil) // the rule is corrected
	s.wantRecords("m 3 id=3 event_type=E aggregate_type=a")
	s.exec("ALTER TABLE o DROP COLUMN payload", "INSERT INTO o VALUES (4, 'a', 'n', 'E')")
	s.wantStop("columns", "table {db}.o has no column payload", "tables[0].value")
}

func lateOutbox(s *site) {
	s.begin(nil, nil)
	s.wantRecords()
	s.exec(outboxTable, "INSERT INTO o(aggregate_id, payload) VALUES ('k', '1')")
	s.wantRecords("k 1")
	s.exec("DROP TABLE o", "CREATE TABLE o (payload VARCHAR(9) CHARACTER SET latin1, aggregate_id BIGINT UNSIGNED, z INT)", "INSERT INTO o(aggregate_id, payload) VALUES (18446744073709551615, 'é')")
	s.wantRecords("18446744073709551615 é")
}
