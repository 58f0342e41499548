package event

import "bytes"

// CreatesWithRows tells whether text is a CREATE TABLE that takes rows from a query: CREATE TABLE … SELECT, … TABLE t, … VALUES ROW(…). In row
// format the server never writes one as a statement (its rows follow as row events); in statement format it is a single QUERY outside
// BEGIN, as DDL without rows is. The text is read word by word, without what stands in quotes and comments; the content of `/*! */` counts.
func CreatesWithRows(text []byte) bool {
	w := words{rest: text}
	if !foldEqual(w.next(), "CREATE") {
		return false
	}
	word := w.next()
	if !foldEqual(word, "TABLE") {
		return false // temporary tables are of no interest
	}
	for {
		word = w.next()
		switch {
		case word == nil:
			return false
		case foldEqual(word, "SELECT"), foldEqual(word, "TABLE"):
			return true
		case foldEqual(word, "VALUES"):
			if foldEqual(w.next(), "ROW") {
				return true // and not VALUES LESS THAN or VALUES IN
			}
		}
	}
}

// words cuts the bare words out of SQL.
type words struct{ rest []byte }

// next gives the next word, nil at the end.
func (w *words) next() []byte {
	for len(w.rest) > 0 {
		b := w.rest
		switch {
		case isWordByte(b[0]):
			n := 1
			for n < len(b) && isWordByte(b[n]) {
				n++
			}
			w.rest = b[n:]
			return b[:n]
		case b[0] == '\'' || b[0] == '"' || b[0] == '`':
			w.skipQuoted(b[0])
		case bytes.HasPrefix(b, []byte("/*!")):
			w.rest = bytes.TrimLeft(b[3:], "0123456789")
		case bytes.HasPrefix(b, []byte("/*")):
			w.skipBehind([]byte("*/"), 2)
		case b[0] == '#', bytes.HasPrefix(b, []byte("--")):
			w.skipBehind([]byte("\n"), 1)
		default:
			w.rest = b[1:]
		}
	}
	return nil
}

// isWordByte takes bytes beyond ASCII for letters, as the server does in names.
func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

// skipQuoted skips what begins with a quote. A doubled quote is two pieces that follow each other, which comes to the same.
func (w *words) skipQuoted(quote byte) {
	for i := 1; i < len(w.rest); i++ {
		switch {
		case w.rest[i] == '\\' && quote != '`':
			i++
		case w.rest[i] == quote:
			w.rest = w.rest[i+1:]
			return
		}
	}
	w.rest = nil
}

// skipBehind skips to the end of the mark, which is looked for behind from.
func (w *words) skipBehind(mark []byte, from int) {
	at := bytes.Index(w.rest[from:], mark)
	if at < 0 {
		w.rest = nil
		return
	}
	w.rest = w.rest[from+at+len(mark):]
}
