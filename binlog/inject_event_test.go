package binlog_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/internal/fakemysql"
)

var incident = []byte("\x01\x00\x09lost rows")

// inGroup begins transaction 2 behind a whole one and leaves it open.
func inGroup() *stream {
	return newStream().transaction(1, "a").gtid(2).query("BEGIN").tableMap(tableO, "o").insertMore(tableO, 2, "b", "p")
}

func TestAnIncidentStopsTheReader(t *testing.T) {
	t.Parallel()
	got := playBytes(t, newStream().transaction(1, "a").event(event.TypeIncident, incident).transaction(2, "b"))
	wantStop(t, got, binlog.ReasonIncident, 0, "lost rows", "binlog.000001")
	equal(t, got.rows, "1 a p")

	got = playBytes(t, inGroup().event(event.TypeIncident, incident).xid())
	wantStop(t, got, binlog.ReasonIncident, 2, "lost rows")
	equal(t, got.rows, "1 a p")
}

// unknownTypes are a type of later days, types of servers before 5.0, and MariaDB's: annotations, binlog checkpoints, GTIDs, lists of GTIDs, the start of
// encryption, the compressed kinds of QUERY and rows.
var unknownTypes = []event.Type{43, 99, 255, 1, 6, 8, 160, 161, 162, 163, 164, 165, 166, 169}

func TestAnUnknownEventStopsTheReaderUnlessItMayBeIgnored(t *testing.T) {
	t.Parallel()
	for _, size := range []int{4, 700 << 10} { // within the buffer, and beyond it
		body := make([]byte, size)
		for _, typ := range unknownTypes {
			got := playBytes(t, newStream().transaction(1, "a").event(typ, body).transaction(2, "b"))
			wantStop(t, got, binlog.ReasonUnknownEvent, 0, fmt.Sprintf("unknown type %d", typ), "a relay that knows")
			equal(t, got.rows, "1 a p")

			got = playBytes(t, inGroup().event(typ, body).xid())
			wantStop(t, got, binlog.ReasonUnknownEvent, 2, fmt.Sprintf("unknown type %d", typ))
			equal(t, got.rows, "1 a p")

			got = playBytes(t, newStream().eventWith(typ, event.FlagIgnorable, body).gtid(1).query("BEGIN").eventWith(typ, event.FlagIgnorable, body).
				tableMap(tableO, "o").eventWith(typ, event.FlagIgnorable, body).insert(tableO, 1, "a", "p").xid())
			wantRows(t, got, "1 a p")
		}
	}
	// The same type whose bytes do not match their checksum is damage, which may be gone the next time.
	damaged := newStream().transaction(1, "a").event(99, make([]byte, 700<<10))
	bad := append([]byte(nil), damaged.bytes()...)
	bad[len(bad)-1] ^= 1
	got := play(t, &fakemysql.Source{Streams: [][]byte{bad, newStream().transaction(2, "b").bytes()}}, nil)
	wantRows(t, got, "1 a p", "2 b p")
}

func TestAGroupThatEndsInRollbackPublishesNothing(t *testing.T) {
	t.Parallel()
	got := playBytes(t, inGroup().query("ROLLBACK").transaction(3, "c"))
	wantRows(t, got, "1 a p", "3 c p")
	equal(t, []string{got.position.String()}, fakemysql.UUID+":1-3")
}

func TestEventsOutOfTheirPlaceStopTheReader(t *testing.T) {
	t.Parallel()
	whole := func() *stream { return newStream().transaction(1, "a") }
	for name, test := range map[string]struct {
		s    *stream
		gtid int64
		word string
	}{
		"XID outside a group":         {whole().xid(), 0, "XID outside a transaction"},
		"table map outside a group":   {whole().tableMap(tableO, "o"), 0, "TABLE_MAP outside a transaction"},
		"rows outside a group":        {whole().insert(tableO, 2, "b", "p"), 0, "WRITE_ROWS outside a transaction"},
		"statement outside a group":   {whole().query("BEGIN"), 0, "QUERY outside a transaction"},
		"XA_PREPARE outside a group":  {whole().event(event.TypeXAPrepare, xaPrepare("a", false)), 0, "XA_PREPARE outside a transaction"},
		"payload outside a group":     {whole().payload(inner(insertO(2, "b", "p"))), 0, "TRANSACTION_PAYLOAD outside a transaction"},
		"a group inside a group":      {inGroup().transaction(3, "c"), 2, fakemysql.UUID + ":3 begins"},
		"rows without a table map":    {inGroup().insert(77, 2, "b", "p").xid(), 2, "table id 77 without a table map"},
		"rows behind their statement": {inGroup().insert(tableO, 3, "b", "p").insert(tableO, 4, "b", "p").xid(), 2, "table id 101 without a table map"},
		"the rest of a group behind the next file": {
			inGroup().event(event.TypeRotate, rotateBody("binlog.000002", 4)).rotateTo("binlog.000002").format(event.ChecksumCRC32).insert(tableO, 3, "c", "p").xid(), 0, "WRITE_ROWS outside a transaction",
		},
	} {
		got := playBytes(t, test.s)
		t.Run(name, func(t *testing.T) {
			wantStop(t, got, binlog.ReasonUnknownEvent, test.gtid, test.word)
			equal(t, got.rows, "1 a p")
		})
	}
}

func rotateBody(file string, pos uint64) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, pos), file...)
}

func TestAGroupThatTheServerBeginsAgainIsReadOnce(t *testing.T) {
	t.Parallel()
	got := playBytes(t, inGroup().rotateTo("binlog.000002").format(event.ChecksumCRC32).transaction(2, "b"))
	wantRows(t, got, "1 a p", "2 b p")
}

func TestTheDummyTableIDEndsAStatement(t *testing.T) {
	t.Parallel()
	dummy := rowsHead(event.DummyTableID, event.RowsStatementEnd)
	got := playBytes(t, inGroup().event(event.TypeWriteRows, dummy).xid())
	wantRows(t, got, "1 a p", "2 b p")
	got = playBytes(t, inGroup().event(event.TypeWriteRows, dummy).insert(tableO, 3, "c", "p").xid())
	wantStop(t, got, binlog.ReasonUnknownEvent, 2, "without a table map")
}

func TestRowEventsOfOtherLayouts(t *testing.T) {
	t.Parallel()
	head := func(extra ...byte) []byte {
		b := rowsHead(tableO, event.RowsStatementEnd)[:8]
		b = binary.LittleEndian.AppendUint16(b, uint16(2+len(extra)))
		return append(append(b, extra...), 3, 0b111)
	}
	for name, e := range map[string]struct {
		typ  event.Type
		head []byte
	}{
		"v1":                {event.TypeWriteRowsV1, append(rowsHead(tableO, event.RowsStatementEnd)[:8], 3, 0b111)},
		"partition":         {event.TypeWriteRows, head(1, 7, 0)},
		"NDB":               {event.TypeWriteRows, head(0, 6, 0, 1, 2, 3)},
		"NDB and partition": {event.TypeWriteRows, head(0, 4, 0, 9, 1, 7, 0)},
	} {
		got := playBytes(t, newStream().gtid(1).query("BEGIN").tableMap(tableO, "o").event(e.typ, e.head, rowImage(1, "a", "p"), rowImage(2, "b", name)).xid())
		wantRows(t, got, "1 a p", "2 b "+name)
	}
	// Extra data that is longer than the event, which has to be found before a row is made of it.
	got := playBytes(t, newStream().gtid(1).query("BEGIN").tableMap(tableO, "o").event(event.TypeWriteRows, append(rowsHead(tableO, 1)[:8], 0xff, 0xff, 3, 7), rowImage(1, "a", "p")).xid())
	wantStop(t, got, binlog.ReasonCorrupt, 1, "app.o")
}

func TestATransactionWithoutGTIDStopsTheReader(t *testing.T) {
	t.Parallel()
	got := playBytes(t, newStream().transaction(1, "a").event(event.TypeAnonymousGTID, gtidBody(2, 0)).query("BEGIN").tableMap(tableO, "o").insert(tableO, 2, "b", "p").xid())
	wantStop(t, got, binlog.ReasonGTIDMode, 0, "without GTID", "gtid_mode=ON")
	equal(t, got.rows, "1 a p")
}

// taggedBody is the message of a GTID_TAGGED: version, the last field that has to be understood plus one, uuid, number and tag, and more fields.
func taggedBody(version, understood byte, more ...byte) []byte {
	u := fakeGTID(1).UUID
	fields := []byte{understood << 1, 1 << 1}
	for _, x := range u {
		fields = binary.LittleEndian.AppendUint16(fields, uint16(x)<<2|1)
	}
	fields = append(append(fields, 2<<1, 5<<2, 3<<1, 1<<1, 't'), more...)
	return append([]byte{version << 1, byte(len(fields)+2) << 1}, fields...)
}

func TestATaggedGTIDWithFieldsOfLaterDays(t *testing.T) {
	t.Parallel()
	rest := func(s *stream) *stream {
		s.query("BEGIN")
		return s.tableMap(tableO, "o").insert(tableO, 1, "a", "p").xid()
	}
	got := playBytes(t, rest(newStream().event(event.TypeGTIDTagged, taggedBody(1, 0, 14<<1, 0xff, 1, 2, 3))))
	wantRows(t, got, "1 a p")
	equal(t, got.gtids, fakemysql.UUID+":t:5")
	for name, body := range map[string][]byte{"a field that has to be understood": taggedBody(1, 15, 14<<1, 0xff), "a later version": taggedBody(2, 0)} {
		got := playBytes(t, rest(newStream().transaction(1, "z").event(event.TypeGTIDTagged, body)))
		t.Run(name, func(t *testing.T) {
			wantStop(t, got, binlog.ReasonUnknownEvent, 0, "a relay that knows", "newer server")
			equal(t, got.rows, "1 z p")
		})
	}
}

func TestAFormatThatIsNotKnownStopsTheReader(t *testing.T) {
	t.Parallel()
	body := formatBody(event.ChecksumCRC32)
	body[0] = 5
	got := playBytes(t, newStream().transaction(1, "a").event(event.TypeFormatDescription, body))
	wantStop(t, got, binlog.ReasonUnsupportedServer, 0, "format")
}

func TestErrorsOfTheServer(t *testing.T) {
	t.Parallel()
	failure := func(code uint16, text string) []byte {
		b := binary.LittleEndian.AppendUint16([]byte{0xff}, code)
		return append(append(b, "#HY000"...), text...)
	}
	for text, reason := range map[string]binlog.Reason{
		"Cannot replicate because the source purged required binary logs. Replicate the missing transactions from elsewhere":                binlog.ReasonPurged,
		"Cannot replicate because the master purged required binary logs.":                                                                  binlog.ReasonPurged,
		"Replica has more GTIDs than the source has, using the source's SERVER_UUID.":                                                       binlog.ReasonDiverged,
		"The replication sender thread cannot start in AUTO_POSITION mode: this server has GTID_MODE = OFF_PERMISSIVE instead of ON.":       binlog.ReasonGTIDMode,
		"Cannot replicate anonymous transaction when AUTO_POSITION = 1, at file ./binlog.000002, position 157.":                             binlog.ReasonGTIDMode,
		"log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source":                                                binlog.ReasonServerRefused,
		"binlog truncated in the middle of event; consider out of disk space on source; the first event '' at 4, the last event read from ": binlog.ReasonServerRefused,
	} {
		got := playBytes(t, newStream().transaction(1, "a").packet(failure(1236, text)))
		wantStop(t, got, reason, 0, text)
		equal(t, got.rows, "1 a p")
	}
	got := playBytes(t, newStream().packet(failure(1227, "Access denied; you need (at least one of) the REPLICATION SLAVE privilege(s) for this operation")))
	wantStop(t, got, binlog.ReasonPrivilege, 0, "REPLICATION SLAVE")
	got = playBytes(t, newStream().transaction(1, "a").packet(failure(1236, "A replica with the same server_uuid/server_id as this replica has connected to the source;")))
	if !errors.Is(got.err, binlog.ErrFenced) {
		t.Errorf("got %v, want to be fenced", got.err)
	}
	// What time heals: the reader comes again, behind what it has but the last one, which it compares.
	for name, packet := range map[string][]byte{
		"the server is shutting down":         {0xfe, 0, 0, 2, 0},
		"disconnected because of inactivity":  failure(4031, "The client was disconnected by the server because of inactivity."),
		"out of memory":                       failure(1041, "Out of memory"),
		"an error of one byte":                {0xff, 1},
		"a status that no packet has":         {0x03, 1, 2, 3},
		"a packet that is too short":          {0, 1, 2, 3},
		"an event whose size is another one":  append([]byte{0}, makeEvent(event.TypeXID, 0, 0, xidBody(), 40)...),
		"an event smaller than its own head":  append([]byte{0}, makeEvent(event.TypeXID, 0, 0, xidBody(), 3)...),
		"an event without a sound checksum":   append([]byte{0}, makeEvent(event.TypeXID, 0, 0, append(xidBody(), 1, 2, 3, 4), 31)...),
		"a packet that announces a large one": slicesOf([]byte{0}, makeEvent(99, 0, 0, nil, 1<<31-1), make([]byte, 600<<10)),
	} {
		before := newStream().transaction(1, "a").transaction(2, "b")
		got := play(t, &fakemysql.Source{Streams: [][]byte{before.packet(packet).transaction(3, "lost").bytes(), newStream().transaction(2, "b").transaction(3, "c").bytes()}}, nil)
		t.Run(name, func(t *testing.T) {
			wantRows(t, got, "1 a p", "2 b p", "3 c p")
			equal(t, got.asked, "", fakemysql.UUID+":1")
		})
	}
}

func TestPacketsOutOfOrderAreDamage(t *testing.T) {
	t.Parallel()
	good := newStream().transaction(1, "a").transaction(2, "b").bytes()
	skipped := newStream()
	skipped.seq++
	got := play(t, &fakemysql.Source{Streams: [][]byte{skipped.transaction(1, "lost").bytes(), good}}, nil)
	wantRows(t, got, "1 a p", "2 b p")
	got = playBytes(t, skipped)
	wantStop(t, got, binlog.ReasonCorrupt, 0, "packet number", "3 times")
}

func TestStatementsAroundAGroupAreTaken(t *testing.T) {
	t.Parallel()
	ignored := []event.Type{
		event.TypeRowsQuery, event.TypeIgnorable, event.TypeIntVar, event.TypeRand, event.TypeUserVar, event.TypeStop,
		event.TypeAppendBlock, event.TypeBeginLoadQuery, event.TypeDeleteFile, event.TypeTransactionContext, event.TypeViewChange,
	}
	s := newStream().gtid(1).query("BEGIN")
	for _, typ := range ignored {
		s.event(typ, []byte(strings.Repeat("x", 40)))
	}
	got := playBytes(t, s.tableMap(tableO, "o").insert(tableO, 1, "a", "p").xid())
	wantRows(t, got, "1 a p")
}
