package gtid_test

import (
	"errors"
	"strings"
	"testing"

	"outbox-relay/binlog/gtid"
)

const (
	uuidA = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	uuidB = "eeeeeeee-ffff-ffff-ffff-ffffffffffff"
)

func mustUUID(t testing.TB, s string) gtid.UUID {
	t.Helper()
	u, err := gtid.ParseUUID(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in, want, tag string
		number        int64
	}{
		{uuidA + ":1", uuidA + ":1", "", 1},
		{strings.ToUpper(uuidA) + ": 23", uuidA + ":23", "", 23},
		{uuidA + ":9223372036854775806", uuidA + ":9223372036854775806", "", gtid.MaxNumber},
		{uuidB + ":bar:36028797018963968", uuidB + ":bar:36028797018963968", "bar", 1 << 55},
		{uuidB + ":_Tag9:7", uuidB + ":_tag9:7", "_tag9", 7},
	} {
		g, err := gtid.Parse(c.in)
		if err != nil {
			t.Errorf("Parse(%q): %v", c.in, err)
			continue
		}
		if g.String() != c.want || g.Tag != c.tag || g.Number != c.number {
			t.Errorf("Parse(%q) = %+v, text %q, want %q", c.in, g, g, c.want)
		}
	}
	for _, in := range []string{
		"", uuidA, uuidA + ":", uuidA + ":0", uuidA + ":-1", uuidA + ":+1", uuidA + ":9223372036854775807", uuidA + ":1-2",
		uuidA + ":9a:1", uuidA + ":a-b:1", uuidA + "::1", uuidA + ":" + strings.Repeat("a", 33) + ":1", uuidA[1:] + ":1",
		"3e11fa47071ca-11e1-9e33-c80aa9429562:1", "3e11fa47-71ca-11e1-9e33-c80aa942956g:1", uuidA + ":é:1", uuidA + ":99999999999999999999:1",
	} {
		if g, err := gtid.Parse(in); !errors.Is(err, gtid.ErrMalformed) {
			t.Errorf("Parse(%q) = %v, %v, want ErrMalformed", in, g, err)
		}
	}
}

func TestValidTag(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{
		"a": true, "_": true, "a9_z": true, strings.Repeat("z", 32): true,
		"": false, "9a": false, "A": false, "a-": false, strings.Repeat("z", 33): false, "a\x00": false, "{": false, "`": false,
	} {
		if got := gtid.ValidTag([]byte(in)); got != want {
			t.Errorf("ValidTag(%q) = %v", in, got)
		}
	}
	for _, in := range []string{"A", "aZ", "_A"} {
		if got, err := gtid.ParseTag(in); err != nil || got != strings.ToLower(in) {
			t.Errorf("ParseTag(%q) = %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"@", "[", "`", "{", "a b", "1a"} {
		if got, err := gtid.ParseTag(in); err == nil {
			t.Errorf("ParseTag(%q) = %q, want an error", in, got)
		}
	}
}

func TestUUIDOrderIsByBytes(t *testing.T) {
	t.Parallel()
	a, b := mustUUID(t, uuidA), mustUUID(t, uuidB)
	if a.Compare(b) >= 0 || b.Compare(a) <= 0 || a.Compare(a) != 0 {
		t.Error("wrong order")
	}
	if a.String() != uuidA {
		t.Errorf("String = %s", a)
	}
}
