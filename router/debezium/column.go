package debezium

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/value"
	"outbox-relay/binlog/value/scalar"
)

// column reads one column as the connector does.
type column struct {
	index  int
	col    *event.Column
	kind   kind
	schema string // its text without the closing brace
	field  string // where the rules use it, for faults
}

// kind is how a column comes to Kafka Connect.
type kind uint8

const (
	kindInt16 kind = iota
	kindInt32
	kindInt64
	kindUnsigned // BIGINT UNSIGNED as Decimal
	kindFloat
	kindDouble
	kindDecimal
	kindString // also ENUM and SET
	kindBytes
	kindBool // BIT(1)
	kindBits
	kindDate
	kindMillis // DATETIME(0) to (3)
	kindMicros // DATETIME(4) to (6)
	kindTime
	kindZoned // TIMESTAMP
	kindYear
	kindJSON
)

// logical is a schema of Kafka Connect: its type and, for a logical one, name, version and parameters.
type logical struct{ typ, name, parameters string }

// columnOf decides how a column comes to Kafka Connect.
func (p *Preset) columnOf(index int, c *event.Column, field string) (column, error) {
	out := column{index: index, col: c, field: field}
	k, l, err := p.kindOf(c)
	if err != nil {
		return out, err
	}
	out.kind = k
	out.schema = `{"type":"` + l.typ + `","optional":` + strconv.FormatBool(c.Nullable)
	if l.name != "" {
		out.schema += `,"name":"` + l.name + `","version":1`
	}
	if l.parameters != "" {
		out.schema += `,"parameters":{` + l.parameters + `}`
	}
	return out, nil
}

func (p *Preset) kindOf(c *event.Column) (kind, logical, error) {
	const dbz = "io.debezium."
	switch c.Type {
	case event.ColumnTiny:
		return kindInt16, logical{typ: "int16"}, nil
	case event.ColumnShort:
		if c.Unsigned {
			return kindInt32, logical{typ: "int32"}, nil
		}
		return kindInt16, logical{typ: "int16"}, nil
	case event.ColumnInt24:
		return kindInt32, logical{typ: "int32"}, nil
	case event.ColumnLong:
		if c.Unsigned {
			return kindInt64, logical{typ: "int64"}, nil
		}
		return kindInt32, logical{typ: "int32"}, nil
	case event.ColumnLongLong:
		if c.Unsigned && p.o.UnsignedBigint == "precise" {
			return kindUnsigned, logical{"bytes", "org.apache.kafka.connect.data.Decimal", `"scale":"0","connect.decimal.precision":"20"`}, nil
		}
		return kindInt64, logical{typ: "int64"}, nil
	case event.ColumnFloat:
		return kindFloat, logical{typ: "float"}, nil
	case event.ColumnDouble:
		return kindDouble, logical{typ: "double"}, nil
	case event.ColumnDecimal:
		parameters := fmt.Sprintf(`"scale":"%d","connect.decimal.precision":"%d"`, c.Scale(), c.Precision())
		return kindDecimal, logical{"bytes", "org.apache.kafka.connect.data.Decimal", parameters}, nil
	case event.ColumnYear:
		return kindYear, logical{"int32", dbz + "time.Year", ""}, nil
	case event.ColumnDate:
		return kindDate, logical{"int32", dbz + "time.Date", ""}, nil
	case event.ColumnTime:
		return kindTime, logical{"int64", dbz + "time.MicroTime", ""}, nil
	case event.ColumnDatetime:
		if c.Meta > 3 {
			return kindMicros, logical{"int64", dbz + "time.MicroTimestamp", ""}, nil
		}
		return kindMillis, logical{"int64", dbz + "time.Timestamp", ""}, nil
	case event.ColumnTimestamp:
		return kindZoned, logical{"string", dbz + "time.ZonedTimestamp", ""}, nil
	case event.ColumnJSON:
		return kindJSON, logical{"string", dbz + "data.Json", ""}, nil
	case event.ColumnBit:
		if c.Meta == 1 {
			return kindBool, logical{typ: "boolean"}, nil
		}
		return kindBits, logical{"bytes", dbz + "data.Bits", `"length":"` + strconv.Itoa(int(c.Meta)) + `"`}, nil
	case event.ColumnEnum, event.ColumnSet:
		allowed, err := allowedOf(c)
		name := dbz + "data.Enum"
		if c.Type == event.ColumnSet {
			name += "Set"
		}
		return kindString, logical{"string", name, `"allowed":` + string(allowed)}, err
	case event.ColumnVarchar, event.ColumnVarString, event.ColumnString, event.ColumnBlob:
		switch {
		case c.Collation != event.CollationBinary:
			return kindString, logical{typ: "string"}, nil
		case p.o.Binary == "bytes":
			return kindBytes, logical{typ: "bytes"}, nil
		}
		return kindBytes, logical{typ: "string"}, nil
	}
	return 0, logical{}, fmt.Errorf("the preset debezium does not read columns of type %s", c.Type)
}

// allowedOf gives the members of an ENUM or SET, joined by commas, as a JSON string.
func allowedOf(c *event.Column) ([]byte, error) {
	var all []byte
	raw := make([]byte, 8)
	for i := range c.Members {
		number := uint64(i + 1)
		if c.Type == event.ColumnSet {
			number = 1 << i
		}
		binary.LittleEndian.PutUint64(raw, number)
		if i > 0 {
			all = append(all, ',')
		}
		var err error
		if all, err = value.Append(all, c, raw[:c.Meta]); err != nil {
			return nil, err
		}
	}
	return appendJSONString(nil, all), nil
}

// isString tells whether the value is a string for Kafka Connect.
func (p *Preset) isString(c *column) bool {
	return c.kind == kindString || c.kind == kindJSON || c.kind == kindZoned || c.kind == kindBytes && p.o.Binary != "bytes"
}

// isBytes tells whether the value is bytes for Kafka Connect.
func (p *Preset) isBytes(c *column) bool {
	return c.kind == kindBits || c.kind == kindBytes && p.o.Binary == "bytes"
}

// read gives the value of the column. Its bytes go to scratch, which comes back grown, and live until that is used again.
func (b *Bound) read(scratch []byte, c *column, cells []event.Cell) (d datum, _ []byte, fault *RowFault) {
	cell := &cells[c.index]
	switch cell.State {
	case event.CellNull:
		return d, scratch, nil
	case event.CellValue:
	default:
		return d, scratch, &RowFault{Field: c.field, Column: c.index, Kind: Missing}
	}
	out, err := b.valueOf(&d, scratch, c, cell.Raw)
	if err != nil {
		return datum{}, scratch, &RowFault{Field: c.field, Column: c.index, Kind: Undecodable, Err: err}
	}
	return d, out, nil
}

// valueOf reads a value that is not NULL into d.
func (b *Bound) valueOf(d *datum, scratch []byte, c *column, raw []byte) (out []byte, err error) {
	from := len(scratch)
	d.kind = isToken
	switch c.kind {
	case kindString, kindJSON, kindZoned:
		d.kind = isText
		switch {
		case c.kind == kindZoned:
			out, err = appendZoned(scratch, c.col, raw)
		case c.kind == kindJSON && b.preset.o.JSONText == "debezium":
			if len(raw) == 0 && c.col.Nullable {
				*d = datum{}
				return scratch, nil
			}
			out, err = b.values.JSON.AppendDebezium(scratch, raw)
		default:
			out, err = b.values.Append(scratch, c.col, raw)
		}
	case kindBytes:
		if out, err = b.values.Append(scratch, c.col, raw); err == nil {
			d.kind = isText
			bytes := out[from:]
			switch b.preset.o.Binary {
			case "bytes":
				d.kind = isBytes
			case "hex":
				from, out = len(out), hex.AppendEncode(out, bytes)
			case "base64":
				from, out = len(out), base64.StdEncoding.AppendEncode(out, bytes)
			default:
				from, out = len(out), base64.URLEncoding.AppendEncode(out, bytes)
			}
		}
	case kindInt64, kindUnsigned:
		if c.kind == kindInt64 && c.col.Type == event.ColumnLongLong && c.col.Unsigned {
			if len(raw) != 8 {
				return scratch, value.ErrMalformed
			}
			out = strconv.AppendInt(scratch, int64(binary.LittleEndian.Uint64(raw)), 10)
			break
		}
		out, err = b.values.Append(scratch, c.col, raw)
	case kindInt16, kindInt32:
		var n int64
		n, err = value.Int64(c.col, raw)
		out = strconv.AppendInt(scratch, n, 10)
	case kindYear: // the year 0000 is 1900 for Debezium
		if len(raw) != 1 {
			return scratch, value.ErrMalformed
		}
		out = strconv.AppendInt(scratch, 1900+int64(raw[0]), 10)
	case kindDecimal:
		out, err = b.values.Append(scratch, c.col, raw)
	case kindFloat, kindDouble:
		out, err = appendFloating(scratch, c, raw)
	case kindBool:
		var n int64
		n, err = value.Int64(c.col, raw)
		out = strconv.AppendBool(scratch, n != 0)
	case kindBits: // the connector's own order, least significant byte first
		d.kind = isBytes
		out = scratch
		for i := len(raw) - 1; i >= 0; i-- {
			out = append(out, raw[i])
		}
	case kindDate, kindMillis, kindMicros:
		return b.preset.dateTime(d, scratch, c, raw)
	case kindTime:
		var micros int64
		micros, err = value.DurationMicros(c.col, raw)
		out = strconv.AppendInt(scratch, micros, 10)
	}
	if err != nil {
		return scratch, err
	}
	d.text = out[from:]
	if c.kind == kindDecimal || c.kind == kindUnsigned {
		return decimal(d, out, c), nil
	}
	return out, nil
}

// decimal makes a BigDecimal of the plain text in d.
func decimal(d *datum, out []byte, c *column) []byte {
	scale := 0
	if c.kind == kindDecimal {
		scale = c.col.Scale()
	}
	digits := make([]byte, 0, len(d.text))
	for _, x := range d.text {
		if x != '.' {
			digits = append(digits, x)
		}
	}
	n, _ := new(big.Int).SetString(string(digits), 10)
	d.kind, d.unscaled = isDecimal, twosComplement(n)
	from := len(out)
	out = appendBigDecimal(out, n, scale, d.text)
	d.text = out[from:]
	return out
}

// twosComplement gives the shortest big-endian form, as Java's BigInteger.toByteArray.
func twosComplement(n *big.Int) []byte {
	if n.Sign() >= 0 {
		b := n.Bytes()
		if len(b) == 0 || b[0]&0x80 != 0 {
			return append([]byte{0}, b...)
		}
		return b
	}
	size := (new(big.Int).Not(n).BitLen())/8 + 1
	b := new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*size))).Bytes()
	for len(b) < size {
		b = append([]byte{0xff}, b...)
	}
	return b
}

// appendBigDecimal appends what BigDecimal.toString gives: the plain text unless the number begins more than six places behind the point.
func appendBigDecimal(dst []byte, n *big.Int, scale int, plain []byte) []byte {
	digits := new(big.Int).Abs(n).String()
	exponent := len(digits) - 1 - scale
	if scale == 0 || exponent >= -6 {
		return append(dst, plain...)
	}
	if n.Sign() < 0 {
		dst = append(dst, '-')
	}
	dst = append(dst, digits[0])
	if len(digits) > 1 {
		dst = append(append(dst, '.'), digits[1:]...)
	}
	return strconv.AppendInt(append(dst, 'E'), int64(exponent), 10)
}

func appendFloating(dst []byte, c *column, raw []byte) ([]byte, error) {
	if c.kind == kindDouble && len(raw) == 8 {
		if f := math.Float64frombits(binary.LittleEndian.Uint64(raw)); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return scalar.AppendJavaDouble(dst, f), nil
		}
	}
	if c.kind == kindFloat && len(raw) == 4 {
		if f := math.Float32frombits(binary.LittleEndian.Uint32(raw)); !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0) {
			return scalar.AppendJavaFloat(dst, f), nil
		}
	}
	return dst, value.ErrMalformed
}

// dateTime reads DATE and DATETIME. One with a zero part is NULL where the column allows that, else the first of January 1970.
func (p *Preset) dateTime(d *datum, scratch []byte, c *column, raw []byte) ([]byte, error) {
	micros, isDate, err := instant(c.col, raw)
	switch {
	case err != nil:
		return scratch, err
	case !isDate && c.col.Nullable:
		*d = datum{}
		return scratch, nil
	}
	switch c.kind {
	case kindDate:
		micros = floorDiv(micros, 24*3600*1e6)
	case kindMillis:
		micros = floorDiv(micros, 1000)
	}
	from := len(scratch)
	scratch = strconv.AppendInt(scratch, micros, 10)
	d.text = scratch[from:]
	return scratch, nil
}

// instant gives the microseconds since 1970 of a DATE or DATETIME; isDate is false, and micros 0, where year, month or day are zero. A day
// that its month does not have is an error, as it is for Debezium.
func instant(c *event.Column, raw []byte) (micros int64, isDate bool, err error) {
	var year, month, day uint64
	switch {
	case c.Type == event.ColumnDate && len(raw) == 3:
		v := uint64(raw[0]) | uint64(raw[1])<<8 | uint64(raw[2])<<16
		year, month, day = v>>9, v>>5&15, v&31
	case c.Type == event.ColumnDatetime && len(raw) >= 5:
		v := uint64(raw[0]&0x7f)<<32 | uint64(binary.BigEndian.Uint32(raw[1:]))
		year, month, day = v>>22/13, v>>22%13, v>>17&31
	}
	if micros, err = value.TimeMicros(c, raw); err == nil || errors.Is(err, value.ErrNoInstant) {
		if year == 0 || month == 0 || day == 0 {
			return 0, false, nil
		}
	}
	return micros, true, err
}

func floorDiv(n, by int64) int64 {
	q := n / by
	if n%by < 0 {
		q--
	}
	return q
}

// appendZoned appends a TIMESTAMP as ISO text in UTC with the column's digits of fraction. The zero date is the first of January 1970.
func appendZoned(dst []byte, c *event.Column, raw []byte) ([]byte, error) {
	micros, err := value.TimeMicros(c, raw)
	if errors.Is(err, value.ErrNoInstant) {
		micros, err = 0, nil
	}
	if err != nil {
		return dst, err
	}
	dst = time.UnixMicro(micros).UTC().AppendFormat(dst, "2006-01-02T15:04:05")
	return append(scalar.AppendFraction(dst, uint32(micros%1e6), int(c.Meta)), 'Z'), nil
}
