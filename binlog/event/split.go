package event

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

const (
	// KeptValue is the size of the largest value that a Splitter keeps of a row beyond the limit.
	KeptValue = 4 << 10
	// KeptRow bounds all values that are kept of such a row.
	KeptRow = 64 << 10
	// splitBuffer is what a Splitter reads ahead, so that short values do not cost a read each.
	splitBuffer = 16 << 10
)

// Splitter cuts a WRITE_ROWS event that is too large to be held into events of one row each. It holds nothing but the row that it makes:
// one within the limit as a whole, and of one beyond it the short values, so that the row can still be named. The zero value is ready for
// Reset.
type Splitter struct {
	table  *Table
	widths []width
	in     *bufio.Reader
	left   uint64 // bytes of the body not yet read
	limit  uint64

	head    []byte // of the events that are made, up to the bitmap
	present []byte // columns in the row images
	columns int    // ones in present
	nulls   []byte // null bitmap of the image

	// What is kept should the row prove to be beyond the limit.
	kept   []byte // bitmap of columns: those whose value is NULL or in values
	values []byte
	image  []byte // null bitmap of the columns in kept

	count int
	size  uint64
	large bool
	blank bool // the next row has no column and takes no bytes, see Rows
}

// Reset begins with an event whose body of size bytes comes from body. The table must be the one of its id. Rows of more than limit bytes are
// beyond the limit. Nothing is read behind the body's end.
func (s *Splitter) Reset(t *Table, typ Type, body io.Reader, size, limit uint64) error {
	if typ != TypeWriteRows && typ != TypeWriteRowsV1 {
		return malformed(typ, "has no inserted rows")
	}
	var err error
	if s.widths, err = widthsOf(s.widths[:0], t); err != nil {
		return err
	}
	if s.in == nil {
		s.in = bufio.NewReaderSize(nil, splitBuffer)
	}
	s.in.Reset(io.LimitReader(body, int64(size)))
	s.table, s.left, s.limit, s.count, s.size, s.large = t, size, limit, 0, 0, false
	return s.readHead(typ)
}

// readHead reads what ParseRowsHeader describes.
func (s *Splitter) readHead(typ Type) error {
	var b [9]byte
	if err := s.read(b[:8]); err != nil {
		return err
	}
	s.head = append(s.head[:0], b[:8]...)
	if typ == TypeWriteRows {
		if err := s.read(b[:2]); err != nil {
			return err
		}
		extra := uint64(binary.LittleEndian.Uint16(b[:]))
		if extra < 2 {
			return malformed(typ, "extra data of %d bytes", extra)
		}
		if err := s.skip(extra - 2); err != nil {
			return err
		}
	}
	s.head = append(s.head, 2, 0) // no extra data
	if err := s.read(b[:1]); err != nil {
		return err
	}
	n := 1
	switch b[0] {
	case 0xfc:
		n = 3
	case 0xfd:
		n = 4
	case 0xfe:
		n = 9
	}
	if err := s.read(b[1:n]); err != nil {
		return err
	}
	c := cursor{b: b[:n]}
	if count := c.lenenc(); c.bad || count != uint64(len(s.table.Columns)) {
		return malformed(typ, "%d columns, table map of %s.%s has %d", count, s.table.Schema, s.table.Name, len(s.table.Columns))
	}
	s.head = append(s.head, b[:n]...)
	s.present = sized(s.present, (len(s.widths)+7)/8)
	if err := s.read(s.present); err != nil {
		return err
	}
	s.columns = countBits(s.present, len(s.widths))
	if s.columns == 0 && s.left > 0 {
		return malformed(typ, "rows without a column")
	}
	s.blank = s.columns == 0 && len(s.widths) > 0
	return nil
}

// Next appends the next row to dst: a body that ParseRowsHeader and Rows take as one of TypeWriteRows. It returns io.EOF after the last row and
// other errors of the body's reader, or ErrMalformed. What dst held stays as it is also with an error.
func (s *Splitter) Next(dst []byte) ([]byte, error) {
	if s.left == 0 && !s.blank {
		return dst, io.EOF
	}
	s.blank = false
	start := len(dst)
	out, err := s.row(dst)
	if err != nil {
		if errors.Is(err, ErrMalformed) {
			err = fmt.Errorf("row image %d of %s.%s: %w", s.count+1, s.table.Schema, s.table.Name, err)
		}
		return out[:start], err
	}
	s.count++
	return out, nil
}

// Left gives the number of bytes of the body that no row has taken yet.
func (s *Splitter) Left() uint64 { return s.left }

// Size gives the number of bytes that the last row takes in the event, whatever was kept of it.
func (s *Splitter) Size() uint64 { return s.size }

// TooLarge tells whether the last row is beyond the limit. Then the columns that are not in its event, but in Present, had values that were dropped.
func (s *Splitter) TooLarge() bool { return s.large }

// Present gives the bitmap of the columns that are in the images of the event that is split.
func (s *Splitter) Present() []byte { return s.present }

func (s *Splitter) row(dst []byte) ([]byte, error) {
	s.nulls = sized(s.nulls, (s.columns+7)/8)
	if err := s.read(s.nulls); err != nil {
		return dst, err
	}
	s.size, s.large = uint64(len(s.nulls)), s.limit < uint64(len(s.nulls))
	s.kept, s.values = sized(s.kept, len(s.present)), s.values[:0]
	clear(s.kept)
	start := len(dst)
	if !s.large {
		dst = append(append(append(dst, s.head...), s.present...), s.nulls...)
	}
	n := 0 // index among the present columns
	for i := range s.widths {
		if !bit(s.present, i) {
			continue
		}
		isNull := bit(s.nulls, n)
		n++
		if isNull {
			s.keep(i)
			continue
		}
		var err error
		if dst, err = s.value(dst, start, i); err != nil {
			return dst, err
		}
	}
	if s.large {
		dst = s.appendKept(dst)
	}
	return dst, nil
}

// value reads one value. As long as the row may be within the limit it is appended to dst, and dst is cut to start once it is beyond.
func (s *Splitter) value(dst []byte, start, i int) ([]byte, error) {
	var b [4]byte
	w := s.widths[i]
	lead := b[:w.prefix]
	if err := s.read(lead); err != nil {
		return dst, err
	}
	size := uint64(w.size)
	if w.prefix > 0 {
		size = uint64(prefix(lead, w.prefix))
	}
	if size > s.left {
		return dst, fmt.Errorf("%w: it is cut off in column %d", ErrMalformed, i+1)
	}
	s.size += uint64(w.prefix) + size
	if !s.large && s.size > s.limit {
		s.large = true
		dst = dst[:start]
	}
	if size <= KeptValue && len(s.values)+len(lead)+int(size) <= KeptRow {
		s.keep(i)
		at := len(s.values)
		s.values = append(s.values, lead...)
		if err := s.readTo(&s.values, int(size)); err != nil {
			return dst, err
		}
		if !s.large {
			dst = append(dst, s.values[at:]...)
		}
		return dst, nil
	}
	if s.large {
		return dst, s.skip(size)
	}
	dst = append(dst, lead...)
	return dst, s.readTo(&dst, int(size))
}

func (s *Splitter) keep(i int) { s.kept[i/8] |= 1 << (i % 8) }

// appendKept appends the event of what is kept of a row beyond the limit.
func (s *Splitter) appendKept(dst []byte) []byte {
	s.image = sized(s.image, (countBits(s.kept, len(s.widths))+7)/8)
	clear(s.image)
	n, k := 0, 0 // indexes among the present and the kept columns
	for i := range s.widths {
		if bit(s.kept, i) {
			if bit(s.nulls, n) {
				s.image[k/8] |= 1 << (k % 8)
			}
			k++
		}
		if bit(s.present, i) {
			n++
		}
	}
	dst = append(append(dst, s.head...), s.kept...)
	return append(append(dst, s.image...), s.values...)
}

// read fills b from the body.
func (s *Splitter) read(b []byte) error {
	if uint64(len(b)) > s.left {
		return fmt.Errorf("%w: it is cut off", ErrMalformed)
	}
	s.left -= uint64(len(b))
	_, err := io.ReadFull(s.in, b)
	return ended(err)
}

// readTo appends n bytes of the body to b; they are known to be there.
func (s *Splitter) readTo(b *[]byte, n int) error {
	at := len(*b)
	*b = slices.Grow(*b, n)[:at+n]
	return s.read((*b)[at:])
}

// skip reads n bytes of the body and forgets them.
func (s *Splitter) skip(n uint64) error {
	if n > s.left {
		return fmt.Errorf("%w: it is cut off", ErrMalformed)
	}
	s.left -= n
	_, err := s.in.Discard(int(n))
	return ended(err)
}

// ended tells a body that ends before its size from one that was read to its end.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// sized gives a slice of n elements, b's own if it is large enough. What is in it is undefined.
func sized(b []byte, n int) []byte {
	if n <= cap(b) {
		return b[:n]
	}
	return make([]byte, n)
}
