package router

import (
	"slices"

	"outbox-relay/router/debezium"
)

// debezium makes topic, key, value, the preset's headers, timestamp and partition.
func (w *writer) debezium(b *debezium.Bound) (key, val mark) {
	rec := w.rec
	start := len(rec.buf)
	out, fault := b.AppendTopic(rec.buf, w.cells)
	rec.buf = out[:start]
	if fault != nil {
		w.rowFault(fault)
	} else {
		w.setTopic("debezium.route", out[start:])
	}
	key.from = len(rec.buf)
	rec.buf, key.null, fault = b.AppendKey(rec.buf, w.cells)
	key = w.piece(key, len(rec.buf), fault)
	rec.value = slices.Grow(rec.value, b.ValueSize(w.cells))
	rec.value, val.null, fault = b.AppendValue(rec.value, w.cells)
	val = w.piece(val, len(rec.value), fault)
	for i := range b.Headers() {
		m := mark{from: len(rec.buf)}
		var name string
		if name, rec.buf, m.null, fault = b.AppendHeader(rec.buf, i, w.cells); fault != nil {
			w.rowFault(fault)
			rec.buf = rec.buf[:m.from]
			continue
		}
		m.to = len(rec.buf)
		w.addHeader(name, m)
	}
	rec.TimestampMillis = floorMillis(w.commit)
	if millis, ok, fault := b.Timestamp(w.cells); fault != nil {
		w.rowFault(fault)
	} else if ok {
		rec.TimestampMillis = millis
	}
	if partition, ok, fault := b.Partition(w.cells); fault != nil {
		w.rowFault(fault)
	} else if ok {
		rec.Partition = partition
	}
	return key, val
}

// piece ends the mark m. After a fault it is null: what stands in the buffer belongs to nothing.
func (w *writer) piece(m mark, to int, fault *debezium.RowFault) mark {
	if fault != nil {
		w.rowFault(fault)
		return mark{null: true}
	}
	m.to = to
	return m
}

// rowFault notes a fault of the preset.
func (w *writer) rowFault(f *debezium.RowFault) {
	switch f.Kind {
	case debezium.Missing:
		w.missing(f.Field, f.Column)
	case debezium.NullTopic:
		w.fail(f.Field, f.Column, ReasonNullTopic, "the topic column is NULL", nil)
	case debezium.Undecodable:
		w.fail(f.Field, f.Column, ReasonUndecodable, "the column's bytes are not a value of its type", f.Err)
	case debezium.InvalidTimestamp:
		w.fail(f.Field, f.Column, ReasonInvalidTimestamp, "the timestamp is before 1970, which Kafka does not know", nil)
	case debezium.InvalidPartition:
		w.fail(f.Field, f.Column, ReasonInvalidPartition, "a partition is a number from 0 to 2147483647", f.Err)
	}
}
