package relay

import (
	"context"
	"time"
)

// watchInterval is how often readiness is looked at for the log.
const watchInterval = 500 * time.Millisecond

// watch logs when the relay becomes ready, and when it is not for a new cause, until ctx ends. A halt has its own line, and a relay that
// starts says nothing.
func (r *Relay) watch(ctx context.Context) {
	t := time.NewTicker(watchInterval)
	defer t.Stop()
	said, near := CauseStarting, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		s := r.Status()
		switch {
		case s.PurgeNear != "" && !near:
			r.log.Warn("binlogs that a restart needs may soon be purged", "reason", s.PurgeNear)
		case s.PurgeNear == "" && near && s.Role == RoleActive:
			r.log.Info("no purge is near any more")
		}
		near = s.PurgeNear != ""
		switch {
		case s.Cause == said, s.Cause == CauseStarting:
			continue
		case s.Ready:
			r.log.Info("ready", "role", string(s.Role))
		case s.Cause != CauseHalted:
			r.log.Warn("not ready", "cause", string(s.Cause), "reason", s.Reason)
		}
		said = s.Cause
	}
}
