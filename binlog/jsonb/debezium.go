package jsonb

import (
	"bytes"
	"strconv"

	"outbox-relay/binlog/value/scalar"
)

// AppendDebezium appends the text of doc as the MySQL connector of Debezium 3.6 writes it when it reads the binlog: no blanks, doubles as
// Java prints them but with an exponent written out in all digits, \u00XX with upper-case digits, times without trailing zeros, opaque
// values as bare base64. An empty doc is `{}`. On an error dst comes back as it was.
//
// Times below zero and minutes of years above 2519 are as wrong as Debezium's: see [writer.debeziumTemporal].
func AppendDebezium(dst, doc []byte) ([]byte, error) { return appendDebezium(dst, doc, nil) }

func appendDebezium(dst, doc []byte, known *shapes) ([]byte, error) {
	if len(doc) == 0 {
		return append(dst, "{}"...), nil
	}
	w := writer{out: dst, budget: len(doc), known: known, hex: "0123456789ABCDEF", debezium: true}
	return w.document(dst, doc)
}

// appendPlainJavaDouble appends what Java's Double.toString gives, and where that has an exponent the exact value in decimal digits
// instead. f must be finite.
func appendPlainJavaDouble(dst []byte, f float64) []byte {
	from := len(dst)
	dst = scalar.AppendJavaDouble(dst, f)
	if bytes.IndexByte(dst[from:], 'E') < 0 {
		return dst
	}
	// The smallest double has 1074 digits behind the point, so that nothing is rounded.
	dst = strconv.AppendFloat(dst[:from], f, 'f', 1074, 64)
	end := len(dst)
	for dst[end-1] == '0' {
		end--
	}
	if dst[end-1] == '.' {
		end--
	}
	return dst[:end]
}

// debeziumTemporal writes a packed date or time as the connector's decoder does. It takes the parts with an arithmetic shift and Java's
// remainder, which keeps the sign: a TIME below zero comes out with wrong numbers and lone minus signs (-11:12:13 is `12:0-13:0-13`). The
// minute goes through a 32-bit integer, which is negative in years whose month count has bit 15 (9999-12-31 23:59:59 has minute `0-5`).
func (w *writer) debeziumTemporal(field byte, packed int64) {
	value := packed >> 24
	minute, second, micros := int64(int32(value>>6)%64), value%64, packed%(1<<24)
	w.out = append(w.out, '"')
	if field == fieldTime {
		hour := int64(int32(value>>12) % 1024)
		if value < 0 {
			hour = -hour
		}
		w.javaClock(hour, minute, second, micros)
		w.out = append(w.out, '"')
		return
	}
	yearMonth := int64(int32(value>>22) % (1 << 17))
	w.out = appendJavaPadded(w.out, yearMonth/13, 4)
	w.out = appendJavaPadded(append(w.out, '-'), yearMonth%13, 2)
	w.out = appendJavaPadded(append(w.out, '-'), int64(int32(value>>17)%32), 2)
	if field != fieldDate {
		w.out = append(w.out, ' ')
		w.javaClock(int64(int32(value>>12)%32), minute, second, micros)
	}
	w.out = append(w.out, '"')
}

func (w *writer) javaClock(hour, minute, second, micros int64) {
	w.out = appendJavaPadded(w.out, hour, 2)
	w.out = appendJavaPadded(append(w.out, ':'), minute, 2)
	w.out = appendJavaPadded(append(w.out, ':'), second, 2)
	if micros == 0 {
		return
	}
	w.out = append(w.out, '.')
	digits := 6
	for ; micros%10 == 0; micros /= 10 {
		digits--
	}
	if micros < 0 { // a number of one digit, before the zeros behind it go
		w.out = strconv.AppendInt(append(w.out, "00000"...), micros, 10)
		return
	}
	w.out = appendJavaPadded(w.out, micros, digits)
}

// appendJavaPadded puts zeros before n until it has width digits. A number below zero counts as one digit, and its sign follows the zeros.
func appendJavaPadded(dst []byte, n int64, width int) []byte {
	digits := 1
	for m := n; m >= 10; m /= 10 {
		digits++
	}
	for ; digits < width; digits++ {
		dst = append(dst, '0')
	}
	return strconv.AppendInt(dst, n, 10)
}
