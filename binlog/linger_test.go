package binlog_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/internal/fakemysql"
)

// drip is a connection whose stream brings a transaction every now and then: a read gives all that has come meanwhile.
type drip struct {
	net.Conn
	every time.Duration
	size  int // bytes of a transaction
	reads int
	from  time.Time
	had   int
}

func (d *drip) Read(b []byte) (int, error) {
	if d.from.IsZero() || len(b) < 64<<10 { // the login reads through a smaller buffer
		return d.Conn.Read(b)
	}
	d.reads++
	come := int(time.Since(d.from)/d.every) * d.size
	if come <= d.had {
		time.Sleep(time.Until(d.from.Add(time.Duration(d.had/d.size+1) * d.every)))
		come = d.had + d.size
	}
	n, err := d.Conn.Read(b[:min(len(b), come-d.had)])
	d.had += n
	return n, err
}

// readDripping reads so many transactions, one a millisecond, and gives the number of reads and how long the slowest took from its coming.
func readDripping(t *testing.T, transactions int64, every, linger time.Duration) (reads int, slowest time.Duration) {
	t.Helper()
	s := newStream()
	head := len(s.bytes())
	for n := range transactions {
		s.transaction(n+1, "a")
	}
	source := &fakemysql.Source{Streams: [][]byte{s.bytes()}, Hold: true}
	o := fakeOptions(source)
	var d *drip
	o.Linger = linger
	o.Login.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := source.Dial(ctx, network, address)
		d = &drip{Conn: c, every: every, size: (len(s.bytes()) - head) / int(transactions)}
		return d, err
	}
	o.BeforeWait = func() {
		if d.from.IsZero() {
			d.from, d.had = time.Now(), -head
		}
	}
	r, err := binlog.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var row binlog.Row
	for seen := int64(0); seen < transactions; {
		tx, err := r.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !tx.HasRows {
			continue
		}
		seen++
		slowest = max(slowest, time.Since(d.from)-time.Duration(seen)*every)
		if ok, err := tx.NextRow(&row); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	return d.reads, slowest
}

func TestLingerTakesSeveralTransactionsWithOneRead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		every, linger time.Duration
		reads         int           // at most
		slowest       time.Duration // at most
	}{
		{"none", time.Millisecond, 0, 220, 0},
		{"ten times the distance of transactions", time.Millisecond, 10 * time.Millisecond, 40, 11 * time.Millisecond},
		{"transactions after a silence do not wait", 20 * time.Millisecond, 10 * time.Millisecond, 220, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			reads, slowest := readDripping(t, 200, c.every, c.linger)
			if reads > c.reads || slowest > c.slowest {
				t.Errorf("%s: %d reads of 200 transactions, want %d at most; the slowest took %v, want %v at most", c.name, reads, c.reads, slowest, c.slowest)
			}
			if c.linger == 0 && reads < 200 {
				t.Errorf("%s: only %d reads: the test does not see what a linger saves", c.name, reads)
			}
		})
	}
}

// A backlog comes in large reads, which nothing delays.
func TestLingerCostsABacklogNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		stream := foreignStream(20_000)
		source := &fakemysql.Source{Streams: [][]byte{stream}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		source.Ended = cancel
		o := fakeOptions(source)
		o.Linger = time.Second
		r, err := binlog.New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		begun := time.Now()
		for err == nil {
			_, err = r.Next(ctx)
		}
		if took := time.Since(begun); took > 2*time.Second { // the last read may bring little
			t.Errorf("%d bytes took %v", len(stream), took)
		}
	})
}

// The end of a context does not wait for a linger.
func TestLingerEndsWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		source := &fakemysql.Source{Streams: [][]byte{newStream().transaction(1, "a").bytes()}, Hold: true}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		o := fakeOptions(source)
		o.Linger = time.Minute
		r, err := binlog.New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		begun := time.Now()
		for err == nil {
			_, err = r.Next(ctx)
		}
		if took := time.Since(begun); took != time.Second {
			t.Errorf("Next returned after %v with %v", took, err)
		}
	})
}
