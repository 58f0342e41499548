package value

import (
	"bytes"
	"compress/flate"
	"embed"
	"encoding/binary"
	"io"
	"strconv"
	"sync"
	"unicode/utf8"
)

// charset is an index into charsetNames.
type charset uint8

// Charsets that need no table. The ones with tables follow in charsetNames.
const (
	charsetUnknown charset = iota
	charsetBinary
	charsetUTF8MB4
	charsetUTF8MB3
	charsetUTF16
	charsetUTF16LE
	charsetUCS2
	charsetUTF32
	firstTable
)

// latin2_czech_cs is the one collation with a mapping of its own: the server knows no C1 controls in it and prints them as '?'; the
// same goes for DEL, but only behind the first byte that is not ASCII, up to which the server copies.
const (
	collationLatin2Czech         = 2
	charsetLatin2Czech   charset = 255
)

//go:generate env UPDATE_GOLDEN=1 go test -count=1 -run TestCharsetTables .

func (c charset) String() string {
	if c == charsetLatin2Czech {
		return "latin2"
	}
	if int(c) < len(charsetNames) {
		return charsetNames[c]
	}
	return "charset " + strconv.Itoa(int(c))
}

func charsetOf(collation uint16) charset {
	if int(collation) >= len(collationCharsets) {
		return charsetUnknown
	}
	if collation == collationLatin2Czech {
		return charsetLatin2Czech
	}
	return charset(collationCharsets[collation])
}

// Charset gives the name of the character set of a collation id, such as "latin1", or "" when it is not known.
func Charset(collation uint16) string {
	if c := charsetOf(collation); c != charsetUnknown {
		return c.String()
	}
	return ""
}

// unmapped is what the server prints for a character that is well-formed in its charset and has no counterpart in Unicode.
const unmapped = '?'

// appendUTF8 appends s as UTF-8, false when s is not well-formed or c has no table. utf8mb4 and utf8mb3 go
// through as they are: the server has checked them.
func (c charset) appendUTF8(dst, s []byte) ([]byte, bool) { return appendUTF8(c, dst, s) }

func appendUTF8String(c charset, dst []byte, s string) ([]byte, bool) { return appendUTF8(c, dst, s) }

func appendUTF8[T []byte | string](c charset, dst []byte, s T) ([]byte, bool) {
	switch c {
	case charsetUTF8MB4, charsetUTF8MB3:
		return append(dst, s...), true
	case charsetUTF16:
		return appendUTF16(dst, s, 0, true)
	case charsetUTF16LE:
		return appendUTF16(dst, s, 1, true)
	case charsetUCS2:
		return appendUTF16(dst, s, 0, false)
	case charsetUTF32:
		return appendUTF32(dst, s)
	case charsetLatin2Czech:
		ascii := 0
		for ascii < len(s) && s[ascii] < 0x80 {
			ascii++
		}
		return appendByTable(latin2Czech(), append(dst, s[:ascii]...), s[ascii:])
	}
	if c < firstTable || int(c) >= len(charsetNames) {
		return dst, false
	}
	return appendByTable(tables[c-firstTable](), dst, s)
}

// appendUTF16 reads units of two bytes; low is the index of the low byte in each. Without pairs, surrogates are refused.
func appendUTF16[T []byte | string](dst []byte, s T, low int, pairs bool) ([]byte, bool) {
	out := dst
	if len(s)%2 != 0 {
		return dst, false
	}
	for i := 0; i < len(s); i += 2 {
		r := rune(s[i+1-low]) | rune(s[i+low])<<8
		if r >= 0xd800 && r < 0xe000 {
			if !pairs || r >= 0xdc00 || i+4 > len(s) {
				return dst, false
			}
			i += 2
			second := rune(s[i+1-low]) | rune(s[i+low])<<8
			if second < 0xdc00 || second >= 0xe000 {
				return dst, false
			}
			r = (r-0xd800)<<10 | (second - 0xdc00) + 0x10000
		}
		out = utf8.AppendRune(out, r)
	}
	return out, true
}

func appendUTF32[T []byte | string](dst []byte, s T) ([]byte, bool) {
	out := dst
	if len(s)%4 != 0 {
		return dst, false
	}
	for i := 0; i < len(s); i += 4 {
		r := uint32(s[i])<<24 | uint32(s[i+1])<<16 | uint32(s[i+2])<<8 | uint32(s[i+3])
		if r > utf8.MaxRune || r >= 0xd800 && r < 0xe000 {
			return dst, false
		}
		out = utf8.AppendRune(out, rune(r))
	}
	return out, true
}

// table maps a charset to Unicode. All targets are in the Basic Multilingual Plane; illFormed marks bytes that are no
// character.
type table struct {
	ascii   bool     // bytes below 0x80 are ASCII
	single  []uint16 // one byte
	pairs   []uint16 // two bytes, (first-0x80)<<8 | second; nil in single-byte charsets
	triples []uint16 // 0x8f and two bytes, like pairs; ujis and eucjpms
	quads   []uint16 // four bytes of gb18030 by their linear index
}

const (
	illFormed = 0xffff

	singleCount = 256
	pairCount   = 128 * 256
	quadCount   = 39420 // 81308130 to 8431a439
)

func appendByTable[T []byte | string](t *table, dst []byte, s T) ([]byte, bool) {
	out := dst
	for i := 0; i < len(s); {
		if t.ascii && s[i] < 0x80 {
			from := i
			for i < len(s) && s[i] < 0x80 {
				i++
			}
			out = append(out, s[from:i]...)
			continue
		}
		r, n := rune(t.single[s[i]]), 1
		if r == illFormed {
			var b [4]byte
			if r, n = t.multiByte(b[:copy(b[:], s[i:])]); n == 0 {
				return dst, false
			}
		}
		out = utf8.AppendRune(out, r)
		i += n
	}
	return out, true
}

// multiByte maps the character of several bytes at the front of b, which has up to 4 bytes, and gives its length; 0
// when it is ill-formed.
func (t *table) multiByte(b []byte) (rune, int) {
	if t.pairs == nil || len(b) < 2 || b[0] < 0x80 {
		return 0, 0
	}
	if r := t.pairs[int(b[0]-0x80)<<8|int(b[1])]; r != illFormed {
		return rune(r), 2
	}
	if t.triples != nil && len(b) >= 3 && b[0] == 0x8f && b[1] >= 0x80 {
		if r := t.triples[int(b[1]-0x80)<<8|int(b[2])]; r != illFormed {
			return rune(r), 3
		}
	}
	if t.quads != nil && len(b) == 4 {
		return t.quad(b)
	}
	return 0, 0
}

// quad maps four bytes of gb18030: 81-fe, 30-39, 81-fe, 30-39. The planes above the first follow each other from
// 90308130 on.
func (t *table) quad(b []byte) (rune, int) {
	const first, supplementary = 0x81, (0x90 - 0x81) * 12600
	if b[0] < first || b[0] > 0xfe || b[1] < '0' || b[1] > '9' || b[2] < 0x81 || b[2] > 0xfe || b[3] < '0' || b[3] > '9' {
		return 0, 0
	}
	i := int(b[0]-first)*12600 + int(b[1]-'0')*1260 + int(b[2]-0x81)*10 + int(b[3]-'0')
	switch {
	case i < len(t.quads):
		return rune(t.quads[i]), 4
	case i >= supplementary && i-supplementary <= utf8.MaxRune-0x10000:
		return rune(i - supplementary + 0x10000), 4
	}
	return unmapped, 4
}

//go:embed tables
var tableFiles embed.FS

// tables unpacks the table of each charset from firstTable on at its first use.
var tables = func() []func() *table {
	out := make([]func() *table, len(charsetNames)-int(firstTable))
	for i := range out {
		name := charsetNames[int(firstTable)+i]
		out[i] = sync.OnceValue(func() *table { return loadTable(name) })
	}
	return out
}()

var latin2Czech = sync.OnceValue(func() *table {
	t := loadTable("latin2")
	t.ascii = false
	for i := 0x7f; i < 0xa0; i++ {
		t.single[i] = unmapped
	}
	return t
})

// loadTable reads tables/NAME.deflate: the four parts of a table one behind the other (the later ones may be
// missing), each value as the u16 difference to the one before. The files are part of the program, so a fault is a
// panic.
func loadTable(name string) *table {
	packed, err := tableFiles.ReadFile("tables/" + name + ".deflate")
	if err != nil {
		panic("value: " + err.Error())
	}
	b, err := io.ReadAll(flate.NewReader(bytes.NewReader(packed)))
	if err != nil {
		panic("value: unpacking the table of " + name + ": " + err.Error())
	}
	all := make([]uint16, len(b)/2)
	last := uint16(0)
	for i := range all {
		last += binary.LittleEndian.Uint16(b[2*i:])
		all[i] = last
	}
	t := &table{single: all[:singleCount], ascii: true}
	for i := range 0x80 {
		t.ascii = t.ascii && t.single[i] == uint16(i)
	}
	switch rest := all[singleCount:]; len(rest) {
	case 0:
	case pairCount:
		t.pairs = rest
	case 2 * pairCount:
		t.pairs, t.triples = rest[:pairCount], rest[pairCount:]
	case pairCount + quadCount:
		t.pairs, t.quads = rest[:pairCount], rest[pairCount:]
	default:
		panic("value: table of " + name + " has a wrong length")
	}
	return t
}
