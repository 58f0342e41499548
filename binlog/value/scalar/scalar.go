// Package scalar writes numbers, dates and times the way MySQL prints them. It is the common ground of
// column values (package value) and of values inside binary JSON (package jsonb).
//
// Functions append to dst and do not allocate when dst has room. They know nothing of columns or events.
package scalar

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"strconv"
)

// ErrDecimal is the error of AppendDecimal about bytes that are no decimal of the given precision and scale.
var ErrDecimal = errors.New("malformed DECIMAL")

// digitsPerGroup decimal digits take 4 bytes; a rest of fewer digits takes restSize.
const digitsPerGroup = 9

var restSize = [digitsPerGroup]int{0, 1, 1, 2, 2, 3, 3, 4, 4}

var pow10 = [digitsPerGroup + 1]uint32{1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}

// maxPrecision is above the 65 digits of a column: inside JSON the server rounds the digits before the point up to a
// whole group of 9, and its numbers have room for 9 groups.
const maxPrecision = 81

// DecimalSize gives the bytes of a DECIMAL(precision, scale).
func DecimalSize(precision, scale int) int {
	whole := precision - scale
	return whole/digitsPerGroup*4 + restSize[whole%digitsPerGroup] + scale/digitsPerGroup*4 + restSize[scale%digitsPerGroup]
}

// AppendDecimal appends a DECIMAL in its storage form (MySQL source: decimal2bin): big-endian groups of 9 digits, a
// shorter group first before the point and last behind it, the first bit inverted, all bits inverted when negative.
// The text has exactly scale digits behind the point and no leading zeros. b must have DecimalSize(precision, scale)
// bytes.
func AppendDecimal(dst, b []byte, precision, scale int) ([]byte, error) {
	if precision < 1 || precision > maxPrecision || scale < 0 || scale > 30 || scale > precision || len(b) != DecimalSize(precision, scale) {
		return dst, ErrDecimal
	}
	d := decimal{b: b, first: 0x80}
	out := dst
	if b[0]&0x80 == 0 {
		d.invert = 0xff
		out = append(out, '-')
	}
	group := func(digits int) {
		v := d.take(restOrGroup(digits))
		if v >= pow10[digits] {
			d.bad = true
			return
		}
		out = appendPadded(out, v, digits)
	}
	whole := precision - scale
	from := len(out)
	if rest := whole % digitsPerGroup; rest > 0 {
		group(rest)
	}
	for range whole / digitsPerGroup {
		group(digitsPerGroup)
	}
	out = trimLeadingZeros(out, from)
	if scale > 0 {
		out = append(out, '.')
		for range scale / digitsPerGroup {
			group(digitsPerGroup)
		}
		if rest := scale % digitsPerGroup; rest > 0 {
			group(rest)
		}
	}
	if d.bad {
		return dst, ErrDecimal
	}
	return out, nil
}

type decimal struct {
	b             []byte
	first, invert byte
	bad           bool
}

func restOrGroup(digits int) int {
	if digits == digitsPerGroup {
		return 4
	}
	return restSize[digits]
}

func (d *decimal) take(n int) uint32 {
	var v uint32
	for _, x := range d.b[:n] {
		v = v<<8 | uint32(x^d.first^d.invert)
		d.first = 0
	}
	d.b = d.b[n:]
	return v
}

// trimLeadingZeros removes zeros from index from on; one digit stays, or comes if there was none.
func trimLeadingZeros(b []byte, from int) []byte {
	n := from
	for n < len(b) && b[n] == '0' {
		n++
	}
	if n == len(b) {
		return append(b[:from], '0')
	}
	return b[:from+copy(b[from:], b[n:])]
}

// appendPadded appends v with at least width digits.
func appendPadded(dst []byte, v uint32, width int) []byte {
	var buf [10]byte
	at := len(buf)
	for v > 0 || len(buf)-at < width {
		at--
		buf[at] = byte('0' + v%10)
		v /= 10
	}
	return append(dst, buf[at:]...)
}

// AppendDouble appends a DOUBLE: the shortest digits that read back equal, in plain form when the value has at most
// 15 digits before the point or at most 14 zeros behind it, else as `1.5e20`. suffix is put behind a plain number
// without a fraction (".0" inside JSON, "" in a column). f must be finite.
func AppendDouble(dst []byte, f float64, suffix string) []byte {
	if out, ok := appendShortDouble(dst, f, suffix); ok {
		return out
	}
	var buf [32]byte
	return appendDigits(dst, strconv.AppendFloat(buf[:0], f, 'e', -1, 64), suffix)
}

// appendShortDouble does the doubles that people write, prices and the like: at most four digits behind the point and eleven before it.
//
// f is m×2⁻ˢ with an m of 53 bits. If f×10⁴ is less than 5000×2⁻ˢ away from n, then n×10⁻⁴ is less than half a step of m away from f, so it reads back as f.
// It has at most 15 digits; no other decimal of at most 15 digits reads back as f, so without its trailing zeros it is the shortest. The difference is less
// than 2⁶³ and so comes out right without the bits above. (Below a power of two steps are half as long, but no f×10⁴ of one is near an n without being it.)
func appendShortDouble(dst []byte, f float64, suffix string) ([]byte, bool) {
	const scale = 10000
	a := math.Abs(f)
	if !(a >= 1e-3 && a < 1e11) {
		return dst, false
	}
	n := int64(a*scale + 0.5) // processors convert signed integers at once
	b := math.Float64bits(a)
	m, s := b&(1<<52-1)|1<<52, 1075-b>>52
	if m*scale-uint64(n)<<(s&63)+(scale/2-1) > scale-2 {
		return dst, false
	}
	if f < 0 {
		dst = append(dst, '-')
	}
	whole, rest := n/scale, n%scale
	dst = AppendUint(dst, uint64(whole))
	if rest == 0 {
		return append(dst, suffix...), true
	}
	first, second := rest/100*2, rest%100*2
	switch {
	case second == 0 && pairs[first+1] == '0':
		return append(dst, '.', pairs[first]), true
	case second == 0:
		return append(dst, '.', pairs[first], pairs[first+1]), true
	case pairs[second+1] == '0':
		return append(dst, '.', pairs[first], pairs[first+1], pairs[second]), true
	}
	return append(dst, '.', pairs[first], pairs[first+1], pairs[second], pairs[second+1]), true
}

// pairs are the numbers below 100 with two digits each.
const pairs = "00010203040506070809" + "10111213141516171819" + "20212223242526272829" + "30313233343536373839" + "40414243444546474849" +
	"50515253545556575859" + "60616263646566676869" + "70717273747576777879" + "80818283848586878889" + "90919293949596979899"

// AppendInt is strconv.AppendInt in base 10; see AppendUint.
func AppendInt(dst []byte, i int64) []byte {
	if i < 0 {
		return AppendUint(append(dst, '-'), -uint64(i))
	}
	return AppendUint(dst, uint64(i))
}

// AppendUint is strconv.AppendUint in base 10, made for speed: most of what a row holds beside texts are ids and small numbers.
func AppendUint(dst []byte, u uint64) []byte {
	const (
		eight   = 100_000_000
		sixteen = eight * eight
	)
	switch {
	case u < 10:
		return append(dst, byte('0'+u))
	case u < 100:
		return append(dst, pairs[2*u], pairs[2*u+1])
	case u < 1000:
		return append(dst, byte('0'+u/100), pairs[u%100*2], pairs[u%100*2+1])
	case u < 10_000:
		return append(dst, pairs[u/100*2], pairs[u/100*2+1], pairs[u%100*2], pairs[u%100*2+1])
	case u < eight:
		return appendUpToEight(dst, u)
	case u < sixteen:
		return appendEight(appendUpToEight(dst, u/eight), u%eight)
	}
	return appendEight(appendEight(AppendUint(dst, u/sixteen), u/eight%eight), u%eight)
}

const zeros = 0x3030303030303030 // eight times '0'

// appendUpToEight appends a number above 0 of at most eight digits.
func appendUpToEight(dst []byte, u uint64) []byte {
	d := digitsOf(u)
	leading := bits.TrailingZeros64(d) / 8
	dst = binary.LittleEndian.AppendUint64(dst, (d|zeros)>>(8*leading&63))
	return dst[:len(dst)-leading]
}

// appendEight appends a number as eight digits.
func appendEight(dst []byte, u uint64) []byte {
	return binary.LittleEndian.AppendUint64(dst, digitsOf(u)|zeros)
}

// digitsOf gives the eight digits of a number below 10⁸, a byte each, the first one lowest. It halves two numbers of four digits, then four of two, each in a
// lane of its own: multiplied by 10486/2²⁰ and 103/2¹⁰, which divide such numbers by 100 and 10 exactly, when what is behind the point falls away.
func digitsOf(u uint64) uint64 {
	u = u/10_000 | u%10_000<<32
	high := u * 10486 >> 20 & 0x0000007f_0000007f
	u = high | (u-high*100)<<16
	high = u * 103 >> 10 & 0x000f_000f_000f_000f
	return high | (u-high*10)<<8
}

// EightDigits gives the eight digits of a number below 10⁸, a byte each, the first one lowest.
func EightDigits(u uint64) uint64 { return digitsOf(u) }

// Digits gives the digits of a number below 10⁸ as text, the first one lowest, and how many they are.
func Digits(u uint64) (text uint64, n int) {
	d := digitsOf(u)
	leading := bits.TrailingZeros64(d|1<<63) / 8
	return (d | zeros) >> (8 * leading & 63), 8 - leading
}

// TenThousandths gives n for the double of these bits if n/10⁴ is what AppendDouble appends for it, and n is below 10⁸.
func TenThousandths(b uint64) (n uint64, ok bool) {
	const scale = 10000
	n = uint64(int64(math.Float64frombits(b)*scale + 0.5))
	m, s := b&(1<<52-1)|1<<52, 1075-b>>52
	return n, n-10 < 1e8-10 && m*scale-n<<(s&63)+(scale/2-1) <= scale-2
}

// AppendFloat appends a FLOAT: at most 6 significant digits, in the forms of AppendDouble. f must be finite.
func AppendFloat(dst []byte, f float32) []byte {
	var buf [32]byte
	return appendDigits(dst, strconv.AppendFloat(buf[:0], float64(f), 'e', 5, 64), "")
}

// appendDigits lays out `[-]d[.ddd]e±xx`.
func appendDigits(dst, sci []byte, suffix string) []byte {
	if sci[0] == '-' {
		dst = append(dst, '-')
		sci = sci[1:]
	}
	var buf [24]byte
	digits := append(buf[:0], sci[0])
	at := 1
	if sci[at] == '.' {
		for at++; sci[at] != 'e'; at++ {
			digits = append(digits, sci[at])
		}
	}
	exp := 0
	for _, c := range sci[at+2:] {
		exp = exp*10 + int(c-'0')
	}
	if sci[at+1] == '-' {
		exp = -exp
	}
	for len(digits) > 1 && digits[len(digits)-1] == '0' {
		digits = digits[:len(digits)-1]
	}
	n, point := len(digits), exp+1 // value = 0.digits × 10^point
	switch {
	case n == 1 && digits[0] == '0':
		return append(append(dst, '0'), suffix...)
	case point < -14 || point > 15 && n <= point:
		dst = append(dst, digits[0])
		if n > 1 {
			dst = append(append(dst, '.'), digits[1:]...)
		}
		return strconv.AppendInt(append(dst, 'e'), int64(exp), 10)
	case point <= 0:
		return append(appendZeros(append(dst, '0', '.'), -point), digits...)
	case n > point:
		return append(append(append(dst, digits[:point]...), '.'), digits[point:]...)
	}
	return append(appendZeros(append(dst, digits...), point-n), suffix...)
}

func appendZeros(dst []byte, n int) []byte {
	for range n {
		dst = append(dst, '0')
	}
	return dst
}

// AppendDate appends `YYYY-MM-DD`. The parts need not be a day of the calendar: MySQL stores 0000-00-00 and 2020-02-00.
func AppendDate(dst []byte, year, month, day uint32) []byte {
	dst = append(appendPadded(dst, year, 4), '-')
	dst = append(appendPadded(dst, month, 2), '-')
	return appendPadded(dst, day, 2)
}

// AppendClock appends `HH:MM:SS`, with more digits for more than 99 hours.
func AppendClock(dst []byte, hour, minute, second uint32) []byte {
	dst = append(appendPadded(dst, hour, 2), ':')
	dst = append(appendPadded(dst, minute, 2), ':')
	return appendPadded(dst, second, 2)
}

// AppendFraction appends a point and the first digits (0 to 6) of micros, nothing for 0 digits.
func AppendFraction(dst []byte, micros uint32, digits int) []byte {
	if digits <= 0 {
		return dst
	}
	digits = min(digits, 6)
	return appendPadded(append(dst, '.'), micros/pow10[6-digits], digits)
}
