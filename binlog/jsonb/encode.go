package jsonb

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"outbox-relay/binlog/value/scalar"
)

// Encode appends a document of which Append gives text back, byte for byte. text is what the server prints for a JSON column.
//
// The text does not tell everything: a number with a point is a double where one prints like this, else a DECIMAL, and opaque values (dates, times,
// bytes) are strings. Containers have the large layout, whatever their size. On an error dst comes back as it was.
func Encode(dst, text []byte) ([]byte, error) { return EncodeAs(dst, text, nil) }

// Unsure gives the paths, as JSON_EXTRACT takes them, of the values that would have another text in AppendDebezium if they were of another type than Encode
// takes them for.
func Unsure(text []byte) ([]string, error) {
	e := encoder{text: text, collect: true, path: []byte("$")}
	_, err := e.document(nil)
	return e.paths, err
}

// EncodeAs is Encode with the types of the values that Unsure names, in that order, as JSON_TYPE gives them.
func EncodeAs(dst, text []byte, types []string) ([]byte, error) {
	e := encoder{text: text, types: types}
	return e.document(dst)
}

func (e *encoder) document(dst []byte) ([]byte, error) {
	e.out = dst
	if err := e.count(); err != nil {
		return dst, err
	}
	at := len(e.out)
	e.out = append(e.out, 0)
	typ, err := e.value(MaxDepth)
	if err != nil {
		return dst, err
	}
	e.out[at] = typ
	if e.space(); e.at != len(e.text) {
		return dst, e.wrong()
	}
	return e.out, nil
}

type encoder struct {
	text   []byte
	at     int
	out    []byte
	counts []uint32 // of the containers, in the order of their opening brackets
	next   int      // the next of counts

	collect bool // paths are wanted
	path    []byte
	paths   []string
	types   []string // of what is not sure and still to come
}

// typed gives the type of a value that is not sure; empty for that of its text.
func (e *encoder) typed() string {
	if e.collect {
		e.paths = append(e.paths, string(e.path))
		return ""
	}
	if len(e.types) == 0 {
		return ""
	}
	t := e.types[0]
	e.types = e.types[1:]
	return t
}

func (e *encoder) wrong() error {
	return fmt.Errorf("%w: its text is no JSON at byte %d", ErrMalformed, e.at)
}

// count counts the elements of every container: the layout wants them in front of the values.
func (e *encoder) count() error {
	type open struct {
		index int
		first int // where the first element would begin
	}
	var stack []open
	for i := 0; i < len(e.text); i++ {
		switch c := e.text[i]; c {
		case '"':
			for i++; i < len(e.text) && e.text[i] != '"'; i++ {
				if e.text[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			stack = append(stack, open{len(e.counts), i + 1})
			e.counts = append(e.counts, 0)
		case ',':
			if len(stack) > 0 {
				e.counts[stack[len(stack)-1].index]++
			}
		case ']', '}':
			if len(stack) == 0 {
				e.at = i
				return e.wrong()
			}
			top := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			for _, b := range e.text[top.first:i] {
				if b != ' ' {
					e.counts[top.index]++ // one more than commas
					break
				}
			}
		}
	}
	return nil
}

func (e *encoder) space() {
	for e.at < len(e.text) && (e.text[e.at] == ' ' || e.text[e.at] == '\n' || e.text[e.at] == '\t' || e.text[e.at] == '\r') {
		e.at++
	}
}

// take takes one character, behind blanks.
func (e *encoder) take(c byte) bool {
	e.space()
	if e.at < len(e.text) && e.text[e.at] == c {
		e.at++
		return true
	}
	return false
}

// value appends a value without its type, which it gives.
func (e *encoder) value(depth int) (byte, error) {
	e.space()
	if e.at >= len(e.text) {
		return 0, e.wrong()
	}
	switch c := e.text[e.at]; c {
	case '{', '[':
		if depth == 0 {
			return 0, errDeep
		}
		return e.container(c, depth)
	case '"':
		from := len(e.out)
		if err := e.string(); err != nil {
			return 0, err
		}
		if unsureString(e.out[from:]) {
			if typ := e.typed(); typ != "" && typ != "STRING" {
				if err := e.opaque(from, typ); err != nil {
					return 0, err
				}
				return opaqueValue, nil
			}
		}
		e.prefix(from)
		return stringValue, nil
	case 'n', 't', 'f':
		return e.literal()
	}
	return e.number()
}

// prefix puts the length of what was appended from an index on in front of it, in groups of 7 bits, low first.
func (e *encoder) prefix(from int) {
	n := len(e.out) - from
	var head [binary.MaxVarintLen64]byte
	size := binary.PutUvarint(head[:], uint64(n))
	e.out = append(e.out, head[:size]...)
	copy(e.out[from+size:], e.out[from:from+n])
	copy(e.out[from:], head[:size])
}

func (e *encoder) literal() (byte, error) {
	for i, word := range []string{"null", "true", "false"} {
		if len(e.text)-e.at >= len(word) && string(e.text[e.at:e.at+len(word)]) == word {
			e.at += len(word)
			e.out = append(e.out, byte(i))
			return literal, nil
		}
	}
	return 0, e.wrong()
}

// string appends the bytes of a string.
func (e *encoder) string() error {
	if !e.take('"') {
		return e.wrong()
	}
	for e.at < len(e.text) {
		from := e.at
		for e.at < len(e.text) && e.text[e.at] != '"' && e.text[e.at] != '\\' {
			e.at++
		}
		e.out = append(e.out, e.text[from:e.at]...)
		if e.at >= len(e.text) {
			break
		}
		if e.at++; e.text[e.at-1] == '"' {
			return nil
		}
		if err := e.escape(); err != nil {
			return err
		}
	}
	return e.wrong()
}

func (e *encoder) escape() error {
	if e.at >= len(e.text) {
		return e.wrong()
	}
	c := e.text[e.at]
	e.at++
	switch c {
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		r, err := e.hex()
		if err != nil {
			return err
		}
		if utf16.IsSurrogate(r) && len(e.text)-e.at > 2 && e.text[e.at] == '\\' && e.text[e.at+1] == 'u' {
			e.at += 2
			low, err := e.hex()
			if err != nil {
				return err
			}
			r = utf16.DecodeRune(r, low)
		}
		e.out = utf8.AppendRune(e.out, r)
		return nil
	case '"', '\\', '/':
	default:
		return e.wrong()
	}
	e.out = append(e.out, c)
	return nil
}

func (e *encoder) hex() (rune, error) {
	if len(e.text)-e.at < 4 {
		return 0, e.wrong()
	}
	n, err := strconv.ParseUint(string(e.text[e.at:e.at+4]), 16, 32)
	if err != nil {
		return 0, e.wrong()
	}
	e.at += 4
	return rune(n), nil
}

func (e *encoder) number() (byte, error) {
	from, whole, exponent := e.at, true, false
	for ; e.at < len(e.text); e.at++ {
		c := e.text[e.at]
		if c == '.' || c == 'e' || c == 'E' {
			whole, exponent = false, exponent || c != '.'
		} else if c != '-' && c != '+' && (c < '0' || c > '9') {
			break
		}
	}
	text := e.text[from:e.at]
	if whole {
		if i, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			return e.integer(i), nil
		}
		if u, err := strconv.ParseUint(string(text), 10, 64); err == nil {
			e.out = binary.LittleEndian.AppendUint64(e.out, u)
			return uint64Value, nil
		}
		return e.decimal(text)
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err == nil {
		var buf [32]byte
		if exponent || string(scalar.AppendDouble(buf[:0], f, ".0")) == string(text) {
			if !exponent && string(appendPlainJavaDouble(nil, f)) != string(text) && e.typed() == "DECIMAL" {
				return e.decimal(text)
			}
			e.out = binary.LittleEndian.AppendUint64(e.out, math.Float64bits(f))
			return doubleValue, nil
		}
	}
	return e.decimal(text)
}

func (e *encoder) integer(i int64) byte {
	switch {
	case i == int64(int16(i)):
		e.out = binary.LittleEndian.AppendUint16(e.out, uint16(i))
		return int16Value
	case i == int64(int32(i)):
		e.out = binary.LittleEndian.AppendUint32(e.out, uint32(i))
		return int32Value
	}
	e.out = binary.LittleEndian.AppendUint64(e.out, uint64(i))
	return int64Value
}

// decimal appends an opaque DECIMAL: `u8 field type, length, u8 precision, u8 scale, digits`.
func (e *encoder) decimal(text []byte) (byte, error) {
	precision, scale := scalar.DecimalShape(text)
	from := len(e.out) + 1
	out, err := scalar.AppendDecimalImage(append(e.out, fieldDecimal, byte(precision), byte(scale)), text, precision, scale)
	if err != nil {
		return 0, e.wrong()
	}
	e.out = out
	e.prefix(from)
	return opaqueValue, nil
}

// container appends an object or an array in the large layout; see writer.container.
func (e *encoder) container(open byte, depth int) (byte, error) {
	if e.next >= len(e.counts) {
		return 0, e.wrong()
	}
	l := layout{wide: 4, object: open == '{'}
	count := int(e.counts[e.next])
	e.next++
	e.at++
	start := len(e.out)
	keyEntry, end := 0, byte(']')
	if l.object {
		keyEntry, end = l.wide+2, '}'
	}
	valueEntry := 1 + l.wide
	e.out = append(e.out, make([]byte, 2*l.wide+count*(keyEntry+valueEntry))...)
	binary.LittleEndian.PutUint32(e.out[start:], uint32(count))
	keys := start + 2*l.wide
	values := keys + count*keyEntry
	for i := range count {
		if i > 0 && !e.take(',') {
			return 0, e.wrong()
		}
		depthOfPath := len(e.path)
		if l.object {
			from := len(e.out)
			e.space()
			name := e.at
			if err := e.string(); err != nil {
				return 0, err
			}
			if e.collect {
				e.path = append(append(e.path, '.'), e.text[name:e.at]...)
			}
			if len(e.out)-from > math.MaxUint16 || !e.take(':') {
				return 0, e.wrong()
			}
			binary.LittleEndian.PutUint32(e.out[keys+i*keyEntry:], uint32(from-start))
			binary.LittleEndian.PutUint16(e.out[keys+i*keyEntry+l.wide:], uint16(len(e.out)-from))
		}
		if !l.object && e.collect {
			e.path = append(strconv.AppendInt(append(e.path, '['), int64(i), 10), ']')
		}
		if err := e.element(values+i*valueEntry, start, l, depth); err != nil {
			return 0, err
		}
		e.path = e.path[:depthOfPath]
	}
	if !e.take(end) {
		return 0, e.wrong()
	}
	binary.LittleEndian.PutUint32(e.out[start+l.wide:], uint32(len(e.out)-start))
	if l.object {
		return largeObject, nil
	}
	return largeArray, nil
}

// element appends a value and fills its entry.
func (e *encoder) element(entry, start int, l layout, depth int) error {
	from := len(e.out)
	typ, err := e.value(depth - 1)
	if err != nil {
		return err
	}
	e.out[entry] = typ
	if l.inlined(typ) {
		copy(e.out[entry+1:entry+1+l.wide], e.out[from:])
		e.out = e.out[:from]
		return nil
	}
	binary.LittleEndian.PutUint32(e.out[entry+1:], uint32(from-start))
	return nil
}

const opaquePrefix = "base64:type"

// unsureString reports whether a string may be the text of a DATETIME, a TIME or of bytes. A DATE has one text only.
func unsureString(s []byte) bool {
	if bytes.HasPrefix(s, []byte(opaquePrefix)) {
		return true
	}
	return len(s) == 26 && matches(s, "0000-00-00 00:00:00.000000") || isTime(s)
}

func isTime(s []byte) bool {
	s = bytes.TrimPrefix(s, []byte("-"))
	return matches(s, "00:00:00.000000") || matches(s, "000:00:00.000000")
}

// matches compares with a pattern in which 0 stands for a digit.
func matches(s []byte, pattern string) bool {
	if len(s) != len(pattern) {
		return false
	}
	for i, c := range s {
		if digit := c >= '0' && c <= '9'; digit != (pattern[i] == '0') || !digit && c != pattern[i] {
			return false
		}
	}
	return true
}

// opaque puts an opaque value in the place of its text, which was appended from an index on: `field type, length, data`.
func (e *encoder) opaque(from int, typ string) error {
	text := string(e.out[from:])
	e.out = e.out[:from]
	rest, isBytes := strings.CutPrefix(text, opaquePrefix)
	switch {
	case isBytes:
		number, encoded, _ := strings.Cut(rest, ":")
		field, err := strconv.ParseUint(number, 10, 8)
		data, err2 := base64.StdEncoding.DecodeString(strings.ReplaceAll(encoded, "\n", ""))
		if err != nil || err2 != nil {
			return e.wrong()
		}
		e.out = append(append(e.out, byte(field)), data...)
	case typ == "TIME":
		clock, negative := strings.CutPrefix(text, "-")
		var h, m, s, micros int64
		if _, err := fmt.Sscanf(clock, "%d:%d:%d.%d", &h, &m, &s, &micros); err != nil {
			return e.wrong()
		}
		packed := (h<<12|m<<6|s)<<24 | micros
		if negative {
			packed = -packed
		}
		e.out = binary.LittleEndian.AppendUint64(append(e.out, fieldTime), uint64(packed))
	default:
		var y, mo, d, h, m, s, micros int64
		if _, err := fmt.Sscanf(text, "%d-%d-%d %d:%d:%d.%d", &y, &mo, &d, &h, &m, &s, &micros); err != nil {
			return e.wrong()
		}
		packed := ((y*13+mo)<<22|d<<17|h<<12|m<<6|s)<<24 | micros
		e.out = binary.LittleEndian.AppendUint64(append(e.out, fieldDatetime), uint64(packed))
	}
	e.prefix(from + 1)
	return nil
}
