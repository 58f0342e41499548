package router

// Record is what one outbox row becomes. The zero value is ready for [Router.Route].
//
// A Record owns its buffers. Every byte slice in it points into one of them and is valid until Release or the next Route into the same Record:
// whoever keeps a record longer copies it. Strings are not bound by that. In Key and Value nil means null, and an empty slice that is
// not nil means empty; a copy has to keep that difference.
type Record struct {
	// Topic is a valid Kafka topic name. Strings are interned, so keeping one is cheap.
	Topic string
	// Key is nil for a null key.
	Key []byte
	// Value is nil for a null value, which is a tombstone in a compacted topic.
	Value []byte
	// Headers are in the order in which they are published; names may repeat.
	Headers []Header
	// TimestampMillis is in milliseconds since 1970-01-01 00:00:00 UTC and never negative.
	TimestampMillis int64
	// Partition is the partition that the rule asks for, or -1 when the partitioner chooses.
	Partition int32
	// Table is the name of the source table for people and labels: `schema.table`.
	Table string
	// Rule is the index of the rule that made the record, or NoRule.
	Rule int32
	// ID is the text of the row's id column for people, nil where there is none.
	ID []byte
	// Position is the value of [PositionHeader] where the rule leaves that header out, else nil.
	Position []byte

	buf     []byte // all but the value
	value   []byte // so that what comes behind a large value does not move it
	scratch []byte // one column on its way through a filter, a condition or a JSON object
	marks   []mark // of Headers, with the same indexes
}

// Header is one record header.
type Header struct {
	// Key is never empty.
	Key string
	// Value is nil if, and only if, Null is set.
	Value []byte
	// Null marks a null value, which differs from an empty one.
	Null bool
}

// PositionHeader is the name of the last header of every record, unless its rule leaves it out. Its value is `<gtid>#<n>`, the same on every redelivery of the row.
const PositionHeader = "outbox-relay-position"

// NoRule in [Record.Rule] stands for a row that no rule matches, of a table whose rules do not agree on what becomes of it.
const NoRule int32 = -1

// AnyPartition in [Record.Partition] leaves the choice to the partitioner.
const AnyPartition int32 = -1

// mark is a piece of a Record's buffer by offsets. Slices are cut from the buffer only when it has its final place, since appending moves it.
type mark struct {
	from, to int
	null     bool
}

// keepBuffer is the largest buffer, in bytes, that a Record keeps from one row to the next.
const keepBuffer = 1 << 20

// reset makes the Record ready for the next row, with nothing left of the last.
func (rec *Record) reset(table string) {
	scratch := rec.scratch[:0]
	if cap(scratch) > keepBuffer {
		scratch = nil
	}
	*rec = Record{Headers: rec.Headers[:0], Partition: AnyPartition, Table: table, buf: emptied(rec.buf), value: emptied(rec.value), scratch: scratch, marks: rec.marks[:0]}
}

func emptied(buf []byte) []byte {
	if cap(buf) > keepBuffer || cap(buf) == 0 {
		return make([]byte, 0, 512)
	}
	return buf[:0]
}

// Release gives up the memory of a large record, which would be kept until the next Route. Nothing of the Record may be used any more.
func (rec *Record) Release() {
	if max(cap(rec.buf), cap(rec.value), cap(rec.scratch)) > keepBuffer {
		*rec = Record{}
	}
}

// cut gives the piece of a complete buffer that m marks, without room behind it. An empty piece is not nil.
func cut(buf []byte, m mark) []byte {
	if m.null {
		return nil
	}
	return buf[m.from:m.to:m.to]
}
