package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// memoryRun is one drain by the relay of one huge transaction.
type memoryRun struct {
	name string
	usage
	Rows    int64
	Binlog  int64 // bytes of the transaction in the binlog
	Spooled int64 // bytes of the largest spool file seen
}

func memoryCommand(ctx context.Context, g global, args []string) ([]*table, error) {
	flags := flag.NewFlagSet("memory", flag.ContinueOnError)
	foreign := flags.Int("foreign", 1000/g.parts(), "MB of the transaction on a foreign table")
	outbox := flags.Int("outbox", 1000/g.parts(), "MB of the transaction of outbox rows")
	program := flags.String("relay", "", "the relay's program (default: built from the working tree)")
	var sets list
	flags.Var(&sets, "set", "configuration of the relay, as in -set limits.buffer=8MiB; may be repeated")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	s, err := startServers(ctx, g.broker, "--max-binlog-size=1G", "--max-binlog-cache-size=8G")
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if *program == "" {
		if *program, err = buildRelay(ctx, s.dir, false); err != nil {
			return nil, err
		}
	}
	db, err := s.open()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if err := createTables(ctx, db); err != nil {
		return nil, err
	}
	m := memoryBench{servers: s, db: db, program: *program, sets: sets}
	var runs []memoryRun
	for _, t := range []struct {
		name      string
		write     []string
		spools    bool
		megabytes int
	}{
		{"foreign", []string{hugeForeign(*foreign), workload{Rows: 10, PerTx: 10, JSON: 290}.transaction(0)}, false, *foreign},
		{"outbox", []string{hugeOutbox(*outbox)}, true, *outbox},
	} {
		r, err := m.run(ctx, t.name, t.write)
		if err != nil {
			return nil, fmt.Errorf("a %s transaction of %d MB: %w", t.name, t.megabytes, err)
		}
		if t.spools && r.Spooled < r.Binlog/2 {
			return nil, fmt.Errorf("a transaction of %d bytes left only %d bytes in the spool", r.Binlog, r.Spooled)
		}
		runs = append(runs, r)
	}
	return []*table{memoryTable(runs, m.disk)}, nil
}

// rowBytes is the size of the rows of a huge transaction.
const rowBytes = 4000

// Row numbers come from a recursion; the texts are random, so that compression does not make them small.
const numbers = "WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < %d) SELECT "

func hugeForeign(megabytes int) string {
	rows := megabytes * 1_000_000 / rowBytes
	return "CREATE TABLE " + database + ".documents (id BIGINT PRIMARY KEY, content TEXT NOT NULL);" +
		fmt.Sprintf("SET SESSION cte_max_recursion_depth = %d; INSERT INTO ", rows) + database + ".documents " +
		fmt.Sprintf(numbers, rows) + "n, CONCAT(HEX(RANDOM_BYTES(1000)), HEX(RANDOM_BYTES(1000))) FROM numbers"
}

func hugeOutbox(megabytes int) string {
	rows := megabytes * 1_000_000 / rowBytes
	return fmt.Sprintf("SET SESSION cte_max_recursion_depth = %d; INSERT INTO ", rows) + database +
		".outbox_events (aggregate_type, aggregate_id, event_type, payload, idempotency_key) " + fmt.Sprintf(numbers, rows) +
		"'" + aggregateType + "', n % 5000, 'OrderCreated', JSON_OBJECT('n', n, 'a', HEX(RANDOM_BYTES(950)), 'b', HEX(RANDOM_BYTES(950))), CONCAT('huge-', n) FROM numbers"
}

type memoryBench struct {
	*servers
	db      *sql.DB
	program string
	sets    []string
	disk    int64 // largest size of the data folder
}

// run empties the outbox table without a trace in the binlog, writes, drains with the relay and compares.
func (m *memoryBench) run(ctx context.Context, name string, write []string) (r memoryRun, err error) {
	r.name = name
	if _, err := m.db.ExecContext(ctx, "SET SESSION sql_log_bin = 0; TRUNCATE "+database+".outbox_events; SET SESSION sql_log_bin = 1"); err != nil {
		return r, err
	}
	if m.Start, err = executed(ctx, m.db); err != nil {
		return r, err
	}
	before, err := binlogBytes(m.DataDir)
	if err != nil {
		return r, err
	}
	say("writing a huge transaction: " + name)
	for _, text := range write {
		if _, err := m.db.ExecContext(ctx, text); err != nil {
			return r, err
		}
	}
	after, err := binlogBytes(m.DataDir)
	if err != nil {
		return r, err
	}
	r.Binlog = after - before
	disk, err := folderBytes(m.DataDir)
	if err != nil {
		return r, err
	}
	m.disk = max(m.disk, disk)
	want, err := m.truth(ctx)
	if err != nil {
		return r, err
	}
	r.Rows = want.Rows
	prefix := "memory-" + name + "."
	if err := m.createTopic(prefix+aggregateType, 4); err != nil {
		return r, err
	}
	p, err := theRelay(m.program, "", m.sets).start(ctx, m.servers, prefix)
	if err != nil {
		return r, err
	}
	var watch sync.WaitGroup
	watch.Go(func() { r.Spooled = watchSpool(p) }) // ends with the process
	r.usage, err = p.wait()
	watch.Wait()
	if err != nil {
		return r, err
	}
	say("consuming what was published")
	if err := m.verify(ctx, prefix+aggregateType, want); err != nil {
		return r, err
	}
	return r, m.deleteTopic(prefix + aggregateType)
}

// watchSpool returns the largest size of the unlinked spool files of a process, once that has ended.
func watchSpool(c *child) (largest int64) {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-c.done:
			return largest
		case <-t.C:
			largest = max(largest, spooledBytes(c.cmd.Process.Pid))
		}
	}
}

func spooledBytes(pid int) (sum int64) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0 // it has ended
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		target, err := os.Readlink(path)
		if err != nil || !strings.Contains(target, "outbox-relay-spool") {
			continue
		}
		if info, err := os.Stat(path); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

func binlogBytes(dataDir string) (int64, error) {
	files, err := filepath.Glob(filepath.Join(dataDir, "binlog.[0-9]*"))
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return sum, nil
}

func folderBytes(dir string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err == nil {
			sum += info.Size()
		}
		return nil
	})
	return sum, err
}

// memoryTable has a column for each transaction: all of them are the relay's.
func memoryTable(runs []memoryRun, disk int64) *table {
	t := &table{Name: "memory", About: fmt.Sprintf("one huge transaction each, drained by the relay; MySQL's data folder grew to %.0f MiB; every topic was consumed: each row once", mib(disk))}
	of := func(figure func(memoryRun) float64) func(string) []float64 {
		return func(c string) []float64 {
			return figures(slices.DeleteFunc(slices.Clone(runs), func(r memoryRun) bool { return r.name != c }), figure)
		}
	}
	for _, r := range runs {
		t.Contestants = append(t.Contestants, r.name)
	}
	t.add("MiB in the binlog", 0, of(func(r memoryRun) float64 { return mib(r.Binlog) }))
	t.add("rows published", 0, of(func(r memoryRun) float64 { return float64(r.Rows) }))
	t.add("MiB spooled", 0, of(func(r memoryRun) float64 { return mib(r.Spooled) }))
	t.add("s, start to exit", 1, of(func(r memoryRun) float64 { return r.Wall.Seconds() }))
	t.add(figurePeak, 1, of(func(r memoryRun) float64 { return mib(r.Peak) }))
	for _, c := range t.Contestants {
		one := &table{Contestants: []string{c}, Figures: t.Figures}
		t.judge(c+", "+figurePeak, one.limit(figurePeak, "MiB", wantPeakMiB))
	}
	return t
}
