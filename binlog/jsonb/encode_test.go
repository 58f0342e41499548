package jsonb_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"outbox-relay/binlog/jsonb"
	"outbox-relay/binlog/value/scalar"
)

// sameText encodes a text and demands that the document prints it again.
func sameText(t *testing.T, text string) []byte {
	t.Helper()
	doc, err := jsonb.Encode([]byte("x"), []byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	doc = doc[1:]
	got, err := jsonb.Append(nil, doc)
	if err != nil || string(got) != text {
		t.Fatalf("%s came back as %s, %v", text, got, err)
	}
	return doc
}

func TestEncodedTextPrintsAgain(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"null", "true", "false", "0", "-1", "32767", "32768", "-32769", "2147483648", "-9223372036854775808", "18446744073709551615", "18446744073709551616",
		"1.5", "100.0", "1e20", "-0.0", "0.00000015", "1.5e-20", "1.10", "0.50", "123456789012345678901234567890.1234567890", "-0.001", "5e-324",
		`""`, `"a"`, `"\u0001\b\f\n\r\t\"\\/é😀"`, "[]", "{}", "[[], {}, [{}]]", `{"": 1, "a": {"b": [1, 2.5, "x, y]", null]}, "c\"d": "}{"}`,
		`["2024-02-29 01:02:03.000000", "base64:type15:AP8Q"]`,
		"[" + strings.Repeat("1, ", 70_000) + "2]", `"` + strings.Repeat("a", 200_000) + `"`,
		strings.Repeat("[", 100) + strings.Repeat("]", 100),
	} {
		sameText(t, text)
	}
}

func TestEncodedTextOfRandomDocumentsPrintsAgain(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		sameText(t, string(appendRandom(nil, r, 4)))
	}
}

// appendRandom appends the text of a random value as the server prints it.
func appendRandom(dst []byte, r *rand.Rand, depth int) []byte {
	switch n := r.IntN(8); {
	case n == 0:
		return append(dst, []string{"null", "true", "false"}[r.IntN(3)]...)
	case n == 1:
		return strconv.AppendInt(dst, r.Int64()>>r.IntN(64), 10)
	case n == 2:
		f := math.Float64frombits(r.Uint64())
		if math.IsNaN(f) || math.IsInf(f, 0) {
			f = 1.25
		}
		return scalar.AppendDouble(dst, f, ".0")
	case n == 3:
		return append(strconv.AppendInt(dst, r.Int64N(1e9), 10), []string{".50", ".000", ".1234567890123"}[r.IntN(3)]...)
	case n < 6 || depth == 0:
		return append(append(append(dst, '"'), strings.Repeat("aé", r.IntN(100))...), '"')
	}
	object := r.IntN(2) == 0
	dst = append(dst, "[{"[map[bool]int{true: 1}[object]])
	for i := range r.IntN(5) {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		if object {
			dst = append(strconv.AppendInt(append(dst, `"k`...), int64(i), 10), `": `...)
		}
		dst = appendRandom(dst, r, depth-1)
	}
	return append(dst, "]}"[map[bool]int{true: 1}[object]])
}

func FuzzEncode(f *testing.F) {
	for _, text := range []string{`{"a": [1, 2.5]}`, "[", `"\u12`, "}", "1.", "[1,", `{"a"`, "--1", `"\ud83d\ude00"`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		doc, err := jsonb.Encode(nil, text)
		if err != nil {
			if !errors.Is(err, jsonb.ErrMalformed) || doc != nil {
				t.Fatalf("got %v with %d bytes", err, len(doc))
			}
			return
		}
		if _, err := jsonb.Append(nil, doc); err != nil {
			t.Fatalf("%q became a document that cannot be read: %v", text, err)
		}
	})
}

// What the text does not tell is named by its path, and with the types the document is the one that the text was made of.
func TestTypesThatTheTextDoesNotTell(t *testing.T) {
	t.Parallel()
	const text = `{"a b": [1, "2024-02-29 01:02:03.120000", {"c\"d": "-11:12:13.000000"}], "n": 12345678.5, "small": 0.0001, "x": "base64:type15:AP8Q", "sure": [1.5, 1.50, "2024-02-29", "12:00"]}`
	paths, err := jsonb.Unsure([]byte(text))
	want := []string{`$."a b"[1]`, `$."a b"[2]."c\"d"`, `$."small"`, `$."x"`}
	if err != nil || !slices.Equal(paths, want) {
		t.Errorf("got %q, %v, want %q", paths, err, want)
	}
	for _, c := range []struct {
		types []string
		want  string
	}{
		{nil, `{"a b":[1,"2024-02-29 01:02:03.120000",{"c\"d":"-11:12:13.000000"}],"n":12345678.5,"small":0.000100000000000000004792173602385929598312941379845142364501953125,"x":"base64:type15:AP8Q","sure":[1.5,1.50,"2024-02-29","12:00"]}`},
		{[]string{"STRING", "STRING", "DOUBLE", "STRING"}, `{"a b":[1,"2024-02-29 01:02:03.120000",{"c\"d":"-11:12:13.000000"}],"n":12345678.5,"small":0.000100000000000000004792173602385929598312941379845142364501953125,"x":"base64:type15:AP8Q","sure":[1.5,1.50,"2024-02-29","12:00"]}`},
		{[]string{"DATETIME", "TIME", "DECIMAL", "BLOB"}, `{"a b":[1,"2024-02-29 01:02:03.12",{"c\"d":"12:0-13:0-13"}],"n":12345678.5,"small":0.0001,"x":"AP8Q","sure":[1.5,1.50,"2024-02-29","12:00"]}`},
	} {
		doc, err := jsonb.EncodeAs(nil, []byte(text), c.types)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := jsonb.Append(nil, doc); err != nil || string(got) != text {
			t.Errorf("%v: the text came back as %s, %v", c.types, got, err)
		}
		if got, err := jsonb.AppendDebezium(nil, doc); err != nil || string(got) != c.want {
			t.Errorf("%v: got  %s, %v\nwant %s", c.types, got, err, c.want)
		}
	}
}
