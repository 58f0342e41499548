package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"outbox-relay/config"
)

// sourceFlag adds --source, which chooses one of several sources.
func sourceFlag(c *cobra.Command, source *string, otherwise string) {
	c.Flags().StringVar(source, "source", "", "the name of one entry of sources; "+otherwise)
}

// chosen gives the configurations of the relays that a command is about: all, or the one that --source names.
func chosen(cfg *config.Config, source string) ([]*config.Config, error) {
	each := cfg.Each()
	if source == "" {
		return each, nil
	}
	var names []string
	for i, one := range each {
		if source == one.Name || len(cfg.Sources) > 0 && source == cfg.Sources[i].Name {
			return each[i : i+1], nil
		}
		names = append(names, one.Name)
	}
	return nil, usageError{fmt.Errorf("--source %s is none of this configuration, which has %s", source, strings.Join(names, ", "))}
}

// loadOne loads the configuration of a command that is about one relay.
func (a *app) loadOne(source string) (*config.Config, error) {
	cfg, err := a.load()
	if err != nil {
		return nil, err
	}
	all, err := chosen(cfg, source)
	if err != nil {
		return nil, err
	}
	if len(all) > 1 {
		return nil, usageError{fmt.Errorf("the configuration has %d sources: choose one with --source", len(all))}
	}
	return all[0], nil
}
