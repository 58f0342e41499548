package value

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/value/scalar"
)

// civil is a date and a time of day as they are stored: not necessarily ones that exist.
type civil struct {
	year, month, day     uint32
	hour, minute, second uint32
	micros               uint32
}

// appendTemporal appends dates and times with the declared digits of fraction. They never go through a calendar, as
// zero and partial dates are legal values.
func appendTemporal(dst []byte, col *event.Column, raw []byte) ([]byte, error) {
	switch col.Type {
	case event.ColumnYear:
		if len(raw) != 1 {
			return dst, malformed(col, "%d bytes", len(raw))
		}
		year := uint32(0)
		if raw[0] != 0 {
			year = 1900 + uint32(raw[0])
		}
		return append(dst, byte('0'+year/1000), byte('0'+year/100%10), byte('0'+year/10%10), byte('0'+year%10)), nil
	case event.ColumnTime:
		return appendTime(dst, col, raw)
	}
	c, err := civilOf(col, raw)
	if err != nil {
		return dst, err
	}
	dst = scalar.AppendDate(dst, c.year, c.month, c.day)
	if col.Type == event.ColumnDate {
		return dst, nil
	}
	dst = scalar.AppendClock(append(dst, ' '), c.hour, c.minute, c.second)
	return scalar.AppendFraction(dst, c.micros, int(col.Meta)), nil
}

// civilOf reads
//
//	DATE       3 bytes LE: day 5 bits, month 4, year 15
//	DATETIME   5 bytes BE minus 0x8000000000: second 6 bits, minute 6, hour 5, day 5, year × 13 + month 17; fraction
//	TIMESTAMP  4 bytes BE seconds since 1970 in UTC, 0 = zero date; fraction
func civilOf(col *event.Column, raw []byte) (c civil, err error) {
	switch col.Type {
	case event.ColumnDate:
		if len(raw) != 3 {
			break
		}
		v := uint32(raw[0]) | uint32(raw[1])<<8 | uint32(raw[2])<<16
		return civil{day: v & 31, month: v >> 5 & 15, year: v >> 9}, nil
	case event.ColumnDatetime:
		if len(raw) < 5 {
			break
		}
		v := uint64(raw[0])<<32 | uint64(binary.BigEndian.Uint32(raw[1:]))
		micros, ok := fraction(raw[5:], col.Meta)
		if !ok || v < 1<<39 {
			break
		}
		v -= 1 << 39
		yearMonth := uint32(v >> 22)
		return civil{yearMonth / 13, yearMonth % 13, uint32(v >> 17 & 31), uint32(v >> 12 & 31), uint32(v >> 6 & 63), uint32(v & 63), micros}, nil
	case event.ColumnTimestamp:
		if len(raw) < 4 {
			break
		}
		micros, ok := fraction(raw[4:], col.Meta)
		if !ok {
			break
		}
		seconds := binary.BigEndian.Uint32(raw)
		if seconds == 0 {
			return civil{}, nil
		}
		t := time.Unix(int64(seconds), 0).UTC()
		year, month, day := t.Date()
		hour, minute, second := t.Clock()
		return civil{uint32(year), uint32(month), uint32(day), uint32(hour), uint32(minute), uint32(second), micros}, nil
	}
	return civil{}, malformed(col, "%d bytes are no date", len(raw))
}

// fraction reads (digits+1)/2 bytes BE in units of 10^-2, 10^-4 or 10^-6 seconds and gives microseconds.
func fraction(b []byte, digits uint16) (uint32, bool) {
	if digits > 6 || len(b) != int(digits+1)/2 {
		return 0, false
	}
	var v uint32
	for _, x := range b {
		v = v<<8 | uint32(x)
	}
	for range 3 - len(b) {
		v *= 100
	}
	if len(b) == 0 {
		v = 0
	}
	return v, v < 1e6
}

// duration is a TIME.
type duration struct {
	negative             bool
	hour, minute, second uint32
	micros               uint32
}

// durationOf reads a TIME: 3 bytes and the fraction's, BE, as one integer minus 0x800000 shifted by the fraction's
// bits. Its sign is the sign of the whole; the magnitude is hours 10 bits, minutes 6, seconds 6, fraction.
func durationOf(col *event.Column, raw []byte) (d duration, err error) {
	size := int(col.Meta+1) / 2
	if col.Meta > 6 || len(raw) != 3+size {
		return d, malformed(col, "%d bytes are no time", len(raw))
	}
	var v int64
	for _, b := range raw {
		v = v<<8 | int64(b)
	}
	v -= 0x800000 << (8 * size)
	if d.negative = v < 0; d.negative {
		v = -v
	}
	var low [3]byte
	for i := range size {
		low[i] = byte(v >> (8 * (size - 1 - i)))
	}
	var ok bool
	d.micros, ok = fraction(low[:size], col.Meta)
	if v >>= 8 * size; !ok || v>>22 != 0 {
		return d, malformed(col, "time out of range")
	}
	d.hour, d.minute, d.second = uint32(v>>12), uint32(v>>6&63), uint32(v&63)
	return d, nil
}

func appendTime(dst []byte, col *event.Column, raw []byte) ([]byte, error) {
	d, err := durationOf(col, raw)
	if err != nil {
		return dst, err
	}
	if d.negative {
		dst = append(dst, '-')
	}
	dst = scalar.AppendClock(dst, d.hour, d.minute, d.second)
	return scalar.AppendFraction(dst, d.micros, int(col.Meta)), nil
}

// DurationMicros gives the microseconds of a TIME, negative ones below zero. Other column types give an
// *UnsupportedError.
func DurationMicros(col *event.Column, raw []byte) (int64, error) {
	if col.Type != event.ColumnTime {
		return 0, unsupported(col, "it is no TIME")
	}
	d, err := durationOf(col, raw)
	if err != nil {
		return 0, err
	}
	micros := (int64(d.hour)*3600+int64(d.minute)*60+int64(d.second))*1e6 + int64(d.micros)
	if d.negative {
		micros = -micros
	}
	return micros, nil
}

// ErrNoInstant is wrapped by the error of TimeMicros about zero and partial dates.
var ErrNoInstant = errors.New("date is no point in time")

// TimeMicros gives the microseconds since 1970 of a DATE, DATETIME or TIMESTAMP. DATE and DATETIME have no zone and
// are read as UTC. Zero and partial dates give an error that wraps ErrNoInstant, other column types an
// *UnsupportedError.
func TimeMicros(col *event.Column, raw []byte) (int64, error) {
	return TimeMicrosIn(col, raw, time.UTC)
}

// TimeMicrosIn is TimeMicros with DATE and DATETIME read as local times of loc. A time that the zone skips or has
// twice is resolved as by time.Date. TIMESTAMP does not depend on loc.
func TimeMicrosIn(col *event.Column, raw []byte, loc *time.Location) (int64, error) {
	switch col.Type {
	case event.ColumnDate, event.ColumnDatetime, event.ColumnTimestamp:
	default:
		return 0, unsupported(col, "it is no DATE, DATETIME or TIMESTAMP")
	}
	c, err := civilOf(col, raw)
	if err != nil {
		return 0, err
	}
	if col.Type == event.ColumnTimestamp {
		loc = time.UTC
	}
	t := time.Date(int(c.year), time.Month(c.month), int(c.day), int(c.hour), int(c.minute), int(c.second), int(c.micros)*1000, loc)
	if c.month < 1 || c.month > 12 || c.day < 1 || !hasDay(c) || c.hour > 23 || c.minute > 59 || c.second > 59 {
		text, _ := appendTemporal(nil, col, raw)
		return 0, &instantError{column: col.Name, text: string(text)}
	}
	return t.UnixMicro(), nil
}

// hasDay tells whether the month has the day.
func hasDay(c civil) bool {
	return time.Date(int(c.year), time.Month(c.month), int(c.day), 0, 0, 0, 0, time.UTC).Day() == int(c.day)
}

type instantError struct{ column, text string }

func (e *instantError) Error() string {
	return ErrNoInstant.Error() + ": column " + e.column + " is " + e.text
}
func (e *instantError) Unwrap() error { return ErrNoInstant }

// Int64 gives the value of an integer, YEAR or BIT column. Unsigned values above 2^63-1 give ErrOverflow, other
// column types an *UnsupportedError.
func Int64(col *event.Column, raw []byte) (int64, error) {
	var u uint64
	var err error
	switch col.Type {
	case event.ColumnTiny, event.ColumnShort, event.ColumnInt24, event.ColumnLong, event.ColumnLongLong:
		if u, err = integer(col, raw); err == nil && !col.Unsigned {
			return int64(u), nil
		}
	case event.ColumnBit:
		u, err = bitValue(col, raw)
	case event.ColumnYear:
		if len(raw) != 1 {
			return 0, malformed(col, "%d bytes", len(raw))
		}
		if u = uint64(raw[0]); u != 0 {
			u += 1900
		}
	default:
		return 0, unsupported(col, "it is no integer, YEAR or BIT")
	}
	if err == nil && u > math.MaxInt64 {
		err = ErrOverflow
	}
	if err != nil {
		return 0, err
	}
	return int64(u), nil
}

// ErrOverflow is the error of Int64 about values above 2^63-1.
var ErrOverflow = errors.New("value does not fit into 64 bits with a sign")
