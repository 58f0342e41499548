package cases_test

import (
	"context"
	"fmt"
	"strings"

	"outbox-relay/internal/sandbox"
	"outbox-relay/router"
)

var nameCases = []failureCase{
	{id: "N1", what: "names with dots, blanks, quotes and backquotes", steps: quotedNames("my.app, 'x'", "out`box \"1\"")},
	{
		id: "N2", what: "tables whose names differ in case alone",
		setup: []string{outboxTable, "CREATE TABLE O LIKE o", "CREATE TABLE {db2}.o LIKE o"},
		do:    []string{"INSERT INTO O(aggregate_id, payload) VALUES ('foreign', '1')", "INSERT INTO {db2}.o(aggregate_id, payload) VALUES ('foreign', '2')", "INSERT INTO o(aggregate_id, payload) VALUES ('a', '3')", "DELETE FROM O", "TRUNCATE O"},
		want:  []string{"a 3"}, ignored: map[string]float64{"delete": 0, "truncate": 0},
	},
	{id: "N3", what: "names in any script", steps: quotedNames("ЗаКазы", "外箱_événements")},
	{id: "N4", what: "names of 64 characters", steps: quotedNames(strings.Repeat("ж", 55), strings.Repeat("箱", 20)+strings.Repeat("x", 44))},
	{id: "N5", what: "names that are keywords or look like numbers", steps: quotedNames("select", "1e5")},
	{id: "N6", what: "a server with lower_case_table_names = 1 and a configuration in upper case", only: "9", steps: foldedNames},
	{
		id: "N7", what: "columns with blanks, braces, backquotes, any script and other case than in the rule",
		setup: []string{"CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, `Ключ 1` VARCHAR(9), `p{a}y|l``d` JSON, `a.b` BINARY(2), `" + strings.Repeat("箱", 64) + "` INT, `select` INT)"},
		rules: []router.Rule{{
			Table: "{db}.o", Preset: "none", Topic: "t", Key: "{ключ 1}", Value: "{`p{a}y|l``d`}",
			Headers: []router.HeaderRule{{Name: "ab", Value: "{a.b|hex}"}, {Name: "long", Value: "{" + strings.Repeat("箱", 64) + "}"}, {Name: "kw", Value: "{SELECT}"}},
		}},
		do:   []string{"INSERT INTO o VALUES (1, 'k', '{}', 'xy', 5, 6)"},
		want: []string{"k {} ab=7879 long=5 kw=6"},
	},
}

// quotedNames makes a case of a schema (to whose name more is added) and a table.
func quotedNames(schema, table string) func(*site) {
	quote := func(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }
	return func(s *site) {
		schema := schema + s.db[len(s.db)-9:]
		name := quote(schema) + "." + quote(table)
		s.exec("CREATE DATABASE "+quote(schema), strings.Replace(outboxTable, "TABLE o", "TABLE "+name, 1), "CREATE TABLE "+quote(schema)+".o (aggregate_id INT)")
		s.Cleanup(func() { _ = s.mysql.Exec(context.Background(), "DROP DATABASE "+quote(schema)) })
		s.begin([]router.Rule{{Table: name, Preset: "none", Topic: "t", Key: "{aggregate_id}", Value: "{payload}"}}, nil)
		s.exec("INSERT INTO "+name+"(aggregate_id, payload) VALUES ('a', '1')", "INSERT INTO "+quote(schema)+".o VALUES (1)", "TRUNCATE TABLE "+name, "INSERT INTO "+name+"(aggregate_id, payload) VALUES ('b', NULL)")
		s.wantStop("null_value", strings.ReplaceAll(table, "`", "``"))
		s.equal(s.got, []string{"a 1"})
		if n := s.metric("ignored_changes_total", "kind", "truncate"); n != 1 {
			s.Errorf("%v TRUNCATEs were counted", n)
		}
		d := s.daemon(fmt.Sprintf("  - {table: %q, preset: none, topic: t, key: \"{aggregate_id}\", value: \"{payload}\", tombstone: true}", name))
		d.wantExit(0, d.untilCaughtUp())
		s.equal(d.records(), []string{"b NULL"})
	}
}

// foldedNames runs on a server of its own, since a data folder keeps the setting for life.
func foldedNames(s *site) {
	s.mysql = sandbox.RunMySQL(s, sandbox.MySQLOptions{Version: s.version.prefix, FoldNames: true})
	s.conn = s.connect(s.mysql, "")
	s.db = "Cases_ÄPFEL"
	s.exec("CREATE DATABASE {db}", "USE {db}", "CREATE TABLE OUTBOX (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(9), payload INT)", "CREATE TABLE Foreign_ (n INT)")
	s.begin([]router.Rule{outboxRule("cases_Äpfel", "Outbox")}, nil)
	d := s.daemon("  - {table: cases_ÄPFEL.OutBox, preset: none, topic: t, key: \"{AGGREGATE_ID}\", value: \"{payload}\"}")
	s.exec("INSERT INTO outbox(aggregate_id, payload) VALUES ('a', 1)", "INSERT INTO foreign_ VALUES (1)", "INSERT INTO OUTBOX(aggregate_id, payload) VALUES ('b', 2)", "TRUNCATE oUtBoX")
	s.wantRecords("a 1", "b 2")
	if n := s.metric("ignored_changes_total", "kind", "truncate", "table", "cases_Äpfel.Outbox"); n != 1 {
		s.Errorf("%v TRUNCATEs were counted", n)
	}
	d.wantExit(0, d.untilCaughtUp())
	s.equal(d.records(), []string{"a 1", "b 2"})
	s.configure([]router.Rule{outboxRule("cases_Äpfel", "Outbox"), outboxRule("cases_äpfel", "outbox")}, nil)
	s.wantStop("table_names", "cases_Äpfel.Outbox and cases_äpfel.outbox are one table")
	s.configure([]router.Rule{outboxRule("cases_Äpfel", "Outbox")}, nil)
	s.wantRecords()
	s.exec("SET binlog_format = STATEMENT", "INSERT INTO OUTBOX(aggregate_id, payload) VALUES ('unseen', 3)")
	s.wantStop("statement_write")
}
