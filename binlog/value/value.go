// Package value turns the values of row images into text: what SELECT prints for the column in a session with time
// zone '+00:00' and character set utf8mb4, byte for byte. The two exceptions are deliberate: BIT becomes an unsigned
// decimal number, and columns without a charset (BINARY, VARBINARY, BLOB, GEOMETRY, VECTOR) are their raw bytes.
//
// Text of every charset of MySQL 9.7 is converted to UTF-8 with the server's own mapping, which differs from those
// of common libraries for the East Asian charsets; a character without a counterpart in Unicode is '?', as the server
// prints it. What is not surely known (a collation that is not in the table,
// members of an ENUM without full metadata, column types from before MySQL 5.6) is an [*UnsupportedError], never a
// guess.
//
// ZEROFILL and the decimals of FLOAT(M,D) and DOUBLE(M,D), both deprecated, are in no row event: such columns are
// shown without them.
//
// The package is pure; functions append to dst and do not allocate when dst has room. Tables of rare charsets are
// unpacked at their first use.
package value

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/jsonb"
	"outbox-relay/binlog/value/scalar"
)

// ErrMalformed is wrapped by errors about bytes that are no value of the column.
var ErrMalformed = errors.New("malformed column value")

// UnsupportedError says that values of a column cannot be turned into text for sure.
type UnsupportedError struct {
	Column  string // empty where names are not known
	Type    event.ColumnType
	Charset string // name, or "collation n"; empty where the charset does not matter
	Reason  string // what is missing, and what an operator can do
}

func (e *UnsupportedError) Error() string {
	s := "column " + strconv.Quote(e.Column) + " of type " + e.Type.String()
	if e.Charset != "" {
		s += ", charset " + e.Charset
	}
	return s + ": " + e.Reason
}

// Supported tells whether Append can handle the column; the error is an *UnsupportedError. What it accepts fails
// later only on damaged bytes.
func Supported(col *event.Column) error {
	switch col.Type {
	case event.ColumnTiny, event.ColumnShort, event.ColumnInt24, event.ColumnLong, event.ColumnLongLong, event.ColumnYear,
		event.ColumnFloat, event.ColumnDouble, event.ColumnDecimal, event.ColumnBit,
		event.ColumnDate, event.ColumnDatetime, event.ColumnTimestamp, event.ColumnTime,
		event.ColumnJSON, event.ColumnGeometry, event.ColumnVector:
		return nil
	case event.ColumnVarchar, event.ColumnVarString, event.ColumnString, event.ColumnBlob:
		return supportedCharset(col)
	case event.ColumnEnum, event.ColumnSet:
		if len(col.Members) == 0 {
			return unsupported(col, "its members are known only with binlog_row_metadata=FULL")
		}
		return supportedCharset(col)
	}
	return unsupported(col, "values of this type are not decoded; rebuild the table with ALTER TABLE … FORCE")
}

func supportedCharset(col *event.Column) error {
	if charsetOf(col.Collation) == charsetUnknown {
		if col.Collation == 0 {
			return unsupported(col, "its charset is not in the table map; it needs MySQL 8.0.1 or later, ENUM and SET binlog_row_metadata=FULL")
		}
		return unsupported(col, "the charset of this collation is not known")
	}
	return nil
}

func unsupported(col *event.Column, reason string) error {
	e := &UnsupportedError{Column: col.Name, Type: col.Type, Reason: reason}
	if col.Collation != 0 {
		if e.Charset = Charset(col.Collation); e.Charset == "" {
			e.Charset = fmt.Sprintf("collation %d", col.Collation)
		}
	}
	return e
}

// malformed makes the error about raw bytes that do not fit the column.
func malformed(col *event.Column, format string, args ...any) error {
	return fmt.Errorf("%w: column %q (%s): %s", ErrMalformed, col.Name, col.Type, fmt.Sprintf(format, args...))
}

// Append appends the text of a value to dst. raw is the value as event.Rows gives it, without its length prefix;
// NULL and absent columns are for the caller. On an error dst comes back as it was.
func Append(dst []byte, col *event.Column, raw []byte) ([]byte, error) {
	switch col.Type {
	case event.ColumnTiny, event.ColumnShort, event.ColumnInt24, event.ColumnLong, event.ColumnLongLong:
		u, err := integer(col, raw)
		if err != nil {
			return dst, err
		}
		if col.Unsigned {
			return scalar.AppendUint(dst, u), nil
		}
		return scalar.AppendInt(dst, int64(u)), nil
	case event.ColumnVarchar, event.ColumnVarString, event.ColumnBlob, event.ColumnString:
		return appendCharacters(dst, col, raw)
	case event.ColumnJSON:
		out, err := jsonb.Append(dst, raw)
		return out, documentError(col, err)
	case event.ColumnGeometry, event.ColumnVector:
		return append(dst, raw...), nil
	case event.ColumnDate, event.ColumnDatetime, event.ColumnTimestamp, event.ColumnTime, event.ColumnYear:
		return appendTemporal(dst, col, raw)
	case event.ColumnFloat, event.ColumnDouble:
		return appendFloating(dst, col, raw)
	case event.ColumnDecimal:
		out, err := scalar.AppendDecimal(dst, raw, col.Precision(), col.Scale())
		if err != nil {
			return dst, malformed(col, "%d bytes are no number of %d digits, %d of them behind the point", len(raw), col.Precision(), col.Scale())
		}
		return out, nil
	case event.ColumnBit:
		u, err := bitValue(col, raw)
		if err != nil {
			return dst, err
		}
		return scalar.AppendUint(dst, u), nil
	case event.ColumnEnum, event.ColumnSet:
		return appendMembers(dst, col, raw)
	}
	return dst, Supported(col)
}

// Printer makes the texts of many values as Append does, JSON documents faster. Its zero value is ready. It is not for several goroutines at once.
type Printer struct{ JSON jsonb.Printer }

// Append is the function Append.
func (p *Printer) Append(dst []byte, col *event.Column, raw []byte) ([]byte, error) {
	if col.Type == event.ColumnJSON {
		out, err := p.JSON.Append(dst, raw)
		return out, documentError(col, err)
	}
	return Append(dst, col, raw)
}

func documentError(col *event.Column, err error) error {
	if err != nil {
		return malformed(col, "%v", err)
	}
	return nil
}

// integer gives the value of an integer column; negative ones are sign-extended.
func integer(col *event.Column, raw []byte) (uint64, error) {
	var u uint64
	switch {
	case col.Type == event.ColumnLongLong && len(raw) == 8:
		return binary.LittleEndian.Uint64(raw), nil
	case col.Type == event.ColumnLong && len(raw) == 4:
		u = uint64(binary.LittleEndian.Uint32(raw))
	case col.Type == event.ColumnInt24 && len(raw) == 3:
		u = uint64(raw[0]) | uint64(raw[1])<<8 | uint64(raw[2])<<16
	case col.Type == event.ColumnShort && len(raw) == 2:
		u = uint64(binary.LittleEndian.Uint16(raw))
	case col.Type == event.ColumnTiny && len(raw) == 1:
		u = uint64(raw[0])
	default:
		return 0, malformed(col, "%d bytes", len(raw))
	}
	if !col.Unsigned {
		shift := 64 - 8*len(raw)
		u = uint64(int64(u<<shift) >> shift)
	}
	return u, nil
}

// bitValue reads a BIT: (bits+7)/8 bytes, big-endian.
func bitValue(col *event.Column, raw []byte) (uint64, error) {
	if len(raw) > 8 || len(raw) != int(col.Meta+7)/8 {
		return 0, malformed(col, "%d bytes for %d bits", len(raw), col.Meta)
	}
	var u uint64
	for _, b := range raw {
		u = u<<8 | uint64(b)
	}
	return u, nil
}

func appendFloating(dst []byte, col *event.Column, raw []byte) ([]byte, error) {
	switch {
	case col.Type == event.ColumnDouble && len(raw) == 8:
		f := math.Float64frombits(binary.LittleEndian.Uint64(raw))
		if !math.IsNaN(f) && !math.IsInf(f, 0) {
			return scalar.AppendDouble(dst, f, ""), nil
		}
	case col.Type == event.ColumnFloat && len(raw) == 4:
		f := math.Float32frombits(binary.LittleEndian.Uint32(raw))
		if !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0) {
			return scalar.AppendFloat(dst, f), nil
		}
	}
	return dst, malformed(col, "no finite number")
}

// appendCharacters appends a string, or the bytes of a binary column. The server leaves trailing 0x00 bytes of a
// BINARY(n) out of the row image; they are put back.
func appendCharacters(dst []byte, col *event.Column, raw []byte) ([]byte, error) {
	cs := charsetOf(col.Collation)
	if cs == charsetBinary {
		dst = append(dst, raw...)
		if col.Type == event.ColumnString {
			for range int(col.Meta) - len(raw) {
				dst = append(dst, 0)
			}
		}
		return dst, nil
	}
	out, ok := cs.appendUTF8(dst, raw)
	if !ok {
		if err := Supported(col); err != nil {
			return dst, err
		}
		return dst, malformed(col, "no valid text of charset %s", cs)
	}
	return out, nil
}

// appendMembers appends the member of an ENUM, or the members of a SET joined by commas in the order of the declaration.
func appendMembers(dst []byte, col *event.Column, raw []byte) ([]byte, error) {
	if err := Supported(col); err != nil {
		return dst, err
	}
	if len(raw) == 0 || len(raw) > 8 || len(raw) != int(col.Meta) {
		return dst, malformed(col, "%d bytes", len(raw))
	}
	var u uint64
	for i, b := range raw {
		u |= uint64(b) << (8 * i)
	}
	cs := charsetOf(col.Collation)
	if col.Type == event.ColumnEnum {
		if u > uint64(len(col.Members)) {
			return dst, malformed(col, "member %d of %d", u, len(col.Members))
		}
		if u == 0 { // an invalid value stored with a permissive sql_mode
			return dst, nil
		}
		return appendMember(dst, col, cs, int(u-1))
	}
	if len(col.Members) < 64 && u>>len(col.Members) != 0 {
		return dst, malformed(col, "mask %#x for %d members", u, len(col.Members))
	}
	if cs == charsetLatin2Czech {
		return appendSetAsWhole(dst, col, cs, u)
	}
	out := dst
	for i := 0; u != 0; i, u = i+1, u>>1 {
		if u&1 == 0 {
			continue
		}
		if len(out) > len(dst) {
			out = append(out, ',')
		}
		var err error
		if out, err = appendMember(out, col, cs, i); err != nil {
			return dst, err
		}
	}
	return out, nil
}

// appendSetAsWhole converts the members of a SET in one piece, as the server does: for charsets where it makes a difference.
func appendSetAsWhole(dst []byte, col *event.Column, cs charset, mask uint64) ([]byte, error) {
	var text []byte
	for i, m := range col.Members {
		if mask>>i&1 == 0 {
			continue
		}
		if len(text) > 0 {
			text = append(text, ',')
		}
		text = append(text, m...)
	}
	out, ok := cs.appendUTF8(dst, text)
	if !ok {
		return dst, malformed(col, "members are no valid text of charset %s", cs)
	}
	return out, nil
}

func appendMember(dst []byte, col *event.Column, cs charset, i int) ([]byte, error) {
	if cs == charsetBinary {
		return append(dst, col.Members[i]...), nil
	}
	out, ok := appendUTF8String(cs, dst, col.Members[i])
	if !ok {
		return dst, malformed(col, "member %d is no valid text of charset %s", i+1, cs)
	}
	return out, nil
}
