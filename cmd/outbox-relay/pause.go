package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

func (a *app) pauseCommand() *cobra.Command {
	return a.controlCommand("pause", "Stop publishing of the running relay until resume",
		`Stop publishing of the relay that runs on this machine (http.address), until outbox-relay resume. What was handed over is still published, acknowledged work is
saved, and the connection to MySQL is closed, so that a pause of days holds nothing: only the binlogs have to last (binlog_expire_logs_seconds). A transaction that was
begun is published whole. The relay stays active, is not ready (503 "paused"), and its lag grows.

The pause is in the checkpoint: a restart stays paused, and so does a standby that takes over. A standby that is paused itself goes on standing by, and pauses when it
takes over. checkpoint set keeps a pause, checkpoint reset ends it.`)
}

func (a *app) resumeCommand() *cobra.Command {
	return a.controlCommand("resume", "Go on after pause",
		`Let the relay that runs on this machine (http.address) go on after outbox-relay pause: it connects again and publishes what was committed meanwhile, in order.`)
}

func (a *app) controlCommand(verb, short, long string) *cobra.Command {
	var source string
	c := &cobra.Command{
		Use: verb, Short: short, Example: "  outbox-relay " + verb + " --config outbox-relay.yaml",
		Long: long + `

Exit codes: 0 it is so and saved, 1 not (yet), or no relay runs, 64 usage, 78 configuration. It is safe to repeat.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			if _, err := chosen(cfg, source); err != nil {
				return err
			}
			if _, _, err := a.askStatus(cfg); err != nil {
				return err // whoever answers there is not this relay
			}
			return a.control(cfg.HTTP.Address, verb, source)
		},
	}
	sourceFlag(c, &source, "all if not given")
	return c
}

// control asks the relay to do something. source is empty for all.
func (a *app) control(address, verb, source string) error {
	path := "/" + verb
	if source != "" {
		path += "?source=" + url.QueryEscape(source)
	}
	response, err := ask(address, http.MethodPost, path)
	if err != nil {
		return err
	}
	text := strings.TrimSpace(string(response.body))
	switch response.code {
	case http.StatusOK:
		_, err = fmt.Fprintln(a.out, text)
		return err
	case http.StatusServiceUnavailable:
		return errors.New(text)
	}
	return fmt.Errorf("the relay at http.address %s refuses to %s: %s", address, verb, text)
}
