package binlog_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/klauspost/compress/zstd"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/fakemysql"
)

const fakeDatabase = "app"

// fakeOptions are those of a reader of the source that watches app.o and starts behind nothing.
func fakeOptions(s *fakemysql.Source) binlog.Options {
	return binlog.Options{
		Name: "fake", Addresses: []string{"fake:3306"}, Tables: []binlog.TableName{{Schema: fakeDatabase, Name: "o"}},
		Login: binlog.Login{User: "relay", Dial: s.Dial}, Start: new(gtid.Set), Heartbeat: time.Second, Memory: 1 << 20, RowLimit: 1 << 20,
	}
}

func slicesOf(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

// stream writes a replication stream as a server does: packets with events, with log positions and checksums. The zero value is not ready; use
// newStream. Its methods return it, so that a test reads like the binlog.
type stream struct {
	b    []byte
	seq  byte // of the next packet
	crc  bool
	bare bool   // events stand one behind the other without packets and log positions, as inside a payload
	pos  uint64 // where the next event begins in its file
	file string
}

// newStream begins as a server does at the start of its first file: the artificial ROTATE, whose checksum depends on what the reader asked for
// alone, and the FORMAT_DESCRIPTION.
func newStream() *stream {
	s := &stream{seq: 1, crc: true, pos: 4}
	return s.rotateTo("binlog.000001").format(event.ChecksumCRC32)
}

// bytes gives what was written so far.
func (s *stream) bytes() []byte { return s.b }

// packet appends one payload, in several packets where it is too large for one.
func (s *stream) packet(payload []byte) *stream {
	const most = 0xffffff
	for {
		n := min(len(payload), most)
		s.b = fakemysql.AppendPacket(s.b, s.seq, payload[:n])
		s.seq++
		payload = payload[n:]
		if n < most {
			return s
		}
	}
}

// raw appends a whole event, header and checksum included.
func (s *stream) raw(ev []byte) *stream {
	if s.bare {
		const logPosAt = 13
		clear(ev[logPosAt : logPosAt+4])
		s.b = append(s.b, ev...)
		return s
	}
	return s.packet(append([]byte{0}, ev...))
}

// event appends an event of the file.
func (s *stream) event(t event.Type, body ...[]byte) *stream { return s.eventWith(t, 0, body...) }

func (s *stream) eventWith(t event.Type, flags event.Flags, body ...[]byte) *stream {
	b := slicesOf(body...)
	size := event.HeaderSize + len(b)
	if s.crc {
		size += event.ChecksumSize
	}
	s.pos += uint64(size)
	return s.raw(sum(makeEvent(t, flags, uint32(s.pos), b, size), s.crc))
}

// artificial appends an event that the server made for this stream.
func (s *stream) artificial(t event.Type, body ...[]byte) *stream {
	b := slicesOf(body...)
	size := event.HeaderSize + len(b)
	if s.crc {
		size += event.ChecksumSize
	}
	return s.raw(sum(makeEvent(t, event.FlagArtificial, 0, b, size), s.crc))
}

// makeEvent gives header and body of an event of which the size field says size.
func makeEvent(t event.Type, flags event.Flags, logPos uint32, body []byte, size int) []byte {
	b := make([]byte, 0, event.HeaderSize+len(body)+event.ChecksumSize)
	b = append(b, 1, 0, 0, 0, byte(t), 1, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	b = binary.LittleEndian.AppendUint32(b, logPos)
	b = binary.LittleEndian.AppendUint16(b, uint16(flags))
	return append(b, body...)
}

func sum(ev []byte, crc bool) []byte {
	if !crc {
		return ev
	}
	return binary.LittleEndian.AppendUint32(ev, crc32.ChecksumIEEE(ev))
}

// rotateTo appends the artificial ROTATE to the start of a file.
func (s *stream) rotateTo(file string) *stream { return s.rotateToAt(file, 4) }

func (s *stream) rotateToAt(file string, pos uint64) *stream {
	s.file, s.pos = file, pos
	return s.artificial(event.TypeRotate, binary.LittleEndian.AppendUint64(nil, pos), []byte(file))
}

// format appends a FORMAT_DESCRIPTION with the algorithm, which holds for the events behind it.
func (s *stream) format(a event.ChecksumAlgorithm) *stream {
	body := formatBody(a)
	size := event.HeaderSize + len(body) + event.ChecksumSize
	s.pos += uint64(size)
	s.crc = a == event.ChecksumCRC32
	return s.raw(sum(makeEvent(event.TypeFormatDescription, 0, uint32(s.pos), body, size), true))
}

func formatBody(a event.ChecksumAlgorithm) []byte {
	body := binary.LittleEndian.AppendUint16(nil, 4)
	body = append(append(body, "9.7.4"...), make([]byte, 45)...)
	body = append(body, 0, 0, 0, 0, event.HeaderSize)
	lengths := make([]byte, 42)
	for t, n := range map[event.Type]byte{
		event.TypeQuery: 13, event.TypeRotate: 8, event.TypeTableMap: 8, event.TypeIncident: 2, event.TypeWriteRowsV1: 8, event.TypeUpdateRowsV1: 8,
		event.TypeDeleteRowsV1: 8, event.TypeWriteRows: 10, event.TypeUpdateRows: 10, event.TypeDeleteRows: 10,
	} {
		lengths[t-1] = n
	}
	return append(append(body, lengths...), byte(a))
}

// gtid begins transaction n of fakemysql.UUID.
func (s *stream) gtid(n int64) *stream { return s.event(event.TypeGTID, gtidBody(n, 0)) }

func gtidBody(n int64, flags byte) []byte {
	u, err := gtid.ParseUUID(fakemysql.UUID)
	if err != nil {
		panic(err)
	}
	b := append([]byte{flags}, u[:]...)
	b = append(binary.LittleEndian.AppendUint64(b, uint64(n)), 2)
	b = binary.LittleEndian.AppendUint64(b, 1)
	b = binary.LittleEndian.AppendUint64(b, 2)
	return append(b, 0, 0x10, 0xa5, 0xd4, 0xe8, 0, 0, 200, 0xe8, 0x62, 1, 0) // commit time, length, server version
}

func (s *stream) query(text string) *stream { return s.event(event.TypeQuery, queryBody(text)) }

func queryBody(text string) []byte {
	b := []byte{1, 0, 0, 0, 0, 0, 0, 0, byte(len(fakeDatabase)), 0, 0, 0, 0}
	b = append(append(b, fakeDatabase...), 0)
	return append(b, text...)
}

func (s *stream) xid() *stream { return s.event(event.TypeXID, xidBody()) }

func xidBody() []byte { return []byte{7, 0, 0, 0, 0, 0, 0, 0} }

// Tables of the Streams: o is watched, f is not.
const (
	tableO = 101
	tableF = 102
)

func (s *stream) tableMap(id uint64, name string) *stream {
	return s.event(event.TypeTableMap, tableMapBody(id, name))
}

// tableMapBody describes (id BIGINT UNSIGNED NOT NULL, aggregate_id VARCHAR(64), payload LONGTEXT) with the metadata of binlog_row_metadata=FULL.
func tableMapBody(id uint64, name string) []byte {
	b := binary.LittleEndian.AppendUint64(nil, id)[:6]
	b = append(b, 1, 0, byte(len(fakeDatabase)))
	b = append(append(b, fakeDatabase...), 0, byte(len(name)))
	b = append(append(b, name...), 0, 3, byte(event.ColumnLongLong), byte(event.ColumnVarchar), byte(event.ColumnBlob))
	b = append(b, 3, 0, 1, 4) // metadata: 256 bytes of text at most, 4 bytes of length
	b = append(b, 0b110)      // nullable
	b = append(b, 1, 1, 0x80) // signedness
	b = append(b, 2, 3, 0xfc, 255, 0)
	names := []byte("\x02id\x0caggregate_id\x07payload")
	return append(append(b, 4, byte(len(names))), names...)
}

// insert appends the WRITE_ROWS of one row that ends its statement.
func (s *stream) insert(table uint64, id uint64, aggregate, payload string) *stream {
	return s.event(event.TypeWriteRows, rowsHead(table, event.RowsStatementEnd), rowImage(id, aggregate, payload))
}

// insertMore appends the WRITE_ROWS of one row of a statement that goes on.
func (s *stream) insertMore(table uint64, id uint64, aggregate, payload string) *stream {
	return s.event(event.TypeWriteRows, rowsHead(table, 0), rowImage(id, aggregate, payload))
}

func rowsHead(table uint64, flags event.RowsFlags) []byte {
	b := binary.LittleEndian.AppendUint64(nil, table)[:6]
	return append(b, byte(flags), 0, 2, 0, 3, 0b111)
}

func rowImage(id uint64, aggregate, payload string) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{0}, id)
	b = append(binary.LittleEndian.AppendUint16(b, uint16(len(aggregate))), aggregate...)
	return append(binary.LittleEndian.AppendUint32(b, uint32(len(payload))), payload...)
}

// transaction appends a whole transaction with one row of app.o whose id is its number.
func (s *stream) transaction(n int64, aggregate string) *stream {
	return s.gtid(n).query("BEGIN").tableMap(tableO, "o").insert(tableO, uint64(n), aggregate, "p").xid()
}

// foreign appends a whole transaction with one row of app.f.
func (s *stream) foreign(n int64) *stream {
	return s.gtid(n).query("BEGIN").tableMap(tableF, "f").insert(tableF, uint64(n), "x", "y").xid()
}

// heartbeat appends a HEARTBEAT at the present position.
func (s *stream) heartbeat() *stream {
	size := event.HeaderSize + len(s.file)
	if s.crc {
		size += event.ChecksumSize
	}
	return s.raw(sum(makeEvent(event.TypeHeartbeat, 0, uint32(s.pos), []byte(s.file), size), s.crc))
}

// inner gives events as they stand inside a payload: without checksums and log positions.
func inner(write func(*stream)) []byte {
	s := &stream{bare: true}
	write(s)
	return s.b
}

// payload appends a TRANSACTION_PAYLOAD with events.
func (s *stream) payload(events []byte) *stream {
	return s.event(event.TypeTransactionPayload, payloadHead(event.CompressionZSTD, len(events), len(packed(events))), packed(events))
}

func payloadHead(c event.Compression, uncompressed, size int) []byte {
	field := func(t byte, v int) []byte {
		b := binary.LittleEndian.AppendUint64([]byte{t, 9, 0xfe}, uint64(v))
		return b
	}
	return slicesOf([]byte{2, 3, 0xfc, byte(c), 0}, field(3, uncompressed), field(1, size), []byte{0})
}

var packer = func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithLowerEncoderMem(true))
	if err != nil {
		panic(err)
	}
	return e
}()

func packed(b []byte) []byte { return packer.EncodeAll(b, nil) }
