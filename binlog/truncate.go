package binlog

import (
	"bytes"

	"outbox-relay/binlog/event"
)

// countTruncate counts a TRUNCATE of a watched table among the changes that publish nothing. It reads the statement as people write it; one with
// comments in odd places goes uncounted, which changes nothing else.
func (r *Reader) countTruncate(q event.Query) {
	rest, ok := word(q.Text, "TRUNCATE")
	if !ok {
		return
	}
	if after, ok := word(rest, "TABLE"); ok {
		rest = after
	}
	schema := q.Schema
	name, rest := identifier(rest)
	if len(rest) > 0 && rest[0] == '.' {
		schema = name
		name, _ = identifier(rest[1:])
	}
	if t := r.watched.find(schema, name); t != nil {
		r.metrics.ignored.WithLabelValues(r.metrics.tables.Of(t.name.String()), "truncate").Inc()
	}
}

// word takes a keyword and the blanks behind it off the text.
func word(text []byte, upper string) (rest []byte, ok bool) {
	n := len(upper)
	if len(text) <= n || !bytes.EqualFold(text[:n], []byte(upper)) || !isBlank(text[n]) && text[n] != '`' {
		return text, false
	}
	return bytes.TrimLeft(text[n:], " \t\r\n"), true
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// identifier takes a name, in backquotes or not, off the text.
func identifier(text []byte) (name, rest []byte) {
	if len(text) == 0 || text[0] != '`' {
		n := bytes.IndexAny(text, " \t\r\n.;/(")
		if n < 0 {
			n = len(text)
		}
		return text[:n], text[n:]
	}
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] != '`':
			name = append(name, text[i])
		case i+1 < len(text) && text[i+1] == '`':
			name = append(name, '`')
			i++
		default:
			return name, text[i+1:]
		}
	}
	return nil, nil
}
