package produce

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/IBM/sarama"
)

const (
	apiKey = 0
	// Versions of the request: 3 has record batches, the answer to 5 a start offset, 8 tells single records that a broker refused (KIP-467), 9 is
	// flexible (KIP-482), 10 names a new leader (KIP-951).
	versionOldest   = 3
	versionStart    = 5
	versionErrors   = 8
	versionFlexible = 9
	versionNewest   = 10

	batchCRC = 17 // where the checksum stands in a batch; it covers what is behind it
	// keep is the largest buffer that is kept for the next request.
	keep = 2 << 20
)

// BatchHeader is the size of an empty batch of format 2: base offset to number of records.
const BatchHeader = 61

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// VersionFor gives the version to use where those up to newest are known; false if that is too old.
func VersionFor(newest int16) (int16, bool) {
	switch {
	case newest >= versionNewest:
		return versionNewest, true
	case newest >= versionErrors:
		return versionErrors, true // and not 9, which is the same in more complicated
	}
	return newest, newest >= versionOldest
}

// RecordSize is the size of a record in a batch. fields is that of what stands behind its offset; the deltas are its distances to the first timestamp of the
// batch in milliseconds, and to its first offset.
func RecordSize(fields int, millisDelta, offsetDelta int64) int {
	n := bodySize(fields, millisDelta, offsetDelta)
	return VarintSize(int64(n)) + n
}

// bodySize is RecordSize without the length in front: attributes, deltas and fields.
func bodySize(fields int, millisDelta, offsetDelta int64) int {
	return 1 + VarintSize(millisDelta) + VarintSize(offsetDelta) + fields
}

// Head is what a request says besides its batches.
type Head struct {
	Version         int16 // by VersionFor
	ClientID        string
	TransactionalID *string // nil without a transaction
	TimeoutMillis   int32   // for the replicas
	Topics          int     // how many calls of Topic will follow
}

// Batch is what a batch says of its records.
type Batch struct {
	Partition int32
	Codec     sarama.CompressionCodec
	Count     int   // of its records
	Base      int64 // timestamp of the first record, milliseconds since 1970 UTC
	Latest    int64 // highest timestamp
	// Size is that of the batch before compression; it is a hint for memory only.
	Size          int
	ProducerID    int64
	Epoch         int16
	Sequence      int32 // of the first record
	Transactional bool
}

// Encoder makes one request after the other. The zero value is ready. It is for one goroutine.
//
//	Begin, then for each topic: Topic, and for each of its partitions: BeginBatch, Record for each record, EndBatch; then End.
type Encoder struct {
	out      []byte // the request
	raw      []byte // records of a batch before their compression
	flexible bool
	batch    Batch
	at       int   // of the batch in out
	offset   int64 // of the next record in its batch
	codecs   compressor
}

// Begin begins a request. The one before may not be used any more.
func (e *Encoder) Begin(h Head) {
	e.flexible = h.Version >= versionFlexible
	b := e.out[:0]
	b = append(b, 0, 0, 0, 0) // length, by End
	b = binary.BigEndian.AppendUint16(b, apiKey)
	b = binary.BigEndian.AppendUint16(b, uint16(h.Version))
	b = append(b, 0, 0, 0, 0) // correlation id, by End
	b = binary.BigEndian.AppendUint16(b, uint16(len(h.ClientID)))
	b = append(b, h.ClientID...)
	e.out = b
	e.tags()
	switch {
	case h.TransactionalID != nil:
		e.string(*h.TransactionalID)
	case e.flexible:
		e.out = append(e.out, 0)
	default:
		e.out = append(e.out, 0xff, 0xff)
	}
	e.out = append(e.out, 0xff, 0xff) // acknowledged by all replicas in sync
	e.out = binary.BigEndian.AppendUint32(e.out, uint32(h.TimeoutMillis))
	e.count(h.Topics)
}

// Topic begins the next topic, with so many batches. Topics differ within a request.
func (e *Encoder) Topic(name string, batches int, first bool) {
	if !first {
		e.tags() // of the one before
	}
	e.string(name)
	e.count(batches)
}

// BeginBatch begins the batch of a partition.
func (e *Encoder) BeginBatch(b Batch) {
	e.batch, e.offset = b, 0
	e.out = binary.BigEndian.AppendUint32(e.out, uint32(b.Partition))
	e.at = len(e.out)
	if b.Codec == sarama.CompressionNone {
		e.out = append(e.out, make([]byte, e.lengthRoom()+BatchHeader)...)
		e.out = grown(e.out, b.Size)
		return
	}
	e.raw = grown(e.raw[:0], b.Size)
}

// lengthRoom is the room for the length of a batch, which is known at its end.
func (e *Encoder) lengthRoom() int {
	if e.flexible {
		return binary.MaxVarintLen32
	}
	return 4
}

// Record adds a record: its distance to the batch's first timestamp, and what stands behind its offset in the batch, from the length of its key on.
func (e *Encoder) Record(millisDelta int64, fields []byte) {
	dst := &e.raw
	if e.batch.Codec == sarama.CompressionNone {
		dst = &e.out
	}
	b := binary.AppendVarint(*dst, int64(bodySize(len(fields), millisDelta, e.offset)))
	b = append(b, 0) // attributes
	b = binary.AppendVarint(b, millisDelta)
	b = binary.AppendVarint(b, e.offset)
	b = append(b, fields...)
	*dst = b
	e.offset++
}

// EndBatch ends the batch. One that compression would not make smaller stays as it is, so no batch is larger than its records.
func (e *Encoder) EndBatch() {
	room := e.lengthRoom()
	codec := e.batch.Codec
	if codec != sarama.CompressionNone {
		if len(e.raw) > keep { // in steps, each would be copied to the next
			e.out = grown(e.out, room+BatchHeader+len(e.raw))
		}
		e.out = append(e.out, make([]byte, room+BatchHeader)...)
		var smaller bool
		if e.out, smaller = e.codecs.append(e.out, e.raw, codec); !smaller {
			codec = sarama.CompressionNone
		}
	}
	b := e.out[e.at+room:]
	e.header(b, codec)
	if !e.flexible {
		binary.BigEndian.PutUint32(e.out[e.at:], uint32(len(b)))
		return
	}
	n := binary.PutUvarint(e.out[e.at:], uint64(len(b)+1))
	e.out = e.out[:e.at+n+copy(e.out[e.at+n:], b)]
	e.tags()
}

// header writes the header of batch b.
func (e *Encoder) header(b []byte, codec sarama.CompressionCodec) {
	be, h := binary.BigEndian, &e.batch
	be.PutUint64(b, 0) // base offset, the broker's to say
	be.PutUint32(b[8:], uint32(len(b)-12))
	be.PutUint32(b[12:], 0xffffffff) // leader epoch, unknown
	b[16] = 2                        // format
	attributes := uint16(codec)
	if h.Transactional {
		attributes |= 1 << 4
	}
	be.PutUint16(b[21:], attributes)
	be.PutUint32(b[23:], uint32(h.Count-1)) // last offset
	be.PutUint64(b[27:], uint64(h.Base))
	be.PutUint64(b[35:], uint64(h.Latest))
	be.PutUint64(b[43:], uint64(h.ProducerID))
	be.PutUint16(b[51:], uint16(h.Epoch))
	be.PutUint32(b[53:], uint32(h.Sequence))
	be.PutUint32(b[57:], uint32(h.Count))
	be.PutUint32(b[batchCRC:], crc32.Checksum(b[batchCRC+4:], castagnoli))
}

// End gives the whole request but for its number, which is the Pipe's. It is valid until the next Begin.
func (e *Encoder) End() []byte {
	e.tags() // of the last topic
	e.tags() // of the request
	binary.BigEndian.PutUint32(e.out, uint32(len(e.out)-4))
	return e.out
}

// Forget gives up what an unusually large request has needed.
func (e *Encoder) Forget() {
	if cap(e.out) > keep {
		e.out = nil
	}
	if cap(e.raw) > keep {
		e.raw = nil
	}
	if cap(e.codecs.framed) > keep {
		e.codecs.framed = nil
	}
}

func (e *Encoder) tags() {
	if e.flexible {
		e.out = append(e.out, 0)
	}
}

func (e *Encoder) count(n int) {
	if e.flexible {
		e.out = binary.AppendUvarint(e.out, uint64(n+1))
		return
	}
	e.out = binary.BigEndian.AppendUint32(e.out, uint32(n))
}

func (e *Encoder) string(s string) {
	if e.flexible {
		e.out = binary.AppendUvarint(e.out, uint64(len(s)+1))
	} else {
		e.out = binary.BigEndian.AppendUint16(e.out, uint16(len(s)))
	}
	e.out = append(e.out, s...)
}

// grown gives b room for n more bytes.
func grown(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	return append(make([]byte, 0, len(b)+n+n/16), b...)
}

// VarintSize is the size of a number in zigzag form.
func VarintSize(v int64) int {
	n := 1
	for u := uint64(v<<1) ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
