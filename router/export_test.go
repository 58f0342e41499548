package router

// CanonicalTemplate gives the canonical text of a template and its column names.
func CanonicalTemplate(text string) (canonical string, columns []string, err error) {
	t, err := parseTemplate(text)
	for _, p := range t.parts {
		if p.column != "" {
			columns = append(columns, p.column)
		}
	}
	return t.String(), columns, err
}

// ObjectMembers reads a JSON object with the reader of spread headers: names and values, with strings unescaped.
func ObjectMembers(text string) (members [][2]string, err error) {
	o, err := readObject([]byte(text))
	for err == nil {
		var m member
		var more bool
		if m, more, err = o.next(); err != nil || !more {
			break
		}
		var name, value []byte
		if name, err = appendString(nil, m.name); err != nil {
			break
		}
		value = m.value
		if value[0] == '"' {
			if value, err = appendString(nil, value[1:len(value)-1]); err != nil {
				break
			}
		}
		members = append(members, [2]string{string(name), string(value)})
	}
	return members, err
}

// KeptTopics gives the number of topic names that r keeps.
func KeptTopics(r *Router) int { return len(r.topics.known) }

// BufferSize gives the bytes that rec holds for itself.
func BufferSize(rec *Record) int { return cap(rec.buf) + cap(rec.value) + cap(rec.scratch) }
