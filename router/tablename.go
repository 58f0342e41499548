package router

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"outbox-relay/binlog/wildcard"
)

// TableName names a table of the source server, or as a pattern all those that match it: % in it, also in backquotes, is any run of characters, and _ is
// itself. Both parts are as the server writes them, without quotes.
type TableName struct {
	Schema string
	Name   string
}

// maxIdentifier is the longest name of a schema or table in MySQL, in characters.
const maxIdentifier = 64

// ParseTableName reads `schema.table`. A part that holds a dot, a quote or a blank stands in backquotes, and a backquote
// inside is doubled: "`my.app`.`outbox events`". Errors name what is wrong, without the text itself.
func ParseTableName(text string) (TableName, error) {
	schema, rest, err := cutIdentifier(text)
	if err != nil {
		return TableName{}, fmt.Errorf("schema: %w", err)
	}
	rest, found := strings.CutPrefix(rest, ".")
	if !found {
		return TableName{}, errors.New("a table is named as schema.table")
	}
	name, rest, err := cutIdentifier(rest)
	if err != nil {
		return TableName{}, fmt.Errorf("table: %w", err)
	}
	if rest != "" {
		return TableName{}, errors.New("text after schema.table: a part that contains a dot stands in backquotes")
	}
	return TableName{Schema: schema, Name: name}, nil
}

// cutIdentifier takes one name, quoted or not, from the start of text and returns what follows it.
func cutIdentifier(text string) (name, rest string, err error) {
	if strings.HasPrefix(text, "`") {
		name, rest, err = cutQuoted(text[1:])
	} else {
		end := strings.IndexByte(text, '.')
		if end < 0 {
			end = len(text)
		}
		name, rest = text[:end], text[end:]
		err = checkPlain(name)
	}
	if err != nil {
		return "", "", err
	}
	switch {
	case name == "":
		return "", "", errors.New("empty name")
	case !utf8.ValidString(name):
		return "", "", errors.New("not valid UTF-8")
	case utf8.RuneCountInString(name) > maxIdentifier:
		return "", "", fmt.Errorf("longer than %d characters", maxIdentifier)
	case strings.IndexByte(name, 0) >= 0:
		return "", "", errors.New("contains a zero byte")
	case strings.HasSuffix(name, " "):
		return "", "", errors.New("ends with a blank, which the server does not allow")
	}
	return name, rest, nil
}

// cutQuoted reads up to the closing backquote; the opening one is gone already.
func cutQuoted(text string) (name, rest string, err error) {
	var b strings.Builder
	for {
		end := strings.IndexByte(text, '`')
		if end < 0 {
			return "", "", errors.New("backquote without its partner")
		}
		b.WriteString(text[:end])
		text = text[end+1:]
		if !strings.HasPrefix(text, "`") {
			return b.String(), text, nil
		}
		b.WriteByte('`')
		text = text[1:]
	}
}

func checkPlain(name string) error {
	for _, c := range name {
		if needsQuotes(c) {
			return fmt.Errorf("a name that contains %q stands in backquotes", c)
		}
	}
	return nil
}

func needsQuotes(c rune) bool {
	return c <= ' ' || c == 0x7f || strings.ContainsRune(".`'\"", c)
}

// String gives the name as [ParseTableName] reads it, with backquotes only where they are needed.
func (t TableName) String() string {
	return quoteIdentifier(t.Schema) + "." + quoteIdentifier(t.Name)
}

func quoteIdentifier(name string) string {
	if name != "" && strings.IndexFunc(name, needsQuotes) < 0 {
		return name
	}
	return "`" + strings.ReplaceAll(name, "`", "``") + "`"
}

// key is equal for names that mean the same table on the server.
func (t TableName) key(foldCase bool) TableName {
	if !foldCase {
		return t
	}
	return TableName{Schema: strings.ToLower(t.Schema), Name: strings.ToLower(t.Name)}
}

// IsPattern tells whether the name stands for all tables that match it.
func (t TableName) IsPattern() bool { return wildcard.Is(t.Schema) || wildcard.Is(t.Name) }

// Covers tells whether every table that other stands for is one of t's: other is a table that t matches, or a pattern that is nowhere wider.
func (t TableName) Covers(other TableName, fold bool) bool {
	return wildcard.Match(t.Schema, other.Schema, fold) && wildcard.Match(t.Name, other.Name, fold)
}

// Watches tells whether a table, or all that a pattern stands for, is among the tables and patterns of names, all as String gives them.
func Watches(names []string, table string) bool {
	t, err := ParseTableName(table)
	return slices.ContainsFunc(names, func(name string) bool {
		n, nerr := ParseTableName(name)
		return name == table || err == nil && nerr == nil && n.Covers(t, false)
	})
}
