package binlog_test

import (
	"testing"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/internal/fakemysql"
)

func TestTransactionsThatTheServerNeverSendsStopTheReader(t *testing.T) {
	t.Parallel()
	const executed = fakemysql.UUID + ":1-6"
	// 2 is a prepared branch and 6 lies behind what is missing: the position to go on from leaves out the branch only.
	stream := func() *stream {
		return newStream().transaction(1, "a").gtid(2).query("XA START X'62',X'',1").event(event.TypeXAPrepare, xaPrepare("b", false)).transaction(6, "c")
	}
	got := play(t, &fakemysql.Source{Executed: executed, Streams: [][]byte{stream().heartbeat().heartbeat().transaction(7, "d").bytes()}}, nil)
	wantStop(t, got, binlog.ReasonUnsent, 0, "executed transactions that it does not send", fakemysql.UUID+":3-5;", "checkpoint set '"+fakemysql.UUID+":1:3-6'")
	equal(t, got.rows, "1 a p", "6 c p")

	// One heartbeat ends a stretch that the server has skipped: more may come.
	got = play(t, &fakemysql.Source{Executed: executed, Streams: [][]byte{stream().heartbeat().foreign(3).foreign(4).heartbeat().foreign(5).heartbeat().heartbeat().heartbeat().bytes()}}, nil)
	wantRows(t, got, "1 a p", "6 c p")
}
