package kafka

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// wakePending is how much a partition has to have before Publish wakes its sender without a Flush.
	wakePending = 64 << 10
	// dirtyBytes bounds how long a record waits for company in a stream without Flush, counted in bytes published after it.
	dirtyBytes = 256 << 10

	// stallAfter is how long a record waits before its partition counts as standing still for something that time may heal.
	stallAfter = 2 * time.Second

	retryMin      = 20 * time.Millisecond
	retryMax      = time.Second
	retrySlowMin  = 100 * time.Millisecond
	retrySlowMax  = 5 * time.Second
	sequenceMask  = math.MaxInt32
	lastEpoch     = math.MaxInt16
	noProducer    = int64(-1)
	unknownLeader = int32(-1)
)

// partition is one partition of a topic. The lock of the Publisher guards it. Its head is queue[0]; at most the head is in a request.
//
//	idle      queue empty
//	gathering queue not empty, not due: more records may come
//	ready     in the list of its sender
//	flying    the head is in a request
//	delayed   the head failed, notBefore is ahead
//	homeless  no leader, sender is nil
//	gated     the head waits for the transaction: for that of its window to begin, or for the partition to be a part of it
//	judging   the head is poison, and it is asked what becomes of it, as soon as there is room for what is published instead
//	on hold   the head may hold records of parked keys, which is not known yet
//	halted    the head is poison and has to stay; final
type partition struct {
	topic *topic
	index int32

	leader      int32
	leaderEpoch int32
	sender      *sender
	aside       bool // uses the second connection of its node

	queue   []*batch
	pending int // wire bytes in queue that are not in a request
	flying  *request

	due       bool   // what is pending may be sent
	scheduled bool   // is in sender.ready
	delayed   bool   // is in Publisher.delayed
	added     uint32 // the window in whose transaction it is
	adding    bool   // it is to be added to the transaction
	notBefore time.Time
	failures  int // since the last acknowledgement

	gathering bool // is in Publisher.dirty

	pid      int64
	epoch    int16
	sequence int32 // of the next batch that gets a number

	judging bool // the head is poison and waits for its judgement
	waiting bool // the head is poison and is not judged before there is room
	onHold  bool // the head may hold records of parked keys: see parking.hold
	halted  *PoisonError
	stall   string
	since   time.Time
}

// wants tells whether the head should be sent now, delays aside.
func (t *partition) wants() bool {
	return len(t.queue) > 0 && t.flying == nil && t.halted == nil &&
		(t.due || t.pending >= wakePending || len(t.queue) > 1 || t.queue[0].sealed)
}

// tail gives the batch that may grow, nil if there is none.
func (t *partition) tail() *batch {
	if n := len(t.queue); n > 0 && !t.queue[n-1].sealed {
		return t.queue[n-1]
	}
	return nil
}

// enqueue puts a batch behind those of its window. Only what replaces a poison record can belong to an earlier window than what waits already.
func (t *partition) enqueue(b *batch) {
	i := len(t.queue)
	for i > 0 && t.queue[i-1].window > b.window {
		i--
	}
	t.queue = slices.Insert(t.queue, i, b)
}

// number gives the head its producer id, epoch and sequence; false means that no usable producer id is there yet. A batch that has them
// keeps them: it is the same batch for the broker.
func (t *partition) number(b *batch, current int64, epoch int16) bool {
	if b.numbered {
		return true
	}
	if t.pid == noProducer {
		if current == noProducer {
			return false
		}
		t.pid, t.epoch, t.sequence = current, epoch, 0
	}
	b.pid, b.epoch, b.sequence, b.numbered = t.pid, t.epoch, t.sequence, true
	t.sequence = (t.sequence + int32(b.count)) & sequenceMask
	return true
}

// unnumber takes the numbers of a batch back that is known not to be in the log.
func (t *partition) unnumber(b *batch) {
	if b.numbered {
		t.sequence = b.sequence
		b.numbered = false
	}
}

// bump begins a new epoch for this partition alone, which brokers allow without a round trip: they keep the epoch per partition and take
// a higher one from sequence 0. False means that the epochs of this producer id are used up and another id is needed.
func (t *partition) bump(newID bool) bool {
	for _, b := range t.queue {
		b.numbered = false
	}
	if newID || t.epoch >= lastEpoch || t.pid == noProducer {
		t.pid = noProducer
		return false
	}
	t.epoch++
	t.sequence = 0
	return true
}

// pop removes the head, which is done with.
func (t *partition) pop() {
	n := copy(t.queue, t.queue[1:])
	t.queue[n] = nil
	t.queue = t.queue[:n]
}

// replaceHead puts parts where the head was.
func (t *partition) replaceHead(parts []*batch) {
	t.queue = append(parts, t.queue[1:]...)
}

// backoff is the wait after the nth failure in a row, with jitter.
func backoff(n int, low, high time.Duration) time.Duration {
	d := high
	if n < 16 {
		d = min(high, low<<n)
	}
	return d/2 + rand.N(d/2+1)
}
