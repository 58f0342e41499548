package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/v2"
)

// DefaultFiles are the paths tried, in order, where no file is named.
var DefaultFiles = []string{"./outbox-relay.yaml", "/etc/outbox-relay/outbox-relay.yaml"}

// Options say what Load reads.
type Options struct {
	// File is the path of --config. If empty, OUTBOX_RELAY__CONFIG_FILE in
	// Env names the file, else the first of Search that exists is used.
	File string
	// Env are the environment's NAME=value pairs, as os.Environ gives them.
	Env []string
	// Sets are the key=value texts of --set; a later one wins.
	Sets []string
	// Search replaces DefaultFiles if it is not nil.
	Search []string
	// Check finds faults that need knowledge of other packages, such as
	// those of templates; may be nil. It gets a Config that may have other
	// faults, whose bad values are left at their defaults, and uses
	// Config.Fault. A fault about a value that has one already is dropped.
	Check func(*Config) []Fault
}

// Load reads the layers in the order file, environment, flags and returns the
// checked result. Its error is always a *Faults with everything that is wrong.
// It reads the one file and does no other I/O.
func Load(o Options) (*Config, error) {
	c := &collector{origins: map[string]string{}}
	path, text := c.readFile(o)
	// Each layer notes its origins over those of the layer before.
	layers := []map[string]any{c.parseFile(text), c.fromEnv(o.Env), c.fromSets(o.Sets)}
	merged := koanf.New(".")
	for _, layer := range layers {
		if err := merged.Load(confmap.Provider(layer, ""), nil); err != nil {
			c.add("", "", "merging the layers: %v", err)
		}
	}
	cfg := Default()
	cfg.File, cfg.origins = path, c.origins
	c.shared = &cfg.Source // complete before the list that shares it
	c.section(reflect.ValueOf(cfg).Elem(), merged.Raw(), "")
	c.complete(cfg, merged.Raw())
	if !c.unreadable() {
		c.validate(cfg)
		c.foreign(cfg, o.Check)
	}
	if err := c.err(path); err != nil {
		return nil, err
	}
	return cfg, nil
}

// foreign adds the faults that another package finds.
func (c *collector) foreign(cfg *Config, check func(*Config) []Fault) {
	if check == nil {
		return
	}
	for _, f := range check(cfg) {
		if !c.faulty(f.Path) {
			c.found = append(c.found, f)
		}
	}
}

// unreadable reports whether the file as a whole could not be read, in which
// case complaints about missing keys would only hide the reason.
func (c *collector) unreadable() bool {
	return len(c.found) > 0 && c.found[0].Path == "" && c.found[0].Origin == ""
}

// readFile finds and reads the file.
func (c *collector) readFile(o Options) (path string, text []byte) {
	candidates := o.Search
	if candidates == nil {
		candidates = DefaultFiles
	}
	named := o.File
	if named == "" {
		for _, one := range o.Env {
			if v, ok := strings.CutPrefix(one, fileVariable+"="); ok {
				named = v
			}
		}
	}
	if named != "" {
		candidates = []string{named}
	}
	for _, path := range candidates {
		text, err := os.ReadFile(path)
		switch {
		case err == nil:
			return path, text
		case errors.Is(err, fs.ErrNotExist) && named == "":
		default:
			c.add("", "", "reading the file: %v", err)
			return path, nil
		}
	}
	c.add("", fmt.Sprintf("give --config, set %s, or write one of %s", fileVariable, strings.Join(candidates, ", ")), "no file found")
	return "", nil
}

// complete fills in what depends on other values.
func (c *collector) complete(cfg *Config, tree map[string]any) {
	if len(cfg.Sources) == 0 {
		defer cfg.fillName()
	}
	rules, _ := tree["tables"].([]any)
	otherwise := map[TableName]string{}
	for i := range cfg.Tables {
		t := &cfg.Tables[i]
		rule, _ := rules[i].(map[string]any)
		own, _ := rule["poison"].(map[string]any)
		if _, ok := own["policy"]; !ok {
			t.Poison.Policy = cfg.Poison.Policy
		}
		if _, ok := own["topic"]; !ok {
			t.Poison.Topic = cfg.Poison.Topic
		}
		if _, ok := own["park_keys"]; !ok {
			t.Poison.ParkKeys = cfg.Poison.ParkKeys && t.Poison.Policy == PolicyDeadLetter
		}
		if t.Otherwise == "" {
			continue
		}
		if first, ok := otherwise[t.Table]; ok && first != t.Otherwise {
			c.add(fmt.Sprintf("tables[%d].otherwise", i), "give it once", "%s already has otherwise: %s", t.Table, first)
		}
		otherwise[t.Table] = t.Otherwise
	}
	for i := range cfg.Tables {
		t := &cfg.Tables[i]
		if t.Otherwise = otherwise[t.Table]; t.Otherwise == "" {
			t.Otherwise = PolicyPoison
		}
	}
}
