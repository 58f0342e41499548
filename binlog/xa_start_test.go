package binlog_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
)

// xaBench is a bench on a server of its own, since readers of other tests would see the XA COMMIT of branches that were prepared before their start.
// Branches that a test leaves are rolled back: dropping a table waits for them.
func xaBench(t *testing.T, change func(*binlog.Options)) *bench {
	t.Helper()
	b := newBench(t, sandbox.RunMySQL(t, sandbox.MySQLOptions{}), change)
	t.Cleanup(func() {
		for _, xid := range b.recovered() {
			b.exec("XA ROLLBACK " + xid)
		}
	})
	return b
}

// recovered lists the branches that are prepared, as SQL writes them.
func (b *bench) recovered() []string {
	b.t.Helper()
	rows, err := b.db.Query("XA RECOVER CONVERT XID")
	if err != nil {
		b.t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var format, gtrid, bqual int
		var data string
		if err := rows.Scan(&format, &gtrid, &bqual, &data); err != nil {
			b.t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("X'%s',X'%s',%d", data[2:2+2*gtrid], data[2+2*gtrid:], format))
	}
	if err := rows.Err(); err != nil {
		b.t.Fatal(err)
	}
	return all
}

// logTap keeps what is logged and tells when a line with a word comes.
type logTap struct {
	mu   sync.Mutex
	text bytes.Buffer
	word string
	seen chan struct{}
}

func newLogTap(word string) *logTap { return &logTap{word: word, seen: make(chan struct{})} }

func (l *logTap) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if strings.Contains(string(p), l.word) && !strings.Contains(l.text.String(), l.word) {
		close(l.seen)
	}
	return l.text.Write(p)
}

func (l *logTap) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// startOptions are those of a first start at latest on b's server.
func (b *bench) startOptions(l *logTap) binlog.StartOptions {
	return binlog.StartOptions{
		Name: b.t.Name(), Addresses: []string{b.mysql.Addr()}, Start: "latest", Logger: slog.New(slog.NewTextHandler(l, nil)),
		Login: binlog.Login{User: "relay", Password: func(context.Context) (string, error) { return "relay", nil }},
	}
}

func (b *bench) firstPosition(o binlog.StartOptions) *gtid.Set {
	b.t.Helper()
	set, err := binlog.FirstPosition(b.ctx, o)
	if err != nil {
		b.t.Fatal(err)
	}
	return set
}

// prepare prepares a branch with one row whose aggregate_id is key.
func (b *bench) prepare(xid, key string) {
	b.t.Helper()
	b.exec("XA START "+xid, "INSERT INTO o(aggregate_id) VALUES ('"+key+"')", "XA END "+xid, "XA PREPARE "+xid)
}

func TestAFirstStartAtLatestIsOneLookWhileNothingIsPrepared(t *testing.T) {
	t.Parallel()
	b := xaBench(t, nil)
	tap := newLogTap("waiting")
	o := b.startOptions(tap)
	var dials atomic.Int64
	o.Login.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}
	if got, want := b.firstPosition(o), b.executed(); !got.Equal(want) {
		t.Errorf("got %s, want %s", got, want)
	}
	if n := dials.Load(); n != 1 || tap.String() != "" {
		t.Errorf("%d connections, and said was %q", n, tap)
	}
}

func TestAFirstStartAtLatestWaitsForBranchesThatArePrepared(t *testing.T) {
	t.Parallel()
	b := xaBench(t, nil)
	b.prepare("'old'", "old")
	b.prepare("'gone'", "gone")
	tap := newLogTap("waiting for XA branches")
	o := b.startOptions(tap)
	o.XAWait = time.Minute
	got := make(chan *gtid.Set, 1)
	go func() {
		set, err := binlog.FirstPosition(b.ctx, o)
		if err != nil {
			t.Error(err)
		}
		got <- set
	}()
	select {
	case <-tap.seen:
	case set := <-got:
		t.Fatalf("it did not wait and gave %s; it said %q", set, tap)
	case <-b.ctx.Done():
		t.Fatalf("it neither waited nor ended; it said %q", tap)
	}
	// Meanwhile another one is prepared: it is not waited for, and its row comes with its commit.
	b.prepare("'new'", "new")
	b.exec("INSERT INTO o(aggregate_id) VALUES ('before')", "XA ROLLBACK 'gone'", "XA COMMIT 'old'")
	set := <-got
	if set == nil {
		return
	}
	if missing := gtid.Minus(b.executed(), set); missing.Count() != 1 {
		t.Errorf("the position lacks %s, want the PREPARE of one branch only", missing)
	}
	b.open(set, nil)
	b.exec("INSERT INTO o(aggregate_id) VALUES ('after')", "XA COMMIT 'new'")
	equal(t, b.rows(2), "5 after NULL", "3 new NULL")
}

// TestFirstStartsAtLatestAmidXATransactionsLoseNothing lets branches overlap so that one is prepared at every moment. What a reader gives from
// each first position is compared with what one gives that has read all from the beginning.
func TestFirstStartsAtLatestAmidXATransactionsLoseNothing(t *testing.T) {
	t.Parallel()
	b := xaBench(t, nil)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() { overlap(t, b, w, stop) }) // ends with stop
	}
	quiet := sync.OnceFunc(func() {
		close(stop)
		wg.Wait()
	})
	t.Cleanup(quiet)
	var starts []*gtid.Set
	for holes := 0; len(starts) < 5 || holes == 0; {
		if len(starts) == 100 {
			t.Fatal("no position has a hole")
		}
		tap := newLogTap("still prepared")
		o := b.startOptions(tap)
		o.XAWait = time.Minute
		set := b.firstPosition(o)
		if strings.Contains(tap.String(), "still prepared") {
			t.Errorf("branches that end at once are named: %s", tap)
		}
		starts = append(starts, set)
		ranges := 0
		for range set.Ranges() {
			ranges++
		}
		holes += ranges - 1
	}
	quiet()
	b.exec("INSERT INTO o(aggregate_id) VALUES ('end')")

	all := b.withGTIDs()
	var rows int
	if err := b.db.QueryRow("SELECT COUNT(*) FROM o").Scan(&rows); err != nil || rows != len(all) {
		t.Fatalf("%d rows were read, SELECT finds %d, %v", len(all), rows, err)
	}
	for _, start := range starts {
		var want []string
		for _, r := range all {
			if !start.Contains(r.gtid) {
				want = append(want, r.text)
			}
		}
		b.open(start, nil)
		var got []string
		for _, r := range b.withGTIDs() {
			got = append(got, r.text)
		}
		if len(want) == 0 || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("from %s on came %d rows, want %d:\n%q\n%q", start, len(got), len(want), got, want)
		}
	}
}

type rowOf struct {
	gtid gtid.GTID
	text string
}

// withGTIDs reads up to the row of the end.
func (b *bench) withGTIDs() []rowOf {
	b.t.Helper()
	var all []rowOf
	for {
		tx, err := b.reader.Next(b.ctx)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, text := range b.take(tx) {
			all = append(all, rowOf{tx.GTID, text})
			if strings.HasSuffix(text, " end NULL") {
				return all
			}
		}
	}
}

// overlap prepares a branch before it ends the one before, using few names again and again, until stop or an error.
func overlap(t *testing.T, b *bench, worker int, stop <-chan struct{}) {
	ctx := context.WithoutCancel(b.ctx)
	xid := func(n int) string { return fmt.Sprintf("'worker %d','%d'", worker, n%3) }
	run := func(statements ...string) bool {
		conn, err := b.db.Conn(ctx)
		if err != nil {
			t.Error(err)
			return false
		}
		defer conn.Close()
		for _, s := range statements {
			if _, err := conn.ExecContext(ctx, s); err != nil {
				t.Errorf("%s: %v", s, err)
				return false
			}
		}
		return true
	}
	prepare := func(n int) bool {
		return run("XA START "+xid(n), fmt.Sprintf("INSERT INTO o(aggregate_id) VALUES ('%d-%d')", worker, n), "XA END "+xid(n), "XA PREPARE "+xid(n))
	}
	end := func(n int) bool {
		if n%4 == 3 {
			return run("XA ROLLBACK " + xid(n))
		}
		return run("XA COMMIT " + xid(n))
	}
	if !prepare(0) {
		return
	}
	for n := 1; ; n++ {
		if !prepare(n) || !run(fmt.Sprintf("INSERT INTO o(aggregate_id) VALUES ('%d-between-%d')", worker, n)) || !end(n-1) {
			return
		}
		select {
		case <-stop:
			end(n)
			return
		default:
		}
	}
}

func TestABranchThatNobodyEndsIsNamedAtAFirstStart(t *testing.T) {
	t.Parallel()
	b := xaBench(t, nil)
	b.prepare(`X'006f27ff',X'',2147483647`, "orphan")
	for _, skip := range []bool{false, true} {
		tap := newLogTap("still prepared")
		o := b.startOptions(tap)
		o.XAWait, o.SkipUnknownXA = 200*time.Millisecond, skip
		start := b.firstPosition(o)
		if missing := gtid.Minus(b.executed(), start); !missing.IsEmpty() {
			t.Errorf("the position lacks %s", missing)
		}
		words := []string{"level=WARN", "halts the relay", "X'006f27ff',X'',2147483647", "count=1", "XA RECOVER CONVERT XID"}
		if skip {
			words[1] = "is passed by without its rows"
		}
		for _, w := range words {
			if !strings.Contains(tap.String(), w) {
				t.Errorf("it does not say %q: %s", w, tap)
			}
		}
		b.open(start, func(o *binlog.Options) { o.SkipUnknownXA = skip })
		if !skip {
			b.exec("INSERT INTO o(aggregate_id) VALUES ('ordinary')")
			equal(t, b.rows(1), "2 ordinary NULL")
			continue
		}
		halting := b.reader
		b.open(start, nil)
		b.exec("XA COMMIT X'006f27ff',X'',2147483647", "INSERT INTO o(aggregate_id) VALUES ('behind')")
		wantReason(t, <-next(b.ctx, b.reader), binlog.ReasonUnknownXA, "X'006f27ff',X'',2147483647")
		b.reader = halting
		equal(t, b.rows(1), "3 behind NULL")
	}
}

func TestAFirstStartWithoutThePrivilegeForXARecoverSaysSo(t *testing.T) {
	t.Parallel()
	b := xaBench(t, nil)
	b.exec("CREATE USER few@'%' IDENTIFIED BY 'relay'", "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO few@'%'")
	b.prepare("'unseen'", "unseen")
	tap := newLogTap("cannot be seen")
	o := b.startOptions(tap)
	o.Login.User = "few"
	if got, want := b.firstPosition(o), b.executed(); !got.Equal(want) {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, w := range []string{"level=WARN", "prepared XA branches cannot be seen", "GRANT XA_RECOVER_ADMIN ON *.* TO 'few'@'%'", "on_unknown_xa"} {
		if !strings.Contains(tap.String(), w) {
			t.Errorf("it does not say %q: %s", w, tap)
		}
	}
	if n := strings.Count(tap.String(), "\n"); n != 1 {
		t.Errorf("%d lines: %s", n, tap)
	}
}
