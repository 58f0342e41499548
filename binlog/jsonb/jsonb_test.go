package jsonb_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"outbox-relay/binlog/jsonb"
)

type sample struct {
	raw  []byte
	text string
}

// samples reads what a 9.7 server stored and showed; a test of package value writes the file.
func samples(t testing.TB) []sample {
	t.Helper()
	b, err := os.ReadFile("testdata/documents.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var out []sample
	for line := range strings.Lines(string(b)) {
		raw, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		out = append(out, sample{unhex(t, raw), text})
	}
	if len(out) < 40 {
		t.Fatalf("only %d documents", len(out))
	}
	return out
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "|", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestDocumentsOfAServer(t *testing.T) {
	t.Parallel()
	for _, d := range samples(t) {
		got, err := jsonb.Append([]byte("kept "), d.raw)
		if err != nil || string(got) != "kept "+d.text {
			t.Errorf("%x\n got %s, %v\nwant %s", d.raw, got, err, d.text)
		}
		if !json.Valid([]byte(d.text)) {
			t.Errorf("%s is no JSON", d.text)
		}
	}
}

// Every type by hand; the forms of numbers are tested in package scalar.
func TestValues(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"":                                  "null",
		"04 00":                             "null",
		"04 01":                             "true",
		"04 02":                             "false",
		"05 ffff":                           "-1",
		"06 ffff":                           "65535",
		"07 ffffffff":                       "-1",
		"08 ffffffff":                       "4294967295",
		"09 ffffffffffffffff":               "-1",
		"0a ffffffffffffffff":               "18446744073709551615",
		"0b 000000000000f03f":               "1.0",
		"0b 0000000000000080":               "-0.0",
		"0b 0100000000000000":               "5e-324",
		"0c 00":                             `""`,
		"0c 05 610a1f7fff":                  "\"a\\n\\u001f\x7f\xff\"",
		"0c 8100 61":                        `"a"`, // a length that takes more bytes than it needs
		"00 0000 0400":                      "{}",
		"01 00000000 08000000":              "{}",
		"02 0000 0400":                      "[]",
		"03 00000000 08000000":              "[]",
		"02 0000 0400 ffff":                 "[]", // bytes behind the value
		"02 0100 0700 05 feff":              "[-2]",
		"02 0100 0700 04 0100":              "[true]",
		"02 0100 0b00 07 0700 feffffff":     "[-2]",
		"03 01000000 0d000000 07 feffffff":  "[-2]",
		"03 01000000 0d000000 08 feffffff":  "[4294967294]",
		"00 0100 0c00 0b00 0100 05 0200 61": `{"a": 2}`,
		"01 01000000 14000000 13000000 0100 05 02000000 61": `{"a": 2}`,
		"0f ff 00":                  `"base64:type255:"`,
		"0f 0f 03 616263":           `"base64:type15:YWJj"`,
		"0f 0b 08 0000000000000000": `"00:00:00.000000"`,
		"0f 0b 08 ffffffffffffffff": `"-00:00:00.000001"`,
		"0f 0c 08 0000000000000000": `"0000-00-00 00:00:00.000000"`,
		"0f f6 04 0302 81 0a":       "1.10",
		"0f f6 04 0302 7e f5":       "-1.10",
	} {
		got, err := jsonb.Append(nil, unhex(t, raw))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", raw, got, err, want)
		}
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for name, raw := range map[string]string{
		"unknown type":                      "10",
		"unknown type 0d":                   "0d 00",
		"unknown literal":                   "04 03",
		"literal without a value":           "04",
		"short int16":                       "05 00",
		"short double":                      "0b 00000000000000",
		"NaN":                               "0b 000000000000f87f",
		"infinity":                          "0b 000000000000f0ff",
		"string without a length":           "0c",
		"string beyond the end":             "0c 02 61",
		"string with an endless length":     "0c 8080808080808080808000",
		"string with a huge length":         "0c ffffffff7f 61",
		"opaque without a type":             "0f",
		"opaque without a length":           "0f 0f",
		"opaque beyond the end":             "0f 0f 05 61",
		"time of seven bytes":               "0f 0b 07 00000000000000",
		"negative date":                     "0f 0c 08 ffffffffffffffff",
		"smallest time":                     "0f 0b 08 0000000000000080",
		"time with too many hours":          "0f 0b 08 0000000000400000 00",
		"microseconds out of range":         "0f 0b 08 40420f0000000000",
		"decimal without a scale":           "0f f6 01 03",
		"decimal of a wrong size":           "0f f6 03 0302 81",
		"decimal with scale over precision": "0f f6 03 0102 81",
		"decimal with an impossible group":  "0f f6 06 0900 ffffffff",
		"decimal with precision 0":          "0f f6 02 0000",
		"array without a head":              "02 0000 04",
		"array larger than the rest":        "02 0000 0500",
		"array smaller than its entries":    "02 0100 0600 05 feff",
		"large array with a huge count":     "03 ffffffff 08000000",
		"object with a huge count":          "01 ffffff7f ffffff7f",
		"value offset inside the entries":   "02 0100 0f00 09 0400 0000000000000000",
		"value offset at the end":           "02 0100 0700 0c 0700",
		"key inside the entries":            "00 0100 0c00 0400 0100 05 0200 61",
		"key beyond the object":             "00 0100 0c00 0b00 0200 05 0200 61",
		"inner array larger than the outer": "02 0100 0b00 02 0700 0000 0800 00000000",
		"element of an unknown type":        "02 0100 0800 10 0700 00",
		"large value entry is cut":          "03 01000000 0c000000 07 feffff",
		"two elements share a long string":  "02 0200 1400 0c 0a00 0c 0a00 09 616161616161616161",
	} {
		got, err := jsonb.Append([]byte("kept"), unhex(t, raw))
		if !errors.Is(err, jsonb.ErrMalformed) || string(got) != "kept" {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

// nested wraps null into small arrays.
func nested(levels int) []byte {
	typ, value := byte(4), []byte{0, 0}
	for range levels {
		size := 7
		body := []byte{1, 0, 0, 0, typ, 7, 0}
		if typ == 4 {
			body[5], body[6] = value[0], value[1]
		} else {
			size += len(value)
			body = append(body, value...)
		}
		body[2], body[3] = byte(size), byte(size>>8)
		typ, value = 2, body
	}
	return append([]byte{typ}, value...)
}

func TestDepthIsLimited(t *testing.T) {
	t.Parallel()
	for _, levels := range []int{1, 100, jsonb.MaxDepth} {
		got, err := jsonb.Append(nil, nested(levels))
		if want := strings.Repeat("[", levels) + "null" + strings.Repeat("]", levels); err != nil || string(got) != want {
			t.Errorf("%d levels: %s, %v", levels, got, err)
		}
	}
	if got, err := jsonb.Append(nil, nested(jsonb.MaxDepth+1)); !errors.Is(err, jsonb.ErrMalformed) {
		t.Errorf("%d levels: %s, %v", jsonb.MaxDepth+1, got, err)
	}
}

// Arrays whose 16 elements are all the same inner array, 12 levels deep, would unfold to 16^12 values.
func TestSharedPartsDoNotUnfold(t *testing.T) {
	t.Parallel()
	typ, value := byte(5), []byte(nil)
	for range 12 {
		const head, count = 4 + 16*3, 16
		body := make([]byte, head, head+len(value))
		body[0] = count
		for i := range count {
			body[4+3*i], body[5+3*i] = typ, head
		}
		body = append(body, value...)
		body[2], body[3] = byte(len(body)), byte(len(body)>>8)
		typ, value = 2, body
	}
	got, err := jsonb.Append(nil, append([]byte{typ}, value...))
	if !errors.Is(err, jsonb.ErrMalformed) {
		t.Errorf("%d bytes of text, %v", len(got), err)
	}
}

func TestEveryTruncationIsRefusedOrShorter(t *testing.T) {
	t.Parallel()
	for _, d := range samples(t) {
		for n := 1; n < len(d.raw); n++ {
			if got, err := jsonb.Append(nil, d.raw[:n:n]); err == nil {
				// Only a string or a scalar at the very end may be found whole, which they are not when a byte is missing.
				t.Errorf("%d of %d bytes of %.80s: %.80s", n, len(d.raw), d.text, got)
			}
		}
	}
}

func TestDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 1<<16)
	for _, d := range samples(t) {
		if n := testing.AllocsPerRun(10, func() { _, _ = jsonb.Append(buf[:0], d.raw) }); n != 0 {
			t.Errorf("%.80s: %v allocations", d.text, n)
		}
	}
}

func FuzzAppend(f *testing.F) {
	for _, d := range samples(f) {
		f.Add(d.raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := jsonb.Append(nil, raw)
		if err != nil {
			if !errors.Is(err, jsonb.ErrMalformed) || len(got) != 0 {
				t.Fatalf("%s, %v", got, err)
			}
			return
		}
		if len(got) > 40*len(raw)+8 {
			t.Fatalf("%d bytes became %d", len(raw), len(got))
		}
		if !json.Valid(got) {
			t.Fatalf("%q is no JSON", got)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	for _, d := range samples(b) {
		if !strings.HasPrefix(d.text, `{"e": `) && !strings.HasPrefix(d.text, `{"k1": `) && !strings.HasPrefix(d.text, `{"d": "2020`) {
			continue
		}
		b.Run(d.text[:min(len(d.text), 8)], func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(d.raw)))
			buf := make([]byte, 0, 1<<16)
			for b.Loop() {
				if _, err := jsonb.Append(buf[:0], d.raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Every byte at every place around the eight-byte steps of the scan.
func TestEscapesAtEveryPlace(t *testing.T) {
	t.Parallel()
	for length := range 20 {
		for at := range length {
			for c := range 256 {
				s := bytes.Repeat([]byte{'x'}, length)
				s[at] = byte(c)
				if at > 0 {
					s[at-1] = 0x80 // must not lend to its neighbour
				}
				doc := append([]byte{0x0c, byte(length)}, s...)
				got, err := jsonb.Append(nil, doc)
				if err != nil {
					t.Fatal(err)
				}
				want := `"` + string(s[:at]) + escaped(byte(c)) + string(s[at+1:]) + `"`
				if string(got) != want {
					t.Fatalf("%q: got %q, want %q", s, got, want)
				}
			}
		}
	}
}

func escaped(c byte) string {
	switch c {
	case '"', '\\':
		return `\` + string(rune(c))
	case '\b':
		return `\b`
	case '\f':
		return `\f`
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	if c < 0x20 {
		return fmt.Sprintf(`\u%04x`, c)
	}
	return string([]byte{c})
}
