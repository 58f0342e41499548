package relaytest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Kind names a fault.
type Kind string

// The kinds of faults. Each message, row or key counts at most once for a kind.
const (
	// Lost: a committed row was not received in its topic.
	Lost Kind = "lost"
	// Phantom: a message whose row was not committed, or that names no row.
	Phantom Kind = "phantom"
	// OutOfOrder: the first occurrence of a row comes after that of a later row of its key.
	OutOfOrder Kind = "out of order"
	// TwoPartitions: a key with messages in two partitions; it counts once.
	TwoPartitions Kind = "key on two partitions"
	// Replay: duplicates that are no replay after a restart, see the package comment.
	Replay Kind = "duplicate outside a replay"
	// WrongTopic: a message in another topic than its row belongs to.
	WrongTopic Kind = "wrong topic"
	// WrongKey: another key than the row's.
	WrongKey Kind = "wrong key"
	// WrongValue: another value than the row's, byte for byte.
	WrongValue Kind = "wrong value"
	// WrongHeaders: other headers than the row's, by name, value, null or order.
	WrongHeaders Kind = "wrong headers"
	// WrongPosition: the position header is missing, unreadable, differs on a redelivery or does not count the rows of its transaction.
	WrongPosition Kind = "wrong position header"
	// Oracle: the test told something impossible about the rows. Nothing can be concluded.
	Oracle Kind = "faulty oracle"
	// Stream: the test told the messages of a partition in another order than that of their offsets. Nothing can be concluded.
	Stream Kind = "faulty stream"
)

var kinds = []Kind{Oracle, Stream, Lost, Phantom, OutOfOrder, TwoPartitions, Replay, WrongTopic, WrongKey, WrongValue, WrongHeaders, WrongPosition}

// Finding is all faults of one kind.
type Finding struct {
	Kind     Kind
	Count    int
	Examples []string // the first ones
}

type faults struct {
	keep  int
	found map[Kind]*Finding
}

func (f *faults) add(kind Kind, format string, args ...any) {
	x := f.found[kind]
	if x == nil {
		x = &Finding{Kind: kind}
		f.found[kind] = x
	}
	x.Count++
	if len(x.Examples) < f.keep {
		x.Examples = append(x.Examples, fmt.Sprintf(format, args...))
	}
}

// Report is the account of a run.
type Report struct {
	// Committed rows, Received messages, Distinct rows among the messages, and Duplicates: messages of rows that came before.
	Committed, Received, Distinct, Duplicates int
	// Keys with committed rows, Partitions with messages.
	Keys, Partitions int
	// Replays is the highest number of jumps back in one partition.
	Replays int
	// Findings has one element for each kind of fault that occurred.
	Findings []Finding
}

// Count gives the number of faults of a kind.
func (r *Report) Count(kind Kind) int {
	for _, f := range r.Findings {
		if f.Kind == kind {
			return f.Count
		}
	}
	return 0
}

// Err is nil when the run kept the promise; otherwise its text is the whole account.
func (r *Report) Err() error {
	if len(r.Findings) == 0 {
		return nil
	}
	return reportError{r}
}

type reportError struct{ r *Report }

func (e reportError) Error() string { return e.r.String() }

// String gives the account: one line of figures, then each fault with its examples.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "committed %d, received %d, distinct %d, lost %d, out of order %d, duplicates %d, keys %d, on two partitions %d, phantoms %d, partitions %d, replays %d",
		r.Committed, r.Received, r.Distinct, r.Count(Lost), r.Count(OutOfOrder), r.Duplicates, r.Keys, r.Count(TwoPartitions), r.Count(Phantom), r.Partitions, r.Replays)
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "\n%s: %d", f.Kind, f.Count)
		for _, e := range f.Examples {
			b.WriteString("\n  " + e)
		}
		if len(f.Examples) < f.Count {
			b.WriteString("\n  …")
		}
	}
	return b.String()
}

// Report judges what was told so far. It changes nothing, so it may be called again after more messages.
func (v *Validator) Report() *Report {
	r := &Report{Committed: len(v.rows), Received: v.received, Duplicates: v.duplicates, Partitions: len(v.byPlace)}
	for _, k := range v.states {
		if k.rows > 0 {
			r.Keys++
		}
	}
	end := faults{keep: v.o.Examples, found: make(map[Kind]*Finding)}
	for kind, f := range v.faults.found {
		end.found[kind] = &Finding{Kind: kind, Count: f.Count, Examples: slices.Clone(f.Examples)}
	}
	for i := range v.rows {
		if v.rows[i].seen > 0 {
			r.Distinct++
			continue
		}
		key := "no key"
		if k := v.rows[i].key; k != noKey {
			key = fmt.Sprintf("row %d of key %q", v.rows[i].rank, v.states[k].text)
		}
		end.add(Lost, "id %q, %s", v.id(uint32(i)), key)
	}
	for p, s := range v.byPlace {
		r.Replays = max(r.Replays, s.rewinds)
		if s.next < len(s.first) && !v.o.Unfinished && !v.anyDuplicates(s) {
			end.add(Replay, "partition %d ends in a replay before id %q is repeated", p.partition, v.id(s.first[s.next]))
		}
	}
	v.checkCounting(&end)
	for _, kind := range kinds {
		if f := end.found[kind]; f != nil {
			r.Findings = append(r.Findings, *f)
		}
	}
	return r
}

// checkCounting judges the numbers of the position headers: within one transaction each row has its own, they run from 0 without a gap, and
// they rise with the order of each key.
func (v *Validator) checkCounting(end *faults) {
	var order []uint32
	for i := range v.rows {
		if v.rows[i].gtid != noGTID {
			order = append(order, uint32(i))
		}
	}
	slices.SortFunc(order, func(a, b uint32) int {
		x, y := &v.rows[a], &v.rows[b]
		return cmp.Or(cmp.Compare(x.gtid, y.gtid), cmp.Compare(x.n, y.n))
	})
	ranks := map[uint32]uint32{} // of the transaction at hand, by key
	for i, row := range order {
		r := &v.rows[row]
		sameAsBefore := i > 0 && v.rows[order[i-1]].gtid == r.gtid
		if !sameAsBefore {
			clear(ranks)
		}
		switch {
		case sameAsBefore && v.rows[order[i-1]].n == r.n:
			end.add(WrongPosition, "ids %q and %q have the same position, number %d", v.id(order[i-1]), v.id(row), r.n)
		case v.o.PartialTransactions:
		case sameAsBefore && v.rows[order[i-1]].n+1 != r.n:
			end.add(WrongPosition, "id %q is number %d of its transaction, and the one before it is %d", v.id(row), r.n, v.rows[order[i-1]].n)
		case !sameAsBefore && r.n != 0:
			end.add(WrongPosition, "id %q is number %d of its transaction, and there is none before it", v.id(row), r.n)
		}
		if r.key == noKey {
			continue
		}
		if before, ok := ranks[r.key]; ok && before > r.rank {
			end.add(WrongPosition, "id %q is number %d of its transaction and stands behind a later row of its key", v.id(row), r.n)
		}
		ranks[r.key] = r.rank
	}
}
