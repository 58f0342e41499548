package binlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
)

// TableName names a table as MySQL does, without quotes.
type TableName struct{ Schema, Name string }

func (t TableName) String() string { return t.Schema + "." + t.Name }

// Options configure a Reader.
type Options struct {
	Name      string   // the relay's name: the replica UUID and the default server id derive from it
	Login     Login    // Address is replaced by each of Addresses in turn
	Addresses []string // candidates, tried in order; a name that stands for several IP addresses is as many
	// Primary reads only a server that takes writes (read_only=OFF), and leaves one that stops to; else any server is read.
	Primary  bool
	ServerID uint32      // 0: derived from Name
	Tables   []TableName // watched tables, or patterns of them (TableName.IsPattern); the rows of all others are skipped
	Start    *gtid.Set   // what has been read and published already; the Reader keeps its own copy
	// Columns is what an earlier Reader remembered of the watched tables' columns at Start (see Reader.Columns); nil for nothing.
	Columns json.RawMessage
	// Place is where an earlier Reader was; zero where that is not known. It serves to find what a dump from Start leaves out, never as a start.
	Place     Place
	Heartbeat time.Duration

	// Own is the table in which the relay keeps its checkpoint, empty where it is elsewhere: steps that stand for nothing but writes to it say so.
	Own TableName

	IgnoreStatementWrites bool // a statement-format change that may touch a watched schema is passed by, counted; else the reader stops
	SkipUnknownXA         bool // an XA COMMIT of a branch never seen is passed by, counted; else the reader stops
	// ContinueDiverged goes on without transactions that were read and that the server lacks (see Transaction.Lost); else the reader stops.
	// SkipGap goes on behind transactions that were not read and that the server has purged; else the reader stops. With several addresses, each is
	// tried before.
	ContinueDiverged, SkipGap bool
	// Gap is how many transactions before Start were given up since they were purged; it shows in the metric until the first comparison.
	Gap uint64

	Memory     int64  // bytes of open transactions kept in memory; beyond it they are spooled to disk
	RowLimit   int64  // largest row kept as a whole
	SpoolDir   string // a directory on a disk, not tmpfs
	SpoolLimit int64  // bytes of open transactions on disk

	// BeforeWait, if not nil, is called before every wait for the server: what the caller has gathered should go out now.
	BeforeWait func()
	// Linger is for how long the connection is left alone after a read that brought little: the next read takes at once what several transactions
	// have brought. It costs each of them that much latency at most, none after a silence, and nothing in a backlog, where reads bring much.
	Linger time.Duration
	// Allowed, if not nil, is asked before each dump: the server ends an older dump of the same name for a newer one, so whoever may not act
	// for the name must not ask for one. While it gives false, Next waits and asks again soon. It must not block.
	Allowed    func() bool
	Logger     *slog.Logger
	Registerer prometheus.Registerer // may be nil
}

// Reader reads committed transactions of watched tables from a MySQL server as a replica does. It connects by itself, and again after
// every failure that time can heal. One goroutine calls Next; Status may be called by any.
type Reader struct {
	o        Options
	log      *slog.Logger
	metrics  *metrics
	serverID uint32
	replica  gtid.UUID
	watched  watched
	tags     event.Tags
	ctx      context.Context // of the Next that runs

	columns   columnMemory
	place     Place  // where the last transaction ended; Options.Place before the first
	lacking   string // the file of the first transaction that a new connection has to give
	from      string // a file with which the next dump has to begin
	again     bool   // the dump began earlier than it had to: transactions that were read come again
	sample    Place  // its Last comes again, to be compared; Micros is 0 when there is none
	warned    bool   // that the binlog names no columns
	lookupDue bool   // columns that are not known should be asked for
	ahead     *ahead // not nil in a Reader that looks ahead for another

	conn    *Conn
	pk      *packets // nil while not connected
	server  *Server
	file    string
	pos     uint64
	target  *gtid.Set // what was executed at connect; nil once all of it was read
	idle    Place     // of the last heartbeat; zero before the first one
	told    bool      // the connection has said that it is caught up
	settled bool      // the connection has given something new: its silence limit is the short one

	seen     *gtid.Set  // every group read to its end, prepared XA branches included
	event    raw        // the one being handled
	head     event.GTID // of the group read last
	group    group
	branches map[event.XABranch]*branch
	touched  map[event.XABranch]struct{} // if not nil: gathers the branches that were prepared or ended in what was read
	mem      memory
	spool    spool
	inflate  *inflater
	scratch  []byte
	rowsHead [rowsHeadSize]byte // of a large row event
	splitter event.Splitter
	// bufferSize is that of the stream's buffer.
	bufferSize int
	lingered   uint64 // bytes of the connection when Linger was last thought of

	own          watched      // the table of Options.Own
	pending      []gtid.Range // groups without watched rows not yet handed on
	pendingCount int
	pendingOwn   int // of them, those that wrote nothing but Options.Own
	pendingTime  int64
	lost         *gtid.Set // not yet handed on as Transaction.Lost
	closed       int       // groups read to their end that the metrics do not know yet
	tx           Transaction
	lent         *rowLog    // log of a finished XA branch that tx walks
	tour         *Tour      // through the servers
	watch        *roleWatch // of the present connection; nil without Options.Primary
	// failures counts failed attempts since a transaction was read to its end or the server had nothing to send; corrupt counts those by damaged
	// bytes since a transaction was read to its end.
	failures, corrupt int
	everConnected     bool

	mu     sync.Mutex
	status Status
}

// Status is the state of the replication connection.
type Status struct {
	Connected  bool
	Address    string
	Login      Login // reaches the very server that is read, or was last
	ServerUUID gtid.UUID
	Since      time.Time // of the present state
	LastError  error     // why the last connection ended or could not be made; nil once the next one has given a whole transaction or a heartbeat
	// FailingSince is when the first of the failures came that no whole transaction and no heartbeat has followed since; zero without one. A
	// link that comes and goes without getting anywhere is Connected most of the time.
	FailingSince time.Time
	Searching    bool // connected, but the server has not sent anything new yet
}

const (
	bufferSize = 512 << 10
	// maxPending is how many groups without watched rows are gathered into one step at most.
	maxPending = 10_000
	// netWriteTimeout is how long the server keeps a stream that nobody reads, in seconds: back-pressure of an outage of Kafka is no dead link.
	netWriteTimeout = 3600
	// silentPeriods is after how many heartbeat periods without a packet a link counts as dead.
	silentPeriods = 3
	// firstLimit is the first silence limit before anything new has come: no heartbeat is sent while the server searches its files.
	firstLimit = 2 * time.Minute
	maxLimit   = time.Hour
	minBackoff = 50 * time.Millisecond
	// maxBackoff is small against a failover, whose end is noticed by the next attempt only.
	maxBackoff = 2 * time.Second
	maxCorrupt = 3
	// little is what a read brings at most, in bytes, for Options.Linger to follow it.
	little = bufferSize / 8
	// allowedPause is between two questions whether a dump is allowed.
	allowedPause = 50 * time.Millisecond
)

// New checks the options. It connects to nothing.
func New(o Options) (*Reader, error) {
	if len(o.Addresses) == 0 || len(o.Tables) == 0 || o.Start == nil {
		return nil, errors.New("binlog: addresses, tables and start are required")
	}
	return newReader(o)
}

// newReader makes a Reader of checked options. It takes no tables at all, too.
func newReader(o Options) (*Reader, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Heartbeat <= 0 {
		o.Heartbeat = 5 * time.Second
	}
	if o.BeforeWait == nil {
		o.BeforeWait = func() {}
	}
	if o.Allowed == nil {
		o.Allowed = func() bool { return true }
	}
	r := &Reader{
		o: o, log: o.Logger, place: o.Place, metrics: newMetrics(o.Registerer), replica: ReplicaUUID(o.Name), serverID: o.ServerID,
		tour: NewTour(o.Login, o.Addresses), seen: o.Start.Clone(), branches: map[event.XABranch]*branch{},
		mem: memory{limit: o.Memory}, spool: spool{dir: o.SpoolDir, limit: o.SpoolLimit}, bufferSize: bufferSize,
	}
	r.metrics.gap.Set(float64(o.Gap))
	if r.serverID == 0 {
		r.serverID = serverID(o.Name)
	}
	r.watched = newWatched(o.Tables)
	if err := r.columns.load(o.Columns, &r.watched, o.Start); err != nil {
		return nil, fmt.Errorf("binlog: %w", err)
	}
	if o.Own != (TableName{}) {
		r.own = newWatched([]TableName{o.Own})
	}
	r.group.rows = r.newLog()
	r.status = Status{Since: time.Now()}
	return r, nil
}

func (r *Reader) newLog() *rowLog { return &rowLog{mem: &r.mem, spool: &r.spool} }

// Status returns the state of the replication connection.
func (r *Reader) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

func (r *Reader) setStatus(f func(*Status)) {
	r.mu.Lock()
	f(&r.status)
	r.mu.Unlock()
}

// Source returns the server being read and the place in its binlog; nil before the first connection. Same goroutine as Next.
func (r *Reader) Source() (s *Server, file string, pos uint64) { return r.server, r.file, r.pos }

// Columns gives what a Reader that starts at position p has to know of the watched tables' columns, nil where the binlog names them. p must not be
// before an earlier p. It may be called by any goroutine.
func (r *Reader) Columns(p *gtid.Set) (json.RawMessage, error) { return r.columns.stored(p) }

// Close closes the connection and forgets open transactions. No Next may be running.
func (r *Reader) Close() error {
	r.disconnect(nil)
	r.group.rows.discard()
	for _, b := range r.branches {
		if b.rows != nil {
			b.rows.discard()
		}
	}
	if r.lent != nil {
		r.lent.discard()
	}
	r.inflate.close()
	return nil
}

// Next returns the next step. It blocks until there is one, reconnecting for ever; it returns when ctx ends (within moments, also on a
// frozen server), with ErrFenced, with a *SourceError, which time cannot heal, from the stream or from every address in a row, or with a lasting *ConnectError
// if every address gave one before the first connect. The connection that a call makes ends with its ctx: calls share one. After its
// end, a call with that ctx closes the connection at once, and one with another ctx connects again and goes on.
func (r *Reader) Next(ctx context.Context) (*Transaction, error) {
	r.ctx = ctx
	r.tx.rows.stop()
	if r.lent != nil {
		r.lent.discard()
		r.lent = nil
	}
	if !r.group.open {
		r.group.rows.reset() // the rows of the last step
	}
	if ctx.Err() != nil {
		r.disconnect(nil)
		return nil, ctx.Err()
	}
	for {
		if r.pk == nil {
			if r.hasPending() {
				return r.emitStep(), nil
			}
			if err := r.connect(ctx); err != nil {
				return nil, err
			}
		}
		if r.lost != nil {
			return r.emitStep(), nil
		}
		tx, err := r.read()
		if err == nil {
			return tx, nil
		}
		if ctx.Err() != nil {
			r.disconnect(nil)
			return nil, ctx.Err()
		}
		err = r.judge(err)
		r.disconnect(err)
		if lasting(err) {
			return nil, err
		}
	}
}

// lasting reports whether connecting again cannot help.
func lasting(err error) bool {
	var s *SourceError
	return errors.As(err, &s) || errors.Is(err, ErrFenced)
}

// judge decides what an error of the stream means.
func (r *Reader) judge(err error) error {
	switch {
	case errors.Is(err, errSpoolFull):
		return &SourceError{Reason: ReasonSpoolFull, GTID: r.openGTID(), Err: err, Detail: "a transaction does not fit into the spool", Hint: "raise limits.spool or free space in limits.spool_dir"}
	case r.pk.failed:
		return err
	case errors.Is(err, errCorrupt):
		r.corrupt++
		if r.corrupt < maxCorrupt {
			return err
		}
		return r.unreadable(err)
	case errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the server ended the stream: %w", err)
	}
	return classify(err, r.conn.login.At(), r.o.Login.User)
}

// unreadable is the error for bytes that were the same at each attempt. Only then is it sure that they are not damaged on their way.
func (r *Reader) unreadable(err error) *SourceError {
	e := &SourceError{
		Reason: ReasonCorrupt, GTID: r.openGTID(), Err: err, Hint: "check the file with mysqlbinlog --verify-binlog-checksum",
		Detail: fmt.Sprintf("the binlog of %s cannot be read at %s:%d, %d times in a row", r.conn.login.At(), r.file, r.pos, r.corrupt),
	}
	var window *windowError
	switch {
	case errors.As(err, &window):
		e.Reason = ReasonCompression
		e.Hint = "set binlog_transaction_compression_level_zstd to 20 or lower on the server; publish this transaction's outbox rows, if any, by hand and set the checkpoint behind it"
	case errors.Is(err, event.ErrNewer):
		e.Reason, e.Hint = ReasonUnknownEvent, hintNewer
	}
	return e
}

// openGTID names the open transaction; empty outside one.
func (r *Reader) openGTID() string {
	if !r.group.open {
		return ""
	}
	return r.group.gtid.String()
}

// progress notes that the stream has begun to give something new. It forgives no failure: what a connection fails at again and again may lie
// within the first transaction that it gives.
func (r *Reader) progress() {
	if r.settled {
		return
	}
	r.settled = true
	r.pk.limit = silentPeriods * r.o.Heartbeat
	r.setStatus(func(s *Status) { s.Searching = false })
}

// forgive ends a row of failures: a transaction was read to its end, or the server has nothing to send.
func (r *Reader) forgive() {
	if r.failures == 0 {
		return
	}
	r.failures = 0
	r.setStatus(func(s *Status) { s.LastError, s.FailingSince = nil, time.Time{} })
}

// failed notes why a connection ended or could not be made.
func (s *Status) failed(err error) {
	s.LastError = err
	if err != nil && s.FailingSince.IsZero() {
		s.FailingSince = time.Now()
	}
}

func (r *Reader) disconnect(err error) {
	if r.conn == nil {
		return
	}
	r.conn.Close()
	if r.watch != nil {
		if why := r.watch.stop(); why != nil && err != nil {
			err = why
		}
		r.watch = nil
	}
	r.count()
	r.conn, r.pk = nil, nil
	r.group.drop()
	r.metrics.connected.Set(0)
	r.setStatus(func(s *Status) { s.Connected, s.Searching, s.Since = false, false, time.Now(); s.failed(err) })
	if err != nil {
		r.log.Warn("source connection lost", "err", err)
	}
}

// pause waits before the next attempt to connect: nothing in the first round through the servers, then longer and longer before each, and in any
// case until it is allowed.
func (r *Reader) pause(ctx context.Context) error {
	r.failures++
	if fresh, round := r.tour.Fresh(); fresh && round > 0 {
		d := min(minBackoff<<min(round-1, 10), maxBackoff)
		if err := r.sleep(ctx, d/2+rand.N(d)); err != nil {
			return err
		}
	}
	for !r.o.Allowed() {
		if err := r.sleep(ctx, allowedPause); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// beforeRead is called before each wait for the server.
func (r *Reader) beforeRead() {
	r.o.BeforeWait()
	brought := r.pk.bytes - r.lingered
	r.lingered = r.pk.bytes
	if r.o.Linger > 0 && brought > 0 && brought <= little {
		_ = rest(r.ctx, r.o.Linger) // the read sees the end of ctx
	}
}

func (r *Reader) sleep(ctx context.Context, d time.Duration) error {
	r.o.BeforeWait()
	return rest(ctx, d)
}

// rest waits for so long; its error is that of ctx.
func rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
