package gtid_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"outbox-relay/binlog/gtid"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "|", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const (
	hexA = "3e11fa4771ca11e19e33c80aa9429562"
	hexB = "eeeeeeeeffffffffffffffffffffffff"
)

// golden pairs text with the layout that the server's own PREVIOUS_GTIDS events have.
var golden = []struct{ text, encoded string }{
	{"", "0000000000000000"},
	{uuidA + ":1-5", "0100000000000000" + hexA + "0100000000000000 0100000000000000 0600000000000000"},
	{uuidA + ":1-5:8," + uuidB + ":9223372036854775806", "0200000000000000" +
		hexA + "0200000000000000 0100000000000000 0600000000000000 0800000000000000 0900000000000000" +
		hexB + "0100000000000000 feffffffffffff7f ffffffffffffff7f"},
	{uuidA + ":1-5:zz:2," + uuidB + ":bar:36028797018963968", "0103000000000001" +
		hexA + "00 0100000000000000 0100000000000000 0600000000000000" +
		hexA + "04 7a7a 0100000000000000 0200000000000000 0300000000000000" +
		hexB + "06 626172 0100000000000000 0000000000008000 0100000000008000"},
}

func TestEncoding(t *testing.T) {
	t.Parallel()
	for _, c := range golden {
		s, want := mustSet(t, c.text), unhex(t, c.encoded)
		if got := s.Encode([]byte("x")); !bytes.Equal(got, append([]byte("x"), want...)) {
			t.Errorf("Encode(%s)\n got %x\nwant %x", c.text, got[1:], want)
		}
		got, err := gtid.Decode(want)
		if err != nil {
			t.Errorf("Decode(%x): %v", want, err)
		} else if got.String() != c.text {
			t.Errorf("Decode(%x) = %s, want %s", want, got, c.text)
		}
	}
}

func TestDecodeRefusesEveryTruncation(t *testing.T) {
	t.Parallel()
	for _, c := range golden {
		b := unhex(t, c.encoded)
		for n := range b {
			if s, err := gtid.Decode(b[:n]); !errors.Is(err, gtid.ErrMalformed) {
				t.Errorf("%d of %d bytes of %s: %v, %v", n, len(b), c.text, s, err)
			}
		}
		if _, err := gtid.Decode(append(b, 0)); err == nil {
			t.Errorf("%s with a byte more: no error", c.text)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	one, two, six := "0100000000000000", "0200000000000000", "0600000000000000"
	for name, in := range map[string]string{
		"number 0":               one + hexA + one + "0000000000000000" + two,
		"empty range":            one + hexA + one + two + two,
		"descending range":       one + hexA + one + six + two,
		"number 2^63-1":          one + hexA + one + one + "0000000000000080",
		"negative number":        one + hexA + one + "ffffffffffffffff" + one,
		"adjacent ranges":        one + hexA + two + one + two + two + six,
		"huge count of ranges":   one + hexA + "ffffffffffffff7f" + one + two,
		"huge count of entries":  "ffffffffffff0000" + hexA + one + one + two,
		"unknown format":         "0100000000000002" + hexA + one + one + two,
		"tagged head, byte 0":    "0201000000000001" + hexA + "00" + one + one + two,
		"odd tag length":         "0101000000000001" + hexA + "03 61" + one + one + two,
		"tag in upper case":      "0101000000000001" + hexA + "02 41" + one + one + two,
		"tag longer than limits": "0101000000000001" + hexA + "42" + strings.Repeat("61", 33) + one + one + two,
	} {
		if s, err := gtid.Decode(unhex(t, in)); !errors.Is(err, gtid.ErrMalformed) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range golden {
		f.Add(unhex(f, c.encoded))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := gtid.Decode(b)
		if err != nil {
			return
		}
		again, err := gtid.Decode(s.Encode(nil))
		if err != nil || !again.Equal(s) {
			t.Fatalf("%s does not survive encoding: %v, %v", s, again, err)
		}
	})
}

func FuzzParseSet(f *testing.F) {
	for _, c := range golden {
		f.Add(c.text)
	}
	f.Add(uuidA + ":1-5:8:tagA:1-3:tagB:7,\n" + uuidB + " : 3 - 4")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := gtid.ParseSet(text)
		if err != nil {
			return
		}
		again, err := gtid.ParseSet(s.String())
		if err != nil || !again.Equal(s) || again.String() != s.String() {
			t.Fatalf("%q: %s does not survive its text: %v, %v", text, s, again, err)
		}
	})
}
