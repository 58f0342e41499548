package debezium

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

const defaultRegex = `(?<routedByValue>.*)`

// pattern is a Java regular expression with its replacement.
type pattern struct {
	whole *regexp.Regexp // decides whether the value matches
	first *regexp.Regexp // finds what is replaced
	parts []replacePart
	all   bool // the pattern is the default one: each group is the whole value
}

// replacePart is a literal where group is -1.
type replacePart struct {
	literal string
	group   int
}

// compilePattern compiles a Java pattern. Patterns that the engine of this program lacks, or reads otherwise than Java, are refused.
func compilePattern(java string) (*pattern, error) {
	if err := sameInGo(java); err != nil {
		return nil, err
	}
	p := &pattern{all: java == defaultRegex}
	var err error
	if p.first, err = regexp.Compile(java); err == nil {
		p.whole, err = regexp.Compile(`\A(?:` + java + `)\z`)
	}
	if err != nil {
		return nil, fmt.Errorf("the pattern cannot be used here, where there is no lookaround, backreference or possessive quantifier: %w", err)
	}
	return p, nil
}

// sameInGo finds what both engines read, but not alike.
func sameInGo(java string) error {
	inClass := false
	for i := 0; i < len(java); i++ {
		rest := java[i:]
		switch {
		case strings.HasPrefix(rest, `\Q`):
			end := strings.Index(rest, `\E`)
			if end < 0 {
				return nil
			}
			i += end + 1
		case java[i] == '\\':
			i++
		case inClass && java[i] == '[':
			return errors.New("the pattern has a character class inside a character class, which cannot be used here: write it as one class")
		case inClass && strings.HasPrefix(rest, "&&"):
			return errors.New("the pattern has an intersection of character classes (&&), which cannot be used here: write it as one class")
		case java[i] == '[':
			inClass = true
			if strings.HasPrefix(rest, "[^") {
				i++
			}
		case java[i] == ']':
			inClass = false
		case !inClass && strings.HasPrefix(rest, "(?") && flagged(rest[2:]):
			return errors.New("the pattern has the flag U, u, d or x, which cannot be used here")
		}
	}
	return nil
}

// flagged tells whether a group after `(?` sets a flag that Go does not have or gives another meaning.
func flagged(group string) bool {
	for i := range len(group) {
		switch group[i] {
		case 'U', 'u', 'd', 'x':
			return true
		case 'i', 'm', 's', '-':
		default:
			return false
		}
	}
	return false
}

// replaceWith reads Java's replacement: $1 and ${name} are groups, a backslash makes the next character plain.
func (p *pattern) replaceWith(text string) error {
	var literal []byte
	flush := func() {
		if len(literal) > 0 {
			p.parts = append(p.parts, replacePart{string(literal), -1})
			literal = nil
		}
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			literal = append(literal, text[i])
		case c == '\\':
			return errors.New("a backslash at the end has no character behind it")
		case c != '$':
			literal = append(literal, c)
		default:
			group, length, err := p.group(text[i+1:])
			if err != nil {
				return err
			}
			flush()
			p.parts = append(p.parts, replacePart{group: group})
			i += length
		}
	}
	flush()
	return nil
}

// group reads what stands behind a dollar sign and tells how long it is.
func (p *pattern) group(text string) (n, length int, err error) {
	if strings.HasPrefix(text, "{") {
		end := strings.IndexByte(text, '}')
		if end < 0 {
			return 0, 0, errors.New("${ without }")
		}
		name := text[1:end]
		if n = p.first.SubexpIndex(name); name == "" || n < 0 {
			return 0, 0, fmt.Errorf("the pattern has no group named %q", name)
		}
		return n, end + 1, nil
	}
	isDigit := func(i int) bool { return i < len(text) && text[i] >= '0' && text[i] <= '9' }
	if !isDigit(0) {
		return 0, 0, errors.New(`$ names no group: write \$ for a dollar sign`)
	}
	n, length = int(text[0]-'0'), 1
	if n > p.first.NumSubexp() {
		return 0, 0, fmt.Errorf("the pattern has no group %d", n)
	}
	// Java takes as many digits as still name a group.
	for isDigit(length) && n*10+int(text[length]-'0') <= p.first.NumSubexp() {
		n = n*10 + int(text[length]-'0')
		length++
	}
	return n, length, nil
}

// append appends what the value becomes: the first match replaced where the whole value matches, else the value itself.
func (p *pattern) append(dst, v []byte) []byte {
	if p.all && plain(v) {
		for _, part := range p.parts {
			if part.group < 0 {
				dst = append(dst, part.literal...)
			} else {
				dst = append(dst, v...)
			}
		}
		return dst
	}
	if !p.whole.Match(v) {
		return append(dst, v...)
	}
	at := p.first.FindSubmatchIndex(v)
	dst = append(dst, v[:at[0]]...)
	for _, part := range p.parts {
		if part.group < 0 {
			dst = append(dst, part.literal...)
		} else if from := at[2*part.group]; from >= 0 {
			dst = append(dst, v[from:at[2*part.group+1]]...)
		}
	}
	return append(dst, v[at[1]:]...)
}

// plain tells whether .* surely matches all of v; other bytes make no topic name.
func plain(v []byte) bool {
	for _, c := range v {
		if c < ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// topics is a pattern of what the replacement can give.
func (p *pattern) topics() string {
	var b strings.Builder
	b.WriteByte('^')
	for _, part := range p.parts {
		if part.group < 0 {
			b.WriteString(regexp.QuoteMeta(part.literal))
		} else {
			b.WriteString(".+")
		}
	}
	b.WriteByte('$')
	return b.String()
}
