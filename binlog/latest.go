package binlog

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
)

const (
	// xaWait is how long a start at latest waits for branches that are prepared already.
	xaWait = 10 * time.Second
	// quietLooks is how often a start looks for a moment without writes and branches before it reads the binlog to tell.
	quietLooks = 20
	// xaPause is between two looks at branches that are waited for.
	xaPause = 50 * time.Millisecond
	// namedBranches is how many branches a warning names.
	namedBranches = 20
	// askTimeout is for one small statement.
	askTimeout = defaultConnectTimeout
)

// latest finds the first position of a start at latest.
//
// gtid_executed contains the PREPAREs of pending XA branches. A reader that began there would see the XA COMMIT of branches whose rows it never
// read. So the position is a moment when no branch was prepared or, where there is none, gtid_executed of a moment less the PREPAREs that
// are pending at its end: the binlog behind that moment is read until every branch that was prepared before it has ended.
type latest struct {
	o        StartOptions
	login    Login
	deadline time.Time // until when branches are waited for; zero before the first one
}

// errNoXARecover is returned for an account that may not ask for prepared branches.
var errNoXARecover = errors.New("XA RECOVER needs the privilege XA_RECOVER_ADMIN")

// errOtherServer ends an attempt in which the address came to name another server.
var errOtherServer = errors.New("the server is another one than a moment ago")

func (f *latest) position(ctx context.Context, c *Conn, s *Server) (*gtid.Set, error) {
	set, quiet, err := quietMoment(ctx, c)
	switch {
	case errors.Is(err, errNoXARecover):
		f.o.Logger.Warn("prepared XA branches cannot be seen: the rows of those that are pending now will be missing at their XA COMMIT, which source.on_unknown_xa decides about",
			"err", err, "hint", fmt.Sprintf("GRANT XA_RECOVER_ADMIN ON *.* TO '%s'@'%%'", f.login.User))
		return s.Executed, nil
	case err != nil || quiet:
		return set, err
	}
	if f.deadline.IsZero() {
		f.deadline = time.Now().Add(f.o.XAWait)
	}
	return f.behind(ctx, c, s, set)
}

// quietMoment gives gtid_executed of a moment at which no branch was prepared. Without one it gives what was executed when it began to look.
//
// A branch that was prepared in the set and is not listed afterwards has ended before, so the GTID of its end is executed by then: with
// nothing executed in between it is in the set as well.
func quietMoment(ctx context.Context, c *Conn) (set *gtid.Set, quiet bool, err error) {
	var first, before *gtid.Set
	for look := range quietLooks {
		now, err := c.Executed(ctx, askTimeout)
		if err != nil {
			return nil, false, err
		}
		if look == 0 {
			first = now
		}
		branches, err := prepared(ctx, c)
		if err != nil {
			return nil, false, err
		}
		if len(branches) > 0 {
			break
		}
		// Two looks: the server lists a branch a moment after it has executed its PREPARE.
		if look > 0 && now.Equal(before) {
			return now, true, nil
		}
		before = now
	}
	return first, false, nil
}

// behind reads the binlog behind set until all branches that are prepared in set have ended or were waited for long enough, and gives set with
// all that was read but for the PREPAREs that are pending then.
func (f *latest) behind(ctx context.Context, c *Conn, s *Server, set *gtid.Set) (*gtid.Set, error) {
	r, err := newReader(Options{
		Name:  f.o.Name + " first position", // of its own, so that no reader of the relay's name is ended
		Login: f.login, Addresses: []string{f.login.Address}, Start: set, IgnoreStatementWrites: true, SkipUnknownXA: true,
		RowLimit: 16 << 20, Logger: f.o.Logger, // the limit is that of table maps: no rows are kept
	})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	r.ahead = &ahead{} // no columns are needed
	r.touched = map[event.XABranch]struct{}{}
	for look := 0; ; look++ {
		listed, err := prepared(ctx, c)
		if err != nil {
			return nil, err
		}
		if err := f.readTo(ctx, c, r, s, set); err != nil {
			return nil, err
		}
		// Whatever is listed was prepared in what has been read by now, if not before it.
		old := slices.DeleteFunc(listed, func(b event.XABranch) bool {
			_, touched := r.touched[b]
			return touched
		})
		switch {
		case len(old) == 0 && look > 0: // the first look may miss a branch that is being prepared, see quietMoment
			return set, nil
		case len(old) > 0 && time.Now().After(f.deadline):
			f.warn(old)
			return set, nil
		case len(old) == 0:
			continue
		}
		if look == 0 {
			f.o.Logger.Info("waiting for XA branches that are prepared", "branches", len(old), "limit", time.Until(f.deadline).Round(time.Millisecond))
		}
		if err := r.sleep(ctx, xaPause); err != nil {
			return nil, err
		}
	}
}

// readTo reads all that was executed by now and adds what the reader hands on to set.
func (f *latest) readTo(ctx context.Context, c *Conn, r *Reader, s *Server, set *gtid.Set) error {
	executed, err := c.Executed(ctx, askTimeout)
	if err != nil {
		return err
	}
	for !r.seen.ContainsSet(executed) {
		tx, err := r.Next(ctx)
		if err != nil {
			return err
		}
		if r.server.UUID != s.UUID {
			return errOtherServer
		}
		for _, g := range tx.Ranges {
			set.AddRange(g)
		}
	}
	return nil
}

func (f *latest) warn(branches []event.XABranch) {
	var names []string
	for _, b := range branches[:min(len(branches), namedBranches)] {
		names = append(names, b.String())
	}
	fields := []any{"branches", strings.Join(names, " "), "count", len(branches), "hint", "XA RECOVER CONVERT XID lists them; end those that nobody will end, and publish the rows of those that are committed by hand"}
	if f.o.SkipUnknownXA {
		f.o.Logger.Warn("XA branches lie before the first position and are still prepared: the XA COMMIT of one is passed by without its rows (source.on_unknown_xa: skip)", fields...)
		return
	}
	f.o.Logger.Warn("XA branches lie before the first position and are still prepared: the XA COMMIT of one halts the relay (source.on_unknown_xa: halt), since its rows were not read", fields...)
}

const codeXARecover = 1401 // ER_XAER_RMERR, which XA RECOVER gives for a missing privilege, with 1227 behind it

// prepared lists the XA branches that are prepared on the server.
func prepared(ctx context.Context, c *Conn) ([]event.XABranch, error) {
	rows, err := c.Rows(ctx, askTimeout, "XA RECOVER CONVERT XID")
	var my *mysql.MyError
	if errors.As(err, &my) && (my.Code == codeXARecover || my.Code == codeNoPrivilege) {
		return nil, errNoXARecover
	}
	if err != nil {
		return nil, fmt.Errorf("asking for prepared XA branches: %w", err)
	}
	branches := make([]event.XABranch, 0, len(rows))
	for _, row := range rows {
		b, err := parseRecovered(row)
		if err != nil {
			return nil, fmt.Errorf("XA RECOVER: %w", err)
		}
		branches = append(branches, b)
	}
	return branches, nil
}

// parseRecovered reads a row of XA RECOVER CONVERT XID: format id, gtrid length, bqual length, 0x and both in hexadecimal digits.
func parseRecovered(row []string) (event.XABranch, error) {
	if len(row) != 4 {
		return event.XABranch{}, fmt.Errorf("%d columns", len(row))
	}
	format, err := strconv.ParseUint(row[0], 10, 32)
	if err != nil {
		return event.XABranch{}, err
	}
	n, err := strconv.Atoi(row[1])
	if err != nil {
		return event.XABranch{}, err
	}
	both, err := hex.DecodeString(strings.TrimPrefix(row[3], "0x"))
	if err != nil {
		return event.XABranch{}, err
	}
	if n < 0 || n > len(both) {
		return event.XABranch{}, fmt.Errorf("gtrid of %d bytes of %d", n, len(both))
	}
	return event.XABranch{FormatID: uint32(format), GTRID: string(both[:n]), BQUAL: string(both[n:])}, nil
}
