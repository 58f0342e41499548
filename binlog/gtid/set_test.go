package gtid_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"outbox-relay/binlog/gtid"
)

func mustSet(t testing.TB, text string) *gtid.Set {
	t.Helper()
	s, err := gtid.ParseSet(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestParseSet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{" \n ", ""},
		{uuidA + ":1", uuidA + ":1"},
		{uuidA + ":1-5:8,\n" + uuidB + ":3", uuidA + ":1-5:8," + uuidB + ":3"},
		{uuidB + ":3,\r\n\t" + strings.ToUpper(uuidA) + " : 1 - 5 : 8 ", uuidA + ":1-5:8," + uuidB + ":3"},
		{uuidA + ":1-5:3-9:10:12", uuidA + ":1-10:12"},
		{uuidA + ":7:5:6:1," + uuidA + ":2", uuidA + ":1-2:5-7"},
		{uuidA + ":1-5:8:tagA:1-3:tagB:7", uuidA + ":1-5:8:taga:1-3:tagb:7"},
		{uuidA + ":tagb:7:taga:1:tagb:8," + uuidA + ":1", uuidA + ":1:taga:1:tagb:7-8"},
		{uuidA + ":1-9223372036854775806", uuidA + ":1-9223372036854775806"},
		{uuidA + ":5-5", uuidA + ":5"},
	} {
		s, err := gtid.ParseSet(c.in)
		if err != nil {
			t.Errorf("ParseSet(%q): %v", c.in, err)
			continue
		}
		if got := s.String(); got != c.want {
			t.Errorf("ParseSet(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestParseSetNamesTheOffendingPart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, part string }{
		{uuidA, uuidA},
		{uuidA + ":", `""`},
		{uuidA + ":0", `"0"`},
		{uuidA + ":1-", `""`},
		{uuidA + ":5-3", `"5-3"`},
		{uuidA + ":1-2-3", `"2-3"`},
		{uuidA + ":1x", `"1x"`},
		{uuidA + ":1-9223372036854775807", `"9223372036854775807"`},
		{uuidA + ":tag", `"tag"`},
		{uuidA + ":1:tag", `"tag"`},
		{uuidA + ":ta:tb:1", `"ta"`},
		{uuidA + ":t-a:1", `"t-a"`},
		{uuidA + ":1,,", `""`},
		{uuidA + ":1,nonsense:3", `"nonsense"`},
		{"*", `"*"`},
	} {
		_, err := gtid.ParseSet(c.in)
		if !errors.Is(err, gtid.ErrMalformed) {
			t.Errorf("ParseSet(%q) = %v, want ErrMalformed", c.in, err)
			continue
		}
		if !strings.Contains(err.Error(), c.part) {
			t.Errorf("ParseSet(%q): error %q does not name %s", c.in, err, c.part)
		}
	}
}

func TestSetAlgebra(t *testing.T) {
	t.Parallel()
	a := mustSet(t, uuidA+":1-10:20-30:tag:1-5,"+uuidB+":1-3")
	b := mustSet(t, uuidA+":5:10-25:tag:1-5,"+uuidB+":9")
	if got, want := gtid.Minus(a, b).String(), uuidA+":1-4:6-9:26-30,"+uuidB+":1-3"; got != want {
		t.Errorf("a minus b = %s, want %s", got, want)
	}
	if got, want := gtid.Minus(b, a).String(), uuidA+":11-19,"+uuidB+":9"; got != want {
		t.Errorf("b minus a = %s, want %s", got, want)
	}
	sum := a.Clone()
	sum.AddSet(b)
	if got, want := sum.String(), uuidA+":1-30:tag:1-5,"+uuidB+":1-3:9"; got != want {
		t.Errorf("a plus b = %s, want %s", got, want)
	}
	if !sum.ContainsSet(a) || !sum.ContainsSet(b) || a.ContainsSet(b) || a.ContainsSet(sum) || !a.ContainsSet(&gtid.Set{}) {
		t.Error("ContainsSet is wrong")
	}
	if got := a.String(); got != uuidA+":1-10:20-30:tag:1-5,"+uuidB+":1-3" {
		t.Errorf("a was changed: %s", got)
	}
	if a.Count() != 10+11+5+3 || !a.HasTags() || b.Equal(a) || !a.Equal(a.Clone()) {
		t.Error("Count, HasTags or Equal is wrong")
	}
	a.AddSet(a)
	a.Subtract(a)
	if !a.IsEmpty() || a.HasTags() || a.Count() != 0 || !a.Equal(&gtid.Set{}) {
		t.Errorf("a minus a = %s", a)
	}
}

func TestTagsAreSetsOfTheirOwn(t *testing.T) {
	t.Parallel()
	var s gtid.Set
	u := mustUUID(t, uuidA)
	s.Add(gtid.GTID{UUID: u, Tag: "zz", Number: 40})
	s.Add(gtid.GTID{UUID: u, Number: 41})
	s.Add(gtid.GTID{UUID: u, Tag: "zz", Number: 41})
	if got, want := s.String(), uuidA+":41:zz:40-41"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if s.Contains(gtid.GTID{UUID: u, Number: 40}) || s.Contains(gtid.GTID{UUID: u, Tag: "z", Number: 40}) {
		t.Error("a tagged number is found without its tag")
	}
}

func TestCloneSharesNoMemory(t *testing.T) {
	t.Parallel()
	a := mustSet(t, uuidA+":1-3:5:tag:1,"+uuidB+":1")
	before := a.String()
	c := a.Clone()
	u := mustUUID(t, uuidA)
	c.Add(gtid.GTID{UUID: u, Number: 4})
	c.Add(gtid.GTID{UUID: u, Number: 7})
	c.Remove(gtid.GTID{UUID: u, Number: 1})
	c.Remove(gtid.GTID{UUID: u, Tag: "tag", Number: 1})
	c.Add(gtid.GTID{UUID: mustUUID(t, uuidB), Number: 2})
	if a.String() != before {
		t.Errorf("changing the clone changed the original: %s", a)
	}
	if got, want := c.String(), uuidA+":2-5:7,"+uuidB+":1-2"; got != want {
		t.Errorf("clone = %s, want %s", got, want)
	}
}

func TestAddRefusesImpossibleNumbers(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{0, -1, gtid.MaxNumber + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Add of number %d went through", n)
				}
			}()
			s := mustSet(t, uuidA+":9223372036854775806")
			s.Add(gtid.GTID{UUID: mustUUID(t, uuidA), Number: n})
		}()
	}
}

func TestCountSaturates(t *testing.T) {
	t.Parallel()
	s := mustSet(t, uuidA+":1-9223372036854775806,"+uuidB+":1-9223372036854775806:t:1-9223372036854775806")
	if got := s.Count(); got != 1<<64-1 {
		t.Errorf("Count = %d", got)
	}
}

func TestJSONIsAString(t *testing.T) {
	t.Parallel()
	type doc struct {
		Set gtid.Set  `json:"set"`
		Ref *gtid.Set `json:"ref"`
	}
	in := doc{Set: *mustSet(t, uuidA+":1-5"), Ref: mustSet(t, uuidB+":t:7")}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"set":"` + uuidA + `:1-5","ref":"` + uuidB + `:t:7"}`; string(b) != want {
		t.Errorf("got %s, want %s", b, want)
	}
	var out doc
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if !out.Set.Equal(&in.Set) || !out.Ref.Equal(in.Ref) {
		t.Errorf("read back %v and %v", &out.Set, out.Ref)
	}
	if err := json.Unmarshal([]byte(`{"set":"x"}`), &out); err == nil || !out.Set.Equal(&in.Set) {
		t.Errorf("a bad text gave error %v and set %v", err, &out.Set)
	}
}

func TestCommonAddDoesNotAllocate(t *testing.T) {
	s := mustSet(t, uuidA+":1-5:9,"+uuidB+":3")
	g := gtid.GTID{UUID: mustUUID(t, uuidA), Number: 10}
	if n := testing.AllocsPerRun(1000, func() { s.Add(g); g.Number++ }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	buf := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() { buf = s.AppendText(buf[:0]); buf = s.Encode(buf[:0]) }); n != 0 {
		t.Errorf("text and encoding: %v allocations", n)
	}
}

func BenchmarkSetAdd(b *testing.B) {
	u, v := gtid.UUID{1}, gtid.UUID{2}
	b.Run("next", func(b *testing.B) {
		b.ReportAllocs()
		var s gtid.Set
		for n := int64(1); b.Loop(); n++ {
			s.Add(gtid.GTID{UUID: u, Number: n})
		}
	})
	b.Run("next, 10,000 holes", func(b *testing.B) {
		b.ReportAllocs()
		s := holes(u, 10_000)
		for n := int64(30_000); b.Loop(); n++ {
			s.Add(gtid.GTID{UUID: u, Number: n})
		}
	})
	b.Run("two servers in turn, 10,000 holes", func(b *testing.B) {
		b.ReportAllocs()
		s := holes(u, 10_000)
		for n := int64(30_000); b.Loop(); n++ {
			s.Add(gtid.GTID{UUID: u, Number: n})
			s.Add(gtid.GTID{UUID: v, Number: n})
		}
	})
	b.Run("open and close a hole in the middle of 10,000", func(b *testing.B) {
		b.ReportAllocs()
		s := holes(u, 10_000)
		for b.Loop() {
			s.Remove(gtid.GTID{UUID: u, Number: 10_001})
			s.Add(gtid.GTID{UUID: u, Number: 10_001})
		}
	})
	b.Run("clone, 10,000 holes", func(b *testing.B) {
		b.ReportAllocs()
		s := holes(u, 10_000)
		for b.Loop() {
			s.Clone()
		}
	})
}

// holes gives the odd numbers below 2n.
func holes(u gtid.UUID, n int64) *gtid.Set {
	s := &gtid.Set{}
	for i := range n {
		s.Add(gtid.GTID{UUID: u, Number: 2*i + 1})
	}
	return s
}
