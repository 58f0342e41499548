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

const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 64
	exitInterrupted = 130
)

func main() { os.Exit(run(os.Args[1:], os.Stdout)) }

// run executes the command line and gives the exit code.
func run(args []string, out io.Writer) int {
	d := demo{screen: newScreen(out)}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.StringVar(&d.binary, "relay", "", "the relay's binary (default: it is built)")
	flags.IntVar(&d.rate, "rate", 200, "transactions per second under load")
	flags.DurationVar(&d.load, "load", 5*time.Second, "how long the load lasts before the kill and after the restart")
	flags.DurationVar(&d.dead, "dead", 2*time.Second, "how long the relay is dead")
	flags.BoolVar(&d.stay, "stay", d.screen.terminal && os.Getenv("CI") == "", "keep all running after the account until Ctrl-C")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return exitOK
		}
		return exitUsage
	}
	if flags.NArg() > 0 || d.rate < 1 {
		fmt.Fprintln(os.Stderr, "demo: no arguments are taken, and -rate is at least 1")
		return exitUsage
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once; package sandbox then clears up
	kept, err := d.run(ctx)
	switch {
	case errors.Is(err, context.Canceled):
		d.screen.note("interrupted; everything that was started is stopped")
		return exitInterrupted
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo: "+err.Error())
		return exitFailure
	case !kept:
		return exitFailure
	}
	return exitOK
}
