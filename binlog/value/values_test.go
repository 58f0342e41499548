package value_test

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/value"
	"outbox-relay/internal/sandbox"
)

//go:generate env UPDATE_GOLDEN=1 go test -count=1 -run TestValuesAsSelectShowsThem .

// statements splits a script at semicolons that end a line.
func statements(t *testing.T, path string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for s := range strings.SplitSeq(string(b), ";\n") {
		for strings.HasPrefix(s, "--") {
			_, s, _ = strings.Cut(s, "\n")
		}
		if strings.TrimSpace(s) != "" {
			out = append(out, s)
		}
	}
	return out
}

// rowText is the text of one row by the code under test; nil is NULL.
func rowText(t testing.TB, im image) []text {
	t.Helper()
	out := make([]text, len(im.cells))
	for i, c := range im.cells {
		col := &im.table.Columns[i]
		switch c.State {
		case event.CellAbsent:
			t.Fatalf("%s.%s is absent", im.table.Name, col.Name)
		case event.CellNull:
			continue
		}
		if err := value.Supported(col); err != nil {
			t.Errorf("%s: %v", im.table.Name, err)
		}
		b, err := value.Append([]byte("kept"), col, c.Raw)
		if err != nil {
			t.Errorf("%s.%s: %v", im.table.Name, col.Name, err)
			continue
		}
		s, ok := strings.CutPrefix(string(b), "kept")
		if !ok {
			t.Errorf("%s.%s: what was in dst before is gone", im.table.Name, col.Name)
		}
		out[i] = &s
	}
	return out
}

func show(v text) string {
	if v == nil {
		return "NULL"
	}
	return fmt.Sprintf("%.200q", *v)
}

func compareRow(t testing.TB, im image, want []text) {
	t.Helper()
	got := rowText(t, im)
	for i := range got {
		w := want[i]
		if w != nil && im.table.Columns[i].Type == event.ColumnBit {
			s := bitText(*w)
			w = &s
		}
		if (got[i] == nil) != (w == nil) || w != nil && *got[i] != *w {
			t.Errorf("%s.%s of row %s: got %s, SELECT shows %s", im.table.Name, im.table.Columns[i].Name, show(want[0]), show(got[i]), show(w))
		}
	}
}

// TestValuesAsSelectShowsThem runs the scripts on a real server of each version and compares every value with the text of
// SELECT. With UPDATE_GOLDEN=1 it writes the files of TestValuesOfFixture.
func TestValuesAsSelectShowsThem(t *testing.T) {
	t.Parallel()
	t.Run("9.7", func(t *testing.T) { compareLive(t, openLive(t), fixtures[0]) })
	t.Run("8.0", func(t *testing.T) {
		compareLive(t, openLiveOn(t, sandbox.RunMySQL(t, sandbox.MySQLOptions{Version: "8.0"})), fixtures[1])
	})
}

func compareLive(t *testing.T, l *live, fixture string) {
	t.Helper()
	scripts := []string{"testdata/values.sql"}
	if l.version[0] >= '9' {
		scripts = append(scripts, "testdata/vectors.sql")
	}
	from := l.position(t)
	l.exec(t, statements(t, "testdata/large.sql")...)
	for _, script := range scripts {
		l.exec(t, statements(t, script)...)
	}
	events := l.events(t, from, l.position(t))
	byTable := images(t, events, l.database)
	var golden strings.Builder
	columns := 0
	for _, name := range sortedKeys(byTable) {
		rows := byTable[name]
		selected := l.query(t, "SELECT "+columnList(rows[0].table)+" FROM "+name+" ORDER BY 1")
		if len(selected) != len(rows) {
			t.Fatalf("%s: %d rows in the binlog, %d in the table", name, len(rows), len(selected))
		}
		columns += len(rows[0].table.Columns)
		for i, im := range rows {
			compareRow(t, im, selected[i])
			if name == "larges" {
				continue
			}
			golden.WriteString(name)
			for _, v := range selected[i] {
				if v == nil {
					golden.WriteString("\tNULL")
				} else {
					fmt.Fprintf(&golden, "\t%x", *v)
				}
			}
			golden.WriteString("\n")
		}
	}
	if columns < 90 {
		t.Errorf("only %d columns were compared", columns)
	}
	if os.Getenv("UPDATE_GOLDEN") != "" && !t.Failed() {
		writeFixture(t, fixture, events, l.database, golden.String())
	}
}

func sortedKeys(m map[string][]image) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

const fixtureDatabase = "values"

// writeFixture keeps table maps and rows, with the name of the database replaced, as a file that starts like a binlog.
func writeFixture(t *testing.T, name string, events []ev, database, golden string) {
	t.Helper()
	out, wanted := []byte("\xfebin"), false
	for _, e := range events {
		body := e.body
		switch e.Type {
		case event.TypeTableMap:
			_, schema, table, err := event.TableMapName(body)
			if err != nil {
				t.Fatal(err)
			}
			if wanted = string(schema) == database && string(table) != "larges"; !wanted {
				continue
			}
			body = slices.Concat(body[:8], []byte{byte(len(fixtureDatabase))}, []byte(fixtureDatabase), body[9+len(schema):])
		case event.TypeWriteRows:
			if !wanted {
				continue
			}
		default:
			continue
		}
		start := len(out)
		out = binary.LittleEndian.AppendUint32(out, e.Timestamp)
		out = append(out, byte(e.Type))
		out = binary.LittleEndian.AppendUint32(out, 1)
		out = binary.LittleEndian.AppendUint32(out, uint32(event.HeaderSize+len(body)+event.ChecksumSize))
		out = append(out, 0, 0, 0, 0, 0, 0)
		out = append(out, body...)
		out = binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(out[start:]))
	}
	for path, b := range map[string][]byte{name + ".binlog": out, name + ".tsv": []byte(golden)} {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// fixtures are what a server of 9.7 and one of 8.0 once wrote and showed: events in .binlog, texts in .tsv.
var fixtures = []string{"testdata/values", "testdata/values-8.0"}

// fixture reads the events of one of them.
func fixture(t testing.TB, name string) []ev {
	t.Helper()
	b, err := os.ReadFile(name + ".binlog")
	if err != nil {
		t.Fatal(err)
	}
	var out []ev
	for b = b[4:]; len(b) > 0; {
		h, err := event.ParseHeader(b)
		if err != nil || int(h.Size) > len(b) || !event.VerifyChecksum(b[:h.Size]) {
			t.Fatalf("damaged fixture: %+v, %v", h, err)
		}
		out = append(out, ev{h, b[event.HeaderSize : h.Size-event.ChecksumSize]})
		b = b[h.Size:]
	}
	return out
}

// TestValuesOfFixture is the same comparison with what servers once wrote and showed.
func TestValuesOfFixture(t *testing.T) {
	t.Parallel()
	for _, name := range fixtures {
		t.Run(filepath.Base(name), func(t *testing.T) { compareFixture(t, name) })
	}
}

func compareFixture(t *testing.T, name string) {
	t.Helper()
	byTable := images(t, fixture(t, name), fixtureDatabase)
	b, err := os.ReadFile(name + ".tsv")
	if err != nil {
		t.Fatal(err)
	}
	next, compared := map[string]int{}, 0
	for line := range strings.Lines(string(b)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		name := fields[0]
		want := make([]text, len(fields)-1)
		for i, f := range fields[1:] {
			if f == "NULL" {
				continue
			}
			raw, err := hex.DecodeString(f)
			if err != nil {
				t.Fatal(err)
			}
			s := string(raw)
			want[i] = &s
		}
		i := next[name]
		next[name]++
		if i >= len(byTable[name]) || len(byTable[name][i].cells) != len(want) {
			t.Fatalf("row %d of %s is not in the fixture", i+1, name)
		}
		compareRow(t, byTable[name][i], want)
		compared += len(want)
	}
	if compared < 500 {
		t.Errorf("only %d values were compared", compared)
	}
}
