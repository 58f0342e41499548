package main

import (
	"context"
	"database/sql"
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

//go:embed testdata/outbox-table.sql
var outboxTable string

const foreignTable = `CREATE TABLE orders (
  id          BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  customer_id BIGINT UNSIGNED NOT NULL,
  state       VARCHAR(32)     NOT NULL,
  total       DECIMAL(12,2)   NOT NULL,
  note        VARCHAR(255)    NOT NULL,
  changed_at  DATETIME(6)     NOT NULL DEFAULT CURRENT_TIMESTAMP(6)
) ENGINE=InnoDB`

const (
	database      = "app"
	aggregateType = "order"
	aggregates    = 5000 // different keys
	writers       = 4
)

// workload says what a backlog is made of.
type workload struct {
	Name       string
	Rows       int  // outbox rows
	PerTx      int  // outbox rows of a transaction
	Foreign    int  // foreign rows of a transaction
	JSON       int  // bytes of a payload, about
	OneKey     bool // all rows have the same key, and with it the same partition
	Partitions int  // of the topic
	Compressed bool // transactions are compressed in the binlog
	Long       bool // so many rows that the JVM of Debezium has compiled what it needs long before the end: the relay beside it, at its fastest
}

var workloads = []workload{
	{Name: "mixed", Rows: 300_000, PerTx: 10, Foreign: 10, JSON: 290, Partitions: 4},
	{Name: "single", Rows: 120_000, PerTx: 1, JSON: 290, Partitions: 4},
	{Name: "sparse", Rows: 60_000, PerTx: 1, Foreign: 100, JSON: 290, Partitions: 4},
	{Name: "large", Rows: 20_000, PerTx: 10, JSON: 10_000, Partitions: 4},
	{Name: "small", Rows: 300_000, PerTx: 10, Foreign: 10, JSON: 100, Partitions: 4},
	{Name: "one-key", Rows: 200_000, PerTx: 10, Foreign: 10, JSON: 290, OneKey: true, Partitions: 4},
	{Name: "partitions", Rows: 400_000, PerTx: 10, Foreign: 10, JSON: 290, Partitions: 64},
	{Name: "compressed", Rows: 200_000, PerTx: 10, Foreign: 10, JSON: 290, Partitions: 4, Compressed: true},
	{Name: "mixed-long", Rows: 2_000_000, PerTx: 10, Foreign: 10, JSON: 290, Partitions: 4, Long: true},
	{Name: "large-long", Rows: 80_000, PerTx: 10, JSON: 10_000, Partitions: 4, Long: true},
}

func workloadNamed(name string) (workload, error) {
	for _, w := range workloads {
		if w.Name == name {
			return w, nil
		}
	}
	return workload{}, fmt.Errorf("no workload %q: one of %s", name, workloadNames())
}

func workloadNames() string {
	var names []string
	for _, w := range workloads {
		names = append(names, w.Name)
	}
	return strings.Join(names, ", ")
}

func (w workload) String() string {
	compressed, keys := "", ""
	if w.Compressed {
		compressed = " compressed"
	}
	if w.OneKey {
		keys = " of one key"
	}
	return fmt.Sprintf("%s: %d outbox rows%s of about %d bytes of JSON in %d%s transactions of %d outbox and %d foreign rows, %d partitions",
		w.Name, w.Rows, keys, w.JSON, w.transactions(), compressed, w.PerTx, w.Foreign, w.Partitions)
}

func (w workload) transactions() int { return (w.Rows + w.PerTx - 1) / w.PerTx }

// createTables makes the database anew. The outbox table is the one that the project's users have.
func createTables(ctx context.Context, db *sql.DB) error {
	for _, s := range []string{"DROP DATABASE IF EXISTS " + database, "CREATE DATABASE " + database} {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("running %q: %w", s, err)
		}
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, s := range []string{"USE " + database, outboxTable, foreignTable} {
		if _, err := conn.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("creating the tables: %w", err)
		}
	}
	return nil
}

// write commits the workload with a few connections at once. It blocks until all is committed.
func (w workload) write(ctx context.Context, open func() (*sql.DB, error)) error {
	db, err := open()
	if err != nil {
		return err
	}
	defer db.Close()
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range writers {
		group.Go(func() error { // ends with the last transaction or the first error
			for {
				n := int(next.Add(1)) - 1
				if n >= w.transactions() {
					return nil
				}
				if _, err := db.ExecContext(ctx, w.transaction(n)); err != nil {
					return fmt.Errorf("writing transaction %d: %w", n, err)
				}
			}
		})
	}
	return group.Wait()
}

// transaction gives transaction n as one text of several statements.
func (w workload) transaction(n int) string {
	var b strings.Builder
	if w.Compressed {
		b.WriteString("SET SESSION binlog_transaction_compression = ON;")
	}
	b.WriteString("BEGIN;")
	if w.Foreign > 0 {
		b.WriteString(w.foreignInsert(n) + ";")
	}
	b.WriteString("INSERT INTO " + database + ".outbox_events (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ")
	first := n * w.PerTx
	for i := first; i < min(first+w.PerTx, w.Rows); i++ {
		if i > first {
			b.WriteByte(',')
		}
		key := i * 7919 % aggregates
		if w.OneKey {
			key = 0
		}
		fmt.Fprintf(&b, "('%s',%d,'OrderCreated','", aggregateType, key)
		writeJSON(&b, i, w.JSON)
		fmt.Fprintf(&b, "','order-created-%08d')", i)
	}
	b.WriteString(";COMMIT")
	return b.String()
}

// foreignInsert gives the foreign rows of transaction n as one statement.
func (w workload) foreignInsert(n int) string {
	var b strings.Builder
	b.WriteString("INSERT INTO " + database + ".orders (customer_id, state, total, note) VALUES ")
	for i := range w.Foreign {
		if i > 0 {
			b.WriteByte(',')
		}
		id := n*w.Foreign + i
		fmt.Fprintf(&b, "(%d,'created',%d.%02d,'deliver to the back door, ring twice; reference %d of this customer, kept for the support desk')", id%aggregates, id%900+1, id%100, id)
	}
	return b.String()
}

// writeJSON writes an order of about size bytes (100, or 200 and more), with what such documents have: nested objects, arrays, numbers of all kinds, texts beyond ASCII.
func writeJSON(b *strings.Builder, n, size int) {
	const least = 200 // of the document below
	if size < least {
		fmt.Fprintf(b, `{"orderId": %08d, "state": "created", "total": %d.%02d, "vip": %t, "name": "Zoë", "note": null}`, 10_000_000+n, n%900+100, n%90+10, n%7 == 0)
		return
	}
	start := b.Len()
	fmt.Fprintf(b, `{"orderId": %d, "customer": {"id": %d, "name": "Zoë Müller %d", "vip": %t}, "currency": "EUR", "total": %d.%02d, "discount": null, "note": "line one, line two", "lines": [`,
		n, n*31%100_000, n%1000, n%7 == 0, n%900+1, n%100)
	for i := 0; i == 0 || b.Len()-start < size-60; i++ {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(`{"sku": "A-` + strconv.Itoa((n+i)%10_000) + `", "quantity": ` + strconv.Itoa(n%9+1) + `, "price": ` + strconv.Itoa((n+i)%500) + `.5}`)
	}
	fmt.Fprintf(b, `], "createdAt": "2026-01-%02dT10:%02d:00Z"}`, n%28+1, n%60)
}
