package event

import (
	"encoding/binary"
	"fmt"
)

// Table is what a TABLE_MAP says about a table. Its strings and slices are copies: a Table outlives the event.
type Table struct {
	ID           uint64 // valid for the row events of one statement
	Schema, Name string
	Columns      []Column

	// FoldCase says that the server does not tell upper from lower case in names of tables. Not from the TABLE_MAP: the reader sets it.
	FoldCase bool
	HasNames bool // binlog_row_metadata=FULL: names, members, keys and visibility are known
	HasSigns bool // Column.Unsigned is known; false before MySQL 8.0.1, and true for tables without a numeric column
}

// TableMapName reads the id and the names at the head of a TABLE_MAP without a copy and without a look at the rest,
// to decide whether the table is wanted: 0 u48 id · 6 u16 flags · 8 u8 length, schema, 0 · u8 length, table, 0 · ….
func TableMapName(b []byte) (id uint64, schema, table []byte, err error) {
	if len(b) < 12 {
		return 0, nil, nil, errTableMapHead
	}
	id = uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint16(b[4:]))<<32
	at := 9 + int(b[8]) // of the 0 behind the schema
	if at+1 >= len(b) || b[at] != 0 {
		return 0, nil, nil, errTableMapHead
	}
	schema = b[9:at:at]
	from := at + 2
	to := from + int(b[at+1])
	if to >= len(b) || b[to] != 0 {
		return 0, nil, nil, errTableMapHead
	}
	return id, schema, b[from:to:to], nil
}

var errTableMapHead = malformed(TypeTableMap, "names are cut off or not terminated")

// ParseTableMap reads a whole TABLE_MAP:
//
//	the head of TableMapName · lenenc column count · one type byte per column · lenenc length, type metadata ·
//	bitmap of the nullable columns · optional metadata: `u8 field, lenenc length, value` to the end
func ParseTableMap(b []byte) (*Table, error) {
	id, schema, name, err := TableMapName(b)
	if err != nil {
		return nil, err
	}
	t := &Table{ID: id, Schema: string(schema), Name: string(name)}
	c := cursor{b: b[8+1+len(schema)+1+1+len(name)+1:]}
	count := c.lenenc()
	types := c.bytes(count) // refuses a count that is larger than the body
	meta := cursor{b: c.bytes(c.lenenc())}
	nulls := c.bytes((count + 7) / 8)
	if c.bad {
		return nil, malformed(TypeTableMap, "%s.%s is cut off in its columns", schema, name)
	}
	t.Columns = make([]Column, count)
	for i := range t.Columns {
		col := &t.Columns[i]
		*col = Column{Type: ColumnType(types[i]), Nullable: bit(nulls, i), Visible: true}
		if err := col.readMeta(&meta); err != nil {
			return nil, fmt.Errorf("column %d of %s.%s: %w", i+1, schema, name, err)
		}
	}
	if len(meta.b) > 0 {
		return nil, malformed(TypeTableMap, "%s.%s has %d bytes of type metadata too many", schema, name, len(meta.b))
	}
	if err := t.readOptional(&c); err != nil {
		return nil, fmt.Errorf("table %s.%s: %w", schema, name, err)
	}
	return t, nil
}

// bit gives bit i of a bitmap with the least significant bit first.
func bit(bitmap []byte, i int) bool { return bitmap[i>>3]>>(i&7)&1 != 0 }

// readMeta takes the type metadata of the column and checks that values of it can be told apart by it.
func (c *Column) readMeta(meta *cursor) error {
	ok := true
	switch c.Type {
	case ColumnFloat, ColumnDouble:
		c.Meta = uint16(meta.u8())
		ok = c.Type == ColumnFloat && c.Meta == 4 || c.Type == ColumnDouble && c.Meta == 8
	case ColumnBlob, ColumnJSON, ColumnGeometry, ColumnVector:
		c.Meta = uint16(meta.u8())
		ok = c.Meta >= 1 && c.Meta <= 4
	case ColumnTimestamp, ColumnDatetime, ColumnTime:
		c.Meta = uint16(meta.u8())
		ok = c.Meta <= 6
	case ColumnVarchar, ColumnVarString:
		c.Meta = meta.u16()
	case ColumnBit:
		rest, whole := meta.u8(), meta.u8()
		c.Meta = uint16(whole)*8 + uint16(rest)
		ok = rest < 8 && c.Meta >= 1 && c.Meta <= 64
	case ColumnDecimal:
		precision, scale := meta.u8(), meta.u8()
		c.Meta = uint16(precision)<<8 | uint16(scale)
		ok = precision >= 1 && precision <= 65 && scale <= 30 && scale <= precision
	case ColumnString:
		ok = c.readStringMeta(meta)
	case ColumnEnum, ColumnSet, ColumnTypedArray, 14, 243, 244, 249, 250, 251:
		return malformed(TypeTableMap, "type %d does not occur in row images", c.Type)
	default:
		if c.Type > ColumnTypedArray {
			return malformed(TypeTableMap, "type %d is unknown", c.Type)
		}
	}
	if !ok || meta.bad {
		return malformed(TypeTableMap, "wrong or missing metadata of %s", c.Type)
	}
	return nil
}

// readStringMeta resolves type 254. Bytes b0 b1: where both bits 0x30 of b0 are set, b0 is the real type (CHAR,
// ENUM, SET) and b1 the length; otherwise it is a CHAR whose bits 8 and 9 of the length are those bits, inverted.
func (c *Column) readStringMeta(meta *cursor) bool {
	b0, b1 := meta.u8(), meta.u8()
	if b0&0x30 != 0x30 {
		c.Meta = uint16(b1) | uint16(b0&0x30^0x30)<<4
		return ColumnType(b0|0x30) == ColumnString
	}
	c.Type, c.Meta = ColumnType(b0), uint16(b1)
	switch c.Type {
	case ColumnString:
		return true
	case ColumnEnum:
		return b1 == 1 || b1 == 2
	case ColumnSet:
		return b1 >= 1 && b1 <= 8
	}
	return false
}
