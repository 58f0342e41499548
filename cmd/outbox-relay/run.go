package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"outbox-relay/config"
	"outbox-relay/relay"
	"outbox-relay/relay/fleet"
	"outbox-relay/relay/httpd"
)

type runFlags struct {
	sink          string
	untilCaughtUp bool
	noStandby     bool
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run",
		Short: "Relay until stopped",
		Long: `Relay until stopped. SIGTERM or SIGINT waits for acknowledgements, saves the checkpoint and exits 0; a second signal exits at once.

Exit codes: 0 stopped cleanly, 1 other failure, 3 the source cannot continue, 4 poison record (3 and 4 only under on_halt: exit),
5 another relay of this name is active (only with --no-standby), 64 usage, 78 configuration.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if f.sink != "kafka" && f.sink != "stdout" {
				return usageError{fmt.Errorf("--sink is kafka or stdout, not %q", f.sink)}
			}
			cfg, err := a.loadChecked(func(cfg *config.Config) []config.Fault {
				return append(ruleFaults(cfg), cfg.FileFaults(f.sink == "kafka")...)
			})
			if err != nil {
				return err
			}
			return a.run(cfg, f)
		},
	}
	c.Flags().StringVar(&f.sink, "sink", "kafka", "where records go: kafka, or stdout as JSON lines")
	c.Flags().BoolVar(&f.untilCaughtUp, "until-caught-up", false, "stop once everything executed at the start is published")
	c.Flags().BoolVar(&f.noStandby, "no-standby", false, "exit 5 instead of waiting while another relay of this name is active")
	return c
}

// run builds the relay and its HTTP server and runs them until a signal, a halt or an error.
func (a *app) run(cfg *config.Config, f runFlags) error {
	log := a.logger(cfg)
	each := cfg.Each()
	limitMemory(cfg)
	limitProcessors(cfg)
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	ctx, cancel := signalContext(log)
	defer cancel()
	h := httpd.Options{Address: cfg.HTTP.Address, Gatherer: reg, Version: version}
	if len(cfg.Sources) > 0 {
		h.Name = cfg.Name
	}
	var members []*fleet.Member
	for _, one := range each {
		m, err := a.member(cfg, one, f, log, reg)
		if err != nil {
			return err
		}
		members, h.Relays = append(members, m), append(h.Relays, m)
	}
	server, err := httpd.Listen(h)
	if err != nil {
		return err
	}
	defer server.Close()
	go func() { // ends with server.Close
		if err := server.Serve(); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("http server ended", "err", err)
		}
	}()
	v, c := buildVersion()
	log.Info("outbox-relay starts", "name", cfg.Name, "version", v, "commit", c, "http", server.Addr(), "sources", len(each))
	err = fleet.Run(ctx, members)
	log.Info("outbox-relay ends")
	return err
}

// member makes the relay of one of the configurations of cfg. One of several that fails later is made anew, so that the others go on.
func (a *app) member(cfg, one *config.Config, f runFlags, log *slog.Logger, reg prometheus.Registerer) (*fleet.Member, error) {
	several := len(cfg.Sources) > 0
	var wrong configurationError
	if err := firstStart(one); err != nil && (!several || errors.As(err, &wrong)) {
		return nil, err
	}
	if several {
		log = log.With("source", one.Name)
	}
	named := prometheus.WrapRegistererWith(prometheus.Labels{"source": one.Name}, reg)
	named.MustRegister(buildInfo())
	return fleet.New(fleet.Options{
		Name: one.Name, Exit: !several || cfg.OnHalt == config.OnHaltExit, Registerer: named, Logger: log,
		Open: func(reg prometheus.Registerer) (fleet.Runner, error) {
			o, err := a.relayOptions(one, f, log, reg)
			if err != nil {
				return nil, err
			}
			return relay.New(o)
		},
	})
}

// signalContext ends at the first SIGTERM or SIGINT; the second one exits the process.
func signalContext(log *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() { // lives as long as the process
		s := <-signals
		log.Info("stopping: waiting for acknowledgements", "signal", s.String())
		cancel()
		<-signals
		os.Exit(exitFailure)
	}()
	return ctx, cancel
}

// limitMemory sets the garbage collector's limit from what the configuration allows to be held, unless the environment sets it.
func limitMemory(cfg *config.Config) {
	const (
		base = 20 << 20 // code, stacks, connection buffers and one request per broker being encoded
		more = 2 << 20  // of each further source: connections and their buffers
	)
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(base + int64(cfg.Limits.Buffer) + more*int64(max(len(cfg.Sources)-1, 0)))
	}
}

// limitProcessors gives each source one processor, unless the environment sets their number. What reads, makes and sends the records of a source hands them on
// without waking another thread then, and finds them in the caches of its core: see docs/performance.md.
func limitProcessors(cfg *config.Config) {
	n := max(len(cfg.Sources), 1)
	if os.Getenv("GOMAXPROCS") == "" && n < runtime.GOMAXPROCS(0) { // a call that changes nothing would still end the runtime's own following of the container's limit
		runtime.GOMAXPROCS(n)
	}
}

func (a *app) logger(cfg *config.Config) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Log.Level)) // checked by config
	o := &slog.HandlerOptions{Level: level}
	if cfg.Log.Format == "json" {
		return slog.New(slog.NewJSONHandler(a.err, o))
	}
	return slog.New(slog.NewTextHandler(a.err, o))
}

func buildInfo() prometheus.Collector {
	v, c := buildVersion()
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "outbox_relay_build_info", Help: "Version of the relay.", ConstLabels: prometheus.Labels{"version": v, "commit": c, "go": runtime.Version()}})
	g.Set(1)
	return g
}

const drainTimeout = 4 * time.Second
