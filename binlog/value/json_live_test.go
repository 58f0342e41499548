package value_test

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/value"
)

// documents are SQL expressions of JSON values that one or another tool renders otherwise than the server.
var documents = []string{
	`'[1.0,1e2,1e-7,1e15,1e21,9007199254740993,18446744073709551615,1.7976931348623157e308,-0.0,5e-324]'`,
	`JSON_OBJECT('d',CAST('2020-01-02' AS DATE),'dt',CAST('2020-01-02 03:04:05.6' AS DATETIME(6)),'t0',CAST('00:00:00' AS TIME),'dec',CAST('1.10' AS DECIMAL(10,2)),'bin',CAST('abc' AS BINARY),'y',CAST(2020 AS YEAR))`,
	`'{"s":"<a href=\\"x\\">& \\u0000 \\u2028 é😀"}'`,
	`'{"b":1,"a":2,"aa":3,"":4}'`,
	`'{"a":1,"a":2}'`, `'[]'`, `'{}'`, `'"x"'`, `'null'`, `'[[],{}]'`, `'true'`, `'false'`, `'0'`, `'-1'`, `'1.5'`, `'""'`,
	`'[true,false,null,0,-0,1,-1,127,128,-128,-129,255,256,32767,32768,-32768,-32769,65535,65536,2147483647,2147483648,-2147483648,-2147483649,4294967295,4294967296,9223372036854775807,9223372036854775808,-9223372036854775808,18446744073709551616,-9223372036854775809]'`,
	`'{"i":65536,"u":4294967295,"n":-65536}'`,
	`JSON_OBJECT('b', CAST(REPEAT('a',56) AS BINARY(56)))`, `JSON_OBJECT('b', CAST(REPEAT('a',57) AS BINARY(57)))`, `JSON_OBJECT('b', CAST(REPEAT('a',58) AS BINARY(58)))`,
	`JSON_OBJECT('b', CAST(REPEAT('a',114) AS BINARY(114)))`, `JSON_OBJECT('b', CAST(REPEAT('a',115) AS BINARY(115)))`, `JSON_OBJECT('b', CAST(REPEAT('a',200) AS BINARY(200)))`, `JSON_OBJECT('b', CAST('' AS BINARY(0)))`,
	`JSON_ARRAY(b'1', b'1010101010101010', CAST(1.5 AS FLOAT), CAST(0.1 AS FLOAT), CAST(0.1 AS DOUBLE), TRUE, 1 = 1)`,
	`JSON_ARRAY(CAST('-838:59:59' AS TIME), CAST('838:59:59' AS TIME), CAST('-00:00:00.000001' AS TIME(6)), CAST('12:34:56.789' AS TIME(3)), CAST('-12:34:56.789' AS TIME(3)), CAST('31:59:59' AS TIME), CAST('32:00:00' AS TIME), CAST('100:00:00' AS TIME))`,
	`JSON_ARRAY(CAST('0000-00-00' AS DATE), CAST('9999-12-31' AS DATE), CAST('9999-12-31 23:59:59.999999' AS DATETIME(6)), CAST('1000-01-01 00:00:00' AS DATETIME))`,
	`JSON_ARRAY(CAST(-1.10 AS DECIMAL(10,2)), CAST(0 AS DECIMAL(5,0)), CAST(99999999999999999999999999999999999.999999999999999999999999999999 AS DECIMAL(65,30)), CAST(-0.000000000000000000000000000001 AS DECIMAL(65,30)), 123456789012345678901234567890)`,
	`(SELECT JSON_OBJECT('e', e, 's', s, 'b', b, 'bl', bl, 'tb', tb, 'bit', bt, 'f', f, 'g', g, 'ts', ts, 'y', y, 'vc', vc, 'mb', mb, 'lb', lb) FROM source)`,
	`CONCAT('"', REPEAT('x',127), '"')`, `CONCAT('"', REPEAT('x',128), '"')`, `CONCAT('"', REPEAT('x',16383), '"')`, `CONCAT('"', REPEAT('x',16384), '"')`,
	`JSON_OBJECT('big', REPEAT('é',70000), 'i', 1, 'l', 70000, 'a', JSON_ARRAY(1, 2), 'o', JSON_OBJECT('k', REPEAT('x', 70000)))`,
	`JSON_ARRAY(REPEAT('x',65500), 1, 65536, 4294967295, -2147483648, 4294967296, 1.5, NULL, TRUE)`, `JSON_ARRAY(REPEAT('x',65536), 1, 65536, 4294967295, -2147483648, 4294967296, 1.5, NULL, TRUE)`,
	`(SELECT JSON_ARRAYAGG(seq) FROM (WITH RECURSIVE q AS (SELECT 1 seq UNION ALL SELECT seq+1 FROM q WHERE seq<20000) SELECT seq FROM q) t)`,
	`(SELECT JSON_ARRAYAGG(seq) FROM (WITH RECURSIVE q AS (SELECT 1 seq UNION ALL SELECT seq+1 FROM q WHERE seq<30000) SELECT seq FROM q) t)`,
	`(SELECT JSON_OBJECTAGG(CONCAT('k', seq), seq) FROM (WITH RECURSIVE q AS (SELECT 1 seq UNION ALL SELECT seq+1 FROM q WHERE seq<5000) SELECT seq FROM q) t)`,
	`(SELECT JSON_OBJECTAGG(CONCAT('k', seq), seq) FROM (WITH RECURSIVE q AS (SELECT 1 seq UNION ALL SELECT seq+1 FROM q WHERE seq<300) SELECT seq FROM q) t)`,
	`CONCAT(REPEAT('[',100), REPEAT(']',100))`, `CONCAT(REPEAT('{"a":',99), '[]', REPEAT('}',99))`,
	`CONCAT('{"', REPEAT('k',65535), '":1}')`,
	`CONCAT('"', CONVERT(0x7f USING utf8mb4), '\\u0080\\u009f\\u00a0\\ufeff\\u2028\\u2029\\ufffd\\ud83d\\ude00/\\/\\b\\f\\n\\r\\t\\"\\\\\\u0001\\u001f\\u000b"')`,
	`JSON_SET('{"a":"long text that is here","b":[1,2,3]}', '$.a', 'x')`, `JSON_REMOVE('{"a":1,"b":[1,2,3],"c":3}', '$.b[1]', '$.a')`,
	`JSON_MERGE_PRESERVE('[1]', '{"a":2}', '"x"', 'null')`, `JSON_QUOTE('x"y')`,
}

// sourceTable has columns of types that become opaque values inside JSON.
const sourceTable = `CREATE TABLE source (e ENUM('é','x'), s SET('a','b'), b BINARY(5), bl BLOB, tb TINYBLOB, bt BIT(12), f FLOAT, g GEOMETRY, ts TIMESTAMP(3) NULL, y YEAR, vc VARBINARY(9), mb MEDIUMBLOB, lb LONGBLOB)`

const sourceRow = `INSERT INTO source VALUES ('é','a,b','ab','blob','tiny',b'101010101010',0.1,ST_GeomFromText('LINESTRING(0 0,1.5 1)',4326),'2020-01-02 03:04:05.678',1999,'vb','medium','long')`

// compareJSON inserts documents and compares the text made of the row events with the text of SELECT. It gives both
// for use as a fixture.
func compareJSON(t *testing.T, l *live, table string, insert func()) (docs [][]byte, texts []string) {
	t.Helper()
	from := l.position(t)
	l.exec(t, "CREATE TABLE "+table+" (n INT AUTO_INCREMENT PRIMARY KEY, j JSON)")
	insert()
	rows := images(t, l.events(t, from, l.position(t)), l.database)[table]
	want := l.query(t, "SELECT j FROM "+table+" ORDER BY n")
	if len(rows) != len(want) || len(rows) == 0 {
		t.Fatalf("%d rows in the binlog, %d in the table", len(rows), len(want))
	}
	faults := 0
	for i, im := range rows {
		c := im.cells[1]
		if c.State != event.CellValue {
			t.Fatalf("document %d is NULL", i)
		}
		got, err := value.Append(nil, &im.table.Columns[1], c.Raw)
		if err != nil || string(got) != *want[i][0] {
			if faults++; faults <= 10 {
				t.Errorf("document %d: %v\n   got %.1000s\nSELECT %.1000s", i, err, got, *want[i][0])
			}
		}
		docs, texts = append(docs, c.Raw), append(texts, *want[i][0])
	}
	return docs, texts
}

// TestJSONAsSelectShowsIt covers each document above. With UPDATE_GOLDEN=1 it writes the fixture of package jsonb.
func TestJSONAsSelectShowsIt(t *testing.T) {
	t.Parallel()
	l := openLive(t)
	l.exec(t, sourceTable, sourceRow)
	docs, texts := compareJSON(t, l, "docs", func() {
		for _, d := range documents {
			l.exec(t, "INSERT INTO docs(j) VALUES ("+d+")")
		}
	})
	if !updateGolden(t, l.version) {
		return
	}
	var s strings.Builder
	for i := range docs {
		if len(docs[i]) < 4096 {
			fmt.Fprintf(&s, "%s\t%s\n", hex.EncodeToString(docs[i]), texts[i])
		}
	}
	if err := os.WriteFile("../jsonb/testdata/documents.tsv", []byte(s.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestRandomJSONAsSelectShowsIt compares random documents; JSON_DOCUMENTS sets how many.
func TestRandomJSONAsSelectShowsIt(t *testing.T) {
	t.Parallel()
	l := openLive(t)
	total := 5000
	if s := os.Getenv("JSON_DOCUMENTS"); s != "" {
		var err error
		if total, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	compareJSON(t, l, "docs", func() {
		const batch = 250
		for n := 0; n < total; n += batch {
			var s strings.Builder
			s.WriteString("INSERT INTO docs(j) VALUES ")
			for i := range min(batch, total-n) {
				if i > 0 {
					s.WriteByte(',')
				}
				s.WriteString("(CAST(")
				writeRandom(&s, r, 4)
				s.WriteString(" AS JSON))")
			}
			l.exec(t, s.String())
		}
	})
}

// writeRandom writes a random SQL expression of a JSON value.
func writeRandom(s *strings.Builder, r *rand.Rand, depth int) {
	kind := r.IntN(14)
	if depth == 0 {
		kind = 3 + r.IntN(11)
	}
	switch kind {
	case 0, 1:
		s.WriteString("JSON_ARRAY(")
		for i := range r.IntN(6) {
			if i > 0 {
				s.WriteByte(',')
			}
			writeRandom(s, r, depth-1)
		}
		s.WriteByte(')')
	case 2:
		s.WriteString("JSON_OBJECT(")
		for i := range r.IntN(6) {
			if i > 0 {
				s.WriteByte(',')
			}
			writeRandomText(s, r)
			s.WriteByte(',')
			writeRandom(s, r, depth-1)
		}
		s.WriteByte(')')
	case 3:
		s.WriteString("CAST('null' AS JSON)")
	case 4:
		s.WriteString([]string{"CAST('true' AS JSON)", "CAST('false' AS JSON)"}[r.IntN(2)])
	case 5:
		fmt.Fprintf(s, "CAST(%d AS JSON)", r.Int64()>>r.IntN(64)*int64(1-2*r.IntN(2)))
	case 6:
		fmt.Fprintf(s, "CAST(%d AS JSON)", r.Uint64()>>r.IntN(64))
	case 7, 8:
		s.WriteString("CAST('" + strconv.FormatFloat(randomDouble(r), 'e', -1, 64) + "' AS JSON)")
	case 9:
		fmt.Fprintf(s, "CAST(CAST('%d.%09d' AS DECIMAL(%d,%d)) AS JSON)", r.Int64()>>r.IntN(63), r.IntN(1e9), 40+r.IntN(25), r.IntN(20))
	case 10:
		fmt.Fprintf(s, "CAST(CAST('%s%d:%02d:%02d.%06d' AS TIME(6)) AS JSON)", []string{"", "-"}[r.IntN(2)], r.IntN(838), r.IntN(60), r.IntN(60), r.IntN(1e6))
	case 11:
		fmt.Fprintf(s, "CAST(CAST('%04d-%02d-%02d %02d:%02d:%02d.%06d' AS %s) AS JSON)", 1000+r.IntN(9000), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1e6),
			[]string{"DATE", "DATETIME(6)", "DATETIME(3)"}[r.IntN(3)])
	case 12:
		fmt.Fprintf(s, "CAST(0x%x AS JSON)", randomBytes(r))
	default:
		s.WriteString("JSON_EXTRACT(JSON_ARRAY(")
		writeRandomText(s, r)
		s.WriteString("), '$[0]')")
	}
}

// randomBytes gives 1 to 150 bytes.
func randomBytes(r *rand.Rand) []byte {
	b := make([]byte, 1+r.IntN(150))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func writeRandomText(s *strings.Builder, r *rand.Rand) {
	s.WriteString("CONVERT(0x00")
	var text []rune
	for range r.IntN(12) {
		switch r.IntN(4) {
		case 0:
			text = append(text, rune(r.IntN(0x30)))
		case 1:
			text = append(text, rune(r.IntN(0x100)))
		case 2:
			text = append(text, []rune{'"', '\\', '/', '<', 0x2028, 0xfeff, 0x1f600, 0x4e2d}[r.IntN(8)])
		default:
			text = append(text, rune('a'+r.IntN(26)))
		}
	}
	fmt.Fprintf(s, "%x USING utf8mb4)", string(text))
}

// randomDouble gives finite doubles of all sizes, among them short decimal ones.
func randomDouble(r *rand.Rand) float64 {
	switch r.IntN(4) {
	case 0:
		f, _ := strconv.ParseFloat(fmt.Sprintf("%de%d", r.IntN(100000), r.IntN(50)-30), 64)
		return f
	case 1:
		return float64(r.Int64N(1<<60)) * float64(1-2*r.IntN(2))
	case 2:
		return r.NormFloat64() * 1e5
	}
	for {
		if f := math.Float64frombits(r.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
	}
}

// TestRandomNumbersAsSelectShowsThem compares doubles, floats and decimals in columns.
func TestRandomNumbersAsSelectShowsThem(t *testing.T) {
	t.Parallel()
	l := openLive(t)
	r := rand.New(rand.NewPCG(rand.Uint64(), 2))
	from := l.position(t)
	l.exec(t, "CREATE TABLE numbers (n INT AUTO_INCREMENT PRIMARY KEY, d DOUBLE, f FLOAT, a DECIMAL(65,30), b DECIMAL(20,7), ti TIME(4), dt DATETIME(5))")
	for range 12 {
		var s strings.Builder
		s.WriteString("INSERT INTO numbers(d,f,a,b,ti,dt) VALUES ")
		for i := range 250 {
			if i > 0 {
				s.WriteByte(',')
			}
			f := math.Float32frombits(r.Uint32())
			if f != f || math.IsInf(float64(f), 0) {
				f = float32(r.NormFloat64())
			}
			fmt.Fprintf(&s, "('%s','%s','%d.%030d','%d.%07d','%s%d:%02d:%02d.%04d','%04d-%02d-%02d %02d:%02d:%02d.%05d')", strconv.FormatFloat(randomDouble(r), 'e', -1, 64), strconv.FormatFloat(float64(f), 'e', -1, 32),
				r.Int64()*int64(1-2*r.IntN(2)), r.Int64(), r.Int64N(1e13)*int64(1-2*r.IntN(2)), r.IntN(1e7),
				[]string{"", "-"}[r.IntN(2)], r.IntN(838), r.IntN(60), r.IntN(60), r.IntN(1e4), r.IntN(10000), r.IntN(13), r.IntN(29), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1e5))
		}
		l.exec(t, s.String())
	}
	rows := images(t, l.events(t, from, l.position(t)), l.database)["numbers"]
	want := l.query(t, "SELECT * FROM numbers ORDER BY n")
	if len(rows) != 3000 || len(want) != 3000 {
		t.Fatalf("%d rows in the binlog, %d in the table", len(rows), len(want))
	}
	for i := range rows {
		compareRow(t, rows[i], want[i])
	}
}
