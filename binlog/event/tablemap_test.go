package event_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/binlog/event"
)

// tableMapOf gives the body of the first TABLE_MAP of a table in groups.binlog.
func tableMapOf(t testing.TB, name string) []byte {
	t.Helper()
	for _, e := range readFile(t, "testdata/groups.binlog") {
		if e.Type != event.TypeTableMap {
			continue
		}
		_, schema, table, err := event.TableMapName(e.body)
		if err != nil {
			t.Fatal(err)
		}
		if string(schema)+"."+string(table) == name {
			return e.body
		}
	}
	t.Fatalf("no table map of %s", name)
	return nil
}

// YEAR in front of BIGINT UNSIGNED, VECTOR in front of latin1 and BINARY: both count in the lists of signs and of
// charsets.
func TestTableMapWithFullMetadata(t *testing.T) {
	t.Parallel()
	got, err := event.ParseTableMap(tableMapOf(t, "g1.s"))
	if err != nil {
		t.Fatal(err)
	}
	want := &event.Table{ID: got.ID, Schema: "g1", Name: "s", HasNames: true, HasSigns: true, Columns: []event.Column{
		{Name: "y", Type: event.ColumnYear, Nullable: true, Unsigned: true, Visible: true},
		{Name: "u", Type: event.ColumnLongLong, Unsigned: true, PrimaryKey: true, Visible: true},
		{Name: "i", Type: event.ColumnLongLong, Nullable: true, Visible: true},
		{Name: "v", Type: event.ColumnVector, Meta: 4, Nullable: true, Collation: 63, Visible: true},
		{Name: "l", Type: event.ColumnVarchar, Meta: 20, Collation: 8, PrimaryKey: true, Visible: true},
		{Name: "b", Type: event.ColumnString, Meta: 16, Nullable: true, Collation: 63, Visible: true},
		{Name: "e", Type: event.ColumnEnum, Meta: 1, Nullable: true, Collation: 8, Members: []string{"a", "\xe9"}, Visible: true},
		{Name: "st", Type: event.ColumnSet, Meta: 1, Nullable: true, Collation: 255, Members: []string{"x", "y", "z"}, Visible: true},
		{Name: "hidden", Type: event.ColumnLong, Nullable: true},
		{Name: "f", Type: event.ColumnLong, Nullable: true, Visible: true},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// head is a TABLE_MAP up to the columns: id 0x060504030201, table a.b.
const head = "010203040506 0100 01 61 00 01 62 00"

func TestTableMapMetadata(t *testing.T) {
	t.Parallel()
	type columns = []event.Column
	v := func(c event.Column) event.Column { c.Visible = true; return c }
	for _, c := range []struct {
		name, body string
		want       columns
		signs      bool
	}{
		{"no optional metadata", "02 0308 00 03", columns{v(event.Column{Type: event.ColumnLong, Nullable: true}), v(event.Column{Type: event.ColumnLongLong, Nullable: true})}, false},
		{"no numeric column", "01 0a 00 00", columns{v(event.Column{Type: event.ColumnDate})}, true},
		{"nine signs over two bytes", "09 01010101010101010d 00 0000 | 01 02 0180", columns{
			v(event.Column{Type: 1}), v(event.Column{Type: 1}), v(event.Column{Type: 1}), v(event.Column{Type: 1}), v(event.Column{Type: 1}), v(event.Column{Type: 1}),
			v(event.Column{Type: 1}), v(event.Column{Type: 1, Unsigned: true}), v(event.Column{Type: event.ColumnYear, Unsigned: true})}, true},
		{"default charset and pairs", "04 0f03fcfe 05 ff00 04 fe08 00 | 02 07 fcff00 00 08 01 3f | 01 01 00 | 0a 01 2d", columns{
			v(event.Column{Type: event.ColumnVarchar, Meta: 255, Collation: 8}), v(event.Column{Type: event.ColumnLong}),
			v(event.Column{Type: event.ColumnBlob, Meta: 4, Collation: 63}), v(event.Column{Type: event.ColumnString, Meta: 8, Collation: 255})}, true},
		{"column charsets", "03 0ffcf2 04 0001 02 04 00 | 03 05 fc3501 1c 3f | 0d 01 03", columns{
			v(event.Column{Type: event.ColumnVarchar, Meta: 256, Collation: 309}), v(event.Column{Type: event.ColumnBlob, Meta: 2, Collation: 28}),
			v(event.Column{Type: event.ColumnVector, Meta: 4, Collation: 63})}, true},
		{"long CHAR, ENUM of two bytes, SET of eight", "03 fefefe 06 cefc f702 f808 00", columns{
			v(event.Column{Type: event.ColumnString, Meta: 1020}), v(event.Column{Type: event.ColumnEnum, Meta: 2}), v(event.Column{Type: event.ColumnSet, Meta: 8})}, true},
		{"BIT, DECIMAL, fractions", "05 10f6111213 07 0301 411e 00 03 06 00", columns{
			v(event.Column{Type: event.ColumnBit, Meta: 11}), v(event.Column{Type: event.ColumnDecimal, Meta: 65<<8 | 30}), v(event.Column{Type: event.ColumnTimestamp}),
			v(event.Column{Type: event.ColumnDatetime, Meta: 3}), v(event.Column{Type: event.ColumnTime, Meta: 6})}, false},
		{"primary key with prefix, unknown field", "02 0f0f 04 0a00 1400 00 | 09 04 01 05 00 00 | 63 02 ffff", columns{
			v(event.Column{Type: event.ColumnVarchar, Meta: 10, PrimaryKey: true}), v(event.Column{Type: event.ColumnVarchar, Meta: 20, PrimaryKey: true})}, true},
	} {
		got, err := event.ParseTableMap(unhex(t, head+c.body))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		want := &event.Table{ID: 0x060504030201, Schema: "a", Name: "b", Columns: c.want, HasSigns: c.signs}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestTableMapRefuses(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"more columns than bytes":           head + "fc ffff 03 00 00",
		"huge column count":                 head + "fe ffffffffffffffff 03 00 00",
		"NULL column count":                 head + "fb 03 00 00",
		"type metadata missing":             head + "01 0f 01 0a 00",
		"type metadata left over":           head + "01 03 01 0a 00",
		"no null bitmap":                    head + "01 03 00",
		"unknown type":                      head + "01 c8 00 00",
		"ENUM as its own type":              head + "01 f7 02 f701 00",
		"string of an impossible type":      head + "01 fe 02 f901 00",
		"ENUM of three bytes":               head + "01 fe 02 f703 00",
		"SET of nine bytes":                 head + "01 fe 02 f809 00",
		"blob with a prefix of five":        head + "01 fc 01 05 00",
		"seven digits of fraction":          head + "01 12 01 07 00",
		"DECIMAL(66)":                       head + "01 f6 02 4200 00",
		"DECIMAL with scale over precision": head + "01 f6 02 0102 00",
		"BIT(65)":                           head + "01 10 02 0108 00",
		"BIT(0)":                            head + "01 10 02 0000 00",
		"FLOAT of eight bytes":              head + "01 04 01 08 00",
		"too few signs":                     head + "01 03 00 00 | 01 00",
		"collation 0":                       head + "01 0f 02 0a00 00 | 02 01 00",
		"collation above 65535":             head + "01 0f 02 0a00 00 | 02 04 fd 000001",
		"charset pair without a column":     head + "01 0f 02 0a00 00 | 02 03 08 01 3f",
		"charset pairs in disorder":         head + "02 0f0f 04 0a00 0a00 00 | 02 05 08 01 3f 00 3f",
		"too few charsets":                  head + "02 0f0f 04 0a00 0a00 00 | 03 01 08",
		"too many charsets":                 head + "01 0f 02 0a00 00 | 03 02 08 08",
		"too few names":                     head + "02 0303 00 00 | 04 02 01 61",
		"too many names":                    head + "01 03 00 00 | 04 04 01 61 01 62",
		"name longer than the field":        head + "01 03 00 00 | 04 02 05 61",
		"members claimed, none there":       head + "01 fe 02 f701 00 | 06 09 fe ffffffffffffffff",
		"key of column 2 of 1":              head + "01 03 00 00 | 08 01 01",
		"visibility without bits":           head + "01 03 00 00 | 0c 00",
		"field longer than the body":        head + "01 03 00 00 | 01 05 00",
		"schema not terminated":             "010203040506 0100 01 61 01 01 62 00 00 00",
		"table not terminated":              "010203040506 0100 01 61 00 01 62 01 00 00",
		"schema longer than the body":       "010203040506 0100 ff 61 00 01 62 00 00 00",
	} {
		if got, err := event.ParseTableMap(unhex(t, body)); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestTableMapName(t *testing.T) {
	t.Parallel()
	id, schema, table, err := event.TableMapName(unhex(t, head))
	if err != nil || id != 0x060504030201 || string(schema) != "a" || string(table) != "b" {
		t.Errorf("%x %s %s %v", id, schema, table, err)
	}
	b := unhex(t, head)
	for n := range b {
		if _, _, _, err := event.TableMapName(b[:n]); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestRowsHeader(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, body string
		typ        event.Type
		want       event.RowsHeader
	}{
		{"v2", "010203040506 0100 0200 03 ff 00", event.TypeWriteRows, event.RowsHeader{TableID: 0x060504030201, Flags: 1, Columns: 3, Present: []byte{0xff}, Offset: 12}},
		{"v2 with a partition", "010203040506 0000 0500 01 0300 03 07 00", event.TypeDeleteRows, event.RowsHeader{TableID: 0x060504030201, Columns: 3, Present: []byte{7}, Offset: 15}},
		{"v1", "010203040506 0100 03 07 00", event.TypeWriteRowsV1, event.RowsHeader{TableID: 0x060504030201, Flags: 1, Columns: 3, Present: []byte{7}, Offset: 10}},
		{"update", "010203040506 0100 0200 09 ff01 0f00 00", event.TypeUpdateRows, event.RowsHeader{TableID: 0x060504030201, Flags: 1, Columns: 9, Present: []byte{0xff, 1}, After: []byte{0x0f, 0}, Offset: 15}},
		{"dummy", "ffffff000000 0100 0200 00", event.TypeWriteRows, event.RowsHeader{TableID: event.DummyTableID, Flags: 1, Present: []byte{}, Offset: 11}},
	} {
		c.want.Type = c.typ
		got, err := event.ParseRowsHeader(c.typ, unhex(t, c.body))
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%s: %v %s", c.name, err, diff)
		}
		id, flags, err := event.RowsTableID(unhex(t, c.body))
		if err != nil || id != c.want.TableID || flags != c.want.Flags {
			t.Errorf("%s: %x, %x, %v", c.name, id, flags, err)
		}
	}
	for name, body := range map[string]string{
		"empty": "", "extra data of 1 byte": "010203040506 0100 0100 03 ff", "extra data beyond the body": "010203040506 0100 ff00 03 ff",
		"bitmap cut": "010203040506 0100 0200 09 ff", "huge count": "010203040506 0100 0200 fe ffffffffffffffff ff", "no count": "010203040506 0100 0200",
	} {
		if got, err := event.ParseRowsHeader(event.TypeWriteRows, unhex(t, body)); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for _, typ := range []event.Type{event.TypeWriteRowsV0, event.TypeXID, event.TypePartialUpdateRows} {
		if _, err := event.ParseRowsHeader(typ, unhex(t, "010203040506 0100 0200 03 ff 00")); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%s: %v", typ, err)
		}
	}
}

func TestRowsTellNullFromAbsent(t *testing.T) {
	t.Parallel()
	table := &event.Table{Columns: []event.Column{{Type: event.ColumnTiny}, {Type: event.ColumnVarchar, Meta: 10}, {Type: event.ColumnShort}}}
	// Columns 1 and 3 are present; the first row has NULL in column 3.
	body := unhex(t, "010203040506 0100 0200 03 05 | 02 2a | 00 2b 0102")
	h, err := event.ParseRowsHeader(event.TypeWriteRows, body)
	if err != nil {
		t.Fatal(err)
	}
	var rows event.Rows
	if err := rows.Reset(table, h, body); err != nil {
		t.Fatal(err)
	}
	var got [][]event.Cell
	cells := make([]event.Cell, 3)
	for rows.Next(cells) {
		got = append(got, append([]event.Cell(nil), cells...))
	}
	want := [][]event.Cell{
		{{State: event.CellValue, Raw: []byte{0x2a}}, {}, {State: event.CellNull}},
		{{State: event.CellValue, Raw: []byte{0x2b}}, {}, {State: event.CellValue, Raw: []byte{1, 2}}},
	}
	if diff := cmp.Diff(want, got); diff != "" || rows.Err() != nil {
		t.Error(rows.Err(), diff)
	}
	if rows.Next(make([]event.Cell, 3)) {
		t.Error("a row behind the end")
	}
}

// Bits of the present-bitmap behind the last column say nothing: eight present columns have one byte of null bits.
func TestRowsIgnoreSpareBits(t *testing.T) {
	t.Parallel()
	table := &event.Table{Columns: make([]event.Column, 9)}
	for i := range table.Columns {
		table.Columns[i].Type = event.ColumnTiny
	}
	body := unhex(t, "010203040506 0100 0200 09 feff | 01 02030405060708 | 00 0102030405060708")
	h, err := event.ParseRowsHeader(event.TypeWriteRows, body)
	if err != nil {
		t.Fatal(err)
	}
	var rows event.Rows
	if err := rows.Reset(table, h, body); err != nil {
		t.Fatal(err)
	}
	cells := make([]event.Cell, 9)
	if !rows.Next(cells) || cells[0].State != event.CellAbsent || cells[1].State != event.CellNull || string(cells[2].Raw) != "\x02" || string(cells[8].Raw) != "\x08" {
		t.Errorf("first row %+v, %v", cells, rows.Err())
	}
	if !rows.Next(cells) || string(cells[1].Raw) != "\x01" || string(cells[8].Raw) != "\x08" || rows.Next(cells) || rows.Err() != nil {
		t.Errorf("second row %+v, %v", cells, rows.Err())
	}
}

func TestRowsRefuse(t *testing.T) {
	t.Parallel()
	table := &event.Table{Schema: "a", Name: "b", Columns: []event.Column{{Type: event.ColumnBlob, Meta: 4}}}
	for name, c := range map[string]struct {
		typ  event.Type
		body string
	}{
		"other column count":          {event.TypeWriteRows, "010203040506 0100 0200 02 03 00"},
		"no column present":           {event.TypeWriteRows, "010203040506 0100 0200 01 00 00"},
		"update without after-column": {event.TypeUpdateRows, "010203040506 0100 0200 01 01 00 00"},
		"value longer than the body":  {event.TypeWriteRows, "010203040506 0100 0200 01 01 | 00 ffffffff 61"},
		"prefix cut":                  {event.TypeWriteRows, "010203040506 0100 0200 01 01 | 00 0100"},
		"update without after-image":  {event.TypeUpdateRows, "010203040506 0100 0200 01 01 01 | 00 01000000 61"},
	} {
		h, err := event.ParseRowsHeader(c.typ, unhex(t, c.body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var rows event.Rows
		if err = rows.Reset(table, h, unhex(t, c.body)); err == nil {
			cells := make([]event.Cell, 1)
			for rows.Next(cells) {
			}
			err = rows.Err()
		}
		if !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	old := &event.Table{Columns: []event.Column{{Type: event.ColumnOldDecimal}}}
	body := unhex(t, "010203040506 0100 0200 01 01 | 00 01")
	h, _ := event.ParseRowsHeader(event.TypeWriteRows, body)
	var rows event.Rows
	if err := rows.Reset(old, h, body); !errors.Is(err, event.ErrMalformed) {
		t.Errorf("column without a known length: %v", err)
	}
	if err := rows.Reset(table, h, body); err != nil || rows.Next(nil) || rows.Err() == nil {
		t.Errorf("too few cells: %v, %v", err, rows.Err())
	}
}
