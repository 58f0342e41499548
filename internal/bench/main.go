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
)

// errMissed says that a target was not met. The report is out already.
var errMissed = errors.New("a target was missed")

// command is one subcommand.
type command struct {
	name string
	run  func(ctx context.Context, args []string, out io.Writer) error
}

// The commands behind the second line are the child processes that the others start and measure.
var commands = []command{
	{"drain", drainCommand}, {"memory", memoryCommand}, {"skip", skipCommand}, {"decode", decodeCommand}, {"exactly-once", exactlyOnceCommand}, {"serve", serveCommand},
	{"baseline", baselineCommand}, {"read", readCommand}, {"produce", produceCommand},
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
	if len(args) > 0 {
		for _, c := range commands {
			if c.name == args[0] {
				return c.run(ctx, args[1:], out)
			}
		}
	}
	return errors.New("usage: bench drain|memory|skip|decode|exactly-once|serve [flags]; -h after a command lists its flags")
}
