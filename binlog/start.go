package binlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"outbox-relay/binlog/gtid"
)

// StartOptions say where a reader without a checkpoint begins.
type StartOptions struct {
	Name      string   // the relay's name
	Login     Login    // Address is replaced by each of Addresses in turn
	Addresses []string // candidates, tried in order
	Primary   bool     // as Options.Primary
	Start     string   // latest, earliest, or a GTID set
	// SkipUnknownXA is that of the reader which will go on from the position. It only chooses the words of a warning.
	SkipUnknownXA bool
	// XAWait bounds how long a start at latest waits for XA branches that are prepared already; 0 means 10 s.
	XAWait time.Duration
	Logger *slog.Logger // nil: nothing is logged
}

// FirstPosition gives the position of a reader without a checkpoint: what was executed (latest), what was purged (earliest), or the
// given set, which must contain what was purged. The latest position leaves out the PREPAREs of XA branches that are pending, so that their
// rows come with their XA COMMIT. It tries until a server answers or ctx ends, and returns early if every server in a row gave a *SourceError or a
// lasting *ConnectError.
func FirstPosition(ctx context.Context, o StartOptions) (*gtid.Set, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.XAWait == 0 {
		o.XAWait = xaWait
	}
	tour := NewTour(o.Login, o.Addresses)
	f := latest{o: o}
	for attempt := 0; ; attempt++ {
		f.login = tour.Next(ctx)
		set, err := f.first(ctx)
		if err == nil {
			return set, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var wrong *startError
		if errors.As(err, &wrong) {
			return nil, err
		}
		var c *ConnectError
		if err := tour.Failed(err, lasting(err) || errors.As(err, &c) && c.Lasting()); err != nil {
			return nil, err
		}
		if attempt == 0 {
			o.Logger.Warn("source cannot be reached, trying again", "err", err)
		}
		d := min(minBackoff<<min(attempt, 10), maxBackoff)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(d/2 + rand.N(d)):
		}
	}
}

// startError is a source.start that is no GTID set.
type startError struct{ err error }

func (e *startError) Error() string { return "source.start: " + e.err.Error() }
func (e *startError) Unwrap() error { return e.err }

// first asks one server.
func (f *latest) first(ctx context.Context) (*gtid.Set, error) {
	c, err := Dial(ctx, f.login)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	s, err := c.Server(f.login.At())
	if err != nil {
		return nil, err
	}
	if err := s.usable(); err != nil {
		return nil, err
	}
	if f.o.Primary && s.ReadOnly {
		return nil, &notPrimaryError{s.Address}
	}
	switch f.o.Start {
	case "latest":
		return f.position(ctx, c, s)
	case "earliest":
		return s.Purged, nil
	}
	set, err := gtid.ParseSet(f.o.Start)
	if err != nil {
		return nil, &startError{err}
	}
	if gap := gtid.Minus(s.Purged, set); !gap.IsEmpty() {
		return nil, &SourceError{Reason: ReasonPurged, Detail: fmt.Sprintf("the server at %s has purged transactions that source.start lacks: %s", s.Address, gap), Hint: "set source.start to earliest, or add them to it to accept the gap"}
	}
	return set, nil
}
