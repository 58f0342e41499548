// Package wildcard compares names of databases and tables with patterns, in which % stands for any run of characters, none included. All other
// characters stand for themselves, _ too: names are full of them.
package wildcard

import (
	"strings"
	"unicode/utf8"
)

// Any is the character that stands for any run of others.
const Any = '%'

// text is a name or a pattern.
type text interface{ ~string | ~[]byte }

// Is tells whether s is a pattern and no plain name.
func Is(s string) bool { return strings.IndexByte(s, Any) >= 0 }

// Match tells whether name is one of the pattern's. With fold, case does not matter. It allocates nothing but with fold for names beyond ASCII: it runs for
// every table map of a server.
func Match[P, N text](pattern P, name N, fold bool) bool {
	if fold && !(ascii(pattern) && ascii(name)) {
		return match(strings.ToLower(string(pattern)), strings.ToLower(string(name)), false)
	}
	return match(pattern, name, fold)
}

// match goes back to the last % whenever what follows it does not fit, and lets it stand for one byte more. Cutting inside a character does no harm: the
// bytes of a whole one never fit inside another.
func match[P, N text](pattern P, name N, fold bool) bool {
	p, n := 0, 0
	star, from := -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == Any:
			star, from = p, n
			p++
		case p < len(pattern) && same(pattern[p], name[n], fold):
			p++
			n++
		case star >= 0:
			from++
			p, n = star+1, from
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == Any {
		p++
	}
	return p == len(pattern)
}

func same(a, b byte, fold bool) bool {
	return a == b || fold && lower(a) == lower(b)
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

func ascii[T text](s T) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
