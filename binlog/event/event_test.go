package event_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"outbox-relay/binlog/event"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "", "|", "", "\t", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseHeader(t *testing.T) {
	t.Parallel()
	b := unhex(t, "e0a00c6b 13 07000000 7b000000 7f010000 a000 ff")
	got, err := event.ParseHeader(b)
	want := event.Header{Timestamp: 0x6b0ca0e0, Type: event.TypeTableMap, ServerID: 7, Size: 123, LogPos: 0x17f, Flags: event.FlagArtificial | event.FlagIgnorable}
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := event.ParseHeader(b[:18]); !errors.Is(err, event.ErrMalformed) {
		t.Errorf("18 bytes: %v", err)
	}
	b[9] = 18
	if _, err := event.ParseHeader(b); !errors.Is(err, event.ErrMalformed) {
		t.Errorf("size 18: %v", err)
	}
}

func TestTypeNames(t *testing.T) {
	t.Parallel()
	if got := event.TypeGTIDTagged.String(); got != "GTID_TAGGED" {
		t.Errorf("got %s", got)
	}
	for _, typ := range []event.Type{0, 1, 6, 12, 43, 160, 255} {
		if typ.Known() || !strings.HasPrefix(typ.String(), "TYPE_") {
			t.Errorf("type %d is %s", typ, typ)
		}
	}
}

func TestVerifyChecksum(t *testing.T) {
	t.Parallel()
	for _, e := range readFile(t, "testdata/groups.binlog") {
		bad := append([]byte(nil), e.whole...)
		for _, i := range []int{0, 18, len(bad) / 2, len(bad) - 5, len(bad) - 1} {
			bad[i] ^= 0x10
			if event.VerifyChecksum(bad) {
				t.Errorf("%s at %d: byte %d is not covered", e.Type, e.LogPos, i)
			}
			bad[i] ^= 0x10
		}
	}
	if event.VerifyChecksum(make([]byte, event.HeaderSize+event.ChecksumSize-1)) || event.VerifyChecksum(nil) {
		t.Error("an event without a place for a checksum passes")
	}
}

func TestFormatDescription(t *testing.T) {
	t.Parallel()
	body := readFile(t, "testdata/groups.binlog")[0].body
	fd, err := event.ParseFormatDescription(body)
	if err != nil || fd.ServerVersion != "9.7.4-2" || fd.Checksum != event.ChecksumCRC32 {
		t.Errorf("got %+v, %v", fd, err)
	}
	for name, change := range map[string]func([]byte) []byte{
		"version 3":                    func(b []byte) []byte { b[0] = 3; return b },
		"header of 13 bytes":           func(b []byte) []byte { b[56] = 13; return b },
		"table ids of 4 bytes":         func(b []byte) []byte { b[57+18] = 6; return b },
		"row events of another kind":   func(b []byte) []byte { b[57+29] = 8; return b },
		"row events v1 of another one": func(b []byte) []byte { b[57+22] = 6; return b },
		"unknown checksum":             func(b []byte) []byte { b[len(b)-1] = 2; return b },
		"cut off":                      func(b []byte) []byte { return b[:80] },
		"empty":                        func([]byte) []byte { return nil },
	} {
		if fd, err := event.ParseFormatDescription(change(append([]byte(nil), body...))); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%s: %+v, %v", name, fd, err)
		}
	}
	body = append([]byte(nil), body...)
	body[len(body)-1] = 0
	if fd, err := event.ParseFormatDescription(body); err != nil || fd.Checksum != event.ChecksumNone {
		t.Errorf("without checksums: %+v, %v", fd, err)
	}
}

func TestSmallEvents(t *testing.T) {
	t.Parallel()
	r, err := event.ParseRotate(unhex(t, "0401000000000000 62696e6c6f672e303030303031"))
	if err != nil || r.Position != 260 || string(r.File) != "binlog.000001" {
		t.Errorf("ROTATE: %+v, %v", r, err)
	}
	if _, err := event.ParseRotate(make([]byte, 8)); !errors.Is(err, event.ErrMalformed) {
		t.Errorf("ROTATE without a file: %v", err)
	}
	x, err := event.ParseXID(unhex(t, "0807060504030201"))
	if err != nil || x != 0x0102030405060708 {
		t.Errorf("XID: %x, %v", x, err)
	}
	if _, err := event.ParseXID(make([]byte, 7)); !errors.Is(err, event.ErrMalformed) {
		t.Errorf("short XID: %v", err)
	}
	in, err := event.ParseIncident(unhex(t, "0100 04 6c6f7374"))
	if err != nil || in.Number != 1 || string(in.Message) != "lost" {
		t.Errorf("INCIDENT: %+v, %v", in, err)
	}
	for _, b := range []string{"", "0100", "0100 05 6c6f7374"} {
		if _, err := event.ParseIncident(unhex(t, b)); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("INCIDENT %q: %v", b, err)
		}
	}
	hb, err := event.ParseHeartbeat(event.Header{Type: event.TypeHeartbeat, LogPos: 99}, []byte("binlog.000007"))
	if err != nil || hb.Position != 99 || string(hb.File) != "binlog.000007" {
		t.Errorf("HEARTBEAT: %+v, %v", hb, err)
	}
	v2 := event.Header{Type: event.TypeHeartbeatV2, LogPos: 1}
	hb, err = event.ParseHeartbeat(v2, unhex(t, "01 03 612e31 02 09 fe 0000000002000000 00"))
	if err != nil || hb.Position != 1<<33 || string(hb.File) != "a.1" {
		t.Errorf("HEARTBEAT_V2: %+v, %v", hb, err)
	}
	for _, b := range []string{"01 04 612e31", "02 01 fc", "01"} {
		if hb, err := event.ParseHeartbeat(v2, unhex(t, b)); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("HEARTBEAT_V2 %q: %+v, %v", b, hb, err)
		}
	}
}

// inflate gives the events inside a TRANSACTION_PAYLOAD.
func inflate(t testing.TB, e ev) []ev {
	t.Helper()
	head, err := event.ParsePayloadHead(e.body)
	if err != nil {
		t.Fatal(err)
	}
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	b, err := d.DecodeAll(e.body[head.Offset:], nil)
	if err != nil {
		t.Fatal(err)
	}
	if uint64(len(b)) != head.UncompressedSize {
		t.Errorf("%d bytes inflated, head says %d", len(b), head.UncompressedSize)
	}
	return split(t, b, 0)
}

func TestPayload(t *testing.T) {
	t.Parallel()
	var types []string
	for _, e := range readFile(t, "testdata/groups.binlog") {
		if e.Type != event.TypeTransactionPayload {
			continue
		}
		for _, inner := range inflate(t, e) {
			types = append(types, inner.Type.String())
			if inner.LogPos != 0 {
				t.Errorf("%s has log position %d", inner.Type, inner.LogPos)
			}
		}
	}
	if diff := cmp.Diff([]string{"QUERY", "TABLE_MAP", "WRITE_ROWS", "XID"}, types); diff != "" {
		t.Error(diff)
	}
	h, err := event.ParsePayloadHead(unhex(t, "02 01 00 | 03 03 fc 44 05 | 01 01 c3 | 00 28b52ffd"))
	if want := (event.PayloadHead{Compression: event.CompressionZSTD, Size: 195, UncompressedSize: 1348, Offset: 12}); err != nil || h != want {
		t.Errorf("got %+v, %v, want %+v", h, err, want)
	}
	h, err = event.ParsePayloadHead(unhex(t, "02 03 fcff00 | 01 01 05 | 63 02 0000 | 00"))
	if want := (event.PayloadHead{Compression: event.CompressionNone, Size: 5, Offset: 13}); err != nil || h != want {
		t.Errorf("uncompressed, with a field of later days: %+v, %v, want %+v", h, err, want)
	}
	for _, b := range []string{"", "02 01", "02 01 00", "02 02 00", "02 01 07 00", "02 01 fc 00", "01 fe ffffffffffffffff 00"} {
		if h, err := event.ParsePayloadHead(unhex(t, b)); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%q: %+v, %v", b, h, err)
		}
	}
}

// TestGroupLengths compares the length in each GTID event with the events of its group.
func TestGroupLengths(t *testing.T) {
	t.Parallel()
	eachCaptured(t, addLengths)
}

func addLengths(t *testing.T, events []ev) {
	t.Helper()
	var want, got uint64
	groups := 0
	for _, e := range events {
		switch e.Type {
		case event.TypeGTID, event.TypeGTIDTagged, event.TypeRotate:
			if got != want {
				t.Errorf("group before %d has %d bytes, its GTID said %d", e.LogPos, got, want)
			}
			if e.Type == event.TypeRotate {
				continue
			}
			g, err := event.ParseGTID(e.Type, e.body, &event.Tags{})
			if err != nil {
				t.Fatal(err)
			}
			groups++
			got, want = 0, g.TransactionLength
			if g.ImmediateCommit/1e6 < uint64(e.Timestamp) || g.ImmediateCommit/1e6 > uint64(e.Timestamp)+60 || g.OriginalCommit != g.ImmediateCommit {
				t.Errorf("commit times %d and %d, event at %d s", g.ImmediateCommit, g.OriginalCommit, e.Timestamp)
			}
		}
		if groups > 0 {
			got += uint64(e.Size)
		}
	}
	if groups != 28 {
		t.Errorf("%d groups", groups)
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	tags := &event.Tags{}
	tables := map[uint64]*event.Table{}
	var rows event.Rows
	cells := make([]event.Cell, 64)
	for _, e := range readFile(t, "testdata/groups.binlog") {
		var f func()
		switch e.Type {
		case event.TypeGTID, event.TypeGTIDTagged:
			f = func() { event.ParseGTID(e.Type, e.body, tags) }
		case event.TypeQuery:
			schemas := make([][]byte, 0, 16)
			f = func() {
				q, _ := event.ParseQuery(e.body)
				event.Classify(q.Text)
				q.UpdatedSchemas(schemas)
			}
		case event.TypeTableMap:
			tm, err := event.ParseTableMap(e.body)
			if err != nil {
				t.Fatal(err)
			}
			tables[tm.ID] = tm
			f = func() { event.TableMapName(e.body) }
		case event.TypeWriteRows, event.TypeUpdateRows, event.TypeDeleteRows:
			f = func() {
				h, _ := event.ParseRowsHeader(e.Type, e.body)
				tm := tables[h.TableID]
				if err := rows.Reset(tm, h, e.body); err != nil {
					t.Error(err)
				}
				for rows.Next(cells[:len(tm.Columns)]) {
				}
			}
		default:
			f = func() { event.ParseHeader(e.whole); event.VerifyChecksum(e.whole) }
		}
		if n := testing.AllocsPerRun(20, f); n != 0 {
			t.Errorf("%s: %v allocations", e.Type, n)
		}
	}
}
