package value_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/value"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSupported(t *testing.T) {
	t.Parallel()
	for _, col := range []event.Column{
		{Type: event.ColumnTiny}, {Type: event.ColumnJSON}, {Type: event.ColumnVector}, {Type: event.ColumnGeometry}, {Type: event.ColumnDecimal}, {Type: event.ColumnTime},
		{Type: event.ColumnVarchar, Collation: 255}, {Type: event.ColumnBlob, Collation: 63}, {Type: event.ColumnString, Collation: 28},
		{Type: event.ColumnEnum, Collation: 8, Members: []string{"a"}}, {Type: event.ColumnSet, Collation: 8, Members: []string{"a"}},
	} {
		if err := value.Supported(&col); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		col        event.Column
		named, why string
	}{
		{event.Column{Name: "a", Type: event.ColumnOldDatetime}, "", "rebuild"},
		{event.Column{Name: "a", Type: event.ColumnOldDecimal}, "", "rebuild"},
		{event.Column{Name: "a", Type: event.ColumnTypedArray}, "", "not decoded"},
		{event.Column{Name: "a", Type: 99}, "", "not decoded"},
		{event.Column{Name: "a", Type: event.ColumnVarchar}, "", "8.0.1"},
		{event.Column{Name: "a", Type: event.ColumnVarchar, Collation: 100}, "collation 100", "not known"},
		{event.Column{Name: "a", Type: event.ColumnBlob, Collation: 65535}, "collation 65535", "not known"},
		{event.Column{Name: "a", Type: event.ColumnEnum, Collation: 8}, "latin1", "FULL"},
		{event.Column{Name: "a", Type: event.ColumnSet}, "", "FULL"},
		{event.Column{Name: "a", Type: event.ColumnEnum, Members: []string{"x"}}, "", "FULL"},
	} {
		err := value.Supported(&c.col)
		var u *value.UnsupportedError
		if !errors.As(err, &u) || u.Column != "a" || u.Type != c.col.Type || u.Charset != c.named || !strings.Contains(err.Error(), c.why) {
			t.Errorf("%+v: %v", c.col, err)
		}
		got, err := value.Append([]byte("kept"), &c.col, []byte{1})
		if !errors.As(err, &u) || string(got) != "kept" {
			t.Errorf("%+v: Append gives %s, %v", c.col, got, err)
		}
	}
}

func TestCharset(t *testing.T) {
	t.Parallel()
	for id, want := range map[uint16]string{0: "", 8: "latin1", 47: "latin1", 48: "latin1", 2: "latin2", 9: "latin2", 63: "binary", 33: "utf8mb3", 83: "utf8mb3", 45: "utf8mb4", 46: "utf8mb4", 255: "utf8mb4", 309: "utf8mb4", 28: "gbk", 54: "utf16", 65535: ""} {
		if got := value.Charset(id); got != want {
			t.Errorf("collation %d: %q, want %q", id, got, want)
		}
	}
}

// Symptoms of other tools, each with the bytes of a row image.
func TestAppend(t *testing.T) {
	t.Parallel()
	latin1, set64 := uint16(8), make([]string, 64)
	for i := range set64 {
		set64[i] = string(rune('a'+i%26)) + string(rune('a'+i/26))
	}
	for _, c := range []struct {
		name string
		col  event.Column
		raw  string
		want string
	}{
		{"BIGINT UNSIGNED maximum is not -1", event.Column{Type: event.ColumnLongLong, Unsigned: true}, "ffffffffffffffff", "18446744073709551615"},
		{"BIGINT -1", event.Column{Type: event.ColumnLongLong}, "ffffffffffffffff", "-1"},
		{"MEDIUMINT -8388608", event.Column{Type: event.ColumnInt24}, "000080", "-8388608"},
		{"MEDIUMINT UNSIGNED", event.Column{Type: event.ColumnInt24, Unsigned: true}, "ffffff", "16777215"},
		{"TINYINT UNSIGNED", event.Column{Type: event.ColumnTiny, Unsigned: true}, "ff", "255"},
		{"BINARY(16) with trailing zeros", event.Column{Type: event.ColumnString, Meta: 16, Collation: 63}, "00112233445566778899aabbccdd", "\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\x00\x00"},
		{"VARBINARY is not padded", event.Column{Type: event.ColumnVarchar, Meta: 16, Collation: 63}, "0011", "\x00\x11"},
		{"CHAR is not padded", event.Column{Type: event.ColumnString, Meta: 16, Collation: latin1}, "61", "a"},
		{"latin1", event.Column{Type: event.ColumnBlob, Meta: 2, Collation: latin1}, "61e96280", "aéb€"},
		{"holes of latin1 are C1 controls", event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: latin1}, "818d8f909d", "\u0081\u008d\u008f\u0090\u009d"},
		{"latin2 has C1 controls", event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 9}, "7fc17f80", "\x7fÁ\x7f\u0080"},
		{"latin2_czech_cs has none, and DEL only at the front", event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 2}, "7fc1417f809fa0", "\x7fÁA???\u00a0"},
		{"SET in latin2_czech_cs", event.Column{Type: event.ColumnSet, Meta: 1, Collation: 2, Members: []string{"", "\x7f", "b", "\xc1", "a\x7f"}}, "1b", "\x7f,Á,a?"},
		{"a member in latin2_czech_cs", event.Column{Type: event.ColumnEnum, Meta: 1, Collation: 2, Members: []string{"\x7f\xb1\x80"}}, "01", "\x7fą?"},
		{"gbk", event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 28}, "61d6d062", "a中b"},
		{"gbk with a backslash as second byte", event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 28}, "815c5c", "乗\\"},
		{"utf16 outside the BMP", event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 54}, "4e2dd83dde00", "中😀"},
		{"BIT(64) with the top bit", event.Column{Type: event.ColumnBit, Meta: 64}, "ffffffffffffffff", "18446744073709551615"},
		{"YEAR 0", event.Column{Type: event.ColumnYear, Unsigned: true}, "00", "0000"},
		{"zero TIME(6) has its digits", event.Column{Type: event.ColumnTime, Meta: 6}, "800000000000", "00:00:00.000000"},
		{"TIME(6) just below zero", event.Column{Type: event.ColumnTime, Meta: 6}, "7fffffffffff", "-00:00:00.000001"},
		{"partial date", event.Column{Type: event.ColumnDate}, "40c80f", "2020-02-00"},
		{"TIMESTAMP is UTC", event.Column{Type: event.ColumnTimestamp}, "5e0be100", "2020-01-01 00:00:00"},
		{"zero TIMESTAMP(2)", event.Column{Type: event.ColumnTimestamp, Meta: 2}, "0000000000", "0000-00-00 00:00:00.00"},
		{"ENUM with an invalid value", event.Column{Type: event.ColumnEnum, Meta: 1, Collation: latin1, Members: []string{"a"}}, "00", ""},
		{"ENUM member in latin1", event.Column{Type: event.ColumnEnum, Meta: 2, Collation: latin1, Members: []string{"a", "\xe9"}}, "0200", "é"},
		{"SET of 64 members", event.Column{Type: event.ColumnSet, Meta: 8, Collation: 255, Members: set64}, "0100000000000080", "aa,lc"},
		{"empty SET", event.Column{Type: event.ColumnSet, Meta: 1, Collation: 255, Members: []string{"a"}}, "00", ""},
		{"empty JSON document", event.Column{Type: event.ColumnJSON, Meta: 4}, "", "null"},
		{"FLOAT", event.Column{Type: event.ColumnFloat, Meta: 4}, "cdcccc3d", "0.1"},
		{"DOUBLE", event.Column{Type: event.ColumnDouble, Meta: 8}, "408cb5781daf1544", "1e20"},
	} {
		got, err := value.Append([]byte("x"), &c.col, unhex(t, c.raw))
		if err != nil || string(got) != "x"+c.want {
			t.Errorf("%s: %q, %v, want %q", c.name, got, err, c.want)
		}
	}
}

func TestAppendRefusesDamagedBytes(t *testing.T) {
	t.Parallel()
	two := []string{"a", "\xff"}
	for name, c := range map[string]struct {
		col event.Column
		raw string
	}{
		"INT of 3 bytes":             {event.Column{Type: event.ColumnLong}, "000000"},
		"TINYINT without a byte":     {event.Column{Type: event.ColumnTiny}, ""},
		"BIGINT of 9 bytes":          {event.Column{Type: event.ColumnLongLong}, "000000000000000000"},
		"YEAR of 2 bytes":            {event.Column{Type: event.ColumnYear}, "0000"},
		"FLOAT NaN":                  {event.Column{Type: event.ColumnFloat}, "0000c07f"},
		"FLOAT of 8 bytes":           {event.Column{Type: event.ColumnFloat}, "0000000000000000"},
		"DOUBLE infinity":            {event.Column{Type: event.ColumnDouble}, "000000000000f07f"},
		"DECIMAL of a wrong size":    {event.Column{Type: event.ColumnDecimal, Meta: 10<<8 | 2}, "80"},
		"BIT(9) of 1 byte":           {event.Column{Type: event.ColumnBit, Meta: 9}, "01"},
		"DATE of 2 bytes":            {event.Column{Type: event.ColumnDate}, "0000"},
		"DATETIME of 4 bytes":        {event.Column{Type: event.ColumnDatetime}, "80000000"},
		"negative DATETIME":          {event.Column{Type: event.ColumnDatetime}, "7fffffffff"},
		"DATETIME(6), fraction 2^24": {event.Column{Type: event.ColumnDatetime, Meta: 6}, "8000000000ffffff"},
		"DATETIME(2), fraction 100":  {event.Column{Type: event.ColumnDatetime, Meta: 2}, "800000000064"},
		"TIMESTAMP without fraction": {event.Column{Type: event.ColumnTimestamp, Meta: 2}, "00000001"},
		"TIME of 2 bytes":            {event.Column{Type: event.ColumnTime}, "8000"},
		"TIME at its lowest":         {event.Column{Type: event.ColumnTime}, "000000"},
		"TIME(2), fraction 255":      {event.Column{Type: event.ColumnTime, Meta: 2}, "800000ff"},
		"JSON":                       {event.Column{Type: event.ColumnJSON, Meta: 4}, "10"},
		"ENUM member 3 of 2":         {event.Column{Type: event.ColumnEnum, Meta: 1, Collation: 8, Members: two}, "03"},
		"ENUM of 2 bytes for 1":      {event.Column{Type: event.ColumnEnum, Meta: 1, Collation: 8, Members: two}, "0100"},
		"ENUM member ill-formed":     {event.Column{Type: event.ColumnEnum, Meta: 1, Collation: 28, Members: two}, "02"},
		"SET with a bit too many":    {event.Column{Type: event.ColumnSet, Meta: 1, Collation: 8, Members: two}, "04"},
		"SET member ill-formed":      {event.Column{Type: event.ColumnSet, Meta: 1, Collation: 28, Members: two}, "03"},
		"gbk, second byte missing":   {event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 28}, "61d6"},
		"gbk, second byte wrong":     {event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 28}, "d620"},
		"ujis, three bytes cut":      {event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 12}, "8fa2"},
		"gb18030, four bytes cut":    {event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 248}, "813081"},
		"gb18030, four bytes wrong":  {event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 248}, "81308120"},
		"utf16, odd length":          {event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 54}, "4e2d4e"},
		"utf16, half a pair":         {event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 54}, "d83d"},
		"utf16, pair of two highs":   {event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 54}, "d83dd83d"},
		"utf16, low first":           {event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 54}, "de00d83d"},
		"ucs2, pair":                 {event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 35}, "d83dde00"},
		"utf32, surrogate":           {event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 60}, "0000d83d"},
		"utf32, above the last":      {event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 60}, "00110000"},
		"utf32, three bytes":         {event.Column{Type: event.ColumnVarchar, Meta: 9, Collation: 60}, "000041"},
	} {
		c.col.Name = "c"
		got, err := value.Append([]byte("kept"), &c.col, unhex(t, c.raw))
		if !errors.Is(err, value.ErrMalformed) || string(got) != "kept" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestInt64(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		col  event.Column
		raw  string
		want int64
	}{
		{event.Column{Type: event.ColumnLong}, "ffffffff", -1}, {event.Column{Type: event.ColumnLong, Unsigned: true}, "ffffffff", 1<<32 - 1},
		{event.Column{Type: event.ColumnLongLong, Unsigned: true}, "ffffffffffffff7f", 1<<63 - 1}, {event.Column{Type: event.ColumnLongLong}, "0000000000000080", -1 << 63},
		{event.Column{Type: event.ColumnYear}, "78", 2020}, {event.Column{Type: event.ColumnYear}, "00", 0}, {event.Column{Type: event.ColumnBit, Meta: 9}, "01ff", 511},
	} {
		if got, err := value.Int64(&c.col, unhex(t, c.raw)); err != nil || got != c.want {
			t.Errorf("%s %s: %d, %v", c.col.Type, c.raw, got, err)
		}
	}
	if _, err := value.Int64(&event.Column{Type: event.ColumnLongLong, Unsigned: true}, unhex(t, "0000000000000080")); !errors.Is(err, value.ErrOverflow) {
		t.Errorf("2^63: %v", err)
	}
	if _, err := value.Int64(&event.Column{Type: event.ColumnLong}, unhex(t, "00")); !errors.Is(err, value.ErrMalformed) {
		t.Errorf("cut INT: %v", err)
	}
	if _, err := value.Int64(&event.Column{Type: event.ColumnYear}, nil); !errors.Is(err, value.ErrMalformed) {
		t.Errorf("cut YEAR: %v", err)
	}
	var u *value.UnsupportedError
	if _, err := value.Int64(&event.Column{Type: event.ColumnVarchar, Collation: 8}, []byte("1")); !errors.As(err, &u) {
		t.Errorf("VARCHAR: %v", err)
	}
}

func TestTimeMicros(t *testing.T) {
	t.Parallel()
	tokyo := time.FixedZone("", 9*3600)
	for _, c := range []struct {
		name string
		col  event.Column
		raw  string
		loc  *time.Location
		want string
	}{
		{"TIMESTAMP", event.Column{Type: event.ColumnTimestamp}, "5e0be100", time.UTC, "2020-01-01T00:00:00Z"},
		{"TIMESTAMP does not depend on the zone", event.Column{Type: event.ColumnTimestamp, Meta: 6}, "5e0be100000001", tokyo, "2020-01-01T00:00:00.000001Z"},
		{"DATETIME(3)", event.Column{Type: event.ColumnDatetime, Meta: 3}, "99a54230c51a7c", time.UTC, "2020-01-01T03:03:05.678Z"},
		{"DATETIME(3) in Tokyo", event.Column{Type: event.ColumnDatetime, Meta: 3}, "99a54230c51a7c", tokyo, "2019-12-31T18:03:05.678Z"},
		{"DATE", event.Column{Type: event.ColumnDate}, "22c80f", time.UTC, "2020-01-02T00:00:00Z"},
	} {
		want, err := time.Parse(time.RFC3339Nano, c.want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := value.TimeMicrosIn(&c.col, unhex(t, c.raw), c.loc)
		if err != nil || got != want.UnixMicro() {
			t.Errorf("%s: %s, %v, want %s", c.name, time.UnixMicro(got).UTC(), err, c.want)
		}
	}
	for name, c := range map[string]struct {
		col event.Column
		raw string
	}{
		"zero DATE": {event.Column{Type: event.ColumnDate}, "000000"}, "2020-02-00": {event.Column{Type: event.ColumnDate}, "40c80f"}, "2021-02-29": {event.Column{Type: event.ColumnDate}, "5dca0f"},
		"2020-00-10": {event.Column{Type: event.ColumnDate}, "0ac80f"}, "zero TIMESTAMP": {event.Column{Type: event.ColumnTimestamp}, "00000000"}, "zero DATETIME": {event.Column{Type: event.ColumnDatetime}, "8000000000"},
	} {
		if got, err := value.TimeMicros(&c.col, unhex(t, c.raw)); !errors.Is(err, value.ErrNoInstant) {
			t.Errorf("%s: %d, %v", name, got, err)
		}
	}
	var u *value.UnsupportedError
	if _, err := value.TimeMicros(&event.Column{Type: event.ColumnTime}, unhex(t, "800000")); !errors.As(err, &u) {
		t.Errorf("TIME: %v", err)
	}
	if _, err := value.TimeMicros(&event.Column{Type: event.ColumnDate}, nil); !errors.Is(err, value.ErrMalformed) {
		t.Errorf("cut DATE: %v", err)
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	buf := make([]byte, 0, 1<<20)
	for name, rows := range images(t, fixture(t, fixtures[0]), fixtureDatabase) {
		for _, im := range rows {
			for i, c := range im.cells {
				col := &im.table.Columns[i]
				if c.State != event.CellValue {
					continue
				}
				if n := testing.AllocsPerRun(5, func() { _, _ = value.Append(buf, col, c.Raw) }); n != 0 {
					t.Errorf("%s.%s: %v allocations", name, col.Name, n)
				}
			}
		}
	}
}

// FuzzAppend gives arbitrary bytes to columns of every type and charset.
func FuzzAppend(f *testing.F) {
	seen := map[[3]uint16]bool{}
	for _, rows := range images(f, fixture(f, fixtures[0]), fixtureDatabase) {
		for _, im := range rows {
			for i, c := range im.cells {
				col := im.table.Columns[i]
				kind := [3]uint16{uint16(col.Type), col.Meta, col.Collation}
				if seen[kind] || len(c.Raw) == 0 {
					continue
				}
				seen[kind] = true
				f.Add(uint8(col.Type), col.Meta, col.Unsigned, col.Collation, c.Raw[:min(len(c.Raw), 64)])
			}
		}
	}
	members := []string{"a", "b\xe9", "中"}
	f.Fuzz(func(t *testing.T, typ uint8, meta uint16, unsigned bool, collation uint16, raw []byte) {
		col := &event.Column{Type: event.ColumnType(typ), Meta: meta, Unsigned: unsigned, Collation: collation, Members: members}
		got, err := value.Append([]byte("kept"), col, raw)
		if !bytes.HasPrefix(got, []byte("kept")) || err != nil && len(got) != 4 {
			t.Fatalf("%q, %v", got, err)
		}
		if len(got) > 41*len(raw)+int(meta)+100 {
			t.Fatalf("%d bytes became %d", len(raw), len(got))
		}
		_, _ = value.Int64(col, raw)
		_, _ = value.TimeMicros(col, raw)
	})
}
