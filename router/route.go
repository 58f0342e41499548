package router

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/value"
)

// Meta is what goes into a record, or decides about it, besides the row's cells.
type Meta struct {
	// Position is the text of the transaction's GTID. It is copied.
	Position []byte
	// CommitMicros is the time of the commit on the server that wrote it first, in microseconds since 1970 UTC.
	CommitMicros int64
	// Size and Limit are set for a row that is larger than limits.row, in bytes. Such a row is poison unless its table's rules say that it does
	// not matter, also when all that its rule needs was kept: what is published must not depend on which column is the large one.
	Size, Limit int64
}

// Outcome says what Route made of a row.
type Outcome uint8

const (
	// Routed: the record is complete.
	Routed Outcome = iota + 1
	// Ignored: no rule matches and the table's rules say that such rows do not matter. There is no record.
	Ignored
	// Unmatched: no rule matches, which is poison.
	Unmatched
	// Rejected: a rule matches and the row is poison.
	Rejected
)

var outcomeNames = [...]string{Routed: "routed", Ignored: "ignored", Unmatched: "unmatched", Rejected: "rejected"}

// String gives the outcome in one word.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) && o > 0 {
		return outcomeNames[o]
	}
	return "outcome " + strconv.Itoa(int(o))
}

// Route fills rec from one row. cells has one element for each column of the table that b was bound to and is not kept; n counts the
// transaction's rows of watched tables from 0.
//
// With Unmatched and Rejected the error is a [*Poison], and rec holds what could be made all the same, for a dead letter: a part that
// failed is null or left out, and Topic is empty unless it is valid. An unmatched row is filled by the last rule of its table. Any other
// error is a mistake of the caller and comes with outcome 0.
func (r *Router) Route(b *Binding, cells []event.Cell, tx Meta, n int, rec *Record) (Outcome, error) {
	if len(cells) != len(b.table.Columns) {
		return 0, fmt.Errorf("row of %s has %d cells, its table has %d columns", b.name, len(cells), len(b.table.Columns))
	}
	w := writer{router: r, binding: b, cells: cells, rec: rec, commit: tx.CommitMicros, size: tx.Size, limit: tx.Limit}
	rec.reset(b.name)

	outcome := Routed
	chosen := w.match()
	switch {
	case chosen == nil && b.ignore:
		return Ignored, nil
	case chosen == nil:
		outcome = Unmatched
		chosen = &b.rules[len(b.rules)-1]
		w.poison = &Poison{Reason: ReasonUnmatched, Detail: "no rule of the table matches the row", Rule: -1, Policy: b.policy}
	case w.poison != nil:
		outcome = Rejected
	case tx.Limit > 0:
		w.tooLarge("", -1, "")
	}
	rec.Rule = int32(chosen.index)
	if outcome == Unmatched && b.policy == "" && len(b.rules) > 1 {
		rec.Rule = NoRule
	}
	w.fill(chosen, tx.Position, n)
	if w.poison == nil {
		return Routed, nil
	}
	if outcome == Routed {
		outcome = Rejected
	}
	return outcome, w.finish(chosen, tx.Position, n)
}

// writer makes one record. It lives for one Route; rec keeps the buffers.
type writer struct {
	router  *Router
	binding *Binding
	cells   []event.Cell
	rec     *Record
	commit  int64
	size    int64 // of a row beyond the limit; else size and limit are 0
	limit   int64
	poison  *Poison // the first fault
}

// fail notes the first fault of the row; the later ones are not reported.
func (w *writer) fail(field string, column int, reason Reason, detail string, err error) {
	if w.poison != nil {
		return
	}
	w.poison = &Poison{Reason: reason, Detail: detail, Field: field, Err: err}
	if column >= 0 {
		w.poison.Column = w.binding.table.Columns[column].Name
	}
}

// finish completes the poison, of which fail knew only the cause.
func (w *writer) finish(chosen *boundRule, position []byte, n int) *Poison {
	p, rec := w.poison, w.rec
	p.Table = w.binding.name
	p.ID = string(rec.ID)
	p.Position = string(position) + "#" + strconv.Itoa(n)
	if p.Topic == "" {
		p.Topic = rec.Topic
	}
	if p.Reason != ReasonUnmatched {
		p.Rule, p.Policy = chosen.index, chosen.policy
	}
	return p
}

// match gives the first rule whose conditions hold, nil for none. A condition on a column that is not in the row image can neither hold
// nor fail: the row is poison, in the name of that rule.
func (w *writer) match() *boundRule {
	rules := w.binding.rules
	last, known := -1, false // the column whose text is in scratch, and whether it is not NULL
next:
	for i := range rules {
		for j := range rules[i].when {
			c := &rules[i].when[j]
			if c.column != last {
				w.rec.scratch = w.rec.scratch[:0]
				var ok bool
				w.rec.scratch, known, ok = w.text(w.rec.scratch, "when", c.column)
				if !ok {
					return &rules[i]
				}
				last = c.column
			}
			if !known {
				continue next
			}
			if _, found := c.values[string(w.rec.scratch)]; !found {
				continue next
			}
		}
		return &rules[i]
	}
	return nil
}

// text appends the text of a column. known is false for NULL; ok is false for poison, which is noted.
func (w *writer) text(dst []byte, field string, column int) (_ []byte, known, ok bool) {
	cell := &w.cells[column]
	switch cell.State {
	case event.CellValue:
		out, err := w.router.values.Append(dst, &w.binding.table.Columns[column], cell.Raw)
		if err != nil {
			w.fail(field, column, ReasonUndecodable, "the column's bytes are not a value of its type", err)
			return dst, false, false
		}
		return out, true, true
	case event.CellNull:
		return dst, false, true
	}
	w.missing(field, column)
	return dst, false, false
}

// missing notes that the value of a column is unknown.
func (w *writer) missing(field string, column int) {
	if w.cells[column].State == event.CellDropped {
		w.tooLarge(field, column, ", so the column was not kept")
		return
	}
	w.fail(field, column, ReasonMissingColumn, "the row image lacks the column, binlog_row_image is not FULL", nil)
}

// tooLarge notes that the row is larger than limits.row.
func (w *writer) tooLarge(field string, column int, consequence string) {
	if w.poison == nil {
		w.fail(field, column, ReasonRowTooLarge, fmt.Sprintf("the row has %d bytes, limits.row allows %d%s", w.size, w.limit, consequence), nil)
	}
}

// fill makes all parts of the record. It goes on after a fault, so that a dead letter holds what there is.
func (w *writer) fill(rule *boundRule, position []byte, n int) {
	rec := w.rec
	var key, val mark
	if rule.debezium != nil {
		key, val = w.debezium(rule.debezium)
	} else {
		w.topic(rule)
		key = w.part("key", &rule.key, rule.nullKey, ReasonNullKey)
		switch e := rule.event; {
		case e != nil && e.structured:
			val = w.structured(rule)
			m := mark{from: len(rec.buf)}
			rec.buf = append(rec.buf, structuredContentType...)
			m.to = len(rec.buf)
			w.addHeader(contentTypeHeader, m)
		default:
			w.swap(&rule.value)
			val = w.part("value", &rule.value, rule.tombstone, ReasonNullValue)
			rec.buf, rec.value = rec.value, rec.buf
			if e != nil {
				w.attributeHeaders(rule, val.null)
			}
		}
	}
	for i := range rule.headers {
		w.header(&rule.headers[i])
	}
	at := mark{from: len(rec.buf)}
	rec.buf = append(rec.buf, position...)
	rec.buf = append(rec.buf, '#')
	rec.buf = strconv.AppendInt(rec.buf, int64(n), 10)
	at.to = len(rec.buf)
	hidden := rule.rule.debezium != nil && !rule.rule.debezium.PositionHeader()
	if !hidden {
		w.addHeader(PositionHeader, at)
	}
	id := w.id()
	if rule.debezium == nil {
		rec.TimestampMillis = w.timestamp(rule)
		rec.Partition = w.partition(rule)
	}

	rec.Key, rec.Value, rec.ID = cut(rec.buf, key), cut(rec.value, val), cut(rec.buf, id)
	if hidden {
		rec.Position = cut(rec.buf, at)
	}
	for i := range rec.Headers {
		rec.Headers[i].Value = cut(rec.buf, rec.marks[i])
		rec.Headers[i].Null = rec.marks[i].null
	}
}

// swap makes rec.buf the buffer of the value. The room for a large one is made at once: the text of a long string, also within JSON, is hardly
// longer than its bytes, and growing step by step would copy it again and again.
func (w *writer) swap(t *boundTemplate) {
	const large = 64 << 10
	rec, size := w.rec, 0
	for i := range t.parts {
		if c := t.parts[i].column; c >= 0 {
			size += len(w.cells[c].Raw)
		}
	}
	if size > large {
		rec.value = slices.Grow(rec.value, size+size/64)
	}
	rec.buf, rec.value = rec.value, rec.buf
}

// topic sets rec.Topic. The text goes behind the buffer's end and is not kept there.
func (w *writer) topic(rule *boundRule) {
	if rule.fixed != "" {
		w.rec.Topic = rule.fixed
		return
	}
	at := rule.recent.place(w.cells)
	if at != nil && at.topic != "" && bytes.Equal(at.raw, w.cells[rule.recent.column].Raw) {
		w.rec.Topic = at.topic
		return
	}
	start := len(w.rec.buf)
	m, ok := w.render("topic", &rule.topic)
	text := w.rec.buf[start:]
	w.rec.buf = w.rec.buf[:start]
	switch {
	case !ok:
		return
	case m.null:
		w.fail("topic", rule.topic.parts[0].column, ReasonNullTopic, "the topic column is NULL", nil)
		return
	}
	w.setTopic("topic", text)
	if at != nil {
		at.raw, at.topic = append(at.raw[:0], w.cells[rule.recent.column].Raw...), w.rec.Topic
	}
}

// setTopic sets rec.Topic if a broker takes the name. The text is not kept.
func (w *writer) setTopic(field string, text []byte) {
	topic, found := w.router.topics.lookup(text)
	if !found {
		if err := CheckTopic(text); err != nil {
			w.fail(field, -1, ReasonInvalidTopic, "no broker accepts the topic name "+strconv.Quote(string(text[:min(len(text), maxShown)])), err)
			w.poison.Topic = string(text[:min(len(text), maxShown)])
			return
		}
		if what, taken := w.router.reserved[string(text)]; taken {
			w.fail(field, -1, ReasonInvalidTopic, reservedText(string(text), what), nil)
			w.poison.Topic = string(text)
			return
		}
		topic = w.router.topics.add(text)
	}
	w.rec.Topic = topic
}

// maxShown bounds the part of an invalid topic name that is reported.
const maxShown = 256

// part renders key or value, of which a NULL is a fault unless the rule allows it.
func (w *writer) part(field string, t *boundTemplate, allowNull bool, reason Reason) mark {
	if len(t.parts) == 0 {
		return mark{null: true} // a rule without key
	}
	m, ok := w.render(field, t)
	if !ok {
		return mark{null: true}
	}
	if m.null && !allowNull {
		w.fail(field, t.parts[0].column, reason, "the "+field+" column is NULL", nil)
	}
	return m
}

// render appends a template to the buffer. A single column that is NULL gives a null mark; beside other text a NULL is poison.
// Nothing stays in the buffer when ok is false.
func (w *writer) render(field string, t *boundTemplate) (m mark, ok bool) {
	rec := w.rec
	m.from = len(rec.buf)
	for i := range t.parts {
		p := &t.parts[i]
		if p.column < 0 {
			rec.buf = append(rec.buf, p.literal...)
			continue
		}
		known, ok := w.column(field, p)
		if ok && !known && !t.single {
			w.fail(field, p.column, ReasonNullInTemplate, "the column is NULL and stands beside other text", nil)
			ok = false
		}
		if !ok {
			rec.buf = rec.buf[:m.from]
			return mark{null: true}, false
		}
		m.null = !known
	}
	m.to = len(rec.buf)
	return m, true
}

// column appends one column of a template to the buffer.
func (w *writer) column(field string, p *boundPart) (known, ok bool) {
	rec := w.rec
	if p.filter == filterNone {
		rec.buf, known, ok = w.text(rec.buf, field, p.column)
		return known, ok
	}
	rec.scratch, known, ok = w.text(rec.scratch[:0], field, p.column)
	if !known || !ok {
		return known, ok
	}
	var err error
	if rec.buf, err = p.filter.append(rec.buf, rec.scratch); err != nil {
		w.fail(field, p.column, ReasonInvalidFilter, "the filter does not suit the column's value", err)
		return false, false
	}
	return true, true
}

// header adds one header, or all of a spread column; one that fails is left out.
func (w *writer) header(h *boundHeader) {
	if h.spread {
		w.spread(h)
		return
	}
	if m, ok := w.render(h.field, &h.value); ok {
		w.addHeader(h.name, m)
	}
}

func (w *writer) addHeader(name string, m mark) {
	w.rec.Headers = append(w.rec.Headers, Header{Key: name})
	w.rec.marks = append(w.rec.marks, m)
}

// id renders the id column for people. It is no part of the record, so its absence is no fault.
func (w *writer) id() mark {
	column := w.binding.id
	if column < 0 || w.cells[column].State != event.CellValue {
		return mark{null: true}
	}
	from := len(w.rec.buf)
	buf, err := value.Append(w.rec.buf, &w.binding.table.Columns[column], w.cells[column].Raw)
	if err != nil {
		return mark{null: true}
	}
	w.rec.buf = buf
	return mark{from: from, to: len(buf)}
}
