//go:build unix && !race

package binlog_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/internal/sandbox"
)

// TestForeignEventsCostATwentieth decodes single-row transactions of a table that nobody watches, with go-mysql's parser at its defaults and with
// the reader: the same events, cut out already, and neither compares checksums. It is not parallel, as it counts what the process takes.
func TestForeignEventsCostATwentieth(t *testing.T) {
	// As many events as the reader's buffer holds: they are in the processor's cache, as bytes are that were received a moment ago.
	const factor, transactions = 20, 1000
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	db := m.DB(t, "")
	for _, s := range []string{
		"CREATE DATABASE f", "CREATE TABLE f.orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, customer_id BIGINT, state VARCHAR(20), total DECIMAL(12,2), note VARCHAR(200))",
		`CREATE PROCEDURE f.pairs(n INT) WHILE n > 0 DO
			INSERT INTO f.orders (customer_id, state, total, note) VALUES (n, 'created', n, 'ring twice');
			UPDATE f.orders SET state = 'paid' WHERE id = LAST_INSERT_ID();
			SET n = n - 1;
		END WHILE`,
		"FLUSH BINARY LOGS", fmt.Sprintf("CALL f.pairs(%d)", transactions/2),
	} {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	format, events := transactionsOfRows(t, m.DataDir())
	var theirs, ours []time.Duration
	for range 7 {
		p := replication.NewBinlogParser()
		if _, err := p.Parse(format); err != nil {
			t.Fatal(err)
		}
		took, _ := passes(t, events, func() func([]byte) error {
			return func(ev []byte) error { _, err := p.Parse(ev); return err }
		})
		theirs = append(theirs, took)
		var steps func() int
		took, allocs := passes(t, events, func() func([]byte) error {
			take, count, err := binlog.Events(binlog.TableName{Schema: "f", Name: "outbox"}, binlog.TableName{Schema: "f%", Name: "outbox_%"})
			if err != nil {
				t.Fatal(err)
			}
			steps = count
			return take
		})
		ours = append(ours, took)
		if n := steps(); n != transactions {
			t.Fatalf("%d transactions instead of %d", n, transactions)
		}
		if allocs > float64(len(events))/1000 {
			t.Errorf("%.0f allocations for %d events", allocs, len(events))
		}
	}
	slices.Sort(theirs)
	slices.Sort(ours)
	a, b := theirs[len(theirs)/2], ours[len(ours)/2]
	n := time.Duration(len(events))
	t.Logf("one of %d events: go-mysql %v, relay %.1f ns: %.1f times", n, a/n, float64(b)/float64(n), float64(a)/float64(b))
	if a < factor*b {
		t.Errorf("%d events take %v of processor time, %.1f times less than the %v of go-mysql's parser instead of %d times", n, b, float64(a)/float64(b), a, factor)
	}
}

// passes gives the processor time of one pass over the events, of many, and the allocations of one.
func passes(t *testing.T, events [][]byte, start func() func([]byte) error) (took time.Duration, allocs float64) {
	t.Helper()
	const count = 50
	takers := make([]func([]byte) error, count)
	for i := range takers {
		takers[i] = start()
	}
	runtime.GC() // the garbage of whoever was measured before
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := processorTime(t)
	for _, take := range takers {
		for _, ev := range events {
			if err := take(ev); err != nil {
				t.Fatal(err)
			}
		}
	}
	took = (processorTime(t) - begun) / count
	runtime.ReadMemStats(&after)
	return took, float64(after.Mallocs-before.Mallocs) / count
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		t.Fatal(err)
	}
	return time.Duration(self.Utime.Nano() + self.Stime.Nano())
}

// transactionsOfRows takes the newest binlog file of a server apart: its FORMAT_DESCRIPTION, and the events of its transactions but for DDL.
func transactionsOfRows(t *testing.T, folder string) (format []byte, events [][]byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "binlog.[0-9]*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no binlog in %s: %v", folder, err)
	}
	file, err := os.ReadFile(slices.Max(files))
	if err != nil {
		t.Fatal(err)
	}
	var group [][]byte
	for b := file[4:]; len(b) > 0; {
		ev := b[:binary.LittleEndian.Uint32(b[9:])]
		b = b[len(ev):]
		switch event.Type(ev[4]) {
		case event.TypeFormatDescription:
			format = ev
		case event.TypeGTID:
			group = [][]byte{ev}
		case event.TypeXID:
			events = append(append(events, group...), ev)
		default:
			group = append(group, ev)
		}
	}
	return format, events
}
