package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// errMissed says that a target was not met. The report is out already.
var errMissed = errors.New("a target was missed")

// global are the flags in front of the command.
type global struct {
	quick  bool   // fewer rounds and rows
	out    string // file for the figures, "" for none
	broker *broker
}

// rounds is so many, or one in a quick run.
func (g global) rounds(n int) int {
	if g.quick {
		return 1
	}
	return n
}

// parts is what amounts are divided by.
func (g global) parts() int {
	if g.quick {
		return 3
	}
	return 1
}

// choose is the first of both, or the second in a quick run.
func (g global) choose(full, quick time.Duration) time.Duration {
	if g.quick {
		return quick
	}
	return full
}

// bench is one command that measures.
type bench struct {
	name string
	run  func(ctx context.Context, g global, args []string) ([]*table, error)
}

// benches are all of them, in the order in which `all` runs them. A name with arguments is one of its family.
func benches() []bench {
	return []bench{
		{"drain", drainCommand}, {"latency", latencyCommand}, {"idle", idleCommand}, {"memory", memoryCommand}, {"skip", skipCommand}, {"decode", decodeCommand}, {"exactly-once", exactlyOnceCommand},
	}
}

// The other commands: serve keeps servers, and those behind it are the child processes that the benchmarks start and measure.
var commands = map[string]func(ctx context.Context, args []string, out io.Writer) error{
	"serve": serveCommand, "baseline": baselineCommand, "read": readCommand, "produce": produceCommand, "docs": docsCommand,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := dispatch(ctx, os.Args[1:], os.Stdout); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(64)
		}
		fmt.Fprintln(os.Stderr, "bench: "+err.Error())
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string, out io.Writer) error {
	g := global{broker: &broker{}}
	defer g.broker.Close()
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.BoolVar(&g.quick, "quick", false, "fewer rounds and rows: a look, not a measurement")
	flags.StringVar(&g.out, "out", "", "file for the figures as JSON")
	if err := flags.Parse(args); err != nil {
		return err
	}
	args = flags.Args()
	if len(args) > 0 {
		if run := commands[args[0]]; run != nil {
			return run(ctx, args[1:], out)
		}
		if s := suiteOf(args[0], args[1:], g.quick); s != nil {
			return s.run(ctx, g, out)
		}
	}
	return errors.New("usage: bench [-quick] [-out FILE] all|drain|latency|idle|memory|skip|decode|exactly-once [flags], one workload as in drain-mixed or latency-500, " +
		"serve or docs; -h after a command lists its flags")
}
