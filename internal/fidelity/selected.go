package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
	"outbox-relay/binlog/jsonb"
	"outbox-relay/binlog/value"
	"outbox-relay/checkpoint"
	"outbox-relay/internal/sandbox"
	"outbox-relay/snapshot"
)

// rowBag counts rows by their contents.
type rowBag map[string]int

// selected compares what package snapshot reads of the tables of a round with what the binlog says of the same rows: they are copied into new tables, row by row
// with the same values. Rows have to be equal byte for byte; JSON, of which a SELECT gives the text alone, in both texts that are made of it.
func selected(ctx context.Context, m *sandbox.MySQL, c *connection, database string, out *report) error {
	from, err := position(c)
	if err != nil {
		return err
	}
	names, err := c.query("SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_type = 'BASE TABLE' AND table_name <> 'done'")
	if err != nil {
		return err
	}
	var tables []string
	for _, n := range names {
		tables = append(tables, *n[0])
		columns, err := c.query("SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = '" + *n[0] + "' AND extra NOT LIKE '%GENERATED%'")
		if err != nil {
			return err
		}
		var list []string
		for _, col := range columns {
			list = append(list, quote(*col[0]))
		}
		all := strings.Join(list, ", ")
		// STRICT_TRANS_TABLES would refuse dates and texts that came in without it.
		if err := c.exec("SET SESSION sql_generate_invisible_primary_key = 0, sql_mode = 'ALLOW_INVALID_DATES'", "CREATE TABLE copy_"+*n[0]+" LIKE "+*n[0],
			fmt.Sprintf("INSERT IGNORE INTO copy_%s (%s) SELECT %s FROM %s", *n[0], all, all, *n[0]), "SET SESSION sql_mode = ''"); err != nil {
			return fmt.Errorf("copying table %s: %w", *n[0], err)
		}
	}
	if err := c.exec("INSERT INTO done VALUES (2)"); err != nil {
		return err
	}
	logged, err := loggedRows(ctx, m, database, tables, from)
	if err != nil {
		return err
	}
	for _, name := range tables {
		got, skipped, err := selectedRows(ctx, m, binlog.TableName{Schema: database, Name: "copy_" + name}, from, 1+len(name)*37%50)
		if err != nil {
			return fmt.Errorf("selecting the rows of %s: %w", name, err)
		}
		if skipped {
			out.keyless++
			continue
		}
		want := logged["copy_"+name]
		for row, n := range got {
			out.selected += n
			if want[row] != n {
				out.differ(database+name, fmt.Sprintf("table %s of %s: %d times selected, %d times in the binlog:\n  %.3000s\n  nearest: %.3000s", name, database, n, want[row], strconv.QuoteToASCII(row), strconv.QuoteToASCII(nearest(row, want, got))))
			}
		}
		for row, n := range want {
			if got[row] == 0 {
				out.differ(database+name, fmt.Sprintf("table %s of %s: %d times in the binlog and never selected:\n  %.3000s", name, database, n, strconv.QuoteToASCII(row)))
			}
		}
	}
	return nil
}

// nearest is a row of the binlog that was not selected and begins like one that was.
func nearest(row string, want, got rowBag) (best string) {
	most := -1
	for other := range want {
		if got[other] > 0 {
			continue
		}
		n := 0
		for n < min(len(row), len(other)) && row[n] == other[n] {
			n++
		}
		if n > most {
			best, most = other, n
		}
	}
	return best
}

// contents is what counts of a row.
func contents(t *event.Table, cells []event.Cell) (string, error) {
	var b []byte
	for i := range cells {
		col := &t.Columns[i]
		b = append(b, col.Name...)
		switch cells[i].State {
		case event.CellNull:
			b = append(b, "=NULL "...)
			continue
		case event.CellValue:
		default:
			return "", fmt.Errorf("column %s has no value", col.Name)
		}
		raw := cells[i].Raw
		if col.Type != event.ColumnJSON {
			b = append(strconv.AppendInt(append(b, '='), int64(len(raw)), 10), ':')
			b = append(append(b, raw...), ' ')
			continue
		}
		b = append(b, '=')
		var err error
		if b, err = value.Append(b, col, raw); err != nil {
			return "", err
		}
		if b, err = jsonb.AppendDebezium(append(b, ' '), raw); err != nil {
			return "", err
		}
		b = append(b, ' ')
	}
	return string(b), nil
}

func loggedRows(ctx context.Context, m *sandbox.MySQL, database string, tables []string, from *gtid.Set) (_ map[string]rowBag, err error) {
	spool, err := os.MkdirTemp("", "outbox-relay-fidelity-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(spool)) }()
	watched := []binlog.TableName{{Schema: database, Name: "done"}}
	bags := map[string]rowBag{}
	for _, t := range tables {
		watched = append(watched, binlog.TableName{Schema: database, Name: "copy_" + t})
		bags["copy_"+t] = rowBag{}
	}
	reader, err := binlog.New(binlog.Options{
		Name: "fidelity", Addresses: []string{m.Addr()}, Tables: watched, Start: from, Heartbeat: time.Second, Login: login(),
		Memory: 1 << 20, RowLimit: 64 << 20, SpoolDir: spool, SpoolLimit: 1 << 30,
	})
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	for {
		tx, err := reader.Next(ctx)
		if err != nil {
			return nil, fmt.Errorf("reading the binlog: %w", err)
		}
		var row binlog.Row
		for {
			ok, err := tx.NextRow(&row)
			if err != nil {
				return nil, fmt.Errorf("reading rows: %w", err)
			}
			if !ok {
				break
			}
			if row.Table.Name == "done" {
				return bags, nil
			}
			text, err := contents(row.Table, row.Cells)
			if err != nil {
				return nil, err
			}
			bags[row.Table.Name][text]++
		}
	}
}

func login() binlog.Login {
	return binlog.Login{User: "relay", Password: func(context.Context) (string, error) { return "relay", nil }}
}

// selectedRows reads a table in chunks of a size, beginning again behind the stored progress now and then.
func selectedRows(ctx context.Context, m *sandbox.MySQL, name binlog.TableName, at *gtid.Set, chunk int) (bag rowBag, keyless bool, err error) {
	bag = rowBag{}
	progress := checkpoint.NewSnapshot([]string{name.String()}, time.Now())
	open := func() (*snapshot.Reader, error) {
		stored, err := checkpoint.Marshal(&checkpoint.Checkpoint{Name: "fidelity", GTIDSet: at, Snapshot: progress})
		if err != nil {
			return nil, err
		}
		c, err := checkpoint.Unmarshal(stored, "fidelity")
		if err != nil {
			return nil, err
		}
		return snapshot.New(snapshot.Options{
			Login: login(), Addresses: []string{m.Addr()}, Tables: []snapshot.Table{{Name: name, Chunk: chunk, JSONTypes: true}}, Progress: c.Snapshot, Position: at, RowLimit: 64 << 20,
		})
	}
	var r *snapshot.Reader
	for steps := 0; progress.Reading(); steps++ {
		if steps%3 == 0 {
			if r != nil {
				r.Close()
			}
			if r, err = open(); err != nil {
				return nil, false, err
			}
		}
		step, err := r.Next(ctx)
		var source *binlog.SourceError
		if errors.As(err, &source) && strings.Contains(source.Detail, "no primary key") {
			return nil, true, r.Close()
		}
		if err != nil {
			return nil, false, err
		}
		var row binlog.Row
		for {
			ok, err := step.NextRow(&row)
			if err != nil {
				return nil, false, err
			}
			if !ok {
				break
			}
			if i := slices.IndexFunc(row.Cells, func(c event.Cell) bool { return c.State == event.CellDropped }); i >= 0 {
				return nil, false, fmt.Errorf("column %s was dropped", row.Table.Columns[i].Name)
			}
			text, err := contents(row.Table, row.Cells)
			if err != nil {
				return nil, false, err
			}
			bag[text]++
		}
		progress = step.Progress()
	}
	return bag, false, r.Close()
}
