package checkpoint

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"outbox-relay/binlog/gtid"
)

// Transaction is what the Tracker keeps of a transaction.
type Transaction struct {
	// Ranges are the GTIDs that become part of the position with it: one in
	// most cases; those of XA PREPARE and XA COMMIT for an XA transaction; a
	// run of them where the caller merged transactions without records.
	Ranges []gtid.Range
	// CommitMicros is the commit time in microseconds since 1970.
	CommitMicros int64
	// BinlogFile and BinlogPosition are where it ends in the source's binlog.
	BinlogFile     string
	BinlogPosition uint64
	// Last is the GTID of what committed at CommitMicros; zero where that is not
	// known.
	Last gtid.GTID
}

// Tracker finds the contiguous prefix of transactions of which every record is
// acknowledged. A position therefore never contains a transaction before all
// its records, nor one that lies behind an unacknowledged one.
//
// A transaction is opened by Begin, each of its records is announced by
// Published before it is handed over, Close says that there are no more, and
// Acked takes the acknowledgements in any order. A transaction is done once it
// is closed and nothing of it is outstanding.
//
// All methods are safe for concurrent use and none blocks beyond a short lock:
// acknowledgements arrive on the producer's goroutines. Begin, Published, Close
// and Skip belong to one goroutine that goes through the binlog: it opens a
// transaction only after it closed the one before. A call that
// breaks the contract (an acknowledgement too many, a number never given) panics:
// it would put a transaction into the checkpoint that was not published.
type Tracker struct {
	mu sync.Mutex

	// ring holds the transactions in flight: entry i of them, for
	// 0 <= i < count, is ring[(head+i) & (len(ring)-1)] and has the sequence
	// number first+i. len(ring) is a power of two.
	ring  []entry
	head  int
	count int
	first uint64

	// set is the start position and everything that left the ring.
	set gtid.Set
	// last describes the transaction that left the ring last, if placed.
	last   place
	placed bool
	// rows is the progress of the snapshot; nil without.
	rows *Snapshot
	// generation counts the changes of set that are worth a save.
	generation uint64
	// snapshot is a clone of set, nil once set has changed since. It is
	// shared with callers and never written to.
	snapshot *gtid.Set

	// records is the sum of outstanding over the ring.
	records int
	// extra is the sum of len(more) over the ring.
	extra int

	// gather merges what is closed between two marks; marked is the newest
	// transaction before the last mark.
	gather bool
	marked uint64

	// observe is told about done transactions with records; may be nil.
	observe func(commitMicros int64)
}

// entry is a transaction in flight. The entry at the head of the ring is never
// done: it would have left.
type entry struct {
	// one is the first range, kept here so that the usual transaction needs no
	// memory of its own; more are the others.
	one  gtid.Range
	more []gtid.Range
	// outstanding = published - acknowledged >= 0.
	outstanding int
	// published is true once a record was announced. An entry that is closed
	// without is empty; two empty entries are never neighbours.
	published bool
	// closed is false in the last entry of the ring at most.
	closed bool
	// own marks a transaction that only wrote the relay's checkpoint.
	own bool
	// lost are GTIDs that the set loses with it; such an entry stands alone.
	lost *gtid.Set
	// selected marks rows of a snapshot, which have no GTID: one and more say nothing, and at is when they were selected. rows is the progress
	// when they are done, nil before Read.
	selected bool
	rows     *Snapshot
	at       place
	// times are the commit times of gathered transactions with records.
	times []int64
}

// oldest is the commit time of the first transaction of the entry.
func (e *entry) oldest() int64 {
	if len(e.times) > 0 {
		return e.times[0]
	}
	return e.at.commitMicros
}

// place is when and where a transaction ended.
type place struct {
	commitMicros int64
	file         string
	position     uint64
	last         gtid.GTID
}

func (e *entry) done() bool  { return e.closed && e.outstanding == 0 }
func (e *entry) empty() bool { return e.closed && !e.published && e.lost == nil && !e.selected }

const (
	entryBytes = int(unsafe.Sizeof(entry{}))
	rangeBytes = int(unsafe.Sizeof(gtid.Range{}))
	minRing    = 64
)

// Advance says what a call added to the done prefix.
type Advance struct {
	// Transactions and merged runs of them that left the ring.
	Transactions int
	// LastSeq is the sequence number of the last one; it has a meaning only
	// if Transactions > 0.
	LastSeq uint64
	// InFlight is the number of transactions left in the ring.
	InFlight int
	// Records is the number of records left outstanding.
	Records int
}

// Position is a snapshot of the Tracker.
type Position struct {
	// Set holds everything up to the first transaction in flight. It is shared
	// between snapshots and must not be changed.
	Set *gtid.Set
	// Generation grows whenever Set changed for a reason that is worth a save.
	// It is 0 for the start position.
	Generation uint64
	// Snapshot is the progress of the snapshot; nil without.
	Snapshot *Snapshot
	// Done is true once a transaction left the ring; the next four describe
	// the last one.
	Done             bool
	LastCommitMicros int64
	BinlogFile       string
	BinlogPosition   uint64
	Last             gtid.GTID
	// InFlight is the number of transactions in the ring, a run without
	// records counted as one.
	InFlight int
	// OldestCommitMicros is the commit time of the first transaction in
	// flight; it has a meaning only if InFlight > 0.
	OldestCommitMicros int64
	// Records is the number of records announced and not acknowledged.
	Records int
	// HeldBytes estimates the memory of what is in flight. The ring itself may
	// be twice as large as it ever was.
	HeldBytes int
}

// NewTracker returns a Tracker that begins after start. It keeps a copy.
func NewTracker(start *gtid.Set) *Tracker {
	return &Tracker{set: *start.Clone(), first: 1, ring: make([]entry, minRing)}
}

// Observe sets f to be called with the commit time of each transaction with
// records that is done, in their order. It is called under the Tracker's lock:
// it must be short and must not call the Tracker. Call Observe before anything
// else.
func (t *Tracker) Observe(f func(commitMicros int64)) { t.observe = f }

// Gather lets the transactions between two marks share one entry, for a caller
// that acknowledges by AckedThrough: however many there are, the ring stays
// short. Sequence numbers are given again then. Call it before anything else.
func (t *Tracker) Gather() { t.gather = true }

// Begin opens a transaction and returns its sequence number: 1, 2, 3 and so on
// in the order of calls. It copies tx.Ranges, which must not be empty. The
// number of a transaction closed without records may be given again.
func (t *Tracker) Begin(tx Transaction) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begin(tx, false)
}

func (t *Tracker) begin(tx Transaction, own bool) uint64 {
	if len(tx.Ranges) == 0 {
		panic("checkpoint: a transaction without GTID")
	}
	e := t.push()
	*e = entry{one: tx.Ranges[0], own: own, at: place{tx.CommitMicros, tx.BinlogFile, tx.BinlogPosition, tx.Last}}
	if len(tx.Ranges) > 1 {
		e.more = slices.Clone(tx.Ranges[1:])
		t.extra += len(e.more)
	}
	return t.first + uint64(t.count) - 1
}

// Snapshot sets the progress that the position begins with. Call it before anything else.
func (t *Tracker) Snapshot(s *Snapshot) { t.rows = s }

// BeginRows opens rows of a snapshot that were selected at a time, in microseconds since 1970, as Begin opens a transaction. They are closed by Read.
func (t *Tracker) BeginRows(micros int64) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	*t.push() = entry{selected: true, at: place{commitMicros: micros}}
	return t.first + uint64(t.count) - 1
}

// Read closes what BeginRows opened: once its records are acknowledged, the progress of the snapshot is s. It keeps s.
func (t *Tracker) Read(seq uint64, s *Snapshot) Advance {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.entry(seq).rows = s
	t.close(seq)
	return t.advance()
}

// push makes room for one more entry at the end of the ring.
func (t *Tracker) push() *entry {
	if t.count > 0 && !t.entry(t.first+uint64(t.count)-1).closed {
		panic("checkpoint: a transaction begins while the one before is open")
	}
	if t.count == len(t.ring) {
		t.grow()
	}
	t.count++
	return t.entry(t.first + uint64(t.count) - 1)
}

// Published announces n records of the open transaction seq. Call it before they
// are handed over: an acknowledgement can arrive before the hand-over returns.
func (t *Tracker) Published(seq uint64, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entry(seq)
	if e.closed || n < 1 {
		panic(fmt.Sprintf("checkpoint: %d records of transaction %d announced, closed=%t", n, seq, e.closed))
	}
	e.published = true
	e.outstanding += n
	t.records += n
}

// Close says that all records of seq were announced. Without any, the
// transaction may be merged into the one before, and seq must not be used again.
func (t *Tracker) Close(seq uint64) Advance {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.close(seq)
	return t.advance()
}

func (t *Tracker) close(seq uint64) {
	e := t.entry(seq)
	if e.closed {
		panic(fmt.Sprintf("checkpoint: transaction %d closed twice", seq))
	}
	e.closed = true
	if t.count == 1 {
		return
	}
	before := t.entry(seq - 1)
	if seq-1 > t.marked && before.lost == nil && before.selected == e.selected && (t.gather || e.empty() && before.empty()) {
		t.merge(before, e)
	}
}

// merge appends the entry at the end of the ring to the one before it.
func (t *Tracker) merge(to, from *entry) {
	if to.published && len(to.times) == 0 {
		to.times = append(to.times, to.at.commitMicros)
	}
	if from.published {
		to.times = append(to.times, from.at.commitMicros)
		to.published = true
		to.outstanding += from.outstanding
	}
	if to.rows = from.rows; !to.selected {
		t.extra -= len(to.more) + len(from.more)
		to.add(from.one)
		for _, r := range from.more {
			to.add(r)
		}
		t.extra += len(to.more)
	}
	to.at = from.at
	to.own = to.own && from.own
	*from = entry{}
	t.count--
}

// add puts r into the entry's ranges. Binlogs of servers with several sources
// alternate between few UUIDs, so the newest ranges are tried for a neighbour.
func (e *entry) add(r gtid.Range) {
	if extend(&e.one, r) {
		return
	}
	for i := len(e.more) - 1; i >= max(0, len(e.more)-8); i-- {
		if extend(&e.more[i], r) {
			return
		}
	}
	e.more = append(e.more, r)
}

// extend lengthens to by r if r begins right after it.
func extend(to *gtid.Range, r gtid.Range) bool {
	if to.Last+1 != r.First || to.UUID != r.UUID || to.Tag != r.Tag {
		return false
	}
	to.Last = r.Last
	return true
}

// Skip takes a transaction without records. Consecutive ones share one entry.
func (t *Tracker) Skip(tx Transaction) Advance { return t.skip(tx, false) }

// SkipOwn takes a transaction that only wrote the relay's own checkpoint. It
// advances the position without a new generation: saving because of it would
// write the next such transaction, for ever.
func (t *Tracker) SkipOwn(tx Transaction) Advance { return t.skip(tx, true) }

func (t *Tracker) skip(tx Transaction, own bool) Advance {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.close(t.begin(tx, own))
	return t.advance()
}

// Forget takes transactions out of the position that the source has lost, once
// everything before is done: those that come later may bear their numbers. It
// keeps lost.
func (t *Tracker) Forget(lost *gtid.Set) Advance {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := t.last
	if t.count > 0 {
		at = t.entry(t.first + uint64(t.count) - 1).at
	}
	*t.push() = entry{closed: true, lost: lost, at: at}
	return t.advance()
}

// Acked takes one acknowledgement for each element: the transaction of the
// acknowledged record. A record must be reported once. It allocates nothing.
func (t *Tracker) Acked(seqs []uint64) Advance {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, seq := range seqs {
		e := t.entry(seq)
		if e.outstanding == 0 {
			panic(fmt.Sprintf("checkpoint: an acknowledgement too many for transaction %d", seq))
		}
		e.outstanding--
	}
	t.records -= len(seqs)
	return t.advance()
}

// Mark is a moment in the stream of announced records.
type Mark struct {
	last        uint64 // the newest transaction in flight; first-1 if none is
	outstanding int    // of that one
}

// Mark takes the moment, and the position as it will be once everything that
// was announced before is acknowledged. Its set is the caller's. InFlight and
// what follows are those of now.
func (t *Tracker) Mark() (Mark, Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.position()
	m := Mark{last: t.first + uint64(t.count) - 1}
	t.marked = m.last
	p.Set = p.Set.Clone() // the snapshot is shared
	for i := range t.count {
		e := &t.ring[(t.head+i)&(len(t.ring)-1)]
		m.outstanding = e.outstanding
		if !e.closed {
			break
		}
		if e.selected {
			p.Snapshot = e.rows
			p.Generation++
			continue
		}
		e.changeSet(p.Set)
		p.Done, p.LastCommitMicros, p.BinlogFile, p.BinlogPosition, p.Last = true, e.at.commitMicros, e.at.file, e.at.position, e.at.last
		if !e.own {
			p.Generation++
		}
	}
	return m, p
}

// AckedThrough takes the acknowledgements of everything that was announced
// before the mark and not acknowledged yet. No record announced before a mark
// may be reported by Acked after it.
func (t *Tracker) AckedThrough(m Mark) Advance {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.count {
		e := &t.ring[(t.head+i)&(len(t.ring)-1)]
		seq := t.first + uint64(i)
		if seq > m.last {
			break
		}
		n := e.outstanding
		if seq == m.last {
			n = m.outstanding
		}
		e.outstanding -= n
		t.records -= n
	}
	return t.advance()
}

// advance takes the done prefix out of the ring.
func (t *Tracker) advance() Advance {
	a := Advance{}
	for t.count > 0 && t.ring[t.head].done() {
		e := &t.ring[t.head]
		if e.selected {
			t.rows = e.rows
		} else {
			e.changeSet(&t.set)
			t.extra -= len(e.more)
			t.last, t.placed = e.at, true
			if e.published && t.observe != nil {
				e.tell(t.observe)
			}
			t.snapshot = nil
		}
		if !e.own {
			t.generation++
		}
		a.Transactions++
		a.LastSeq = t.first
		*e = entry{}
		t.head = (t.head + 1) & (len(t.ring) - 1)
		t.first++
		t.count--
	}
	a.InFlight, a.Records = t.count, t.records
	return a
}

// tell reports the transactions with records of an entry.
func (e *entry) tell(observe func(int64)) {
	if len(e.times) == 0 {
		observe(e.at.commitMicros)
	}
	for _, at := range e.times {
		observe(at)
	}
}

// changeSet does to a set what the entry does to the position.
func (e *entry) changeSet(set *gtid.Set) {
	if e.lost != nil {
		set.Subtract(e.lost)
		return
	}
	includeIn(set, e.one)
	for _, r := range e.more {
		includeIn(set, r)
	}
}

func includeIn(set *gtid.Set, r gtid.Range) {
	if r.First == r.Last {
		set.Add(gtid.GTID{UUID: r.UUID, Tag: r.Tag, Number: r.First})
		return
	}
	set.AddRange(r)
}

func (t *Tracker) entry(seq uint64) *entry {
	i := seq - t.first
	if seq < t.first || i >= uint64(t.count) {
		panic(fmt.Sprintf("checkpoint: transaction %d is not in flight (%d from %d)", seq, t.count, t.first))
	}
	return &t.ring[(t.head+int(i))&(len(t.ring)-1)]
}

// grow doubles the ring. It never shrinks: the caller bounds what is in flight,
// and with that the ring.
func (t *Tracker) grow() {
	ring := make([]entry, 2*len(t.ring))
	end := min(t.head+t.count, len(t.ring))
	k := copy(ring, t.ring[t.head:end])
	copy(ring[k:], t.ring[:t.count-k])
	t.ring, t.head = ring, 0
}

// InFlight returns the number of transactions in the ring, a run without
// records counted as one.
func (t *Tracker) InFlight() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count
}

// Position returns a snapshot. The set is cloned only if it changed since the
// last call.
func (t *Tracker) Position() Position {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.position()
}

func (t *Tracker) position() Position {
	if t.snapshot == nil {
		t.snapshot = t.set.Clone()
	}
	p := Position{
		Set: t.snapshot, Generation: t.generation, Snapshot: t.rows,
		Done:             t.placed,
		LastCommitMicros: t.last.commitMicros, BinlogFile: t.last.file, BinlogPosition: t.last.position, Last: t.last.last,
		InFlight: t.count, Records: t.records,
		HeldBytes: t.count*entryBytes + t.extra*rangeBytes,
	}
	if t.gather {
		for i := range t.count {
			p.InFlight += max(1, len(t.ring[(t.head+i)&(len(t.ring)-1)].times)) - 1
		}
	}
	if t.count > 0 {
		p.OldestCommitMicros = t.ring[t.head].oldest()
	}
	return p
}

// Lookup returns the transaction in flight with that number, for error reports,
// and false if it is not in flight. The caller owns the ranges.
func (t *Tracker) Lookup(seq uint64) (Transaction, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seq < t.first || seq-t.first >= uint64(t.count) {
		return Transaction{}, false
	}
	e := t.entry(seq)
	return Transaction{
		Ranges:       append([]gtid.Range{e.one}, e.more...),
		CommitMicros: e.at.commitMicros, BinlogFile: e.at.file, BinlogPosition: e.at.position, Last: e.at.last,
	}, true
}
