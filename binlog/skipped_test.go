package binlog_test

import (
	"testing"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/fakemysql"
)

// The PREVIOUS_GTIDS of the second file lack transactions of the first, so the server begins with the second for a reader that has all before those. The
// reader notices, asks again for the first file, and what it gets twice counts once: plain, of an XA branch, compressed, in statement format.
func TestTransactionsThatTheServerLeavesOutAreAskedForAgain(t *testing.T) {
	t.Parallel()
	begin := func(file string) *stream {
		return (&stream{seq: 1, crc: true, pos: 4}).rotateTo(file).format(event.ChecksumCRC32)
	}
	packedOne := inner(func(s *stream) { s.query("BEGIN").tableMap(tableO, "o").insert(tableO, 9, "known", "p").xid() })
	first := begin("binlog.000001").transaction(1, "known").
		gtid(2).query("XA START X'62',X'',1").tableMap(tableO, "o").insert(tableO, 2, "branch", "p").event(event.TypeXAPrepare, xaPrepare("b", false)).
		gtid(3).query("XA COMMIT X'62',X'',1").
		gtid(4).payload(packedOne).
		gtid(5).query("CREATE TABLE x (id INT)").
		gtid(6).query("BEGIN").query("INSERT INTO o VALUES (1)").query("COMMIT").
		transaction(7, "lacking").rotateTo("binlog.000002").format(event.ChecksumCRC32).transaction(8, "last").bytes()
	second := begin("binlog.000002").transaction(8, "last").bytes()
	events := func(rows ...[]string) (out [][]string) {
		for _, r := range rows {
			out = append(out, []string{"binlog.000001", r[0], r[1], "1", r[2], r[3]})
		}
		return out
	}
	known := new(gtid.Set)
	for n := range int64(6) {
		known.Add(gtid.GTID{UUID: uuidOf(t), Number: n + 1})
	}
	source := &fakemysql.Source{
		Executed: fakemysql.UUID + ":1-8",
		Show: map[string][][]string{
			"SHOW BINLOG EVENTS IN 'binlog.000001' FROM": events([]string{"900", "Gtid", "979", "SET @@SESSION.GTID_NEXT= '" + fakemysql.UUID + ":6'"},
				[]string{"979", "Query", "1050", "BEGIN"}, []string{"1050", "Gtid", "1129", "SET @@SESSION.GTID_NEXT= '" + fakemysql.UUID + ":7'"}),
			"SHOW BINLOG EVENTS IN 'binlog.000001' LIMIT": events([]string{"4", "Format_desc", "126", "Server ver: 9.7.4"}, []string{"126", "Previous_gtids", "157", ""}),
		},
		Send: func(i int, behind *gtid.Set) ([]byte, bool) {
			if behind.IsEmpty() {
				return first, true
			}
			return second, i > 0
		},
	}
	got := play(t, source, func(o *binlog.Options) {
		o.Start, o.Place = known, binlog.Place{Server: uuidOf(t), File: "binlog.000001", Position: 900}
	})
	wantRows(t, got, "7 lacking p", "8 last p")
	if want := []string{fakemysql.UUID + ":1-6", ""}; len(got.asked) != 2 || got.asked[0] != want[0] || got.asked[1] != want[1] {
		t.Errorf("the dumps began behind %q, want %q", got.asked, want)
	}
	if want := fakemysql.UUID + ":1-8"; got.position.String() != want {
		t.Errorf("the position is %s, want %s", got.position, want)
	}
}

func uuidOf(t *testing.T) gtid.UUID {
	t.Helper()
	u, err := gtid.ParseUUID(fakemysql.UUID)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
