package value_test

import (
	"errors"
	"testing"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/value"
)

// Texts as they are selected for AppendImage come back from Append; where SELECT prints otherwise, print is what it does.
func TestImageOfASelectedValuePrintsAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		column      event.Column
		text, print string
	}{
		{event.Column{Type: event.ColumnTiny}, "-128", ""},
		{event.Column{Type: event.ColumnTiny, Unsigned: true}, "255", ""},
		{event.Column{Type: event.ColumnShort}, "-32768", ""},
		{event.Column{Type: event.ColumnInt24}, "-8388608", ""},
		{event.Column{Type: event.ColumnInt24, Unsigned: true}, "16777215", ""},
		{event.Column{Type: event.ColumnLong, Unsigned: true}, "00042", "42"},
		{event.Column{Type: event.ColumnLongLong}, "-9223372036854775808", ""},
		{event.Column{Type: event.ColumnLongLong, Unsigned: true}, "18446744073709551615", ""},
		{event.Column{Type: event.ColumnYear, Unsigned: true}, "2024", ""},
		{event.Column{Type: event.ColumnYear, Unsigned: true}, "0000", ""},
		{event.Column{Type: event.ColumnFloat, Meta: 4}, "0.10000000149011612", "0.1"},
		{event.Column{Type: event.ColumnFloat, Meta: 4}, "-0", ""},
		{event.Column{Type: event.ColumnDouble, Meta: 8}, "1.7976931348623157e308", ""},
		{event.Column{Type: event.ColumnDouble, Meta: 8}, "-0", ""},
		{event.Column{Type: event.ColumnDecimal, Meta: 10<<8 | 2}, "-12345678.90", ""},
		{event.Column{Type: event.ColumnDecimal, Meta: 65<<8 | 30}, "12345678901234567890123456789012345.123456789012345678901234567890", ""},
		{event.Column{Type: event.ColumnDecimal, Meta: 5<<8 | 5}, "0.00001", ""},
		{event.Column{Type: event.ColumnDecimal, Meta: 5 << 8}, "0", ""},
		{event.Column{Type: event.ColumnBit, Meta: 9}, "\x01\xff", "511"},
		{event.Column{Type: event.ColumnDate}, "9999-12-31", ""},
		{event.Column{Type: event.ColumnDate}, "0000-00-00", ""},
		{event.Column{Type: event.ColumnDate}, "2020-02-00", ""},
		{event.Column{Type: event.ColumnDatetime}, "0000-00-00 00:00:00", ""},
		{event.Column{Type: event.ColumnDatetime, Meta: 6}, "9999-12-31 23:59:59.999999", ""},
		{event.Column{Type: event.ColumnDatetime, Meta: 3}, "2024-02-29 01:02:03.040", ""},
		{event.Column{Type: event.ColumnDatetime, Meta: 1}, "2024-02-29 01:02:03.4", ""},
		{event.Column{Type: event.ColumnTimestamp, Meta: 5}, "2038-01-19 03:14:07.99999", ""},
		{event.Column{Type: event.ColumnTimestamp}, "0000-00-00 00:00:00", ""},
		{event.Column{Type: event.ColumnTime}, "-838:59:59", ""},
		{event.Column{Type: event.ColumnTime, Meta: 6}, "-00:00:00.000001", ""},
		{event.Column{Type: event.ColumnTime, Meta: 2}, "-11:12:13.14", ""},
		{event.Column{Type: event.ColumnTime, Meta: 3}, "838:59:58.999", ""},
		{event.Column{Type: event.ColumnEnum, Meta: 1, Collation: 255, Members: []string{"a", "b"}}, "2", "b"},
		{event.Column{Type: event.ColumnEnum, Meta: 1, Collation: 255, Members: []string{"a", "b"}}, "0", "\x00empty"},
		{event.Column{Type: event.ColumnSet, Meta: 2, Collation: 255, Members: []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"}}, "257", "a,i"},
		{event.Column{Type: event.ColumnString, Meta: 4, Collation: event.CollationBinary}, "a\x00\x00\x00", ""},
		{event.Column{Type: event.ColumnString, Meta: 4, Collation: 8}, "\xe9", "é"},
		{event.Column{Type: event.ColumnVarchar, Meta: 40, Collation: 255}, "", "\x00empty"},
		{event.Column{Type: event.ColumnJSON, Meta: 4}, `{"a": [1, 1.50, "x"]}`, ""},
	} {
		raw, err := value.AppendImage([]byte("x"), &c.column, []byte(c.text))
		if err != nil || raw[0] != 'x' {
			t.Errorf("%s %q: %v", c.column.Type, c.text, err)
			continue
		}
		want := c.print
		if want == "" {
			want = c.text
		}
		if want == "\x00empty" {
			want = ""
		}
		got, err := value.Append(nil, &c.column, raw[1:])
		if err != nil || string(got) != want {
			t.Errorf("%s %q printed %q, %v", c.column.Type, c.text, got, err)
		}
	}
}

func TestImageRefusesWhatIsNoValue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		column event.Column
		text   string
	}{
		{event.Column{Type: event.ColumnLong}, "1.5"},
		{event.Column{Type: event.ColumnLong}, ""},
		{event.Column{Type: event.ColumnDecimal, Meta: 4<<8 | 2}, "123.45"},
		{event.Column{Type: event.ColumnDecimal, Meta: 4<<8 | 2}, "1x"},
		{event.Column{Type: event.ColumnDouble, Meta: 8}, "x"},
		{event.Column{Type: event.ColumnDate}, "2024-01"},
		{event.Column{Type: event.ColumnDatetime}, "2024-01-01"},
		{event.Column{Type: event.ColumnTime}, "01:02"},
		{event.Column{Type: event.ColumnBit, Meta: 9}, "\x01"},
		{event.Column{Type: event.ColumnJSON, Meta: 4}, "{"},
		{event.Column{Type: event.ColumnTypedArray}, "1"},
	} {
		raw, err := value.AppendImage([]byte("x"), &c.column, []byte(c.text))
		var unsupported *value.UnsupportedError
		if !errors.Is(err, value.ErrMalformed) && !errors.As(err, &unsupported) || string(raw) != "x" {
			t.Errorf("%s %q gave %q, %v", c.column.Type, c.text, raw, err)
		}
	}
}
