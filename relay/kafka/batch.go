package kafka

import (
	"iter"
	"slices"
	"time"

	"outbox-relay/relay/kafka/produce"
)

// maxDelta bounds the distance of timestamps within a batch, in milliseconds: consumers keep it in nanoseconds (sarama does).
const maxDelta = 1e12

// maxBatchRecords bounds the records of a batch. One whose records are all refused is sent again for each of them.
const maxBatchRecords = 8192

// batch is a run of records of one partition that is sent as one record batch, or of one topic while its partitions are not known.
// Once it was sent its records never change, unless the broker refused it and it cannot be in the log.
type batch struct {
	chunks   [][]byte
	count    int
	size     int   // exact size on the wire before compression
	base     int64 // timestamp of the first record, milliseconds
	latest   int64 // highest timestamp
	openedAt time.Time
	window   uint32 // that its records belong to; 0 without transactions

	// sealed: nothing more is added, it was sent or split.
	sealed bool
	// poison is set for the single record that a check has refused. Such a batch is never sent.
	poison *PoisonError
	// final: no topic takes the record, so its check is not repeated when its topic comes back changed.
	final bool
	// parked: all records are of parked keys, and are judged one after the other. Any other batch with poison holds one record.
	parked bool
	// blocks is set while the records behind such a batch wait for its judgement in their topic, where they need no batch each.
	blocks bool

	// Numbers of the idempotent producer, given at the first send and kept while the fate is unknown.
	numbered bool
	pid      int64
	epoch    int16
	sequence int32
	// unknown: an attempt was made whose fate is not known, so the records may be in the log.
	unknown  bool
	attempts int
	offset   int64 // of the first record, once acknowledged; negative if the broker did not say

	// Noted while the batch is encoded, for the answer to that request.
	seqs    []uint64 // of its records, within those of the request
	instead int      // those of them that are published instead of others
}

// fits tells whether a record may join under the limits of size, which is exact, and of number.
func (b *batch) fits(body int, millis int64, limit int) bool {
	if b.sealed || b.poison != nil || b.count >= maxBatchRecords {
		return false
	}
	delta := millis - b.base
	return delta < maxDelta && delta > -maxDelta && b.size+produce.RecordSize(body, delta, int64(b.count)) <= limit
}

// add gives room of n bytes for the entry of one more record and counts the record.
func (b *batch) add(c *chunks, n, body int, millis int64) []byte {
	if b.count == 0 {
		b.base, b.latest, b.size = millis, millis, produce.BatchHeader
	}
	b.size += produce.RecordSize(body, millis-b.base, int64(b.count))
	b.latest = max(b.latest, millis)
	b.count++

	last := len(b.chunks) - 1
	if last < 0 || cap(b.chunks[last])-len(b.chunks[last]) < n {
		b.chunks = append(b.chunks, c.get(n, minChunk<<min(len(b.chunks), 8)))
		last++
	}
	chunk := b.chunks[last]
	at := len(chunk)
	b.chunks[last] = chunk[:at+n]
	return b.chunks[last][at:]
}

// entries yields the records in order.
func (b *batch) entries() iter.Seq[entry] {
	return func(yield func(entry) bool) {
		for _, chunk := range b.chunks {
			for len(chunk) > 0 {
				var e entry
				e, chunk = firstEntry(chunk)
				if !yield(e) {
					return
				}
			}
		}
	}
}

// first gives the first record.
func (b *batch) first() entry {
	e, _ := firstEntry(b.chunks[0])
	return e
}

// shift removes the first of several records, and gives how much smaller the batch is.
func (b *batch) shift(c *chunks) int {
	e := b.first()
	size := produce.RecordSize(e.body(), e.millis()-b.base, 0)
	b.count--
	b.size -= size
	if chunk := b.chunks[0]; len(e) < len(chunk) {
		b.chunks[0] = chunk[:copy(chunk, chunk[len(e):])]
		return size
	}
	c.put(b.chunks[0])
	b.chunks = slices.Delete(b.chunks, 0, 1)
	return size
}

// release gives the memory back. The batch is empty afterwards.
func (b *batch) release(c *chunks) {
	for i, chunk := range b.chunks {
		c.put(chunk)
		b.chunks[i] = nil
	}
	b.chunks = b.chunks[:0]
}

// split copies the records into batches that end before the given record indexes (ascending, each above 0 and below count), and
// releases b. The parts have no numbers yet.
func (b *batch) split(c *chunks, at []int) []*batch {
	parts := make([]*batch, 0, len(at)+1)
	part := &batch{sealed: true, openedAt: b.openedAt, window: b.window}
	i := 0
	for e := range b.entries() {
		if len(at) > 0 && i == at[0] {
			parts = append(parts, part)
			part = &batch{sealed: true, openedAt: b.openedAt, window: b.window}
			at = at[1:]
		}
		copy(part.add(c, len(e), e.body(), e.millis()), e)
		i++
	}
	b.release(c)
	return append(parts, part)
}
