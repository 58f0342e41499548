package main

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"outbox-relay/binlog/event"
	"outbox-relay/internal/sandbox"
)

// TestRandomRowsAreWhatSelectPrints compares a fixed portion; the command compares as much as one likes.
func TestRandomRowsAreWhatSelectPrints(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r, err := compare(ctx, sandbox.SharedMySQL(t), options{rows: 3000, documents: 3000, seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if r.differences != 0 {
		t.Errorf("%d differences", r.differences)
	}
	t.Log(r)
	for _, node := range nodeNames() {
		if r.nodes[node] == 0 {
			t.Errorf("no document holds %s", node)
		}
	}
	if r.selected < 1500 || r.keyless == 0 {
		t.Errorf("%d rows were selected, of %d tables without a key: less than was meant", r.selected, r.keyless)
	}
	if r.rows < 3000 || r.documents != 3000 || len(r.byType) < 35 || len(r.byCharset) < 40 || len(r.ways) < 7 || len(r.kinds) < 7 {
		t.Errorf("%d rows of %d types, %d charsets, written in %d ways: less than was meant", r.rows, len(r.byType), len(r.byCharset), len(r.ways))
	}
}

// TestDifferencesAreSeen gives the judge rows that are wrong in one way each.
func TestDifferencesAreSeen(t *testing.T) {
	t.Parallel()
	table := &event.Table{Name: "t", Columns: []event.Column{{Type: event.ColumnLongLong, Name: "n"}, {Type: event.ColumnVarchar, Name: "v", Meta: 80, Collation: 255}, {Type: event.ColumnBit, Name: "b", Meta: 10}}}
	row := func(n uint64, v string) []event.Cell {
		return []event.Cell{{Raw: binary.LittleEndian.AppendUint64(nil, n), State: event.CellValue}, {Raw: []byte(v), State: event.CellValue}, {Raw: []byte{2, 1}, State: event.CellValue}}
	}
	for name, c := range map[string]struct {
		do   func(j *judge, e *expectation)
		want string // in the report; empty means no difference
	}{
		"right":         {func(j *judge, _ *expectation) { j.row(table, row(7, "ä")) }, ""},
		"other value":   {func(j *judge, _ *expectation) { j.row(table, row(7, "b")) }, `column "v", varchar(20): `},
		"other bits":    {func(j *judge, e *expectation) { *e.cells[2] = "\x02\x00"; j.row(table, row(7, "ä")) }, "want 512"},
		"wanted a NULL": {func(j *judge, e *expectation) { e.cells[1] = nil; j.row(table, row(7, "ä")) }, "NULL is false"},
		"came as NULL": {func(j *judge, _ *expectation) {
			r := row(7, "")
			r[1] = event.Cell{State: event.CellNull}
			j.row(table, r)
		}, "NULL is true"},
		"absent":         {func(j *judge, _ *expectation) { r := row(7, ""); r[1] = event.Cell{}; j.row(table, r) }, "absent"},
		"cut off":        {func(j *judge, _ *expectation) { r := row(7, "ä"); r[2].Raw = r[2].Raw[:1]; j.row(table, r) }, "malformed"},
		"other name":     {func(j *judge, e *expectation) { e.layout.columns[1].name = "w"; j.row(table, row(7, "ä")) }, `its name came as "v"`},
		"lacks a column": {func(j *judge, e *expectation) { e.cells = e.cells[:2]; j.row(table, row(7, "ä")) }, "3 columns, want 2"},
		"stranger":       {func(j *judge, _ *expectation) { j.row(table, row(7, "ä")); j.row(table, row(8, "ä")) }, "row 8: a row that was rolled back"},
		"twice":          {func(j *judge, _ *expectation) { j.row(table, row(7, "ä")); j.row(table, row(7, "ä")) }, "came again"},
		"missing":        {func(*judge, *expectation) {}, "did not come"},
		"may be missing": {func(_ *judge, e *expectation) { e.must = false }, ""},
	} {
		j := newJudge("here", newReport())
		seven, text, bits := "7", "ä", "\x02\x01"
		e := &expectation{must: true, cells: []*string{&seven, &text, &bits}, layout: &layout{columns: []listed{
			{name: "n", columnType: "bigint", label: "BIGINT"}, {name: "v", columnType: "varchar(20)", label: "VARCHAR", charset: "utf8mb4"}, {name: "b", columnType: "bit(10)", label: "BIT", bits: true}}}}
		j.expect(pending{"t", 7, e})
		c.do(j, e)
		j.finish()
		got := strings.Join(j.report.shown, "\n")
		if (c.want == "") != (j.report.differences == 0) || !strings.Contains(got, c.want) {
			t.Errorf("%s: %d differences, %q, want %q", name, j.report.differences, got, c.want)
		}
	}
}

// TestSameSeedSameColumns sees that a difference can be repeated.
func TestSameSeedSameColumns(t *testing.T) {
	t.Parallel()
	p := &palette{vectors: true, charsets: []*charset{{name: "latin1", longest: 1, collations: []string{"latin1_bin"}, chars: [][]byte{{'a'}, {'b'}}, space: []byte{' '}, comma: []byte{','}}}}
	make200 := func(seed uint64) string {
		p.shuffle()
		r := rand.New(rand.NewPCG(seed, 1))
		var s strings.Builder
		for range 200 {
			c := p.column(r, "c")
			s.WriteString(c.definition(r) + c.expression(r, true))
		}
		return s.String()
	}
	first, again, other := make200(1), make200(1), make200(2)
	if first != again || first == other {
		t.Error("columns do not follow from the seed")
	}
}
