package relaytest_test

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/relaytest"
	"outbox-relay/router"
)

//go:embed testdata/outbox.sql
var outboxSQL string

// TestRoutedRowsOfARealServer takes rows of a real server through the reader and the router, and judges the records with the table
// itself: whole, in order, rolled back ones left out, texts as SELECT prints them, positions counted.
func TestRoutedRowsOfARealServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	server := sandbox.SharedMySQL(t)
	database := server.NewDatabase(t)
	db := server.DB(t, database)
	if _, err := db.ExecContext(ctx, outboxSQL); err != nil {
		t.Fatal(err)
	}
	var executed string
	if err := db.QueryRowContext(ctx, "SELECT @@global.gtid_executed").Scan(&executed); err != nil {
		t.Fatal(err)
	}
	start, err := gtid.ParseSet(executed)
	if err != nil {
		t.Fatal(err)
	}
	v := relaytest.NewValidator(relaytest.Options{})
	writeOutbox(t, ctx, db, v)
	rows, err := relaytest.ReadOutbox(ctx, db, relaytest.OutboxQuery{Table: "outbox_events", Headers: []string{"status", "created_at", "locked_until"}}, v)
	if err != nil {
		t.Fatal(err)
	}

	reader, err := binlog.New(binlog.Options{
		Name: t.Name(), Addresses: []string{server.Addr()}, Tables: []binlog.TableName{{Schema: database, Name: "outbox_events"}},
		Login: binlog.Login{User: "relay", Password: func(context.Context) (string, error) { return "relay", nil }},
		Start: start, Heartbeat: time.Second, Memory: 1 << 20, RowLimit: 16 << 20, SpoolDir: t.TempDir(), SpoolLimit: 1 << 30,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	rules, err := router.New(router.Options{Rules: []router.Rule{{Table: database + ".outbox_events",
		Headers: []router.HeaderRule{{Name: "status", Value: "{status}"}, {Name: "created_at", Value: "{created_at}"}, {Name: "locked_until", Value: "{locked_until}"}}}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := routeAll(t, ctx, reader, rules, rows, v); got != rows {
		t.Errorf("%d rows were routed, %d are committed", got, rows)
	}
	if err := v.Report().Err(); err != nil {
		t.Error(err)
	}
}

// writeOutbox commits transactions of one to four rows on one connection, so that id gives the commit order; every fifth is rolled back.
func writeOutbox(t *testing.T, ctx context.Context, db *sql.DB, v *relaytest.Validator) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 5))
	payloads := []string{`{"b": 1e2, "a": [1.0, -0.0, 18446744073709551615], "é": "\u0001\"<&>"}`, `null`, `"text"`, `{}`, `[{"deep": [[]]}]`}
	for n := range 150 {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		rollback := n%5 == 4
		for range 1 + random.IntN(4) {
			result, err := tx.ExecContext(ctx, "INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, status, idempotency_key, locked_until)"+
				" VALUES (?, ?, ?, ?, ?, UUID(), ?)", []string{"order", "payment"}[random.IntN(2)], uint64(random.IntN(7))<<61, "Happened", payloads[random.IntN(len(payloads))],
				1+random.IntN(4), []any{nil, "2026-01-02 03:04:05.000006"}[random.IntN(2)])
			if err != nil {
				t.Fatal(err)
			}
			if rollback {
				id, err := result.LastInsertId()
				if err != nil {
					t.Fatal(err)
				}
				v.RolledBack(fmt.Append(nil, id))
			}
		}
		end := tx.Commit
		if rollback {
			end = tx.Rollback
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
}

// routeAll routes rows until the reader has caught up with all of them, and hands them to v as messages of three partitions. It gives their number.
func routeAll(t *testing.T, ctx context.Context, reader *binlog.Reader, rules *router.Router, want int, v *relaytest.Validator) (count int) {
	t.Helper()
	bindings := map[*event.Table]*router.Binding{}
	offsets := map[int32]int64{}
	var row binlog.Row
	var rec router.Record
	for caughtUp := false; count < want || !caughtUp; {
		tx, err := reader.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		caughtUp = tx.CaughtUp
		for tx.HasRows {
			more, err := tx.NextRow(&row)
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				break
			}
			if bindings[row.Table] == nil {
				if bindings[row.Table], err = rules.Bind(row.Table); err != nil {
					t.Fatal(err)
				}
			}
			meta := router.Meta{Position: tx.GTIDText, CommitMicros: tx.CommitMicros}
			if _, err := rules.Route(bindings[row.Table], row.Cells, meta, row.Number, &rec); err != nil {
				t.Fatal(err)
			}
			if age := time.Since(time.UnixMilli(rec.TimestampMillis)); age < 0 || age > 5*time.Minute {
				t.Errorf("row %d has a timestamp of %v ago", count, age)
			}
			hash := fnv.New32a()
			hash.Write(rec.Key)
			m := relaytest.Message{Topic: rec.Topic, Partition: int32(hash.Sum32() % 3), Key: rec.Key, Value: rec.Value}
			for _, h := range rec.Headers {
				m.Headers = append(m.Headers, relaytest.Header{Key: h.Key, Value: h.Value})
			}
			m.Offset = offsets[m.Partition]
			offsets[m.Partition]++
			v.Received(m)
			count++
		}
	}
	return count
}
