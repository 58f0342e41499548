package cases_test

import (
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/router"
)

// document is a case of one JSON document and its text.
func document(id, what, expression string, want string) failureCase {
	return failureCase{id: id, what: what, values: &values{columns: []string{"payload JSON"}, mode: "-", rows: []string{expression}, want: [][]string{{want}}}}
}

var jsonCases = []failureCase{
	document("J1", "numbers of every kind and size",
		"'[1.0,1e2,1e-7,1e15,1e21,9007199254740993,18446744073709551615,1.7976931348623157e308,-0.0,5e-324]'",
		"[1.0, 100.0, 0.0000001, 1e15, 1e21, 9007199254740993, 18446744073709551615, 1.7976931348623157e308, -0.0, 5e-324]"),
	document("J2", "values of SQL types inside a document",
		"JSON_OBJECT('d',CAST('2020-01-02' AS DATE),'dt',CAST('2020-01-02 03:04:05.6' AS DATETIME(6)),'t0',CAST('00:00:00' AS TIME),'dec',CAST('1.10' AS DECIMAL(10,2)),'bin',CAST('abc' AS BINARY),'y',CAST(2020 AS YEAR))",
		`{"d": "2020-01-02", "y": 2020, "dt": "2020-01-02 03:04:05.600000", "t0": "00:00:00.000000", "bin": "base64:type15:YWJj", "dec": 1.10}`),
	{
		id: "J3", what: "markup, line separators and zero bytes in strings; the order of keys",
		values: &values{
			columns: []string{"payload JSON"},
			rows:    []string{`'{"s":"<a href=\\"x\\">& \\u0000 \\u2028 é😀"}'`, `'{"b":1,"a":2,"aa":3,"":4}'`},
			want:    [][]string{{"{\"s\": \"<a href=\\\"x\\\">& \\u0000 \u2028 é😀\"}"}, {`{"": 4, "a": 2, "b": 1, "aa": 3}`}},
		},
	},
	{
		id: "J4", what: "arrays and objects below and above 64 KiB, where offsets become wide",
		values: &values{
			columns: []string{"payload JSON"},
			rows: []string{
				"JSON_ARRAY(1, 'a', REPEAT('x', 65500), 70000, NULL, TRUE)", "JSON_ARRAY(1, 'a', REPEAT('x', 70000), 70000, NULL, TRUE)",
				"JSON_OBJECT('k', REPEAT('é', 32700), 'n', -70000)", "JSON_OBJECT('k', REPEAT('é', 40000), 'n', -70000)",
			},
			want: [][]string{
				{`[1, "a", "` + strings.Repeat("x", 65500) + `", 70000, null, true]`}, {`[1, "a", "` + strings.Repeat("x", 70000) + `", 70000, null, true]`},
				{`{"k": "` + strings.Repeat("é", 32700) + `", "n": -70000}`}, {`{"k": "` + strings.Repeat("é", 40000) + `", "n": -70000}`},
			},
		},
	},
	{
		id: "J5", what: "binary values of 57, 58 and 200 bytes: base64 is broken after 76 characters",
		values: &values{
			columns: []string{"payload JSON"},
			rows:    []string{binaryDocument(57), binaryDocument(58), binaryDocument(200)},
			want: [][]string{
				{`{"b": "base64:type15:` + strings.Repeat("YWFh", 19) + `"}`},
				{`{"b": "base64:type15:` + strings.Repeat("YWFh", 19) + `\nYQ=="}`},
				{`{"b": "base64:type15:` + strings.Repeat(strings.Repeat("YWFh", 19)+`\n`, 3) + strings.Repeat("YWFh", 9) + `YWE="}`},
			},
		},
	},
	{id: "J6", what: "columns of binary, bit, enum, set, float and geometry types put into a document", steps: columnsInDocuments},
	{
		id: "J7", what: "control characters, DEL, solidus, surrogate pairs and U+FEFF in strings",
		values: &values{
			columns: []string{"payload JSON"},
			rows:    []string{`'["\\u0001\\u0008\\u0009\\u000a\\u000b\\u000c\\u000d\\u000e\\u001f\\u007f/\\/\\ud83d\\ude00\\ufeff"]'`},
			want:    [][]string{{"[\"\\u0001\\b\\t\\n\\u000b\\f\\r\\u000e\\u001f\x7f//😀\ufeff\"]"}},
		},
	},
	{
		id: "J8", what: "doubled keys, empty containers and bare values",
		values: &values{
			columns: []string{"payload JSON"},
			rows:    []string{`'{"a":1,"a":2}'`, `'[]'`, `'{}'`, `'"x"'`, `'null'`, `'[[],{}]'`, `'true'`},
			want:    [][]string{{`{"a": 2}`}, {`[]`}, {`{}`}, {`"x"`}, {`null`}, {`[[], {}]`}, {`true`}},
		},
	},
	{id: "J9", what: "random documents built by SQL functions", steps: randomDocuments},
	{id: "J10", what: "random doubles in a document and in a DOUBLE column", steps: randomDoubles},
	{id: "J11", what: "documents as Debezium prints them, under the preset for that", steps: debeziumText},
	{id: "J12", what: "a NULL payload, and a NULL that INSERT IGNORE forces into a NOT NULL column", steps: nullDocuments},
}

func binaryDocument(n int) string {
	return fmt.Sprintf("JSON_OBJECT('b', CAST(REPEAT('a',%d) AS BINARY(%d)))", n, n)
}

func columnsInDocuments(s *site) {
	s.exec("CREATE TABLE src (b BINARY(3), bl BLOB, tb TINYBLOB, bi BIT(9), e ENUM('x','é'), se SET('p','q'), f FLOAT, g GEOMETRY, vb VARBINARY(9), y YEAR, ti TIME(2))",
		"INSERT INTO src VALUES ('a', 'blob', 'tiny', b'101010101', 'é', 'p,q', 0.1, ST_GeomFromText('POINT(1 2)', 4326), x'00ff', 2020, '-01:02:03.45')",
		"CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, payload JSON)")
	s.begin([]router.Rule{columnsRule(s.db, "o", "payload")}, nil)
	s.exec("INSERT INTO o(payload) SELECT JSON_OBJECT('b', b, 'bl', bl, 'tb', tb, 'bi', bi, 'e', e, 'se', se, 'f', f, 'vb', vb, 'y', y, 'ti', ti) FROM src",
		"INSERT INTO o(payload) SELECT JSON_OBJECT('g', g) FROM src")
	got := s.cells()
	if diff := cmp.Diff(s.selected("o", "payload"), got); diff != "" {
		s.Errorf("-SELECT +got:\n%s", diff)
	}
	want := `{"b": "base64:type254:YQAA", "e": "é", "f": 0.10000000149011612, "y": 2020, "bi": "base64:type16:AVU=", "bl": "base64:type252:YmxvYg==", "se": "p,q", "tb": "base64:type249:dGlueQ==", "ti": "-01:02:03.450000", "vb": "base64:type15:AP8="}`
	if len(got) != 2 || got[0][0] != want || !strings.Contains(got[1][0], `"type": "Point"`) {
		s.Errorf("got  %q\nwant %q", got, want)
	}
}

// randomDocuments compares what SQL makes of random numbers and strings.
func randomDocuments(s *site) {
	s.exec("CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, payload JSON)")
	s.begin([]router.Rule{columnsRule(s.db, "o", "payload")}, nil)
	s.exec("SET SESSION cte_max_recursion_depth = 100000", `INSERT INTO o(payload) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 2000)
 SELECT JSON_OBJECT(CONCAT('k', MOD(i, 7)), FLOOR(RAND(i)*POW(2, MOD(i, 64))), CONCAT(SUBSTR(SHA2(i, 256), 1, MOD(i, 65)), 'é"😀'), JSON_ARRAY(RAND(i+1)-0.5, NULL, MOD(i, 2)=0, CONVERT(CHAR(MOD(i*37, 128)) USING utf8mb4)),
  'd', CAST(RAND(i)*1000 AS DECIMAL(30,15)), 'b', CAST(SUBSTR(SHA2(i, 512), 1, MOD(i, 120)) AS BINARY), 't', CAST(SEC_TO_TIME(RAND(i)*86399) AS TIME(6)), 'w', DATE_ADD(CAST('2000-01-01' AS DATETIME(6)), INTERVAL i*7919 SECOND)) FROM n`)
	got := s.cells()
	want := s.selected("o", "payload")
	if len(want) != 2000 {
		s.Fatalf("%d documents", len(want))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.Errorf("-SELECT +got:\n%s", diff)
	}
}

func randomDoubles(s *site) {
	s.exec("CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, payload JSON, d DOUBLE, f FLOAT)")
	s.begin([]router.Rule{columnsRule(s.db, "o", "payload", "d", "f")}, nil)
	s.exec("SET SESSION cte_max_recursion_depth = 100000", `INSERT INTO o(payload, d, f) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 3000),
 r(d) AS (SELECT (RAND(i)-0.5) * POW(10, FLOOR(RAND(i+7)*600)-300) FROM n UNION ALL SELECT i/8 FROM n WHERE i < 300 UNION ALL SELECT POW(10, i/10-20) FROM n WHERE i < 400)
 SELECT JSON_ARRAY(d), d, d*POW(10, -FLOOR(LOG10(ABS(d)))) FROM r`)
	got := s.cells()
	if diff := cmp.Diff(s.selected("o", "payload", "d", "f"), got); diff != "" || len(got) != 3698 {
		s.Errorf("%d rows, -SELECT +got:\n%s", len(got), diff)
	}
}

func debeziumText(s *site) {
	s.exec("CREATE TABLE o (id BINARY(16) PRIMARY KEY DEFAULT (UUID_TO_BIN(UUID())), aggregatetype VARCHAR(9), aggregateid VARCHAR(9), type VARCHAR(9), payload JSON)")
	const row = "INSERT INTO o(aggregatetype, aggregateid, type, payload) VALUES "
	s.begin([]router.Rule{{Table: s.db + ".o", Preset: "debezium"}}, nil)
	s.exec(row + `('order', 'k', 'E', '{"a":0.0001,"b":1e10,"c":[1,"x",null,{}],"d":[],"e":null,"f":1.0,"g":"<é"}')`)
	s.records()
	const want = `k {"a":0.000100000000000000004792173602385929598312941379845142364501953125,"b":10000000000,"c":[1,"x",null,{}],"d":[],"e":null,"f":1.0,"g":"<é"} __debezium.context.`
	if len(s.got) != 1 || !strings.HasPrefix(s.got[0], want) || s.metas[0].topic != "outbox.event.order" {
		s.Errorf("got  %q\nwant %q", s.got, want)
	}
}

func nullDocuments(s *site) {
	s.exec("CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(9), payload JSON)", "CREATE TABLE m (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(9), payload JSON NOT NULL)")
	tombstones := outboxRule(s.db, "o")
	tombstones.Tombstone = true
	s.begin([]router.Rule{tombstones, outboxRule(s.db, "m")}, nil)
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('k', NULL)", "INSERT IGNORE INTO m(aggregate_id, payload) VALUES ('k', NULL), ('l', '{}')")
	s.wantRecords("k NULL", "k null", "l {}")
	s.configure([]router.Rule{outboxRule(s.db, "o")}, nil)
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('k', NULL)")
	s.wantStop("null_value", "{db}.o", "payload")
}
