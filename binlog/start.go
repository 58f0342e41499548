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

// FirstPosition gives the position of a reader without a checkpoint: what was executed (latest), what was purged (earliest), or the
// given set, which must contain what was purged. It tries until a server answers or ctx ends, and returns early with a *SourceError, or with a
// lasting *ConnectError if every address gave one.
func FirstPosition(ctx context.Context, l Login, addresses []string, start string, log *slog.Logger) (*gtid.Set, error) {
	refused := 0
	for attempt := 0; ; attempt++ {
		l.Address = addresses[attempt%len(addresses)]
		s, err := Inspect(ctx, l)
		if err == nil {
			return s.first(start)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var c *ConnectError
		if errors.As(err, &c) && c.Lasting() {
			refused++
		} else {
			refused = 0
		}
		if refused >= len(addresses) || lasting(err) {
			return nil, err
		}
		if attempt == 0 {
			log.Warn("source cannot be reached, trying again", "err", err)
		}
		d := min(minBackoff<<min(attempt, 10), maxBackoff)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(d/2 + rand.N(d)):
		}
	}
}

func (s *Server) first(start string) (*gtid.Set, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	switch start {
	case "latest":
		return s.Executed, nil
	case "earliest":
		return s.Purged, nil
	}
	set, err := gtid.ParseSet(start)
	if err != nil {
		return nil, fmt.Errorf("source.start: %w", err)
	}
	if gap := gtid.Minus(s.Purged, set); !gap.IsEmpty() {
		return nil, &SourceError{Reason: ReasonPurged, Detail: fmt.Sprintf("the server at %s has purged transactions that source.start lacks: %s", s.Address, gap), Hint: "set source.start to earliest, or add them to it to accept the gap"}
	}
	return set, nil
}
