package binlog_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
)

// gaugeValue gives the value of a gauge without labels.
func gaugeValue(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.Metric[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

func TestMetricsCountWhatTheServerLacks(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.SharedMySQL(t), nil)
	set := b.executed()
	set.AddRange(gtid.Range{UUID: gtid.UUID{7}, First: 5, Last: 9})
	reg := prometheus.NewRegistry()
	b.open(set, func(o *binlog.Options) { o.Registerer = reg })
	wantReason(t, <-next(b.ctx, b.reader), binlog.ReasonDiverged)
	if got := gaugeValue(t, reg, "outbox_relay_diverged_transactions"); got != 5 {
		t.Errorf("%v transactions diverged, want 5", got)
	}
	if got := gaugeValue(t, reg, "outbox_relay_gap_transactions"); got != 0 {
		t.Errorf("a gap of %v, want none", got)
	}
}

func TestMetricsCountWhatTheServerHasPurged(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	b := newBench(t, m, nil)
	start := b.executed()
	b.exec("INSERT INTO o(aggregate_id) VALUES ('1')", "INSERT INTO o(aggregate_id) VALUES ('2')", "FLUSH BINARY LOGS", "PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY")
	reg := prometheus.NewRegistry()
	b.open(start, func(o *binlog.Options) { o.Registerer = reg })
	wantReason(t, <-next(b.ctx, b.reader), binlog.ReasonPurged)
	if got := gaugeValue(t, reg, "outbox_relay_gap_transactions"); got != 2 {
		t.Errorf("a gap of %v, want 2", got)
	}
}
