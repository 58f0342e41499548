package e2e_test

import (
	"testing"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// Where the binlog does not name columns, an ALTER of the outbox under load, while the relay runs or while it is down, neither stops the relay nor
// shifts a column: keys, values and headers are those that SELECT shows.
func TestAlteringTheOutboxWithoutNamesInTheBinlog(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--binlog-row-metadata=MINIMAL"}})
	s := site(t, e2e.SiteOptions{MySQL: m})
	r := start(t, s, e2e.RelayOptions{})
	waitMarked(t, s, r)
	load, err := s.StartLoad(e2e.Load{Seed: 9, Rate: 100, MaxRows: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer load.Stop()
	alters := []string{
		"ADD x VARCHAR(64) NOT NULL DEFAULT 'x' FIRST",
		"ADD y VARCHAR(64) NOT NULL DEFAULT 'y' AFTER id, ALGORITHM=INSTANT",
		"MODIFY aggregate_type VARCHAR(64) NOT NULL AFTER event_type",
		"RENAME COLUMN x TO z, RENAME COLUMN y TO x",
		"DROP z",
		"CONVERT TO CHARACTER SET gbk",
	}
	for i, alter := range alters {
		if down := i%2 == 0; down {
			r.Kill()
		}
		if _, err := s.DB.ExecContext(testContext(t), "ALTER TABLE orders_outbox "+alter); err != nil {
			t.Fatal(err)
		}
		if !r.Running() {
			r = start(t, s, e2e.RelayOptions{})
		}
		waitMarked(t, s, r)
	}
	stats := load.Stop()
	if stats.Err != nil || stats.Transactions < 50 {
		t.Fatalf("%+v", stats)
	}
	waitMarked(t, s, r)
	waitStatus(t, r, "ready", func(st relay.Status) bool { return st.Ready && st.Halted == "" })
	stop(t, r)
	t.Log(judge(t, s, relaytest.Options{Restarts: len(alters) / 2}))
}
