package binlog

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/internal/labels"
)

// metrics of one Reader. The registerer adds the label source.
type metrics struct {
	readBytes      prometheus.Counter
	transactions   prometheus.Counter
	ignored        *prometheus.CounterVec // table, kind
	tables         labels.Bounded
	connects       prometheus.Counter
	connected      prometheus.Gauge
	spooled        prometheus.Gauge
	xaPending      prometheus.Gauge
	xaOldest       atomic.Int64 // µs since 1970 at which the oldest pending branch was prepared; 0 without one
	gap            prometheus.Gauge
	diverged       prometheus.Gauge
	givenUp        *prometheus.CounterVec // policy
	statementsSeen prometheus.Counter
	unknownXA      prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		tables:         labels.Bounded{Limit: 1000},
		readBytes:      prometheus.NewCounter(prometheus.CounterOpts{Name: "outbox_relay_read_bytes_total", Help: "Bytes of binlog received from the source."}),
		transactions:   prometheus.NewCounter(prometheus.CounterOpts{Name: "outbox_relay_read_transactions_total", Help: "Transactions read from the source, foreign and empty ones included."}),
		ignored:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outbox_relay_ignored_changes_total", Help: "Row events on an outbox table that publish nothing."}, []string{"table", "kind"}),
		connects:       prometheus.NewCounter(prometheus.CounterOpts{Name: "outbox_relay_source_connects_total", Help: "Replication connections made."}),
		connected:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "outbox_relay_source_connected", Help: "1 while a replication connection stands."}),
		spooled:        prometheus.NewGauge(prometheus.GaugeOpts{Name: "outbox_relay_spooled_bytes", Help: "Bytes of open transactions held on disk."}),
		xaPending:      prometheus.NewGauge(prometheus.GaugeOpts{Name: "outbox_relay_xa_pending", Help: "Prepared XA branches that wait for their end."}),
		gap:            prometheus.NewGauge(prometheus.GaugeOpts{Name: "outbox_relay_gap_transactions", Help: "Transactions that the source had purged unread when it was compared last."}),
		diverged:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "outbox_relay_diverged_transactions", Help: "Transactions read before that the source lacked when it was compared last."}),
		givenUp:        prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outbox_relay_given_up_transactions_total", Help: "Transactions given up by on_divergence: continue (published, and lost by the source) or on_gap: skip (purged unread)."}, []string{"policy"}),
		statementsSeen: prometheus.NewCounter(prometheus.CounterOpts{Name: "outbox_relay_ignored_statement_writes_total", Help: "Statement-format changes that may touch a watched database and were passed by, by on_statement_write."}),
		unknownXA:      prometheus.NewCounter(prometheus.CounterOpts{Name: "outbox_relay_skipped_xa_commits_total", Help: "XA commits of branches never seen that were passed by, by on_unknown_xa."}),
	}
	oldestAge := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "outbox_relay_xa_oldest_age_seconds", Help: "How long the oldest prepared XA branch waits for its end; 0 without one."}, func() float64 {
		oldest := m.xaOldest.Load()
		if oldest == 0 {
			return 0
		}
		return max(time.Since(time.UnixMicro(oldest)).Seconds(), 0)
	})
	if reg != nil {
		reg.MustRegister(m.readBytes, m.transactions, m.ignored, m.connects, m.connected, m.spooled, m.xaPending, oldestAge, m.gap, m.diverged, m.givenUp, m.statementsSeen, m.unknownXA)
	}
	return m
}
