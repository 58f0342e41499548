package config

import (
	"encoding"
	"reflect"
	"strings"
	"time"
)

// The structs of config.go are the schema: key names and choices come from
// their tags, the kind of a value from its Go type.

// field is one key of a section.
type field struct {
	name   string
	index  []int
	typ    reflect.Type
	choice []string
}

var (
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
	durationType = reflect.TypeFor[time.Duration]()
)

// fieldsOf lists the keys of a section in the order of its struct.
func fieldsOf(t reflect.Type) []field {
	var all []field
	for f := range t.Fields() {
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case !f.IsExported() || name == "-":
		case option == "inline":
			for _, in := range fieldsOf(f.Type) {
				in.index = append([]int{f.Index[0]}, in.index...)
				all = append(all, in)
			}
		default:
			all = append(all, field{name: name, index: f.Index, typ: f.Type, choice: strings.Fields(f.Tag.Get("oneof"))})
		}
	}
	return all
}

func fieldNamed(t reflect.Type, name string) (field, bool) {
	for _, f := range fieldsOf(t) {
		if f.name == name {
			return f, true
		}
	}
	return field{}, false
}

// isSection reports whether a value of t is written as a mapping of known keys.
func isSection(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(textType)
}

// isSectionList reports whether a value of t is a list of sections.
func isSectionList(t reflect.Type) bool { return t.Kind() == reflect.Slice && isSection(t.Elem()) }

// isList reports whether a value of t is a list of scalars.
func isList(t reflect.Type) bool { return t.Kind() == reflect.Slice && !isSection(t.Elem()) }

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// otherNames are what people call keys elsewhere.
var otherNames = map[string]string{
	"port": "address", "host": "address", "hostname": "address", "addr": "address", "url": "address", "dsn": "address",
	"listen": "address", "username": "user", "pass": "password", "passwd": "password", "secret": "password",
	"servers": "brokers", "bootstrap": "brokers", "bootstrap_servers": "brokers", "position": "start", "gtid": "start",
	"file": "path", "dir": "path", "batch_linger": "linger", "dead_letter_topic": "topic", "payload": "value",
	"mode": "policy", "mysql": "source", "database": "source", "outbox": "tables", "rules": "tables", "logging": "log",
}

// suggest returns a hint for a key that section t does not have, or "".
func suggest(t reflect.Type, name string) string {
	plain := strings.ToLower(strings.NewReplacer("-", "_", " ", "_").Replace(name))
	best, bestDistance := "", len(plain)/3+2
	for _, f := range fieldsOf(t) {
		if d := distance(plain, f.name); d < bestDistance {
			best, bestDistance = f.name, d
		}
		if otherNames[plain] == f.name && bestDistance > 1 {
			best, bestDistance = f.name, 1
		}
	}
	if best == "" {
		best = elsewhere(reflect.TypeFor[Config](), "", plain)
	}
	if best == "" {
		return ""
	}
	return `did you mean "` + best + `"?`
}

// elsewhere returns the one path at which a key of that name exists, or "" if
// there is none or more than one.
func elsewhere(t reflect.Type, path, name string) string {
	found := ""
	for _, f := range fieldsOf(t) {
		p := join(path, f.name)
		hit := ""
		switch {
		case f.name == name:
			hit = p
		case isSection(f.typ):
			hit = elsewhere(f.typ, p, name)
		}
		if hit != "" && found != "" {
			return ""
		}
		if hit != "" {
			found = hit
		}
	}
	return found
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
