package config

import (
	"reflect"
	"slices"
)

// Key is a key that --set and the environment can give.
type Key struct {
	Path    string   // kafka.linger
	Choices []string // of those that have some; true and false for switches
}

// Keys lists the keys that --set and the environment can give, in the order of the file: scalars and lists of scalars outside lists of sections.
func Keys() []Key { return keysOf("", reflect.TypeFor[Config]()) }

func keysOf(path string, t reflect.Type) (keys []Key) {
	for _, f := range fieldsOf(t) {
		at := join(path, f.name)
		switch {
		case isSection(f.typ):
			keys = append(keys, keysOf(at, f.typ)...)
		case isSectionList(f.typ) || f.typ.Kind() == reflect.Map:
		case f.typ.Kind() == reflect.Bool:
			keys = append(keys, Key{at, []string{"true", "false"}})
		default:
			keys = append(keys, Key{at, slices.Clone(f.choice)})
		}
	}
	return keys
}
