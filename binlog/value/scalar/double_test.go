package scalar_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"outbox-relay/binlog/value/scalar"
)

// digitsOf gives the significant digits of a number's text.
func digitsOf(text string) string {
	mantissa, _, _ := strings.Cut(strings.TrimPrefix(text, "-"), "e")
	return strings.Trim(strings.ReplaceAll(mantissa, ".", ""), "0")
}

// Decimals of few digits, their neighbours and random bits: the text reads back equal and no shorter one does.
func TestDoublesAreShortestAndReadBack(t *testing.T) {
	t.Parallel()
	check := func(f float64) {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return
		}
		text := string(scalar.AppendDouble(nil, f, ""))
		back, err := strconv.ParseFloat(text, 64)
		if err != nil || back != f {
			t.Fatalf("%v prints %q, which reads %v (%v)", f, text, back, err)
		}
		if got, want := digitsOf(text), digitsOf(strconv.FormatFloat(f, 'e', -1, 64)); got != want {
			t.Fatalf("%v prints %q with digits %s, want %s", f, text, got, want)
		}
		if plain := strconv.FormatFloat(f, 'f', -1, 64); !strings.Contains(text, "e") && text != plain {
			t.Fatalf("%v prints %q, want %q", f, text, plain)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		n, k := float64(r.Int64N(int64(math.Pow10(1+r.IntN(16))))), math.Pow10(r.IntN(8))
		for _, f := range []float64{n / k, -n / k, n * 0.01, n * k} {
			check(f)
			check(math.Nextafter(f, math.Inf(1)))
			check(math.Nextafter(f, math.Inf(-1)))
		}
		check(math.Float64frombits(r.Uint64()))
	}
	for _, f := range []float64{0.001, 0.0009999, 0.00095, 0.1, 0.0001, 99999999999.9999, 1e11, 1e11 - 0.5, 123.45, 1.005, 0.30000000000000004} {
		check(f)
		check(-f)
	}
}
