package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/relaytest"
)

// The outbox is idle and the server is busy: the checkpoint follows the transactions of others, so that binlogs can be purged.
func TestIdleOutboxOnABusyServer(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0"}})
	s := site(t, e2e.SiteOptions{MySQL: m})
	r := start(t, s, e2e.RelayOptions{})
	waitMarked(t, s, r)

	const foreign, batch = 10_000, 500
	statement := strings.Repeat("INSERT INTO orders (customer, amount) VALUES ('foreign', 1);", batch)
	for range foreign / batch {
		if err := s.ExecMany(testContext(t), statement); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	waitRelayed(t, s, r)
	took := time.Since(begin)
	t.Logf("%d foreign transactions are in the checkpoint %v after the last one", foreign, took)
	if took > 2*time.Second {
		t.Errorf("the checkpoint contains the foreign transactions %v after the last one, want 2 s", took)
	}
	stop(t, r)

	file := checkpointOf(t, r).BinlogFile
	exec := func(statement string) {
		t.Helper()
		if _, err := s.DB.ExecContext(testContext(t), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec("FLUSH BINARY LOGS")
	insert(t, s, three...)
	var last string
	if err := s.DB.QueryRowContext(testContext(t), "SHOW BINARY LOG STATUS").Scan(&last, new(int), new(string), new(string), new(string)); err != nil {
		t.Fatal(err)
	}
	if last == file {
		t.Fatalf("still in %s", file)
	}
	exec(fmt.Sprintf("PURGE BINARY LOGS TO '%s'", last))
	var purged string
	if err := s.DB.QueryRowContext(testContext(t), "SELECT @@global.gtid_purged").Scan(&purged); err != nil || purged == "" {
		t.Fatalf("nothing was purged: %v", err)
	}
	r = start(t, s, e2e.RelayOptions{})
	waitMarked(t, s, r)
	stop(t, r)
	if report := judge(t, s, relaytest.Options{}); report.Duplicates != 0 || report.Committed != 5 {
		t.Error(report)
	}
}
