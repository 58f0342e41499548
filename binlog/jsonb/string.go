package jsonb

import "encoding/binary"

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
func appendString(dst, s []byte, hex string) []byte {
	dst = append(dst, '"')
	at := clean(s)
	dst = append(dst, s[:at]...)
	if at < len(s) {
		dst = appendEscaped(dst, s[at:], hex)
	}
	return append(dst, '"')
}

// clean gives the length of a beginning of s that needs no escape: all of it, or up to the eight bytes in which the first escape is.
func clean(s []byte) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	at := 0
	for ; len(s)-at >= 8; at += 8 {
		x := binary.LittleEndian.Uint64(s[at:])
		// The high bit of a byte of zero(v) is set where that byte of v is 0, and perhaps above it, which only costs time.
		quote, backslash := x^(ones*'"'), x^(ones*'\\')
		if ((quote-ones)&^quote|(backslash-ones)&^backslash|(x-ones*0x20)&^x)&high != 0 {
			return at
		}
	}
	for ; at < len(s); at++ {
		if escape[s[at]] != 0 {
			return at
		}
	}
	return at
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
