package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sync/errgroup"
)

// wantSkip is the rate of the relay's reader over foreign rows, against counting packets.
const wantSkip = 0.9

// readRun is one run of one way to read.
type readRun struct {
	usage
	Seconds float64 // from the connection on
}

// skipStream is one stream of foreign rows.
type skipStream struct {
	short, name  string
	transactions int
	write        func(ctx context.Context, s *servers, transactions int) error
}

var skipStreams = []skipStream{
	{"single", "single-row transactions", 400_000, writeSingles},
	{"bulk", "transactions of 1000 rows", 2_000, writeBulk},
}

func skipCommand(ctx context.Context, g global, args []string) ([]*table, error) {
	flags := flag.NewFlagSet("skip", flag.ContinueOnError)
	rounds := flags.Int("rounds", max(g.rounds(7), 3), "runs of each reader, after a first one that does not count")
	profiles := flags.String("cpuprofile", "", "folder for CPU profiles of the readers, one per run")
	part := flags.Float64("part", 1/float64(g.parts()), "part of the rows to write, for a quick look")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	s, err := startServers(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	db, err := s.open()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if err := createTables(ctx, db); err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, singlesProcedure); err != nil {
		return nil, err
	}
	b := skipBench{servers: s}
	if *profiles != "" {
		if b.profiles, err = filepath.Abs(*profiles); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(b.profiles, 0o755); err != nil {
			return nil, err
		}
	}
	var tables []*table
	for _, stream := range skipStreams {
		stream.transactions = max(writers, int(float64(stream.transactions)**part)/writers*writers)
		if s.Start, err = executed(ctx, db); err != nil {
			return nil, err
		}
		say(fmt.Sprintf("writing %d %s", stream.transactions, stream.name))
		if err := stream.write(ctx, s, stream.transactions); err != nil {
			return nil, err
		}
		results, err := b.readAll(ctx, stream, *rounds)
		if err != nil {
			return nil, err
		}
		tables = append(tables, skipTable(stream, results))
	}
	return tables, nil
}

// singlesProcedure commits single rows on the server, which saves a round trip for each.
const singlesProcedure = `CREATE PROCEDURE ` + database + `.singles(n INT)
BEGIN
  WHILE n > 0 DO
    INSERT INTO ` + database + `.orders (customer_id, state, total, note) VALUES (n, 'created', n, 'ring twice');
    SET n = n - 1;
  END WHILE;
END`

func writeSingles(ctx context.Context, s *servers, transactions int) error {
	db, err := s.open()
	if err != nil {
		return err
	}
	defer db.Close()
	group, ctx := errgroup.WithContext(ctx)
	for range writers {
		group.Go(func() error { // ends with its rows
			_, err := db.ExecContext(ctx, fmt.Sprintf("CALL %s.singles(%d)", database, transactions/writers))
			return err
		})
	}
	return group.Wait()
}

// writeBulk commits transactions of a thousand rows each.
func writeBulk(ctx context.Context, s *servers, transactions int) error {
	w := workload{Rows: 0, Foreign: 1000}
	db, err := s.open()
	if err != nil {
		return err
	}
	defer db.Close()
	group, ctx := errgroup.WithContext(ctx)
	for range writers {
		group.Go(func() error { // ends with its transactions
			for n := range transactions / writers {
				if _, err := db.ExecContext(ctx, w.foreignInsert(n)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

var readers = []string{"count", "crc", "reader"}

// skipBench reads the streams of its servers.
type skipBench struct {
	*servers
	profiles string // folder for profiles; empty for none
}

// readAll lets the readers read the stream in turn, after a first run that only fills the page cache.
func (b skipBench) readAll(ctx context.Context, stream skipStream, rounds int) (map[string][]readRun, error) {
	results := map[string][]readRun{}
	for round := 0; round <= rounds; round++ {
		for _, how := range readers {
			r, err := b.readOnce(ctx, stream, how, round)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				results[how] = append(results[how], r)
			}
		}
	}
	return results, nil
}

func (b skipBench) readOnce(ctx context.Context, stream skipStream, how string, round int) (r readRun, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	args := []string{"read", "-how", how, "-mysql", b.MySQL, "-start", b.Start, "-transactions", strconv.Itoa(stream.transactions), "-dir", b.dir}
	if b.profiles != "" {
		args = append(args, "-cpuprofile", filepath.Join(b.profiles, fmt.Sprintf("%s-%d-%d.pprof", how, stream.transactions, round)))
	}
	c, err := startPrinting(ctx, how, b.Pids, self, args...)
	if err != nil {
		return r, err
	}
	if r.usage, err = c.wait(); err != nil {
		return r, err
	}
	r.Seconds, err = c.seconds()
	return r, err
}

// Runs are short, and all that disturbs one makes it longer: so the best of them counts, not the median.
func skipTable(stream skipStream, results map[string][]readRun) *table {
	t := &table{Name: "skip-" + stream.short, Contestants: []string{"reader", "count", "crc"}}
	t.About = fmt.Sprintf("skipping %d %s of a foreign table by the relay's reader, by counting packets, and by counting with checksums; best of %d runs", stream.transactions, stream.name, len(results["count"]))
	best := func(figure func(readRun) float64) func(string) []float64 {
		return func(c string) []float64 { return []float64{slices.Min(figures(results[c], figure))} }
	}
	n := float64(stream.transactions)
	t.add("ns per transaction", 0, best(func(r readRun) float64 { return r.Seconds / n * 1e9 }))
	t.add("ns CPU per transaction", 0, best(func(r readRun) float64 { return r.CPU.Seconds() / n * 1e9 }))
	t.judge("ns per transaction", t.ratio("ns per transaction", "count", 1/wantSkip, true))
	return t
}
