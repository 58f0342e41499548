package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
	"outbox-relay/config"
	"outbox-relay/relay"
)

func (a *app) checkpointCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "checkpoint", Short: "Show, set or remove the stored position",
		Long: `The checkpoint is the set of transactions (GTIDs) that need not be read again. It is where checkpoint.store says: in a file, in a table or in a topic.`,
		Args: noArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	var asJSON bool
	var source string
	show := &cobra.Command{
		Use: "show", Short: "Show the stored position", Args: noArgs,
		Long: "Show the stored position. It works whether or not a relay runs; a running one may be up to checkpoint.interval ahead.",
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			return a.showCheckpoints(cfg, source, asJSON)
		},
	}
	show.Flags().BoolVar(&asJSON, "json", false, "print it as JSON")
	var offline bool
	set := &cobra.Command{
		Use: "set GTIDSET", Short: "Set the stored position",
		Long: `Set the stored position: the next run goes on behind the transactions of GTIDSET. What the set gains is never published; what it loses is published (again).
What was remembered of columns is forgotten. It is refused while a relay of this name runs.`,
		Example: "  outbox-relay checkpoint set '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5,7a2b…:1-9'",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("checkpoint set takes one GTID set, in quotes")}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := a.loadOne(source)
			if err != nil {
				return err
			}
			to, err := gtid.ParseSet(args[0])
			if err != nil {
				return usageError{fmt.Errorf("the GTID set cannot be read: %w", err)}
			}
			return a.changeCheckpoint(cfg, offline, func(ctx context.Context, s removable) error { return a.setCheckpoint(ctx, cfg, s, to) })
		},
	}
	reset := &cobra.Command{
		Use: "reset", Short: "Remove the stored position",
		Long: "Remove the stored position, also one that is damaged: the next run starts at source.start. It is refused while a relay of this name runs.",
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.loadOne(source)
			if err != nil {
				return err
			}
			return a.changeCheckpoint(cfg, offline, func(ctx context.Context, s removable) error { return a.resetCheckpoint(ctx, cfg, s) })
		},
	}
	for _, one := range []*cobra.Command{set, reset} {
		one.Flags().BoolVar(&offline, "offline", false, "do not ask the source whether a relay of this name runs elsewhere")
		sourceFlag(one, &source, "needed where there are several")
	}
	sourceFlag(show, &source, "all if not given")
	c.AddCommand(show, set, reset)
	return c
}

// shownCheckpoint is the JSON of checkpoint show.
type shownCheckpoint struct {
	Name           string    `json:"name"`
	Place          string    `json:"place"`
	GTIDSet        string    `json:"gtid_set"`
	Transactions   uint64    `json:"transactions"`
	SourceUUID     string    `json:"source_uuid"`
	BinlogFile     string    `json:"binlog_file"`
	BinlogPosition uint64    `json:"binlog_position"`
	Tables         []string  `json:"tables"`
	Paused         time.Time `json:"paused,omitzero"`
	FencingToken   uint64    `json:"fencing_token"`
	Instance       string    `json:"instance"`
	Time           time.Time `json:"time"`
	// Begun are transactions outside the set of which some rows are published.
	Begun []checkpoint.Begun `json:"begun,omitempty"`
	// Snapshot is the progress of reading the rows that exist.
	Snapshot *checkpoint.Snapshot `json:"snapshot,omitempty"`
}

func (a *app) showCheckpoints(cfg *config.Config, source string, asJSON bool) error {
	asked, err := chosen(cfg, source)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var all []shownCheckpoint
	var errs []error
	for _, one := range asked {
		c, err := readCheckpoint(ctx, one)
		if err != nil && len(asked) > 1 {
			err = fmt.Errorf("%s: %s", one.Name, relay.Sentence(err))
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, shownCheckpoint{c.Name, placeOf(one), c.GTIDSet.String(), c.GTIDSet.Count(), c.SourceUUID, c.BinlogFile, c.BinlogPosition, c.Tables, c.Paused, c.FencingToken, c.Instance, c.Time, c.Begun, c.Snapshot})
	}
	switch {
	case asJSON && len(asked) > 1:
		errs = append(errs, writeJSON(a.out, all))
	case asJSON && len(all) == 1:
		errs = append(errs, writeJSON(a.out, all[0]))
	case asJSON:
	default:
		for i := range all {
			if i > 0 {
				fmt.Fprintln(a.out)
			}
			errs = append(errs, printStored(a.out, &all[i], time.Now()))
		}
	}
	return errors.Join(errs...)
}

func printStored(w io.Writer, s *shownCheckpoint, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	line("relay", "%s, in %s", s.Name, s.Place)
	for i, part := range strings.Split(s.GTIDSet, ",") {
		line([]string{"position", ""}[min(i, 1)], "%s", part)
	}
	line("transactions", "%d", s.Transactions)
	for _, b := range s.Begun {
		line("begun", "%s, %d of its rows published", b.GTID, b.Rows)
	}
	printSnapshot(line, s.Snapshot)
	if s.BinlogFile != "" {
		line("binlog", "%s:%d of server %s", s.BinlogFile, s.BinlogPosition, s.SourceUUID)
	}
	line("tables", "%s", strings.Join(s.Tables, ", "))
	if !s.Paused.IsZero() {
		line("paused", "since %s; outbox-relay resume goes on", s.Paused.Format(time.RFC3339))
	}
	line("saved", "%s, %s ago, by %s (fencing token %d)", s.Time.Format(time.RFC3339), now.Sub(s.Time).Round(time.Second), s.Instance, s.FencingToken)
	return t.Flush()
}

// printSnapshot tells how far the reading of rows that exist has come; x may be nil.
func printSnapshot(line func(string, string, ...any), x *checkpoint.Snapshot) {
	switch {
	case x == nil:
		return
	case x.Reading():
		line("snapshot", "begun %s, %d rows published, %d tables left; the binlog follows", x.Started.Format(time.RFC3339), x.Rows(), len(x.Tables))
	default:
		line("snapshot", "ended, %d rows published; the binlog is not yet past its end", x.Rows())
	}
	for _, t := range x.Done {
		line("", "%s, %d rows, all that existed", t.Table, t.Rows)
	}
	for _, t := range x.Tables {
		if len(t.After) == 0 {
			line("", "%s, not begun", t.Table)
			continue
		}
		line("", "%s, %d rows, by %s up to %s of %s", t.Table, t.Rows, strings.Join(t.Key, ", "), t.After, t.Until)
	}
}

// removable is a store whose checkpoint can be removed.
type removable interface {
	checkpoint.Store
	Remove(ctx context.Context) error
}

// changeCheckpoint opens the store for a change while no relay of the name can run.
func (a *app) changeCheckpoint(cfg *config.Config, offline bool, change func(context.Context, removable) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	s, err := openStore(cfg, nil)
	if errors.Is(err, checkpoint.ErrHeld) {
		return fmt.Errorf("a relay called %q runs: %w; stop it first", cfg.Name, err)
	}
	if err != nil {
		return err
	}
	defer s.Close()
	if !offline {
		release, err := a.holdName(ctx, cfg)
		if err != nil {
			return err
		}
		defer release()
	}
	return change(ctx, s.(removable))
}

// holdName takes the activity lock of the relay's name on the source, so that none runs on another host either.
func (a *app) holdName(ctx context.Context, cfg *config.Config) (release func(), err error) {
	login := loginOf(cfg)
	login.Program += " checkpoint"
	lease := relay.NewMySQLLease(leaseOptions(cfg, login, slog.New(slog.DiscardHandler)))
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- lease.Run(ctx) }() // ended by cancel
	release = func() {
		cancel()
		<-ended
	}
	timeout := time.NewTimer(holdTimeout)
	defer timeout.Stop()
	for {
		changed := lease.Changed()
		switch s := lease.State(); {
		case s.Held:
			return release, nil
		case s.Other:
			release()
			return nil, fmt.Errorf("a relay called %q runs: it holds the activity lock on the source; stop it first", cfg.Name)
		case s.Err != nil:
			err = s.Err
		}
		select {
		case <-changed:
		case err := <-ended:
			cancel()
			return nil, cannotAsk(err)
		case <-timeout.C:
			release()
			return nil, cannotAsk(err)
		case <-ctx.Done():
			release()
			return nil, ctx.Err()
		}
	}
}

// holdTimeout is how long the source has to answer.
const holdTimeout = 15 * time.Second

func cannotAsk(err error) error {
	if err == nil {
		err = errors.New("the source does not answer")
	}
	return fmt.Errorf("the source cannot be asked whether a relay of this name runs elsewhere (with --offline it is not asked): %w", err)
}

func (a *app) setCheckpoint(ctx context.Context, cfg *config.Config, s removable, to *gtid.Set) error {
	old, err := s.Load(ctx)
	next := &checkpoint.Checkpoint{Name: cfg.Name, GTIDSet: to, Instance: "checkpoint set", Time: time.Now()}
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		old = &checkpoint.Checkpoint{GTIDSet: new(gtid.Set)}
		for _, t := range cfg.Tables {
			next.Tables = append(next.Tables, t.Table.String())
		}
	case err != nil:
		return fmt.Errorf("%w; outbox-relay checkpoint reset removes it", err)
	default:
		next.Tables, next.SourceUUID, next.Paused = old.Tables, old.SourceUUID, old.Paused
		if old.Snapshot.Reading() { // the rows that are left to be read are in no binlog
			next.Snapshot = old.Snapshot
		}
	}
	next.FencingToken = old.FencingToken + 1 // an instance that was frozen in a save must not undo this
	if err := s.Save(ctx, next); err != nil {
		return err
	}
	if next.Snapshot != nil {
		fmt.Fprintf(a.out, "the snapshot that is under way goes on, and then the binlog from there\n")
	}
	gained, lost := gtid.Minus(to, old.GTIDSet), gtid.Minus(old.GTIDSet, to)
	fmt.Fprintf(a.out, "the checkpoint in %s is set\n", placeOf(cfg))
	if !gained.IsEmpty() {
		fmt.Fprintf(a.out, "never to be published: %d transactions: %s\n", gained.Count(), gained)
	}
	if !lost.IsEmpty() {
		fmt.Fprintf(a.out, "to be published (again): %d transactions: %s\n", lost.Count(), lost)
	}
	return nil
}

func (a *app) resetCheckpoint(ctx context.Context, cfg *config.Config, s removable) error {
	old, err := s.Load(ctx)
	if errors.Is(err, checkpoint.ErrNotFound) {
		fmt.Fprintf(a.out, "there is no checkpoint in %s\n", placeOf(cfg))
		return nil
	}
	if rerr := s.Remove(ctx); rerr != nil {
		return rerr
	}
	start := cfg.Source.Start
	if start == "" {
		start = "not set, which it needs"
	}
	fmt.Fprintf(a.out, "the checkpoint in %s is removed; the next run starts at source.start (%s)\n", placeOf(cfg), start)
	if err == nil {
		fmt.Fprintf(a.out, "it was: %s\n", old.GTIDSet)
	}
	return nil
}
