package binlog_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/binlog"
	"outbox-relay/internal/sandbox"
)

// dialer gives the reader connections that wrap the real ones.
func dialer(wrap func(net.Conn) net.Conn) func(*binlog.Options) {
	return func(o *binlog.Options) {
		o.Login.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return wrap(c), nil
		}
	}
}

// damager spoils a word in whatever is read.
type damager struct{ net.Conn }

func (d damager) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	copy(p, bytes.ReplaceAll(p[:n], []byte("spoil-me"), []byte("spoil-ed")))
	return n, err
}

func TestBytesThatAreDamagedEachTimeStopTheReader(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.SharedMySQL(t), dialer(func(c net.Conn) net.Conn { return damager{c} }))
	b.exec("INSERT INTO o(aggregate_id) VALUES ('first')", "INSERT INTO o(aggregate_id) VALUES ('spoil-me')")
	equal(t, b.rows(1), "1 first NULL")
	wantReason(t, <-next(b.ctx, b.reader), binlog.ReasonCorrupt, "3 times")
	if s := b.reader.Status(); s.FailingSince.IsZero() || s.LastError == nil {
		t.Errorf("the status tells of no failure: %+v", s)
	}
}

func TestCaughtUpIsNotSaidWhileMoreLiesInTheBuffer(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.SharedMySQL(t), nil)
	b.exec("INSERT INTO o(aggregate_id) VALUES ('first')")
	b.rows(1)
	for range 50 { // until one read of the connection takes both
		b.exec("INSERT INTO o(aggregate_id) VALUES ('a')", "INSERT INTO o(aggregate_id) VALUES ('b')")
		b.rows(1)
		before := b.last.CaughtUp
		b.rows(1)
		if !before {
			return
		}
	}
	t.Error("the first of two transactions was always said to be the last")
}

func TestStoredProgramsThatEndInStartTransactionPass(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.SharedMySQL(t), nil)
	b.exec("CREATE PROCEDURE p() START TRANSACTION", "INSERT INTO o(aggregate_id) VALUES ('a')",
		"CREATE TABLE c SELECT * FROM f", "INSERT INTO o(aggregate_id) VALUES ('b')")
	equal(t, b.rows(2), "1 a NULL", "2 b NULL")
}

var errCutOff = errors.New("cut off")

// payloadCutter loses the connection once, before the last bytes of the first large TRANSACTION_PAYLOAD.
type payloadCutter struct {
	net.Conn
	done *bool
	head []byte // of the packet, until its event header is complete
	left int    // bytes of the packet that are still to come
	cut  bool   // left counts towards the cut
}

func (c *payloadCutter) Read(p []byte) (int, error) {
	const typePayload, tail = 40, 2
	if c.cut && c.left == tail {
		*c.done = true
		c.Close()
		return 0, errCutOff
	}
	if *c.done {
		return c.Conn.Read(p)
	}
	if c.left == 0 || len(c.head) < 10 {
		n, err := c.Conn.Read(p[:1]) // slowly, up to the type of the event
		if n == 1 {
			c.byte(p[0])
		}
		c.cut = len(c.head) == 10 && c.head[9] == typePayload && c.left > 600<<10
		return n, err
	}
	most := c.left
	if c.cut {
		most -= tail
	}
	n, err := c.Conn.Read(p[:min(len(p), most)])
	if c.left -= n; c.left == 0 {
		c.head = c.head[:0]
	}
	return n, err
}

// byte takes one byte of a packet's head: length u24, number, status, timestamp u32, type.
func (c *payloadCutter) byte(b byte) {
	c.head = append(c.head, b)
	if len(c.head) == 4 {
		c.left = int(c.head[0]) | int(c.head[1])<<8 | int(c.head[2])<<16
	}
	if len(c.head) > 4 {
		c.left--
	}
	if len(c.head) >= 4 && c.left == 0 {
		c.head = c.head[:0]
	}
}

func TestACutBeforeTheChecksumOfACompressedTransactionIsHealed(t *testing.T) {
	t.Parallel()
	done := false
	b := newBench(t, sandbox.SharedMySQL(t), dialer(func(c net.Conn) net.Conn { return &payloadCutter{Conn: c, done: &done} }))
	random := make([]byte, 800<<10)
	rand.Read(random)
	text := hex.EncodeToString(random)
	b.exec("SET SESSION binlog_transaction_compression = ON",
		"INSERT INTO o(payload) VALUES ('"+text+"')", "INSERT INTO o(aggregate_id) VALUES ('behind')")
	got := b.rows(2)
	if got[0] != "1 NULL "+text {
		t.Errorf("the large row differs: %d bytes", len(got[0]))
	}
	equal(t, got[1:], "2 behind NULL")
	if !done {
		t.Error("the connection was never cut")
	}
	if s := b.reader.Status(); !s.FailingSince.IsZero() || s.LastError != nil {
		t.Errorf("the status still tells of a failure: %+v", s)
	}
}

func TestManyPreparedBranchesGoToTheSpool(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	// A server of its own: the readers of other tests would see commits of branches that were prepared before their start.
	b := newBench(t, sandbox.RunMySQL(t, sandbox.MySQLOptions{}), func(o *binlog.Options) { o.Registerer = reg })
	for i := range 20 { // each far below a quarter of the memory, together more than all of it
		b.exec(fmt.Sprintf("XA START 'm%s%d'", b.name, i), "INSERT INTO o(payload) VALUES (REPEAT('x', 100000))",
			fmt.Sprintf("XA END 'm%s%d'", b.name, i), fmt.Sprintf("XA PREPARE 'm%s%d'", b.name, i))
	}
	b.exec("INSERT INTO o(aggregate_id) VALUES ('behind')")
	equal(t, b.rows(1), "21 behind NULL")
	if spooled := gauge(t, reg, "outbox_relay_spooled_bytes"); spooled < 1_000_000 {
		t.Errorf("%.0f bytes are spooled, all others are in memory", spooled)
	}
	for i := range 20 {
		b.exec(fmt.Sprintf("XA COMMIT 'm%s%d'", b.name, i))
	}
	if got := b.rows(20); len(got[19]) < 100000 {
		t.Errorf("the last row is %d bytes long", len(got[19]))
	}
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}

func TestInterleavedSourcesGiveFewRanges(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	b := newBench(t, m, nil)
	var statements []string
	for i := 1; i <= 50; i++ {
		for _, digit := range []string{"a", "b", "c"} {
			n := i - 1 + i%2*2 // 2 1 4 3 6 5 …, as parallel appliers commit
			statements = append(statements, fmt.Sprintf("SET GTID_NEXT='%s0000000-0000-0000-0000-000000000000:%d'", digit, n), "INSERT INTO f(v) VALUES ('x')")
		}
	}
	b.exec(append(statements, "SET GTID_NEXT='AUTOMATIC'", "INSERT INTO o(aggregate_id) VALUES ('end')")...)
	most := 0
	for {
		tx, err := b.reader.Next(b.ctx)
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(tx.Ranges))
		if tx.HasRows {
			break
		}
	}
	if most > 12 {
		t.Errorf("a step has %d ranges for 3 sources", most)
	}
}

func TestABranchThatEndedUnseenStopsTheReaderWhenItsNameIsUsedAgain(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{}) // see above
	for _, skip := range []bool{false, true} {
		b := newBench(t, m, func(o *binlog.Options) { o.SkipUnknownXA = skip })
		id := "'u" + b.name + "'"
		branch := []string{"XA START " + id, "INSERT INTO o(aggregate_id) VALUES ('k')", "XA END " + id, "XA PREPARE " + id}
		b.exec(append(branch, "SET sql_log_bin = 0", "XA COMMIT "+id, "SET sql_log_bin = 1")...)
		b.exec(append(branch, "XA COMMIT "+id)...)
		if skip {
			equal(t, b.rows(1), "2 k NULL")
			continue
		}
		wantReason(t, <-next(b.ctx, b.reader), binlog.ReasonUnknownXA, "on_unknown_xa")
	}
}

// What is looked for behind the place of before begins with a transaction that is not known, so nothing of a large one is searched.
func TestACutInALargeTransactionIsNoReasonToSearchIt(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--binlog-row-event-max-size=256"}})
	proxy, err := sandbox.NewProxy(m.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	b := newBench(t, m, func(o *binlog.Options) { o.Addresses = []string{proxy.Addr()} })
	b.exec("INSERT INTO o(aggregate_id) VALUES ('first')")
	b.rows(1)
	cut := proxy.CutAfter(1 << 20)
	b.exec("SET SESSION cte_max_recursion_depth = 10000", "INSERT INTO o(payload) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) SELECT REPEAT('x', 250) FROM n")
	if n := len(b.rows(10000)); n != 10000 {
		t.Fatalf("%d rows", n)
	}
	<-cut
	var name string
	var asked int
	if err := b.db.QueryRow("SHOW GLOBAL STATUS LIKE 'Com_show_binlog_events'").Scan(&name, &asked); err != nil {
		t.Fatal(err)
	}
	if asked < 1 || asked > 3 {
		t.Errorf("the server was asked %d times for events of its binlog, want once", asked)
	}
}
