package binlog_test

import (
	"fmt"
	"strings"
	"testing"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
)

// purge removes all binlogs but the one at hand.
func (b *bench) purge() {
	b.t.Helper()
	b.exec("FLUSH BINARY LOGS")
	var file string
	var x1, x2, x3, x4 any
	if err := b.db.QueryRow("SHOW BINARY LOG STATUS").Scan(&file, &x1, &x2, &x3, &x4); err != nil {
		b.t.Fatal(err)
	}
	b.exec("PURGE BINARY LOGS TO '" + file + "'")
}

func TestAPreparedBranchWhosePrepareIsPurgedIsNamedAsAHole(t *testing.T) {
	t.Parallel()
	b := xaBench(t, nil)
	start := b.executed()
	b.prepare("'h'", "held")
	hole := gtid.Minus(b.executed(), start)
	b.exec("INSERT INTO f(v) VALUES ('x')")
	want, got := b.executed(), start.Clone()
	b.readUntil(got, func() bool { return gtid.Minus(want, got).Count() == 1 })
	b.reader.Close()
	b.purge()

	b.open(got, nil)
	err := <-next(b.ctx, b.reader)
	wantReason(t, err, binlog.ReasonPurged, "missing in the middle of what was read are "+hole.String()+",", "XA branches that were pending", "cannot be read any more",
		"XA RECOVER CONVERT XID", "on_unknown_xa: skip")

	// What the sentence says to do works.
	_, after, _ := strings.Cut(err.Error(), "checkpoint set '")
	set, _, _ := strings.Cut(after, "'")
	position, err := gtid.ParseSet(set)
	if err != nil {
		t.Fatal(err)
	}
	b.open(position, func(o *binlog.Options) { o.SkipUnknownXA = true })
	b.exec("XA COMMIT 'h'", "INSERT INTO o(aggregate_id) VALUES ('behind')")
	equal(t, b.rows(1), "2 behind NULL")
}

func TestAGapBeyondAHoleNamesBoth(t *testing.T) {
	t.Parallel()
	b := xaBench(t, nil)
	start := b.executed()
	b.prepare("'h'", "held")
	hole := gtid.Minus(b.executed(), start)
	b.exec("INSERT INTO f(v) VALUES ('x')")
	read := b.executed()
	read.Subtract(hole)
	b.exec("INSERT INTO o(aggregate_id) VALUES ('unread')")
	gap := gtid.Minus(b.executed(), read)
	b.purge()
	b.open(read, nil)
	wantReason(t, <-next(b.ctx, b.reader), binlog.ReasonPurged, "missing are "+gap.String()+";", "of these, "+hole.String()+" are in the middle", "source.start to earliest")
}

func TestABranchHeldInMemoryOutlivesThePurgeOfItsPrepare(t *testing.T) {
	t.Parallel()
	b := xaBench(t, nil)
	b.prepare("'h'", "held")
	b.exec("FLUSH BINARY LOGS", "INSERT INTO o(aggregate_id) VALUES ('read')")
	equal(t, b.rows(1), "2 read NULL") // the file before is not in use any more
	b.purge()
	var id int
	if err := b.db.QueryRow("SELECT id FROM performance_schema.processlist WHERE command = 'Binlog Dump GTID'").Scan(&id); err != nil {
		t.Fatal(err)
	}
	b.exec(fmt.Sprintf("KILL %d", id), "XA COMMIT 'h'", "INSERT INTO o(aggregate_id) VALUES ('behind')")
	equal(t, b.rows(2), "1 held NULL", "3 behind NULL")
}

func TestBranchesPreparedBeforeTheStart(t *testing.T) {
	t.Parallel()
	b := xaBench(t, nil)
	b.prepare("'rolls back'", "no")
	b.prepare(`X'0102',X'00',5`, "commits")
	between := b.executed()
	b.purge()
	readers := map[string]*binlog.Reader{}
	for _, start := range []string{"earliest", between.String()} { // what is purged, and a set with the PREPAREs
		o := b.startOptions(newLogTap(""))
		o.Start = start
		b.open(b.firstPosition(o), func(o *binlog.Options) { o.Name += start })
		readers[start] = b.reader
	}
	b.exec("XA ROLLBACK 'rolls back'", "INSERT INTO o(aggregate_id) VALUES ('ordinary')", "XA COMMIT X'0102',X'00',5")
	var commit string
	for g := range gtid.Minus(b.executed(), between).Ranges() {
		commit = gtid.GTID{UUID: g.UUID, Number: g.Last}.String()
	}
	for name, r := range readers {
		b.reader = r
		t.Log(name)
		equal(t, b.rows(1), "3 ordinary NULL") // an unknown ROLLBACK is passed by
		wantReason(t, <-next(b.ctx, r), binlog.ReasonUnknownXA, "X'0102',X'00',5", commit, "on_unknown_xa: skip")
	}
}
