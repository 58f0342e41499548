package gtid_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"outbox-relay/binlog/gtid"
)

// model is the plainest possible set: a map of single GTIDs.
type model map[gtid.GTID]bool

func (m model) clone() model {
	c := model{}
	for g := range m {
		c[g] = true
	}
	return c
}

const modelMax = 24 // numbers 1 … modelMax, small so that ranges meet often

var modelKeys = []gtid.GTID{
	{UUID: gtid.UUID{1}}, {UUID: gtid.UUID{1}, Tag: "a"}, {UUID: gtid.UUID{1}, Tag: "b"}, {UUID: gtid.UUID{2}}, {UUID: gtid.UUID{3}, Tag: "a"},
}

func randomRange(r *rand.Rand) gtid.Range {
	k := modelKeys[r.IntN(len(modelKeys))]
	first := 1 + r.Int64N(modelMax)
	last := min(first+r.Int64N(4), modelMax)
	return gtid.Range{UUID: k.UUID, Tag: k.Tag, First: first, Last: last}
}

func (m model) put(r gtid.Range, in bool) {
	for n := r.First; n <= r.Last; n++ {
		g := gtid.GTID{UUID: r.UUID, Tag: r.Tag, Number: n}
		if in {
			m[g] = true
		} else {
			delete(m, g)
		}
	}
}

// randomPair gives the same random set in both forms.
func randomPair(r *rand.Rand) (*gtid.Set, model) {
	s, m := &gtid.Set{}, model{}
	for range r.IntN(40) {
		x := randomRange(r)
		s.AddRange(x)
		m.put(x, true)
	}
	return s, m
}

func check(t *testing.T, s *gtid.Set, m model, after string) {
	t.Helper()
	seen := 0
	var prev gtid.Range
	for x := range s.Ranges() {
		if x.First > x.Last || x.UUID == prev.UUID && x.Tag == prev.Tag && x.First <= prev.Last+1 {
			t.Fatalf("after %s: range %+v follows %+v", after, x, prev)
		}
		if c := x.UUID.Compare(prev.UUID); c < 0 || c == 0 && x.Tag < prev.Tag {
			t.Fatalf("after %s: range %+v is out of order", after, x)
		}
		for n := x.First; n <= x.Last; n++ {
			if !m[gtid.GTID{UUID: x.UUID, Tag: x.Tag, Number: n}] {
				t.Fatalf("after %s: %d of %+v is not in the model", after, n, x)
			}
			seen++
		}
		prev = x
	}
	if seen != len(m) || s.Count() != uint64(len(m)) || s.IsEmpty() != (len(m) == 0) {
		t.Fatalf("after %s: %d numbers, count %d, model has %d", after, seen, s.Count(), len(m))
	}
	for _, k := range modelKeys {
		for n := int64(1); n <= modelMax; n++ {
			k.Number = n
			if s.Contains(k) != m[k] {
				t.Fatalf("after %s: Contains(%v) = %v", after, k, s.Contains(k))
			}
		}
	}
}

func TestSetAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		s, m := &gtid.Set{}, model{}
		for range 60 {
			x := randomRange(r)
			g := gtid.GTID{UUID: x.UUID, Tag: x.Tag, Number: x.First}
			one := gtid.Range{UUID: x.UUID, Tag: x.Tag, First: x.First, Last: x.First}
			switch r.IntN(8) {
			case 0, 1, 2:
				s.Add(g)
				m.put(one, true)
				check(t, s, m, "Add")
			case 3:
				s.AddRange(x)
				m.put(x, true)
				check(t, s, m, "AddRange")
			case 4:
				s.Remove(g)
				m.put(one, false)
				check(t, s, m, "Remove")
			case 5:
				s.RemoveRange(x)
				m.put(x, false)
				check(t, s, m, "RemoveRange")
			case 6:
				o, om := randomPair(r)
				s.AddSet(o)
				for g := range om {
					m[g] = true
				}
				check(t, s, m, "AddSet")
				check(t, o, om, "AddSet of it")
			case 7:
				o, om := randomPair(r)
				s.Subtract(o)
				for g := range om {
					delete(m, g)
				}
				check(t, s, m, "Subtract")
				check(t, o, om, "Subtract of it")
			}
		}
	}
}

func TestRelationsAgainstModel(t *testing.T) {
	t.Parallel()
	subset := 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		a, am := randomPair(r)
		b, bm := randomPair(r)
		if r.IntN(2) == 0 { // make subsets likely
			a.AddSet(b)
			for g := range bm {
				am[g] = true
			}
			x := randomRange(r)
			b.AddRange(x)
			bm.put(x, true)
		}
		inside := true
		for g := range bm {
			inside = inside && am[g]
		}
		if inside {
			subset++
		}
		if a.ContainsSet(b) != inside {
			t.Fatalf("(%s).ContainsSet(%s) = %v", a, b, !inside)
		}
		dm := am.clone()
		for g := range bm {
			delete(dm, g)
		}
		check(t, gtid.Minus(a, b), dm, "Minus")
		if a.Equal(b) != (len(dm) == 0 && inside) {
			t.Fatalf("(%s).Equal(%s) = %v", a, b, a.Equal(b))
		}
		text, err := gtid.ParseSet(a.String())
		if err != nil || !text.Equal(a) {
			t.Fatalf("text of %s: %v, %v", a, text, err)
		}
		decoded, err := gtid.Decode(a.Encode(nil))
		if err != nil || !decoded.Equal(a) {
			t.Fatalf("encoding of %s: %v, %v", a, decoded, err)
		}
		if !slices.Equal(decoded.Encode(nil), a.Encode(nil)) {
			t.Fatalf("encoding of %s is not canonical", a)
		}
	}
	if subset < 100 {
		t.Fatalf("only %d of 2000 pairs were subsets: the test proves little", subset)
	}
}
