package event_test

import (
	"testing"

	"outbox-relay/binlog/event"
)

func benchFile(b *testing.B) (tableMap, rows ev) {
	for _, e := range readFile(b, "testdata/groups.binlog") {
		switch e.Type {
		case event.TypeTableMap:
			if rows.body == nil {
				tableMap = e
			}
		case event.TypeWriteRows:
			if len(e.body) > len(rows.body) {
				rows = e
			}
		}
	}
	if len(rows.body) == 0 {
		b.Fatal("no rows in the file")
	}
	return tableMap, rows
}

var sink int // keeps the compiler from dropping what is measured

func BenchmarkParseHeader(b *testing.B) {
	tm, _ := benchFile(b)
	b.ReportAllocs()
	for b.Loop() {
		h, err := event.ParseHeader(tm.whole)
		if err != nil {
			b.Fatal(err)
		}
		sink += int(h.Size)
	}
}

func BenchmarkTableMapName(b *testing.B) {
	tm, _ := benchFile(b)
	b.ReportAllocs()
	for b.Loop() {
		id, schema, table, err := event.TableMapName(tm.body)
		if err != nil {
			b.Fatal(err)
		}
		sink += int(id) + len(schema) + len(table)
	}
}

func BenchmarkParseTableMap(b *testing.B) {
	tm, _ := benchFile(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := event.ParseTableMap(tm.body); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRowWalk reads an event of 30 rows with 3 columns.
func BenchmarkRowWalk(b *testing.B) {
	tm, e := benchFile(b)
	table, err := event.ParseTableMap(tm.body)
	if err != nil {
		b.Fatal(err)
	}
	var rows event.Rows
	cells := make([]event.Cell, len(table.Columns))
	b.ReportAllocs()
	b.SetBytes(int64(len(e.body)))
	n := 0
	for b.Loop() {
		h, err := event.ParseRowsHeader(e.Type, e.body)
		if err != nil {
			b.Fatal(err)
		}
		if err := rows.Reset(table, h, e.body); err != nil {
			b.Fatal(err)
		}
		for rows.Next(cells) {
			n++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/row")
}

func BenchmarkVerifyChecksum(b *testing.B) {
	tm, _ := benchFile(b)
	b.ReportAllocs()
	for b.Loop() {
		if !event.VerifyChecksum(tm.whole) {
			b.Fatal("wrong checksum")
		}
	}
}
