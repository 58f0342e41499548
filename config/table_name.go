package config

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// TableName is a table with its schema, as MySQL spells them, unquoted. With a %
// in one of them, which is any run of characters, it is a pattern and stands for
// all tables that match; _ is itself.
type TableName struct {
	Schema, Table string
}

// IsPattern tells whether the name stands for all tables that match it.
func (n TableName) IsPattern() bool { return strings.Contains(n.Schema+n.Table, "%") }

// UnmarshalText parses schema.table. A part in backquotes may hold any
// character, a backquote doubled; other parts may not hold dots, quotes or
// white space at their ends.
func (n *TableName) UnmarshalText(text []byte) error {
	schema, rest, err := namePart(string(text))
	if err != nil {
		return err
	}
	rest, ok := strings.CutPrefix(rest, ".")
	if !ok {
		return &valueError{fmt.Sprintf("%q lacks a schema", text), "write schema.table"}
	}
	table, rest, err := namePart(rest)
	if err != nil {
		return err
	}
	if rest != "" {
		return &valueError{fmt.Sprintf("%q has more than two parts", text), "write schema.table, a part with a dot in backquotes"}
	}
	*n = TableName{Schema: schema, Table: table}
	return nil
}

// namePart cuts one identifier off the front of s.
func namePart(s string) (name, rest string, err error) {
	if strings.HasPrefix(s, "`") {
		name, rest, err = quotedPart(s[1:])
	} else {
		end := strings.IndexByte(s, '.')
		if end < 0 {
			end = len(s)
		}
		name, rest = s[:end], s[end:]
		switch {
		case strings.ContainsAny(name, "`\"'"):
			err = &valueError{fmt.Sprintf("%q holds a quote", name), "put the whole part in backquotes, a backquote doubled"}
		case strings.TrimSpace(name) != name:
			err = fmt.Errorf("%q begins or ends with white space", name)
		}
	}
	switch {
	case err != nil:
		return "", "", err
	case name == "":
		return "", "", &valueError{"a part of the name is empty", "write schema.table"}
	case utf8.RuneCountInString(name) > 64:
		return "", "", fmt.Errorf("%q is longer than the 64 characters MySQL allows", name)
	}
	return name, rest, nil
}

func quotedPart(s string) (name, rest string, err error) {
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '`')
		if i < 0 {
			return "", "", errors.New("a backquote is not closed")
		}
		b.WriteString(s[:i])
		if s = s[i+1:]; !strings.HasPrefix(s, "`") {
			return b.String(), s, nil
		}
		b.WriteByte('`')
		s = s[1:]
	}
}

// String renders the name so that UnmarshalText reads it back.
func (n TableName) String() string { return quotePart(n.Schema) + "." + quotePart(n.Table) }

// MarshalText renders as String does.
func (n TableName) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

func quotePart(s string) string {
	if s != "" && !strings.ContainsAny(s, ".`\"' \t") && strings.TrimSpace(s) == s {
		return s
	}
	return "`" + strings.ReplaceAll(s, "`", "``") + "`"
}
