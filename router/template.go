package router

import (
	"errors"
	"fmt"
	"strings"
)

// template is a compiled `text {column} {column|filter}`: literals and columns in turn.
type template struct {
	parts []part
}

// part is a literal, or a column when column is not empty.
type part struct {
	literal string
	column  string
	filter  filter
}

// parseTemplate compiles text. `{{` and `}}` stand for single braces. A column name that holds a brace, a bar or a backquote stands in
// backquotes, with a backquote inside doubled; blanks around name and filter do not count.
func parseTemplate(text string) (template, error) {
	var t template
	var literal strings.Builder
	for rest := text; rest != ""; {
		at := strings.IndexAny(rest, "{}")
		if at < 0 {
			literal.WriteString(rest)
			break
		}
		literal.WriteString(rest[:at])
		brace := rest[at]
		rest = rest[at+1:]
		if rest != "" && rest[0] == brace {
			literal.WriteByte(brace)
			rest = rest[1:]
			continue
		}
		if brace == '}' {
			return template{}, errors.New("} without {: a brace that is meant as text is doubled")
		}
		column, after, err := parseReference(rest)
		if err != nil {
			return template{}, err
		}
		if literal.Len() > 0 {
			t.parts = append(t.parts, part{literal: literal.String()})
			literal.Reset()
		}
		t.parts = append(t.parts, column)
		rest = after
	}
	if literal.Len() > 0 {
		t.parts = append(t.parts, part{literal: literal.String()})
	}
	return t, nil
}

// parseReference reads `column}` or `column|filter}`; the opening brace is gone already.
func parseReference(text string) (p part, rest string, err error) {
	text = strings.TrimLeft(text, " ")
	if strings.HasPrefix(text, "`") {
		p.column, rest, err = cutQuoted(text[1:])
		if err != nil {
			return part{}, "", err
		}
		rest = strings.TrimLeft(rest, " ")
	} else {
		end := strings.IndexAny(text, "{}|`")
		if end < 0 {
			return part{}, "", errors.New("{ without }: a brace that is meant as text is doubled")
		}
		p.column, rest = strings.TrimRight(text[:end], " "), text[end:]
	}
	if p.column == "" {
		return part{}, "", errors.New("{} names no column")
	}
	if strings.HasPrefix(rest, "|") {
		end := strings.IndexByte(rest, '}')
		if end < 0 {
			return part{}, "", errors.New("{ without }: a brace that is meant as text is doubled")
		}
		p.filter, err = parseFilter(strings.Trim(rest[1:end], " "))
		if err != nil {
			return part{}, "", err
		}
		rest = rest[end:]
	}
	if !strings.HasPrefix(rest, "}") {
		return part{}, "", fmt.Errorf("after column %s: } is missing", quoteIdentifier(p.column))
	}
	return p, rest[1:], nil
}

// String gives the text that compiles to t.
func (t template) String() string {
	escape := strings.NewReplacer("{", "{{", "}", "}}")
	var b strings.Builder
	for _, p := range t.parts {
		if p.column == "" {
			b.WriteString(escape.Replace(p.literal))
			continue
		}
		b.WriteByte('{')
		if strings.ContainsAny(p.column, "{}|`") || strings.Trim(p.column, " ") != p.column {
			b.WriteString(quoteColumn(p.column))
		} else {
			b.WriteString(p.column)
		}
		if p.filter != filterNone {
			b.WriteByte('|')
			b.WriteString(p.filter.String())
		}
		b.WriteByte('}')
	}
	return b.String()
}

func quoteColumn(name string) string {
	return "`" + strings.ReplaceAll(name, "`", "``") + "`"
}

// single tells whether t is one column and nothing else, which is the form whose NULL stays a null.
func (t template) single() bool {
	return len(t.parts) == 1 && t.parts[0].column != ""
}

// literalOnly gives the text of a template without columns.
func (t template) literalOnly() (string, bool) {
	switch {
	case len(t.parts) == 0:
		return "", true
	case len(t.parts) == 1 && t.parts[0].column == "":
		return t.parts[0].literal, true
	}
	return "", false
}
