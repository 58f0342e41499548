package snapshot

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/value"
)

// keyColumn is a column of the key by which a table is read.
type keyColumn struct {
	*event.Column
	index int // in the table
}

// Keys are stored as a JSON array with a string or null for each column: numbers, dates and times as SELECT prints them, ENUM, SET and BIT as
// numbers, and characters and bytes as x and their hexadecimal digits in the charset of the column.

// isText reports whether values are characters or bytes.
func (k *keyColumn) isText() bool {
	switch k.Type {
	case event.ColumnVarchar, event.ColumnVarString, event.ColumnString, event.ColumnBlob:
		return true
	}
	return false
}

// isClock reports whether values are written as dates or times.
func (k *keyColumn) isClock() bool {
	switch k.Type {
	case event.ColumnDate, event.ColumnDatetime, event.ColumnTimestamp, event.ColumnTime:
		return true
	}
	return false
}

// usable reports whether the column can be a part of a key.
func (k *keyColumn) usable() bool {
	switch k.Type {
	case event.ColumnJSON, event.ColumnGeometry, event.ColumnVector, event.ColumnTypedArray:
		return false
	}
	return !k.isText() || k.Collation == event.CollationBinary || value.Charset(k.Collation) != ""
}

// appendStored appends a value, of which text is what was selected, to a stored key.
func (k *keyColumn) appendStored(dst, text []byte) []byte {
	switch {
	case text == nil:
		return append(dst, "null"...)
	case k.isText():
		dst = append(dst, `"x`...)
		dst = hex.AppendEncode(dst, text)
		return append(dst, '"')
	case k.Type == event.ColumnBit:
		var u uint64
		for _, b := range text {
			u = u<<8 | uint64(b)
		}
		return append(strconv.AppendUint(append(dst, '"'), u, 10), '"')
	}
	return append(append(append(dst, '"'), text...), '"')
}

var errKey = errors.New("the stored key does not fit the columns")

// literal makes a stored value one of a statement. It refuses what such a column cannot have given.
func (k *keyColumn) literal(stored string) (string, error) {
	switch {
	case k.isText():
		digits, ok := strings.CutPrefix(stored, "x")
		if _, err := hex.DecodeString(digits); err != nil || !ok {
			return "", errKey
		}
		if k.Collation == event.CollationBinary {
			return "x'" + digits + "'", nil
		}
		return "_" + value.Charset(k.Collation) + " x'" + digits + "'", nil
	case k.isClock():
		if strings.Trim(stored, "0123456789-:. ") != "" {
			return "", errKey
		}
		return "'" + stored + "'", nil
	}
	if stored == "" || strings.Trim(stored, "0123456789-+.e") != "" {
		return "", errKey
	}
	if (k.Type == event.ColumnFloat || k.Type == event.ColumnDouble) && !strings.Contains(stored, "e") {
		return stored + "e0", nil // a double, not a decimal
	}
	return stored, nil
}

// expression is what is compared and sorted.
func (k *keyColumn) expression() string {
	name := binlog.QuoteName(k.Name)
	if k.Type == event.ColumnEnum || k.Type == event.ColumnSet { // compared with a text they are texts
		return "CAST(" + name + " AS UNSIGNED)"
	}
	return name
}

// bound is the value of one column of a key in a statement.
type bound struct {
	expression, literal string
	nullable, null      bool
}

// bounds parses a stored key.
func bounds(key []keyColumn, stored json.RawMessage) ([]bound, error) {
	var values []*string
	if err := json.Unmarshal(stored, &values); err != nil || len(values) != len(key) {
		return nil, errKey
	}
	out := make([]bound, len(key))
	for i := range key {
		out[i] = bound{expression: key[i].expression(), nullable: key[i].Nullable, null: values[i] == nil}
		if values[i] == nil {
			continue
		}
		var err error
		if out[i].literal, err = key[i].literal(*values[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// behind is the condition of rows whose key comes behind b in the order of the columns, NULL first. The server finds its place in an index by the first
// part; it does not by a comparison of tuples.
func behind(b []bound) string {
	out := beyond(b, true)
	if !b[0].null && len(b) > 1 {
		out = b[0].expression + " >= " + b[0].literal + " AND " + out
	}
	return out
}

// upTo is the condition of rows whose key is b or comes before it.
func upTo(b []bound) string {
	out := beyond(b, false)
	if !b[0].null && !b[0].nullable && len(b) > 1 {
		out = b[0].expression + " <= " + b[0].literal + " AND " + out
	}
	return out
}

// beyond is the condition of keys behind b, or of b and those before it.
func beyond(b []bound, up bool) string {
	first := &b[0]
	var parts []string
	switch {
	case up && first.null:
		parts = append(parts, first.expression+" IS NOT NULL")
	case up:
		parts = append(parts, first.expression+" > "+first.literal)
	case !first.null:
		parts = append(parts, first.expression+" < "+first.literal)
		if first.nullable {
			parts = append(parts, first.expression+" IS NULL")
		}
	}
	equal := first.expression + " = " + first.literal
	if first.null {
		equal = first.expression + " IS NULL"
	}
	switch {
	case len(b) > 1:
		parts = append(parts, "("+equal+" AND "+beyond(b[1:], up)+")")
	case !up:
		parts = append(parts, equal)
	}
	return "(" + strings.Join(parts, " OR ") + ")"
}

// appendPosition appends a value of a key as it stands in a position: text as SELECT prints it with what is not a letter, digit, - _ . or ~ as
// a percent sign and two hexadecimal digits, and bytes in hexadecimal digits.
func (k *keyColumn) appendPosition(dst, raw []byte) []byte {
	if k.isText() && k.Collation == event.CollationBinary {
		return hex.AppendEncode(dst, raw)
	}
	var buf [64]byte
	text, err := value.Append(buf[:0], k.Column, raw)
	if err != nil {
		return hex.AppendEncode(dst, raw)
	}
	for _, c := range text {
		if c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || bytes.IndexByte([]byte("-_.~"), c) >= 0 {
			dst = append(dst, c)
			continue
		}
		dst = fmt.Appendf(dst, "%%%02X", c)
	}
	return dst
}
