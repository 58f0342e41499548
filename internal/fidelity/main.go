package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"outbox-relay/internal/sandbox"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(64)
	case err != nil:
		fmt.Fprintln(os.Stderr, "fidelity: "+err.Error())
		os.Exit(1)
	}
}

// serverArgs let MySQL write fast, and put rows of a statement into several events.
var serverArgs = []string{"--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF", "--max-binlog-size=64M", "--binlog-row-event-max-size=2048"}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("fidelity", flag.ContinueOnError)
	rows := flags.Int("rows", 20000, "rows to compare, at least")
	docs := flags.Int("documents", 10000, "random JSON documents to compare after the rows")
	seed := flags.Uint64("seed", 1, "seed of tables and rows")
	only := flags.Int("round", 0, "a single round by its number, as a difference names it")
	version := flags.String("mysql", "", "version of MySQL, such as 8.0 (default: the newest to be had)")
	metadata := flags.String("metadata", "FULL", "binlog_row_metadata of the server; with MINIMAL tables are not altered and lists of members that it cannot show are refused")
	if err := flags.Parse(args); err != nil {
		return flag.ErrHelp
	}
	say := func(s string) { fmt.Fprintln(os.Stderr, "fidelity: "+s) }
	m, err := sandbox.StartMySQL(ctx, sandbox.MySQLOptions{Version: *version, Args: append(serverArgs, "--binlog-row-metadata="+*metadata), Progress: say})
	if err != nil {
		return err
	}
	defer m.Close()
	r, err := compare(ctx, m, options{rows: *rows, documents: *docs, seed: *seed, only: *only, progress: say})
	if err != nil {
		return err
	}
	fmt.Print(r)
	if r.differences > 0 {
		return fmt.Errorf("%d differences", r.differences)
	}
	return nil
}
