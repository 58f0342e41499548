package checkpoint_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
)

var (
	serverA = gtid.UUID{0: 0xa, 15: 1}
	serverB = gtid.UUID{0: 0xb, 15: 2}
)

func run(server gtid.UUID, first, last int64) gtid.Range {
	return gtid.Range{UUID: server, First: first, Last: last}
}

// tx is transaction n of server A, committed at n microseconds.
func tx(n int64) checkpoint.Transaction {
	return checkpoint.Transaction{Ranges: []gtid.Range{run(serverA, n, n)}, CommitMicros: n, BinlogFile: "binlog.000001", BinlogPosition: uint64(100 * n)}
}

func setOf(ranges ...gtid.Range) *gtid.Set {
	s := new(gtid.Set)
	for _, r := range ranges {
		s.AddRange(r)
	}
	return s
}

func wantSet(t *testing.T, p checkpoint.Position, want *gtid.Set) {
	t.Helper()
	if !p.Set.Equal(want) {
		t.Errorf("position is %q, want %q", p.Set, want)
	}
}

// open begins transaction n with one record handed over, and closes it.
func open(tr *checkpoint.Tracker, n int64, records int) uint64 {
	seq := tr.Begin(tx(n))
	tr.Published(seq, records)
	tr.Close(seq)
	return seq
}

func TestTrackerAdvancesOnlyOverTheAcknowledgedPrefix(t *testing.T) {
	t.Parallel()
	tr := checkpoint.NewTracker(setOf(run(serverA, 1, 9)))
	first, second, third := open(tr, 10, 2), open(tr, 11, 1), open(tr, 12, 1)
	if a := tr.Acked([]uint64{third, second, first}); a.Transactions != 0 || a.InFlight != 3 || a.Records != 1 {
		t.Errorf("with one record of the first missing: %+v", a)
	}
	p := tr.Position()
	wantSet(t, p, setOf(run(serverA, 1, 9)))
	if p.Done || p.Generation != 0 || p.OldestCommitMicros != 10 {
		t.Errorf("before any advance: %+v", p)
	}
	if a := tr.Acked([]uint64{first}); a.Transactions != 3 || a.LastSeq != third || a.InFlight != 0 {
		t.Errorf("with all acknowledged: %+v", a)
	}
	p = tr.Position()
	wantSet(t, p, setOf(run(serverA, 1, 12)))
	if !p.Done || p.Generation == 0 || p.LastCommitMicros != 12 || p.BinlogPosition != 1200 || p.BinlogFile != "binlog.000001" {
		t.Errorf("after the advance: %+v", p)
	}
}

func TestTrackerWaitsForCloseOfAStreamedTransaction(t *testing.T) {
	t.Parallel()
	tr := checkpoint.NewTracker(new(gtid.Set))
	seq := tr.Begin(tx(1))
	for range 3 {
		tr.Published(seq, 1)
		tr.Acked([]uint64{seq})
	}
	wantSet(t, tr.Position(), new(gtid.Set))
	if a := tr.Close(seq); a.Transactions != 1 {
		t.Errorf("Close of a transaction whose records are all acknowledged gave %+v", a)
	}
	wantSet(t, tr.Position(), setOf(run(serverA, 1, 1)))
}

func TestTrackerMergesTransactionsWithoutRecords(t *testing.T) {
	t.Parallel()
	tr := checkpoint.NewTracker(new(gtid.Set))
	blocking := open(tr, 1, 1)
	for n := int64(2); n <= 1000; n += 2 {
		tr.Skip(tx(n))
		tr.Close(tr.Begin(tx(n + 1))) // rows that no rule wanted
	}
	p := tr.Position()
	if p.InFlight != 2 || p.OldestCommitMicros != 1 {
		t.Errorf("1000 transactions without records are %d entries, want 2 with the blocking one", p.InFlight)
	}
	if held := p.HeldBytes; held > 1000 {
		t.Errorf("they hold %d bytes", held)
	}
	wantSet(t, p, new(gtid.Set))
	if next := tr.Begin(tx(1002)); next != blocking+2 {
		t.Errorf("the transaction after them has number %d, want %d", next, blocking+2)
	}
	if a := tr.Acked([]uint64{blocking}); a.Transactions != 2 || a.LastSeq != blocking+1 {
		t.Errorf("after the blocking one: %+v", a)
	}
	p = tr.Position()
	wantSet(t, p, setOf(run(serverA, 1, 1001)))
	if p.LastCommitMicros != 1001 {
		t.Errorf("last commit %d, want that of the last merged one", p.LastCommitMicros)
	}
}

func TestTrackerMergesAlternatingServersIntoFewRanges(t *testing.T) {
	t.Parallel()
	tr := checkpoint.NewTracker(new(gtid.Set))
	blocking := open(tr, 1, 1)
	for n := int64(1); n <= 500; n++ {
		tr.Skip(checkpoint.Transaction{Ranges: []gtid.Range{run(serverA, n+1, n+1), run(serverB, n, n)}})
	}
	if held := tr.Position().HeldBytes; held > 1000 {
		t.Errorf("500 transactions of two servers hold %d bytes", held)
	}
	tr.Acked([]uint64{blocking})
	p := tr.Position()
	wantSet(t, p, setOf(run(serverA, 1, 501), run(serverB, 1, 500)))
	if p.HeldBytes != 0 {
		t.Errorf("an empty ring holds %d bytes", p.HeldBytes)
	}
}

func TestTrackerSnapshotsAreSharedUntilThePositionChanges(t *testing.T) {
	t.Parallel()
	tr := checkpoint.NewTracker(new(gtid.Set))
	tr.Skip(tx(1))
	before := tr.Position()
	pending := open(tr, 2, 1)
	if same := tr.Position(); same.Set != before.Set || same.Generation != before.Generation {
		t.Error("a position that did not change was cloned again or has a new generation")
	}
	tr.Acked([]uint64{pending})
	after := tr.Position()
	if after.Generation == before.Generation {
		t.Error("a new position has the old generation")
	}
	wantSet(t, before, setOf(run(serverA, 1, 1)))
	wantSet(t, after, setOf(run(serverA, 1, 2)))
}

func TestTrackerOwnCheckpointWritesAskForNoSave(t *testing.T) {
	t.Parallel()
	tr := checkpoint.NewTracker(new(gtid.Set))
	tr.SkipOwn(tx(1))
	p := tr.Position()
	wantSet(t, p, setOf(run(serverA, 1, 1)))
	if p.Generation != 0 {
		t.Error("the relay's own checkpoint transaction asks for a save, which would write the next one")
	}
	blocking := open(tr, 2, 1)
	tr.SkipOwn(tx(3))
	tr.Skip(tx(4))
	tr.SkipOwn(tx(5))
	g := tr.Position().Generation
	tr.Acked([]uint64{blocking})
	if p := tr.Position(); p.Generation < g+2 {
		t.Errorf("generation grew by %d; a foreign transaction merged with own ones must count", p.Generation-g)
	}
}

func TestTrackerLookupNamesTheTransaction(t *testing.T) {
	t.Parallel()
	tr := checkpoint.NewTracker(new(gtid.Set))
	ranges := []gtid.Range{run(serverA, 7, 7), run(serverB, 1, 1)}
	seq := tr.Begin(checkpoint.Transaction{Ranges: ranges, CommitMicros: 5})
	ranges[0].First, ranges[1].First = 99, 99
	got, ok := tr.Lookup(seq)
	if !ok || got.CommitMicros != 5 || !slices.Equal(got.Ranges, []gtid.Range{run(serverA, 7, 7), run(serverB, 1, 1)}) {
		t.Errorf("Lookup gave %+v, %t: Begin must copy the ranges", got, ok)
	}
	for _, other := range []uint64{0, seq + 1} {
		if _, ok := tr.Lookup(other); ok {
			t.Errorf("Lookup(%d) found something", other)
		}
	}
	tr.Close(seq)
	if _, ok := tr.Lookup(seq); ok {
		t.Error("Lookup found a transaction that is done")
	}
}

func TestTrackerPanicsWhereAnythingElseWouldLoseRows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, want string
		do         func(*checkpoint.Tracker)
	}{
		{"acknowledgement before hand-over", "too many", func(tr *checkpoint.Tracker) { tr.Acked([]uint64{tr.Begin(tx(1))}) }},
		{"acknowledgement twice", "too many", func(tr *checkpoint.Tracker) {
			open(tr, 1, 1)
			second := open(tr, 2, 1)
			tr.Acked([]uint64{second})
			tr.Acked([]uint64{second})
		}},
		{"unknown number", "not in flight", func(tr *checkpoint.Tracker) { tr.Acked([]uint64{1}) }},
		{"number done", "not in flight", func(tr *checkpoint.Tracker) {
			seq := open(tr, 1, 1)
			tr.Acked([]uint64{seq})
			tr.Published(seq, 1)
		}},
		{"record after Close", "announced", func(tr *checkpoint.Tracker) { tr.Published(open(tr, 1, 1), 1) }},
		{"closed twice", "closed twice", func(tr *checkpoint.Tracker) { tr.Close(open(tr, 1, 1)) }},
		{"begun while one is open", "is open", func(tr *checkpoint.Tracker) { tr.Begin(tx(1)); tr.Begin(tx(2)) }},
		{"no GTID", "without GTID", func(tr *checkpoint.Tracker) { tr.Begin(checkpoint.Transaction{}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if got := fmt.Sprint(recover()); !strings.Contains(got, c.want) {
					t.Errorf("panic %q, want one with %q", got, c.want)
				}
			}()
			c.do(checkpoint.NewTracker(new(gtid.Set)))
		})
	}
}

// model is the definition of the position, without a thought for cost: all
// transactions ever, in order.
type model struct {
	start *gtid.Set
	all   []*modelTx
}

type modelTx struct {
	checkpoint.Transaction
	seq         uint64
	outstanding int
	closed      bool
}

func (m *model) position() (set *gtid.Set, done, records int, oldest int64) {
	set = m.start.Clone()
	prefix := true
	for _, one := range m.all {
		records += one.outstanding
		if prefix = prefix && one.closed && one.outstanding == 0; prefix {
			done++
			for _, r := range one.Ranges {
				set.AddRange(r)
			}
		}
	}
	if done < len(m.all) {
		oldest = m.all[done].CommitMicros
	}
	return set, done, records, oldest
}

// TestTrackerAgreesWithTheModel drives random transactions with acknowledgements
// in random order and compares every position with the model's.
func TestTrackerAgreesWithTheModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 1))
			start := setOf(run(serverB, 1, 5))
			newRandomRun(r, start).drive(t, 400)
		})
	}
}

type randomRun struct {
	r       *rand.Rand
	tracker *checkpoint.Tracker
	model   model
	next    [2]int64
	// unacked has one element for each record handed over.
	unacked []*modelTx
}

func newRandomRun(r *rand.Rand, start *gtid.Set) *randomRun {
	return &randomRun{r: r, tracker: checkpoint.NewTracker(start), model: model{start: start}, next: [2]int64{1, 6}}
}

func (x *randomRun) drive(t *testing.T, steps int) {
	// Long stalls make the ring grow and wrap.
	stall := 0
	for step := range steps {
		if x.r.IntN(40) == 0 {
			stall = x.r.IntN(120)
		}
		if stall--; stall < 0 {
			x.ack(1 + x.r.IntN(8))
		}
		x.begin()
		x.compare(t, step)
	}
	for len(x.unacked) > 0 {
		x.ack(1 + x.r.IntN(8))
		x.compare(t, steps)
	}
}

func (x *randomRun) transaction() *modelTx {
	one := &modelTx{}
	for range 1 + x.r.IntN(2) {
		server := x.r.IntN(2)
		n := x.next[server]
		length := int64(x.r.IntN(3))
		if x.r.IntN(4) == 0 {
			n++ // a hole that must stay one
			x.next[server]++
		}
		x.next[server] += length + 1
		one.Ranges = append(one.Ranges, run([]gtid.UUID{serverA, serverB}[server], n, n+length))
	}
	one.CommitMicros = int64(len(x.model.all) + 1)
	x.model.all = append(x.model.all, one)
	return one
}

func (x *randomRun) begin() {
	one := x.transaction()
	if x.r.IntN(3) == 0 {
		one.closed = true
		x.tracker.Skip(one.Transaction)
		return
	}
	one.seq = x.tracker.Begin(one.Transaction)
	for range x.r.IntN(4) {
		n := 1 + x.r.IntN(2)
		x.tracker.Published(one.seq, n)
		one.outstanding += n
		for range n {
			x.unacked = append(x.unacked, one)
		}
		if x.r.IntN(3) == 0 {
			x.ack(1)
		}
	}
	one.closed = true
	x.tracker.Close(one.seq)
}

// ack acknowledges up to n records, in one call, chosen at random.
func (x *randomRun) ack(n int) {
	var seqs []uint64
	for range min(n, len(x.unacked)) {
		i := x.r.IntN(len(x.unacked))
		one := x.unacked[i]
		x.unacked = slices.Delete(x.unacked, i, i+1)
		one.outstanding--
		seqs = append(seqs, one.seq)
	}
	x.tracker.Acked(seqs)
}

func (x *randomRun) compare(t *testing.T, step int) {
	t.Helper()
	set, done, records, oldest := x.model.position()
	p := x.tracker.Position()
	inFlight := len(x.model.all) - done
	switch {
	case !p.Set.Equal(set):
		t.Fatalf("step %d: position %q, want %q", step, p.Set, set)
	case p.Records != records:
		t.Fatalf("step %d: %d records outstanding, want %d", step, p.Records, records)
	case p.OldestCommitMicros != oldest:
		t.Fatalf("step %d: oldest commit %d, want %d", step, p.OldestCommitMicros, oldest)
	case p.InFlight > inFlight || (p.InFlight == 0) != (inFlight == 0):
		t.Fatalf("step %d: %d entries for %d transactions in flight", step, p.InFlight, inFlight)
	case done > 0 && p.LastCommitMicros != x.model.all[done-1].CommitMicros:
		t.Fatalf("step %d: last commit %d, want %d", step, p.LastCommitMicros, x.model.all[done-1].CommitMicros)
	case inFlight == 0 && p.HeldBytes != 0:
		t.Fatalf("step %d: %d bytes held by an empty ring", step, p.HeldBytes)
	}
}

func TestTrackerTakesAcknowledgementsFromManyGoroutines(t *testing.T) {
	t.Parallel()
	const transactions, records, goroutines = 2000, 3, 4
	tr := checkpoint.NewTracker(new(gtid.Set))
	acks := make(chan uint64, 64)
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for seq := range acks {
				tr.Acked([]uint64{seq})
				tr.Position()
			}
		})
	}
	for n := range int64(transactions) {
		seq := tr.Begin(tx(n + 1))
		for range records {
			tr.Published(seq, 1)
			acks <- seq
		}
		tr.Close(seq)
	}
	close(acks)
	wg.Wait()
	p := tr.Position()
	wantSet(t, p, setOf(run(serverA, 1, transactions)))
	if p.InFlight != 0 || p.Records != 0 {
		t.Errorf("left in flight: %+v", p)
	}
}

// Allocation counts cannot be taken while other tests run, so no Parallel.
func TestTrackerAllocatesNothingPerTransaction(t *testing.T) {
	tr := checkpoint.NewTracker(new(gtid.Set))
	one := tx(0)
	seqs := make([]uint64, 0, 64)
	allocs := testing.AllocsPerRun(200, func() {
		seqs = seqs[:0]
		for range 32 {
			one.Ranges[0].First++
			one.Ranges[0].Last++
			seq := tr.Begin(one)
			tr.Published(seq, 2)
			tr.Close(seq)
			seqs = append(seqs, seq, seq)
		}
		tr.Acked(seqs)
	})
	if allocs != 0 {
		t.Errorf("%v allocations for 32 transactions", allocs)
	}
}

func BenchmarkTracker(b *testing.B) {
	const batch = 500
	tr := checkpoint.NewTracker(new(gtid.Set))
	one := tx(0)
	seqs := make([]uint64, 0, batch)
	b.ReportAllocs()
	for b.Loop() {
		seqs = seqs[:0]
		for range batch {
			one.Ranges[0].First++
			one.Ranges[0].Last++
			seq := tr.Begin(one)
			tr.Published(seq, 1)
			tr.Close(seq)
			seqs = append(seqs, seq)
		}
		tr.Acked(seqs)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/batch, "ns/transaction")
}

// TestForget takes lost transactions out when everything before is done, and keeps what comes behind under the same numbers.
func TestForget(t *testing.T) {
	u := gtid.UUID{1}
	one := func(n int64) checkpoint.Transaction {
		return checkpoint.Transaction{Ranges: []gtid.Range{{UUID: u, First: n, Last: n}}, CommitMicros: n}
	}
	set := func(first, last int64) *gtid.Set {
		s := new(gtid.Set)
		s.AddRange(gtid.Range{UUID: u, First: first, Last: last})
		return s
	}
	for _, gathered := range []bool{false, true} {
		tr := checkpoint.NewTracker(set(1, 3))
		if gathered {
			tr.Gather()
		}
		seq := tr.Begin(one(4))
		tr.Published(seq, 1)
		tr.Close(seq)
		tr.Skip(one(5))
		tr.Forget(set(3, 5)) // 3 was stored, 4 is in flight, 5 has no records
		again := tr.Begin(one(4))
		tr.Published(again, 1)
		tr.Close(again)
		if got := tr.Position().Set.String(); got != set(1, 3).String() {
			t.Errorf("gathered %v: position %s before the records of 4 are acknowledged", gathered, got)
		}
		if _, p := tr.Mark(); p.Set.String() != func() string { s := set(1, 2); s.AddSet(set(4, 4)); return s.String() }() {
			t.Errorf("gathered %v: the position after all is %s", gathered, p.Set)
		}
		tr.Acked([]uint64{seq})
		if got := tr.Position().Set.String(); got != set(1, 2).String() {
			t.Errorf("gathered %v: position %s after the lost ones were done", gathered, got)
		}
		tr.Acked([]uint64{again})
		if got, want := tr.Position().Set.String(), func() string { s := set(1, 2); s.AddSet(set(4, 4)); return s.String() }(); got != want {
			t.Errorf("gathered %v: position %s, want %s", gathered, got, want)
		}
	}
}
