package config

import (
	"fmt"
	"slices"
	"strings"
)

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	// Path is the key, such as "kafka.linger" or "tables[0].topic"; empty
	// for the configuration as a whole.
	Path string
	// Message says what is wrong. It never holds a secret.
	Message string
	// Origin says where the value was written: "line 7", "environment
	// OUTBOX_RELAY__NAME", "--set name"; empty when nothing was written.
	Origin string
	// Hint says what to do; may be empty.
	Hint string
}

// String renders the fault as one line.
func (f Fault) String() string {
	var b strings.Builder
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	b.WriteString(f.Message)
	if f.Origin != "" {
		b.WriteString(" (" + f.Origin + ")")
	}
	if f.Hint != "" {
		b.WriteString(" - " + f.Hint)
	}
	return b.String()
}

// Faults is the error of Load: everything that is wrong, in the order of the
// file, never empty.
type Faults struct {
	// File is the file that was read; empty if none was found.
	File string
	List []Fault
}

// Error renders a heading and one line for each fault.
func (f *Faults) Error() string {
	var b strings.Builder
	b.WriteString("configuration")
	if f.File != "" {
		b.WriteString(" " + f.File)
	}
	if len(f.List) == 1 {
		return b.String() + ": " + f.List[0].String()
	}
	fmt.Fprintf(&b, ": %d faults", len(f.List))
	for _, one := range f.List {
		b.WriteString("\n  " + one.String())
	}
	return b.String()
}

// collector gathers faults and knows where values were written.
type collector struct {
	found   []Fault
	origins map[string]string
	// broken are the sections that were written as something else.
	broken []string
	// shared is what the entries of sources share.
	shared *Source
	// nodes counts what was read of the file.
	nodes int
}

func (c *collector) add(path, hint, format string, args ...any) {
	c.found = append(c.found, Fault{
		Path: path, Message: fmt.Sprintf(format, args...), Hint: hint, Origin: origin(c.origins, path),
	})
}

// faulty reports whether path, something below it, or a whole section around it
// already has a fault; a second one about the same value would only be noise.
func (c *collector) faulty(path string) bool {
	return slices.ContainsFunc(c.found, func(f Fault) bool { return below(f.Path, path) }) ||
		slices.ContainsFunc(c.broken, func(section string) bool { return below(path, section) })
}

// err returns the gathered faults in the order of the file, those without a
// line last, or nil.
func (c *collector) err(file string) error {
	if len(c.found) == 0 {
		return nil
	}
	line := func(f Fault) int {
		n := 0
		if _, err := fmt.Sscanf(f.Origin, "line %d", &n); err != nil {
			return 1 << 30
		}
		return n
	}
	slices.SortStableFunc(c.found, func(a, b Fault) int { return line(a) - line(b) })
	return &Faults{File: file, List: c.found}
}

// origin returns where path was written. A value that is missing has the place
// of the nearest section around it.
func origin(origins map[string]string, path string) string {
	for path != "" {
		if o, ok := origins[path]; ok {
			return o
		}
		path = parent(path)
	}
	return ""
}

// parent cuts the last element: "a[0].b" to "a[0]" to "a" to "".
func parent(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

// below reports whether path is root or lies in it.
func below(path, root string) bool {
	rest, ok := strings.CutPrefix(path, root)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
