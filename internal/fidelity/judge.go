package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/value"
)

// expectation is a row that was written.
type expectation struct {
	layout *layout
	cells  []*string // as SELECT prints them
	must   bool      // else the server may have logged an update in its place
	how    string
	seen   int
}

// judge compares the rows of a round that the reader gives with what is expected.
type judge struct {
	where  string // seed and round
	rows   map[string]map[int64]*expectation
	report *report
	text   []byte
}

func newJudge(where string, r *report) *judge {
	return &judge{where: where, rows: map[string]map[int64]*expectation{}, report: r}
}

func (j *judge) expect(p pending) {
	if j.rows[p.table] == nil {
		j.rows[p.table] = map[int64]*expectation{}
	}
	j.rows[p.table][p.n] = p.want
}

// read takes rows until one of the table last comes.
func (j *judge) read(ctx context.Context, reader *binlog.Reader, last string) error {
	for {
		tx, err := reader.Next(ctx)
		if err != nil {
			return fmt.Errorf("reading the binlog: %w", err)
		}
		var row binlog.Row
		for {
			ok, err := tx.NextRow(&row)
			if err != nil {
				return fmt.Errorf("reading rows of %s: %w", tx.GTIDText, err)
			}
			if !ok {
				break
			}
			if row.Table.Name == last {
				return nil
			}
			j.row(row.Table, row.Cells)
		}
	}
}

// row judges one row that the reader gave.
func (j *judge) row(t *event.Table, cells []event.Cell) {
	n := int64(0)
	for i := range t.Columns {
		if t.Columns[i].Name == "n" {
			n, _ = value.Int64(&t.Columns[i], cells[i].Raw)
		}
	}
	want := j.rows[t.Name][n]
	if want == nil {
		j.differ(t.Name, n, "", "", "a row that was rolled back, ignored or made an update came", nil)
		return
	}
	if want.seen++; want.seen > 1 {
		j.differ(t.Name, n, "", want.layout.ddl, "the row came again", nil)
		return
	}
	j.report.ways[want.how]++
	j.report.rows++
	if len(cells) != len(want.cells) {
		j.differ(t.Name, n, "", want.layout.ddl, fmt.Sprintf("%d columns, want %d", len(cells), len(want.cells)), nil)
		return
	}
	for i := range cells {
		j.cell(t, n, want, i, cells[i])
	}
}

// cell compares one value, and counts it by its type and charset.
func (j *judge) cell(t *event.Table, n int64, e *expectation, i int, got event.Cell) {
	col, info, want := &t.Columns[i], e.layout.columns[i], e.cells[i]
	byType, byCharset := j.report.count(info)
	fail := func(how string) {
		byType.differences++
		if byCharset != nil {
			byCharset.differences++
		}
		if len(col.Members) > 0 {
			how += fmt.Sprintf("\n  members %x", col.Members)
		}
		j.differ(t.Name, n, info.name, e.layout.ddl, fmt.Sprintf("column %q, %s: %s (written by %s)", info.name, info.columnType, how, e.how), got.Raw)
	}
	shown := "NULL"
	if want != nil {
		shown = strconv.QuoteToASCII(*want)
	}
	switch {
	case col.Name != info.name:
		fail("its name came as " + strconv.Quote(col.Name))
		return
	case got.State == event.CellAbsent:
		fail("it is absent")
		return
	case (got.State == event.CellNull) != (want == nil):
		fail(fmt.Sprintf("NULL is %v, SELECT prints %.2000s", got.State == event.CellNull, shown))
		return
	case want == nil:
		byType.nulls++
		return
	}
	byType.values++
	if byCharset != nil {
		byCharset.values++
	}
	text := *want
	if info.bits {
		text = bitText(text)
		shown = text
	}
	var err error
	var refused *value.UnsupportedError
	j.text, err = value.Append(j.text[:0], col, got.Raw)
	switch {
	case j.report.unnamed && errors.As(err, &refused) && len(col.Members) == 0:
		j.report.refused++
	case err != nil:
		fail(fmt.Sprintf("%v\n  want %.2000s", err, shown))
	case string(j.text) != text:
		fail(fmt.Sprintf("\n  got  %.2000s\n  want %.2000s", strconv.QuoteToASCII(string(j.text)), shown))
	}
}

// finish reports rows that have not come.
func (j *judge) finish() {
	for name, rows := range j.rows {
		for n, e := range rows {
			if e.must && e.seen == 0 {
				j.differ(name, n, "", e.layout.ddl, "the row did not come (written by "+e.how+")", nil)
			}
		}
	}
}

func (j *judge) differ(table string, n int64, column, ddl, what string, raw []byte) {
	j.report.differ(j.where+"\x00"+table+"\x00"+column, fmt.Sprintf("%s, table %s, row %d: %s\n  bytes %.4000x\n  %s", j.where, table, n, what, raw, ddl))
}

// bitText turns the bytes that SELECT gives for a BIT into a number.
func bitText(s string) string {
	var u uint64
	for _, b := range []byte(s) {
		u = u<<8 | uint64(b)
	}
	return strconv.FormatUint(u, 10)
}
