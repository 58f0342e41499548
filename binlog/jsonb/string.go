package jsonb

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

// appendString appends s as a JSON string. Only quote, backslash and bytes below 0x20 are escaped, as the server does it.
func appendString(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
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
	return append(append(dst, s[from:]...), '"')
}
