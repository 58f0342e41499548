package value

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
	"time"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/jsonb"
	"outbox-relay/binlog/value/scalar"
)

// AppendImage is the inverse of Append for a value that was selected and not read in the binlog: it appends its bytes as they stand in a row image, of
// which Append then makes the same text as of the row event. text is what SELECT prints in a session with time zone '+00:00' and without conversion of
// charsets (character_set_results NULL), but for FLOAT and DOUBLE all digits (multiplied by 1e0) and for ENUM and SET the number (CAST AS UNSIGNED). JSON comes as
// close as jsonb.Encode. NULL is for the caller. On an error dst comes back as it was.
func AppendImage(dst []byte, col *event.Column, text []byte) ([]byte, error) {
	switch col.Type {
	case event.ColumnVarchar, event.ColumnVarString, event.ColumnBlob, event.ColumnGeometry, event.ColumnVector:
		return append(dst, text...), nil
	case event.ColumnString:
		if col.Collation == event.CollationBinary {
			text = bytes.TrimRight(text, "\x00") // as the server leaves them out
		}
		return append(dst, text...), nil
	case event.ColumnBit:
		if len(text) != int(col.Meta+7)/8 {
			return dst, malformed(col, "%d bytes for %d bits", len(text), col.Meta)
		}
		return append(dst, text...), nil
	case event.ColumnJSON:
		out, err := jsonb.Encode(dst, text)
		if err != nil {
			return dst, malformed(col, "%v", err)
		}
		return out, nil
	case event.ColumnDecimal:
		out, err := scalar.AppendDecimalImage(dst, text, col.Precision(), col.Scale())
		if err != nil {
			return dst, malformed(col, "the text is no number of %d digits, %d of them behind the point", col.Precision(), col.Scale())
		}
		return out, nil
	case event.ColumnFloat, event.ColumnDouble:
		f, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			return dst, malformed(col, "the text is no number")
		}
		if col.Type == event.ColumnFloat {
			return binary.LittleEndian.AppendUint32(dst, math.Float32bits(float32(f))), nil
		}
		return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f)), nil
	case event.ColumnDate, event.ColumnDatetime, event.ColumnTimestamp, event.ColumnTime:
		return appendTemporalImage(dst, col, text)
	}
	return appendIntegerImage(dst, col, text)
}

// appendIntegerImage appends what is stored as a little-endian integer.
func appendIntegerImage(dst []byte, col *event.Column, text []byte) ([]byte, error) {
	size := 0
	switch col.Type {
	case event.ColumnTiny, event.ColumnYear:
		size = 1
	case event.ColumnShort:
		size = 2
	case event.ColumnInt24:
		size = 3
	case event.ColumnLong:
		size = 4
	case event.ColumnLongLong:
		size = 8
	case event.ColumnEnum, event.ColumnSet:
		size = int(col.Meta)
	default:
		return dst, unsupported(col, "values of this type are not selected")
	}
	u, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		i, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			return dst, malformed(col, "the text is no integer")
		}
		u = uint64(i)
	}
	if col.Type == event.ColumnYear && u != 0 {
		u -= 1900
	}
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], u)
	return append(dst, b[:size]...), nil
}

// appendTemporalImage appends dates and times in the layouts of civilOf and durationOf.
func appendTemporalImage(dst []byte, col *event.Column, text []byte) ([]byte, error) {
	p := clockText{rest: text}
	if col.Type == event.ColumnTime {
		return p.time(dst, col)
	}
	c := civil{year: p.number('-'), month: p.number('-'), day: p.number(' ')}
	if col.Type == event.ColumnDate {
		if p.bad || len(p.rest) > 0 {
			return dst, malformed(col, "the text is no date")
		}
		v := c.year<<9 | c.month<<5 | c.day
		return append(dst, byte(v), byte(v>>8), byte(v>>16)), nil
	}
	c.hour, c.minute, c.second = p.number(':'), p.number(':'), p.number('.')
	c.micros = p.micros()
	if p.bad {
		return dst, malformed(col, "the text is no date with a time")
	}
	if col.Type == event.ColumnTimestamp {
		seconds := uint32(0)
		if c.year != 0 {
			seconds = uint32(time.Date(int(c.year), time.Month(c.month), int(c.day), int(c.hour), int(c.minute), int(c.second), 0, time.UTC).Unix())
		}
		return appendFraction(binary.BigEndian.AppendUint32(dst, seconds), c.micros, col.Meta), nil
	}
	v := uint64(c.year*13+c.month)<<22 | uint64(c.day)<<17 | uint64(c.hour)<<12 | uint64(c.minute)<<6 | uint64(c.second)
	v += 1 << 39
	dst = append(dst, byte(v>>32))
	return appendFraction(binary.BigEndian.AppendUint32(dst, uint32(v)), c.micros, col.Meta), nil
}

// appendFraction appends (digits+1)/2 bytes in the units of fraction.
func appendFraction(dst []byte, micros uint32, digits uint16) []byte {
	size := int(digits+1) / 2
	for range 3 - size {
		micros /= 100
	}
	for i := size - 1; i >= 0; i-- {
		dst = append(dst, byte(micros>>(8*i)))
	}
	return dst
}

// clockText reads numbers with separators between them.
type clockText struct {
	rest []byte
	bad  bool
}

// number takes digits and the separator behind them, which may be missing at the end.
func (p *clockText) number(separator byte) uint32 {
	var v uint32
	n := 0
	for n < len(p.rest) && p.rest[n] >= '0' && p.rest[n] <= '9' {
		v = v*10 + uint32(p.rest[n]-'0')
		n++
	}
	p.bad = p.bad || n == 0 || n > 6 || n < len(p.rest) && p.rest[n] != separator
	p.rest = p.rest[min(n+1, len(p.rest)):]
	return v
}

// micros takes the digits behind the point.
func (p *clockText) micros() uint32 {
	v := uint32(0)
	p.bad = p.bad || len(p.rest) > 6
	for i := range 6 {
		d := byte('0')
		if i < len(p.rest) {
			d = p.rest[i]
		}
		p.bad = p.bad || d < '0' || d > '9'
		v = v*10 + uint32(d-'0')
	}
	return v
}

func (p *clockText) time(dst []byte, col *event.Column) ([]byte, error) {
	rest, negative := bytes.CutPrefix(p.rest, []byte("-"))
	p.rest = rest
	v := int64(p.number(':'))<<12 | int64(p.number(':'))<<6 | int64(p.number('.'))
	micros := p.micros()
	if p.bad {
		return dst, malformed(col, "the text is no time")
	}
	size := int(col.Meta+1) / 2
	for _, b := range appendFraction(nil, micros, col.Meta) {
		v = v<<8 | int64(b)
	}
	if negative {
		v = -v
	}
	v += 0x800000 << (8 * size)
	for i := size + 2; i >= 0; i-- {
		dst = append(dst, byte(v>>(8*i)))
	}
	return dst, nil
}
