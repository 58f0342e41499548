package relay

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// distanceInterval is how often the distance to the oldest binlog is asked for.
const distanceInterval = 30 * time.Second

// watchDistance measures how many bytes of binlog the source keeps before the stored position: what is left until a purge loses it. The metric is
// absent while that is not known, for example without the privilege to list binlogs.
func (s *session) watchDistance(ctx context.Context) {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "outbox_relay_binlog_distance_bytes", Help: "Bytes of binlog that the source keeps before the stored position."})
	registered := false
	for wait := time.Second; ; wait = distanceInterval {
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		d, ok := s.distance(ctx)
		switch {
		case ok && !registered:
			registered = s.reg.Register(g) == nil
		case !ok && registered:
			s.reg.Unregister(g)
			registered = false
		}
		g.Set(d)
	}
}

func (s *session) distance(ctx context.Context) (float64, bool) {
	s.saved.mu.Lock()
	file, pos := s.saved.file, s.saved.pos
	s.saved.mu.Unlock()
	src := s.sourceStatus()
	if file == "" || !src.Connected && s.pausing.paused().IsZero() || src.Address == "" { // a pause is when a purge comes nearer
		return 0, false
	}
	d, err := s.o.Distance(ctx, src.Login, file, pos)
	return float64(d), err == nil
}
