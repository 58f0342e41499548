package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"outbox-relay/binlog"
)

// Lease says whether this instance may act for the relay's name.
type Lease interface {
	// Run keeps the lease, or keeps trying to get it, until ctx ends. It returns early only with an error that time cannot heal, and only before
	// the lease was held once.
	Run(ctx context.Context) error
	// State is the present state. It is cheap: it is asked before every request to Kafka and every save.
	State() LeaseState
	// Changed is closed at the next change of state.
	Changed() <-chan struct{}
}

// LeaseState is a moment of a lease.
type LeaseState struct {
	// Held is true while nobody else can hold the lease.
	Held bool
	// Term counts how often it was acquired. Between two terms another instance may have been active.
	Term uint64
	// Other is true when another instance was seen holding it.
	Other bool
	Err   error // why the last attempt failed
}

const (
	// leaseTTL is the server's wait_timeout for the lock's session: a frozen holder loses the lock that long after its last ping.
	leaseTTL = 10 * time.Second
	// leaseMargin is how much earlier the holder itself stops believing in it.
	leaseMargin = 2 * time.Second
	leasePing   = 2 * time.Second
)

// mysqlLease is a user-level lock (GET_LOCK) on the source. It belongs to a session, and the session of a frozen or unreachable holder lives on, so
// the session has a short wait_timeout and the holder counts on the lock only for less than that after it sent its last answered ping.
type mysqlLease struct {
	o    LeaseOptions
	tour *binlog.Tour // through the servers; used by Run only
	name string
	log  *slog.Logger

	mu    sync.Mutex
	state LeaseState
	until time.Time
	// own are the latest connections of this instance, with their servers. The server may not know yet that one of them is gone, and give it
	// the lock or keep it for it. Used by Run only.
	own     []string
	changed chan struct{}
}

// LeaseOptions say where the lock of a relay is. All but Primary are required.
type LeaseOptions struct {
	Name      string       // the relay's
	Login     binlog.Login // Address is replaced by each of Addresses in turn
	Addresses []string     // tried in order, as those of the reader
	// Primary takes the lock only on a server that takes writes, and gives it up on one that stops to: there is one such server at a time, so all
	// instances meet there. Else it is on whichever server an instance reaches first.
	Primary bool
	Logger  *slog.Logger
}

// NewMySQLLease returns the lease of a relay on its source. It connects in Run.
func NewMySQLLease(o LeaseOptions) Lease {
	return &mysqlLease{o: o, tour: binlog.NewTour(o.Login, o.Addresses), name: "outbox-relay/" + o.Name, log: o.Logger, changed: make(chan struct{})}
}

func (l *mysqlLease) State() LeaseState {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.state
	// By both clocks: the monotonic one stands still while the machine sleeps, and the server does not.
	now := time.Now()
	s.Held = s.Held && now.Before(l.until) && now.Round(0).Before(l.until.Round(0))
	return s
}

func (l *mysqlLease) Changed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

func (l *mysqlLease) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.state
	f()
	if l.state != before {
		close(l.changed)
		l.changed = make(chan struct{})
	}
}

func (l *mysqlLease) Run(ctx context.Context) error {
	login := l.tour.Next(ctx)
	said := map[string]bool{} // what the log has since the lock was held last
	for failures := 0; ; failures++ {
		held, err := l.hold(ctx, login)
		if ctx.Err() != nil {
			l.set(func() { l.state = LeaseState{Term: l.state.Term} })
			return nil
		}
		l.set(func() { l.state.Held, l.state.Err = false, err })
		var c *binlog.ConnectError
		verdict := l.tour.Failed(err, errors.As(err, &c) && c.Lasting())
		if verdict != nil && l.State().Term == 0 {
			return verdict
		}
		if held {
			clear(said)
			failures = 0 // and again on the same server: the lock of another one would not keep a standby of the first from acting
		} else {
			login = l.tour.Next(ctx)
		}
		if text := err.Error(); !said[text] && len(said) < 100 {
			said[text] = true
			l.log.Warn("activity lock lost or not reachable", "err", err)
		}
		d := min(100*time.Millisecond<<min(failures, 6), time.Second)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(d/2 + rand.N(d)):
		}
	}
}

// hold connects, waits for the lock and keeps it. It always returns with an error; held tells whether the lock was held meanwhile.
func (l *mysqlLease) hold(ctx context.Context, login binlog.Login) (held bool, err error) {
	c, err := binlog.Dial(ctx, login)
	if err != nil {
		return false, err
	}
	defer c.Close()
	if _, err := c.Query(ctx, leaseTTL, fmt.Sprintf("SET SESSION wait_timeout = %d", int(leaseTTL.Seconds()))); err != nil {
		return false, fmt.Errorf("setting up the activity lock on %s: %w", login.At(), err)
	}
	id, err := c.Query(ctx, leaseTTL, "SELECT CONNECTION_ID()")
	if err != nil {
		return false, fmt.Errorf("setting up the activity lock on %s: %w", login.At(), err)
	}
	l.own = append(l.own, login.At()+" "+id)
	if len(l.own) > 100 {
		l.own = l.own[1:]
	}
	lock := quote(l.name)
	for {
		sent := time.Now()
		got, err := c.Query(ctx, leaseTTL, l.unless("GET_LOCK("+lock+", 1)"))
		if err != nil {
			return false, fmt.Errorf("asking for the activity lock on %s: %w", login.At(), err)
		}
		if got == readOnly {
			return false, fmt.Errorf("asking for the activity lock: the server at %s is read-only and source.read_from is primary", login.At())
		}
		if got == "1" {
			l.set(func() {
				l.until = sent.Add(leaseTTL - leaseMargin)
				l.state = LeaseState{Held: true, Term: l.state.Term + 1}
			})
			break
		}
		holder, err := c.Query(ctx, leaseTTL, "SELECT COALESCE(IS_USED_LOCK("+lock+"), 0)")
		if err != nil {
			return false, fmt.Errorf("asking for the activity lock on %s: %w", login.At(), err)
		}
		other := holder != "0" && !slices.Contains(l.own, login.At()+" "+holder)
		l.set(func() { l.state = LeaseState{Term: l.state.Term, Other: other} })
	}
	return true, l.keep(ctx, c, login.At(), lock)
}

func (l *mysqlLease) keep(ctx context.Context, c *binlog.Conn, address, lock string) error {
	for {
		// The server gives the lock away as soon as it sees the connection end. So the end is seen here as soon as it can be, and not at the next ping:
		// until then two instances would believe in it.
		if err := c.Idle(ctx, leasePing); err != nil {
			return fmt.Errorf("keeping the activity lock on %s: %w", address, err)
		}
		sent := time.Now()
		got, err := c.Query(ctx, leaseTTL, l.unless("IS_USED_LOCK("+lock+") = CONNECTION_ID()"))
		if err != nil {
			return fmt.Errorf("keeping the activity lock on %s: %w", address, err)
		}
		if got == readOnly {
			return fmt.Errorf("the server at %s has become read-only and source.read_from is primary: leaving its activity lock", address)
		}
		if got != "1" {
			return fmt.Errorf("the activity lock on %s is gone", address)
		}
		l.set(func() { l.until = sent.Add(leaseTTL - leaseMargin) })
	}
}

// readOnly is the answer of a server that is not the primary where only that one counts.
const readOnly = "read-only"

// unless makes a statement of an expression, whose value is readOnly instead where the server may not be used.
func (l *mysqlLease) unless(expression string) string {
	if !l.o.Primary {
		return "SELECT " + expression
	}
	return "SELECT IF(@@global.read_only, '" + readOnly + "', " + expression + ")"
}

// quote makes a string literal; relay names have no quotes or backslashes.
func quote(s string) string { return "'" + s + "'" }
