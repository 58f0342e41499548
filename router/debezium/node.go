package debezium

import (
	"strconv"

	"outbox-relay/binlog/value/scalar"
)

// node is a value of a parsed document.
type node struct {
	kind    nodeKind
	integer int64
	double  float64
	name    []byte // as a member of an object
	text    []byte // of a string
	members []*node
}

type nodeKind uint8

const (
	nodeNull nodeKind = iota
	nodeBool
	nodeInt  // fits into 32 bits
	nodeLong // fits into 64 bits
	nodeBig  // a larger integer
	nodeDouble
	nodeString
	nodeArray
	nodeObject
)

// member finds a member of an object. It begins at next and leaves there the place behind what it found: fields are asked for in the order
// of the members.
func (n *node) member(name []byte, next *int) *node {
	for range n.members {
		if *next >= len(n.members) {
			*next = 0
		}
		m := n.members[*next]
		*next++
		if string(m.name) == string(name) {
			return m
		}
	}
	return nil
}

// appendJSON appends what the JsonConverter makes of the value. Fields of the schema that an object lacks are null.
func (n *node) appendJSON(dst []byte, s *schema) []byte {
	switch n.kind {
	case nodeString:
		return appendJSONString(dst, n.text)
	case nodeArray:
		dst = append(dst, '[')
		for i, m := range n.members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = m.appendJSON(dst, s.items)
		}
		return append(dst, ']')
	case nodeObject:
		dst = append(dst, '{')
		next := 0
		for i := range s.fields {
			f := &s.fields[i]
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendJSONString(dst, f.name), ':')
			if m := n.member(f.name, &next); m != nil {
				dst = m.appendJSON(dst, f.schema)
			} else {
				dst = append(dst, "null"...)
			}
		}
		return append(dst, '}')
	}
	return n.appendScalar(dst)
}

// appendText appends what Java's toString gives for the value. Fields that are null are left out.
func (n *node) appendText(dst []byte, s *schema) []byte {
	switch n.kind {
	case nodeString:
		return append(dst, n.text...)
	case nodeArray:
		dst = append(dst, '[')
		for i, m := range n.members {
			if i > 0 {
				dst = append(dst, ", "...)
			}
			dst = m.appendText(dst, s.items)
		}
		return append(dst, ']')
	case nodeObject:
		dst = append(dst, "Struct{"...)
		first, next := true, 0
		for i := range s.fields {
			f := &s.fields[i]
			m := n.member(f.name, &next)
			if m == nil || m.kind == nodeNull {
				continue
			}
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = m.appendText(append(append(dst, f.name...), '='), f.schema)
		}
		return append(dst, '}')
	}
	return n.appendScalar(dst)
}

func (n *node) appendScalar(dst []byte) []byte {
	switch n.kind {
	case nodeBool:
		return strconv.AppendBool(dst, n.integer != 0)
	case nodeInt, nodeLong:
		return strconv.AppendInt(dst, n.integer, 10)
	case nodeDouble:
		return scalar.AppendJavaDouble(dst, n.double)
	}
	return append(dst, "null"...)
}
