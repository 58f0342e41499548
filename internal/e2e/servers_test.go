package e2e_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// These tests are the lines of the crash table in which a server dies. The relay lives on, so no row may come twice.

func TestMySQLDiesBetweenRowsOfATransaction(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	proxy := sandbox.RunProxy(t, m.Addr())
	s := site(t, e2e.SiteOptions{MySQL: m, Source: proxy.Addr(), SaveInterval: 100 * time.Millisecond})
	r := start(t, s, e2e.RelayOptions{})
	waitActive(t, r)

	// T has about 3 MB: the stream ends in the middle of it, and nothing can be read again before the server has died.
	proxy.Refuse(true)
	cut := proxy.CutAfter(1_000_000)
	insertBulk(t, s, 5000)
	select {
	case <-cut:
	case <-testContext(t).Done():
		t.Fatal("the relay did not read the transaction")
	}
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if counts, _ := deliveries(t, s); len(counts) > 0 {
		t.Errorf("rows of %d keys were published of a transaction that was not read to its end", len(counts))
	}
	if err := m.Start(testContext(t)); err != nil {
		t.Fatal(err)
	}
	proxy.Refuse(false)
	waitMarked(t, s, r)
	stop(t, r)
	if report := judge(t, s, relaytest.Options{}); report.Received != 5001 || report.Duplicates != 0 {
		t.Error(report)
	}
}

// insertBulk writes one transaction of about 600 bytes per row.
func insertBulk(t *testing.T, s *e2e.Site, rows int) {
	t.Helper()
	var b strings.Builder
	b.WriteString("INSERT INTO orders_outbox (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ")
	padding := strings.Repeat("x", 500)
	for i := range rows {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `('order', 'bulk-%d', 'Bulk', '{"n": %d, "padding": "%s"}', UUID())`, i%20, i, padding)
	}
	if _, err := s.DB.ExecContext(testContext(t), b.String()); err != nil {
		t.Fatal(err)
	}
}

func TestKafkaDiesWithBatchesInFlight(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Proxied: true})
	s := site(t, e2e.SiteOptions{Kafka: k, SaveInterval: 100 * time.Millisecond})
	r := start(t, s, e2e.RelayOptions{})
	waitMarked(t, s, r) // all connections stand, a partition is known

	var rows []e2e.Row
	for i := range 60 {
		rows = append(rows, e2e.Row{Kind: []string{"order", "payment", "shipment"}[i%3], Key: fmt.Sprint("key-", i%7)})
	}
	inFlight := func(n int) func(relay.Status) bool {
		return func(s relay.Status) bool { return s.Sink.InFlightRecords >= n }
	}

	// The broker never saw the batches.
	broker := k.Broker(1)
	if err := broker.Pause(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		insert(t, s, rows...)
	}
	waitStatus(t, r, "300 records are in flight", inFlight(300))
	if err := broker.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := broker.Start(testContext(t)); err != nil {
		t.Fatal(err)
	}
	waitMarked(t, s, r)

	// The broker has appended the batches and its answers are lost.
	cut := broker.Proxy().CutAfter(1)
	for range 5 {
		insert(t, s, rows...)
	}
	select {
	case <-cut:
	case <-testContext(t).Done():
		t.Fatal("no answer passed the proxy")
	}
	waitMarked(t, s, r)
	stop(t, r)
	if report := judge(t, s, relaytest.Options{}); report.Received != 603 || report.Duplicates != 0 {
		t.Error(report)
	}
}

// An XA branch is prepared, read, passed by a checkpoint and by restarts of the relay and of MySQL, and then committed or rolled back.
func TestXAPreparedRestartedAndCommitted(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	s := site(t, e2e.SiteOptions{MySQL: m, SaveInterval: 100 * time.Millisecond})
	r := start(t, s, e2e.RelayOptions{})
	for _, branch := range []string{"commits", "rolls-back", "restarts"} {
		prepare(t, s.DB, branch)
	}
	waitBehindXA(t, s, r, 1)
	r.Kill()
	r = start(t, s, e2e.RelayOptions{})
	waitBehindXA(t, s, r, 2)
	counts, _ := deliveries(t, s)
	for _, key := range []string{"commits", "rolls-back", "restarts"} {
		if counts[key] != 0 {
			t.Errorf("a row of the prepared branch %s was published", key)
		}
	}
	endXA(t, s.DB, "XA COMMIT 'commits'")
	endXA(t, s.DB, "XA ROLLBACK 'rolls-back'")
	waitBehindXA(t, s, r, 3)

	// Now with a restart of both between PREPARE and COMMIT.
	if err := m.Restart(testContext(t)); err != nil {
		t.Fatal(err)
	}
	r.Kill()
	r = start(t, s, e2e.RelayOptions{})
	waitBehindXA(t, s, r, 4)
	endXA(t, s.DB, "XA COMMIT 'restarts'")
	waitMarked(t, s, r)
	stop(t, r)

	counts, _ = deliveries(t, s)
	if counts["commits"] == 0 || counts["restarts"] == 0 || counts["rolls-back"] != 0 {
		t.Errorf("received by key: %v", counts)
	}
	// A row of the branch has a lower id than those written while it was prepared, but no key is in two of them.
	judge(t, s, relaytest.Options{Restarts: 2})
}

func prepare(t *testing.T, db *sql.DB, branch string) {
	t.Helper()
	conn, err := db.Conn(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{
		"XA START '" + branch + "'",
		e2e.InsertStatement(e2e.Row{Kind: "order", Key: branch}),
		e2e.InsertStatement(e2e.Row{Kind: "shipment", Key: branch}),
		"XA END '" + branch + "'",
		"XA PREPARE '" + branch + "'",
	} {
		if _, err := conn.ExecContext(testContext(t), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

func endXA(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.ExecContext(testContext(t), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// waitBehindXA writes a row and waits until it is received: the checkpoint cannot contain all that was executed while a branch is prepared.
func waitBehindXA(t *testing.T, s *e2e.Site, r *e2e.Relay, n int) {
	t.Helper()
	key := fmt.Sprint("behind-", n)
	insert(t, s, e2e.Row{Kind: "payment", Key: key})
	var transaction string
	for ctx := testContext(t); ; {
		if ctx.Err() != nil || !r.Running() {
			t.Fatalf("the row %s was not published", key)
		}
		counts, last := deliveriesOf(t, s, key)
		if counts > 0 {
			transaction = last
			break
		}
	}
	waitStored(t, r, transaction)
}
