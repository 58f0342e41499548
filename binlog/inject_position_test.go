package binlog_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/internal/fakemysql"
)

func TestChecksumsThatAreSwitchedWhileReading(t *testing.T) {
	t.Parallel()
	next := func(s *stream, file string, a event.ChecksumAlgorithm) *stream {
		s.event(event.TypeRotate, rotateBody(file, 4))
		return s.rotateTo(file).format(a).event(event.TypePreviousGTIDs, make([]byte, 8))
	}
	s := newStream().transaction(1, "a")
	next(s, "binlog.000002", event.ChecksumNone).transaction(2, "b").heartbeat().gtid(3).payload(inner(insertO(3, "c", "p")))
	next(s, "binlog.000003", event.ChecksumNone).foreign(4).transaction(5, "e")
	next(s, "binlog.000004", event.ChecksumCRC32).transaction(6, "f").
		gtid(7).query("BEGIN").tableMap(tableO, "o").insert(tableO, 7, "g", strings.Repeat("p", 700<<10)).xid()
	next(s, "binlog.000005", event.ChecksumNone).
		gtid(8).query("BEGIN").tableMap(tableO, "o").insert(tableO, 8, "h", strings.Repeat("p", 700<<10)).xid().transaction(9, "i")
	got := playBytes(t, s)
	for i, row := range got.rows {
		got.rows[i] = strings.TrimRight(row, "p")
	}
	wantRows(t, got, "1 a ", "2 b ", "3 c ", "5 e ", "6 f ", "7 g ", "8 h ", "9 i ")

	// Behind the switch back a flipped bit is found again, in any of the last transaction's events.
	s = next(next(newStream(), "binlog.000002", event.ChecksumNone), "binlog.000003", event.ChecksumCRC32)
	from := len(s.bytes())
	s.transaction(1, "a")
	bad := append([]byte(nil), s.bytes()...)
	for i := from + 5; i < len(bad); i += 17 {
		bad[i] ^= 1
	}
	got = play(t, &fakemysql.Source{Streams: [][]byte{bad}}, nil)
	wantStop(t, got, binlog.ReasonCorrupt, 0, "3 times")
	equal(t, got.rows)
}

func TestAConnectionAfterOneWithoutChecksumsBeginsWithOne(t *testing.T) {
	t.Parallel()
	// The first event of each connection, which comes before any FORMAT_DESCRIPTION, has what the reader asked for.
	first := newStream().format(event.ChecksumNone).transaction(1, "a")
	second := newStream().format(event.ChecksumNone).transaction(2, "b")
	got := play(t, &fakemysql.Source{Streams: [][]byte{first.bytes(), second.bytes()}}, nil)
	wantRows(t, got, "1 a p", "2 b p")
}

// positions reads the stream and gives where each transaction with rows ended.
func wantPosition(t *testing.T, got played, file string, pos uint64) {
	t.Helper()
	if got.file != file || got.pos != pos {
		t.Errorf("the reader is at %s:%d, want %s:%d", got.file, got.pos, file, pos)
	}
}

func TestPositionsBeyond4GiBAreExact(t *testing.T) {
	t.Parallel()
	// One event can be up to 4 GiB long: the log position of 32 bits may wrap from each to the next, and come close to where it was.
	for _, step := range []uint64{1 << 30, 3 << 30, 1<<32 - 500, 1<<32 - 1} {
		s := newStream()
		for n := int64(1); n <= 12; n++ {
			s.transaction(n, "a")
			want := s.pos
			wantPosition(t, playBytes(t, s), "binlog.000001", want)
			s.pos += step - 300 // an event of another reader's concern: within a group nothing is left out
			s.eventWith(event.TypeIgnorable, event.FlagIgnorable)
		}
	}
	// What the server skips has no limit. It ends in a heartbeat.
	s := newStream()
	for n, skipped := range []uint64{1 << 20, 5 << 30, 40 << 30, 1 << 32} {
		s.pos += skipped
		s.heartbeatV2()
		wantPosition(t, playBytes(t, s), "binlog.000001", s.pos)
		s.transaction(int64(n+1), "a")
		wantPosition(t, playBytes(t, s), "binlog.000001", s.pos)
	}
	// The next file begins where its ROTATE says.
	s.event(event.TypeRotate, rotateBody("binlog.000002", 4)).rotateTo("binlog.000002").format(event.ChecksumCRC32).transaction(9, "a")
	wantPosition(t, playBytes(t, s), "binlog.000002", s.pos)
	s.rotateToAt("binlog.000002", 6<<30).format(event.ChecksumCRC32).transaction(10, "a")
	wantPosition(t, playBytes(t, s), "binlog.000002", s.pos)
}

// heartbeatV2 appends a HEARTBEAT_V2 at the present position. Its header has no position.
func (s *stream) heartbeatV2() *stream {
	body := append([]byte{1, byte(len(s.file))}, s.file...)
	body = append(binary.LittleEndian.AppendUint64(append(body, 2, 9, 0xfe), s.pos), 0)
	return s.raw(sum(makeEvent(event.TypeHeartbeatV2, 0, 0, body, event.HeaderSize+len(body)+event.ChecksumSize), true))
}

func TestADamagedHeartbeatIsFound(t *testing.T) {
	t.Parallel()
	s := newStream().transaction(1, "a").event(event.TypeHeartbeatV2, []byte{1, 200, 'x'})
	wantStop(t, playBytes(t, s), binlog.ReasonCorrupt, 0, "HEARTBEAT_V2")
}

func TestPacketsOfExactlyTheLargestSize(t *testing.T) {
	t.Parallel()
	const most = 0xffffff
	// A packet holds a status byte and an event: what a row of that payload is longer by.
	empty := len(newStream().gtid(1).tableMap(tableO, "o").bytes())
	over := len(newStream().gtid(1).tableMap(tableO, "o").insert(tableO, 1, "a", "").bytes()) - empty - 4
	for _, n := range []int{most - 1, most, most + 1, 2*most - 1, 2 * most, 2*most + 1} {
		payload := strings.Repeat("p", n-over)
		for _, crc := range []event.ChecksumAlgorithm{event.ChecksumCRC32, event.ChecksumNone} {
			payload := payload
			if crc == event.ChecksumNone {
				payload += "pppp"
			}
			s := newStream().format(crc).gtid(1).query("BEGIN").tableMap(tableF, "f").insert(tableF, 1, "a", payload).
				tableMap(tableO, "o").insert(tableO, 1, "a", payload).xid().transaction(2, "b")
			got := play(t, &fakemysql.Source{Streams: [][]byte{s.bytes()}, Chunk: 1 << 20}, func(o *binlog.Options) { o.RowLimit = 64 << 20 })
			if len(got.rows) != 2 || got.rows[0] != "1 a "+payload || got.rows[1] != "2 b p" || got.err != nil {
				t.Errorf("a payload of %d bytes (checksum %d): %d rows, %v", n, crc, len(got.rows), got.err)
			}
		}
	}
}

func TestSequenceNumbersOfPacketsWrap(t *testing.T) {
	t.Parallel()
	s := newStream()
	var want []string
	for n := range int64(300) { // five packets each
		s.transaction(n+1, "a")
		want = append(want, fmt.Sprintf("%d a p", n+1))
	}
	wantRows(t, playBytes(t, s), want...)
	// Also within one event of several packets.
	s = newStream()
	for s.seq != 253 {
		s.eventWith(event.TypeRowsQuery, event.FlagIgnorable, []byte("x"))
	}
	payload := strings.Repeat("p", 3*0xffffff)
	s.gtid(1).query("BEGIN").tableMap(tableO, "o").insert(tableO, 1, "a", payload).xid().transaction(2, "b")
	got := play(t, &fakemysql.Source{Streams: [][]byte{s.bytes()}}, func(o *binlog.Options) { o.RowLimit = 64 << 20 })
	wantRows(t, got, "1 a "+payload, "2 b p")
}
