package value_test

import (
	"bytes"
	"compress/flate"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/value"
	"outbox-relay/internal/sandbox"
)

// withoutTable are the charsets that the package converts by rule, in the order of its constants.
var withoutTable = []string{"", "binary", "utf8mb4", "utf8mb3", "utf16", "utf16le", "ucs2", "utf32"}

// serverCharsets reads collation ids and charsets; of each charset one collation, the default one.
func serverCharsets(t *testing.T, db *sql.DB) (byID map[uint16]string, defaults map[string]uint16) {
	t.Helper()
	rows, err := db.Query("SELECT id, character_set_name, is_default FROM information_schema.collations")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	byID, defaults = map[uint16]string{}, map[string]uint16{}
	for rows.Next() {
		var id uint16
		var name, isDefault string
		if err := rows.Scan(&id, &name, &isDefault); err != nil {
			t.Fatal(err)
		}
		byID[id] = name
		if isDefault == "Yes" {
			defaults[name] = id
		}
	}
	if err := rows.Err(); err != nil || len(byID) < 200 {
		t.Fatalf("%d collations, %v", len(byID), err)
	}
	return byID, defaults
}

// numbers is a table expression of 0 … 255.
const numbers = "(WITH RECURSIVE q AS (SELECT 0 n UNION ALL SELECT n+1 FROM q WHERE n<255) SELECT n FROM q)"

// sequences are the queries for all byte sequences of a length; x is the sequence.
var sequences = []string{
	"SELECT CHAR(n) x FROM " + numbers + " a",
	"SELECT CHAR(a.n*256+b.n) x FROM " + numbers + " a, " + numbers + " b WHERE a.n>=128",
	"SELECT CONCAT(CHAR(143),CHAR(a.n*256+b.n)) x FROM " + numbers + " a, " + numbers + " b WHERE a.n>=128",
	"SELECT CHAR((129+i DIV 12600)*16777216 + (48+i DIV 1260 MOD 10)*65536 + (129+i DIV 10 MOD 126)*256 + 48+i MOD 10) x FROM" +
		" (SELECT a.n*256+b.n i FROM " + numbers + " a, " + numbers + " b WHERE a.n*256+b.n < 39420) c",
}

// mapping asks the server for the code point of every sequence that is one well-formed character of the charset.
func mapping(t *testing.T, db *sql.DB, charset, query string) map[string]rune {
	t.Helper()
	rows, err := db.Query(fmt.Sprintf("SELECT x, CONVERT(CONVERT(x USING %s) USING utf32) FROM (%s) s", charset, query))
	if err != nil {
		t.Fatalf("%s: %v", charset, err)
	}
	defer rows.Close()
	out := map[string]rune{}
	for rows.Next() {
		var x, text []byte
		if err := rows.Scan(&x, &text); err != nil {
			t.Fatal(err)
		}
		// The connection's charset is binary, so utf32 arrives as it is.
		if len(text) == 4 {
			out[string(x)] = rune(binary.BigEndian.Uint32(text))
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// queriesOf tells which lengths of sequences a charset has.
func queriesOf(name string) []string {
	switch name {
	case "big5", "cp932", "euckr", "gb2312", "gbk", "sjis":
		return sequences[:2]
	case "eucjpms", "ujis":
		return sequences[:3]
	case "gb18030":
		return []string{sequences[0], sequences[1], sequences[3]}
	}
	return sequences[:1]
}

// TestCharsetTables compares the table of every charset, and the charset of every collation, with a server. With
// UPDATE_GOLDEN=1 it first makes charsets.go and tables/ anew; the change counts from the next build on.
func TestCharsetTables(t *testing.T) {
	t.Parallel()
	db := sandbox.SharedMySQL(t).DB(t, "")
	db.SetMaxOpenConns(1)
	for _, q := range []string{"SET NAMES binary", "SET SESSION cte_max_recursion_depth=100000"} {
		if _, err := db.ExecContext(context.Background(), q); err != nil {
			t.Fatal(err)
		}
	}
	byID, defaults := serverCharsets(t, db)
	names := slices.Clone(withoutTable)
	var rest []string
	for name := range defaults {
		if !slices.Contains(names, name) {
			rest = append(rest, name)
		}
	}
	slices.Sort(rest)
	names = append(names, rest...)
	maps := map[string]map[string]rune{}
	for _, name := range rest {
		maps[name] = map[string]rune{}
		for _, q := range queriesOf(name) {
			for x, r := range mapping(t, db, name, q) {
				maps[name][x] = r
			}
		}
	}
	var version string
	if err := db.QueryRow("SELECT VERSION()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if updateGolden(t, version) {
		writeCharsets(t, names, byID)
		for _, name := range rest {
			writeTable(t, name, maps[name])
		}
		return
	}
	for id, name := range byID {
		if got := value.Charset(id); got != name {
			t.Errorf("collation %d: %q, want %q", id, got, name)
		}
	}
	for _, name := range rest {
		compareTable(t, name, defaults[name], maps[name])
	}
}

// compareTable checks the text of every character, and that every other sequence of the same length is refused or is
// several characters.
func compareTable(t *testing.T, name string, collation uint16, want map[string]rune) {
	t.Helper()
	col := &event.Column{Name: name, Type: event.ColumnVarchar, Meta: 10, Collation: collation}
	faults := 0
	for x, r := range want {
		got, err := value.Append(nil, col, []byte(x))
		if text := string(utf8.AppendRune(nil, r)); err != nil || string(got) != text {
			if faults++; faults < 5 {
				t.Errorf("%s %x: %+q, %v, want %+q", name, x, got, err, text)
			}
		}
	}
	for n := range 256 {
		if _, ok := want[string([]byte{byte(n)})]; ok {
			continue
		}
		if got, err := value.Append(nil, col, []byte{byte(n)}); err == nil {
			t.Errorf("%s %02x: %q although the server refuses it", name, n, got)
		}
	}
}

// updateGolden tells whether the files that tests are compared with are to be written anew, which takes a server of
// version 9.
func updateGolden(t *testing.T, version string) bool {
	t.Helper()
	if os.Getenv("UPDATE_GOLDEN") == "" || t.Failed() {
		return false
	}
	if version[0] < '9' {
		t.Fatalf("server %s knows too little to make the files", version)
	}
	return true
}

func writeCharsets(t *testing.T, names []string, byID map[uint16]string) {
	t.Helper()
	var s strings.Builder
	s.WriteString("// Code generated by TestCharsetTables from a MySQL server; DO NOT EDIT.\n\npackage value\n\n")
	s.WriteString("// charsetNames by charset; the ones up to firstTable are constants.\nvar charsetNames = []string{\n")
	for i, name := range names {
		fmt.Fprintf(&s, "%d: %q,\n", i, name)
	}
	s.WriteString("}\n\n// collationCharsets gives the charset of a collation id, 0 for ids that are not in use.\nvar collationCharsets = []uint8{")
	last := uint16(0)
	for id := range byID {
		last = max(last, id)
	}
	for id := range last + 1 {
		if id%20 == 0 {
			s.WriteString("\n")
		}
		fmt.Fprintf(&s, "%d, ", max(0, slices.Index(names, byID[id])))
	}
	s.WriteString("\n}\n")
	b, err := format.Source([]byte(s.String()))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("charsets.go", b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// writeTable packs a mapping as loadTable reads it.
func writeTable(t *testing.T, name string, m map[string]rune) {
	t.Helper()
	size := 256
	for _, q := range queriesOf(name)[1:] {
		if q == sequences[3] {
			size += 39420
		} else {
			size += 128 * 256
		}
	}
	all := slices.Repeat([]uint16{0xffff}, size)
	for x, r := range m {
		i := int(x[0])
		switch len(x) {
		case 2:
			i = 256 + int(x[0]-0x80)<<8 + int(x[1])
		case 3:
			i = 256 + 128*256 + int(x[1]-0x80)<<8 + int(x[2])
		case 4:
			i = 256 + 128*256 + int(x[0]-0x81)*12600 + int(x[1]-'0')*1260 + int(x[2]-0x81)*10 + int(x[3]-'0')
		}
		if r > 0xffff || r == 0xffff && len(x) < 4 {
			t.Fatalf("%s %x: U+%04X does not fit the table", name, x, r)
		}
		all[i] = uint16(r)
	}
	var raw []byte
	last := uint16(0)
	for _, v := range all {
		raw = binary.LittleEndian.AppendUint16(raw, v-last)
		last = v
	}
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("tables", name+".deflate"), packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestCharsetsByRule compares the charsets without a table with the server, over code points of all planes.
func TestCharsetsByRule(t *testing.T) {
	t.Parallel()
	db := sandbox.SharedMySQL(t).DB(t, "")
	_, defaults := serverCharsets(t, db)
	var points []string
	for _, r := range []rune{0, 'A', 0x7f, 0x80, 0xff, 0x7ff, 0x800, 0x4e2d, 0xd7ff, 0xe000, 0xfeff, 0xfffd, 0xffff, 0x10000, 0x1f600, 0x10ffff} {
		points = append(points, string(r))
	}
	points = append(points, strings.Join(points, ""))
	for _, name := range []string{"utf8mb4", "utf8mb3", "utf16", "utf16le", "ucs2", "utf32", "gb18030"} {
		col := &event.Column{Name: name, Type: event.ColumnVarchar, Meta: 200, Collation: defaults[name]}
		for _, p := range points {
			var stored, shown string
			q := fmt.Sprintf("SELECT HEX(CONVERT(_utf8mb4 0x%x USING %s)), HEX(CONVERT(CONVERT(_utf8mb4 0x%x USING %s) USING utf8mb4))", p, name, p, name)
			if err := db.QueryRow(q).Scan(&stored, &shown); err != nil {
				t.Fatalf("%s %+q: %v", name, p, err)
			}
			raw, _ := hex.DecodeString(stored)
			want, _ := hex.DecodeString(shown)
			if got, err := value.Append(nil, col, raw); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s %x: %x, %v, want %x", name, raw, got, err, want)
			}
		}
	}
}
