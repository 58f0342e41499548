package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// quotedWord is a word of the file in an error of the YAML library. It can be a secret; single signs that were expected cannot.
var quotedWord = regexp.MustCompile("['`][^'`]{4,}['`]")

// parseFile turns the text of a file into nested maps. It checks keys and
// shapes against the schema and notes the line of each value. Scalars keep the
// text as it was written: a password of 0123 must not become the number 83, as
// YAML's own reading would have it.
func (c *collector) parseFile(text []byte) map[string]any {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var doc yaml.Node
	switch err := decoder.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		c.add("", yamlHint(text), "not valid YAML: %s", quotedWord.ReplaceAllString(strings.TrimPrefix(err.Error(), "yaml: "), "'...'"))
		return nil
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		c.add("", "keep one, without ---", "the file holds more than one YAML document")
		return nil
	}
	root, _ := c.value(doc.Content[0], reflect.TypeFor[Config](), "").(map[string]any)
	return root
}

// maxNodes bounds the work on files in which aliases multiply each other.
const maxNodes = 100_000

// visit counts a node and tells whether to go on.
func (c *collector) visit() bool {
	c.nodes++
	if c.nodes == maxNodes {
		c.add("", "write it with fewer aliases", "the file has more than %d values", maxNodes)
	}
	return c.nodes < maxNodes
}

// startsQuoted finds values that begin with a backquote, which YAML reserves.
var startsQuoted = regexp.MustCompile("(?m)[:-] +`")

func yamlHint(text []byte) string {
	switch {
	case startsQuoted.Match(text):
		return "a value that begins with a backquote needs single quotes around it"
	case bytes.Contains(text, []byte("\t")):
		return "YAML is indented with spaces, not tabs"
	default:
		return ""
	}
}

// value reads a node of which the schema says that it has type t. It returns
// nil for a value that was not given or was reported.
func (c *collector) value(n *yaml.Node, t reflect.Type, path string) any {
	if !c.visit() {
		return nil
	}
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	} else if path != "" {
		c.origins[path] = fmt.Sprintf("line %d", n.Line)
	}
	null := n.Kind == yaml.ScalarNode && n.Tag == "!!null"
	switch {
	case null:
		return nil
	case isSection(t) || t.Kind() == reflect.Map:
		return c.mapping(n, t, path)
	case isSectionList(t):
		return c.list(n, t, path)
	case isList(t) && n.Kind == yaml.SequenceNode:
		return c.list(n, t, path)
	case n.Kind == yaml.ScalarNode && isList(t):
		return []any{n.Value}
	case n.Kind == yaml.ScalarNode:
		return n.Value
	case isList(t):
		c.add(path, "", "must be a list of single values")
	default:
		c.add(path, "", "must be a single value")
	}
	return nil
}

func (c *collector) list(n *yaml.Node, t reflect.Type, path string) any {
	if n.Kind != yaml.SequenceNode {
		c.broken = append(c.broken, path)
		c.add(path, "begin each element with a dash", "must be a list")
		return nil
	}
	all := []any{}
	for i, element := range n.Content {
		p := fmt.Sprintf("%s[%d]", path, i)
		before := len(c.found)
		if v := c.value(element, t.Elem(), p); v != nil {
			all = append(all, v)
		} else if len(c.found) == before {
			c.add(p, "remove it or fill it in", "an element is empty")
		}
	}
	return all
}

func (c *collector) mapping(n *yaml.Node, t reflect.Type, path string) any {
	if n.Kind != yaml.MappingNode {
		if path == "" {
			c.add(path, "begin with source:, tables: and kafka:", "the file holds no keys")
		} else {
			c.broken = append(c.broken, path)
			c.add(path, "", "must be a section with keys of its own")
		}
		return nil
	}
	m := map[string]any{}
	for _, pair := range c.pairs(n, path, 0) {
		name, p := pair.key.Value, join(path, pair.key.Value)
		var typ reflect.Type
		if t.Kind() == reflect.Map {
			typ = t.Elem()
		} else if f, ok := fieldNamed(t, name); ok {
			typ = f.typ
		} else {
			c.origins[p] = fmt.Sprintf("line %d", pair.key.Line)
			c.add(p, suggest(t, name), "unknown key")
			continue
		}
		v := c.value(pair.value, typ, p)
		// A block begins a line below its key; people look for the key.
		c.origins[p] = fmt.Sprintf("line %d", pair.key.Line)
		if v != nil {
			m[name] = v
		}
	}
	return m
}

type pair struct{ key, value *yaml.Node }

// pairs lists the keys of a mapping, those of merged mappings (<<) after its
// own and only where it has none of that name. depth ends merges in a circle.
func (c *collector) pairs(n *yaml.Node, path string, depth int) []pair {
	var own []pair
	var merged []*yaml.Node
	has := func(name string) bool {
		return slices.ContainsFunc(own, func(p pair) bool { return p.key.Value == name })
	}
	for i := 0; i+1 < len(n.Content) && c.visit(); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Tag == "!!merge" && value.Kind == yaml.SequenceNode:
			merged = append(merged, value.Content...)
		case key.Tag == "!!merge":
			merged = append(merged, value)
		case key.Kind != yaml.ScalarNode:
			c.add(path, "", "the key on line %d is not a word", key.Line)
		case has(key.Value):
			c.origins[join(path, key.Value)] = fmt.Sprintf("line %d", key.Line)
			c.add(join(path, key.Value), "keep one", "given twice")
		default:
			own = append(own, pair{key, value})
		}
	}
	for _, m := range merged {
		if !c.visit() {
			break
		}
		line := m.Line
		if m.Kind == yaml.AliasNode {
			m = m.Alias
		}
		if m.Kind != yaml.MappingNode || depth > 8 {
			c.add(path, "", "<< on line %d does not name a mapping", line)
			continue
		}
		for _, p := range c.pairs(m, path, depth+1) {
			if !has(p.key.Value) {
				own = append(own, p)
			}
		}
	}
	return own
}
