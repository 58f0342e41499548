package relay

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/internal/labels"
)

// metrics of a Relay. They live as long as the process; those of sources and sinks live as long as a session.
type metrics struct {
	tables       labels.Bounded         // values of the label table
	rows         *prometheus.CounterVec // table
	snapshotRows *prometheus.CounterVec // table
	overlap      prometheus.Counter
	unmatched    *prometheus.CounterVec // table
	poison       *prometheus.CounterVec // reason
	deadLetters  *prometheus.CounterVec // reason
	saves        prometheus.Counter
	saveFailures prometheus.Counter
	// publishSeconds counts a transaction once all its records, and all transactions before it, are acknowledged.
	publishSeconds prometheus.Histogram
	lastCommit     atomic.Int64 // µs of the newest transaction read
}

func newMetrics(r *Relay, reg prometheus.Registerer) *metrics {
	m := &metrics{
		tables:       labels.Bounded{Limit: 1000},
		rows:         prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outbox_relay_rows_total", Help: "Inserted rows of outbox tables read from the source."}, []string{"table"}),
		snapshotRows: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outbox_relay_snapshot_rows_total", Help: "Rows of outbox tables that existed and were read by a snapshot."}, []string{"table"}),
		overlap:      prometheus.NewCounter(prometheus.CounterOpts{Name: "outbox_relay_snapshot_overlap_rows_total", Help: "Rows read from the binlog that a snapshot may have read too; at most that many."}),
		unmatched:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outbox_relay_unmatched_rows_total", Help: "Rows that no rule of their table matches."}, []string{"table"}),
		poison:       prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outbox_relay_poison_total", Help: "Records that can never be published."}, []string{"reason"}),
		deadLetters:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outbox_relay_dead_letters_total", Help: "Poison records that were published as dead letters."}, []string{"reason"}),
		saves:        prometheus.NewCounter(prometheus.CounterOpts{Name: "outbox_relay_checkpoint_saves_total", Help: "Checkpoints stored durably."}),
		publishSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "outbox_relay_publish_seconds", Help: "Time from the commit of a transaction until it and all before it are acknowledged.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300, 1800},
		}),
		saveFailures: prometheus.NewCounter(prometheus.CounterOpts{Name: "outbox_relay_checkpoint_failures_total", Help: "Saves of the checkpoint that failed."}),
	}
	gauge := func(name, help string, labels prometheus.Labels, f func(Status) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "outbox_relay_" + name, Help: help, ConstLabels: labels}, func() float64 { return f(r.Status()) })
	}
	flag := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	reg.MustRegister(m.rows, m.snapshotRows, m.overlap, m.unmatched, m.poison, m.deadLetters, m.saves, m.saveFailures, m.publishSeconds,
		gauge("lag_seconds", "Now minus the commit time of the oldest unacknowledged transaction; never 0 while not proven caught up.", nil, func(s Status) float64 { return s.LagSeconds }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "outbox_relay_last_commit_timestamp_seconds", Help: "Commit time of the newest transaction read."}, func() float64 {
			return float64(m.lastCommit.Load()) / 1e6
		}),
		gauge("checkpoint_age_seconds", "Time since the stored checkpoint was last known to hold everything acknowledged.", nil, func(s Status) float64 {
			if s.Checkpoint.SavedAt.IsZero() {
				return 0
			}
			return time.Since(s.Checkpoint.SavedAt).Seconds()
		}),
		gauge("parked_keys", "Keys whose records become dead letters until theirs are published again.", nil, func(s Status) float64 { return float64(s.Sink.ParkedKeys) }),
		gauge("snapshot_running", "1 while rows that exist are read, and the binlog is not.", nil, func(s Status) float64 { return flag(s.Snapshot != nil) }),
		gauge("snapshot_remaining_rows", "Rows still to be read by the snapshot, as the source estimates them; 0 without a snapshot.", nil, func(s Status) float64 {
			if s.Snapshot == nil {
				return 0
			}
			return max(float64(s.Snapshot.Remaining), 0)
		}),
		gauge("role", "The role of this instance: 1 for the one held.", prometheus.Labels{"role": string(RoleActive)}, func(s Status) float64 { return flag(s.Role == RoleActive) }),
		gauge("role", "The role of this instance: 1 for the one held.", prometheus.Labels{"role": string(RoleStandby)}, func(s Status) float64 { return flag(s.Role == RoleStandby) }),
		gauge("paused", "1 while publishing is paused on a person's word.", nil, func(s Status) float64 { return flag(!s.PausedSince.IsZero()) }),
		gauge("purge_near", "1 while the source may soon purge binlogs that a restart needs.", nil, func(s Status) float64 { return flag(s.PurgeNear != "") }),
		gauge("ready", "1 while /readyz answers 200.", nil, func(s Status) float64 { return flag(s.Ready) }),
		&haltedCollector{r},
	)
	return m
}

// haltedCollector gives halted{reason} only while the relay is halted.
type haltedCollector struct{ relay *Relay }

var haltedDesc = prometheus.NewDesc("outbox_relay_halted", "1 while the relay stands still until a person acts, by reason.", []string{"reason"}, nil)

func (c *haltedCollector) Describe(ch chan<- *prometheus.Desc) { ch <- haltedDesc }

func (c *haltedCollector) Collect(ch chan<- prometheus.Metric) {
	c.relay.mu.Lock()
	h := c.relay.halt
	c.relay.mu.Unlock()
	if h != nil {
		ch <- prometheus.MustNewConstMetric(haltedDesc, prometheus.GaugeValue, 1, h.Reason())
	}
}

// Registrations remember what was registered through them, so that whoever comes next can register the same names. Safe for concurrent use.
type Registrations struct {
	prometheus.Registerer
	mu  sync.Mutex
	all []prometheus.Collector
}

// Register registers c.
func (s *Registrations) Register(c prometheus.Collector) error {
	err := s.Registerer.Register(c)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, c)
	}
	return err
}

// MustRegister panics where Register fails.
func (s *Registrations) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := s.Register(c); err != nil {
			panic(err)
		}
	}
}

// UnregisterAll takes back all that was registered.
func (s *Registrations) UnregisterAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.all {
		s.Unregister(c)
	}
	s.all = nil
}
