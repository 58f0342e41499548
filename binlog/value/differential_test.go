package value_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/value"
)

// otherParser gives go-mysql's parser, ready for the events of the fixture.
func otherParser(t testing.TB) *replication.BinlogParser {
	t.Helper()
	b, err := os.ReadFile("../event/testdata/groups.binlog")
	if err != nil {
		t.Fatal(err)
	}
	p := replication.NewBinlogParser()
	size := binary.LittleEndian.Uint32(b[4+9:])
	if _, err := p.Parse(b[4 : 4+size]); err != nil { // FORMAT_DESCRIPTION
		t.Fatal(err)
	}
	return p
}

// whole builds an event with its header and checksum again.
func whole(e ev) []byte {
	b := binary.LittleEndian.AppendUint32(nil, e.Timestamp)
	b = append(b, byte(e.Type))
	b = binary.LittleEndian.AppendUint32(b, e.ServerID)
	b = binary.LittleEndian.AppendUint32(b, uint32(event.HeaderSize+len(e.body)+event.ChecksumSize))
	b = append(append(b, 0, 0, 0, 0, 0, 0), e.body...)
	return binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// otherText gives go-mysql's value as text where its value says the same thing, false where it is known to say
// another: strings in the charset of the column, BINARY without its zeros, zero times without digits, its form of
// floats.
func otherText(col *event.Column, v any) (string, bool) {
	switch col.Type {
	case event.ColumnFloat, event.ColumnDouble, event.ColumnEnum, event.ColumnSet, event.ColumnYear, event.ColumnTimestamp, event.ColumnTime, event.ColumnGeometry:
		return "", false
	case event.ColumnVarchar, event.ColumnBlob, event.ColumnString:
		if col.Collation != event.CollationBinary && !strings.HasPrefix(value.Charset(col.Collation), "utf8") || col.Type == event.ColumnString && col.Collation == event.CollationBinary {
			return "", false
		}
	case event.ColumnBit:
		return fmt.Sprint(uint64(v.(int64))), true
	}
	if b, ok := v.([]byte); ok {
		return string(b), true
	}
	return fmt.Sprint(v), true
}

// TestAgainstGoMySQL compares the values of the fixture with those of another decoder, JSON by its meaning.
func TestAgainstGoMySQL(t *testing.T) {
	t.Parallel()
	for _, name := range fixtures {
		t.Run(filepath.Base(name), func(t *testing.T) { compareParsers(t, fixture(t, name)) })
	}
}

func compareParsers(t *testing.T, events []ev) {
	t.Helper()
	p := otherParser(t)
	tables := map[uint64]*event.Table{}
	compared := map[event.ColumnType]int{}
	for _, e := range events {
		other, err := p.Parse(whole(e))
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == event.TypeTableMap {
			tm, err := event.ParseTableMap(e.body)
			if err != nil {
				t.Fatal(err)
			}
			tables[tm.ID] = tm
			continue
		}
		o := other.Event.(*replication.RowsEvent)
		tm := tables[o.TableID]
		var rows event.Rows
		h, err := event.ParseRowsHeader(e.Type, e.body)
		if err == nil {
			err = rows.Reset(tm, h, e.body)
		}
		if err != nil {
			t.Fatal(err)
		}
		cells := make([]event.Cell, len(tm.Columns))
		for n := 0; rows.Next(cells); n++ {
			for i, c := range cells {
				col := &tm.Columns[i]
				if (c.State == event.CellNull) != (o.Rows[n][i] == nil) {
					t.Errorf("%s.%s: NULL is %v", tm.Name, col.Name, c.State == event.CellNull)
				}
				if c.State != event.CellValue {
					continue
				}
				got, err := value.Append(nil, col, c.Raw)
				if err != nil {
					t.Fatal(err)
				}
				want, ok := otherText(col, o.Rows[n][i])
				if !ok {
					continue
				}
				compared[col.Type]++
				if col.Type == event.ColumnJSON && equalJSON(t, string(got), want) {
					continue
				}
				if string(got) != want {
					t.Errorf("%s.%s: %.100q, go-mysql has %.100q", tm.Name, col.Name, got, want)
				}
			}
		}
	}
	if len(compared) < 12 {
		t.Errorf("only these types were compared: %v", compared)
	}
}

func equalJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return reflect.DeepEqual(normal(x), normal(y))
}

// normal makes decimals, which are strings in go-mysql's JSON, equal to numbers.
func normal(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = normal(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = normal(v[k])
		}
	case string:
		var f float64
		if json.Unmarshal([]byte(v), &f) == nil {
			return f
		}
	}
	return v
}

// BenchmarkOutboxRows decodes rows of an outbox table (14 columns, a JSON payload of about 330 bytes of text) to
// text, all columns of them, and for comparison with go-mysql's parser in its default mode, from the same bytes in
// memory.
func BenchmarkOutboxRows(b *testing.B) {
	var tm, rows ev
	for _, e := range fixture(b, fixtures[0]) {
		if e.Type == event.TypeTableMap {
			if _, _, name, _ := event.TableMapName(e.body); string(name) == "outbox_events" {
				tm = e
			}
		} else if tm.body != nil {
			rows = e
			break
		}
	}
	const count = 15
	perRow := func(b *testing.B) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/row")
	}
	b.Run("relay", func(b *testing.B) {
		b.ReportAllocs()
		table, err := event.ParseTableMap(tm.body)
		if err != nil {
			b.Fatal(err)
		}
		var walk event.Rows
		cells, buf := make([]event.Cell, len(table.Columns)), make([]byte, 0, 4096)
		for b.Loop() {
			h, err := event.ParseRowsHeader(rows.Type, rows.body)
			if err != nil {
				b.Fatal(err)
			}
			if err := walk.Reset(table, h, rows.body); err != nil {
				b.Fatal(err)
			}
			n := 0
			for ; walk.Next(cells); n++ {
				buf = buf[:0]
				for i, c := range cells {
					if c.State != event.CellValue {
						continue
					}
					if buf, err = value.Append(buf, &table.Columns[i], c.Raw); err != nil {
						b.Fatal(err)
					}
				}
			}
			if n != count {
				b.Fatalf("%d rows", n)
			}
		}
		perRow(b)
	})
	b.Run("go-mysql", func(b *testing.B) {
		b.ReportAllocs()
		p := otherParser(b)
		tmWhole, rowsWhole := whole(tm), whole(rows)
		if _, err := p.Parse(tmWhole); err != nil {
			b.Fatal(err)
		}
		// A row event with STMT_END clears the parser's table maps, so the flag is taken off here.
		rowsWhole[event.HeaderSize+6] &^= 1
		for b.Loop() {
			e, err := p.Parse(rowsWhole)
			if err != nil {
				b.Fatal(err)
			}
			if n := len(e.Event.(*replication.RowsEvent).Rows); n != count {
				b.Fatalf("%d rows", n)
			}
		}
		perRow(b)
	})
}
