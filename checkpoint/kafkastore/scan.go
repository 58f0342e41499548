package kafkastore

import (
	"encoding/binary"

	"github.com/IBM/sarama"
)

// scan finds the last committed record of a key in the batches of a partition, given in their order. It reads what is uncommitted too and decides
// by the control records (KIP-98): one with COMMIT or ABORT decides everything of its producer id before it. So nobody else's open transaction
// ever holds a reader up, where a read-committed one waits at the last stable offset. Compaction keeps a control record for as long as a record of its transaction is
// left, and touches nothing that is undecided.
type scan struct {
	key  string
	next int64 // offset to go on at

	value   []byte // nil for a record without value
	offset  int64  // of that record, -1 for none
	records int    // seen
	aborted int    // of them, those with the key in aborted transactions
	// open holds for each producer id with an undecided transaction its last record of the key.
	open map[int64]candidate
}

type candidate struct {
	value   []byte
	offset  int64 // -1: none of the key yet
	records int
}

func newScan(key string) *scan {
	return &scan{key: key, offset: -1, open: make(map[int64]candidate)}
}

// add takes the next batch. A compressed batch can begin below the offset that was asked for.
func (s *scan) add(b *sarama.RecordBatch) {
	if b.LastOffset() < s.next {
		return
	}
	s.next = b.LastOffset() + 1
	if b.Control {
		s.decide(b)
		return
	}
	s.records += len(b.Records)
	c, ok := s.open[b.ProducerID]
	if !ok {
		c.offset = -1
	}
	for _, r := range b.Records {
		if string(r.Key) != s.key {
			continue
		}
		at := b.FirstOffset + r.OffsetDelta
		if b.IsTransactional {
			c.value, c.offset = r.Value, at
			c.records++
		} else {
			s.value, s.offset = r.Value, at
		}
	}
	if b.IsTransactional {
		s.open[b.ProducerID] = c
	}
}

// Type of a control record: bytes 2 and 3 of its key, behind the version.
const controlCommit = 1

// decide takes a control batch. One that compaction has emptied belongs to a transaction of which nothing is left.
func (s *scan) decide(b *sarama.RecordBatch) {
	c, ok := s.open[b.ProducerID]
	delete(s.open, b.ProducerID)
	if !ok {
		return
	}
	commit := false
	if len(b.Records) > 0 && len(b.Records[0].Key) >= 4 {
		commit = binary.BigEndian.Uint16(b.Records[0].Key[2:]) == controlCommit
	}
	switch {
	case !commit:
		s.aborted += c.records
	case c.offset >= 0:
		s.value, s.offset = c.value, c.offset
	}
}
