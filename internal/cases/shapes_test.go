package cases_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/router"
)

var shapeCases = []failureCase{
	{id: "Q1", what: "INSERTs in a session of statement or mixed format", steps: statementWrites},
	{
		id: "Q2", what: "a trigger of another table writes the outbox",
		setup: []string{outboxTable, "CREATE TABLE od (n INT)", "CREATE TRIGGER tr AFTER INSERT ON od FOR EACH ROW INSERT INTO o(aggregate_id, payload) VALUES (NEW.n, JSON_OBJECT('n', NEW.n))"},
		do:    []string{"INSERT INTO od VALUES (7), (8)"},
		want:  []string{`7 {"n": 7}`, `8 {"n": 8}`},
	},
	{
		id: "Q3", what: "INSERT and DELETE of the row in one transaction",
		do:   []string{"BEGIN", "INSERT INTO o(aggregate_id, payload) VALUES ('k', '1')", "DELETE FROM o WHERE aggregate_id = 'k'", "COMMIT"},
		want: []string{"k 1"}, ignored: map[string]float64{"delete": 1},
	},
	{
		id: "Q4", what: "published rows are deleted in batches",
		do: []string{
			"INSERT INTO o(aggregate_id, payload) VALUES ('a', '1'), ('b', '2'), ('c', '3'), ('d', '4')", "DELETE FROM o ORDER BY id LIMIT 2", "DELETE FROM o ORDER BY id LIMIT 2", "DELETE FROM o ORDER BY id LIMIT 2",
			"INSERT INTO o(aggregate_id, payload) VALUES ('e', '5')",
		},
		want: []string{"a 1", "b 2", "c 3", "d 4", "e 5"}, ignored: map[string]float64{"delete": 2},
	},
	{id: "Q5", what: "one statement whose rows fill several row events", steps: severalRowEvents},
	{id: "Q6", what: "INSERT … SELECT, LOAD DATA, CREATE TABLE … SELECT of another table, and a procedure", steps: waysToWrite},
	{id: "Q7", what: "an outbox of the BLACKHOLE engine, whose transactions end in a COMMIT in text form", steps: blackhole},
	{
		id: "Q8", what: "a BLACKHOLE outbox with AUTO_INCREMENT, which gives the same ids again and again",
		setup: []string{"CREATE TABLE o (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(64), payload JSON) ENGINE=BLACKHOLE"},
		rules: []router.Rule{{Table: "{db}.o", Preset: "none", Topic: "t", Key: "{aggregate_id}", Value: "{payload}", Headers: []router.HeaderRule{{Name: "id", Value: "{id}"}}}},
		do:    []string{"INSERT INTO o(aggregate_id, payload) VALUES ('a', '1'), ('b', '2')", "INSERT INTO o(aggregate_id, payload) VALUES ('c', '3'), ('d', '4')"},
		want:  []string{"a 1 id=1", "b 2 id=2", "c 3 id=1", "d 4 id=2"},
	},
	{
		id: "Q9", what: "INSERT with sql_log_bin = 0, which no replica sees",
		do:   []string{"INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')", "SET sql_log_bin = 0", "INSERT INTO o(aggregate_id, payload) VALUES ('unseen', '2')", "SET sql_log_bin = 1", "INSERT INTO o(aggregate_id, payload) VALUES ('c', '3')"},
		want: []string{"a 1", "c 3"},
	},
	{id: "Q10", what: "NULL and empty text in key, topic and payload", steps: nullAndEmpty},
}

func statementWrites(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	for _, format := range []string{"STATEMENT", "MIXED"} {
		s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('seen', '1')", "SET binlog_format = "+format, "INSERT INTO o(aggregate_id, payload) VALUES ('unseen', '2')", "SET binlog_format = ROW", "INSERT INTO o(aggregate_id, payload) VALUES ('behind', '3')")
		s.wantStop("statement_write", `database "{db}"`, "(transaction ", "on_statement_write: ignore")
		s.equal(s.got, []string{"seen 1"})

		d := s.daemon(`  - {table: {db}.o, preset: none, topic: t, key: "{aggregate_id}", value: "{payload}"}`)
		d.wantExit(3, d.untilCaughtUp(), "statement-format change")

		s.configure(nil, func(o *binlog.Options) { o.IgnoreStatementWrites = true }) // a policy that the user wrote down
		s.wantRecords("behind 3")
		if n := s.metric("ignored_statement_writes_total"); n < 1 {
			s.Errorf("%v statements were counted", n)
		}
		s.configure(nil, nil)
	}
}

func severalRowEvents(s *site) {
	s.exec("CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id INT, payload VARCHAR(250))")
	s.begin(nil, nil)
	var rows, want []string
	for i := range 60 {
		rows = append(rows, fmt.Sprintf("(%d, REPEAT('x', 220))", i))
		want = append(want, fmt.Sprintf("%d %s", i, strings.Repeat("x", 220)))
	}
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES " + strings.Join(rows, ", "))
	s.wantRecords(want...)
}

func waysToWrite(s *site) {
	file := filepath.Join(s.TempDir(), "rows")
	if err := os.WriteFile(file, []byte("l\t1\nm\t2\n"), 0o644); err != nil {
		s.Fatal(err)
	}
	s.exec(outboxTable, "CREATE TABLE src (a VARCHAR(9), p INT)", "INSERT INTO src VALUES ('a', 1), ('b', 2)", "CREATE PROCEDURE w(n INT) BEGIN INSERT INTO o(aggregate_id, payload) VALUES ('p', CAST(n AS JSON)), ('q', CAST(n + 1 AS JSON)); END")
	s.begin(nil, nil)
	s.exec("INSERT INTO o(aggregate_id, payload) SELECT a, CAST(p AS JSON) FROM src ORDER BY a", "LOAD DATA INFILE '"+file+"' INTO TABLE o (aggregate_id, payload)",
		"CREATE TABLE copy SELECT * FROM src", "CALL w(5)")
	s.wantRecords("a 1", "b 2", "l 1", "m 2", "p 5", "q 6")
}

func blackhole(s *site) {
	s.exec("CREATE TABLE o (aggregate_id VARCHAR(64), payload JSON) ENGINE=BLACKHOLE")
	s.begin(nil, nil)
	s.exec("INSERT INTO o VALUES ('a', '1')")
	s.wantRecords("a 1")
	id, err := gtid.Parse(s.metas[0].gtid)
	if err != nil || !s.position.Contains(id) {
		s.Errorf("the position %s lacks %s, %v", s.position, s.metas[0].gtid, err)
	}
	s.exec("BEGIN", "INSERT INTO o VALUES ('b', '2')", "INSERT INTO o VALUES ('c', '3'), ('d', '4')", "COMMIT", "BEGIN", "INSERT INTO o VALUES ('no', '5')", "ROLLBACK")
	s.wantRecords("b 2", "c 3", "d 4")
}

func nullAndEmpty(s *site) {
	s.exec("CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(9), payload TEXT, topic VARCHAR(9))")
	rule := router.Rule{Table: "{db}.o", Preset: "none", Topic: "t.{topic}", Key: "{aggregate_id}", Value: "{payload}"}
	insert := func(row string) { s.exec("INSERT INTO o(aggregate_id, payload, topic) VALUES (" + row + ")") }
	stops := func(row, reason string) {
		s.Helper()
		insert(row)
		s.wantStop(reason, "{db}.o")
		s.position = s.executed()
		s.restart()
	}
	s.begin([]router.Rule{rule}, nil)
	insert("'', '', ''")
	s.wantRecords(" ") // an empty key and an empty value, no nulls
	if s.metas[0].topic != "t." {
		s.Errorf("topic %q", s.metas[0].topic)
	}
	stops("NULL, 'v', 'x'", "null_key")
	stops("'k', NULL, 'x'", "null_value")
	stops("'k', 'v', NULL", "null_in_template")
	stops("'k', 'v', 'a b'", "invalid_topic")
	rule.Topic = "{topic}"
	s.configure([]router.Rule{rule}, nil)
	stops("'k', 'v', NULL", "null_topic")
	stops("'k', 'v', ''", "invalid_topic")
	rule.NullKey, rule.Tombstone = "allow", true // on purpose
	s.configure([]router.Rule{rule}, nil)
	insert("NULL, NULL, 'x'")
	s.wantRecords("NULL NULL")
}
