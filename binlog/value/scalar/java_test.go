package scalar_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"outbox-relay/binlog/value/scalar"
)

func TestJavaNumbers(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]float64{
		"0.0": 0, "-0.0": math.Copysign(0, -1), "1.0": 1, "0.001": 0.001, "9.9E-4": 0.00099, "9999999.5": 9999999.5, "1.0E7": 1e7, "-1.5E-5": -1.5e-5,
		"1.23456789E7": 12345678.9, "1.0E21": 1e21, "4.9E-324": 5e-324, "1.7976931348623157E308": math.MaxFloat64, "0.30000000000000004": 0.30000000000000004,
	} {
		if got := string(scalar.AppendJavaDouble(nil, f)); got != want {
			t.Errorf("%v: %s, want %s", f, got, want)
		}
	}
	for want, f := range map[string]float32{"1.1": 1.1, "1.0E-4": 1e-4, "1.6777216E7": 1 << 24, "1.4E-45": math.SmallestNonzeroFloat32} {
		if got := string(scalar.AppendJavaFloat(nil, f)); got != want {
			t.Errorf("%v: %s, want %s", f, got, want)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		f := math.Float64frombits(r.Uint64())
		if math.IsNaN(f) || math.IsInf(f, 0) {
			continue
		}
		text := string(scalar.AppendJavaDouble(nil, f))
		back, err := strconv.ParseFloat(text, 64)
		if err != nil || back != f || !strings.Contains(text, ".") {
			t.Fatalf("%v became %s (%v)", f, text, err)
		}
	}
}
