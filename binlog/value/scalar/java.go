package scalar

import (
	"bytes"
	"math"
	"strconv"
)

// AppendJavaDouble appends what Java's Double.toString gives: the shortest digits that read back equal, at least one of them behind the
// point, as a plain number from 0.001 up to below 10,000,000 and as `1.0E-4` elsewhere. f must be finite.
func AppendJavaDouble(dst []byte, f float64) []byte { return appendJava(dst, f, 64) }

// AppendJavaFloat is AppendJavaDouble for Java's Float.toString.
func AppendJavaFloat(dst []byte, f float32) []byte { return appendJava(dst, float64(f), 32) }

func appendJava(dst []byte, f float64, bits int) []byte {
	a := math.Abs(f)
	if a == 0 || a >= 1e-3 && a < 1e7 {
		from := len(dst)
		dst = strconv.AppendFloat(dst, f, 'f', -1, bits)
		if bytes.IndexByte(dst[from:], '.') < 0 {
			dst = append(dst, ".0"...)
		}
		return dst
	}
	var buf [32]byte
	sci := strconv.AppendFloat(buf[:0], f, 'e', -1, bits)
	at := 1
	if f < 0 {
		at = 2
	}
	if sci[at] == 'e' {
		// Java gives two digits where one would do, and of those the nearest: 5e-324 is 4.9E-324.
		sci = strconv.AppendFloat(buf[:0], f, 'e', 1, bits)
	}
	for i, c := range sci {
		if c != 'e' {
			continue
		}
		dst = append(append(dst, sci[:i]...), 'E')
		exp := sci[i+1:]
		if exp[0] == '-' {
			dst = append(dst, '-')
		}
		for exp = exp[1:]; len(exp) > 1 && exp[0] == '0'; {
			exp = exp[1:]
		}
		return append(dst, exp...)
	}
	return dst
}
