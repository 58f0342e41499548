package event

import (
	"fmt"
	"strconv"

	"outbox-relay/binlog/value/scalar"
)

// ColumnType is the type of a column in a TABLE_MAP (MySQL source: enum_field_types).
type ColumnType uint8

// Column types that occur in row images, and historic ones (Old…) of tables made before MySQL 5.6.
const (
	ColumnOldDecimal   ColumnType = 0
	ColumnTiny         ColumnType = 1
	ColumnShort        ColumnType = 2
	ColumnLong         ColumnType = 3
	ColumnFloat        ColumnType = 4
	ColumnDouble       ColumnType = 5
	ColumnNull         ColumnType = 6
	ColumnOldTimestamp ColumnType = 7
	ColumnLongLong     ColumnType = 8
	ColumnInt24        ColumnType = 9
	ColumnDate         ColumnType = 10
	ColumnOldTime      ColumnType = 11
	ColumnOldDatetime  ColumnType = 12
	ColumnYear         ColumnType = 13
	ColumnVarchar      ColumnType = 15
	ColumnBit          ColumnType = 16
	ColumnTimestamp    ColumnType = 17
	ColumnDatetime     ColumnType = 18
	ColumnTime         ColumnType = 19
	ColumnTypedArray   ColumnType = 20
	ColumnVector       ColumnType = 242
	ColumnJSON         ColumnType = 245
	ColumnDecimal      ColumnType = 246
	ColumnEnum         ColumnType = 247
	ColumnSet          ColumnType = 248
	ColumnBlob         ColumnType = 252
	ColumnVarString    ColumnType = 253
	ColumnString       ColumnType = 254
	ColumnGeometry     ColumnType = 255
)

var columnTypeNames = map[ColumnType]string{
	ColumnOldDecimal: "old DECIMAL", ColumnTiny: "TINYINT", ColumnShort: "SMALLINT", ColumnLong: "INT", ColumnFloat: "FLOAT",
	ColumnDouble: "DOUBLE", ColumnNull: "NULL", ColumnOldTimestamp: "old TIMESTAMP", ColumnLongLong: "BIGINT",
	ColumnInt24: "MEDIUMINT", ColumnDate: "DATE", ColumnOldTime: "old TIME", ColumnOldDatetime: "old DATETIME",
	ColumnYear: "YEAR", ColumnVarchar: "VARCHAR", ColumnBit: "BIT", ColumnTimestamp: "TIMESTAMP", ColumnDatetime: "DATETIME",
	ColumnTime: "TIME", ColumnTypedArray: "typed array", ColumnVector: "VECTOR", ColumnJSON: "JSON", ColumnDecimal: "DECIMAL",
	ColumnEnum: "ENUM", ColumnSet: "SET", ColumnBlob: "BLOB or TEXT", ColumnVarString: "VARCHAR", ColumnString: "CHAR or BINARY",
	ColumnGeometry: "GEOMETRY",
}

// String gives the SQL name, or `type n` for an unknown type.
func (t ColumnType) String() string {
	if name, ok := columnTypeNames[t]; ok {
		return name
	}
	return "type " + strconv.Itoa(int(t))
}

// IsNumeric tells whether the table map has a sign bit for columns of the type. YEAR counts.
func (t ColumnType) IsNumeric() bool {
	switch t {
	case ColumnTiny, ColumnShort, ColumnInt24, ColumnLong, ColumnLongLong, ColumnDecimal, ColumnFloat, ColumnDouble, ColumnYear, ColumnOldDecimal:
		return true
	}
	return false
}

// IsCharacter tells whether the table map has a collation for columns of the type among the character columns.
// VECTOR counts; ENUM and SET have a list of their own.
func (t ColumnType) IsCharacter() bool {
	switch t {
	case ColumnVarchar, ColumnVarString, ColumnString, ColumnBlob, ColumnVector:
		return true
	}
	return false
}

// Column describes one column of a table at the time of its TABLE_MAP.
type Column struct {
	Type ColumnType // ENUM and SET are told apart from CHAR, which the wire does not

	// Meta by type: FLOAT, DOUBLE size in bytes · VARCHAR, CHAR, BINARY longest value in bytes · ENUM, SET bytes of the
	// value · BLOB, TEXT, JSON, GEOMETRY, VECTOR bytes of the length prefix · BIT number of bits · DECIMAL precision<<8
	// | scale · TIMESTAMP, DATETIME, TIME fractional digits · others 0.
	Meta uint16

	Nullable bool
	Unsigned bool // false for columns that are not numeric, and where Table.HasSigns is false

	// Collation is the collation id of character, ENUM and SET columns; 63 is binary. There is no collation 0: it means
	// that the TABLE_MAP tells none, which is so for all other types, and for ENUM and SET without full metadata.
	Collation uint16

	// The rest is known only with binlog_row_metadata=FULL (Table.HasNames).
	Name       string
	Members    []string // of ENUM and SET, in the charset of the column
	PrimaryKey bool
	Visible    bool // true where the TABLE_MAP does not tell
}

// Precision gives the digits of a DECIMAL, Scale those behind the point.
func (c *Column) Precision() int { return int(c.Meta >> 8) }

// Scale gives the digits of a DECIMAL behind the point.
func (c *Column) Scale() int { return int(c.Meta & 0xff) }

// CollationBinary is the collation of BINARY, VARBINARY and BLOB.
const CollationBinary = 63

// width says how a value lies in a row: prefix bytes of length in front of it, or, with prefix 0, size bytes.
type width struct {
	prefix uint8
	size   uint16
}

// width gives the layout of the column's values; false for types whose values are not known.
func (c *Column) width() (width, bool) {
	fixed := func(n int) (width, bool) { return width{size: uint16(n)}, true }
	switch c.Type {
	case ColumnNull:
		return fixed(0)
	case ColumnTiny, ColumnYear:
		return fixed(1)
	case ColumnShort:
		return fixed(2)
	case ColumnInt24, ColumnDate, ColumnOldTime:
		return fixed(3)
	case ColumnLong, ColumnOldTimestamp:
		return fixed(4)
	case ColumnLongLong, ColumnOldDatetime:
		return fixed(8)
	case ColumnFloat, ColumnDouble, ColumnEnum, ColumnSet:
		return fixed(int(c.Meta))
	case ColumnBit:
		return fixed((int(c.Meta) + 7) / 8)
	case ColumnTimestamp:
		return fixed(4 + fractionSize(c.Meta))
	case ColumnDatetime:
		return fixed(5 + fractionSize(c.Meta))
	case ColumnTime:
		return fixed(3 + fractionSize(c.Meta))
	case ColumnDecimal:
		return fixed(scalar.DecimalSize(c.Precision(), c.Scale()))
	case ColumnVarchar, ColumnVarString, ColumnString:
		if c.Meta > 255 {
			return width{prefix: 2}, true
		}
		return width{prefix: 1}, true
	case ColumnBlob, ColumnJSON, ColumnGeometry, ColumnVector:
		return width{prefix: uint8(c.Meta)}, true
	}
	return width{}, false
}

// LengthBytes gives how many bytes of length stand in front of a value of the column, 0 for types whose values have one length.
func (c *Column) LengthBytes() int {
	w, _ := c.width()
	return int(w.prefix)
}

// widthsOf appends the widths of the table's columns to dst.
func widthsOf(dst []width, t *Table) ([]width, error) {
	for i := range t.Columns {
		w, ok := t.Columns[i].width()
		if !ok {
			return dst, fmt.Errorf("%w: values of column %d of %s.%s have an unknown length: %s", ErrMalformed, i+1, t.Schema, t.Name, t.Columns[i].Type)
		}
		dst = append(dst, w)
	}
	return dst, nil
}

func fractionSize(digits uint16) int { return int(digits+1) / 2 }
