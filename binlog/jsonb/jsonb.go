// Package jsonb turns MySQL's binary JSON, as it stands in row images, into the text that the server prints for the
// column: same blanks, key order, number forms, escapes and opaque values, byte for byte.
//
// Text is written straight from the binary form: no tree, and no allocation when the destination has room. Every
// count, offset and length is checked. The work is bounded by the length of the document, also when damaged offsets
// let containers share their parts. It does not validate UTF-8 and does not check the order of keys.
package jsonb

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"outbox-relay/binlog/value/scalar"
)

// ErrMalformed is wrapped by every error about bytes that are no document.
var ErrMalformed = errors.New("malformed binary JSON")

// MaxDepth is the deepest nesting that is read. The server refuses to store more than 100 levels.
const MaxDepth = 128

// Types of values (MySQL source: sql-common/json_binary.cc).
const (
	smallObject = 0x00
	largeObject = 0x01
	smallArray  = 0x02
	largeArray  = 0x03
	literal     = 0x04
	int16Value  = 0x05
	uint16Value = 0x06
	int32Value  = 0x07
	uint32Value = 0x08
	int64Value  = 0x09
	uint64Value = 0x0a
	doubleValue = 0x0b
	stringValue = 0x0c
	opaqueValue = 0x0f
)

// Append appends the text of doc to dst. doc is the value of a JSON column without its length prefix: `u8 type,
// value`. On an error dst comes back as it was.
//
// An empty doc is `null`: the server stores it when a NULL is forced into a NOT NULL column, and has no text for it.
func Append(dst, doc []byte) ([]byte, error) { return appendText(dst, doc, nil) }

// Printer makes the texts of many documents, faster than the functions do: it remembers the names of objects, in at most one MiB for each kind of text. Its
// zero value is ready. It is not for several goroutines at once.
type Printer struct{ server, debezium *shapes }

// Append is the function Append.
func (p *Printer) Append(dst, doc []byte) ([]byte, error) {
	if p.server == nil {
		p.server = new(shapes)
	}
	return appendText(dst, doc, p.server)
}

// AppendDebezium is the function AppendDebezium.
func (p *Printer) AppendDebezium(dst, doc []byte) ([]byte, error) {
	if p.debezium == nil {
		p.debezium = new(shapes)
	}
	return appendDebezium(dst, doc, p.debezium)
}

func appendText(dst, doc []byte, known *shapes) ([]byte, error) {
	if len(doc) == 0 {
		return append(dst, "null"...), nil
	}
	w := writer{out: dst, budget: len(doc), known: known, hex: "0123456789abcdef"}
	return w.document(dst, doc)
}

// document writes a document behind dst, or gives dst back.
func (w *writer) document(dst, doc []byte) ([]byte, error) {
	if err := w.value(doc[0], doc[1:], MaxDepth); err != nil {
		return dst, err
	}
	return w.out, nil
}

type writer struct {
	out []byte
	// Bytes of the document that may still be read. Entries and values of a sound document do not overlap, so they
	// never take more than its length; damaged ones that share parts run out of it.
	budget int
	known  *shapes // nil remembers nothing
	// debezium makes the text of AppendDebezium, hex are the digits of \u00xx.
	debezium bool
	hex      string
}

// comma appends what stands between elements.
func (w *writer) comma(dst []byte) []byte {
	if w.debezium {
		return append(dst, ',')
	}
	return append(dst, ',', ' ')
}

// colon appends what stands behind a name.
func (w *writer) colon(dst []byte) []byte {
	if w.debezium {
		return append(dst, ':')
	}
	return append(dst, ':', ' ')
}

func (w *writer) spend(n int) bool {
	w.budget -= n
	return w.budget >= 0
}

// value writes the value at the front of b, which may go on behind it.
func (w *writer) value(typ byte, b []byte, depth int) error {
	switch typ {
	case smallObject:
		return w.smallObject(b, depth)
	case largeObject:
		return w.container(b, layout{wide: 4, object: true}, depth)
	case smallArray:
		return w.container(b, layout{wide: 2}, depth)
	case largeArray:
		return w.container(b, layout{wide: 4}, depth)
	case stringValue:
		s, err := w.sized(b)
		if err != nil {
			return err
		}
		w.out = appendString(w.out, s, w.hex)
		return nil
	case opaqueValue:
		if len(b) == 0 {
			return errCut
		}
		data, err := w.sized(b[1:])
		if err != nil {
			return err
		}
		return w.opaque(b[0], data)
	}
	return w.scalar(typ, b)
}

var (
	errCut    = fmt.Errorf("%w: cut off", ErrMalformed)
	errDeep   = fmt.Errorf("%w: nested deeper than %d levels", ErrMalformed, MaxDepth)
	errShared = fmt.Errorf("%w: values overlap", ErrMalformed)
)

// scalar writes a number or a literal.
func (w *writer) scalar(typ byte, b []byte) error {
	size := 0
	switch typ {
	case literal:
		size = 1
	case int16Value, uint16Value:
		size = 2
	case int32Value, uint32Value:
		size = 4
	case int64Value, uint64Value, doubleValue:
		size = 8
	default:
		return fmt.Errorf("%w: unknown type 0x%02x", ErrMalformed, typ)
	}
	if len(b) < size {
		return errCut
	}
	switch typ {
	case literal:
		return w.literal(b[0])
	case int16Value:
		w.out = scalar.AppendInt(w.out, int64(int16(binary.LittleEndian.Uint16(b))))
	case uint16Value:
		w.out = scalar.AppendUint(w.out, uint64(binary.LittleEndian.Uint16(b)))
	case int32Value:
		w.out = scalar.AppendInt(w.out, int64(int32(binary.LittleEndian.Uint32(b))))
	case uint32Value:
		w.out = scalar.AppendUint(w.out, uint64(binary.LittleEndian.Uint32(b)))
	case int64Value:
		w.out = scalar.AppendInt(w.out, int64(binary.LittleEndian.Uint64(b)))
	case uint64Value:
		w.out = scalar.AppendUint(w.out, binary.LittleEndian.Uint64(b))
	case doubleValue:
		f := math.Float64frombits(binary.LittleEndian.Uint64(b))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%w: double is not finite", ErrMalformed)
		}
		if w.debezium {
			w.out = appendPlainJavaDouble(w.out, f)
		} else {
			w.out = scalar.AppendDouble(w.out, f, ".0")
		}
	}
	return nil
}

func (w *writer) literal(b byte) error {
	if int(b) >= len(literals) {
		return fmt.Errorf("%w: unknown literal 0x%02x", ErrMalformed, b)
	}
	l := &literals[b]
	w.out = append(w.out, l.text[:l.n]...)
	return nil
}

// layout of a container: counts, sizes and offsets have wide bytes (2 or 4).
type layout struct {
	wide   int
	object bool
}

// uint reads an integer of l.wide bytes; b is long enough.
func (l layout) uint(b []byte) uint64 {
	if l.wide == 2 {
		return uint64(binary.LittleEndian.Uint16(b))
	}
	return uint64(binary.LittleEndian.Uint32(b))
}

// inlined tells whether a value entry holds the value itself and not its offset.
func (l layout) inlined(typ byte) bool {
	switch typ {
	case literal, int16Value, uint16Value:
		return true
	case int32Value, uint32Value:
		return l.wide == 4
	}
	return false
}

// container writes an object or an array:
//
//	count · size of the whole · objects: per key `offset, u16 length` · per value `u8 type, offset or value` · keys · values
//
// Offsets count from the first byte of count.
func (w *writer) container(b []byte, l layout, depth int) error {
	if depth == 0 {
		return errDeep
	}
	if len(b) < 2*l.wide {
		return errCut
	}
	count, size := l.uint(b), l.uint(b[l.wide:])
	if size > uint64(len(b)) {
		return errCut
	}
	keyEntry, valueEntry := 0, 1+l.wide
	if l.object {
		keyEntry = l.wide + 2
	}
	entries := uint64(2*l.wide) + count*uint64(keyEntry+valueEntry)
	if entries > size {
		return errCut
	}
	if !w.spend(int(entries)) {
		return errShared
	}
	b = b[:size]
	keys := b[2*l.wide:][:int(count)*keyEntry]
	values := b[2*l.wide+len(keys) : entries]
	if count == 0 {
		if l.object {
			w.out = append(w.out, "{}"...)
		} else {
			w.out = append(w.out, "[]"...)
		}
		return nil
	}
	if l.object {
		return w.object(b, keys, values, l, depth)
	}
	if l.wide == 2 {
		return w.smallArray(b, int(entries), depth)
	}
	w.out = append(w.out, '[')
	for first := true; len(values) > 0; values = values[valueEntry:] {
		if !first {
			w.out = w.comma(w.out)
		}
		first = false
		if err := w.element(values[0], l.uint(values[1:]), b, entries, l.wide, depth); err != nil {
			return err
		}
	}
	w.out = append(w.out, ']')
	return nil
}

// object writes the elements of an object that has some.
func (w *writer) object(b, keys, values []byte, l layout, depth int) error {
	entries, valueEntry := uint64(2*l.wide+len(keys)+len(values)), 1+l.wide
	w.out = append(w.out, '{')
	for first := true; len(values) > 0; keys, values = keys[2+l.wide:], values[valueEntry:] {
		if !first {
			w.out = w.comma(w.out)
		}
		first = false
		if err := w.key(b, keys, entries, l); err != nil {
			return err
		}
		if err := w.element(values[0], l.uint(values[1:]), b, entries, l.wide, depth); err != nil {
			return err
		}
	}
	w.out = append(w.out, '}')
	return nil
}

// smallObject writes an object of the small form, faster if its names are known.
func (w *writer) smallObject(b []byte, depth int) error {
	if s := w.shape(b, depth); s != nil {
		out, _, err := w.members(w.out, b, 0, 0, 0, s, depth)
		w.out = out
		return err
	}
	return w.container(b, layout{wide: 2, object: true}, depth)
}

// shape gives the shape of the small object at the front of b, if it is known and may be written.
func (w *writer) shape(b []byte, depth int) *shape {
	if w.known == nil || depth <= 0 {
		return nil
	}
	return w.known.of(w, b)
}

// smallArray writes the elements of an array of the small form that has some, with values up to end.
func (w *writer) smallArray(b []byte, end, depth int) error {
	out := w.out
	out = append(out, '[')
	for at := 4; at < end; {
		if at > 4 {
			out = w.comma(out)
		}
		typ, ref := b[at], int(binary.LittleEndian.Uint16(b[at+1:]))
		at += 3
		var err error
		if typ == smallObject && ref >= end && ref < len(b) {
			if s := w.shape(b[ref:], depth-1); s != nil {
				if out, at, err = w.members(out, b, ref, at, end, s, depth-1); err != nil {
					return err
				}
				continue
			}
		}
		w.out = out
		if err = w.element(typ, uint64(ref), b, uint64(end), 2, depth); err != nil {
			return err
		}
		out = w.out
	}
	out = append(out, ']')
	w.out = out
	return nil
}

// members appends the object at ref in b, of a known shape, and those behind it that are like it, of which the entries are those of the array b from at to end. It gives the
// entry of the first one that it did not write.
func (w *writer) members(out, b []byte, ref, at, end int, s *shape, depth int) ([]byte, int, error) {
	if size := int(binary.LittleEndian.Uint16(b[ref+2:])); size < s.end || ref+size > len(b) {
		return out, at, errCut
	}
	if !w.spend(s.entries + s.spent) {
		return out, at, errShared
	}
	for i := 0; ; i++ {
		if cap(out)-len(out) < s.room {
			out = slices.Grow(out, s.room)
		}
		var to, spent int
		ref, i, at, to, spent = s.plain(out[len(out):cap(out)], b, ref, i, at, end)
		out = out[:len(out)+to]
		if !w.spend(spent) {
			return out, at, errShared
		}
		if i >= len(s.pieces) {
			return append(out, '}'), at, nil
		}
		p := &s.pieces[i]
		out = append(out, p.first[:min(p.n, pad)]...)
		out = append(out, p.rest...)
		object := b[ref : ref+int(binary.LittleEndian.Uint16(b[ref+2:]))]
		typ, v := object[s.values+3*i], int(binary.LittleEndian.Uint16(object[s.values+3*i+1:]))
		if typ == smallObject && v >= s.entries && v < len(object) {
			if inner := w.shape(object[v:], depth-1); inner != nil {
				var err error
				if out, _, err = w.members(out, object, v, 0, 0, inner, depth-1); err != nil {
					return out, at, err
				}
				continue
			}
		}
		w.out = out
		if err := w.element(typ, uint64(v), object, uint64(s.entries), 2, depth); err != nil {
			return out, at, err
		}
		out = w.out
	}
}

var literals = [...]struct {
	n    int
	text [8]byte
}{{4, [8]byte{'n', 'u', 'l', 'l'}}, {4, [8]byte{'t', 'r', 'u', 'e'}}, {5, [8]byte{'f', 'a', 'l', 's', 'e'}}}

// keyOf gives the name that a key's entry stands for; b is the object.
func keyOf(b, entry []byte, entries uint64, l layout) (name []byte, ok bool) {
	offset, length := l.uint(entry), uint64(binary.LittleEndian.Uint16(entry[l.wide:]))
	if offset < entries || offset+length > uint64(len(b)) {
		return nil, false
	}
	return b[offset : offset+length], true
}

// key writes `"key": `. entry is the key's entry, b the container.
func (w *writer) key(b, entry []byte, entries uint64, l layout) error {
	name, ok := keyOf(b, entry, entries, l)
	if !ok {
		return fmt.Errorf("%w: key outside its object", ErrMalformed)
	}
	if !w.spend(len(name)) {
		return errShared
	}
	w.out = w.colon(appendString(w.out, name, w.hex))
	return nil
}

// element writes the value of an entry: ref is the value itself, or its offset in the container b, where it cannot be below entries. What most documents are
// made of goes the short way.
func (w *writer) element(typ byte, ref uint64, b []byte, entries uint64, wide, depth int) error {
	switch typ {
	case int16Value:
		w.out = scalar.AppendInt(w.out, int64(int16(ref)))
		return nil
	case uint16Value:
		w.out = scalar.AppendUint(w.out, uint64(uint16(ref)))
		return nil
	case literal:
		return w.literal(byte(ref))
	case int32Value:
		if wide == 4 {
			w.out = scalar.AppendInt(w.out, int64(int32(ref)))
			return nil
		}
	case uint32Value:
		if wide == 4 {
			w.out = scalar.AppendUint(w.out, uint64(uint32(ref)))
			return nil
		}
	}
	if ref < entries || ref >= uint64(len(b)) {
		return fmt.Errorf("%w: value outside its container", ErrMalformed)
	}
	b = b[ref:]
	if typ == stringValue {
		s, err := w.sized(b)
		if err != nil {
			return err
		}
		w.out = appendString(w.out, s, w.hex)
		return nil
	}
	return w.value(typ, b, depth-1)
}

// sized takes a length in groups of 7 bits, low first, and that many bytes.
func (w *writer) sized(b []byte) ([]byte, error) {
	var length uint64
	for i := 0; i < 5 && i < len(b); i++ {
		length |= uint64(b[i]&0x7f) << (7 * i)
		if b[i]&0x80 != 0 {
			continue
		}
		b = b[i+1:]
		if length > uint64(len(b)) {
			return nil, errCut
		}
		if !w.spend(int(length)) {
			return nil, errShared
		}
		return b[:length], nil
	}
	return nil, errCut
}

// Field types that have a text of their own inside opaque values.
const (
	fieldTimestamp = 7
	fieldDate      = 10
	fieldTime      = 11
	fieldDatetime  = 12
	fieldDecimal   = 246
)

// opaque writes a value that JSON has no type for.
func (w *writer) opaque(field byte, data []byte) error {
	switch field {
	case fieldDecimal: // precision, scale, digits
		if len(data) < 2 {
			return errCut
		}
		out, err := scalar.AppendDecimal(w.out, data[2:], int(data[0]), int(data[1]))
		if err != nil {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		w.out = out
		return nil
	case fieldDate, fieldDatetime, fieldTimestamp, fieldTime:
		if len(data) != 8 {
			return fmt.Errorf("%w: time of %d bytes", ErrMalformed, len(data))
		}
		packed := int64(binary.LittleEndian.Uint64(data))
		if w.debezium {
			w.debeziumTemporal(field, packed)
			return nil
		}
		return w.temporal(field, packed)
	}
	if w.debezium {
		w.out = append(base64.StdEncoding.AppendEncode(append(w.out, '"'), data), '"')
		return nil
	}
	w.out = append(w.out, `"base64:type`...)
	w.out = strconv.AppendUint(w.out, uint64(field), 10)
	w.out = append(w.out, ':')
	const bytesPerLine = 57 // 76 characters
	for len(data) > bytesPerLine {
		w.out = base64.StdEncoding.AppendEncode(w.out, data[:bytesPerLine])
		w.out = append(w.out, `\n`...)
		data = data[bytesPerLine:]
	}
	w.out = append(base64.StdEncoding.AppendEncode(w.out, data), '"')
	return nil
}

// temporal writes a packed date or time: 24 bits of microseconds; above them seconds 6, minutes 6, hours 5 bits,
// then day 5, year × 13 + month. In a TIME hours take 10 bits, nothing follows, and the whole may be negative.
func (w *writer) temporal(field byte, packed int64) error {
	if packed < 0 && (field != fieldTime || packed == math.MinInt64) {
		return fmt.Errorf("%w: negative date", ErrMalformed)
	}
	w.out = append(w.out, '"')
	if packed < 0 {
		packed = -packed
		w.out = append(w.out, '-')
	}
	micros, rest := uint32(packed&0xffffff), uint64(packed)>>24
	second, minute := uint32(rest&0x3f), uint32(rest>>6&0x3f)
	if micros > 999_999 || field == fieldTime && rest>>22 != 0 {
		return fmt.Errorf("%w: time out of range", ErrMalformed)
	}
	if field == fieldTime {
		w.out = scalar.AppendClock(w.out, uint32(rest>>12&0x3ff), minute, second)
		w.out = append(scalar.AppendFraction(w.out, micros, 6), '"')
		return nil
	}
	yearMonth := uint32(rest >> 22)
	w.out = scalar.AppendDate(w.out, yearMonth/13, yearMonth%13, uint32(rest>>17&0x1f))
	if field != fieldDate {
		w.out = scalar.AppendClock(append(w.out, ' '), uint32(rest>>12&0x1f), minute, second)
		w.out = scalar.AppendFraction(w.out, micros, 6)
	}
	w.out = append(w.out, '"')
	return nil
}
