package scalar

import "bytes"

// DecimalShape gives precision and scale of the text of a decimal number: its digits without leading zeros, and those behind the point.
func DecimalShape(text []byte) (precision, scale int) {
	whole, fraction, _ := bytes.Cut(bytes.TrimPrefix(text, []byte("-")), []byte("."))
	precision = len(bytes.TrimLeft(whole, "0")) + len(fraction)
	return max(precision, 1), len(fraction)
}

// AppendDecimalImage is the inverse of AppendDecimal: it appends the storage form of a text with at most scale digits behind the point and
// precision-scale before it. On an error, which is ErrDecimal, dst comes back as it was.
func AppendDecimalImage(dst, text []byte, precision, scale int) ([]byte, error) {
	if precision < 1 || precision > maxPrecision || scale < 0 || scale > 30 || scale > precision {
		return dst, ErrDecimal
	}
	digits, negative := bytes.CutPrefix(text, []byte("-"))
	whole, fraction, _ := bytes.Cut(digits, []byte("."))
	whole = bytes.TrimLeft(whole, "0")
	if len(whole) > precision-scale || len(fraction) > scale {
		return dst, ErrDecimal
	}
	// All digits, with the zeros that the shape wants in front and behind.
	var buf [maxPrecision]byte
	all := buf[:precision]
	for i := range all {
		all[i] = '0'
	}
	copy(all[precision-scale-len(whole):], whole)
	copy(all[precision-scale:], fraction)
	from := len(dst)
	out := dst
	group := func(n int) bool {
		var v uint32
		for _, c := range all[:n] {
			if c < '0' || c > '9' {
				return false
			}
			v = v*10 + uint32(c-'0')
		}
		all = all[n:]
		for i := restOrGroup(n) - 1; i >= 0; i-- {
			out = append(out, byte(v>>(8*i)))
		}
		return true
	}
	ok := true
	integer := precision - scale
	if rest := integer % digitsPerGroup; rest > 0 {
		ok = group(rest)
	}
	for range integer / digitsPerGroup {
		ok = ok && group(digitsPerGroup)
	}
	for range scale / digitsPerGroup {
		ok = ok && group(digitsPerGroup)
	}
	if rest := scale % digitsPerGroup; rest > 0 {
		ok = ok && group(rest)
	}
	if !ok {
		return dst, ErrDecimal
	}
	if negative {
		for i := from; i < len(out); i++ {
			out[i] ^= 0xff
		}
	}
	out[from] ^= 0x80
	return out, nil
}
