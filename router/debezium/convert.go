package debezium

import (
	"encoding/base64"
	"unicode/utf8"
)

// datum is a value of Kafka Connect.
type datum struct {
	kind datumKind
	// text is the text of isText and isToken, the bytes of isBytes, and for isDecimal the number as Java prints it.
	text []byte
	// unscaled is the number of isDecimal without its point, as big-endian two's complement.
	unscaled []byte
	// root and schema are the structure of isStruct.
	root   *node
	schema *schema
}

type datumKind uint8

const (
	isNull    datumKind = iota
	isText              // a string
	isToken             // a number or a boolean: the same text everywhere
	isBytes             // bytes
	isDecimal           // BigDecimal
	isStruct            // an expanded document
)

// converter makes bytes of a datum, as one of Kafka Connect's converters does.
type converter uint8

const (
	asText   converter = iota // StringConverter: Java's toString
	asSimple                  // SimpleHeaderConverter
	asJSON                    // JsonConverter, schemas.enable=false
	asSchema                  // JsonConverter, schemas.enable=true
	asRaw                     // BinaryDataConverter
)

var converters = map[string]converter{"string": asText, "simple": asSimple, "json": asJSON, "json-with-schema": asSchema, "binary": asRaw}

// append appends d, or tells that it is null. schema is the text of its schema without the closing brace; an empty one is null.
func (c converter) append(dst []byte, schema string, d *datum) (out []byte, null bool) {
	switch c {
	case asJSON:
		return appendJSON(dst, d), false
	case asSchema:
		dst = append(dst, `{"schema":`...)
		switch {
		case d.kind == isStruct:
			dst = append(d.schema.append(dst), '}')
		case schema == "":
			dst = append(dst, "null"...)
		default:
			dst = append(append(dst, schema...), '}')
		}
		return append(appendJSON(append(dst, `,"payload":`...), d), '}'), false
	}
	if d.kind == isNull {
		return dst, true
	}
	if c == asSimple && d.kind == isBytes {
		return base64.StdEncoding.AppendEncode(dst, d.text), false
	}
	return appendText(dst, d), false
}

// appendText appends what Java's toString gives. For bytes that is the name of an object, so Bind refuses them.
func appendText(dst []byte, d *datum) []byte {
	if d.kind == isStruct {
		return d.root.appendText(dst, d.schema)
	}
	return append(dst, d.text...)
}

// appendJSON appends what the JsonConverter gives, without a schema.
func appendJSON(dst []byte, d *datum) []byte {
	switch d.kind {
	case isNull:
		return append(dst, "null"...)
	case isText:
		return appendJSONString(dst, d.text)
	case isBytes:
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), d.text), '"')
	case isDecimal:
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), d.unscaled), '"')
	case isStruct:
		return d.root.appendJSON(dst, d.schema)
	}
	return append(dst, d.text...)
}

// appendJSONString appends s as Jackson writes it: control characters with upper-case digits, characters beyond the basic plane as two
// escapes, all others as they are.
func appendJSONString(dst, s []byte) []byte {
	const hex = "0123456789ABCDEF"
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < 0xf0 {
			i++
			continue
		}
		if c < 0xf0 {
			dst = append(dst, s[from:i]...)
			if e := shortEscape[c]; e != 0 {
				dst = append(dst, '\\', e)
			} else {
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
			i++
			from = i
			continue
		}
		r, size := utf8.DecodeRune(s[i:])
		if size == 4 {
			dst = append(dst, s[from:i]...)
			r -= 0x10000
			for _, u := range [2]rune{0xd800 + r>>10, 0xdc00 + r&0x3ff} {
				dst = append(dst, '\\', 'u', hex[u>>12], hex[u>>8&15], hex[u>>4&15], hex[u&15])
			}
			from = i + size
		}
		i += size
	}
	return append(append(dst, s[from:]...), '"')
}

// shortEscape holds what stands behind the backslash where it is one character.
var shortEscape = [256]byte{'\b': 'b', '\t': 't', '\n': 'n', '\f': 'f', '\r': 'r', '"': '"', '\\': '\\'}

// blank tells whether nothing is left of s in Java's String.trim.
func blank(s []byte) bool {
	for _, c := range s {
		if c > ' ' {
			return false
		}
	}
	return true
}
