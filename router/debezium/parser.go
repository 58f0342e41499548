package debezium

import (
	"math"
	"strconv"
	"unicode/utf8"
)

// Limits of Jackson. A document beyond them is not expanded.
const (
	maxNumber = 1000
	maxDepth  = 1000
	maxName   = 50_000
)

// maxNodes bounds the memory of one document, about 150 MiB: one with more values is not expanded, where Debezium would try.
const maxNodes = 1 << 20

// parser reads JSON as Jackson does, from a text that begins with a brace or a bracket. What stands behind the document is ignored.
type parser struct {
	text  []byte
	at    int
	nodes int
}

// forget lets go of the text.
func (p *parser) forget() { p.text = nil }

// expand parses a payload and infers its schema. root is nil for a payload that is published as it is: other text, a damaged document, or
// one that the schemas of Kafka Connect cannot hold. An array is returned only if it is empty.
func (p *parser) expand(text []byte, keepNull bool) (root *node, s *schema) {
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return nil, nil
	}
	*p = parser{text: text}
	if root = p.value(0); root == nil {
		return nil, nil
	}
	if root.kind == nodeArray {
		if len(root.members) > 0 {
			return nil, nil
		}
		return root, nil
	}
	in := inference{keepNull: keepNull, room: 1<<20 + 4*len(text)}
	s, ok := in.of(payloadField, root)
	if !ok || !in.fits(root, s) {
		return nil, nil
	}
	return root, s
}

func (p *parser) blanks() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

func (p *parser) peek() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

// value reads one value, nil for damage.
func (p *parser) value(depth int) *node {
	if p.nodes++; p.nodes > maxNodes {
		return nil
	}
	p.blanks()
	switch c := p.peek(); {
	case c == '{' && depth < maxDepth:
		return p.object(depth)
	case c == '[' && depth < maxDepth:
		return p.array(depth)
	case c == '"':
		text, ok := p.string()
		if !ok {
			return nil
		}
		return &node{kind: nodeString, text: text}
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	for _, w := range words {
		if len(p.text)-p.at >= len(w.text) && string(p.text[p.at:p.at+len(w.text)]) == w.text {
			p.at += len(w.text)
			return &node{kind: w.kind, integer: w.value}
		}
	}
	return nil
}

var words = []struct {
	text  string
	kind  nodeKind
	value int64
}{{"null", nodeNull, 0}, {"true", nodeBool, 1}, {"false", nodeBool, 0}}

func (p *parser) array(depth int) *node {
	n := &node{kind: nodeArray}
	p.at++
	if p.blanks(); p.peek() == ']' {
		p.at++
		return n
	}
	for {
		m := p.value(depth + 1)
		if m == nil {
			return nil
		}
		n.members = append(n.members, m)
		switch p.blanks(); p.peek() {
		case ',':
			p.at++
		case ']':
			p.at++
			return n
		default:
			return nil
		}
	}
}

// object reads an object. Of members with one name the last counts, at the place of the first.
func (p *parser) object(depth int) *node {
	n := &node{kind: nodeObject}
	p.at++
	if p.blanks(); p.peek() == '}' {
		p.at++
		return n
	}
	var known places
	for {
		p.blanks()
		if p.peek() != '"' {
			return nil
		}
		name, ok := p.string()
		if p.blanks(); !ok || len(name) > maxName || p.peek() != ':' {
			return nil
		}
		p.at++
		m := p.value(depth + 1)
		if m == nil {
			return nil
		}
		m.name = name
		if i := known.find(n.members, name); i >= 0 {
			n.members[i] = m
		} else {
			n.members = append(n.members, m)
		}
		switch p.blanks(); p.peek() {
		case ',':
			p.at++
		case '}':
			p.at++
			return n
		default:
			return nil
		}
	}
}

// places finds members of an object that grows, by a map once there are many.
type places struct{ byName map[string]int }

func (p *places) find(members []*node, name []byte) int {
	const few = 16
	if len(members) <= few {
		for i, m := range members {
			if string(m.name) == string(name) {
				return i
			}
		}
		return -1
	}
	if p.byName == nil {
		p.byName = make(map[string]int, 2*few)
	}
	for i := len(p.byName); i < len(members); i++ {
		p.byName[string(members[i].name)] = i
	}
	if i, ok := p.byName[string(name)]; ok {
		return i
	}
	return -1
}

// string reads a string without its quotes, undoing the escapes.
func (p *parser) string() ([]byte, bool) {
	p.at++
	from := p.at
	for ; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; {
		case c == '"':
			p.at++
			return p.text[from : p.at-1], true
		case c == '\\':
			return p.escaped(append([]byte(nil), p.text[from:p.at]...))
		case c < ' ':
			return nil, false
		}
	}
	return nil, false
}

// escaped goes on with a string of which out has been read, at its first escape.
func (p *parser) escaped(out []byte) ([]byte, bool) {
	for p.at < len(p.text) {
		c := p.text[p.at]
		p.at++
		switch {
		case c == '"':
			return out, true
		case c < ' ':
			return nil, false
		case c != '\\':
			out = append(out, c)
			continue
		}
		c = p.peek()
		p.at++
		switch c {
		case '"', '\\', '/':
			out = append(out, c)
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r, ok := p.unit()
			if ok && r >= 0xd800 && r < 0xe000 { // half of a pair alone cannot be written as UTF-8
				var low rune
				if ok = r < 0xdc00 && p.peek() == '\\'; ok {
					p.at++
					if ok = p.peek() == 'u'; ok {
						p.at++
						low, ok = p.unit()
						ok = ok && low >= 0xdc00 && low < 0xe000
					}
				}
				r = 0x10000 + (r-0xd800)<<10 + (low - 0xdc00)
			}
			if !ok {
				return nil, false
			}
			out = utf8.AppendRune(out, r)
		default:
			return nil, false
		}
	}
	return nil, false
}

// unit reads four hexadecimal digits.
func (p *parser) unit() (rune, bool) {
	if len(p.text)-p.at < 4 {
		return 0, false
	}
	n, err := strconv.ParseUint(string(p.text[p.at:p.at+4]), 16, 16)
	p.at += 4
	return rune(n), err == nil
}

// number reads a number by JSON's grammar.
func (p *parser) number() *node {
	from, count := p.at, 0
	digits := func() bool {
		start := p.at
		for p.peek() >= '0' && p.peek() <= '9' {
			p.at++
		}
		count += p.at - start
		return p.at > start
	}
	if p.peek() == '-' {
		p.at++
	}
	first := p.peek()
	start := p.at
	if !digits() || first == '0' && p.at-start > 1 {
		return nil
	}
	whole := true
	if p.peek() == '.' {
		p.at++
		whole = false
		if !digits() {
			return nil
		}
	}
	if p.peek() == 'e' || p.peek() == 'E' {
		p.at++
		whole = false
		if p.peek() == '+' || p.peek() == '-' {
			p.at++
		}
		if !digits() {
			return nil
		}
	}
	if count > maxNumber {
		return nil
	}
	text := string(p.text[from:p.at])
	if !whole {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsInf(f, 0) {
			return nil
		}
		return &node{kind: nodeDouble, double: f}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return &node{kind: nodeBig}
	case n >= math.MinInt32 && n <= math.MaxInt32:
		return &node{kind: nodeInt, integer: n}
	}
	return &node{kind: nodeLong, integer: n}
}
