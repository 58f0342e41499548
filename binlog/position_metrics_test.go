package binlog_test

import (
	"context"
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

func TestTruncatesOfWatchedTablesAreCounted(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	b := newBench(t, sandbox.SharedMySQL(t), func(o *binlog.Options) { o.Registerer = reg })
	b.exec("TRUNCATE o", "truncate table `o`", "TRUNCATE TABLE "+b.name+".o", "TRUNCATE `"+b.name+"`.`o`", "TRUNCATE f", "CREATE TABLE truncate_o (id INT)",
		"INSERT INTO o(aggregate_id) VALUES ('end')")
	b.rows(1)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "outbox_relay_ignored_changes_total" {
			if n := f.GetMetric()[0].GetCounter().GetValue(); len(f.GetMetric()) != 1 || n != 4 {
				t.Errorf("got %v", f.GetMetric())
			}
			return
		}
	}
	t.Error("nothing was counted")
}

func TestDistanceCountsTheBinlogsBeforeAPosition(t *testing.T) {
	t.Parallel()
	b := newBench(t, sandbox.RunMySQL(t, sandbox.MySQLOptions{}), nil)
	b.exec("INSERT INTO o(aggregate_id) VALUES ('k')", "FLUSH BINARY LOGS", "INSERT INTO o(aggregate_id) VALUES ('k')")
	b.rows(2)
	l := binlog.Login{Address: b.mysql.Addr(), User: "relay", Password: func(context.Context) (string, error) { return "relay", nil }}
	_, file, pos := b.reader.Source()
	before, err := binlog.Distance(b.ctx, l, file, pos)
	if err != nil {
		t.Fatal(err)
	}
	b.exec("PURGE BINARY LOGS TO '" + file + "'")
	after, err := binlog.Distance(b.ctx, l, file, pos)
	if err != nil || after.Before != int64(pos) || before.Before <= after.Before || before.Purged || before.Oldest || !after.Purged || after.Oldest || after.Retention != 30*24*time.Hour {
		t.Errorf("%+v before the purge, %+v after it at position %d, %v", before, after, pos, err)
	}
	if _, err := binlog.Distance(b.ctx, l, "no.000001", 4); err == nil {
		t.Error("a file that is not there has a distance")
	}
	b.exec("FLUSH BINARY LOGS", "SET GLOBAL binlog_expire_logs_seconds = 7200")
	if k, err := binlog.Distance(b.ctx, l, file, pos); err != nil || !k.Oldest || k.Retention != 2*time.Hour {
		t.Errorf("behind a rotation: %+v, %v", k, err)
	}
	b.exec("SET GLOBAL binlog_expire_logs_auto_purge = OFF")
	if k, err := binlog.Distance(b.ctx, l, file, pos); err != nil || k.Retention != 0 {
		t.Errorf("without purges by age: %+v, %v", k, err)
	}
	b.exec("REVOKE REPLICATION CLIENT ON *.* FROM relay")
	_, err = binlog.Distance(b.ctx, l, file, pos)
	wantReason(t, err, binlog.ReasonPrivilege, "run GRANT REPLICATION CLIENT ON *.* TO 'relay'@'%'")
}
