package config

import (
	"fmt"
	"slices"
	"strings"
)

// NamedSource is one of several MySQL servers, or groups of failover
// candidates, that one process reads. Keys that it does not give are those of
// Config.Source.
type NamedSource struct {
	// Name is the part of the relay's name that is its own: the relay of this
	// source is called <Config.Name>-<Name>.
	Name   string `yaml:"name"`
	Source `yaml:",inline"`
}

// defaultSource is an entry of sources before its keys are read.
func defaultSource(shared Source, given any) NamedSource {
	keys, _ := given.(map[string]any)
	for _, key := range []string{"password", "password_file", "password_command"} {
		if _, own := keys[key]; own {
			shared.Password = Secret{}
		}
	}
	return NamedSource{Source: shared}
}

// Each gives the configuration of each relay of the process, in order: itself
// where there is one source. With Sources, each has the Name, the Source, the
// checkpoint and the share of Limits.Buffer of its own; they share the rest.
func (c *Config) Each() []*Config {
	if len(c.Sources) == 0 {
		return []*Config{c}
	}
	var all []*Config
	for _, s := range c.Sources {
		one := *c
		one.Name, one.Source, one.Sources = c.nameOf(s), s.Source, nil
		one.Limits.Buffer /= Size(len(c.Sources))
		one.Tables = slices.Clone(c.Tables)
		if !strings.Contains(one.Checkpoint.Path, namePlace) {
			one.Checkpoint.Path += "." + namePlace
		}
		one.fillName()
		all = append(all, &one)
	}
	return all
}

func (c *Config) nameOf(s NamedSource) string { return c.Name + "-" + s.Name }

// namePlace stands for the relay's name.
const namePlace = "{name}"

// fillName fills in what depends on the relay's name.
func (c *Config) fillName() {
	c.Checkpoint.Topic = strings.ReplaceAll(c.Checkpoint.Topic, namePlace, c.Name)
	c.Checkpoint.Path = strings.ReplaceAll(c.Checkpoint.Path, namePlace, c.Name)
	for i := range c.Tables {
		t := &c.Tables[i]
		if t.Preset == PresetDebezium && t.Debezium.TopicPrefix == "" {
			t.Debezium.TopicPrefix = c.Name
		}
		if t.Preset == PresetCloudEvents && t.CloudEvents.Source == "" && !t.Table.IsPattern() {
			t.CloudEvents.Source = eventSource(c.Name, t.Table)
		}
	}
}

// leastBuffer is the smallest share of limits.buffer that one of several
// sources works with.
const leastBuffer = 256 * KiB

func (c *collector) sources(cfg *Config) {
	if len(cfg.Sources) == 0 {
		c.source(&cfg.Source, "source")
		return
	}
	for _, of := range []struct {
		key   string
		given bool
	}{{"address", len(cfg.Source.Addresses) > 0}, {"server_id", cfg.Source.ServerID != 0}} {
		c.check(!of.given, "source."+of.key, "move it into an entry of sources, or drop sources", "belongs to one source, and with sources this section only holds what they share")
	}
	names := map[string]int{}
	for i := range cfg.Sources {
		s, path := &cfg.Sources[i], fmt.Sprintf("sources[%d]", i)
		if s.Name == "" {
			c.missing(path+".name", "a short name that stays, such as shard1: the checkpoint belongs to it")
		} else {
			name := cfg.nameOf(*s)
			c.check(namePattern.MatchString(name), path+".name", "use A-Z a-z 0-9 . _ - and at most 48 with the relay's name and a dash before it",
				"%q cannot name a lock, a topic and a transactional id", name)
			first, twice := names[s.Name]
			c.check(!twice, path+".name", "give each its own", "sources[%d] is called %q too", first, s.Name)
			names[s.Name] = i
		}
		c.source(&s.Source, path)
	}
	n := Size(len(cfg.Sources))
	c.check(cfg.Limits.Buffer/n >= leastBuffer, "limits.buffer", fmt.Sprintf("set at least %s", leastBuffer*n), "is shared by %d sources, and %s is too little for each", n, cfg.Limits.Buffer/n)
	c.check(cfg.Checkpoint.Store != StoreKafka || strings.Contains(cfg.Checkpoint.Topic, namePlace), "checkpoint.topic",
		"write "+namePlace+" in it", "would be the topic of several relays")
}
