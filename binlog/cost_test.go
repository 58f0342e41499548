//go:build !race

package binlog_test

import (
	"context"
	"net"
	"runtime"
	"strings"
	"testing"

	"outbox-relay/binlog"
	"outbox-relay/internal/fakemysql"
)

// readCounter counts the reads of a connection.
type readCounter struct {
	net.Conn
	reads *int
}

func (c readCounter) Read(b []byte) (int, error) {
	*c.reads++
	return c.Conn.Read(b)
}

// What reading a backlog costs, apart from time: one read for each buffer of half a MiB, and for a row of a watched table its share of a transaction
// and nothing else. A change that reads in small pieces, or allocates for rows, fails here. It is not parallel, as it counts what the process allocates.
func TestBacklogCostsFewReadsAndAllocations(t *testing.T) {
	const transactions, rows, buffer = 4000, 10, 512 << 10
	s := newStream()
	payload := strings.Repeat("p", 300)
	for n := range int64(transactions) {
		s.gtid(n+1).query("BEGIN").tableMap(tableO, "o")
		for i := range uint64(rows - 1) {
			s.insertMore(tableO, i, "aggregate-17", payload)
		}
		s.insert(tableO, rows, "aggregate-17", payload)
		s.tableMap(tableF, "f").insert(tableF, 1, "x", "y").xid()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	source := &fakemysql.Source{Streams: [][]byte{s.bytes()}, Ended: cancel}
	o := fakeOptions(source)
	reads := 0
	o.Login.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := source.Dial(ctx, network, address)
		return readCounter{c, &reads}, err
	}
	r, err := binlog.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var before, after runtime.MemStats
	var row binlog.Row
	got := 0
	for got < transactions*rows {
		tx, err := r.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for {
			ok, err := tx.NextRow(&row)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			got++
		}
		if before.Mallocs == 0 { // connecting is done
			runtime.ReadMemStats(&before)
		}
	}
	runtime.ReadMemStats(&after)
	perTransaction := float64(after.Mallocs-before.Mallocs) / transactions
	t.Logf("%d rows in %d transactions, %d bytes: %d reads, %.3f allocations per transaction", got, transactions, len(s.bytes()), reads, perTransaction)
	if most := len(s.bytes())/(buffer/2) + 50; reads > most { // 50 are those of the login
		t.Errorf("%d reads of %d bytes, want %d at most", reads, len(s.bytes()), most)
	}
	if perTransaction > 0.05 {
		t.Errorf("%.3f allocations per transaction of %d rows, want 0.05 at most", perTransaction, rows)
	}
}
