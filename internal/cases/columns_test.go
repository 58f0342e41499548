package cases_test

import (
	"fmt"
	"strings"

	"outbox-relay/router"
)

var columnCases = []failureCase{
	{id: "M1", what: "binlog_row_image MINIMAL: a column that the rule needs was not written by the statement", steps: minimalImage},
	{
		id: "M2", what: "binlog_row_image MINIMAL: columns that no rule needs are absent, also before and between the others",
		setup: []string{"CREATE TABLE o (x VARCHAR(9) DEFAULT 'x', id INT AUTO_INCREMENT PRIMARY KEY, y INT, aggregate_id VARCHAR(9), z JSON, payload JSON, w INT DEFAULT 7)"},
		do: []string{
			"SET binlog_row_image = MINIMAL", "INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')", "INSERT INTO o(payload, y, aggregate_id) VALUES ('2', 5, 'b'), ('3', NULL, 'c')",
			"SET binlog_row_image = FULL", "INSERT INTO o(aggregate_id, payload) VALUES ('d', '4')",
		},
		want: []string{"a 1", "b 2", "c 3", "d 4"},
	},
	{id: "M3", what: "binlog_row_image NOBLOB: a BLOB that was written and one that was not", steps: noBlobImage},
	{
		id: "M4", what: "generated columns, stored and virtual, and an invisible one, used by the rule",
		setup: []string{"CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, kind VARCHAR(9), v VARCHAR(20) AS (CONCAT(kind, '-', payload->>'$.n')) VIRTUAL, hidden INT INVISIBLE DEFAULT 5, st INT AS (payload->'$.n' + 1) STORED, payload JSON, aggregate_id VARCHAR(20) AS (UPPER(kind)) STORED)"},
		rules: []router.Rule{{Table: "{db}.o", Preset: "none", Topic: "t", Key: "{aggregate_id}", Value: "{payload}", Headers: []router.HeaderRule{{Name: "v", Value: "{v}"}, {Name: "st", Value: "{st}"}, {Name: "hidden", Value: "{hidden}"}}}},
		do:    []string{"INSERT INTO o(kind, payload) VALUES ('a', '{\"n\": 1}')", "CREATE INDEX fx ON o ((CONCAT(kind, 'z')))", "INSERT INTO o(kind, payload, hidden) VALUES ('b', '{\"n\": 2}', 6)"},
		want:  []string{`A {"n": 1} v=a-1 st=2 hidden=5`, `B {"n": 2} v=b-2 st=3 hidden=6`},
	},
	{
		id: "M5", what: "a generated invisible primary key in front of all columns",
		setup: []string{"SET sql_generate_invisible_primary_key = ON", "CREATE TABLE o (aggregate_id VARCHAR(9), payload JSON)", "SET sql_generate_invisible_primary_key = OFF"},
		rules: []router.Rule{{Table: "{db}.o", Preset: "none", Topic: "t", Key: "{aggregate_id}", Value: "{payload}", Headers: []router.HeaderRule{{Name: "pk", Value: "{my_row_id}"}}}},
		do:    []string{"INSERT INTO o VALUES ('a', '1'), ('b', '2')"},
		want:  []string{"a 1 pk=1", "b 2 pk=2"},
	},
	{
		id: "M6", what: "the filters uuid, hex and base64, of text the bytes of its UTF-8",
		setup: []string{"CREATE TABLE o (id BINARY(16) DEFAULT (UUID_TO_BIN('00112233-4455-6677-8899-aabbccddee00')), b VARBINARY(9), t VARCHAR(9) CHARACTER SET latin1, n BLOB)"},
		rules: []router.Rule{{
			Table: "{db}.o", Preset: "none", Topic: "t", Key: "{id|uuid}", Value: "{id|hex}{b|base64}",
			Headers: []router.HeaderRule{{Name: "t", Value: "{t|hex}"}, {Name: "n", Value: "{n|base64}"}, {Name: "id", Value: "{id|base64}"}},
		}},
		do:   []string{"INSERT INTO o(b, t, n) VALUES (x'00ff', 'é', NULL)"},
		want: []string{"00112233-4455-6677-8899-aabbccddee00 00112233445566778899aabbccddee00AP8= t=c3a9 n=NULL id=ABEiM0RVZneImaq7zN3uAA=="},
	},
	{
		id: "M7", what: "the filter uuid on bytes that are no UUID",
		setup: []string{"CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARBINARY(17), payload INT)"},
		rules: []router.Rule{{Table: "{db}.o", Preset: "none", Topic: "t", Key: "{aggregate_id|uuid}", Value: "{payload}"}},
		do:    []string{"INSERT INTO o(aggregate_id, payload) VALUES (UUID_TO_BIN('00112233-4455-6677-8899-aabbccddee00'), 1), ('short', 2)"},
		want:  []string{"00112233-4455-6677-8899-aabbccddee00 1"}, stop: "invalid_filter", words: []string{"aggregate_id", "16 bytes, the column has 5"},
	},
	{
		id: "M9", what: "binlog_row_image MINIMAL and an INSERT that names no column at all",
		setup: []string{"CREATE TABLE o (aggregate_id VARCHAR(9) DEFAULT 'd', payload INT DEFAULT 5)"},
		do:    []string{"INSERT INTO o VALUES ('a', 1)", "SET binlog_row_image = MINIMAL", "INSERT INTO o() VALUES ()"},
		want:  []string{"a 1"}, stop: "missing_column", words: []string{"{db}.o", "column aggregate_id"},
	},
	{id: "M8", what: "a table of hundreds of columns, every other one NULL", steps: wideTable},
}

func minimalImage(s *site) {
	s.exec("CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(9) DEFAULT 'd', payload JSON, tenant VARCHAR(9) DEFAULT 't', g VARCHAR(9) AS (UPPER(tenant)) STORED)")
	rule := router.Rule{Table: "{db}.o", Preset: "none", Topic: "t", Key: "{aggregate_id}", Value: "{payload}", Tombstone: true, NullKey: "allow", Headers: []router.HeaderRule{{Name: "tenant", Value: "{tenant}"}}}
	s.begin([]router.Rule{rule}, nil)
	s.exec("SET binlog_row_image = MINIMAL")
	stops := func(statement, column string) {
		s.Helper()
		s.exec(statement)
		s.wantStop("missing_column", "{db}.o", ", column "+column, "binlog_row_image is not FULL")
		s.equal(s.got, nil)
		s.position = s.executed()
		s.restart()
	}
	s.exec("INSERT INTO o(aggregate_id, payload, tenant) VALUES ('a', NULL, 'n')")
	s.wantRecords("a NULL tenant=n")
	stops("INSERT INTO o(payload, tenant) VALUES ('1', 'n')", "aggregate_id") // never the NULL that null_key allows
	stops("INSERT INTO o(aggregate_id, tenant) VALUES ('a', 'n')", "payload") // nor a tombstone
	stops("INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')", "tenant") // nor the default
	rule.Headers[0].Value = "{g}"
	s.configure([]router.Rule{rule}, nil)
	s.exec("INSERT INTO o(aggregate_id, payload, tenant) VALUES ('a', '1', 'n')")
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('b', '2')")
	s.wantRecords("a 1 tenant=N", "b 2 tenant=T") // generated columns are always there
}

func noBlobImage(s *site) {
	s.exec("CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(9), b BLOB, payload TEXT)")
	s.begin(nil, nil)
	s.exec("SET binlog_row_image = NOBLOB", "INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')", "INSERT INTO o(aggregate_id, b, payload) VALUES ('b', 'x', '2')")
	s.wantRecords("a 1", "b 2")
	s.exec("INSERT INTO o(aggregate_id) VALUES ('c')")
	s.wantStop("missing_column", "{db}.o", "payload")
}

func wideTable(s *site) {
	const n = 300
	var columns, values []string
	rule := router.Rule{Table: "{db}.o", Preset: "none", Topic: "t", Key: "{id}", Value: "v"}
	want := "1 v"
	for i := range n {
		columns = append(columns, fmt.Sprintf("c%d %s", i, []string{"INT UNSIGNED", "VARCHAR(9)", "TINYINT(1)", "DECIMAL(5,1)"}[i%4]))
		value, text := "NULL", "NULL"
		if i%2 == 1 {
			value, text = fmt.Sprint(i%100), fmt.Sprint(i%100)
			if i%4 == 3 {
				text += ".0"
			}
		}
		values = append(values, value)
		rule.Headers = append(rule.Headers, router.HeaderRule{Name: fmt.Sprintf("c%d", i), Value: fmt.Sprintf("{c%d}", i)})
		want += fmt.Sprintf(" c%d=%s", i, text)
	}
	s.exec("CREATE TABLE o (" + strings.Join(columns, ", ") + ", id INT)")
	s.begin([]router.Rule{rule}, nil)
	s.exec("INSERT INTO o VALUES (" + strings.Join(values, ", ") + ", 1)")
	s.wantRecords(want)
}
