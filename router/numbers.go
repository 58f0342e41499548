package router

import (
	"math"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/value"
)

// timestamp gives the record's time; the commit time stands in for one that fails.
func (w *writer) timestamp(rule *boundRule) int64 {
	commit := floorMillis(w.commit)
	if rule.timestamp < 0 {
		return commit
	}
	cell, ok := w.number("timestamp", rule.timestamp, ReasonInvalidTimestamp)
	if !ok {
		return commit
	}
	col := &w.binding.table.Columns[rule.timestamp]
	var millis int64
	var err error
	if isInteger(col) {
		millis, err = value.Int64(col, cell.Raw)
	} else {
		var micros int64
		micros, err = value.TimeMicrosIn(col, cell.Raw, rule.zone)
		millis = floorMillis(micros)
	}
	switch {
	case err != nil:
		w.fail("timestamp", rule.timestamp, ReasonInvalidTimestamp, "the timestamp column is no point in time", err)
	case millis < 0:
		w.fail("timestamp", rule.timestamp, ReasonInvalidTimestamp, "the timestamp is before 1970, which Kafka does not know", nil)
	default:
		return millis
	}
	return commit
}

// number checks that a column that has to be a number is there.
func (w *writer) number(field string, column int, reason Reason) (*event.Cell, bool) {
	cell := &w.cells[column]
	switch cell.State {
	case event.CellValue:
		return cell, true
	case event.CellNull:
		w.fail(field, column, reason, "the "+field+" column is NULL", nil)
	default:
		w.missing(field, column)
	}
	return nil, false
}

func floorMillis(micros int64) int64 {
	millis := micros / 1000
	if micros%1000 < 0 {
		millis--
	}
	return millis
}

func (w *writer) partition(rule *boundRule) int32 {
	if rule.partition < 0 {
		return AnyPartition
	}
	cell, ok := w.number("partition", rule.partition, ReasonInvalidPartition)
	if !ok {
		return AnyPartition
	}
	number, err := value.Int64(&w.binding.table.Columns[rule.partition], cell.Raw)
	if err != nil || number < 0 || number > math.MaxInt32 {
		w.fail("partition", rule.partition, ReasonInvalidPartition, "a partition is a number from 0 to 2147483647", err)
		return AnyPartition
	}
	return int32(number)
}
