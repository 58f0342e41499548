package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
)

const (
	rowsPerTable   = 150
	tablesPerRound = 20
)

// options say how much is compared.
type options struct {
	rows      int // at least, unless only is set
	seed      uint64
	documents int          // JSON documents to compare, after the rows
	only      int          // a single round by its number, from 1 on; 0 means all
	progress  func(string) // may be nil
}

// compare runs rounds until enough rows have been compared. An error is about the run itself; differences are in the report.
func compare(ctx context.Context, m *sandbox.MySQL, o options) (*report, error) {
	started := time.Now()
	c, err := connect(m.RootDSN(""))
	if err != nil {
		return nil, fmt.Errorf("connecting to MySQL: %w", err)
	}
	defer c.Close()
	if err := c.exec("SET NAMES utf8mb4", "SET sql_mode=''"); err != nil {
		return nil, err
	}
	version, err := c.query("SELECT VERSION()")
	if err != nil {
		return nil, err
	}
	out := newReport()
	out.version, out.seed = *version[0][0], o.seed
	metadata, err := c.query("SELECT @@global.binlog_row_metadata")
	if err != nil {
		return nil, err
	}
	out.unnamed = *metadata[0][0] == "MINIMAL"
	p := &palette{vectors: out.version[0] >= '9', fixed: out.unnamed}
	if p.charsets, err = loadCharsets(c, rand.New(rand.NewPCG(o.seed, 0))); err != nil {
		return nil, fmt.Errorf("sampling charsets: %w", err)
	}
	for n := max(o.only, 1); o.rows > 0; n++ {
		if err := round(ctx, m, c, p, out, n); err != nil {
			return nil, fmt.Errorf("seed %d, round %d: %w", o.seed, n, err)
		}
		out.took = time.Since(started)
		if o.progress != nil {
			o.progress(fmt.Sprintf("%d rows, %d differences, %s", out.rows, out.differences, out.took.Round(time.Second)))
		}
		if o.only != 0 || out.rows >= o.rows {
			break
		}
	}
	if o.documents > 0 && o.only == 0 {
		if err := documents(ctx, m, c, o, out); err != nil {
			return nil, err
		}
	}
	out.took = time.Since(started)
	return out, nil
}

// round writes and compares the rows of one set of tables in a database of their own.
func round(ctx context.Context, m *sandbox.MySQL, c *connection, p *palette, out *report, n int) error {
	database := fmt.Sprintf("fidelity_%d", n)
	from, err := position(c)
	if err != nil {
		return fmt.Errorf("GTID set of the server: %w", err)
	}
	if err := c.exec("DROP DATABASE IF EXISTS "+database, "CREATE DATABASE "+database, "USE "+database); err != nil {
		return err
	}
	j := newJudge(fmt.Sprintf("MySQL %s, seed %d, round %d", out.version, out.seed, n), out)
	p.shuffle()
	w := &writer{c: c, r: rand.New(rand.NewPCG(out.seed, uint64(n))), palette: p, judge: j, xa: n << 20}
	for i := range tablesPerRound {
		t, err := createTable(c, p, w.r, fmt.Sprintf("t%02d", i))
		if err != nil {
			return err
		}
		if err := w.fill(ctx, t, rowsPerTable); err != nil {
			return err
		}
		out.tables++
	}
	if err := c.exec("CREATE TABLE done (id INT PRIMARY KEY)", "INSERT INTO done VALUES (1)"); err != nil {
		return err
	}
	if err := j.readAll(ctx, m, database, from); err != nil {
		return err
	}
	j.finish()
	if !out.unnamed {
		if err := selected(ctx, m, c, database, out); err != nil {
			return err
		}
	}
	return c.exec("DROP DATABASE " + database)
}

// readAll reads a round from its start on.
func (j *judge) readAll(ctx context.Context, m *sandbox.MySQL, database string, from *gtid.Set) (err error) {
	spool, err := os.MkdirTemp("", "outbox-relay-fidelity-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(spool)) }()
	tables := []binlog.TableName{{Schema: database, Name: "done"}}
	for name := range j.rows {
		tables = append(tables, binlog.TableName{Schema: database, Name: name})
	}
	reader, err := binlog.New(binlog.Options{
		Name: "fidelity", Addresses: []string{m.Addr()}, Tables: tables, Start: from, Heartbeat: time.Second,
		Login:  login(),
		Memory: 64 << 10, RowLimit: 64 << 20, SpoolDir: spool, SpoolLimit: 1 << 30, // small, so that transactions are spooled too
	})
	if err != nil {
		return err
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	return j.read(ctx, reader, "done")
}
