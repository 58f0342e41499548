package binlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"outbox-relay/binlog/gtid"
)

const (
	// ownLimit is how long a server may lack transactions of its own that it has sent before: they reach gtid_executed a moment after the stream.
	ownLimit = 10 * time.Second
	// foreignLimit is how long a server that replicates from nobody may lack transactions of another one: as long as a replica takes to stop.
	foreignLimit = time.Second
	comparePause = 100 * time.Millisecond
)

// compare looks for what a server lacks of what was read, and for what it has purged of what is still to be read. The server itself checks only
// transactions of its own UUID. Without a policy for it, either is an error; with one, it gives what is to be given up.
func (r *Reader) compare(ctx context.Context, c *Conn, s *Server) (lost, gap *gtid.Set, err error) {
	if lost, err = r.lacked(ctx, c, s); err != nil {
		return nil, nil, err
	}
	gap = gtid.Minus(s.Purged, r.seen)
	r.metrics.gap.Set(float64(gap.Count()))
	if gap.IsEmpty() {
		return lost, nil, nil
	}
	e := purgedError(s, r.seen, gap)
	if r.o.SkipGap {
		if err := r.othersTried(e); err != nil {
			return nil, nil, err
		}
		return lost, gap, nil
	}
	if r.o.Own != (TableName{}) {
		e.Hint = "one of them may be the save that stored this checkpoint in " + r.o.Own.String() + " on this server, which has no outbox rows; " + e.Hint
	}
	return nil, nil, e
}

// lacked gives the transactions that were read and that the server lacks for good. A replica may get them still: it is waited for, and not read from.
func (r *Reader) lacked(ctx context.Context, c *Conn, s *Server) (*gtid.Set, error) {
	missing, err := c.lacks(ctx, s, r.seen, func(missing *gtid.Set) { r.metrics.diverged.Set(float64(missing.Count())) })
	var e *SourceError
	if !errors.As(err, &e) || !r.o.ContinueDiverged {
		return nil, err
	}
	return missing, r.othersTried(e)
}

// HasExecuted makes sure that the server has executed a set, which it waits for a moment. Otherwise it gives a *SourceError when nothing can change
// that, and another error when the server is a replica that is behind.
func (c *Conn) HasExecuted(ctx context.Context, s *Server, set *gtid.Set) error {
	_, err := c.lacks(ctx, s, set, func(*gtid.Set) {})
	return err
}

// lacks gives the transactions of a set that the server lacks, with an error, and tells observe of each look.
func (c *Conn) lacks(ctx context.Context, s *Server, set *gtid.Set, observe func(missing *gtid.Set)) (*gtid.Set, error) {
	for begun := time.Now(); ; {
		missing := gtid.Minus(set, s.Executed)
		observe(missing)
		if missing.IsEmpty() {
			return nil, nil
		}
		replicates, stopped, err := c.replicates(ctx)
		if err != nil {
			return nil, fmt.Errorf("asking the server at %s whether it is a replica: %w", s.Address, err)
		}
		limit := foreignLimit
		if !replicates && hasUUID(missing, s.UUID) {
			limit = ownLimit
		}
		switch {
		case time.Since(begun) <= limit:
		case replicates:
			return missing, &behindError{s.Address, missing, stopped}
		default:
			return missing, &SourceError{
				Reason: ReasonDiverged, Hint: hintDiverged,
				Detail: fmt.Sprintf("the server at %s lacks transactions that the relay has read: %s", s.Address, missing),
			}
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(comparePause):
		}
		if s.Executed, err = c.Executed(ctx, defaultConnectTimeout); err != nil {
			return nil, fmt.Errorf("the server at %s: %w", s.Address, err)
		}
	}
}

// behindError is a replica that has not got everything yet that was read from another server.
type behindError struct {
	address string
	missing *gtid.Set
	stopped bool // it does not apply what it has received
}

func (e *behindError) Error() string {
	if e.stopped {
		return fmt.Sprintf("the replica at %s has received transactions that it does not apply, since its applier is stopped, and lacks some that the relay has read: %s; "+
			"run START REPLICA SQL_THREAD there, or RESET REPLICA ALL if it is to go on without them", e.address, e.missing)
	}
	return fmt.Sprintf("the replica at %s has not executed transactions yet that the relay has read: %s", e.address, e.missing)
}

// othersTried gives an error while another server may have what this one lacks: each is tried before a policy that gives something up is used.
func (r *Reader) othersTried(why error) error {
	if r.tour.All() {
		return nil
	}
	return fmt.Errorf("looking at the other addresses first: %s", why) // not as a cause: it halts nothing yet
}

// giveUp makes the position one that the server can go on from. What was lost is taken out of it: the numbers may be given to other transactions.
func (r *Reader) giveUp(s *Server, lost, gap *gtid.Set) {
	if lost != nil {
		r.log.Warn("the source lacks transactions that were read and published: going on without them (source.on_divergence: continue)",
			"address", s.Address, "transactions", lost.String(), "count", lost.Count())
		r.metrics.givenUp.WithLabelValues("on_divergence").Add(float64(lost.Count()))
		r.seen.Subtract(lost)
		if lost.Contains(r.place.Last) {
			r.place.Micros = 0
		}
		r.dropBranches(lost)
		if r.lost == nil {
			r.lost = new(gtid.Set)
		}
		r.lost.AddSet(lost)
	}
	if gap != nil {
		r.log.Warn("the source has purged transactions that were not read: going on behind them, their outbox rows are not published (source.on_gap: skip)",
			"address", s.Address, "transactions", gap.String(), "count", gap.Count())
		r.metrics.givenUp.WithLabelValues("on_gap").Add(float64(gap.Count()))
		r.seen.AddSet(gap)
		for g := range gap.Ranges() {
			r.addPending(g)
		}
		r.pendingCount++
	}
}

// dropBranches forgets prepared XA branches whose PREPARE the server lacks.
func (r *Reader) dropBranches(lost *gtid.Set) {
	for xid, b := range r.branches {
		for _, g := range b.prepared {
			if !lost.Contains(gtid.GTID{UUID: g.UUID, Tag: g.Tag, Number: g.First}) {
				continue
			}
			if b.rows != nil {
				b.rows.discard()
			}
			delete(r.branches, xid)
			r.countBranches(b.micros)
			break
		}
	}
}

// replicates tells whether the server gets transactions from another one: a replication channel fetches and applies them, or has some in its relay
// log. An applier that is stopped with some to apply can be started at any time.
func (c *Conn) replicates(ctx context.Context) (yes, stopped bool, err error) {
	if err := c.net.SetDeadline(time.Now().Add(defaultConnectTimeout)); err != nil {
		return false, false, err
	}
	res, err := c.Execute("SHOW REPLICA STATUS")
	var unknown *mysql.MyError
	if errors.As(err, &unknown) && unknown.Code == mysql.ER_PARSE_ERROR { // before 8.0.22
		res, err = c.Execute("SHOW SLAVE STATUS")
	}
	if err != nil {
		if ctx.Err() != nil {
			return false, false, ctx.Err()
		}
		return false, false, err
	}
	if res.Resultset == nil {
		return false, false, nil
	}
	column := func(row int, names ...string) string {
		for _, name := range names {
			if v, err := res.GetStringByName(row, name); err == nil {
				return v
			}
		}
		return ""
	}
	for row := range res.Values {
		applies := strings.EqualFold(column(row, "Replica_SQL_Running", "Slave_SQL_Running"), "Yes")
		if applies && !strings.EqualFold(column(row, "Replica_IO_Running", "Slave_IO_Running"), "No") {
			return true, false, nil
		}
		got, err := gtid.ParseSet(column(row, "Retrieved_Gtid_Set"))
		if err != nil {
			return false, false, err
		}
		executed, err := c.Executed(ctx, defaultConnectTimeout)
		if err != nil {
			return false, false, err
		}
		if !executed.ContainsSet(got) {
			yes, stopped = true, stopped || !applies
		}
	}
	return yes, stopped, nil
}

func hasUUID(s *gtid.Set, u gtid.UUID) bool {
	for g := range s.Ranges() {
		if g.UUID == u {
			return true
		}
	}
	return false
}

// PurgedGap gives the reason why a relay that has read a set cannot go on from it on a server, or nil if all that it lacks is in the binlogs.
func PurgedGap(s *Server, read *gtid.Set) *SourceError {
	gap := gtid.Minus(s.Purged, read)
	if gap.IsEmpty() {
		return nil
	}
	return purgedError(s, read, gap)
}

// purgedError is the error for what was purged and not read.
//
// A transaction missing in the middle of what was read is most likely the PREPARE of an XA branch that was pending: the position leaves it out
// until the branch ends.
func purgedError(s *Server, read, gap *gtid.Set) *SourceError {
	e := &SourceError{
		Reason: ReasonPurged, Hint: hintPurged, Missing: gap,
		Detail: fmt.Sprintf("the server at %s has purged binlogs that the relay has not read; missing are %s", s.Address, gap),
	}
	holes := holesIn(read, gap)
	switch {
	case holes.IsEmpty():
	case holes.Equal(gap):
		e.Detail = fmt.Sprintf("the server at %s has purged binlogs that the relay has not read; missing in the middle of what was read are %s, "+
			"most likely PREPAREs of XA branches that were pending: the rows of these branches, if any, were not published and cannot be read any more", s.Address, gap)
		e.Hint = fmt.Sprintf("XA RECOVER CONVERT XID lists the branches that are still pending: end them; publish the rows of those that are committed by hand; "+
			"then stop the relay and run outbox-relay checkpoint set '%s', and start it with source.on_unknown_xa: skip if an XA COMMIT is still to be read", joined(read, gap))
	default:
		e.Detail += fmt.Sprintf("; of these, %s are in the middle of what was read, most likely PREPAREs of XA branches that were pending", holes)
	}
	return e
}

// holesIn gives the transactions of gap that have later ones of the same source in read.
func holesIn(read, gap *gtid.Set) *gtid.Set {
	type source struct {
		uuid gtid.UUID
		tag  gtid.Tag
	}
	last := map[source]int64{}
	for g := range read.Ranges() {
		last[source{g.UUID, g.Tag}] = max(last[source{g.UUID, g.Tag}], g.Last)
	}
	holes := new(gtid.Set)
	for g := range gap.Ranges() {
		if g.Last < last[source{g.UUID, g.Tag}] {
			holes.AddRange(g)
		}
	}
	return holes
}

// joined is the union of two sets.
func joined(read, gap *gtid.Set) *gtid.Set {
	all := read.Clone()
	all.AddSet(gap)
	return all
}
