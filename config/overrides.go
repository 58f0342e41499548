package config

import (
	"reflect"
	"strings"
)

// EnvPrefix begins the environment variables that set keys. Levels are divided
// by two underscores, since Kubernetes injects variables with one for every
// service, also for one called outbox-relay.
const EnvPrefix = "OUTBOX_RELAY__"

// fileVariable names the configuration file and is not a key.
const fileVariable = EnvPrefix + "CONFIG_FILE"

// fromEnv turns variables of the form NAME=value into nested maps.
func (c *collector) fromEnv(env []string) map[string]any {
	root := map[string]any{}
	for _, one := range env {
		variable, value, _ := strings.Cut(one, "=")
		name, ok := strings.CutPrefix(variable, EnvPrefix)
		if !ok || variable == fileVariable {
			continue
		}
		path := strings.ReplaceAll(strings.ToLower(name), "__", ".")
		c.override(root, path, value, "environment "+variable)
	}
	return root
}

// fromSets turns assignments of the form a.b=value into nested maps.
func (c *collector) fromSets(sets []string) map[string]any {
	root := map[string]any{}
	for _, one := range sets {
		path, value, ok := strings.Cut(one, "=")
		if !ok {
			// What follows the key can be a secret behind a wrong sign.
			key := path[:len(path)-len(strings.TrimLeft(path, "abcdefghijklmnopqrstuvwxyz0123456789_.[]"))]
			c.found = append(c.found, Fault{Message: "lacks =", Origin: "--set " + key, Hint: "write --set key=value"})
			continue
		}
		c.override(root, path, value, "--set "+path)
	}
	return root
}

// override puts one value into root at path if the schema has a scalar or a
// list of scalars there.
func (c *collector) override(root map[string]any, path, value, from string) {
	fault := func(hint, message string) {
		c.found = append(c.found, Fault{Path: path, Message: message, Origin: from, Hint: hint})
	}
	t := reflect.TypeFor[Config]()
	names := strings.Split(path, ".")
	section := ""
	for i, name := range names {
		f, ok := fieldNamed(t, name)
		if !ok {
			fault(suggest(t, name), "unknown key")
			return
		}
		section, t = join(section, name), f.typ
		last := i == len(names)-1
		switch {
		case isSectionList(t) || t.Kind() == reflect.Map:
			fault("write it there", section+" can only be set in the file")
			return
		case isSection(t) && last:
			fault("name one key of it", "is a section")
			return
		case !isSection(t) && !last:
			fault("", section+" has no keys of its own")
			return
		case last:
		default:
			next, ok := root[name].(map[string]any)
			if !ok {
				next = map[string]any{}
				root[name] = next
			}
			root = next
		}
	}
	last := names[len(names)-1]
	c.origins[path] = from
	if isList(t) {
		root[last] = splitList(value)
	} else {
		root[last] = value
	}
}

// splitList cuts at commas and drops white space around elements. An element
// that holds a comma can only be written in the file.
func splitList(s string) []any {
	all := []any{}
	if s == "" {
		return all
	}
	for one := range strings.SplitSeq(s, ",") {
		all = append(all, strings.TrimSpace(one))
	}
	return all
}
