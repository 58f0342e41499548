package router

// spread makes one header of each member of a JSON object: a string is its text, null a null value, anything else its JSON text. A NULL
// column makes none.
func (w *writer) spread(h *boundHeader) {
	rec, column := w.rec, h.value.parts[0].column
	var known, ok bool
	if rec.scratch, known, ok = w.text(rec.scratch[:0], h.field, column); !known || !ok {
		return
	}
	headers := len(rec.Headers)
	object, err := readObject(rec.scratch)
	for err == nil {
		var m member
		var more bool
		if m, more, err = object.next(); err != nil || !more {
			break
		}
		err = w.spreadMember(m)
	}
	if err != nil {
		rec.Headers, rec.marks = rec.Headers[:headers], rec.marks[:headers]
		w.fail(h.field, column, ReasonInvalidHeaders, "the column cannot be spread into headers", err)
	}
}

func (w *writer) spreadMember(m member) error {
	rec := w.rec
	from := len(rec.buf)
	var err error
	if rec.buf, err = appendString(rec.buf, m.name); err != nil {
		return err
	}
	name := rec.buf[from:]
	rec.buf = rec.buf[:from]
	key, found := w.router.names.lookup(name)
	if !found {
		if err := checkHeaderName(name); err != nil {
			return err
		}
		if len(name) > maxKeptName {
			key = string(name)
		} else {
			key = w.router.names.add(name)
		}
	}
	null := string(m.value) == "null"
	switch {
	case null:
	case m.value[0] == '"':
		if rec.buf, err = appendString(rec.buf, m.value[1:len(m.value)-1]); err != nil {
			return err
		}
	default:
		rec.buf = append(rec.buf, m.value...)
	}
	w.addHeader(key, mark{from: from, to: len(rec.buf), null: null})
	return nil
}
