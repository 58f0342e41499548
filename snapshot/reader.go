package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
)

// Options configure a Reader. All but BeforeWait and Logger are required.
type Options struct {
	Login     binlog.Login // Address is replaced by each of Addresses in turn
	Addresses []string     // candidates, tried in order
	Tables    []Table      // how the tables of Progress are read; may be more
	Progress  *checkpoint.Snapshot
	// Position are transactions that a server must have executed: their rows are not read in the binlog.
	Position *gtid.Set
	// Primary reads no server that is read-only.
	Primary bool
	// ContinueDiverged reads a server too that lacks some of Position for good.
	ContinueDiverged bool
	RowLimit         int64  // largest row given as a whole
	BeforeWait       func() // called before a wait for the server: what was gathered goes out
	Logger           *slog.Logger
}

const (
	// holdLimit is how long a chunk may be read: what comes out slowly, since nobody takes it, must not keep a read view open.
	holdLimit = 5 * time.Second
	// firstLimit is how long a chunk may take to its first row before the server counts as dead; it doubles with each attempt, up to maxLimit.
	firstLimit = 30 * time.Second
	maxLimit   = time.Hour
	rowTimeout = 30 * time.Second
	minBackoff = 50 * time.Millisecond
	maxBackoff = 5 * time.Second
	// stepRows and stepBytes bound a step: what is read again after a crash.
	stepRows  = 1000
	stepBytes = 1 << 20
	// sayInterval is how often progress is logged.
	sayInterval = 10 * time.Second
)

// Reader reads the rows of tables step by step. It connects by itself, and again after every failure that time can heal. One goroutine calls Next and
// what it gives; Status may be called by any.
type Reader struct {
	o   Options
	log *slog.Logger
	ctx context.Context // of the Next that runs

	at        *checkpoint.Snapshot // what the steps so far come to
	conn      *binlog.Conn
	ask       *binlog.Conn  // for questions amid a chunk; nil before the first one
	failures  int           // in a row
	silent    int           // of them, those of a server that did not answer
	refused   int           // lasting ones in a row, of every address in turn
	connected bool          // once
	hold      time.Duration // holdLimit, but in tests
	plan      *plan
	chunk     *chunk
	step      Step

	mu     sync.Mutex
	status Status
	rated  time.Time // when the rate was last taken
	since  int64     // rows since then
}

// Status is what a Reader says of itself.
type Status struct {
	Connection binlog.Status
	Table      string    // under way; empty before the first and behind the last
	Started    time.Time // of the snapshot, maybe by an earlier process
	Tables     int       // still to be read, with the one under way
	Rows       int64     // done or handed on of the tables, by earlier processes too
	Remaining  int64     // an estimate of the rows to come; -1 where none is known
	Rate       float64   // rows per second over the last seconds

	counted map[string]int64 // what the server estimates of the tables to be read
}

// New checks the options. It connects to nothing.
func New(o Options) (*Reader, error) {
	if len(o.Addresses) == 0 || o.Progress == nil || o.Position == nil {
		return nil, errors.New("snapshot: addresses, progress and position are required")
	}
	for _, t := range o.Progress.Tables {
		if !slices.ContainsFunc(o.Tables, func(c Table) bool { return c.id() == t.Table }) {
			return nil, fmt.Errorf("snapshot: table %s is not configured", t.Table)
		}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.BeforeWait == nil {
		o.BeforeWait = func() {}
	}
	now := time.Now()
	r := &Reader{o: o, log: o.Logger, at: o.Progress, rated: now, hold: holdLimit}
	r.status = Status{Started: o.Progress.Started, Remaining: -1, Connection: binlog.Status{Since: now}}
	r.tell()
	return r, nil
}

// Status returns the present state.
func (r *Reader) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.status
	if s.counted == nil {
		return s
	}
	s.Remaining = 0
	for i, t := range r.at.Tables {
		n := s.counted[t.Table] - t.Rows
		if i == 0 {
			n -= int64(r.step.rows)
		}
		s.Remaining += max(n, 0)
	}
	return s
}

// tell brings the status up to date with the progress.
func (r *Reader) tell() {
	s := &r.status
	s.Tables, s.Table, s.Rows = len(r.at.Tables), "", r.at.Rows()
	if s.Tables > 0 {
		s.Table = r.at.Tables[0].Table
	}
}

// Close closes the connection. No Next may be running.
func (r *Reader) Close() error {
	r.disconnect(nil)
	return nil
}

// Next returns the next step. It blocks until there is one, connecting for ever; it returns when ctx ends, with a *binlog.SourceError, which time cannot
// heal, or with a lasting *binlog.ConnectError if every address gave one before the first connect. The step in which the progress has an end
// (Step.Progress) is the last one. All calls share one ctx.
func (r *Reader) Next(ctx context.Context) (*Step, error) {
	r.ctx = ctx
	for {
		step, err := r.next(ctx)
		if err == nil {
			return step, nil
		}
		if ctx.Err() != nil {
			r.disconnect(nil)
			return nil, ctx.Err()
		}
		if err := r.judge(err); err != nil {
			return nil, err
		}
		if err := r.pause(ctx); err != nil {
			return nil, err
		}
	}
}

func (r *Reader) next(ctx context.Context) (*Step, error) {
	if r.chunk != nil && r.chunk.err != nil {
		err := r.chunk.err
		expired := r.chunk.expired.Load()
		r.disconnect(nil)
		if !expired {
			return nil, err
		}
	}
	if r.conn == nil {
		if err := r.connect(ctx); err != nil {
			return nil, err
		}
	}
	r.step.begin(r)
	if slices.ContainsFunc(r.at.Tables, unseen) {
		at, err := r.survey(ctx)
		if err != nil {
			return nil, err
		}
		r.step.end(at)
		return &r.step, nil
	}
	if r.chunk == nil && len(r.at.Tables) > 0 {
		r.o.BeforeWait()
		if err := r.open(ctx); err != nil {
			return nil, err
		}
	}
	if len(r.at.Tables) > 0 {
		return &r.step, nil
	}
	// The transactions of a server that was asked before may be missing on this one: they are executed where they were read.
	executed, err := r.conn.Executed(ctx, askTimeout)
	if err != nil {
		return nil, err
	}
	end := *r.at
	end.Ended = executed
	end.Ended.AddSet(r.o.Position)
	r.step.end(&end)
	return &r.step, nil
}

// judge decides what an error means: nil to try again.
func (r *Reader) judge(err error) error {
	address := r.address()
	r.disconnect(err)
	r.failures++
	if binlog.SilentFor(err) {
		r.silent++
	}
	var source *binlog.SourceError
	var connect *binlog.ConnectError
	lasting := errors.As(err, &source) || errors.As(err, &connect) && connect.Lasting() && !r.connected
	if !lasting {
		r.refused = 0
	} else if r.refused++; r.refused >= len(r.o.Addresses) {
		return err
	}
	if r.failures == 1 || r.failures%10 == 0 {
		r.log.Warn("the snapshot waits for the source, trying again", "err", err, "address", address, "attempts", r.failures)
	}
	return nil
}

func (r *Reader) address() string { return r.o.Addresses[r.failures%len(r.o.Addresses)] }

// pause waits before the next attempt: nothing in the first round through the addresses, then longer and longer.
func (r *Reader) pause(ctx context.Context) error {
	round := r.failures / len(r.o.Addresses)
	if round < 1 {
		return ctx.Err()
	}
	r.o.BeforeWait()
	d := min(minBackoff<<min(round-1, 10), maxBackoff)
	t := time.NewTimer(d/2 + rand.N(d))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// setup makes the session independent of the server's settings: values in UTC and in their own charsets, a read view for each transaction that takes no
// locks, and statements that are read in one way.
var setup = []string{
	"SET NAMES utf8mb4",
	"SET SESSION character_set_results = NULL, time_zone = '+00:00', sql_mode = '', autocommit = 1, transaction_isolation = 'REPEATABLE-READ', max_execution_time = 0, sql_select_limit = DEFAULT",
}

// prepare sets up the session of a connection.
func prepare(ctx context.Context, c *binlog.Conn) error {
	for _, statement := range setup {
		if _, err := c.Rows(ctx, askTimeout, statement); err != nil {
			return fmt.Errorf("setting up a session: %w", err)
		}
	}
	return nil
}

// connect makes a connection to a server that has executed all that is not read in the binlog.
func (r *Reader) connect(ctx context.Context) error {
	l := r.o.Login
	l.Address = r.address()
	c, err := binlog.Dial(ctx, l)
	if err != nil {
		return err
	}
	s, err := r.check(ctx, c, l.Address)
	if err != nil {
		c.Close()
		return err
	}
	r.conn = c
	r.mu.Lock()
	r.status.Connection = binlog.Status{Connected: true, Address: l.Address, ServerUUID: s.UUID, Since: time.Now()}
	r.mu.Unlock()
	if !r.connected || r.failures > 0 {
		r.connected = true
		r.log.Info("snapshot connected", "address", l.Address, "version", s.Version, "server_uuid", s.UUID.String())
	}
	return r.estimate(ctx)
}

func (r *Reader) check(ctx context.Context, c *binlog.Conn, address string) (*binlog.Server, error) {
	s, err := c.Server(address)
	if err != nil {
		return nil, err
	}
	if r.o.Primary && s.ReadOnly {
		return nil, fmt.Errorf("the server at %s is read-only and source.read_from is primary: waiting for a server of source.address that takes writes", address)
	}
	var diverged *binlog.SourceError
	if err := c.HasExecuted(ctx, s, r.o.Position); err != nil && !(r.o.ContinueDiverged && errors.As(err, &diverged)) {
		return nil, err
	}
	return s, prepare(ctx, c)
}

// estimate asks how many rows the tables have, about.
func (r *Reader) estimate(ctx context.Context) error {
	counted := map[string]int64{}
	for _, t := range r.at.Tables {
		name := r.configured(t.Table).Name
		text, err := r.conn.Query(ctx, askTimeout, fmt.Sprintf("SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s", binlog.Literal(name.Schema), binlog.Literal(name.Name)))
		if err != nil {
			return err
		}
		counted[t.Table], _ = strconv.ParseInt(text, 10, 64) // none for a table that is not there
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status.counted = counted
	return nil
}

func (r *Reader) configured(name string) *Table {
	i := slices.IndexFunc(r.o.Tables, func(t Table) bool { return t.id() == name })
	return &r.o.Tables[i]
}

func (r *Reader) disconnect(err error) {
	if r.chunk != nil {
		r.chunk.watch.Stop()
		r.chunk = nil
	}
	for _, c := range []**binlog.Conn{&r.conn, &r.ask} {
		if *c != nil {
			(*c).Close()
			*c = nil
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.status.Connection
	if c.Connected {
		*c = binlog.Status{Since: time.Now()}
	}
	if err != nil {
		if c.LastError = err; c.FailingSince.IsZero() {
			c.FailingSince = time.Now()
		}
	}
}

// unseen reports whether nobody has looked at a table.
func unseen(t checkpoint.SnapshotTable) bool { return len(t.Until) == 0 }

// survey notes the last row of each table that nobody has looked at: what is written behind it is in the binlog. Tables without rows are done.
func (r *Reader) survey(ctx context.Context) (*checkpoint.Snapshot, error) {
	at := r.at
	for i := 0; i < len(at.Tables); {
		t := at.Tables[i]
		if !unseen(t) {
			i++
			continue
		}
		c := r.configured(t.Table)
		p, err := r.openTable(ctx, c)
		if err != nil {
			return nil, err
		}
		last := json.RawMessage(nil)
		if p != nil {
			if last, err = r.keyOf(ctx, p, p.lastStatement()); err != nil {
				return nil, r.refuse(c, err)
			}
		}
		if last == nil {
			r.log.Info("snapshot finds no rows", "table", t.Table)
			at = at.Finished(i)
		} else {
			if err := r.announce(ctx, c, p); err != nil {
				return nil, err
			}
			t.Key, t.Until = p.names(), last
			at = at.Set(i, t)
			i++
		}
		if _, err := r.conn.Rows(ctx, askTimeout, "ROLLBACK"); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// announce logs the order in which a table will be read.
func (r *Reader) announce(ctx context.Context, t *Table, p *plan) error {
	ordered, err := commitOrder(ctx, r.conn, t, p)
	if err != nil {
		return err
	}
	r.mu.Lock()
	estimated := r.status.counted[t.id()]
	r.mu.Unlock()
	r.log.Info("snapshot of a table", "table", t.Name.String(), "key", strings.Join(p.names(), ", "), "rows_estimated", estimated)
	if !ordered {
		r.log.Warn("the rows that exist are published in the order of a key that is not AUTO_INCREMENT, so not in the order of their commits; snapshot.order_by can name a column", "table", t.Name.String(), "key", p.key[0].Name)
	}
	return nil
}

// openTable begins a transaction and looks at a table, which cannot be altered from then on until the end of the transaction. It gives nil without the table.
func (r *Reader) openTable(ctx context.Context, t *Table) (*plan, error) {
	if _, err := r.conn.Rows(ctx, askTimeout, "START TRANSACTION READ ONLY"); err != nil {
		return nil, err
	}
	_, err := r.conn.Rows(ctx, r.patience(), "SELECT 1 FROM "+binlog.QuoteName(t.Name.Schema)+"."+binlog.QuoteName(t.Name.Name)+" LIMIT 0")
	if binlog.TableMissing(err) {
		r.log.Warn("the snapshot finds no such table", "table", t.Name.String())
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("opening table %s: %w", t.Name, err)
	}
	p, err := makePlan(ctx, r.conn, t)
	if err != nil {
		return nil, r.refuse(t, err)
	}
	return p, nil
}

// open begins the next chunk of the table under way.
func (r *Reader) open(ctx context.Context) error {
	t := r.configured(r.at.Tables[0].Table)
	p, err := r.openTable(ctx, t)
	if err != nil {
		return err
	}
	if p == nil { // nothing is left of it
		if _, err := r.conn.Rows(ctx, askTimeout, "ROLLBACK"); err != nil {
			return err
		}
		r.chunk = &chunk{watch: time.NewTimer(0), last: true, over: true}
		return nil
	}
	if err := r.adopt(p); err != nil {
		return err
	}
	return r.read(ctx, t)
}

// adopt takes the plan of the table as it is now, the old one if nothing has changed.
func (r *Reader) adopt(p *plan) error {
	old := r.plan
	if old != nil && old.table.Schema == p.table.Schema && old.table.Name == p.table.Name {
		if equalColumns(old.table.Columns, p.table.Columns) && slices.Equal(old.names(), p.names()) && old.index == p.index {
			return nil
		}
		r.log.Warn("the columns or keys of a table have changed during its snapshot", "table", p.table.Schema+"."+p.table.Name)
	}
	r.plan = p
	if t := r.at.Tables[0]; !slices.Equal(t.Key, p.names()) {
		return r.again("key_before", strings.Join(t.Key, ", "), "key", strings.Join(p.names(), ", "))
	}
	return nil
}

// errAgain ends an attempt to read a table that has to be looked at anew.
var errAgain = errors.New("the key of the table has changed")

// again begins the table under way anew: what was read of it does not tell where to go on.
func (r *Reader) again(why ...any) error {
	t := r.at.Tables[0].Table
	r.log.Warn("the snapshot of a table begins again, since its key is another one than that by which it was read", append([]any{"table", t}, why...)...)
	r.set(r.at.Set(0, checkpoint.SnapshotTable{Table: t}))
	return errAgain
}

func (r *Reader) set(at *checkpoint.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = at
	r.step.rows = 0
	r.tell()
}

func equalColumns(a, b []event.Column) bool {
	return slices.EqualFunc(a, b, func(x, y event.Column) bool {
		same := slices.Equal(x.Members, y.Members)
		x.Members, y.Members = nil, nil
		return same && fmt.Sprint(x) == fmt.Sprint(y)
	})
}

// keyOf runs a statement that selects the key of one row, and gives it as it is stored; nil without a row.
func (r *Reader) keyOf(ctx context.Context, p *plan, statement string) (json.RawMessage, error) {
	result, err := r.conn.Select(ctx, r.patience(), rowTimeout, statement)
	if err != nil {
		return nil, err
	}
	cells := make([][]byte, result.Columns())
	var key json.RawMessage
	for {
		ok, err := result.Next(cells)
		if err != nil || !ok {
			return key, err
		}
		key = appendKey(nil, p.key, func(i int) []byte { return cells[i] })
	}
}

// appendKey appends a stored key of which text gives the columns.
func appendKey(dst json.RawMessage, key []keyColumn, text func(i int) []byte) json.RawMessage {
	dst = append(dst, '[')
	for i := range key {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = key[i].appendStored(dst, text(i))
	}
	return append(dst, ']')
}

// patience is how long a statement that may search much can take.
func (r *Reader) patience() time.Duration { return min(firstLimit<<min(r.silent, 10), maxLimit) }

// read begins to read the rows of the next chunk.
func (r *Reader) read(ctx context.Context, t *Table) error {
	size := t.Chunk
	if size <= 0 {
		size = DefaultChunk
	}
	at := &r.at.Tables[0]
	until, err := bounds(r.plan.key, at.Until)
	var conditions []string
	if err == nil {
		conditions = append(conditions, upTo(until))
		if len(at.After) > 0 {
			var after []bound
			if after, err = bounds(r.plan.key, at.After); err == nil {
				conditions = append(conditions, behind(after))
			}
		}
	}
	if err != nil {
		return r.again("err", err)
	}
	c := &chunk{size: size}
	if t.Where != "" {
		if c.end, err = r.keyOf(ctx, r.plan, r.plan.endStatement(conditions, size)); err != nil {
			return r.refuse(t, err)
		}
		if c.last = c.end == nil; c.last {
			c.end = at.Until
		}
		end, err := bounds(r.plan.key, c.end)
		if err != nil {
			return err
		}
		conditions = append(conditions, upTo(end), "("+t.Where+"\n)")
	}
	if c.result, err = r.conn.Select(ctx, r.patience(), rowTimeout, r.plan.statement(conditions, size, r.o.RowLimit)); err != nil {
		return r.refuse(t, err)
	}
	if want := len(r.plan.table.Columns); c.result.Columns() < want {
		return fmt.Errorf("table %s: %d columns came where %d were selected", t.Name, c.result.Columns(), want)
	}
	c.texts, c.cells = make([][]byte, c.result.Columns()), make([]event.Cell, len(r.plan.table.Columns))
	conn := r.conn
	c.watch = time.AfterFunc(r.hold, func() { // ends a read that waits; what was read until then counts
		c.expired.Store(true)
		conn.Close()
	})
	r.chunk = c
	r.failures, r.silent, r.refused = 0, 0, 0
	r.mu.Lock()
	r.status.Connection.LastError, r.status.Connection.FailingSince = nil, time.Time{}
	r.mu.Unlock()
	return nil
}

// refuse makes an error one that halts, where what it complains about is configured or a matter of the table.
func (r *Reader) refuse(t *Table, err error) error {
	var fault *Fault
	if errors.As(err, &fault) {
		return &binlog.SourceError{Reason: binlog.ReasonSnapshot, Detail: "table " + fault.Table + " " + fault.What, Hint: fault.Advice}
	}
	if binlog.StatementWrong(err) {
		return &binlog.SourceError{Reason: binlog.ReasonSnapshot, Err: err, Detail: "the rows of table " + t.Name.String() + " cannot be selected", Hint: "correct snapshot.where and snapshot.order_by of the table"}
	}
	return fmt.Errorf("selecting the rows of table %s: %w", t.Name, err)
}
