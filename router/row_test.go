package router_test

import (
	"encoding/binary"
	"slices"
	"strings"

	"outbox-relay/binlog/event"
)

// This file makes tables and cells as they come from the binlog.

// absent and null are the cells that hold no value.
var (
	absent = event.Cell{State: event.CellAbsent}
	null   = event.Cell{State: event.CellNull}
)

func raw(b []byte) event.Cell     { return event.Cell{State: event.CellValue, Raw: b} }
func text(s string) event.Cell    { return raw([]byte(s)) }
func bigint(n uint64) event.Cell  { return raw(binary.LittleEndian.AppendUint64(nil, n)) }
func integer(n uint32) event.Cell { return raw(binary.LittleEndian.AppendUint32(nil, n)) }

// datetime is a DATETIME(6).
func datetime(year, month, day, hour, minute, second, micros int) event.Cell {
	packed := uint64(year*13+month)<<22 | uint64(day)<<17 | uint64(hour)<<12 | uint64(minute)<<6 | uint64(second)
	b := binary.BigEndian.AppendUint64(nil, packed+0x8000000000)[3:]
	return raw(append(b, byte(micros>>16), byte(micros>>8), byte(micros)))
}

// timestamp is a TIMESTAMP(0).
func timestamp(seconds uint32) event.Cell { return raw(binary.BigEndian.AppendUint32(nil, seconds)) }

const utf8mb4 = 255

func varchar(name string) event.Column {
	return event.Column{Name: name, Type: event.ColumnVarchar, Meta: 400, Collation: utf8mb4, Nullable: true, Visible: true}
}

func varbinary(name string) event.Column {
	return event.Column{Name: name, Type: event.ColumnVarchar, Meta: 400, Collation: event.CollationBinary, Nullable: true, Visible: true}
}

func ofType(name string, t event.ColumnType, meta uint16) event.Column {
	return event.Column{Name: name, Type: t, Meta: meta, Nullable: true, Visible: true}
}

func table(columns ...event.Column) *event.Table {
	return &event.Table{Schema: "app", Name: "t", Columns: columns, HasNames: true, HasSigns: true}
}

// outboxTable has the columns of the usual outbox table, those for polling workers included.
func outboxTable() *event.Table {
	id := event.Column{Name: "id", Type: event.ColumnLongLong, Unsigned: true, PrimaryKey: true, Visible: true}
	aggregate := ofType("aggregate_id", event.ColumnLongLong, 0)
	aggregate.Unsigned = true
	attempts := ofType("attempts", event.ColumnLong, 0)
	attempts.Unsigned = true
	status := ofType("status", event.ColumnEnum, 1)
	status.Members, status.Collation = []string{"PENDING", "PROCESSING", "PUBLISHED", "FAILED"}, utf8mb4
	lastError := ofType("last_error", event.ColumnBlob, 2)
	lastError.Collation = utf8mb4
	return &event.Table{Schema: "app", Name: "outbox_events", HasNames: true, HasSigns: true, Columns: []event.Column{
		id, varchar("aggregate_type"), aggregate, varchar("event_type"), ofType("payload", event.ColumnJSON, 4), status, attempts,
		varchar("locked_by"), ofType("locked_until", event.ColumnDatetime, 6), lastError, ofType("published_at", event.ColumnDatetime, 6),
		varchar("idempotency_key"), ofType("created_at", event.ColumnDatetime, 6), ofType("updated_at", event.ColumnDatetime, 6),
	}}
}

// Indexes of outboxTable's columns.
const (
	colID = iota
	colAggregateType
	colAggregateID
	colEventType
	colPayload
	colIdempotencyKey = 11
)

func outboxRow() []event.Cell {
	at := datetime(2026, 3, 4, 5, 6, 7, 890123)
	return []event.Cell{
		bigint(18446744073709551615), text("order"), bigint(4711), text("OrderPlaced"),
		raw(jsonDocument(member{"item", "a <b> \"c\" é"}, member{"total", int16(-12)}, member{"note", nil})),
		raw([]byte{1}), integer(0), null, null, null, null, text("2f4e0c2a-0000-4000-8000-00000000002a"), at, at,
	}
}

// outboxPayload is the text of outboxRow's payload as SELECT prints it: shorter names come first.
const outboxPayload = `{"item": "a <b> \"c\" é", "note": null, "total": -12}`

// member is one entry of a JSON object: a string, an int16, a []member, true or nil.
type member struct {
	name  string
	value any
}

// jsonDocument encodes an object in MySQL's binary form (small format, below 64 KiB).
func jsonDocument(members ...member) []byte { return append([]byte{0}, jsonObject(members)...) }

func jsonObject(members []member) []byte {
	slices.SortFunc(members, func(a, b member) int {
		if len(a.name) != len(b.name) {
			return len(a.name) - len(b.name)
		}
		return strings.Compare(a.name, b.name)
	})
	le := binary.LittleEndian
	head := 4 + 7*len(members)
	var names, keys, values, data []byte
	for _, m := range members {
		keys = le.AppendUint16(keys, uint16(head+len(names)))
		keys = le.AppendUint16(keys, uint16(len(m.name)))
		names = append(names, m.name...)
	}
	for _, m := range members {
		at := uint16(head + len(names) + len(data))
		kind := byte(0)
		switch v := m.value.(type) {
		case nil:
			kind, at = 4, 0
		case bool:
			kind, at = 4, 1
		case int16:
			kind, at = 5, uint16(v)
		case string:
			kind = 12
			data = binary.AppendUvarint(data, uint64(len(v)))
			data = append(data, v...)
		case []member:
			data = append(data, jsonObject(v)...)
		}
		values = append(values, kind)
		values = le.AppendUint16(values, at)
	}
	out := le.AppendUint16(nil, uint16(len(members)))
	out = le.AppendUint16(out, uint16(head+len(names)+len(data)))
	return slices.Concat(out, keys, values, names, data)
}
