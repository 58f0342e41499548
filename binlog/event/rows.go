package event

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// RowsFlags of a row event.
type RowsFlags uint16

// RowsStatementEnd is set on the last row event of a statement; the table ids of the statement end with it.
const RowsStatementEnd RowsFlags = 0x0001

// DummyTableID stands in a row event that only closes a statement and has no rows.
const DummyTableID = 0xffffff

// RowsHeader is the part of a row event before the rows. Its slices alias the body.
type RowsHeader struct {
	Type    Type
	TableID uint64
	Flags   RowsFlags
	Columns int // of the table, as the event has it

	// Bitmaps of the columns that are in the row images, least significant bit first: of the only image, or of the image
	// before an update.
	Present []byte
	After   []byte // of the image after an update; nil for other events

	Offset int // of the first row in the body
}

// IsWrite tells whether the event holds inserted rows.
func (h RowsHeader) IsWrite() bool { return h.Type == TypeWriteRows || h.Type == TypeWriteRowsV1 }

// IsUpdate tells whether images come in pairs, before and after.
func (h RowsHeader) IsUpdate() bool { return h.Type == TypeUpdateRows || h.Type == TypeUpdateRowsV1 }

// RowsTableID reads table id and flags alone, for the decision whether the event is wanted. t is not checked.
func RowsTableID(b []byte) (id uint64, flags RowsFlags, err error) {
	if len(b) < 8 {
		return 0, 0, errRowsHead
	}
	id = uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint16(b[4:]))<<32
	return id, RowsFlags(binary.LittleEndian.Uint16(b[6:])), nil
}

var errRowsHead = fmt.Errorf("%w: row event is cut off in its head", ErrMalformed)

// ParseRowsHeader reads the head of a WRITE, UPDATE or DELETE_ROWS event, v2 or v1 (t is the type):
//
//	0 u48 table id · 6 u16 flags · v2: 8 u16 length of the extra data with these 2 bytes, extra data ·
//	lenenc column count · bitmap of present columns · updates: another one for the image after
func ParseRowsHeader(t Type, b []byte) (RowsHeader, error) {
	h := RowsHeader{Type: t}
	isV2 := t >= TypeWriteRows && t <= TypeDeleteRows
	if !isV2 && !t.isRowsV1() {
		return h, malformed(t, "is no row event that can be read")
	}
	c := cursor{b: b}
	h.TableID = uint64(c.u32())
	h.TableID |= uint64(c.u16()) << 32
	h.Flags = RowsFlags(c.u16())
	if isV2 {
		extra := c.u16()
		if extra < 2 {
			return h, malformed(t, "extra data of %d bytes", extra)
		}
		c.skip(uint64(extra) - 2)
	}
	count := c.lenenc()
	if count > uint64(len(c.b))*8 {
		return h, malformed(t, "%d columns in %d bytes", count, len(c.b))
	}
	h.Columns = int(count)
	h.Present = c.bytes((count + 7) / 8)
	if h.IsUpdate() {
		h.After = c.bytes((count + 7) / 8)
	}
	if c.bad {
		return h, errRowsHead
	}
	h.Offset = len(b) - len(c.b)
	return h, nil
}

// CellState tells a value from NULL and from a column that is not in the row image.
type CellState uint8

const (
	CellAbsent CellState = iota // not in the image (binlog_row_image is not FULL): the value is unknown
	CellNull
	CellValue
	CellDropped // in the image of a row beyond the row limit, and not kept: the value, neither NULL nor empty, is unknown. Rows never gives it
)

// Cell is one column of a row image. Raw is set with CellValue only, aliases the body, and holds the value without
// its length prefix.
type Cell struct {
	Raw   []byte
	State CellState
}

// Rows walks the row images of one event. The zero value is ready for Reset; a Rows that is used again does not
// allocate for a table it has seen last.
type Rows struct {
	table  *Table
	widths []width

	rest  []byte // images not yet read
	all   int    // bytes of all images
	bits  [2][]byte
	sizes [2]int // bytes of the null bitmap
	pairs bool
	after bool // the next image is the one after an update
	blank bool // the next image has no column and takes no bytes
	count int  // images read
	err   error
}

// Reset begins the walk of the event with head h and body b. The table must be the one of h.TableID; its columns
// must not change as long as it is in use here. It refuses a column count that differs from the table's, and tables
// with columns whose values have no known length.
func (r *Rows) Reset(t *Table, h RowsHeader, b []byte) error {
	if h.Columns != len(t.Columns) {
		return malformed(h.Type, "%d columns, table map of %s.%s has %d", h.Columns, t.Schema, t.Name, len(t.Columns))
	}
	if h.Offset > len(b) || len(h.Present) < (h.Columns+7)/8 || h.IsUpdate() && len(h.After) < (h.Columns+7)/8 {
		return malformed(h.Type, "head does not belong to this body")
	}
	if r.table != t || len(r.widths) != len(t.Columns) {
		var err error
		if r.widths, err = widthsOf(r.widths[:0], t); err != nil {
			r.table = nil
			return err
		}
		r.table = t
	}
	*r = Rows{table: t, widths: r.widths, rest: b[h.Offset:], all: len(b) - h.Offset, pairs: h.IsUpdate()}
	r.bits = [2][]byte{h.Present, h.After}
	for i, bitmap := range r.bits {
		n := countBits(bitmap, h.Columns)
		r.sizes[i] = (n + 7) / 8
		if n == 0 && bitmap != nil && len(r.rest) > 0 {
			return malformed(h.Type, "rows without a column") // they would take no bytes and never end
		}
		// An INSERT that names no column, under binlog_row_image=MINIMAL. The server refuses to write two such rows.
		r.blank = r.blank || n == 0 && h.Columns > 0 && h.IsWrite() && bitmap != nil
	}
	return nil
}

// Forget drops the body of the walk, which the Rows would hold on to until the next Reset.
func (r *Rows) Forget() { r.rest, r.bits, r.after, r.blank = nil, [2][]byte{}, false, false }

// countBits counts the ones among the first n bits.
func countBits(bitmap []byte, n int) int {
	ones := 0
	for i := range (n + 7) / 8 {
		if i >= len(bitmap) {
			break
		}
		x := bitmap[i]
		if left := n - 8*i; left < 8 {
			x &= 1<<left - 1
		}
		ones += bits.OnesCount8(x)
	}
	return ones
}

// Next reads one image into cells, which must have one element per column. For an update the images alternate:
// before, after. It gives false at the end and at an error; Err tells which.
func (r *Rows) Next(cells []Cell) bool {
	if r.err != nil || len(r.rest) == 0 && !r.after && !r.blank {
		return false
	}
	if len(cells) != len(r.widths) {
		r.err = fmt.Errorf("row of %d columns into %d cells", len(r.widths), len(cells))
		return false
	}
	which := 0
	if r.after {
		which = 1
	}
	present, size, b := r.bits[which], r.sizes[which], r.rest
	if size > len(b) {
		return r.fail(-1)
	}
	nulls, b := b[:size], b[size:]
	n := 0 // index among the present columns
	for i := range cells {
		if !bit(present, i) {
			cells[i] = Cell{}
			continue
		}
		isNull := bit(nulls, n)
		n++
		if isNull {
			cells[i] = Cell{State: CellNull}
			continue
		}
		w := r.widths[i]
		size := uint(w.size)
		if w.prefix > 0 {
			if uint(w.prefix) > uint(len(b)) {
				return r.fail(i)
			}
			size = prefix(b, w.prefix)
			b = b[w.prefix:]
		}
		if size > uint(len(b)) {
			return r.fail(i)
		}
		cells[i] = Cell{Raw: b[:size:size], State: CellValue}
		b = b[size:]
	}
	r.rest = b
	r.after = r.pairs && !r.after
	r.blank = false
	r.count++
	return true
}

// prefix reads a length of n bytes, 1 to 4; b is long enough.
func prefix(b []byte, n uint8) uint {
	switch n {
	case 1:
		return uint(b[0])
	case 2:
		return uint(b[0]) | uint(b[1])<<8
	case 3:
		return uint(b[0]) | uint(b[1])<<8 | uint(b[2])<<16
	}
	return uint(binary.LittleEndian.Uint32(b))
}

func (r *Rows) fail(column int) bool {
	where := "its null bitmap"
	if column >= 0 {
		where = fmt.Sprintf("column %d", column+1)
	}
	r.err = fmt.Errorf("%w: row image %d of %s.%s is cut off in %s", ErrMalformed, r.count+1, r.table.Schema, r.table.Name, where)
	return false
}

// Err gives the error that ended the walk, nil at the regular end.
func (r *Rows) Err() error { return r.err }

// Count gives the number of images read since Reset.
func (r *Rows) Count() int { return r.count }

// Offset gives the distance in bytes from the first row to the next one that Next reads.
func (r *Rows) Offset() int { return r.all - len(r.rest) }
