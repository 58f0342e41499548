package relay_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/binlog"
	"outbox-relay/relay"
)

// keeps is a server that keeps what the test says.
type keeps struct {
	mu   sync.Mutex
	kept binlog.Kept
	err  error
	asks int
}

func (k *keeps) say(kept binlog.Kept, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept, k.err = kept, err
}

func (k *keeps) distance(context.Context, binlog.Login, string, uint64) (binlog.Kept, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asks++
	return k.kept, k.err
}

func (k *keeps) asked() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asks
}

// watched starts a relay whose distance is looked at, with its log.
func (g *rig) watched() (*keeps, *bytes.Buffer) {
	k, log := &keeps{}, &bytes.Buffer{}
	g.options.Distance = k.distance
	g.options.Registerer = prometheus.NewRegistry()
	g.options.Logger = slog.New(slog.NewTextHandler(log, nil))
	g.source.at = "db1:3306"
	k.say(binlog.Kept{Before: 1000, Retention: time.Hour}, nil)
	g.start()
	return k, log
}

// old sends a transaction that was committed a while ago, and nothing says that it is the last one.
func (g *rig) old(number int64, age time.Duration) {
	g.source.send(g.t, number, &binlog.Transaction{File: "binlog.000001", Position: 400, CommitMicros: time.Now().Add(-age).UnixMicro()})
	after(2 * interval)
}

const warned = "binlogs that a restart needs may soon be purged"

// A person must hear of it while there is time: half of the retention is left. Until the purge the relay is as ready as it is.
func TestAPurgeThatIsNearIsTold(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		_, log := g.watched()
		g.old(11, 20*time.Minute)
		if s := g.relay.Status(); s.PurgeNear != "" {
			t.Error(s.PurgeNear)
		}
		after(20 * time.Minute) // nothing comes from the source
		s := g.relay.Status()
		if !s.Ready || !strings.Contains(s.PurgeNear, "the source keeps binlogs for 1h0m0s and the position is 40m") || !strings.Contains(s.PurgeNear, "may be purged in 19m") {
			t.Errorf("ready %t: %q", s.Ready, s.PurgeNear)
		}
		if n := strings.Count(log.String(), warned); n != 1 {
			t.Errorf("warned %d times", n)
		}
		if got := metric(t, g.options.Registerer, "outbox_relay_purge_near"); got != 1 {
			t.Errorf("the metric is %v", got)
		}
		if got := metric(t, g.options.Registerer, "outbox_relay_binlog_retention_seconds"); got != 3600 {
			t.Errorf("the retention is %v", got)
		}
		g.source.foreign(t, 12, true)
		after(2 * interval)
		if s := g.relay.Status(); s.PurgeNear != "" {
			t.Error(s.PurgeNear)
		}
		if !strings.Contains(log.String(), "no purge is near any more") {
			t.Error("the end is not told")
		}
		g.mustStop()
	})
}

// A halt waits for a person, over a weekend if need be, and reads nothing meanwhile.
func TestAHaltedRelayWarnsBeforeThePurge(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		k, log := g.watched()
		g.old(11, time.Second)
		g.source.fails(&binlog.SourceError{Reason: binlog.ReasonStatementWrite, Detail: "a statement"})
		g.source.away.Store(true)
		asks := k.asked()
		after(25 * time.Minute)
		if s := g.relay.Status(); s.PurgeNear != "" || k.asked() == asks {
			t.Errorf("%q, asked %d times", s.PurgeNear, k.asked()-asks)
		}
		after(10 * time.Minute)
		if s := g.relay.Status(); s.Halted == "" || s.PurgeNear == "" || !strings.Contains(log.String(), warned) {
			t.Errorf("halted %q, %q", s.Halted, s.PurgeNear)
		}
		g.mustStop()
	})
}

// Whatever purges, by age or by hand: a position in the oldest of several binlogs is the next to go. One that moves may pass through it.
func TestAPositionInTheOldestBinlogIsTold(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		k, _ := g.watched()
		oldest := binlog.Kept{Before: 1000, Oldest: true, Retention: 30 * 24 * time.Hour}
		k.say(oldest, nil)
		g.old(11, time.Second)
		after(time.Minute)
		if s := g.relay.Status(); s.PurgeNear != "" {
			t.Errorf("on a server that never purged: %s", s.PurgeNear)
		}
		oldest.Purged = true
		k.say(oldest, nil)
		after(time.Minute)
		if s := g.relay.Status(); !strings.Contains(s.PurgeNear, "in the oldest binlog that the source keeps, 1000 bytes from its beginning") {
			t.Errorf("%q", s.PurgeNear)
		}
		g.old(12, time.Second)
		if s := g.relay.Status(); s.PurgeNear != "" {
			t.Errorf("while it moves: %s", s.PurgeNear)
		}
		g.mustStop()
	})
}

func TestALackingPrivilegeForTheDistanceIsToldOnce(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		k, log := g.watched()
		k.say(binlog.Kept{}, &binlog.SourceError{Reason: binlog.ReasonPrivilege, Detail: "may not", Hint: "run GRANT"})
		g.old(11, time.Second)
		after(10 * time.Minute)
		if n := strings.Count(log.String(), "how far a purge of binlogs is cannot be seen"); n != 1 || !strings.Contains(log.String(), "run GRANT") {
			t.Errorf("told %d times:\n%s", n, log)
		}
		if s := g.relay.Status(); s.Role != relay.RoleActive {
			t.Errorf("it is %s", s.Role)
		}
		g.mustStop()
	})
}

// metric gives the value of a gauge without labels.
func metric(t *testing.T, reg prometheus.Registerer, name string) float64 {
	t.Helper()
	families, err := reg.(prometheus.Gatherer).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Errorf("there is no metric %s", name)
	return -1
}
