package jsonb

import (
	"encoding/binary"
	"slices"
)

// escape holds what stands behind the backslash for a byte that needs one, 'u' for the \u00xx form, 0 for a byte
// that stands for itself.
var escape = func() (t [256]byte) {
	for c := range 0x20 {
		t[c] = 'u'
	}
	t['\b'], t['\f'], t['\n'], t['\r'], t['\t'] = 'b', 'f', 'n', 'r', 't'
	t['"'], t['\\'] = '"', '\\'
	return t
}()

// appendString appends s as a JSON string. Only quote, backslash and bytes below 0x20 are escaped, as the server does it. hex are the
// digits of the \u00xx form.
//
// It looks at eight bytes at once and copies them by the same load, since most strings are short keys and words.
func appendString(dst, s []byte, hex string) []byte {
	from := len(dst)
	if cap(dst)-from < len(s)+2 {
		dst = slices.Grow(dst, len(s)+2)
	}
	out := dst[from : from+len(s)+2]
	out[0] = '"'
	out = out[1:]
	at := 0
	for ; len(s)-at >= 8; at += 8 {
		x := binary.LittleEndian.Uint64(s[at:])
		if dirty(x) {
			return append(appendEscaped(dst[:from+1+at], s[at:], hex), '"')
		}
		binary.LittleEndian.PutUint64(out[at:], x)
	}
	switch rest := len(s) - at; {
	case rest == 0:
	case at > 0: // the last eight bytes, some of them once more
		x := binary.LittleEndian.Uint64(s[len(s)-8:])
		if dirty(x) {
			return append(appendEscaped(dst[:from+1+at], s[at:], hex), '"')
		}
		binary.LittleEndian.PutUint64(out[len(s)-8:], x)
	case rest >= 4: // the first four and the last four, which may overlap
		first, last := binary.LittleEndian.Uint32(s), binary.LittleEndian.Uint32(s[rest-4:])
		if dirty(uint64(first) | uint64(last)<<32) {
			return append(appendEscaped(dst[:from+1], s, hex), '"')
		}
		binary.LittleEndian.PutUint32(out, first)
		binary.LittleEndian.PutUint32(out[rest-4:], last)
	default:
		for i, c := range s {
			if escape[c] != 0 {
				return append(appendEscaped(dst[:from+1], s, hex), '"')
			}
			out[i] = c
		}
	}
	out[len(s)] = '"'
	return dst[:from+len(s)+2]
}

// dirty tells whether one of eight bytes may need an escape: it does for each that needs one, and perhaps for one above such a byte.
func dirty(x uint64) bool { return dirt(x) != 0 }

// dirt has the highest bit set of each byte that dirty speaks of.
func dirt(x uint64) uint64 {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	return ((x ^ (ones * '"') - ones) | (x ^ (ones * '\\') - ones) | (x - ones*0x20)) &^ x & high
}

func appendEscaped(dst, s []byte, hex string) []byte {
	from := 0
	for i, c := range s {
		e := escape[c]
		if e == 0 {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		if e == 'u' {
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		} else {
			dst = append(dst, '\\', e)
		}
	}
	return append(dst, s[from:]...)
}
