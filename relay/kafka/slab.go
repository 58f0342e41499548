package kafka

import (
	"time"

	"github.com/IBM/sarama"
)

// slab holds the structs that sarama wants for the records of one request. A sender fills it, sarama encodes it within AsyncProduce, and
// then it is free for the next request: nothing of it is referred to while the answer is awaited.
type slab struct {
	records []sarama.Record
	ptrs    []*sarama.Record
	headers []sarama.RecordHeader
	hptrs   []*sarama.RecordHeader
	batches []*sarama.RecordBatch
	usedR   int
	usedH   int
	usedB   int
}

// reset makes room for one request.
func (s *slab) reset(records, headers int) {
	s.usedR, s.usedH, s.usedB = 0, 0, 0
	if len(s.records) < records {
		s.records = make([]sarama.Record, max(records, min(2*len(s.records), maxRequestRecords)))
		s.ptrs = make([]*sarama.Record, len(s.records))
		for i := range s.records {
			s.ptrs[i] = &s.records[i]
		}
	}
	if len(s.headers) < headers {
		s.headers = make([]sarama.RecordHeader, max(headers, min(2*len(s.headers), maxRequestHeaders)))
		s.hptrs = make([]*sarama.RecordHeader, len(s.headers))
		for i := range s.headers {
			s.hptrs[i] = &s.headers[i]
		}
	}
}

// build makes the record batch of b. It points into the chunks of b.
func (s *slab) build(b *batch, codec sarama.CompressionCodec, transactional bool) *sarama.RecordBatch {
	if s.usedB == len(s.batches) {
		s.batches = append(s.batches, new(sarama.RecordBatch))
	}
	rb := s.batches[s.usedB]
	s.usedB++
	from := s.usedR
	i := int64(0)
	for _, chunk := range b.chunks {
		for len(chunk) > 0 {
			var e entry
			e, chunk = firstEntry(chunk)
			rec := &s.records[s.usedR]
			s.usedR++
			s.usedH += e.fill(rec, s.headers[s.usedH:], s.hptrs[s.usedH:])
			rec.OffsetDelta = i
			rec.TimestampDelta = time.Duration(e.millis()-b.base) * time.Millisecond
			i++
		}
	}
	*rb = sarama.RecordBatch{
		Version:          2,
		Codec:            codec,
		CompressionLevel: sarama.CompressionLevelDefault,
		LastOffsetDelta:  int32(b.count - 1),
		FirstTimestamp:   time.UnixMilli(b.base),
		MaxTimestamp:     time.UnixMilli(b.latest),
		ProducerID:       b.pid,
		ProducerEpoch:    b.epoch,
		FirstSequence:    b.sequence,
		IsTransactional:  transactional,
		Records:          s.ptrs[from:s.usedR:s.usedR],
	}
	return rb
}

// forget drops the bytes that sarama has encoded, which it would keep until the answer: a resend encodes again.
func (s *slab) forget() {
	for _, rb := range s.batches[:s.usedB] {
		*rb = sarama.RecordBatch{}
	}
	// What one huge record needed is not kept for ever.
	if len(s.records) > maxRequestRecords || len(s.headers) > maxRequestHeaders {
		*s = slab{}
	}
	if s.usedR < 64 { // few and maybe large records: do not hold on to their chunks
		clear(s.records[:s.usedR])
		clear(s.headers[:s.usedH])
	}
}
