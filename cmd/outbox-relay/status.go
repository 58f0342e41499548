package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"outbox-relay/config"
	"outbox-relay/relay"
	"outbox-relay/relay/httpd"
)

// statusTimeout is how long a relay has to answer: less than a health check of a container waits.
const statusTimeout = 4 * time.Second

func (a *app) statusCommand() *cobra.Command {
	var asJSON bool
	var source string
	c := &cobra.Command{
		Use:   "status",
		Short: "Ask the running relay how it is",
		Long: `Ask the relay that runs on this machine (http.address) for its role, checkpoint, lag, records in flight and last error.

Exit codes: 0 it is ready (active and progressing, or standing by; of several sources all are), 1 it is not ready or does not run, 64 usage, 78 configuration.
So it serves as the health check of a container.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			return a.status(cfg, source, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print the answer as it came")
	sourceFlag(c, &source, "all if not given")
	return c
}

func (a *app) status(cfg *config.Config, source string, asJSON bool) error {
	asked, err := chosen(cfg, source)
	if err != nil {
		return err
	}
	v, body, err := a.askStatus(cfg)
	if err != nil {
		return err
	}
	ready := v.Ready
	if len(asked) == 1 && len(v.Sources) > 1 {
		if err := only(v, asked[0].Name); err != nil {
			return err
		}
		var b bytes.Buffer
		if err := writeJSON(&b, v.Sources[0]); err != nil {
			return err
		}
		ready, body = v.Sources[0].Ready, b.Bytes()
	}
	if asJSON {
		_, err = a.out.Write(body)
	}
	for i := range v.Sources {
		if !asJSON && i > 0 {
			fmt.Fprintln(a.out)
		}
		if !asJSON && err == nil {
			err = printStatus(a.out, &v.Sources[i], time.Now())
		}
	}
	if err == nil && !ready {
		return errReported
	}
	return err
}

// only leaves one relay.
func only(v *relay.Overview, name string) error {
	for _, s := range v.Sources {
		if s.Name == name {
			v.Sources = []relay.Status{s}
			return nil
		}
	}
	return fmt.Errorf("the process that runs has no source %s: it was started with another configuration; restart it", name)
}

// askStatus gets the body of /status of the process of this configuration, and refuses what is none.
func (a *app) askStatus(cfg *config.Config) (*relay.Overview, []byte, error) {
	r, err := ask(cfg.HTTP.Address, http.MethodGet, "/status")
	if err != nil {
		return nil, nil, err
	}
	var v relay.Overview
	err = json.Unmarshal(r.body, &v)
	if err == nil && v.Sources == nil { // one relay, which is its own answer
		v.Sources = make([]relay.Status, 1)
		err = json.Unmarshal(r.body, &v.Sources[0])
	}
	if err != nil || r.code != http.StatusOK || v.Name == "" {
		return nil, nil, fmt.Errorf("what answers at http.address %s is no relay (%s); correct http.address or stop the other program", cfg.HTTP.Address, r.status)
	}
	if v.Name != cfg.Name {
		return nil, nil, fmt.Errorf("the relay at http.address %s is called %q and this configuration is of %q; give each relay an http.address of its own", cfg.HTTP.Address, v.Name, cfg.Name)
	}
	return &v, r.body, nil
}

// answer is what a relay says.
type answer struct {
	code   int
	status string
	body   []byte
}

// ask sends a request to the relay that listens on address.
func ask(address, method, path string) (*answer, error) {
	at, err := reachable(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+at+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set(httpd.ControlHeader, "1")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // no proxy of the environment: the relay is on this machine
	response, err := client.Do(request)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("no relay runs at http.address %s: nothing listens there; start it with outbox-relay run", address)
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Errorf("the relay at http.address %s does not answer within %s; see its log, and end it if it hangs", address, statusTimeout)
	case err != nil:
		return nil, fmt.Errorf("the relay at http.address %s cannot be asked: %w; check http.address", address, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		return nil, fmt.Errorf("the answer of the relay at http.address %s breaks off: %w; try again", address, err)
	}
	return &answer{response.StatusCode, response.Status, body}, nil
}

// reachable gives the address at which a server that listens on address can be asked from this machine.
func reachable(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("http.address %s: %w", address, err)
	}
	if port == "0" {
		return "", fmt.Errorf("http.address %s lets the system choose a port, so the relay cannot be found; set a fixed port", address)
	}
	switch ip := net.ParseIP(host); {
	case host == "", ip != nil && ip.IsUnspecified() && ip.To4() != nil:
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port), nil
}

// printStatus gives the state for people, one fact a line.
func printStatus(w io.Writer, s *relay.Status, now time.Time) error {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", name, oneLine(fmt.Sprintf(format, args...)))
	}
	line("relay", "%s (%s), up %s", s.Name, s.Instance, ago(now, s.StartedAt))
	line("role", "%s", s.Role)
	if s.Ready {
		line("ready", "yes")
	} else {
		line("ready", "no: %s", s.Reason)
	}
	if s.Role == relay.RoleActive {
		caught := "still catching up"
		if s.Snapshot != nil {
			caught = "reading the rows that exist"
		}
		switch {
		case s.CaughtUp && s.Sink.InFlightRecords > 0:
			caught = "all read, not all acknowledged"
		case s.CaughtUp:
			caught = "caught up"
		}
		line("lag", "%.1f s, %s", s.LagSeconds, caught)
		if s.PurgeNear != "" {
			line("purge near", "%s", s.PurgeNear)
		}
		switch src := s.Source; {
		case src.Searching:
			line("source", "connected to %s, which looks for the position in its binlogs", src.Address)
		case src.Connected:
			line("source", "connected to %s (%s) for %s", src.Address, src.ServerUUID, ago(now, src.Since))
		case !s.PausedSince.IsZero():
			line("source", "not connected: paused for %s", ago(now, s.PausedSince))
		default:
			line("source", "not connected for %s", ago(now, src.Since))
		}
		if x := s.Snapshot; x != nil {
			line("snapshot", "%s", snapshotText(x))
		}
		line("in flight", "%d records, %d bytes, %d transactions", s.Sink.InFlightRecords, s.Sink.InFlightBytes, s.Sink.InFlightTransactions)
		if n := s.Sink.ParkedKeys; n > 0 {
			line("parked", "%d keys, until outbox-relay dead-letter redrive publishes their letters again", n)
		}
		for _, one := range s.Sink.Stalled {
			line("stalled", "%s", one)
		}
		printCheckpoint(line, s, now)
	}
	if s.LastError == "" {
		line("last error", "none")
	} else {
		line("last error", "%s", s.LastError)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// snapshotText tells how far the reading of rows that exist has come.
func snapshotText(x *relay.SnapshotStatus) string {
	text := fmt.Sprintf("%d rows read", x.Rows)
	if x.Table != "" {
		text += fmt.Sprintf(", reading %s, tables left: %d", x.Table, x.TablesLeft)
	}
	if x.Remaining >= 0 {
		text += fmt.Sprintf(", about %d rows to come", x.Remaining)
	}
	if x.Rate > 0 {
		text += fmt.Sprintf(" at %.0f per second", x.Rate)
	}
	return text + "; the binlog follows"
}

func printCheckpoint(line func(string, string, ...any), s *relay.Status, now time.Time) {
	c := s.Checkpoint
	line("checkpoint", "%s", c.GTIDSet)
	if c.BinlogFile != "" {
		line("", "%s:%d on the source", c.BinlogFile, c.Position)
	}
	if !c.SavedAt.IsZero() {
		line("", "up to date %s ago", ago(now, c.SavedAt))
	}
}

// ago is the time since then, rounded for people.
func ago(now, then time.Time) time.Duration {
	d := max(now.Sub(then), 0)
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}
