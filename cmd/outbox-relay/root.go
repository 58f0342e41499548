package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"outbox-relay/config"
)

// version and commit are set by the linker.
var (
	version = "dev"
	commit  = ""
)

// app holds what all subcommands share.
type app struct {
	out, err io.Writer
	file     string
	sets     []string
}

// execute runs the command line and returns the exit code and the error to be printed.
func execute(args []string, out, errOut io.Writer) (int, error) {
	a := &app{out: out, err: errOut}
	root := a.rootCommand()
	root.SetArgs(args)
	err := root.Execute()
	if errors.Is(err, errReported) {
		return exitFailure, nil
	}
	return exitCode(err), err
}

// rootCommand is the command with all subcommands.
func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "outbox-relay",
		Short: "Publish the rows of MySQL outbox tables to Kafka, in order and without loss",
		Long: `outbox-relay reads the MySQL binlog as a replica, takes the INSERTs into outbox tables,
publishes each row to Kafka keyed by its aggregate id, and stores GTID checkpoints,
so that after any crash it goes on with nothing lost.

Start with:  outbox-relay config example > outbox-relay.yaml
then:        outbox-relay check && outbox-relay run`,
		SilenceErrors: true, SilenceUsage: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q", args[0])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentFlags().StringVar(&a.file, "config", "", "configuration file (default ./outbox-relay.yaml, then /etc/outbox-relay/outbox-relay.yaml)")
	root.PersistentFlags().StringArrayVar(&a.sets, "set", nil, "set one key, as in --set kafka.linger=5ms; may be repeated")
	root.AddCommand(a.runCommand(), a.checkCommand(), a.statusCommand(), a.pauseCommand(), a.resumeCommand(), a.checkpointCommand(), a.deadLetterCommand(), a.configCommand(), a.versionCommand())
	teach(root)
	a.complete(root)
	return root
}

// noArgs refuses arguments.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no argument, got %q", c.CommandPath(), args[0])}
	}
	return nil
}

func (a *app) load() (*config.Config, error) { return a.loadChecked(ruleFaults) }

func (a *app) loadChecked(check func(*config.Config) []config.Fault) (*config.Config, error) {
	return config.Load(config.Options{File: a.file, Env: os.Environ(), Sets: a.sets, Check: check})
}

func (a *app) configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Show the effective configuration, or an example", Args: noArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	c.AddCommand(
		&cobra.Command{
			Use: "print", Short: "Print the effective configuration with secrets masked", Args: noArgs,
			RunE: func(*cobra.Command, []string) error {
				cfg, err := a.load()
				if err != nil {
					return err
				}
				_, err = a.out.Write(config.Print(cfg))
				return err
			},
		},
		&cobra.Command{
			Use: "example", Short: "Print a commented example", Args: noArgs,
			RunE: func(*cobra.Command, []string) error {
				_, err := a.out.Write(config.Example())
				return err
			},
		},
		a.grantsCommand(),
		a.fromDebeziumCommand(),
	)
	return c
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print version, commit and Go version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			v, c := buildVersion()
			_, err := fmt.Fprintf(a.out, "outbox-relay %s, commit %s, %s\n", v, c, runtime.Version())
			return err
		},
	}
}

// buildVersion gives what the linker set, else what the Go tool recorded.
func buildVersion() (v, c string) {
	v, c = version, commit
	if c == "" {
		c = "unknown"
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, s := range info.Settings {
				if s.Key == "vcs.revision" {
					c = s.Value
				}
			}
		}
	}
	return v, c
}
