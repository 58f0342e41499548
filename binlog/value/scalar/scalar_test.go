package scalar_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"outbox-relay/binlog/value/scalar"
)

func TestAppendDouble(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		f            float64
		column, json string
	}{
		{0, "0", "0.0"}, {math.Copysign(0, -1), "-0", "-0.0"}, {1, "1", "1.0"}, {-1.5, "-1.5", "-1.5"}, {100, "100", "100.0"}, {123.5, "123.5", "123.5"},
		{1e-7, "0.0000001", "0.0000001"}, {1e14, "100000000000000", "100000000000000.0"}, {1e15, "1e15", "1e15"}, {123456789012345, "123456789012345", "123456789012345.0"},
		{1e-15, "0.000000000000001", "0.000000000000001"}, {1e-16, "1e-16", "1e-16"}, {1.5e-15, "0.0000000000000015", "0.0000000000000015"}, {1.5e-16, "1.5e-16", "1.5e-16"},
		{12345678901234567, "1.2345678901234568e16", "1.2345678901234568e16"}, {1234567890123456.8, "1234567890123456.8", "1234567890123456.8"},
		{18446744073709551616, "1.8446744073709552e19", "1.8446744073709552e19"}, {5e-324, "5e-324", "5e-324"}, {math.MaxFloat64, "1.7976931348623157e308", "1.7976931348623157e308"},
		{1e20, "1e20", "1e20"}, {1e21, "1e21", "1e21"}, {9007199254740993, "9.007199254740992e15", "9.007199254740992e15"},
	} {
		if got := string(scalar.AppendDouble([]byte("x"), c.f, "")); got != "x"+c.column {
			t.Errorf("%g in a column: %s, want %s", c.f, got[1:], c.column)
		}
		if got := string(scalar.AppendDouble(nil, c.f, ".0")); got != c.json {
			t.Errorf("%g in JSON: %s, want %s", c.f, got, c.json)
		}
	}
}

func TestDoublesReadBackEqual(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 1))
	for range 200_000 {
		f := math.Float64frombits(r.Uint64())
		if math.IsNaN(f) || math.IsInf(f, 0) {
			continue
		}
		text := string(scalar.AppendDouble(nil, f, ".0"))
		if back, err := strconv.ParseFloat(text, 64); err != nil || back != f || !strings.ContainsAny(text, ".e") {
			t.Fatalf("%x became %s", math.Float64bits(f), text)
		}
	}
}

func TestAppendFloat(t *testing.T) {
	t.Parallel()
	for f, want := range map[float32]string{
		0: "0", 0.1: "0.1", 1.5: "1.5", 3.40282e38: "3.40282e38", 123456789: "123457000", 16777217: "16777200", 999999.5: "1000000", 1e10: "10000000000",
		1e15: "1e15", 1e14: "100000000000000", 1e-15: "0.000000000000001", 1e-16: "1e-16", -1.17549e-38: "-1.17549e-38", 123.456: "123.456",
	} {
		if got := string(scalar.AppendFloat(nil, f)); got != want {
			t.Errorf("%g: %s, want %s", f, got, want)
		}
	}
}

func TestAppendDecimal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		raw              string
		precision, scale int
		want             string
	}{
		{"8000000001 0a", 11, 2, ""}, // a byte too many for it
		{"80000001 0a", 10, 2, "1.10"},
		{"7ffffffe f5", 10, 2, "-1.10"},
		{"80000000 00", 10, 2, "0.00"},
		{"7fffffff fe", 10, 2, "-0.01"},
		{"85 f5e0ff", 8, 0, "99999999"},
		{"89", 1, 0, "9"},
		{"81", 1, 1, "0.1"},
		{"81 0dfb38d2 04d2", 14, 4, "1234567890.1234"},
		{"80 00000000 00000001 000001", 25, 24, "0.000000000000000001000001"},
	} {
		got, err := scalar.AppendDecimal([]byte("x"), unhex(t, c.raw), c.precision, c.scale)
		if c.want == "" {
			if !errors.Is(err, scalar.ErrDecimal) || string(got) != "x" {
				t.Errorf("%s: %s, %v", c.raw, got, err)
			}
			continue
		}
		if err != nil || string(got) != "x"+c.want {
			t.Errorf("%s as DECIMAL(%d,%d): %s, %v, want %s", c.raw, c.precision, c.scale, got, err, c.want)
		}
	}
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// encodeDecimal is the inverse: the storage form of digits, whole and fraction being the exact digits of either side.
func encodeDecimal(negative bool, whole, fraction string) []byte {
	var b []byte
	group := func(digits string) {
		v, _ := strconv.ParseUint(digits, 10, 32)
		size := scalar.DecimalSize(len(digits), 0)
		for i := range size {
			b = append(b, byte(v>>(8*(size-1-i))))
		}
	}
	if rest := len(whole) % 9; rest > 0 {
		group(whole[:rest])
		whole = whole[rest:]
	}
	for ; len(whole) > 0; whole = whole[9:] {
		group(whole[:9])
	}
	for ; len(fraction) >= 9; fraction = fraction[9:] {
		group(fraction[:9])
	}
	if fraction != "" {
		group(fraction)
	}
	if negative {
		for i := range b {
			b[i] = ^b[i]
		}
	}
	b[0] ^= 0x80
	return b
}

func TestDecimalsOfEveryShape(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(2, 2))
	for precision := 1; precision <= 65; precision++ {
		for scale := 0; scale <= min(precision, 30); scale++ {
			for range 4 {
				digits := make([]byte, precision)
				for i := range digits {
					digits[i] = byte('0' + r.IntN(10)*r.IntN(2))
				}
				whole, fraction := string(digits[:precision-scale]), string(digits[precision-scale:])
				negative := r.IntN(2) == 0 && strings.Trim(string(digits), "0") != ""
				want := strings.TrimLeft(whole, "0")
				if want == "" {
					want = "0"
				}
				if scale > 0 {
					want += "." + fraction
				}
				if negative {
					want = "-" + want
				}
				got, err := scalar.AppendDecimal(nil, encodeDecimal(negative, whole, fraction), precision, scale)
				if err != nil || string(got) != want {
					t.Fatalf("DECIMAL(%d,%d): %s, %v, want %s", precision, scale, got, err, want)
				}
			}
		}
	}
}

func TestDecimalRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		raw              string
		precision, scale int
	}{
		"empty": {"", 1, 0}, "precision 0": {"", 0, 0}, "precision 82": {strings.Repeat("80", 37), 82, 0}, "scale over precision": {"80", 1, 2},
		"scale 31": {strings.Repeat("80", 14), 31, 31}, "negative scale": {"80", 1, -1}, "group above 999999999": {"ffffffff", 9, 0}, "rest above 9": {"8a", 1, 0},
	} {
		if got, err := scalar.AppendDecimal([]byte("x"), unhex(t, c.raw), c.precision, c.scale); !errors.Is(err, scalar.ErrDecimal) || string(got) != "x" {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func TestDatesAndTimes(t *testing.T) {
	t.Parallel()
	got := scalar.AppendDate(nil, 7, 0, 31)
	got = scalar.AppendClock(append(got, ' '), 838, 5, 9)
	for digits := range 8 {
		got = scalar.AppendFraction(append(got, ' '), 12345, digits)
	}
	if want := "0007-00-31 838:05:09  .0 .01 .012 .0123 .01234 .012345 .012345"; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestNothingAllocates(t *testing.T) {
	buf := make([]byte, 0, 256)
	raw := encodeDecimal(true, strings.Repeat("1", 35), strings.Repeat("2", 30))
	if n := testing.AllocsPerRun(100, func() {
		b := scalar.AppendDouble(buf, 1.2345678901234567e-300, ".0")
		b = scalar.AppendFloat(b, 0.1)
		b, _ = scalar.AppendDecimal(b, raw, 65, 30)
		scalar.AppendDate(b, 2020, 1, 2)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzAppendDecimal(f *testing.F) {
	f.Add([]byte{0x80, 0, 0, 1, 10}, 10, 2)
	f.Fuzz(func(t *testing.T, raw []byte, precision, scale int) {
		if got, err := scalar.AppendDecimal(nil, raw, precision, scale); err == nil && len(got) > precision+3 {
			t.Fatalf("DECIMAL(%d,%d) of %x is %s", precision, scale, raw, got)
		}
	})
}

func TestIntegersEqualThoseOfStrconv(t *testing.T) {
	t.Parallel()
	check := func(u uint64) {
		if got, want := scalar.AppendUint([]byte("-"), u), strconv.AppendUint([]byte("-"), u, 10); !bytes.Equal(got, want) {
			t.Fatalf("got %s, want %s", got, want)
		}
		if got, want := scalar.AppendInt(nil, int64(u)), strconv.AppendInt(nil, int64(u), 10); !bytes.Equal(got, want) {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	for u := range uint64(200_000) {
		check(u)
		check(-u)
		check(u * 500) // all that are behind the first four of eight digits
		check(u * 92_233_720_368_547)
	}
	for power := uint64(1); ; power *= 10 {
		for d := range uint64(5) {
			check(power + d)
			check(power - d)
			check(power*9 + d)
		}
		if power > math.MaxUint64/10 {
			break
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1_000_000 {
		check(rng.Uint64() >> rng.UintN(64))
	}
}

func BenchmarkAppendDouble(b *testing.B) {
	b.ReportAllocs()
	buf := make([]byte, 0, 64)
	for b.Loop() {
		scalar.AppendDouble(buf, 1234.5678, "")
	}
}
