package e2e

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"golang.org/x/sync/errgroup"
)

const (
	xaWorkers = 8
	xaKeys    = 5 // of a worker
	// xaPhaseSize is the number of XA transactions of a phase.
	xaPhaseSize = 50
	// xaMostOpen is how many prepared branches a worker holds at most.
	xaMostOpen = 12
	// xaLargeRow is beyond a quarter of the memory that a relay with a buffer of 2 MiB has for open transactions, so that it is spooled.
	xaLargeRow = 150_000
)

// The ways in which an XA transaction ends.
const (
	xaPreparedCommit = iota
	xaPreparedRollback
	xaOnePhase
	xaRollback
	xaEndCount
)

var xaEnds = [xaEndCount]string{"prepared and committed", "prepared and rolled back", "committed in one phase", "rolled back before PREPARE"}

// XAStats count what the load of an XA campaign did.
type XAStats struct {
	Transactions int             // XA transactions
	Ends         [xaEndCount]int // by their end as it came out
	Foreign      int             // without outbox rows
	Compressed   int
	Large        int // with a row that has to be spooled
	Attached     int // prepared with xa_detach_on_prepare=OFF
	Again        int // with a name that was used before
	Longest      int // with a name of 64 + 64 bytes
	NoBqual      int
	Most         int // prepared at once
	Ordinary     int // committed transactions without XA
	Flushes      int
	Forgotten    int // prepared branches that MySQL knew no more after its end
	Rows         int // committed outbox rows
	// RolledBackRows are outbox rows that were written and not committed.
	RolledBackRows int
	Elapsed        time.Duration
}

// xaLoad runs a number of XA transactions. MySQL ends between statements only: prepared branches live on, but when it is killed within XA PREPARE or
// XA COMMIT its tables and its binlog may tell different stories, and nobody could judge.
type xaLoad struct {
	site    *Site
	db      *sql.DB
	seed    uint64
	phases  []*xaPhase
	phase   *xaPhase     // at hand
	left    atomic.Int64 // transactions of the phase to begin
	ended   atomic.Int64
	pending atomic.Int64 // prepared branches
	ends    atomic.Int64 // of MySQL
	quiet   sync.RWMutex // held by each step, and alone by each end of MySQL and of a binlog
	elapsed time.Duration

	mu         sync.Mutex
	count      XAStats
	commits    []string // idempotency keys in the order of commits, that of each worker
	rolledBack map[string]struct{}
	forgotten  map[string]struct{} // names of branches that MySQL has forgotten
}

// xaPhase is a part of the load. At its end no branch is prepared.
//
// MySQL (8.0.33 and 9.7.4) forgets prepared branches at its end: InnoDB finds all of them at the next start, but XA RECOVER and XA COMMIT know
// nothing of some. It forgets most of those whose names differ in format id, also of names that have ended and stand in the last binlog, and few
// others. So every phase has a binlog of its own, in every second one names are of one shape, and only there MySQL is ended.
type xaPhase struct {
	last      int // number of the last transaction, counted over all phases
	uniform   bool
	format    int64
	disturbed chan struct{} // closed when all disturbances of the phase were made
}

func (s *Site) newXALoad(ctx context.Context, transactions int, seed uint64) (*xaLoad, error) {
	db, err := s.openMulti()
	if err != nil {
		return nil, err
	}
	db.SetMaxIdleConns(2 * xaWorkers)
	l := &xaLoad{site: s, db: db, seed: seed, rolledBack: map[string]struct{}{}, forgotten: map[string]struct{}{}}
	l.count.Transactions = transactions
	n := max(2, transactions/xaPhaseSize)
	for i := range n {
		l.phases = append(l.phases, &xaPhase{last: transactions * (i + 1) / n, uniform: i%2 == 0, format: 1<<31 - 1 - int64(i), disturbed: make(chan struct{})})
	}
	_, err = db.ExecContext(ctx, "CREATE TABLE commits (idempotency_key VARCHAR(128) NOT NULL PRIMARY KEY, place BIGINT NOT NULL)")
	return l, err
}

// close rolls back what a failed run left: dropping the database would wait for it.
func (l *xaLoad) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	left, _ := recoverXA(ctx, l.db) // the server may be gone by now
	for _, xid := range left {
		_, _ = l.db.ExecContext(ctx, "XA ROLLBACK "+xid)
	}
	l.db.Close()
}

func (l *xaLoad) stats() XAStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	st := l.count
	st.Rows, st.RolledBackRows, st.Elapsed = len(l.commits), len(l.rolledBack), l.elapsed
	return st
}

// endMySQL waits for the steps under way and holds up others until the function that it gives is called.
func (l *xaLoad) endMySQL() (over func()) {
	l.quiet.Lock()
	l.ends.Add(1)
	return l.quiet.Unlock
}

// note changes the counters.
func (l *xaLoad) note(f func(*XAStats)) {
	l.mu.Lock()
	f(&l.count)
	l.mu.Unlock()
}

// run ends when all transactions have ended, with the first error, or with ctx.
func (l *xaLoad) run(ctx context.Context) error {
	begin := time.Now()
	var workers []*xaWorker
	for n := range xaWorkers {
		workers = append(workers, &xaWorker{load: l, number: n, random: rand.New(rand.NewPCG(l.seed, uint64(n))), used: map[*xaPhase][]string{}})
	}
	begun := 0
	for _, l.phase = range l.phases {
		l.left.Store(int64(l.phase.last - begun))
		begun = l.phase.last
		if _, err := l.db.ExecContext(ctx, "FLUSH BINARY LOGS"); err != nil {
			return err
		}
		group, working := errgroup.WithContext(ctx)
		for _, w := range workers {
			group.Go(func() error { return w.run(working) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
		select {
		case <-l.phase.disturbed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.elapsed = time.Since(begin)
	return nil
}

// orderOfCommits orders an outbox table as its transactions were committed; markers have no place and keys of their own.
const orderOfCommits = "(SELECT place FROM commits c WHERE c.idempotency_key = o.idempotency_key)"

// writeOrder puts the order of commits where SQL finds it.
func (l *xaLoad) writeOrder(ctx context.Context) error {
	for from := 0; from < len(l.commits); from += 1000 {
		var b strings.Builder
		for i, key := range l.commits[from:min(from+1000, len(l.commits))] {
			fmt.Fprintf(&b, ", ('%s', %d)", key, from+i)
		}
		if _, err := l.db.ExecContext(ctx, "INSERT INTO commits VALUES "+b.String()[2:]); err != nil {
			return fmt.Errorf("writing the order of commits: %w", err)
		}
	}
	return nil
}

// xaWorker writes keys of its own, one statement after the other, so that it knows the order of their commits.
type xaWorker struct {
	load   *xaLoad
	number int
	random *rand.Rand
	rows   int
	names  int
	phase  *xaPhase              // of the last name
	gtrid  []byte                // of the branches at hand
	open   []*xaOne              // prepared
	used   map[*xaPhase][]string // names of branches that have ended
}

// xaOne is an XA transaction.
type xaOne struct {
	xid    string // as SQL writes it
	rows   []string
	end    int
	conn   *sql.Conn // not nil while its session has to end it
	begin  string    // statements up to XA END
	detach bool      // at PREPARE
	ends   int64     // how often MySQL had ended before the PREPARE
}

func (w *xaWorker) run(ctx context.Context) error {
	for {
		if w.random.IntN(100) < 3 {
			if err := w.flush(ctx); err != nil {
				return err
			}
		}
		done, err := w.step(ctx)
		if done || err != nil {
			return err
		}
	}
}

// flush begins a new binlog while no statement is under way: what is prepared or ended by XA at that moment stands in the old binlog, and the
// PREVIOUS_GTIDS of the new one may lack it (8.0.33 and 9.7.4). A reader that needs it is then sent the new one only, and after a restart MySQL says that
// it was purged.
func (w *xaWorker) flush(ctx context.Context) error {
	w.load.quiet.Lock()
	defer w.load.quiet.Unlock()
	w.load.note(func(s *XAStats) { s.Flushes++ })
	return w.exec(ctx, w.load.db, "FLUSH BINARY LOGS")
}

// step does one thing, during which MySQL does not end.
func (w *xaWorker) step(ctx context.Context) (done bool, err error) {
	w.load.quiet.RLock()
	defer w.load.quiet.RUnlock()
	switch n := w.random.IntN(100); {
	case n < 13:
		statements, rows, _ := w.inserts(false)
		if err := w.exec(ctx, w.load.db, "BEGIN; "+statements+"; COMMIT"); err != nil {
			return false, err
		}
		w.load.note(func(s *XAStats) { s.Ordinary++ })
		w.committed(rows)
		return false, nil
	case n < 50 && len(w.open) > 0 || len(w.open) == xaMostOpen:
		return false, w.endOne(ctx)
	case w.load.left.Add(-1) >= 0:
		return false, w.begin(ctx)
	case len(w.open) > 0:
		return false, w.endOne(ctx)
	}
	return true, nil
}

// session is a pool or one of its sessions.
type session interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (w *xaWorker) exec(ctx context.Context, on session, statements string) error {
	if _, err := on.ExecContext(ctx, statements); err != nil {
		return fmt.Errorf("%s: %w", statements[:min(len(statements), 400)], err)
	}
	return nil
}

// begin runs an XA transaction up to its PREPARE, or to its end if it has none.
func (w *xaWorker) begin(ctx context.Context) error {
	x := w.next()
	conn, err := w.load.db.Conn(ctx)
	if err != nil {
		return err
	}
	err = w.exec(ctx, conn, x.begin)
	if err == nil {
		err = w.exec(ctx, conn, [xaEndCount]string{"XA PREPARE " + x.xid, "XA PREPARE " + x.xid, "XA COMMIT " + x.xid + " ONE PHASE", "XA ROLLBACK " + x.xid}[x.end])
	}
	prepared := x.end <= xaPreparedRollback
	switch {
	case err != nil:
		w.giveUp(conn)
		return err
	case prepared && !x.detach:
		x.conn = conn
	case w.random.IntN(2) == 0:
		w.giveUp(conn) // the branch lives on without it
	default:
		conn.Close()
	}
	if !prepared {
		w.ended(x)
		return nil
	}
	x.ends = w.load.ends.Load()
	w.open = append(w.open, x)
	now := int(w.load.pending.Add(1))
	w.load.note(func(s *XAStats) { s.Most = max(s.Most, now) })
	return nil
}

// endOne ends a random prepared branch, from another session than the one that has prepared it unless it is bound to that.
func (w *xaWorker) endOne(ctx context.Context) error {
	i := w.random.IntN(len(w.open))
	x := w.open[i]
	w.open = slices.Delete(w.open, i, i+1)
	statement := "XA COMMIT " + x.xid
	if x.end == xaPreparedRollback {
		statement = "XA ROLLBACK " + x.xid
	}
	on := session(w.load.db)
	if x.conn != nil && x.ends == w.load.ends.Load() {
		on = x.conn
	}
	err := w.exec(ctx, on, statement)
	w.giveUp(x.conn) // its variables are its own
	var refused *mysql.MySQLError
	if errors.As(err, &refused) && refused.Number == 1397 && w.load.ends.Load() > x.ends { // unknown name
		w.forget(x)
		return nil
	}
	if err != nil {
		return err
	}
	w.load.pending.Add(-1)
	w.ended(x)
	return nil
}

// giveUp ends a session.
func (w *xaWorker) giveUp(conn *sql.Conn) {
	if conn == nil {
		return
	}
	_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // the pool closes such a connection
	conn.Close()
}

// forget ends a branch that MySQL has forgotten: it was never committed, its name is not used again, and the binlog holds no end of it.
func (w *xaWorker) forget(x *xaOne) {
	w.load.pending.Add(-1)
	w.load.ended.Add(1)
	w.load.note(func(s *XAStats) {
		s.Forgotten++
		w.load.forgotten[x.xid] = struct{}{}
	})
	w.undone(x.rows)
}

func (w *xaWorker) ended(x *xaOne) {
	w.used[w.load.phase] = append(w.used[w.load.phase], x.xid)
	w.load.note(func(s *XAStats) { s.Ends[x.end]++ })
	if x.end == xaPreparedCommit || x.end == xaOnePhase {
		w.committed(x.rows)
	} else {
		w.undone(x.rows)
	}
	w.load.ended.Add(1)
}

func (w *xaWorker) committed(rows []string) {
	w.load.mu.Lock()
	w.load.commits = append(w.load.commits, rows...)
	w.load.mu.Unlock()
}

func (w *xaWorker) undone(rows []string) {
	w.load.mu.Lock()
	for _, r := range rows {
		w.load.rolledBack[r] = struct{}{}
	}
	w.load.mu.Unlock()
}

// next makes up an XA transaction.
func (w *xaWorker) next() *xaOne {
	x := &xaOne{detach: w.random.IntN(8) != 0}
	switch n := w.random.IntN(100); {
	case n < 55:
		x.end = xaPreparedCommit
	case n < 75:
		x.end = xaPreparedRollback
	case n < 90:
		x.end = xaOnePhase
	default:
		x.end = xaRollback
	}
	x.xid = w.name()
	statements, rows, large := w.inserts(w.random.IntN(7) == 0)
	compressed := w.random.IntN(3) == 0
	w.load.note(func(s *XAStats) {
		if len(rows) == 0 {
			s.Foreign++
		}
		if compressed {
			s.Compressed++
		}
		if large {
			s.Large++
		}
		if !x.detach && x.end <= xaPreparedRollback {
			s.Attached++
		}
	})
	x.rows = rows
	x.begin = fmt.Sprintf("SET SESSION binlog_transaction_compression = %t, SESSION xa_detach_on_prepare = %t; XA START %s; %s; XA END %s", compressed, x.detach, x.xid, statements, x.xid)
	return x
}

// inserts are rows of a foreign table and of the outbox tables, and the keys of the latter.
func (w *xaWorker) inserts(foreignOnly bool) (statements string, rows []string, large bool) {
	all := []string{fmt.Sprintf("INSERT INTO orders (customer, amount) VALUES ('worker %d', %d)", w.number, w.random.IntN(1000))}
	if foreignOnly {
		return all[0], nil, false
	}
	if w.random.IntN(3) == 0 {
		all = nil
	}
	for range 1 + w.random.IntN(4) {
		w.rows++
		kind := kinds[w.random.IntN(len(kinds))]
		table := "orders_outbox"
		if kind == "shipment" {
			table = "shipments_outbox"
		}
		padding := ""
		if w.random.IntN(40) == 0 {
			padding, large = strings.Repeat("x", xaLargeRow), true
		}
		key := fmt.Sprintf("xa-%d-%d", w.number, w.rows)
		all = append(all, fmt.Sprintf(`INSERT INTO %s (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('%s', 'key-%d-%d', 'Written', '{"n": %d, "padding": "%s"}', '%s')`,
			table, kind, w.number, w.random.IntN(xaKeys), w.rows, padding, key))
		rows = append(rows, key)
	}
	return strings.Join(all, "; "), rows, large
}

// name makes up the name of a branch. Three branches in a row have the same gtrid. No two workers have the same name, and none is in use twice.
func (w *xaWorker) name() string {
	p := w.load.phase
	used := w.used[p]
	if len(used) > 0 && w.random.IntN(5) == 0 {
		i := w.random.IntN(len(used))
		xid := used[i]
		w.used[p] = slices.Delete(used, i, i+1)
		w.load.note(func(s *XAStats) { s.Again++ })
		return xid
	}
	if w.phase != p { // the gtrid at hand has the shape of another phase
		w.phase, w.names = p, (w.names+2)/3*3
	}
	group, n := w.names/3, w.names%3
	w.names++
	if n == 0 {
		w.gtrid = fmt.Appendf(nil, "%d-%06d'\\\"\xff\xc3\n;", w.number, group)
		if !p.uniform {
			w.gtrid = append(w.gtrid[:8], "\x00'\"\xff\xc3\n;"[:w.random.IntN(8)]...)
			if w.random.IntN(3) == 0 {
				w.gtrid = w.fill(w.gtrid)
			}
		}
	}
	bqual := w.fill([]byte{byte(n)})
	if p.uniform {
		return xidText(w.gtrid, fmt.Appendf(nil, "%d %x", n, bqual[:16]), p.format)
	}
	format := w.random.Int64N(1 << 31)
	switch {
	case n == 1:
		bqual = nil
		w.load.note(func(s *XAStats) { s.NoBqual++ })
	case w.random.IntN(2) == 0:
		bqual = bqual[:1+w.random.IntN(63)]
	case len(w.gtrid) == 64:
		w.load.note(func(s *XAStats) { s.Longest++ })
	}
	return xidText(w.gtrid, bqual, format)
}

// fill adds random bytes up to the longest length of a part.
func (w *xaWorker) fill(part []byte) []byte {
	for len(part) < 64 {
		part = append(part, byte(w.random.IntN(256)))
	}
	return part
}

func xidText(gtrid, bqual []byte, format int64) string {
	return fmt.Sprintf("X'%x',X'%x',%d", gtrid, bqual, format)
}

// recoverXA lists the branches that are prepared.
func recoverXA(ctx context.Context, db *sql.DB) ([]string, error) {
	rows, err := db.QueryContext(ctx, "XA RECOVER CONVERT XID")
	if err != nil {
		return nil, fmt.Errorf("asking for prepared branches: %w", err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var format int64
		var gtrid, bqual int
		var data string
		if err := rows.Scan(&format, &gtrid, &bqual, &data); err != nil {
			return nil, err
		}
		both, err := hex.DecodeString(strings.TrimPrefix(data, "0x"))
		if err != nil || len(both) != gtrid+bqual {
			return nil, fmt.Errorf("XA RECOVER gives %q for %d and %d bytes", data, gtrid, bqual)
		}
		all = append(all, xidText(both[:gtrid], both[gtrid:], format))
	}
	return all, rows.Err()
}
