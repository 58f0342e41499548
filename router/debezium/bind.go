package debezium

import (
	"errors"
	"strings"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/value"
)

// Finder finds the columns of a table and takes the complaints about them.
type Finder interface {
	// Column gives the index of the column, or -1 after a complaint of its own: there is none, or its values cannot be read. field is the
	// key of the configuration.
	Column(field, name string) int
	// Unsuitable complains that a column does not suit what the field makes of it.
	Unsuitable(field string, column int, err error)
}

// Bound is a preset with its columns found in one version of a table. It is for one goroutine.
type Bound struct {
	preset    *Preset
	name      string // of the envelope's schema, up to the part that the row gives
	id        column
	key       column
	payload   column
	route     column
	headers   []placed
	envelope  []placed
	timestamp int // column index, or -1
	partition int // column index, or -1
	columns   []event.Column

	values  *value.Printer
	scratch []byte
	schema  []byte
	parser  parser
}

// placed is a column that goes elsewhere under a name.
type placed struct {
	alias string
	column
}

// RowFault says why a part of a record cannot be made.
type RowFault struct {
	// Field is the key of the configuration, Column the index of the column.
	Field  string
	Column int
	Kind   FaultKind
	Err    error // of Undecodable, and of InvalidPartition where the bytes are no number
}

// FaultKind tells the faults apart.
type FaultKind uint8

// The kinds of faults.
const (
	Missing          FaultKind = iota + 1 // the row image lacks the column
	Undecodable                           // the bytes are no value of the column
	NullTopic                             // the column of the topic is NULL
	InvalidTimestamp                      // the time is before 1970
	InvalidPartition                      // the number is negative
)

var (
	errObjectName = errors.New("the string converter makes of bytes the name of a Java object, so that the data is lost: set debezium.binary to base64, base64-url-safe or hex, or a converter that keeps bytes")
	errNoRaw      = errors.New("value_converter binary takes a binary column with debezium.binary: bytes")
	errNoTopic    = errors.New("the topic comes from a column of text")
	errNoTime     = errors.New("the timestamp comes from a DATETIME column (Debezium fails on others too)")
	errNoNumber   = errors.New("the partition comes from an INT, MEDIUMINT or SMALLINT UNSIGNED column (Debezium fails on others too)")
)

// Bind finds the columns. What is wrong has been told to f; the Bound is usable only if that is nothing. All that is bound with the same values is for the same
// goroutine.
func (p *Preset) Bind(t *event.Table, f Finder, values *value.Printer) *Bound {
	b := &Bound{preset: p, values: values, timestamp: -1, partition: -1, columns: t.Columns, name: p.o.TopicPrefix + "." + t.Schema + "." + t.Name + "."}
	x := binder{preset: p, table: t, finder: f}
	b.id = x.converted("debezium.id", p.o.ID, p.header)
	b.key = x.converted("debezium.key", p.o.Key, p.key)
	if len(p.envelope) > 0 {
		b.payload = x.converted("debezium.payload", p.o.Payload, p.value)
	} else {
		b.payload = x.payload(p.o.Payload)
	}
	if b.route = x.column("debezium.route", p.o.RouteBy); b.route.index >= 0 && !p.isString(&b.route) {
		f.Unsuitable("debezium.route", b.route.index, errNoTopic)
	}
	for _, h := range p.headers {
		if x.has(h.column) {
			b.headers = append(b.headers, placed{h.alias, x.converted("debezium.additional", h.column, p.header)})
		}
	}
	for _, e := range p.envelope {
		if x.has(e.column) {
			b.envelope = append(b.envelope, placed{e.alias, x.converted("debezium.additional", e.column, p.value)})
		}
	}
	if p.o.Timestamp != "" {
		c := x.column("debezium.timestamp", p.o.Timestamp)
		if b.timestamp = c.index; c.index >= 0 && c.kind != kindMillis && c.kind != kindMicros {
			f.Unsuitable("debezium.timestamp", c.index, errNoTime)
		}
	}
	if p.partition != "" && x.has(p.partition) {
		c := x.column("debezium.additional", p.partition)
		if b.partition = c.index; c.index >= 0 && c.kind != kindInt32 {
			f.Unsuitable("debezium.additional", c.index, errNoNumber)
		}
	}
	return b
}

type binder struct {
	preset *Preset
	table  *event.Table
	finder Finder
}

// has tells whether a column of Options.Additional is to be looked for.
func (x *binder) has(name string) bool {
	if !x.preset.ignoreGone {
		return true
	}
	for i := range x.table.Columns {
		if strings.EqualFold(x.table.Columns[i].Name, name) {
			return true
		}
	}
	return false
}

// column finds a column, with index -1 where a complaint was made.
func (x *binder) column(field, name string) column {
	i := x.finder.Column(field, name)
	if i < 0 {
		return column{index: -1}
	}
	c, err := x.preset.columnOf(i, &x.table.Columns[i], field)
	if err != nil {
		x.finder.Unsuitable(field, i, err)
		return column{index: -1}
	}
	return c
}

// converted finds a column that a converter takes.
func (x *binder) converted(field, name string, by converter) column {
	c := x.column(field, name)
	if c.index >= 0 && by == asText && x.preset.isBytes(&c) {
		x.finder.Unsuitable(field, c.index, errObjectName)
	}
	return c
}

func (x *binder) payload(name string) column {
	c := x.converted("debezium.payload", name, x.preset.value)
	if c.index >= 0 && x.preset.value == asRaw && !x.preset.isBytes(&c) {
		x.finder.Unsuitable("debezium.payload", c.index, errNoRaw)
	}
	return c
}

// keepScratch is the largest buffer, in bytes, that is kept from one row to the next.
const keepScratch = 1 << 20

// borrow gives the scratch buffer, empty; it goes back with lend.
func (b *Bound) borrow() []byte { return b.scratch[:0] }

func (b *Bound) lend(scratch []byte) {
	if cap(scratch) > keepScratch {
		scratch = nil
	}
	b.scratch = scratch
}

// asItIs tells whether the converter takes over the text or the bytes of the column unchanged, so that they need not be copied twice.
func (b *Bound) asItIs(c *column, by converter) bool {
	switch c.kind {
	case kindString, kindJSON, kindZoned:
		return by == asText || by == asSimple
	case kindBytes:
		return by == asRaw && b.preset.o.Binary == "bytes"
	}
	return false
}

// one appends one column by one converter.
func (b *Bound) one(dst []byte, c *column, by converter, cells []event.Cell) (out []byte, null bool, fault *RowFault) {
	if b.asItIs(c, by) {
		d, out, fault := b.read(dst, c, cells)
		return out, d.kind == isNull, fault
	}
	d, scratch, fault := b.read(b.borrow(), c, cells)
	if fault == nil {
		dst, null = by.append(dst, c.schema, &d)
	}
	b.lend(scratch)
	return dst, null, fault
}

// AppendTopic appends the topic, whose name may be invalid.
func (b *Bound) AppendTopic(dst []byte, cells []event.Cell) ([]byte, *RowFault) {
	d, scratch, fault := b.read(b.borrow(), &b.route, cells)
	switch {
	case fault != nil:
	case d.kind == isNull:
		fault = &RowFault{Field: b.route.field, Column: b.route.index, Kind: NullTopic}
	default:
		dst = b.preset.regex.append(dst, d.text)
	}
	b.lend(scratch)
	return dst, fault
}

// AppendKey appends the key, or tells that it is null.
func (b *Bound) AppendKey(dst []byte, cells []event.Cell) (out []byte, null bool, fault *RowFault) {
	return b.one(dst, &b.key, b.preset.key, cells)
}

// Headers is the number of headers.
func (b *Bound) Headers() int { return len(b.preset.context) + 1 + len(b.headers) }

// AppendHeader appends the value of header i, from 0, or tells that it is null.
func (b *Bound) AppendHeader(dst []byte, i int, cells []event.Cell) (name string, out []byte, null bool, fault *RowFault) {
	if i < len(b.preset.context) {
		h := &b.preset.context[i]
		return h.name, append(dst, h.value...), false, nil
	}
	if i -= len(b.preset.context); i == 0 {
		out, null, fault = b.one(dst, &b.id, b.preset.header, cells)
		return "id", out, null, fault
	}
	h := &b.headers[i-1]
	out, null, fault = b.one(dst, &h.column, b.preset.header, cells)
	return h.alias, out, null, fault
}

// ValueSize gives the room that a large value should have at once, 0 where growing does not matter.
func (b *Bound) ValueSize(cells []event.Cell) int {
	const large = 64 << 10
	size := len(cells[b.payload.index].Raw)
	if size <= large {
		return 0
	}
	return size + size/64
}

// AppendValue appends the value, or tells that it is null.
func (b *Bound) AppendValue(dst []byte, cells []event.Cell) (out []byte, null bool, fault *RowFault) {
	if b.asItIs(&b.payload, b.preset.value) && !b.preset.o.ExpandJSON && len(b.preset.envelope) == 0 {
		d, out, fault := b.read(dst, &b.payload, cells)
		if b.preset.o.TombstoneOnEmpty && d.kind == isText && blank(d.text) {
			return dst, true, fault
		}
		return out, d.kind == isNull, fault
	}
	d, scratch, fault := b.read(b.borrow(), &b.payload, cells)
	if fault != nil {
		b.lend(scratch)
		return dst, false, fault
	}
	schema := b.payload.schema
	if d.kind == isText && b.preset.o.ExpandJSON {
		switch root, s := b.parser.expand(d.text, b.preset.o.JSONNull == "optional_bytes"); {
		case root == nil:
		case root.kind == nodeArray: // an empty one, of which the text is kept, and no schema
			if len(b.envelope) == 0 {
				schema = ""
			}
		default:
			d = datum{kind: isStruct, text: d.text, root: root, schema: s}
		}
	}
	switch empty := d.kind == isNull || d.kind == isText && blank(d.text); {
	case empty && b.preset.o.TombstoneOnEmpty:
		null = true
	case len(b.preset.envelope) > 0:
		dst, scratch, fault = b.wrap(dst, scratch, &d, cells)
	default:
		dst, null = b.preset.value.append(dst, schema, &d)
	}
	b.lend(scratch)
	b.parser.forget()
	return dst, null, fault
}

// wrap appends the envelope around the payload.
func (b *Bound) wrap(dst, scratch []byte, payload *datum, cells []event.Cell) (out, _ []byte, fault *RowFault) {
	converter := b.preset.value
	if converter == asSchema {
		if dst, scratch, fault = b.envelopeSchema(dst, scratch, payload, cells); fault != nil {
			return dst, scratch, fault
		}
	}
	if converter == asText {
		dst = append(dst, "Struct{"...)
		if payload.kind != isNull {
			dst = appendText(append(dst, payloadField+"="...), payload)
		}
	} else {
		dst = appendJSON(append(dst, `{"`+payloadField+`":`...), payload)
	}
	first := payload.kind == isNull
	for i := range b.envelope {
		e := &b.envelope[i]
		var d datum
		if d, scratch, fault = b.read(scratch, &e.column, cells); fault != nil {
			return dst, scratch, fault
		}
		switch {
		case converter != asText:
			dst = append(appendJSONString(append(dst, ','), []byte(e.alias)), ':')
			dst = appendJSON(dst, &d)
		case d.kind != isNull:
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = appendText(append(append(dst, e.alias...), '='), &d)
		}
	}
	dst = append(dst, '}')
	if converter == asSchema {
		dst = append(dst, '}')
	}
	return dst, scratch, nil
}

// envelopeSchema appends the schema of the envelope. Its name holds the row's value of the route column.
func (b *Bound) envelopeSchema(dst, scratch []byte, payload *datum, cells []event.Cell) (out, _ []byte, fault *RowFault) {
	dst = append(dst, `{"schema":{"type":"struct","fields":[`...)
	if payload.kind == isStruct {
		dst = payload.schema.append(dst)
	} else {
		dst = append(dst, b.payload.schema...)
	}
	dst = append(dst, `,"field":"`+payloadField+`"}`...)
	for i := range b.envelope {
		e := &b.envelope[i]
		dst = append(append(append(dst, ','), e.schema...), `,"field":`...)
		dst = append(appendJSONString(dst, []byte(e.alias)), '}')
	}
	route, scratch, fault := b.read(scratch, &b.route, cells)
	if fault != nil {
		return dst, scratch, fault
	}
	b.schema = append(append(append(b.schema[:0], b.name...), route.text...), ".Value"...)
	dst = appendJSONString(append(dst, `],"optional":false,"name":`...), b.schema)
	return append(dst, `},"payload":`...), scratch, nil
}

// Timestamp gives the record's time in milliseconds since 1970 UTC; ok is false where the commit's time counts.
func (b *Bound) Timestamp(cells []event.Cell) (millis int64, ok bool, fault *RowFault) {
	if b.timestamp < 0 {
		return 0, false, nil
	}
	cell, fault := b.cell("debezium.timestamp", b.timestamp, cells)
	if cell == nil {
		return 0, false, fault
	}
	col := &b.columns[b.timestamp]
	micros, isDate, err := instant(col, cell.Raw)
	switch {
	case err != nil:
		return 0, false, &RowFault{Field: "debezium.timestamp", Column: b.timestamp, Kind: Undecodable, Err: err}
	case !isDate && col.Nullable:
		return 0, false, nil
	}
	if millis = floorDiv(micros, 1000); col.Meta > 3 {
		millis = micros / 1000 // toward zero, as Debezium divides
	}
	if millis < 0 {
		return 0, false, &RowFault{Field: "debezium.timestamp", Column: b.timestamp, Kind: InvalidTimestamp}
	}
	return millis, true, nil
}

// Partition gives the partition that the row asks for; ok is false where the partitioner chooses.
func (b *Bound) Partition(cells []event.Cell) (partition int32, ok bool, fault *RowFault) {
	if b.partition < 0 {
		return 0, false, nil
	}
	cell, fault := b.cell("debezium.additional", b.partition, cells)
	if cell == nil {
		return 0, false, fault
	}
	n, err := value.Int64(&b.columns[b.partition], cell.Raw)
	if err != nil || n < 0 {
		return 0, false, &RowFault{Field: "debezium.additional", Column: b.partition, Kind: InvalidPartition, Err: err}
	}
	return int32(n), true, nil
}

// cell gives a cell with a value, or nil for NULL and for a fault.
func (b *Bound) cell(field string, index int, cells []event.Cell) (*event.Cell, *RowFault) {
	switch cells[index].State {
	case event.CellValue:
		return &cells[index], nil
	case event.CellNull:
		return nil, nil
	}
	return nil, &RowFault{Field: field, Column: index, Kind: Missing}
}
