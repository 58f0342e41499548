package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/kafkastore"
	"outbox-relay/config"
	"outbox-relay/relay/preflight"
)

func (a *app) checkCommand() *cobra.Command {
	var asJSON bool
	var source string
	c := &cobra.Command{
		Use:   "check",
		Short: "Connect to everything and report what a run needs",
		Long: `Connect to the source, the brokers and the files, and report each precondition of a run with what to do about it. Nothing is changed anywhere.

States: ok, warning (works, and something is at risk), failed (a run would not start, or stop), unknown (could not be looked at).
Exit codes: 0 nothing failed, 1 something failed, 64 usage, 78 configuration.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			return a.check(cfg, source, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the report as JSON")
	sourceFlag(c, &source, "all if not given")
	return c
}

func (a *app) check(cfg *config.Config, source string, asJSON bool) error {
	asked, err := chosen(cfg, source)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var reports []checkReport
	failed := false
	for i, one := range asked {
		report, err := preflightOf(ctx, one)
		if err != nil {
			return err
		}
		r := checkReport{one.Name, report.Count(preflight.Failed) == 0, report}
		failed = failed || !r.OK
		switch {
		case asJSON:
			reports = append(reports, r)
			continue
		case i > 0:
			fmt.Fprintln(a.out)
		}
		if len(cfg.Sources) > 0 {
			fmt.Fprintf(a.out, "%s\n\n", one.Name)
		}
		if err := printReport(a.out, report, isTerminal(a.out)); err != nil {
			return err
		}
	}
	switch {
	case asJSON && len(cfg.Sources) == 0:
		err = writeJSON(a.out, reports[0])
	case asJSON:
		err = writeJSON(a.out, struct {
			Name    string        `json:"name"`
			OK      bool          `json:"ok"`
			Sources []checkReport `json:"sources"`
		}{cfg.Name, !failed, reports})
	}
	if err == nil && failed {
		return errReported
	}
	return err
}

// checkReport is the JSON of the report of one source.
type checkReport struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	*preflight.Report
}

// preflightOf looks at everything that the relay of a configuration needs.
func preflightOf(ctx context.Context, cfg *config.Config) (*preflight.Report, error) {
	login := loginOf(cfg)
	login.Program += " check"
	latest := map[int]bool{}
	for i, t := range cfg.Tables {
		latest[i] = t.From != ""
	}
	return preflight.Run(ctx, preflight.Options{
		Name: cfg.Name, Login: login, Addresses: cfg.Source.Addresses, Start: cfg.Source.Start, Rules: rulesOf(cfg), FromLatest: latest, Snapshot: snapshotsOf(cfg),
		DeadLetterTopics: deadLetterTopics(cfg), Kafka: kafkaOptions(cfg), RowLimit: int64(cfg.Limits.Row), SpoolDir: spoolDir(cfg), SpoolLimit: int64(cfg.Limits.Spool), CheckpointPath: checkpointPath(cfg), CheckpointPlace: placeOf(cfg),
		ReadCheckpoint: func() (*checkpoint.Checkpoint, error) { return readCheckpoint(ctx, cfg) }, CheckpointTopic: checkpointTopic(cfg), ProbeCheckpoint: probeCheckpoint(cfg),
	})
}

// deadLetterTopics are those that a policy in use names.
func deadLetterTopics(cfg *config.Config) []string {
	var topics []string
	if cfg.Poison.Policy == config.PolicyDeadLetter { // also of rows that no rule matches
		topics = append(topics, cfg.Poison.Topic)
	}
	for i := range cfg.Tables {
		if p := cfg.Tables[i].Poison; p.Policy == config.PolicyDeadLetter {
			topics = append(topics, p.Topic)
		}
	}
	return topics
}

// parkingTopics are the topics of dead letters whose keys are parked.
func parkingTopics(cfg *config.Config) []string {
	var topics []string
	if cfg.Poison.ParkKeys {
		topics = append(topics, cfg.Poison.Topic)
	}
	for i := range cfg.Tables {
		if p := cfg.Tables[i].Poison; p.ParkKeys {
			topics = append(topics, p.Topic)
		}
	}
	slices.Sort(topics)
	return slices.Compact(topics)
}

// checkpointPath is empty where the checkpoint is in no file.
func checkpointPath(cfg *config.Config) string {
	if cfg.Checkpoint.Store != config.StoreFile {
		return ""
	}
	return cfg.Checkpoint.Path
}

// checkpointTopic is nil where the checkpoint is not in Kafka.
func checkpointTopic(cfg *config.Config) *kafkastore.Options {
	if cfg.Checkpoint.Store != config.StoreKafka {
		return nil
	}
	o := kafkaStoreOptions(cfg, nil)
	o.Timeout = readTimeout / 2
	return &o
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// colours of the states on a terminal.
var colours = map[preflight.State]string{preflight.OK: "\x1b[32m", preflight.Warning: "\x1b[33m", preflight.Failed: "\x1b[31m", preflight.Unknown: "\x1b[36m"}

// printReport gives one line for each item, with its remedy below.
func printReport(w io.Writer, r *preflight.Report, coloured bool) error {
	width := 0
	for _, item := range r.Items {
		width = max(width, utf8.RuneCountInString(item.Name))
	}
	width = min(width, 40)
	var b strings.Builder
	area := ""
	for _, item := range r.Items {
		if item.Area != area {
			area = item.Area
			fmt.Fprintf(&b, "%s\n", area)
		}
		state := fmt.Sprintf("%-8s", item.State)
		if coloured {
			state = colours[item.State] + state + "\x1b[0m"
		}
		fmt.Fprintf(&b, "  %s %-*s  %s\n", state, width, item.Name, oneLine(item.Detail))
		if item.Remedy != "" {
			fmt.Fprintf(&b, "           -> %s\n", item.Remedy)
		}
		for _, command := range item.Commands {
			fmt.Fprintf(&b, "              %s\n", command)
		}
	}
	fmt.Fprintf(&b, "\n%d ok, %d warnings, %d failed, %d unknown\n", r.Count(preflight.OK), r.Count(preflight.Warning), r.Count(preflight.Failed), r.Count(preflight.Unknown))
	_, err := io.WriteString(w, b.String())
	return err
}

func oneLine(s string) string { return strings.ReplaceAll(s, "\n", "; ") }

// isTerminal tells whether people read the output; NO_COLOR asks for none.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// writeLine writes one JSON object on a line.
func writeLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}
