package cases_test

import (
	"bytes"
	"fmt"
	"net"
	"strings"

	"outbox-relay/router"
)

var valueCases = []failureCase{
	{
		id: "V1", what: "a UUID in BINARY(16) that ends in a zero byte, which the binlog leaves out",
		setup: []string{"CREATE TABLE o (event_id BINARY(16) PRIMARY KEY, n VARBINARY(16))"},
		do:    []string{"INSERT INTO o VALUES (UNHEX('00112233445566778899AABBCCDD0000'), UNHEX('0100'))"},
		rules: []router.Rule{{
			Table: "{db}.o", Preset: "none", Topic: "t", Key: "{event_id|uuid}", Value: "{event_id}",
			Headers: []router.HeaderRule{{Name: "hex", Value: "{n|hex}"}},
		}},
		want: []string{"00112233-4455-6677-8899-aabbccdd0000 \x00\x11\"3DUfw\x88\x99\xaa\xbb\xcc\xdd\x00\x00 hex=0100"},
	},
	{
		id: "V2", what: "text columns of several charsets, written by a utf8mb4 client",
		values: &values{
			columns: []string{"l TEXT CHARACTER SET latin1", "g TEXT CHARACTER SET gbk", "u VARCHAR(9) CHARACTER SET utf16", "s CHAR(9) CHARACTER SET sjis", "e TEXT CHARACTER SET utf8mb4"},
			rows:    []string{"'é', '中', '中', '表', '😀'", "'€', 'é', '😀', '日本', 'é'"},
			want:    [][]string{{"é", "中", "中", "表", "😀"}, {"€", "é", "😀", "日本", "é"}},
		},
	},
	{id: "V3", what: "a column is converted from latin1 to utf8mb4 while the relay is stopped, with rows before and after", steps: convertedCharset},
	{
		id: "V4", what: "the largest BIGINT UNSIGNED as a key",
		setup: []string{"CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id BIGINT UNSIGNED, payload BIGINT)"},
		do:    []string{"INSERT INTO o(aggregate_id, payload) VALUES (18446744073709551615, -9223372036854775808)"},
		want:  []string{"18446744073709551615 -9223372036854775808"},
	},
	{
		id: "V5", what: "unsigned integers of every size",
		values: &values{
			columns: []string{"a TINYINT UNSIGNED", "b SMALLINT UNSIGNED", "c MEDIUMINT UNSIGNED", "d INT UNSIGNED", "e MEDIUMINT"},
			rows:    []string{"255, 65535, 16777215, 4294967295, -8388608"},
			want:    [][]string{{"255", "65535", "16777215", "4294967295", "-8388608"}},
		},
	},
	{
		id: "V6", what: "a YEAR column before an unsigned one: its sign bit counts",
		values: &values{
			columns: []string{"y YEAR", "u BIGINT UNSIGNED", "i BIGINT", "z YEAR"},
			rows:    []string{"2026, 18446744073709551615, -1, 0"},
			want:    [][]string{{"2026", "18446744073709551615", "-1", "0000"}},
		},
	},
	{
		id: "V7", what: "a VECTOR column before text and bytes: its charset counts", only: "9",
		values: &values{
			columns: []string{"v VECTOR(3)", "l VARCHAR(9) CHARACTER SET latin1", "b BINARY(16)"},
			rows:    []string{"STRING_TO_VECTOR('[1,2,3]'), 'é', UNHEX('01')"},
			want:    [][]string{{"\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40", "é", "\x01" + strings.Repeat("\x00", 15)}},
		},
	},
	{id: "V8", what: "a TIMESTAMP written in one zone and relayed by a process in another", steps: timestampInZones},
	{
		id: "V9", what: "TIME with fractions, at zero, below zero and at its limit",
		values: &values{
			columns: []string{"a TIME(6)", "b TIME(3)", "c TIME"},
			rows:    []string{"'00:00:00', '-00:00:00.001', '-838:59:59'", "'-00:00:00.000001', '23:59:59.9996', '838:59:59'"},
			want:    [][]string{{"00:00:00.000000", "-00:00:00.001", "-838:59:59"}, {"-00:00:00.000001", "24:00:00.000", "838:59:59"}},
		},
	},
	{
		id: "V10", what: "DECIMAL at its smallest, and with a scale to keep",
		values: &values{
			columns: []string{"a DECIMAL(65,30)", "b DECIMAL(10,2)", "c DECIMAL(65,0)"},
			rows:    []string{"-0.000000000000000000000000000001, 1.10, " + strings.Repeat("9", 65)},
			want:    [][]string{{"-0.000000000000000000000000000001", "1.10", strings.Repeat("9", 65)}},
		},
	},
	{
		id: "V11", what: "FLOAT and DOUBLE where printing changes its form",
		values: &values{
			columns: []string{"f FLOAT", "d DOUBLE", "e DOUBLE"},
			rows:    []string{"3.40282e38, 1e20, 0.000000001", "0.1, 1e14, 1e15", "16777216, -0e0, 123456789012345680"},
			want:    [][]string{{"3.40282e38", "1e20", "0.000000001"}, {"0.1", "100000000000000", "1e15"}, {"16777200", "-0", "1.2345678901234568e17"}},
		},
	},
	{id: "V12", what: "the members of an ENUM are put in another order while the relay is stopped, with rows before and after", steps: reorderedEnum},
	{
		id: "V13", what: "strings on both sides of where their length takes two bytes, in one- and four-byte charsets",
		values: &values{
			columns: []string{
				"a VARCHAR(255) CHARACTER SET latin1", "b VARCHAR(256) CHARACTER SET latin1", "c VARCHAR(63)", "d VARCHAR(64)",
				"e CHAR(255)", "f VARCHAR(300)", "g VARBINARY(300)",
			},
			rows: []string{
				"REPEAT('é', 255), REPEAT('é', 256), REPEAT('😀', 63), REPEAT('😀', 64), REPEAT('😀', 255), REPEAT('ж', 300), REPEAT('b', 300)",
				"'', '', '', '', '', 'x', ''",
			},
			want: [][]string{
				{strings.Repeat("é", 255), strings.Repeat("é", 256), strings.Repeat("😀", 63), strings.Repeat("😀", 64), strings.Repeat("😀", 255), strings.Repeat("ж", 300), strings.Repeat("b", 300)},
				{"", "", "", "", "", "x", ""},
			},
		},
	},
	{
		id: "V14", what: "a BLOB with all byte values, an empty one, and NULL",
		values: &values{
			columns: []string{"p BLOB", "t TINYBLOB", "l LONGBLOB"},
			rows:    []string{fmt.Sprintf("x'%x', '', NULL", everyByte())},
			want:    [][]string{{string(everyByte()), "", "NULL"}},
		},
	},
	{
		id: "V16", what: "BIT, SET, DATE and YEAR as keys and values",
		setup: []string{"CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id BIT(10), payload SET('a','b'), d DATE, g POINT, y YEAR)"},
		rules: []router.Rule{{Table: "{db}.o", Preset: "none", Topic: "t", Key: "{aggregate_id}", Value: "{payload}", Headers: []router.HeaderRule{{Name: "d", Value: "{d}/{y}"}}}},
		do:    []string{"INSERT INTO o VALUES (1, 513, 'a,b', '2020-02-03', POINT(1, 2), 1999)"},
		want:  []string{"513 a,b d=2020-02-03/1999"},
	},
	{id: "V15", what: "a row image with damaged content and a right checksum", steps: damagedRows},
}

func everyByte() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func convertedCharset(s *site) {
	s.exec("CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(20) CHARACTER SET latin1, payload TEXT CHARACTER SET gbk)")
	s.begin(nil, nil)
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('é', '中')")
	s.wantRecords("é 中")
	s.stop()
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('è', '文')", "ALTER TABLE o CONVERT TO CHARACTER SET utf8mb4", "INSERT INTO o(aggregate_id, payload) VALUES ('ê', '字😀')")
	s.restart()
	s.wantRecords("è 文", "ê 字😀")
}

func timestampInZones(s *site) {
	s.exec("CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id TIMESTAMP(3) NULL, payload DATETIME)")
	s.begin(nil, nil)
	d := s.daemon(`  - {table: {db}.o, preset: none, topic: t, key: "{aggregate_id}", value: "{payload}"}`)
	d.env = append(d.env, "TZ=America/New_York")
	s.exec("SET time_zone = '+09:00'", "INSERT INTO o(aggregate_id, payload) VALUES ('2020-01-01 09:00:00.25', '2020-01-01 09:00:00')")
	s.wantRecords("2020-01-01 00:00:00.250 2020-01-01 09:00:00")
	d.wantExit(0, d.untilCaughtUp())
	s.equal(d.records(), []string{"2020-01-01 00:00:00.250 2020-01-01 09:00:00"})
}

func reorderedEnum(s *site) {
	s.exec("CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id ENUM('a','b'), payload SET('x','y','z'))")
	s.begin(nil, nil)
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('a', 'x,z')", "ALTER TABLE o MODIFY aggregate_id ENUM('b','a'), MODIFY payload SET('z','y','x')", "INSERT INTO o(aggregate_id, payload) VALUES ('a', 'x,z')")
	s.wantRecords("a x,z", "a z,x")
}

// damagedRows spoils the binary JSON of one row, and the length of a string of another.
func damagedRows(s *site) {
	s.exec(outboxTable)
	s.begin(nil, editor(func(_ net.Conn, e []byte) [][]byte {
		if at := bytes.Index(e, []byte("spoil-document")); eventType(e) == typeWriteRows && at > 0 {
			e[at-2] = 0x0e // the type byte of the JSON string becomes one that there is not
		}
		if at := bytes.Index(e, []byte("spoil-length")); eventType(e) == typeWriteRows && at > 0 {
			e[at-1] = 255
		}
		return unchanged(e)
	}))
	s.exec(`INSERT INTO o(aggregate_id, payload) VALUES ('good', '{"a": 1}')`, `INSERT INTO o(aggregate_id, payload) VALUES ('k', '"spoil-document"')`)
	s.wantStop("undecodable", "{db}.o", "position ", "payload")
	s.equal(s.got, []string{`good {"a": 1}`})

	s.position = s.executed()
	s.restart()
	s.exec(`INSERT INTO o(aggregate_id, payload) VALUES ('spoil-length', '{}')`)
	s.wantStop("corrupt", "{db}.o", "(transaction ")
}
