package binlog_test

import (
	"fmt"
	"testing"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
)

// placed reads until everything is read, and gives the place, as a relay would store it, and what was read.
func (b *bench) placed(position *gtid.Set) (binlog.Place, []string) {
	b.t.Helper()
	var p binlog.Place
	var rows []string
	for want := b.executed(); !position.ContainsSet(want); {
		tx, err := b.reader.Next(b.ctx)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, r := range tx.Ranges {
			position.AddRange(r)
		}
		s, _, _ := b.reader.Source()
		p = binlog.Place{Server: s.UUID, File: tx.File, Position: tx.Position, Last: tx.Last, Micros: tx.CommitMicros}
		rows = append(rows, b.take(tx)...)
	}
	return p, rows
}

// A server that was set back and has executed as many transactions as before since has the same GTIDs for other transactions.
func TestGTIDsThatAreGivenTwiceHalt(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, m *sandbox.MySQL) {
		b := newBench(t, m, nil)
		b.exec("INSERT INTO o(aggregate_id) VALUES ('a')", "INSERT INTO f(v) VALUES ('foreign')")
		position := new(gtid.Set)
		b.open(position, nil)
		place, rows := b.placed(position)
		equal(t, rows, "1 a NULL")
		if place.Last != (gtid.GTID{UUID: place.Server, Number: int64(position.Count())}) || place.Micros == 0 {
			t.Fatalf("place %+v behind %s", place, position)
		}
		b.reader.Close()
		reset := "RESET BINARY LOGS AND GTIDS"
		if m.Version() < "8.2" {
			reset = "RESET MASTER"
		}
		b.exec(reset)
		for i := range position.Count() + 1 {
			b.exec(fmt.Sprintf("INSERT INTO o(aggregate_id) VALUES ('new%d')", i))
		}
		b.open(position, func(o *binlog.Options) { o.Place = place })
		rows, err := rowsUntilError(b, position)
		equal(t, rows)
		wantReason(t, err, binlog.ReasonDiverged, "has given GTIDs a second time: "+place.Last.String(), "checkpoint set")
		b.reader.Close()
		// Whoever sets the position says by that what is to be read; nothing is compared then.
		b.open(b.executed(), nil)
		b.exec("INSERT INTO o(aggregate_id) VALUES ('b')")
		equal(t, b.rows(1), fmt.Sprintf("%d b NULL", position.Count()+3))
	})
}

// The last transaction comes again with every dump, and is not given twice, whatever it was.
func TestTheLastTransactionIsComparedNotGiven(t *testing.T) {
	t.Parallel()
	eachVersion(t, func(t *testing.T, m *sandbox.MySQL) {
		b := newBench(t, m, nil)
		position := b.executed()
		for i, last := range [][]string{
			{"INSERT INTO o(aggregate_id) VALUES ('a')"},
			{"INSERT INTO f(v) VALUES ('foreign')"},
			{"CREATE TABLE other (id INT)"},
			{"BEGIN", "INSERT INTO o(aggregate_id) VALUES ('a')", "INSERT INTO f(v) VALUES (REPEAT('x', 3000000))", "COMMIT"},
			{"XA START 'x'", "INSERT INTO o(aggregate_id) VALUES ('a')", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"},
			{"XA START 'x'", "INSERT INTO o(aggregate_id) VALUES ('a')", "XA END 'x'", "XA COMMIT 'x' ONE PHASE"},
			{"SET SESSION binlog_transaction_compression = ON", "INSERT INTO o(aggregate_id) VALUES ('a')"},
			{"FLUSH BINARY LOGS", "INSERT INTO o(aggregate_id) VALUES ('a')", "FLUSH BINARY LOGS"},
		} {
			b.exec(last...)
			b.open(position, nil)
			place, _ := b.placed(position)
			b.reader.Close()
			if place.Micros == 0 || !position.Contains(place.Last) {
				t.Errorf("%v: place %+v", last, place)
			}
			b.exec(fmt.Sprintf("INSERT INTO o(id, aggregate_id) VALUES (%d, 'next')", 100*(i+1)))
			b.open(position, func(o *binlog.Options) { o.Place = place })
			_, rows := b.placed(position)
			equal(t, rows, fmt.Sprintf("%d next NULL", 100*(i+1)))
			b.reader.Close()
		}
	})
}
