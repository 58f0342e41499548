package event_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"outbox-relay/binlog/event"
)

// wideTable has columns of each way in which a value lies in a row: fixed, and with a length of 1 to 4 bytes.
func wideTable() *event.Table {
	return &event.Table{Schema: "app", Name: "o", Columns: []event.Column{
		{Type: event.ColumnLongLong}, {Type: event.ColumnVarchar, Meta: 64}, {Type: event.ColumnVarchar, Meta: 400}, {Type: event.ColumnBlob, Meta: 4},
		{Type: event.ColumnBlob, Meta: 3}, {Type: event.ColumnJSON, Meta: 4}, {Type: event.ColumnTiny}, {Type: event.ColumnBlob, Meta: 2}, {Type: event.ColumnLong},
	}}
}

// wideRow gives a row of wideTable with values of the given sizes in its variable columns; -1 is NULL.
func wideRow(id uint64, sizes ...int) [][]byte {
	row := make([][]byte, 9)
	row[0], row[6], row[8] = binary.LittleEndian.AppendUint64(nil, id), []byte{7}, []byte{1, 2, 3, 4}
	for i, column := range []int{1, 2, 3, 4, 5, 7} {
		if i < len(sizes) && sizes[i] >= 0 {
			row[column] = bytes.Repeat([]byte{byte('a' + i)}, sizes[i])
		}
	}
	return row
}

// writeRows makes the body of a row event. absent are columns that are in no image.
func writeRows(typ event.Type, t *event.Table, rows [][][]byte, absent ...int) []byte {
	le := binary.LittleEndian
	b := append(le.AppendUint16(le.AppendUint32(nil, 77), 0), 1, 0)
	if typ == event.TypeWriteRows {
		b = append(b, 7, 0, 'e', 'x', 't', 'r', 'a')
	}
	n := len(t.Columns)
	b = append(b, byte(n))
	present := make([]byte, (n+7)/8)
	for i := range n {
		if !slices.Contains(absent, i) {
			present[i/8] |= 1 << (i % 8)
		}
	}
	b = append(b, present...)
	for _, row := range rows {
		b = append(b, image(t, row, present)...)
	}
	return b
}

func image(t *event.Table, row [][]byte, present []byte) []byte {
	var values []byte
	var nulls []bool
	for i, v := range row {
		if present[i/8]>>(i%8)&1 == 0 {
			continue
		}
		nulls = append(nulls, v == nil)
		if v == nil {
			continue
		}
		c := t.Columns[i]
		switch {
		case c.Type == event.ColumnBlob || c.Type == event.ColumnJSON:
			values = append(values, binary.LittleEndian.AppendUint32(nil, uint32(len(v)))[:c.Meta]...)
		case c.Type == event.ColumnVarchar && c.Meta > 255:
			values = binary.LittleEndian.AppendUint16(values, uint16(len(v)))
		case c.Type == event.ColumnVarchar:
			values = append(values, byte(len(v)))
		}
		values = append(values, v...)
	}
	bitmap := make([]byte, (len(nulls)+7)/8)
	for i, null := range nulls {
		if null {
			bitmap[i/8] |= 1 << (i % 8)
		}
	}
	return slices.Concat(bitmap, values)
}

// splitRow is a row as a Splitter gives it.
type splitRow struct {
	cells    []event.Cell
	size     uint64
	tooLarge bool
	present  []byte
	capacity int
}

func splitAll(t *event.Table, typ event.Type, body []byte, r io.Reader, limit uint64) ([]splitRow, error) {
	var s event.Splitter
	if err := s.Reset(t, typ, r, uint64(len(body)), limit); err != nil {
		return nil, err
	}
	var out []splitRow
	for {
		b, err := s.Next([]byte("before"))
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			if string(b) != "before" {
				return out, fmt.Errorf("%w, and %d bytes are left behind", err, len(b))
			}
			return out, err
		}
		one := splitRow{size: s.Size(), tooLarge: s.TooLarge(), present: bytes.Clone(s.Present()), capacity: cap(b), cells: make([]event.Cell, len(t.Columns))}
		b = b[len("before"):]
		h, err := event.ParseRowsHeader(event.TypeWriteRows, b)
		if err != nil {
			return out, fmt.Errorf("row %d: %w", len(out), err)
		}
		var rows event.Rows
		if err := rows.Reset(t, h, b); err != nil {
			return out, fmt.Errorf("row %d: %w", len(out), err)
		}
		if !rows.Next(one.cells) {
			return out, fmt.Errorf("row %d: no row: %w", len(out), rows.Err())
		}
		if rows.Next(make([]event.Cell, len(t.Columns))) || rows.Err() != nil {
			return out, fmt.Errorf("row %d has another one behind it: %w", len(out), rows.Err())
		}
		out = append(out, one)
	}
}

// wholeRows reads the event as a whole.
func wholeRows(t *event.Table, typ event.Type, body []byte) (rows [][]event.Cell, sizes []int, err error) {
	h, err := event.ParseRowsHeader(typ, body)
	if err != nil {
		return nil, nil, err
	}
	var walk event.Rows
	if err := walk.Reset(t, h, body); err != nil {
		return nil, nil, err
	}
	for {
		from, cells := walk.Offset(), make([]event.Cell, len(t.Columns))
		if !walk.Next(cells) {
			return rows, sizes, walk.Err()
		}
		rows, sizes = append(rows, cells), append(sizes, walk.Offset()-from)
	}
}

// compareSplit demands of a split event what the event read as a whole says.
func compareSplit(t *testing.T, tbl *event.Table, typ event.Type, body []byte, limit uint64, r io.Reader) {
	t.Helper()
	want, sizes, wantErr := wholeRows(tbl, typ, body)
	got, err := splitAll(tbl, typ, body, r, limit)
	if (err == nil) != (wantErr == nil) || err != nil && !errors.Is(err, event.ErrMalformed) {
		t.Fatalf("limit %d: split gives %v, the whole event %v", limit, err, wantErr)
	}
	if len(got) != len(want) {
		t.Fatalf("limit %d: %d rows, want %d", limit, len(got), len(want))
	}
	for i, g := range got {
		if g.size != uint64(sizes[i]) || g.tooLarge != (g.size > limit) {
			t.Fatalf("limit %d, row %d: size %d, too large %v; want %d", limit, i, g.size, g.tooLarge, sizes[i])
		}
		if most := 2*len(body) + 80<<10; g.capacity > most {
			t.Fatalf("limit %d, row %d: a buffer of %d bytes for an event of %d", limit, i, g.capacity, len(body))
		}
		kept := 0
		for _, c := range g.cells {
			kept += len(c.Raw)
		}
		for c, cell := range g.cells {
			w := want[i][c]
			if dropped := cell.State == event.CellAbsent && w.State != event.CellAbsent; dropped {
				if !g.tooLarge || w.State != event.CellValue || len(w.Raw) <= event.KeptValue && kept+len(w.Raw) < 60<<10 {
					t.Fatalf("limit %d, row %d, column %d: %d bytes were dropped, %d kept", limit, i, c, len(w.Raw), kept)
				}
				if g.present[c/8]>>(c%8)&1 == 0 {
					t.Fatalf("limit %d, row %d, column %d: dropped, and not said to be in the image", limit, i, c)
				}
				continue
			}
			if cell.State != w.State || !bytes.Equal(cell.Raw, w.Raw) {
				t.Fatalf("limit %d, row %d, column %d: %d with %d bytes, want %d with %d", limit, i, c, cell.State, len(cell.Raw), w.State, len(w.Raw))
			}
			if present := g.present[c/8]>>(c%8)&1 != 0; present != (w.State != event.CellAbsent) {
				t.Fatalf("limit %d, row %d, column %d: said to be in the image: %v", limit, i, c, present)
			}
		}
	}
}

func TestSplitRowsAreThoseOfTheWholeEvent(t *testing.T) {
	t.Parallel()
	tbl := wideTable()
	rows := [][][]byte{
		wideRow(1, 5, 6, 100, -1, 20, -1), wideRow(2, 0, 300, 20_000, 0, 3, 9), wideRow(3), wideRow(4, 60, -1, 4096, 4097, 5000, 4096),
		wideRow(5, 1, 1, 1, 1, 1, 65_535), wideRow(6, 64, 400, 300_000, 70_000, -1, 3), wideRow(7, 3, 4),
	}
	for _, typ := range []event.Type{event.TypeWriteRows, event.TypeWriteRowsV1} {
		for _, absent := range [][]int{nil, {0}, {3, 4}, {1, 2, 3, 4, 5, 6, 7, 8}} {
			body := writeRows(typ, tbl, rows, absent...)
			if got, _, err := wholeRows(tbl, typ, body); err != nil || len(got) != len(rows) {
				t.Fatalf("the test's own event: %d rows, %v", len(got), err)
			}
			for _, limit := range []uint64{0, 1, 2, 30, 500, 4200, 20_400, 20_500, 65_600, 400_000, 1 << 40} {
				compareSplit(t, tbl, typ, body, limit, bytes.NewReader(body))
				compareSplit(t, tbl, typ, body, limit, iotest.OneByteReader(bytes.NewReader(body)))
			}
		}
	}
}

// An INSERT that names no column has an image of no column and no bytes under binlog_row_image=MINIMAL. It is a row all the same.
func TestRowWithoutAColumnIsARow(t *testing.T) {
	t.Parallel()
	tbl := wideTable()
	for _, typ := range []event.Type{event.TypeWriteRows, event.TypeWriteRowsV1} {
		body := writeRows(typ, tbl, nil, 0, 1, 2, 3, 4, 5, 6, 7, 8)
		rows, sizes, err := wholeRows(tbl, typ, body)
		if err != nil || len(rows) != 1 || sizes[0] != 0 || slices.ContainsFunc(rows[0], func(c event.Cell) bool { return c.State != event.CellAbsent }) {
			t.Fatalf("%d rows of %v bytes, %v", len(rows), sizes, err)
		}
		compareSplit(t, tbl, typ, body, 0, bytes.NewReader(body))
		if _, _, err := wholeRows(tbl, typ, append(body, 1)); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("with a byte behind it: %v", err)
		}
	}
	if rows, _, err := wholeRows(tbl, event.TypeDeleteRows, writeRows(event.TypeWriteRows, tbl, nil, 0, 1, 2, 3, 4, 5, 6, 7, 8)); err != nil || len(rows) != 0 {
		t.Errorf("a DELETE without a column: %d rows, %v", len(rows), err)
	}
}

// The values that are kept of a row beyond the limit are bounded together, whatever their number.
func TestSplitKeepsLittleOfARowOfManyColumns(t *testing.T) {
	t.Parallel()
	tbl := &event.Table{Schema: "app", Name: "o", Columns: make([]event.Column, 600)}
	row := make([][]byte, len(tbl.Columns))
	for i := range row {
		tbl.Columns[i] = event.Column{Type: event.ColumnBlob, Meta: 4}
		row[i] = bytes.Repeat([]byte{'v'}, event.KeptValue)
	}
	row[len(row)-1] = nil
	le := binary.LittleEndian
	head := le.AppendUint16(append(make([]byte, 8), 2, 0, 0xfc), uint16(len(row)))
	present := bytes.Repeat([]byte{0xff}, len(row)/8)
	body := slices.Concat(head, present, image(tbl, row, present))
	got, err := splitAll(tbl, event.TypeWriteRows, body, bytes.NewReader(body), 1<<20)
	if err != nil || len(got) != 1 || !got[0].tooLarge {
		t.Fatal(got, err)
	}
	kept := 0
	for _, c := range got[0].cells {
		kept += len(c.Raw)
	}
	if kept > 64<<10 || kept < 50<<10 {
		t.Errorf("%d bytes are kept", kept)
	}
	if got[0].cells[0].State != event.CellValue || got[0].cells[len(row)-2].State != event.CellAbsent || got[0].cells[len(row)-1].State != event.CellNull {
		t.Errorf("first %d, last but one %d, last %d", got[0].cells[0].State, got[0].cells[len(row)-2].State, got[0].cells[len(row)-1].State)
	}
}

// repeated gives its bytes and then one byte again and again: a value too large for a test to hold.
type repeated struct {
	head []byte
	left int
}

func (r *repeated) Read(b []byte) (int, error) {
	n := copy(b, r.head)
	r.head = r.head[n:]
	for ; n < len(b) && r.left > 0; n, r.left = n+1, r.left-1 {
		b[n] = 'x'
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Not parallel: allocations of other tests would count.
func TestSplitNeedsNoMemoryForWhatItDrops(t *testing.T) {
	const huge = 1 << 30
	tbl := &event.Table{Schema: "app", Name: "o", Columns: []event.Column{{Type: event.ColumnLongLong}, {Type: event.ColumnBlob, Meta: 4}}}
	body := writeRows(event.TypeWriteRows, tbl, [][][]byte{{binary.LittleEndian.AppendUint64(nil, 42), {}}})
	binary.LittleEndian.PutUint32(body[len(body)-4:], huge)
	var s event.Splitter
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := s.Reset(tbl, event.TypeWriteRows, &repeated{body, huge}, uint64(len(body)+huge), 16<<20); err != nil {
		t.Fatal(err)
	}
	row, err := s.Next(nil)
	runtime.ReadMemStats(&after)
	if err != nil || !s.TooLarge() || s.Size() != 1+8+4+huge || len(row) > 100 || s.Left() != 0 {
		t.Fatalf("a row of %d bytes, too large %v: %d bytes, %d are left, %v", s.Size(), s.TooLarge(), len(row), s.Left(), err)
	}
	if got := after.TotalAlloc - before.TotalAlloc; got > 100<<10 {
		t.Errorf("%d bytes are allocated for a row of a gigabyte", got)
	}
}

func TestSplitRefusesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	tbl := wideTable()
	body := writeRows(event.TypeWriteRows, tbl, [][][]byte{wideRow(1, 5, 6, 100, -1, 20, -1), wideRow(2, 1, 2, 9000, 4, 5, 6)})
	for n := range body {
		for _, limit := range []uint64{0, 100, 1 << 20} {
			compareSplit(t, tbl, event.TypeWriteRows, body[:n], limit, bytes.NewReader(body[:n]))
		}
	}
	for name, r := range map[string]io.Reader{"a body that ends early": bytes.NewReader(body[:len(body)-3]), "a body that fails": iotest.TimeoutReader(iotest.HalfReader(bytes.NewReader(body)))} {
		if _, err := splitAll(tbl, event.TypeWriteRows, body, r, 100); !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, iotest.ErrTimeout) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for want, reset := range map[string]func(*event.Table) event.Type{
		"has no inserted rows":          func(*event.Table) event.Type { return event.TypeUpdateRows },
		"9 columns, table map of app.o": func(x *event.Table) event.Type { x.Columns = x.Columns[1:]; return event.TypeWriteRows },
		"have an unknown length":        func(x *event.Table) event.Type { x.Columns[2].Type = 99; return event.TypeWriteRows },
	} {
		other := wideTable()
		typ := reset(other)
		var s event.Splitter
		if err := s.Reset(other, typ, bytes.NewReader(body), uint64(len(body)), 100); !errors.Is(err, event.ErrMalformed) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", want, err)
		}
	}
}

// FuzzSplit splits bytes that may be a row event by any limit: rows and errors are those of the event read as a whole.
func FuzzSplit(f *testing.F) {
	tbl := wideTable()
	f.Add(writeRows(event.TypeWriteRows, tbl, [][][]byte{wideRow(1, 5, 6, 100, -1, 20, -1), wideRow(2, 0, 300, 5000, 0, 3, 9), wideRow(3)}), uint64(60), false)
	f.Add(writeRows(event.TypeWriteRowsV1, tbl, [][][]byte{wideRow(1, 5, 6, 9000, -1, 20, -1), wideRow(3)}, 0, 4), uint64(0), true)
	f.Add(writeRows(event.TypeWriteRows, tbl, nil), uint64(10), false)
	f.Fuzz(func(t *testing.T, body []byte, limit uint64, v1 bool) {
		body = body[:min(len(body), 64<<10)]
		typ := event.TypeWriteRows
		if v1 {
			typ = event.TypeWriteRowsV1
		}
		compareSplit(t, tbl, typ, body, limit, bytes.NewReader(body))
	})
}
