package debezium

// schema is the inferred schema of an expanded document. All are optional.
type schema struct {
	typ    string
	name   string // of a struct, may be empty
	fields []schemaField
	width  int     // bytes of the names of the fields, about
	items  *schema // of an array
}

func (s *schema) add(f schemaField) {
	s.fields = append(s.fields, f)
	s.width += len(f.name) + 8
}

type schemaField struct {
	name   []byte
	schema *schema
}

// The schemas of scalars.
var (
	schemaString  = &schema{typ: "string"}
	schemaBoolean = &schema{typ: "boolean"}
	schemaInt     = &schema{typ: "int32"}
	schemaLong    = &schema{typ: "int64"}
	schemaDouble  = &schema{typ: "double"}
	schemaBytes   = &schema{typ: "bytes"}
)

// inference makes schemas of documents by the router's rules.
type inference struct {
	keepNull bool
	// room is how many bytes of names may still come out. Objects of one array have all fields of each other, which can make a small document
	// endless; one that names its fields itself does not run out of it.
	room int
}

// take tells whether there is room for one more object of the schema.
func (in *inference) take(s *schema) bool {
	in.room -= s.width
	return in.room >= 0
}

// of gives the schema of a value, nil for one that is left out; ok is false when the document cannot have one. name is that of a struct.
func (in *inference) of(name string, n *node) (s *schema, ok bool) {
	switch n.kind {
	case nodeString:
		return schemaString, true
	case nodeBool:
		return schemaBoolean, true
	case nodeInt:
		return schemaInt, true
	case nodeLong:
		return schemaLong, true
	case nodeBig, nodeDouble:
		return schemaDouble, true
	case nodeNull:
		if in.keepNull {
			return schemaBytes, true
		}
		return nil, true
	case nodeArray:
		if len(n.members) == 0 {
			return nil, true
		}
		items, ok := in.items(name, n)
		if !ok {
			return nil, false
		}
		return &schema{typ: "array", items: items}, true
	}
	s = &schema{typ: "struct", name: name}
	for _, m := range n.members {
		full := string(m.name)
		if name != "" {
			full = name + "." + full
		}
		field, ok := in.of(full, m)
		if !ok || field != nil && len(m.name) == 0 { // Kafka Connect has no field without a name
			return nil, false
		}
		if field != nil {
			s.add(schemaField{m.name, field})
		}
	}
	return s, true
}

// items gives the schema of an array's elements: that of the first that is not null, or of objects the fields of all. Whether all elements
// are of one kind is for fits to see.
func (in *inference) items(name string, array *node) (s *schema, ok bool) {
	var first *node
	for _, m := range array.members {
		if m.kind != nodeNull {
			first = m
			break
		}
	}
	if first == nil {
		return schemaBytes, in.keepNull
	}
	if first.kind != nodeObject {
		s, ok = in.of("", first)
		return s, ok && s != nil
	}
	for _, m := range array.members {
		if m.kind != nodeObject {
			continue
		}
		one, ok := in.of(name, m)
		if !ok {
			return nil, false
		}
		if s = merge(s, one); !in.take(s) {
			return nil, false
		}
	}
	return s, true
}

// merge gives a struct with the fields of both. A field of both keeps its first schema, unless that was made of a null.
func merge(a, b *schema) *schema {
	if a == nil {
		return b
	}
	next, known := 0, len(a.fields)
	for _, f := range b.fields {
		// Objects mostly have their fields in one order: the search begins behind the field found last.
		at := -1
		for i := range known {
			if k := (next + i) % known; string(a.fields[k].name) == string(f.name) {
				at = k
				break
			}
		}
		switch {
		case at < 0:
			a.add(f)
			continue
		case a.fields[at].schema == schemaBytes:
			a.fields[at].schema = f.schema
		}
		next = at + 1
	}
	return a
}

// fits tells whether the value is one of the schema, as Kafka Connect checks it.
func (in *inference) fits(n *node, s *schema) bool {
	switch n.kind {
	case nodeNull:
		return true
	case nodeString:
		return s == schemaString
	case nodeBool:
		return s == schemaBoolean
	case nodeInt:
		return s == schemaInt
	case nodeLong:
		return s == schemaLong
	case nodeDouble:
		return s == schemaDouble
	case nodeArray:
		if s.typ != "array" {
			return false
		}
		for _, m := range n.members {
			if !in.fits(m, s.items) {
				return false
			}
		}
		return true
	case nodeObject:
		if s.typ != "struct" || !in.take(s) {
			return false
		}
		next := 0
		for i := range s.fields {
			if m := n.member(s.fields[i].name, &next); m != nil && !in.fits(m, s.fields[i].schema) {
				return false
			}
		}
		return true
	}
	return false // nodeBig
}

// append appends the schema as the JsonConverter writes it, without the closing brace.
func (s *schema) append(dst []byte) []byte {
	dst = append(append(append(dst, `{"type":"`...), s.typ...), '"')
	switch s.typ {
	case "struct":
		dst = append(dst, `,"fields":[`...)
		for i := range s.fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(s.fields[i].schema.append(dst), `,"field":`...)
			dst = append(appendJSONString(dst, s.fields[i].name), '}')
		}
		dst = append(dst, ']')
	case "array":
		dst = append(append(s.items.append(append(dst, `,"items":`...)), '}'), `,"optional":true`...)
		return dst
	}
	dst = append(dst, `,"optional":true`...)
	if s.name != "" {
		dst = appendJSONString(append(dst, `,"name":`...), []byte(s.name))
	}
	return dst
}
