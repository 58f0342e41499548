package jsonb_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"outbox-relay/binlog/jsonb"
)

// Documents as the server stores them, in the small layout: names in one run, and values behind it.
type (
	object []pair
	pair   struct {
		name  string
		value any
	}
	array []any
)

// stored gives the type and the bytes of a value.
func stored(v any) (typ byte, b []byte) {
	switch v := v.(type) {
	case nil:
		return 4, []byte{0, 0}
	case bool:
		return 4, map[bool][]byte{true: {1, 0}, false: {2, 0}}[v]
	case int:
		switch {
		case v == int(int16(v)):
			return 5, binary.LittleEndian.AppendUint16(nil, uint16(v))
		case v == int(int32(v)):
			return 7, binary.LittleEndian.AppendUint32(nil, uint32(v))
		}
		return 9, binary.LittleEndian.AppendUint64(nil, uint64(v))
	case uint16:
		return 6, binary.LittleEndian.AppendUint16(nil, v)
	case float64:
		return 11, binary.LittleEndian.AppendUint64(nil, math.Float64bits(v))
	case string:
		return 12, append(binary.AppendUvarint(nil, uint64(len(v))), v...)
	case object:
		var values []any
		for _, p := range v {
			values = append(values, p.value)
		}
		b = make([]byte, 4+7*len(v))
		binary.LittleEndian.PutUint16(b, uint16(len(v)))
		at, names := len(b), ""
		for i, p := range v {
			binary.LittleEndian.PutUint16(b[4+4*i:], uint16(at+len(names)))
			binary.LittleEndian.PutUint16(b[6+4*i:], uint16(len(p.name)))
			names += p.name
		}
		return 0, withValues(slices.Concat(b, []byte(names)), 4+4*len(v), values)
	case array:
		b = make([]byte, 4+3*len(v))
		binary.LittleEndian.PutUint16(b, uint16(len(v)))
		return 2, withValues(b, 4, v)
	}
	panic(fmt.Sprintf("%T", v))
}

// withValues appends values to a container whose value entries begin at an offset, and fills those.
func withValues(b []byte, at int, values []any) []byte {
	for i, v := range values {
		typ, content := stored(v)
		entry := b[at+3*i:]
		entry[0] = typ
		if typ == 4 || typ == 5 || typ == 6 {
			copy(entry[1:3], content)
			continue
		}
		binary.LittleEndian.PutUint16(entry[1:], uint16(len(b)))
		b = append(b, content...)
	}
	binary.LittleEndian.PutUint16(b[2:], uint16(len(b)))
	return b
}

func document(v any) []byte {
	typ, b := stored(v)
	return append([]byte{typ}, b...)
}

// order is a document as services write them, with some order lines.
func order(n, lines int) object {
	var items array
	for i := range lines {
		items = append(items, object{{"sku", fmt.Sprintf("A-%d", (n+i)%10_000)}, {"price", float64((n+i)%500) + 0.5}, {"quantity", n%9 + 1}})
	}
	return object{
		{"note", "line one, line two"}, {"lines", items}, {"total", float64(n%900) + float64(n%100)/100}, {"orderId", 10_000_000 + n}, {"currency", "EUR"},
		{"customer", object{{"id", n * 31 % 100_000}, {"vip", n%7 == 0}, {"name", fmt.Sprintf("Zoë Müller %d", n%1000)}}}, {"discount", nil},
		{"createdAt", fmt.Sprintf("2026-01-%02dT10:%02d:00Z", n%28+1, n%60)},
	}
}

func BenchmarkOrders(b *testing.B) {
	for _, lines := range []int{2, 190} {
		for name, appendText := range map[string]func(dst, doc []byte) ([]byte, error){"function": jsonb.Append, "printer": new(jsonb.Printer).Append} {
			b.Run(fmt.Sprintf("%s/%d", name, lines), func(b *testing.B) {
				var docs [][]byte
				buf := make([]byte, 0, 1<<16)
				for n := range 64 {
					docs = append(docs, document(order(n*977, lines)))
				}
				n := 0
				for b.Loop() {
					text, err := appendText(buf[:0], docs[n%len(docs)])
					if err != nil {
						b.Fatal(err)
					}
					b.SetBytes(int64(len(text)))
					n++
				}
			})
		}
	}
}

// A printer that knows an object writes what the functions write, in whatever order documents come.
func TestPrinterRemembersAndWritesTheSame(t *testing.T) {
	t.Parallel()
	var docs [][]byte
	for _, d := range samples(t) {
		docs = append(docs, d.raw)
	}
	long := strings.Repeat("n", 700)
	for n := range 40 {
		docs = append(docs, document(order(n, n%5)),
			document(object{{fmt.Sprintf("id-%07d", n), 1}, {fmt.Sprintf("id-%07d", n+1), n}}),                             // names that are data
			document(object{{"aaaaaaaa", 1}, {fmt.Sprintf("%08d", n), 2}, {"zzzzzzzz", 3}}),                                // alike and not equal
			document(object{{"line\n1", 1}, {"\"quoted\"", n}, {"\x01\x1f control", nil}}),                                 // names that are escaped
			document(object{{long, n}, {long + "\x02", n}}),                                                                // too long to be kept
			document(object{{"shortest", n}}), document(object{{"shortes", n}}), document(object{{"sixteen letters!", n}}), // around pads
			document(object{{"same names", n}, {"other values", object{{"same names", nil}, {"other values", array{}}}}}),
			document(object{}), document(array{object{}, object{{"one name", true}}, object{{"one name", object{}}}}))
	}
	// Values that stand between the names.
	for _, value := range []string{"a value that is stored between two names", "one of another size"} {
		b := []byte{2, 0, 0, 0, 18, 0, 7, 0, 0, 0, 9, 0, 12, 25, 0, 5, 5, 0}
		b = append(append(b, "between"...), byte(len(value)))
		b = append(b, value...)
		b[8] = byte(len(b))
		b = append(b, "the names"...)
		b[2] = byte(len(b))
		doc := append([]byte{0}, b...)
		if text, err := jsonb.Append(nil, doc); err != nil || string(text) != fmt.Sprintf(`{"between": %q, "the names": 5}`, value) {
			t.Fatalf("%s, %v", text, err)
		}
		docs = append(docs, doc, doc)
	}
	var p jsonb.Printer
	for round := range 4 {
		for i, doc := range docs {
			if round == 3 {
				doc = docs[len(docs)-1-i]
			}
			for _, c := range []struct {
				function, printer func(dst, doc []byte) ([]byte, error)
			}{{jsonb.Append, p.Append}, {jsonb.AppendDebezium, p.AppendDebezium}} {
				want, err := c.function([]byte("kept "), doc)
				if err != nil {
					t.Fatal(err)
				}
				for _, room := range []int{0, 1 << 16} {
					got, err := c.printer(append(make([]byte, 0, 5+room), "kept "...), doc)
					if err != nil || string(got) != string(want) {
						t.Fatalf("round %d:\n got %s, %v\nwant %s", round, got, err, want)
					}
				}
			}
		}
	}
}

// Values at the borders of what is written the short way have the text that they have the long way, whatever stands around them and however much room there is; and what
// is damaged is refused or read alike.
func TestPrinterWritesPlainValuesTheSame(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(11, 12))
	numbers := []int{0, 1, 9, 10, 99, 100, 999, 1000, 9999, 10_000, 32_767, 32_768, 65_535, 99_999, 100_000, 999_999, 1_000_000, 9_999_999, 10_000_000, 99_999_999, 100_000_000, math.MaxInt32, 1 << 40}
	doubles := []float64{0, 0.0001, 0.00099, 0.001, 0.0011, 0.5, 0.25, 0.1, 0.1 + 0.2, 1, 9.99, 10, 12.5, 99.95, 100, 100.125, 999.9999, 1000, 1234.5678, 1234.56785, 9999.9999, 9999.99995, 10_000, 12345.5, 1e15, 1e-7, 1e300}
	value := func() any {
		switch random.IntN(8) {
		case 0:
			return nil
		case 1:
			return random.IntN(2) == 0
		case 2:
			return numbers[random.IntN(len(numbers))] * (1 - 2*random.IntN(5)/4)
		case 3:
			return uint16(random.Uint32N(1 << random.IntN(17)))
		case 4:
			return doubles[random.IntN(len(doubles))] * float64(1-2*(random.IntN(5)/4))
		case 5:
			return float64(random.IntN(100_000_000)) / []float64{1, 10, 100, 1000, 10_000, 100_000}[random.IntN(6)]
		}
		text := []byte(strings.Repeat("0123456789abcdef", 9)[:random.IntN([]int{3, 9, 18, 40, 140}[random.IntN(5)])])
		if len(text) > 0 && random.IntN(4) == 0 {
			text[random.IntN(len(text))] = "\"\\\n\x00\x1f\x7f\x80\xff"[random.IntN(8)]
		}
		return string(text)
	}
	var p jsonb.Printer
	refused := 0
	for range 3000 {
		like := make([]string, random.IntN(6)+1)
		for i := range like {
			like[i] = strings.Repeat("name", 12)[:random.IntN([]int{8, 30, 48}[random.IntN(3)])+1] + string(rune('a'+i))
		}
		one := func() (o object) {
			for _, name := range like {
				o = append(o, pair{name, value()})
			}
			return o
		}
		list := array{}
		for range random.IntN(5) + 1 {
			list = append(list, one())
			if random.IntN(5) == 0 {
				list = append(list, value())
			}
		}
		if random.IntN(3) == 0 {
			list = append(list, object{{"lines", list}, {"more", one()}, {"last", value()}})
		}
		doc := document(list)
		for damaged := range 4 {
			switch first := int(binary.LittleEndian.Uint16(doc[6:])) + 1; {
			case damaged == 1 && doc[5] == 0: // an object that ends before its last value does
				size := binary.LittleEndian.Uint16(doc[first+2:])
				binary.LittleEndian.PutUint16(doc[first+2:], size-uint16(random.IntN(9)+1))
			case damaged > 0:
				doc[random.IntN(len(doc))] ^= byte(1 << random.IntN(8))
			}
			for _, c := range []struct {
				function, printer func(dst, doc []byte) ([]byte, error)
			}{{jsonb.Append, p.Append}, {jsonb.AppendDebezium, p.AppendDebezium}} {
				want, wantErr := c.function(nil, doc)
				for _, room := range []int{0, len(want), random.IntN(len(want) + 200), 1 << 15} {
					got, err := c.printer(make([]byte, 0, room), doc)
					if string(got) != string(want) || (err == nil) != (wantErr == nil) {
						t.Fatalf("%x\n got %s, %v\nwant %s, %v", doc, got, err, want, wantErr)
					}
				}
				if wantErr != nil {
					refused++
				}
			}
		}
	}
	if refused < 1000 {
		t.Errorf("%d damaged documents were refused", refused)
	}
}

// Objects within an object may take the place of its names while it is written.
func TestPrinterWithObjectsThatShareAPlace(t *testing.T) {
	t.Parallel()
	var p jsonb.Printer
	inner := array{}
	for i := range 4 {
		inner = append(inner, object{{"inner name", i}, {"and one more of them", nil}})
	}
	for n := range 2000 {
		outer := func(v any) []byte {
			return document(object{{fmt.Sprintf("%06d outer", n), v}, {"second name", 1}, {fmt.Sprintf("third %06d", n), v}})
		}
		for _, doc := range [][]byte{outer(nil), outer(nil), outer(inner), outer(inner)} {
			want, err := jsonb.Append(nil, doc)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := p.Append(nil, doc); err != nil || string(got) != string(want) {
				t.Fatalf("got %s, %v\nwant %s", got, err, want)
			}
		}
	}
}

// What is refused stays refused when the names are known.
func TestPrinterRefusesWhatTheFunctionsRefuse(t *testing.T) {
	t.Parallel()
	nested := func(levels int) []byte {
		var v any
		for range levels {
			v = object{{"one level", v}}
		}
		return document(v)
	}
	// Names that share their bytes are more text than the document has bytes.
	sharing := document(object{{strings.Repeat("n", 100), 0}})
	const names = 30
	one := sharing[1:]
	many := make([]byte, 4+7*names, 4+7*names+100)
	binary.LittleEndian.PutUint16(many, names)
	for i := range names {
		binary.LittleEndian.PutUint16(many[4+4*i:], uint16(len(many)))
		binary.LittleEndian.PutUint16(many[6+4*i:], 100)
		copy(many[4+4*names+3*i:], one[8:11])
	}
	many = append(many, one[11:]...)
	binary.LittleEndian.PutUint16(many[2:], uint16(len(many)))
	for name, doc := range map[string][]byte{"too deep": nested(jsonb.MaxDepth + 1), "shared names": append([]byte{0}, many...)} {
		var p jsonb.Printer
		for range 4 {
			if _, err := p.Append(nil, nested(jsonb.MaxDepth)); err != nil {
				t.Fatal(err)
			}
			if got, err := p.Append([]byte("kept"), doc); !errors.Is(err, jsonb.ErrMalformed) || string(got) != "kept" {
				t.Errorf("%s: %.50s, %v", name, got, err)
			}
			if _, err := jsonb.Append(nil, doc); !errors.Is(err, jsonb.ErrMalformed) {
				t.Errorf("%s, without a printer: %v", name, err)
			}
		}
	}
}

// An array of which all elements are one object ends when the document's length is used up, and not only where the memory for its text ends.
func TestPrinterDoesNotUnfoldSharedObjects(t *testing.T) {
	t.Parallel()
	one := object{{"the name", "some text that is a little longer than others"}}
	list := array{}
	for range 5000 {
		list = append(list, nil)
	}
	doc := document(append(list, one))
	last := doc[1+4+3*len(list):]
	for i := range list {
		copy(doc[1+4+3*i:], last[:3])
	}
	for name, appendText := range map[string]func(dst, doc []byte) ([]byte, error){"function": jsonb.Append, "printer": new(jsonb.Printer).Append} {
		for range 3 {
			_, _ = appendText(nil, document(array{one, one}))
		}
		buf := make([]byte, 1<<20)
		if _, err := appendText(buf[:0], doc); !errors.Is(err, jsonb.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
		if n := len(bytes.TrimRight(buf, "\x00")); n > 4*len(doc) {
			t.Errorf("%s: %d bytes were written of a document of %d", name, n, len(doc))
		}
	}
}

func TestPrinterDoesNotAllocate(t *testing.T) {
	var p jsonb.Printer
	buf := make([]byte, 0, 1<<16)
	n := 0
	next := func() {
		n++
		if _, err := p.Append(buf[:0], printed[n%len(printed)]); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 * len(printed) {
		next()
	}
	if n := testing.AllocsPerRun(100, next); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

var printed = [][]byte{document(order(1, 3)), document(order(2, 30)), document(object{{"something else", 1}})}

// The text of a document does not depend on what was printed before it, also where either is damaged.
func FuzzPrinter(f *testing.F) {
	for _, d := range samples(f) {
		f.Add(d.raw, d.raw)
	}
	f.Add(document(order(1, 2)), document(order(2, 3)))
	for at := range printed[0] {
		damaged := slices.Clone(printed[0])
		damaged[at] ^= 5
		f.Add(printed[0], damaged)
	}
	f.Fuzz(func(t *testing.T, before, doc []byte) {
		var p jsonb.Printer
		for range 3 {
			_, _ = p.Append(nil, before) // whatever it is
		}
		for range 3 {
			got, err := p.Append(nil, doc)
			want, wantErr := jsonb.Append(nil, doc)
			if string(got) != string(want) || (err == nil) != (wantErr == nil) || err != nil && !errors.Is(err, jsonb.ErrMalformed) {
				t.Fatalf("after %x:\n%x\n got %s, %v\nwant %s, %v", before, doc, got, err, want, wantErr)
			}
		}
	})
}
