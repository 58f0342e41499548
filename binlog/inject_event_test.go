package binlog_test

import (
	"testing"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
)

var incident = []byte("\x01\x00\x09lost rows")

func TestAnIncidentStopsTheReader(t *testing.T) {
	t.Parallel()
	got := playBytes(t, newStream().transaction(1, "a").event(event.TypeIncident, incident).transaction(2, "b"))
	wantStop(t, got, binlog.ReasonIncident, 0, "lost rows", "binlog.000001")
	equal(t, got.rows, "1 a p")

	got = playBytes(t, newStream().transaction(1, "a").gtid(2).query("BEGIN").tableMap(tableO, "o").insert(tableO, 2, "b", "p").event(event.TypeIncident, incident).xid())
	wantStop(t, got, binlog.ReasonIncident, 2, "lost rows")
	equal(t, got.rows, "1 a p")
}
