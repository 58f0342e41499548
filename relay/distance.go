package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/binlog"
)

// distanceInterval is how often the distance to the oldest binlog is asked for.
const distanceInterval = 30 * time.Second

// purgeShare is the part of the retention after which a position is in danger: half of it is left for a person to act.
const purgeShare = 2

// keptState is what the source keeps of its binlog, as far as it was asked.
type keptState struct {
	mu     sync.Mutex
	kept   binlog.Kept
	known  bool         // kept is of this session
	login  binlog.Login // of the server that was connected last
	server string       // its UUID
}

// watchDistance asks what the source keeps before the stored position: what is left until a purge loses it. It goes on while the session is halted
// or paused, when it matters most. The metrics are absent while they are not known, for example without the privilege to list binlogs.
func (s *session) watchDistance(ctx context.Context) {
	distance := prometheus.NewGauge(prometheus.GaugeOpts{Name: "outbox_relay_binlog_distance_bytes", Help: "Bytes of binlog that the source keeps before the stored position."})
	retention := prometheus.NewGauge(prometheus.GaugeOpts{Name: "outbox_relay_binlog_retention_seconds", Help: "How long the source keeps a binlog after its end; absent where it purges none by age."})
	shown := map[prometheus.Gauge]bool{}
	show := func(g prometheus.Gauge, v float64, want bool) {
		g.Set(v)
		switch {
		case want && !shown[g]:
			shown[g] = s.reg.Register(g) == nil
		case !want && shown[g]:
			s.reg.Unregister(g)
			shown[g] = false
		}
	}
	said := false
	for wait := time.Second; ; {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		k, err := s.distance(ctx)
		if wait = distanceInterval; errors.Is(err, errNoDistance) {
			wait = time.Second // nobody was asked
		}
		var refused *binlog.SourceError
		if errors.As(err, &refused) && !said {
			s.log.Warn("how far a purge of binlogs is cannot be seen", "err", err)
			said = true
		}
		show(distance, float64(k.Before), err == nil)
		show(retention, k.Retention.Seconds(), err == nil && k.Retention > 0)
	}
}

var errNoDistance = errors.New("not known")

func (s *session) distance(ctx context.Context) (binlog.Kept, error) {
	s.saved.mu.Lock()
	file, pos, server := s.saved.file, s.saved.pos, s.saved.server
	s.saved.mu.Unlock()
	src := s.sourceStatus()
	s.keeps.mu.Lock()
	if src.Connected {
		s.keeps.login, s.keeps.server = src.Login, src.ServerUUID.String()
	}
	login, at := s.keeps.login, s.keeps.server
	s.keeps.mu.Unlock()
	if login.Address == "" { // paused since the start: a purge comes nearer all the same
		login, at = src.Login, server
	}
	if file == "" || login.Address == "" || at != server { // after a failover the next save tells the position there
		return binlog.Kept{}, errNoDistance
	}
	k, err := s.o.Distance(ctx, login, file, pos)
	if err == nil {
		s.keeps.mu.Lock()
		s.keeps.kept, s.keeps.known = k, true
		s.keeps.mu.Unlock()
	}
	return k, err
}

// purgeNear says why the binlogs that a restart needs may soon be purged; empty while they are safe. lag is how old the position is.
func (s *session) purgeNear(lag time.Duration) string {
	s.keeps.mu.Lock()
	defer s.keeps.mu.Unlock()
	k := s.keeps.kept
	if !s.keeps.known {
		return ""
	}
	const do = "; let the relay go on (see halted, paused and last_error), or keep binlogs for longer meanwhile: SET GLOBAL binlog_expire_logs_seconds"
	switch {
	case k.Retention > 0 && lag > k.Retention/purgeShare:
		return fmt.Sprintf("the source keeps binlogs for %v and the position is %v old: what it needs may be purged in %v", k.Retention, lag.Round(time.Second), max(0, k.Retention-lag).Round(time.Second)) + do
	case k.Oldest && k.Purged && lag > 3*s.o.Heartbeat: // one that follows may pass through the oldest one
		return fmt.Sprintf("the position is in the oldest binlog that the source keeps, %d bytes from its beginning: the next purge loses it", k.Before) + do
	}
	return ""
}
