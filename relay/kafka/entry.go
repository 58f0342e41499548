package kafka

import (
	"bytes"
	"encoding/binary"

	"outbox-relay/relay/kafka/produce"
	"outbox-relay/router"
)

// entry is a record as it waits in a chunk:
//
//	0   u32  length of the entry
//	4   i32  partition that the record asks for, -1 = by the partitioner
//	8   u64  sequence number of the caller
//	16  i64  timestamp, milliseconds
//	24  u32  index of the record's origin: its table and rule; the top bit marks what is published instead of another record
//	28  u32  size of the body
//	32  body: what stands behind the deltas of the record in a batch, as it is sent: key, value, headers, lengths as zigzag varints (-1 = null)
//	    id: uvarint 0 = none, 1 = length and bytes follow as for the key, i + 2 = equal to the value of header i; position, as the key
//
// Numbers are little endian. The deltas depend on the batch and are not stored, so an entry may move between batches.
type entry []byte

const (
	entryFixed  = 32
	insteadMark = uint32(1) << 31
)

func (e entry) partition() int32 { return int32(binary.LittleEndian.Uint32(e[4:])) }
func (e entry) seq() uint64      { return binary.LittleEndian.Uint64(e[8:]) }
func (e entry) millis() int64    { return int64(binary.LittleEndian.Uint64(e[16:])) }
func (e entry) origin() uint32   { return binary.LittleEndian.Uint32(e[24:]) &^ insteadMark }
func (e entry) instead() bool    { return binary.LittleEndian.Uint32(e[24:])&insteadMark != 0 }
func (e entry) body() int        { return int(binary.LittleEndian.Uint32(e[28:])) }

// firstEntry cuts the first entry off a chunk.
func firstEntry(chunk []byte) (e entry, rest []byte) {
	n := binary.LittleEndian.Uint32(chunk)
	return entry(chunk[:n:n]), chunk[n:]
}

// shape is what must be known of a record before its entry is written.
type shape struct {
	size int // of the entry
	body int // of it, its body
	id   int // 0 none, 1 inline, i+2 header i
}

func shapeOf(rec *router.Record) shape {
	var s shape
	s.body = bytesSize(len(rec.Key), rec.Key == nil) + bytesSize(len(rec.Value), rec.Value == nil) + produce.VarintSize(int64(len(rec.Headers)))
	if rec.ID != nil {
		s.id = 1
	}
	for i := range rec.Headers {
		h := &rec.Headers[i]
		null := h.Null || h.Value == nil
		s.body += bytesSize(len(h.Key), false) + bytesSize(len(h.Value), null)
		if s.id == 1 && !null && string(h.Value) == string(rec.ID) {
			s.id = i + 2
		}
	}
	s.size = entryFixed + s.body + uvarintSize(uint64(s.id)) + bytesSize(len(rec.Position), rec.Position == nil)
	if s.id == 1 {
		s.size += bytesSize(len(rec.ID), false)
	}
	return s
}

// put writes the entry of rec into dst, which is exactly s.size long.
func (s shape) put(dst []byte, rec *router.Record, seq uint64, origin uint32) {
	le := binary.LittleEndian
	le.PutUint32(dst, uint32(s.size))
	le.PutUint32(dst[4:], uint32(rec.Partition))
	le.PutUint64(dst[8:], seq)
	le.PutUint64(dst[16:], uint64(rec.TimestampMillis))
	le.PutUint32(dst[24:], origin)
	le.PutUint32(dst[28:], uint32(s.body))
	n := entryFixed
	n += putBytes(dst[n:], rec.Key, rec.Key == nil)
	n += putBytes(dst[n:], rec.Value, rec.Value == nil)
	n += putLength(dst[n:], len(rec.Headers))
	for i := range rec.Headers {
		h := &rec.Headers[i]
		n += putLength(dst[n:], len(h.Key))
		n += copy(dst[n:], h.Key)
		n += putBytes(dst[n:], h.Value, h.Null || h.Value == nil)
	}
	n += binary.PutUvarint(dst[n:], uint64(s.id))
	if s.id == 1 {
		n += putBytes(dst[n:], rec.ID, false)
	}
	putBytes(dst[n:], rec.Position, rec.Position == nil)
}

// wire is the body.
func (e entry) wire() []byte { return e[entryFixed : entryFixed+e.body()] }

// fields reads the parts of an entry one after the other.
type fields struct{ rest []byte }

func (e entry) fields() fields { return fields{e[entryFixed:]} }

func (f *fields) number() uint64 {
	if b := f.rest[0]; b < 0x80 {
		f.rest = f.rest[1:]
		return uint64(b)
	}
	v, n := binary.Uvarint(f.rest)
	f.rest = f.rest[n:]
	return v
}

// count reads a number that is not negative.
func (f *fields) count() int { return int(f.number() >> 1) }

// bytes gives nil for null; anything else points into the entry.
func (f *fields) bytes() []byte {
	zigzag := f.number()
	if zigzag&1 != 0 {
		return nil
	}
	n := zigzag >> 1
	b := f.rest[:n:n]
	f.rest = f.rest[n:]
	return b
}

// key gives the key alone.
func (e entry) key() []byte {
	f := e.fields()
	return f.bytes()
}

// record gives the entry as a record that shares no memory with it.
func (e entry) record(topic string, o origin) *router.Record {
	f := e.fields()
	rec := &router.Record{Topic: topic, Key: bytes.Clone(f.bytes()), Value: bytes.Clone(f.bytes()), TimestampMillis: e.millis(), Partition: e.partition(), Table: o.table, Rule: o.rule}
	n := f.count()
	for range n {
		h := router.Header{Key: string(f.bytes()), Value: bytes.Clone(f.bytes())}
		h.Null = h.Value == nil
		rec.Headers = append(rec.Headers, h)
	}
	switch tag := f.number(); {
	case tag == 1:
		rec.ID = bytes.Clone(f.bytes())
	case tag >= 2:
		rec.ID = rec.Headers[tag-2].Value
	}
	rec.Position = bytes.Clone(f.bytes())
	return rec
}

// names gives id and position as copies, for an error.
func (e entry) names() (id, position string) {
	f := e.fields()
	f.bytes()
	f.bytes()
	n := f.count()
	values := make([][]byte, n)
	for i := range n {
		key := f.bytes()
		values[i] = f.bytes()
		if string(key) == router.PositionHeader {
			position = string(values[i])
		}
	}
	switch tag := f.number(); {
	case tag == 1:
		id = string(f.bytes())
	case tag >= 2:
		id = string(values[tag-2])
	}
	if at := f.bytes(); at != nil {
		position = string(at)
	}
	return id, position
}

func putBytes(dst, b []byte, null bool) int {
	if null {
		dst[0] = 1 // -1
		return 1
	}
	n := putLength(dst, len(b))
	return n + copy(dst[n:], b)
}

// putLength is binary.PutVarint, made for the small numbers that lengths of keys and headers are.
func putLength(dst []byte, n int) int {
	if n < 1<<6 {
		dst[0] = byte(n << 1)
		return 1
	}
	return binary.PutVarint(dst, int64(n))
}

// bytesSize is the size of a byte field in a record of Kafka: zigzag length, -1 for null, then the bytes.
func bytesSize(n int, null bool) int {
	if null {
		return 1
	}
	return produce.VarintSize(int64(n)) + n
}

func uvarintSize(v uint64) int {
	n := 1
	for v >= 0x80 {
		v >>= 7
		n++
	}
	return n
}

// aloneSize is the size of a batch with just this record.
func aloneSize(body int) int { return produce.BatchHeader + produce.RecordSize(body, 0, 0) }
