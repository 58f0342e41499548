package checkpoint_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
)

// A mark's position is what Acked gives once all that was announced before it is acknowledged, whatever is announced meanwhile.
func TestMarkIsThePositionAfterAllThatWasAnnounced(t *testing.T) {
	t.Parallel()
	tr := checkpoint.NewTracker(setOf(run(serverA, 1, 9)))
	open(tr, 10, 3)
	tr.Skip(tx(11))
	begun := tr.Begin(tx(12))
	tr.Published(begun, 5)
	m, p := tr.Mark()
	wantSet(t, p, setOf(run(serverA, 1, 11)))
	if !p.Done || p.LastCommitMicros != 11 || p.BinlogPosition != 1100 || p.Generation == 0 {
		t.Errorf("the mark's position is %+v", p)
	}
	wantSet(t, tr.Position(), setOf(run(serverA, 1, 9)))
	tr.Published(begun, 2)
	tr.Close(begun)
	open(tr, 13, 1)
	if a := tr.AckedThrough(m); a.Transactions != 2 || a.Records != 3 || a.InFlight != 2 {
		t.Errorf("through the mark: %+v", a)
	}
	wantSet(t, tr.Position(), setOf(run(serverA, 1, 11)))
	m, p = tr.Mark()
	wantSet(t, p, setOf(run(serverA, 1, 13)))
	tr.AckedThrough(m)
	wantSet(t, tr.Position(), p.Set)
	if got := tr.Position(); got.Generation != p.Generation || got.Records != 0 || got.InFlight != 0 {
		t.Errorf("at the end: %+v, promised %+v", got, p)
	}
	m, again := tr.Mark()
	wantSet(t, again, p.Set)
	if a := tr.AckedThrough(m); a.Transactions != 0 {
		t.Errorf("through an empty mark: %+v", a)
	}
}

func TestMarksInARandomStream(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		tr := checkpoint.NewTracker(new(gtid.Set))
		var done, want []int64
		tr.Observe(func(at int64) { done = append(done, at) })
		if seed%2 == 0 {
			tr.Gather()
		}
		var seq uint64
		isOpen := false
		n := int64(0)
		for range 300 {
			switch {
			case isOpen && r.IntN(3) > 0:
				tr.Published(seq, 1+r.IntN(3))
				if len(want) == 0 || want[len(want)-1] != n {
					want = append(want, n)
				}
			case isOpen:
				tr.Close(seq)
				isOpen = false
			case r.IntN(3) == 0:
				n++
				tr.Skip(tx(n))
			case r.IntN(4) == 0:
				m, p := tr.Mark()
				if n > 0 && !p.Set.Equal(setOf(run(serverA, 1, n))) {
					t.Fatalf("seed %d: the mark is at %s, %d is closed", seed, p.Set, n)
				}
				tr.AckedThrough(m)
				if seed%2 == 0 && tr.InFlight() > 2 {
					t.Fatalf("seed %d: %d entries between two marks", seed, tr.InFlight())
				}
				if got := tr.Position(); !got.Set.Equal(p.Set) || got.Records != 0 || got.Generation != p.Generation {
					t.Fatalf("seed %d: %+v, promised %+v", seed, got, p)
				}
			default:
				n++
				seq, isOpen = tr.Begin(tx(n)), true
			}
		}
		if isOpen {
			tr.Close(seq)
		}
		m, _ := tr.Mark()
		tr.AckedThrough(m)
		if !slices.Equal(done, want) {
			t.Fatalf("seed %d: transactions %v were told to be done, want %v", seed, done, want)
		}
	}
}
