package binlog_test

import (
	"testing"
	"time"

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

func TestMetricsOfPreparedBranches(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	b := newBench(t, sandbox.RunMySQL(t, sandbox.MySQLOptions{}), func(o *binlog.Options) { o.Registerer = reg })
	const pending, age = "outbox_relay_xa_pending", "outbox_relay_xa_oldest_age_seconds"
	prepare := func(name string) {
		b.exec("XA START '"+name+"'", "INSERT INTO o(aggregate_id) VALUES ('"+name+"')", "XA END '"+name+"'", "XA PREPARE '"+name+"'")
	}
	prepare(b.name + "1")
	time.Sleep(1100 * time.Millisecond) // so that the two ages differ
	prepare(b.name + "2")
	b.exec("INSERT INTO o(aggregate_id) VALUES ('mark')")
	b.rows(1)
	old := gaugeValue(t, reg, age)
	if n := gaugeValue(t, reg, pending); n != 2 || old < 1.1 || old > 60 {
		t.Errorf("%v branches, the oldest %v s", n, old)
	}
	b.exec("XA COMMIT '" + b.name + "1'")
	b.rows(1)
	if n, young := gaugeValue(t, reg, pending), gaugeValue(t, reg, age); n != 1 || young <= 0 || young >= old {
		t.Errorf("%v branches, the oldest %v s", n, young)
	}
	b.exec("XA ROLLBACK '"+b.name+"2'", "INSERT INTO o(aggregate_id) VALUES ('end')")
	b.rows(1)
	if n, old := gaugeValue(t, reg, pending), gaugeValue(t, reg, age); n != 0 || old != 0 {
		t.Errorf("%v branches, the oldest %v s", n, old)
	}
}
