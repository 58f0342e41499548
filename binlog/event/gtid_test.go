package event_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
)

const uuidBytes = "3e11fa4771ca11e19e33c80aa9429562"

var testUUID = gtid.UUID{0x3e, 0x11, 0xfa, 0x47, 0x71, 0xca, 0x11, 0xe1, 0x9e, 0x33, 0xc8, 0x0a, 0xa9, 0x42, 0x95, 0x62}

func TestParseGTID(t *testing.T) {
	t.Parallel()
	base := uuidBytes + "0500000000000000"
	clock := "02 0300000000000000 0400000000000000"
	full := event.GTID{GTID: gtid.GTID{UUID: testUUID, Number: 5}, LastCommitted: 3, SequenceNumber: 4}
	with := func(g event.GTID, f func(*event.GTID)) event.GTID { f(&g); return g }
	for _, c := range []struct {
		name, body string
		typ        event.Type
		want       event.GTID
	}{
		{"5.6", "00" + base + clock, event.TypeGTID, full},
		{"without a clock", "01" + base, event.TypeGTID, event.GTID{GTID: full.GTID, MayHaveStatements: true}},
		{"8.0", "00" + base + clock + "01000000000000 fc0401 c46a0100", event.TypeGTID, with(full, func(g *event.GTID) {
			g.ImmediateCommit, g.OriginalCommit, g.TransactionLength, g.ServerVersion, g.OriginalVersion = 1, 1, 260, 92868, 92868
		})},
		{"from elsewhere, with what may follow", "01" + base + clock + "02000000000080 01000000000000 09 c46a0180 e1380100 0102030405060708", event.TypeGTID,
			with(full, func(g *event.GTID) {
				g.MayHaveStatements = true
				g.ImmediateCommit, g.OriginalCommit, g.TransactionLength, g.ServerVersion, g.OriginalVersion = 2, 1, 9, 92868, 80097
			})},
		{"anonymous", "00" + strings.Repeat("00", 24) + clock, event.TypeAnonymousGTID, event.GTID{Anonymous: true, LastCommitted: 3, SequenceNumber: 4}},
	} {
		got, err := event.ParseGTID(c.typ, unhex(t, c.body), nil)
		if err != nil || got != c.want {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", c.name, got, err, c.want)
		}
	}
	for name, body := range map[string]string{
		"empty":             "",
		"cut in the number": "00" + base[:46],
		"number 0":          "00" + uuidBytes + "0000000000000000" + clock,
		"number 2^63-1":     "00" + uuidBytes + "ffffffffffffff7f" + clock,
		"negative number":   "00" + uuidBytes + "ffffffffffffffff" + clock,
		"cut in the clock":  "00" + base + clock[:30],
		"cut in the time":   "00" + base + clock + "010000000000",
		"original missing":  "00" + base + clock + "02000000000080",
		"length NULL":       "00" + base + clock + "01000000000000 fb",
		"version cut":       "00" + base + clock + "01000000000000 09 c46a01",
	} {
		if got, err := event.ParseGTID(event.TypeGTID, unhex(t, body), nil); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := event.ParseGTID(event.TypeXID, nil, nil); !errors.Is(err, event.ErrMalformed) {
		t.Errorf("XID as GTID: %v", err)
	}
}

// message builds a GTID_TAGGED body the way the serialization library writes it.
type message struct{ b []byte }

// uint appends an unsigned varint.
func (m *message) uint(v uint64) *message {
	for n := 1; n <= 8; n++ {
		if v>>(7*n) == 0 {
			var word [8]byte
			binary.LittleEndian.PutUint64(word[:], v<<n|(1<<(n-1)-1))
			m.b = append(m.b, word[:n]...)
			return m
		}
	}
	m.b = binary.LittleEndian.AppendUint64(append(m.b, 0xff), v)
	return m
}

func (m *message) int(v int64) *message {
	u := uint64(v) << 1
	if v < 0 {
		u = uint64(-1-v)<<1 | 1
	}
	return m.uint(u)
}

func (m *message) uuid(u gtid.UUID) *message {
	for _, b := range u {
		m.uint(uint64(b))
	}
	return m
}

func (m *message) text(s string) *message {
	m.uint(uint64(len(s)))
	m.b = append(m.b, s...)
	return m
}

// body puts the head in front; extra is added to the size that the head tells.
func (m *message) body(version, lastNeeded uint64, extra int) []byte {
	tail := append((&message{}).uint(lastNeeded).b, m.b...)
	size := len(tail) + 2
	if size > 127 {
		size++
	}
	return append((&message{}).uint(version).uint(uint64(size+extra)).b, tail...)
}

func TestParseTaggedGTID(t *testing.T) {
	t.Parallel()
	tags := &event.Tags{}
	// Every field, values that take one to nine bytes.
	all := (&message{}).uint(0).uint(1).uint(1).uuid(testUUID).uint(2).int(1 << 55).uint(3).text("zz").
		uint(4).int(1 << 40).uint(5).int(-7).uint(6).uint(1764453000123456).uint(7).uint(1<<64 - 1).
		uint(8).uint(128).uint(9).uint(90704).uint(10).uint(80400).uint(11).uint(1 << 62)
	want := event.GTID{MayHaveStatements: true, GTID: gtid.GTID{UUID: testUUID, Tag: "zz", Number: 1 << 55}, LastCommitted: 1 << 40, SequenceNumber: -7,
		ImmediateCommit: 1764453000123456, OriginalCommit: 1<<64 - 1, TransactionLength: 128, ServerVersion: 90704, OriginalVersion: 80400}
	got, err := event.ParseGTID(event.TypeGTIDTagged, all.body(1, 0, 0), tags)
	if err != nil || got != want {
		t.Errorf("all fields:\n got %+v, %v\nwant %+v", got, err, want)
	}
	// Absent originals are equal to the immediate ones; a field that is not known ends the message.
	few := (&message{}).uint(1).uuid(testUUID).uint(2).int(gtid.MaxNumber).uint(3).text("a").uint(6).uint(9).uint(9).uint(90704)
	want = event.GTID{GTID: gtid.GTID{UUID: testUUID, Tag: "a", Number: gtid.MaxNumber}, ImmediateCommit: 9, OriginalCommit: 9, ServerVersion: 90704, OriginalVersion: 90704}
	for name, body := range map[string][]byte{
		"few fields":                      few.body(1, 0, 0),
		"known fields must be understood": few.body(1, 12, 0),
		"bytes behind the message":        append(few.body(1, 0, 0), 0xff, 0xff),
		"a field of later days":           (&message{b: append(append([]byte{}, few.b...), (&message{}).uint(12).text("x").b...)}).body(1, 0, 0),
		"long message":                    (&message{b: append(append([]byte{}, few.b...), (&message{}).uint(12).text(strings.Repeat("x", 200)).b...)}).body(1, 0, 0),
	} {
		if got, err := event.ParseGTID(event.TypeGTIDTagged, body, tags); err != nil || got != want {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", name, got, err, want)
		}
	}
	id := func() *message { return (&message{}).uint(1).uuid(testUUID) }
	for name, body := range map[string][]byte{
		"empty":                         nil,
		"version 2":                     few.body(2, 0, 0),
		"message longer than the body":  few.body(1, 0, 1),
		"message shorter than its head": {0x02, 0x02, 0x00},
		"unknown field is needed":       few.body(1, 13, 0),
		"number 0":                      id().uint(2).int(0).body(1, 0, 0),
		"negative number":               id().uint(2).int(-1).body(1, 0, 0),
		"number 2^63-1":                 id().uint(2).int(1<<63-1).body(1, 0, 0),
		"no number":                     id().body(1, 0, 0),
		"no UUID":                       (&message{}).uint(2).int(1).body(1, 0, 0),
		"fields in disorder":            (&message{}).uint(2).int(1).uint(1).uuid(testUUID).body(1, 0, 0),
		"tag in upper case":             id().uint(2).int(1).uint(3).text("Z").body(1, 0, 0),
		"tag longer than the message":   append(id().uint(2).int(1).uint(3).uint(200).body(1, 0, 0), "aaa"...),
		"byte of the UUID above 255":    (&message{}).uint(1).uint(256).uuid(testUUID).body(1, 0, -1),
	} {
		if got, err := event.ParseGTID(event.TypeGTIDTagged, body, tags); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	whole := all.body(1, 0, 0)
	for n := range whole {
		if got, err := event.ParseGTID(event.TypeGTIDTagged, whole[:n], tags); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%d of %d bytes: %+v, %v", n, len(whole), got, err)
		}
	}
}

func TestTagsStayBounded(t *testing.T) {
	t.Parallel()
	tags := &event.Tags{}
	for i := range 3000 {
		tag := "t" + strings.Repeat("x", i%20) + string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
		body := (&message{}).uint(1).uuid(testUUID).uint(2).int(1).uint(3).text(tag).body(1, 0, 0)
		got, err := event.ParseGTID(event.TypeGTIDTagged, body, tags)
		if err != nil || got.GTID.Tag != tag {
			t.Fatalf("%s: %+v, %v", tag, got, err)
		}
	}
}
