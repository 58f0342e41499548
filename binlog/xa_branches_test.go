package binlog_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"outbox-relay/binlog"
	"outbox-relay/internal/sandbox"
)

func TestConnectionsCutBetweenAndInsideXATransactionsLoseNothing(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	p := sandbox.RunProxy(t, m.Addr())
	b := newBench(t, m, func(o *binlog.Options) { o.Addresses = []string{p.Addr()} })
	const n = 30
	var want []string
	xid := func(i int) string { return fmt.Sprintf("'cut','%d'", i) }
	key := func(i int) string { return fmt.Sprintf("%d-%s", i, strings.Repeat("k", 40)) }
	for i := range n {
		statements := []string{"XA START " + xid(i), "INSERT INTO o(aggregate_id, payload) VALUES ('" + key(i) + "', REPEAT('p', 2000))", "XA END " + xid(i), "XA PREPARE " + xid(i)}
		if i%3 == 0 {
			statements = append([]string{"SET SESSION binlog_transaction_compression = ON"}, statements...)
		}
		b.exec(statements...)
		if i%7 == 0 {
			b.exec("FLUSH BINARY LOGS")
		}
	}
	for i := n - 1; i >= 0; i-- { // the other way round than they were prepared
		if i%5 == 4 {
			b.exec("XA ROLLBACK " + xid(i))
			continue
		}
		b.exec("XA COMMIT " + xid(i))
		want = append(want, fmt.Sprintf("%d %s %s", i+1, key(i), strings.Repeat("p", 2000)))
	}
	b.exec("INSERT INTO o(aggregate_id) VALUES ('end')")
	want = append(want, fmt.Sprintf("%d end NULL", n+1))

	// Every connection gets about a tenth of the whole, cut at any byte of it.
	ctx, cancel := context.WithCancel(b.ctx)
	defer cancel()
	cuts := make(chan int, 1)
	go func() { // ends with ctx
		done := 0
		for {
			select {
			case <-p.CutAfter(7_001):
				done++
			case <-ctx.Done():
				cuts <- done
				return
			}
		}
	}()
	equal(t, b.rows(len(want)), want...)
	cancel()
	if done := <-cuts; done < 3 {
		t.Errorf("the connection was cut %d times", done)
	}
}

func TestABranchWithARowBeyondTheMemoryIsSpooled(t *testing.T) {
	t.Parallel()
	b := xaBench(t, func(o *binlog.Options) { o.Memory = 256 << 10 })
	large := strings.Repeat("y", 3_000_000)
	for _, compressed := range []string{"OFF", "ON"} {
		b.exec("SET SESSION binlog_transaction_compression = "+compressed, "XA START 'l"+compressed+"'", "INSERT INTO o(aggregate_id) VALUES ('before')",
			"INSERT INTO o(payload) VALUES ('"+large+"')", "INSERT INTO o(aggregate_id) VALUES ('behind')", "XA END 'l"+compressed+"'", "XA PREPARE 'l"+compressed+"'")
	}
	b.exec("INSERT INTO o(aggregate_id) VALUES ('between')")
	equal(t, b.rows(1), "7 between NULL")
	b.exec("XA COMMIT 'lON'", "XA COMMIT 'lOFF'")
	got := b.rows(6)
	for _, i := range []int{1, 4} {
		if !strings.HasSuffix(got[i], " NULL "+large) {
			t.Errorf("large row %d differs: %d bytes", i, len(got[i]))
		}
		got[i], _, _ = strings.Cut(got[i], " ")
	}
	equal(t, got, "4 before NULL", "5", "6 behind NULL", "1 before NULL", "2", "3 behind NULL")
}

func TestFiveHundredBranchesPreparedAtOnce(t *testing.T) {
	t.Parallel()
	b := xaBench(t, nil)
	const n = 500
	var prepare, end, want []string
	for i := range n {
		xid := fmt.Sprintf("X'%04x',X'%02x',%d", i/2, i%2, i)
		prepare = append(prepare, "XA START "+xid, fmt.Sprintf("INSERT INTO o(aggregate_id, payload) VALUES ('%d', REPEAT('p', 3000))", i), "XA END "+xid, "XA PREPARE "+xid)
	}
	b.exec(append(prepare, "INSERT INTO o(aggregate_id) VALUES ('between')")...)
	equal(t, b.rows(1), fmt.Sprintf("%d between NULL", n+1))
	for i := range n {
		i = (i * 317) % n // in no order
		xid := fmt.Sprintf("X'%04x',X'%02x',%d", i/2, i%2, i)
		if i%10 == 0 {
			end = append(end, "XA ROLLBACK "+xid)
			continue
		}
		end = append(end, "XA COMMIT "+xid)
		want = append(want, fmt.Sprintf("%d %d %s", i+1, i, strings.Repeat("p", 3000)))
	}
	b.exec(append(end, "INSERT INTO o(aggregate_id) VALUES ('end')")...)
	equal(t, b.rows(len(want)+1), append(want, fmt.Sprintf("%d end NULL", n+2))...)
}

func TestBranchesThatTheirSessionEndsItself(t *testing.T) {
	t.Parallel()
	b := xaBench(t, nil)
	branch := func(name string) []string {
		return []string{"XA START '" + name + "'", "INSERT INTO o(aggregate_id) VALUES ('" + name + "')", "XA END '" + name + "'"}
	}
	for _, compressed := range []string{"OFF", "ON"} {
		b.exec(append(append([]string{"SET SESSION xa_detach_on_prepare = OFF, SESSION binlog_transaction_compression = " + compressed}, branch("a"+compressed)...),
			"XA PREPARE 'a"+compressed+"'", "XA COMMIT 'a"+compressed+"'")...)
		b.exec(append(branch("no"), "XA ROLLBACK 'no'")...)
		b.exec(append(append([]string{"SET SESSION binlog_transaction_compression = " + compressed}, branch("one"+compressed)...), "XA COMMIT 'one"+compressed+"' ONE PHASE")...)
	}
	equal(t, b.rows(4), "1 aOFF NULL", "3 oneOFF NULL", "4 aON NULL", "6 oneON NULL")
}
