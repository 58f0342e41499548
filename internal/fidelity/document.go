package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// document gives a SQL expression of a random JSON value, opaque ones among them.
func document(r *rand.Rand, depth int) string {
	kind := r.IntN(14)
	if depth == 0 {
		kind = 2 + r.IntN(12)
	}
	switch kind {
	case 0:
		var items []string
		for range r.IntN(6) {
			items = append(items, document(r, depth-1))
		}
		return "JSON_ARRAY(" + strings.Join(items, ",") + ")"
	case 1:
		var items []string
		for range r.IntN(6) {
			items = append(items, jsonText(r), document(r, depth-1))
		}
		return "JSON_OBJECT(" + strings.Join(items, ",") + ")"
	case 2:
		return "CAST('" + []string{"null", "true", "false", "{}", "[]", "-0.0", `""`}[r.IntN(7)] + "' AS JSON)"
	case 3, 4:
		return fmt.Sprintf("CAST(%d AS JSON)", (r.Int64()>>r.IntN(64))*int64(1-2*r.IntN(2)))
	case 5:
		return fmt.Sprintf("CAST(%d AS JSON)", r.Uint64()>>r.IntN(64))
	case 6:
		return "CAST('" + strconv.FormatFloat(double(r), 'e', -1, 64) + "' AS JSON)"
	case 7:
		scale := r.IntN(31)
		precision := scale + r.IntN(66-scale)
		precision = max(precision, 1)
		return fmt.Sprintf("CAST(CAST(%s AS DECIMAL(%d,%d)) AS JSON)", decimal(r, precision, scale), precision, scale)
	case 8:
		return fmt.Sprintf("CAST(CAST(%s AS TIME(%d)) AS JSON)", timeOfDay(r), r.IntN(7))
	case 9:
		return fmt.Sprintf("CAST(CAST('%04d-%02d-%02d %02d:%02d:%02d.%06d' AS %s) AS JSON)", r.IntN(10000), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1e6),
			[]string{"DATE", "DATETIME", "DATETIME(3)", "DATETIME(6)"}[r.IntN(4)])
	case 10:
		return fmt.Sprintf("CAST(x'%x' AS JSON)", randomBytes(r, 1+r.IntN(130)))
	case 11:
		return fmt.Sprintf("JSON_ARRAY(b'%b', TRUE, CAST(%g AS FLOAT))", r.IntN(4096), float32(r.NormFloat64()*1000))
	}
	return "JSON_EXTRACT(JSON_ARRAY(" + jsonText(r) + "), '$[0]')"
}

// wholeDocument is document with a container on top, or seldom a big one that needs wide offsets.
func wholeDocument(r *rand.Rand) string {
	switch r.IntN(200) {
	case 0:
		return fmt.Sprintf("JSON_OBJECT('big', REPEAT('é', %d), 'i', %d, 'd', %s)", 30000+r.IntN(10000), r.Int32(), document(r, 2))
	case 1:
		return fmt.Sprintf("JSON_ARRAY(REPEAT('x', %d), %d, NULL, TRUE, %s)", 65400+r.IntN(300), r.Uint32(), document(r, 2))
	}
	return document(r, 4)
}

// jsonText gives a string with what JSON escapes, and what it does not.
func jsonText(r *rand.Rand) string {
	n := r.IntN(12)
	if r.IntN(20) == 0 {
		n = 100 + r.IntN(300)
	}
	var text []rune
	for range n {
		switch r.IntN(4) {
		case 0:
			text = append(text, rune(r.IntN(0x30)))
		case 1:
			text = append(text, codePoint(r, true))
		case 2:
			text = append(text, []rune{'"', '\\', '/', '<', 0x7f, 0x2028, 0xfeff, 0x1f600}[r.IntN(8)])
		default:
			text = append(text, rune('a'+r.IntN(26)))
		}
	}
	return "_utf8mb4 " + hexLiteral([]byte(string(text)))
}

// double gives finite numbers of all sizes, short decimal ones and borders among them.
func double(r *rand.Rand) float64 {
	switch r.IntN(5) {
	case 0:
		f, _ := strconv.ParseFloat(fmt.Sprintf("%de%d", r.IntN(200000)-100000, r.IntN(50)-30), 64)
		return f
	case 1:
		return float64(r.Int64N(1<<60)) * float64(1-2*r.IntN(2))
	case 2:
		return r.NormFloat64() * 1e5
	case 3:
		return []float64{0, math.Copysign(0, -1), math.MaxFloat64, -math.MaxFloat64, math.SmallestNonzeroFloat64, 1e15, 1e14, 1e16, 1e-5, 9007199254740993, 0.1, 2.2250738585072014e-308}[r.IntN(12)]
	}
	for {
		if f := math.Float64frombits(r.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f
		}
	}
}

// single gives a FLOAT as a quoted number.
func single(r *rand.Rand) string {
	f := float32(r.NormFloat64() * 1000)
	switch r.IntN(4) {
	case 0:
		f = []float32{0, math.MaxFloat32, -math.MaxFloat32, math.SmallestNonzeroFloat32, 1e6, 999999, 1000001, 16777216, 0.1, 1e15, 1e-5, 1.17549435e-38}[r.IntN(12)]
	case 1:
		if g := math.Float32frombits(r.Uint32()); g == g && !math.IsInf(float64(g), 0) {
			f = g
		}
	}
	return "'" + strconv.FormatFloat(float64(f), 'e', -1, 32) + "'"
}

// decimal gives a quoted number with up to precision digits, scale of them behind the point.
func decimal(r *rand.Rand, precision, scale int) string {
	digits := make([]byte, precision)
	nines, from := r.IntN(8) == 0, r.IntN(precision+1)
	for i := range digits {
		digits[i] = '0'
		if nines {
			digits[i] = '9'
		} else if i >= from {
			digits[i] = byte('0' + r.IntN(10))
		}
	}
	return fmt.Sprintf("'%s%s.%s'", []string{"", "-"}[r.IntN(2)], digits[:precision-scale], digits[precision-scale:])
}

func timeOfDay(r *rand.Rand) string {
	if r.IntN(6) == 0 {
		return []string{"'838:59:59'", "'-838:59:59'", "'00:00:00'", "'-00:00:00.000001'", "'-00:00:01'", "'24:00:00'"}[r.IntN(6)]
	}
	return fmt.Sprintf("'%s%d:%02d:%02d.%06d'", []string{"", "-"}[r.IntN(2)], r.IntN(838), r.IntN(60), r.IntN(60), r.IntN(1e6))
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
