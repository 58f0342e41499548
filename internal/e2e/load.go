package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Load is what the order service does. The zero value of a field means its default.
type Load struct {
	Seed uint64
	// Workers write at the same time, each for keys of its own, so that ids tell the commit order of a key. Default 12.
	Workers int
	// Keys in all. Default 200.
	Keys int
	// Rate is the number of transactions per second in all, 0 for as many as possible.
	Rate int
	// MaxRows is the largest number of outbox rows in a transaction. Default 1. Larger ones spread over keys and tables.
	MaxRows int
	// Skewed makes most transactions small: the larger, the rarer.
	Skewed bool
	// LargeEvery makes every n-th transaction of a worker one of LargeRows rows. 0 means none.
	LargeEvery, LargeRows int
	// HotShare is the percentage of rows whose key is the worker's first one.
	HotShare int
	// ForeignRows is the largest number of further rows of the business table in a transaction.
	ForeignRows int
	// RollbackEvery makes every n-th transaction of a worker roll back. Default 10.
	RollbackEvery int
}

// Running is a load that runs.
type Running struct {
	stop    chan struct{}
	wg      sync.WaitGroup
	begin   time.Time
	db      *sql.DB
	commits atomic.Int64
	rolled  atomic.Int64
	unknown atomic.Int64
	refused atomic.Pointer[mysql.MySQLError]
	end     sync.Once
	elapsed atomic.Int64 // nanoseconds, once ended
}

// LoadStats count what a load did.
type LoadStats struct {
	Transactions int // committed
	RolledBack   int
	Unknown      int // ended in an error: committed or not, SELECT will tell
	Elapsed      time.Duration
	// Err is a statement that the server refused: a fault of the test, since a run without load proves nothing.
	Err error
}

// PerSecond is the rate of committed transactions.
func (s LoadStats) PerSecond() float64 { return float64(s.Transactions) / s.Elapsed.Seconds() }

// statementTimeout ends a statement on a server that never answers; a freeze of a test is shorter.
const statementTimeout = 2 * time.Minute

// StartLoad starts the order service. It goes on through every failure of the server until Stop.
func (s *Site) StartLoad(l Load) (*Running, error) {
	if l.Workers == 0 {
		l.Workers = 12
	}
	if l.Keys == 0 {
		l.Keys = 200
	}
	if l.MaxRows == 0 {
		l.MaxRows = 1
	}
	if l.RollbackEvery == 0 {
		l.RollbackEvery = 10
	}
	db, err := s.openMulti()
	if err != nil {
		return nil, err
	}
	r := &Running{stop: make(chan struct{}), begin: time.Now(), db: db}
	r.db.SetMaxIdleConns(l.Workers)
	for w := range l.Workers {
		worker := &worker{l: l, number: w, run: rand.Uint32(), seqs: map[string]int{}, random: rand.New(rand.NewPCG(l.Seed, uint64(w)))}
		r.wg.Go(func() { worker.work(r) }) // stopped by Stop
	}
	return r, nil
}

// Stop ends the load after the statements under way and tells what it did. It may be called again.
func (r *Running) Stop() LoadStats {
	r.end.Do(func() {
		close(r.stop)
		r.wg.Wait()
		r.elapsed.Store(int64(time.Since(r.begin)))
		r.db.Close()
	})
	return r.Stats()
}

// Stats tells what the load did so far.
func (r *Running) Stats() LoadStats {
	st := LoadStats{Transactions: int(r.commits.Load()), RolledBack: int(r.rolled.Load()), Unknown: int(r.unknown.Load()), Elapsed: time.Since(r.begin)}
	if e := r.elapsed.Load(); e > 0 {
		st.Elapsed = time.Duration(e)
	}
	if refused := r.refused.Load(); refused != nil {
		st.Err = fmt.Errorf("a statement of the load was refused: %w", refused)
	}
	return st
}

type worker struct {
	l      Load
	number int
	run    uint32 // makes keys of idempotency unique over loads
	count  int
	ended  int // transactions
	seqs   map[string]int
	random *rand.Rand
}

func (w *worker) work(r *Running) {
	pace := pacer{begin: time.Now()}
	if w.l.Rate > 0 {
		pace.each = time.Second * time.Duration(w.l.Workers) / time.Duration(w.l.Rate)
	}
	for {
		select {
		case <-r.stop:
			return
		case <-time.After(pace.wait()):
		}
		w.ended++
		rollback := w.ended%w.l.RollbackEvery == 0
		statement := w.transaction(rollback)
		ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
		_, err := r.db.ExecContext(ctx, statement)
		cancel()
		switch {
		case err != nil:
			r.unknown.Add(1)
			if !w.recover(r, err) {
				return
			}
		case rollback:
			r.rolled.Add(1)
		default:
			r.commits.Add(1)
		}
	}
}

// recover waits a little for the server to come back, and ends the worker when the server refuses its statement.
func (w *worker) recover(r *Running, err error) bool {
	var refused *mysql.MySQLError
	if errors.As(err, &refused) && !slices.Contains([]uint16{1053, 1205, 1213, 1290}, refused.Number) { // shutdown, lock wait, deadlock, read-only
		r.refused.Store(refused)
		return false
	}
	select {
	case <-r.stop:
		return false
	case <-time.After(20 * time.Millisecond):
		return true
	}
}

// transaction is one round trip: a business row, its outbox rows, and the end.
func (w *worker) transaction(rollback bool) string {
	rows := w.size()
	var b strings.Builder
	customer := w.key()
	fmt.Fprintf(&b, "BEGIN; INSERT INTO orders (customer, amount) VALUES ('%s', %d.%02d)", customer, w.random.IntN(1000), w.random.IntN(100))
	if w.l.ForeignRows > 0 {
		for range w.random.IntN(w.l.ForeignRows + 1) {
			fmt.Fprintf(&b, ", ('%s', %d)", customer, w.random.IntN(1000))
		}
	}
	table := ""
	for i := range rows {
		kind := kinds[w.random.IntN(len(kinds))]
		next := "orders_outbox"
		if kind == "shipment" {
			next = "shipments_outbox"
		}
		if i > 0 {
			customer = w.key()
		}
		w.count++
		switch {
		case next != table:
			fmt.Fprintf(&b, "; INSERT INTO %s (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ", next)
		default:
			b.WriteString(", ")
		}
		table = next
		w.seqs[kind+customer]++
		fmt.Fprintf(&b, `('%s', '%s', '%sChanged', '{"n": %d, "seq": %d, "rolledBack": %t, "note": "grün — ✓", "lines": [{"sku": "A%d", "price": 12.50}, null, 1e3], "weight": %g}', '%08x-%d-%d')`,
			kind, customer, kind, w.count, w.seqs[kind+customer], rollback, w.random.IntN(1e6), w.random.Float64(), w.run, w.number, w.count)
	}
	if rollback {
		b.WriteString("; ROLLBACK")
	} else {
		b.WriteString("; COMMIT")
	}
	return b.String()
}

// size is the number of outbox rows of the next transaction.
func (w *worker) size() int {
	switch {
	case w.l.LargeEvery > 0 && w.ended%w.l.LargeEvery == 0:
		return w.l.LargeRows
	case w.l.MaxRows <= 1:
		return 1
	case w.l.Skewed:
		x := w.random.Float64()
		return 1 + int(float64(w.l.MaxRows)*x*x*x*x*x*x)
	}
	return 1 + w.random.IntN(w.l.MaxRows)
}

// key is one that no other worker writes.
func (w *worker) key() string {
	own := max(1, (w.l.Keys-w.number+w.l.Workers-1)/w.l.Workers)
	if w.l.HotShare > 0 && w.random.IntN(100) < w.l.HotShare {
		own = 1
	}
	return fmt.Sprintf("customer-%d", w.number+w.l.Workers*w.random.IntN(own))
}

// pacer spreads transactions evenly and makes up for what it is behind, at most a second.
type pacer struct {
	begin time.Time
	each  time.Duration
	next  time.Duration // since begin
}

func (p *pacer) wait() time.Duration {
	if p.each == 0 {
		return 0
	}
	now := time.Since(p.begin)
	p.next = max(p.next+p.each, now-time.Second)
	return max(0, p.next-now)
}
