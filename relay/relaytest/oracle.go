package relaytest

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
)

// OutboxQuery says how [ReadOutbox] reads a table that is relayed by the preset outbox.
type OutboxQuery struct {
	// Table as SQL names it: `app.outbox_events`, in backquotes where needed.
	Table string
	// Order is the SQL of the ORDER BY. It has to give the rows of each key in their commit order. An AUTO_INCREMENT id does that only when
	// the transactions of a key do not overlap. Empty means id.
	Order string
	// Where is the SQL of a condition. Empty means all rows.
	Where string
	// TopicPrefix stands before aggregate_type in the topic. Empty means "outbox.event.".
	TopicPrefix string
	// Headers are columns that follow the preset's headers, each under its own name.
	Headers []string
}

// ReadOutbox tells v of all rows of the table, as SELECT prints them: the oracle of the preset outbox, with idempotency_key as a header
// where the table has that column. It reads row by row and holds none. It gives the number of rows.
//
// The pool's connections have to use utf8mb4, which is the driver's default.
func ReadOutbox(ctx context.Context, db *sql.DB, q OutboxQuery, v *Validator) (rows int, err error) {
	headers, err := q.headers(ctx, db)
	if err != nil {
		return 0, fmt.Errorf("reading the columns of %s: %w", q.Table, err)
	}
	columns := append([]string{"aggregate_type", "aggregate_id", "payload"}, headers...)
	for i := range columns {
		columns[i] = quoteName(columns[i])
	}
	statement := "SELECT " + strings.Join(columns, ", ") + " FROM " + q.Table
	if q.Where != "" {
		statement += " WHERE " + q.Where
	}
	statement += " ORDER BY " + firstOf(q.Order, "id")

	// One connection, for the time zone that the relay's texts are in.
	conn, err := db.Conn(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", q.Table, err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "SET time_zone = '+00:00'"); err != nil {
		return 0, fmt.Errorf("reading %s: %w", q.Table, err)
	}
	found, err := conn.QueryContext(ctx, statement)
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", q.Table, err)
	}
	defer found.Close()

	cells := make([]sql.RawBytes, len(columns))
	targets := make([]any, len(columns))
	for i := range cells {
		targets[i] = &cells[i]
	}
	row := Row{Headers: make([]Header, len(headers))}
	for found.Next() {
		if err := found.Scan(targets...); err != nil {
			return rows, fmt.Errorf("reading row %d of %s: %w", rows+1, q.Table, err)
		}
		row.Topic = firstOf(q.TopicPrefix, "outbox.event.") + string(cells[0])
		row.Key, row.Value = cells[1], cells[2]
		for i, name := range headers {
			row.Headers[i] = Header{Key: name, Value: cells[3+i]}
		}
		row.ID = row.Headers[0].Value
		v.Committed(row)
		rows++
	}
	if err := found.Err(); err != nil {
		return rows, fmt.Errorf("reading %s: %w", q.Table, err)
	}
	return rows, nil
}

// headers gives the columns that become headers, the id first.
func (q OutboxQuery) headers(ctx context.Context, db *sql.DB) ([]string, error) {
	found, err := db.QueryContext(ctx, "SELECT * FROM "+q.Table+" LIMIT 0")
	if err != nil {
		return nil, err
	}
	defer found.Close()
	columns, err := found.Columns()
	if err != nil {
		return nil, err
	}
	headers := []string{"id", "event_type", "aggregate_type"}
	if slices.Contains(columns, "idempotency_key") {
		headers = append(headers, "idempotency_key")
	}
	return append(headers, q.Headers...), found.Err()
}

func quoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}
