package router

import (
	"bytes"
	"errors"
	"unicode/utf16"
	"unicode/utf8"
)

var (
	errNotObject   = errors.New("the column holds no JSON object")
	errBrokenJSON  = errors.New("the column's JSON text is damaged")
	errLoneEscaped = errors.New("a \\u escape is half of a surrogate pair")
)

// objectReader walks the members of one JSON object as the server prints it. It is strict about what it has to understand (names, string
// values, where a member ends) and passes on everything else as it is.
type objectReader struct {
	rest  []byte
	first bool
}

// member is one name with its value, both as they stand in the text: the name without its quotes, a string value with them.
type member struct {
	name, value []byte
}

func readObject(text []byte) (objectReader, error) {
	text = skipBlanks(text)
	if len(text) == 0 || text[0] != '{' {
		return objectReader{}, errNotObject
	}
	return objectReader{rest: text[1:], first: true}, nil
}

// next gives the next member, or more = false after the last.
func (o *objectReader) next() (m member, more bool, err error) {
	b := skipBlanks(o.rest)
	if len(b) == 0 {
		return member{}, false, errBrokenJSON
	}
	if b[0] == '}' {
		// After a comma the code below wants a name, so `{"a": 1,}` does not come here. Nothing may follow the object.
		if len(skipBlanks(b[1:])) > 0 {
			return member{}, false, errBrokenJSON
		}
		return member{}, false, nil
	}
	if !o.first {
		if b[0] != ',' {
			return member{}, false, errBrokenJSON
		}
		b = skipBlanks(b[1:])
	}
	o.first = false
	end := stringEnd(b)
	if end < 0 {
		return member{}, false, errBrokenJSON
	}
	m.name, b = b[1:end-1], skipBlanks(b[end:])
	if len(b) == 0 || b[0] != ':' {
		return member{}, false, errBrokenJSON
	}
	b = skipBlanks(b[1:])
	end = valueEnd(b)
	if end <= 0 {
		return member{}, false, errBrokenJSON
	}
	m.value, o.rest = b[:end], b[end:]
	return m, true, nil
}

func skipBlanks(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\n' || b[0] == '\t' || b[0] == '\r') {
		b = b[1:]
	}
	return b
}

// stringEnd gives the length of the string literal at the start of b with its quotes, or -1.
func stringEnd(b []byte) int {
	if len(b) == 0 || b[0] != '"' {
		return -1
	}
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

// valueEnd gives the length of the value at the start of b, or -1.
func valueEnd(b []byte) int {
	if len(b) == 0 {
		return -1
	}
	switch b[0] {
	case '"':
		return stringEnd(b)
	case '{', '[':
		return containerEnd(b)
	}
	return bytes.IndexAny(b, ",}] \n\t\r")
}

// containerEnd counts brackets. It does not tell the two kinds apart: what is inside goes on as the server wrote it.
func containerEnd(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			end := stringEnd(b[i:])
			if end < 0 {
				return -1
			}
			i += end - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// appendString adds the text of a string literal's inside: escapes are resolved.
func appendString(dst, inside []byte) ([]byte, error) {
	for i := 0; i < len(inside); i++ {
		c := inside[i]
		if c != '\\' {
			dst = append(dst, c)
			continue
		}
		i++
		if i == len(inside) {
			return dst, errBrokenJSON
		}
		switch c = inside[i]; c {
		case '"', '\\', '/':
			dst = append(dst, c)
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, used, err := escapedRune(inside[i-1:])
			if err != nil {
				return dst, err
			}
			dst = utf8.AppendRune(dst, r)
			i += used - 2
		default:
			return dst, errBrokenJSON
		}
	}
	return dst, nil
}

// escapedRune reads `\uXXXX`, or two of them when they are a surrogate pair, and gives how many bytes it used.
func escapedRune(b []byte) (r rune, used int, err error) {
	r, ok := escapedUnit(b)
	if !ok {
		return 0, 0, errBrokenJSON
	}
	if !utf16.IsSurrogate(r) {
		return r, 6, nil
	}
	low, ok := escapedUnit(b[6:])
	if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
		return 0, 0, errLoneEscaped
	}
	return r, 12, nil
}

func escapedUnit(b []byte) (rune, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
