package router

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"outbox-relay/binlog/event"
)

// CloudEvents are the options of the preset cloudevents: events of CloudEvents 1.0 in the form of its Kafka protocol binding. Fields that name a text are
// templates as those of [Rule]. The data of the event is the rule's Value, its key the rule's Key.
type CloudEvents struct {
	// Mode is binary (also when empty): attributes are headers and the data is the value, or structured: the value is a JSON object with all of it.
	Mode string
	// ID, Source and Type are required by the specification. A NULL or empty one is poison.
	ID     string
	Source string
	Type   string
	// SourcePrefix, behind which the name of the table stands, is the source where Source is empty.
	SourcePrefix string
	// Subject and DataSchema are left out where they are empty, or NULL or empty in a row.
	Subject    string
	DataSchema string
	// DataContentType is the media type of the data; empty leaves it out. Of a JSON type, the data is a part of a structured event as it is.
	DataContentType string
	// Extensions are further attributes, of which a NULL or empty one is left out. Names are of a-z and 0-9.
	Extensions []HeaderRule
}

// defaultCloudEvents serves a rule without options.
func defaultCloudEvents(table TableName) *CloudEvents {
	return &CloudEvents{ID: "{id}", Source: "/" + escaped(table.String()), Type: "{event_type}", Subject: "{aggregate_id}", DataContentType: "application/json"}
}

// escaped percent-encodes what cannot stand in a path of a URI, and braces with it, so that it is a template too.
func escaped(text string) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~", c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// Fixed names and texts of the specification and its Kafka binding.
const (
	attributePrefix       = "ce_"
	contentTypeHeader     = "content-type"
	structuredContentType = "application/cloudevents+json; charset=UTF-8"
	specVersion           = "1.0"
	maxExtensionName      = 20 // the specification's recommendation
)

// cloudEvents are CloudEvents without faults.
type cloudEvents struct {
	structured  bool
	contentType string
	member      string // the content type as a member of a structured event
	json        bool   // the content type is one of JSON
	before      []attribute
	after       []attribute // those behind time
}

// attribute is one context attribute.
type attribute struct {
	name     string // its header in binary mode is ce_ with this behind
	header   string
	value    template
	required bool
	uri      bool
	field    string
}

// ownAttributes are those that no extension may be called.
var ownAttributes = map[string]bool{"id": true, "source": true, "type": true, "subject": true, "time": true, "specversion": true, "dataschema": true, "datacontenttype": true, "data": true, "data_base64": true}

func (c *compiler) cloudEvents(in Rule, table TableName) *cloudEvents {
	o := in.CloudEvents
	if o == nil {
		o = defaultCloudEvents(table)
	} else if o.Source == "" && o.SourcePrefix != "" {
		named := *o
		named.Source = o.SourcePrefix + escaped(table.String())
		o = &named
	}
	out := &cloudEvents{structured: c.choice("cloudevents.mode", o.Mode, "binary", "structured") == "structured", contentType: o.DataContentType, json: isJSONMedia(o.DataContentType)}
	if err := attributeText([]byte(o.DataContentType)); err != nil && o.DataContentType != "" {
		c.fault("cloudevents.data_content_type", "%v", err)
	}
	if o.DataContentType != "" {
		out.member = string(appendQuoted([]byte(`,"datacontenttype":`), []byte(o.DataContentType)))
	}
	for _, a := range []struct {
		name, field, text string
		required, uri     bool
	}{
		{"id", "id", o.ID, true, false}, {"source", "source", o.Source, true, true}, {"type", "type", o.Type, true, false},
		{"subject", "subject", o.Subject, false, false}, {"dataschema", "data_schema", o.DataSchema, false, true},
	} {
		field := "cloudevents." + a.field
		if a.required && a.text == "" {
			c.fault(field, "missing: every event needs one")
		}
		if a.text == "" {
			continue
		}
		one := c.attribute(a.name, field, a.text, a.uri)
		one.required = a.required
		if a.name == "dataschema" {
			out.after = append(out.after, one)
		} else {
			out.before = append(out.before, one)
		}
	}
	seen := map[string]bool{}
	for i, e := range o.Extensions {
		field := fmt.Sprintf("cloudevents.extensions[%d]", i)
		switch {
		case !extensionName(e.Name):
			c.fault(field+".name", "%q is no name of an attribute: 1 to %d of a-z and 0-9", e.Name, maxExtensionName)
		case ownAttributes[e.Name]:
			c.fault(field+".name", "%s is an attribute of the specification, which has an option of its own or is made by the relay", e.Name)
		case seen[e.Name]:
			c.fault(field+".name", "%s is there twice", e.Name)
		}
		seen[e.Name] = true
		out.after = append(out.after, c.attribute(e.Name, field+".value", e.Value, false))
	}
	for i, h := range in.Headers {
		if strings.HasPrefix(h.Name, attributePrefix) || strings.EqualFold(h.Name, contentTypeHeader) {
			c.fault(fmt.Sprintf("headers[%d].name", i), "%s is a header of the preset: set an option of cloudevents", h.Name)
		}
	}
	return out
}

func (c *compiler) attribute(name, field, text string, uri bool) attribute {
	t, err := parseTemplate(text)
	if err != nil {
		c.fault(field, "%v", err)
	}
	for _, p := range t.parts {
		check := attributeText
		if uri {
			check = uriText
		}
		if err := check([]byte(p.literal)); err != nil && p.column == "" {
			c.fault(field, "%v", err)
		}
	}
	return attribute{name: name, header: attributePrefix + name, value: t, uri: uri, field: field}
}

func extensionName(name string) bool {
	return name != "" && len(name) <= maxExtensionName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// isJSONMedia tells whether a media type is JSON by section 3.1 of the JSON event format: subtype json, or a subtype that ends in +json.
func isJSONMedia(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	_, sub, ok := strings.Cut(strings.ToLower(strings.TrimSpace(media)), "/")
	return ok && (sub == "json" || strings.HasSuffix(sub, "+json"))
}

var (
	errNotUTF8   = errors.New("it is not valid UTF-8")
	errControl   = errors.New("it holds a control character, which no attribute may")
	errNoURI     = errors.New("it holds a character that no URI has unless it is percent-encoded")
	errNoJSON    = errors.New("it is no JSON, and cloudevents.data_content_type says that it is")
	errNotAsText = errors.New("it is not valid UTF-8; only a single binary column goes out as data_base64")
)

// attributeText tells whether a text may be an attribute: the type String of the specification.
func attributeText(text []byte) error {
	if !utf8.Valid(text) {
		return errNotUTF8
	}
	for i, b := range text {
		// U+0000 to U+001F, U+007F, and U+0080 to U+009F, which are C2 80 to C2 9F.
		if b < ' ' || b == 0x7f || b == 0xc2 && text[i+1] < 0xa0 {
			return errControl
		}
	}
	return nil
}

// uriText tells whether a text consists of what a URI reference may (RFC 3986, section 2). It does not look at its structure.
func uriText(text []byte) error {
	for _, b := range text {
		if b <= ' ' || b >= 0x7f || strings.IndexByte("\"<>\\^`{|}", b) >= 0 {
			return errNoURI
		}
	}
	return nil
}

// boundCloudEvents are cloudEvents with the columns of one version of the table.
type boundCloudEvents struct {
	*cloudEvents
	before, after []boundAttribute
	data          dataForm
}

type boundAttribute struct {
	*attribute
	value boundTemplate
}

// dataForm is how the data stands in a structured event.
type dataForm uint8

const (
	dataJSON    dataForm = iota // a JSON column, as it is
	dataChecked                 // a text that has to be JSON, as it is
	dataString                  // a text, as a JSON string
	dataBase64                  // bytes
)

func (x *binder) cloudEvents(in *cloudEvents, value boundTemplate) *boundCloudEvents {
	out := &boundCloudEvents{cloudEvents: in}
	bind := func(list []attribute) (bound []boundAttribute) {
		for i := range list {
			bound = append(bound, boundAttribute{&list[i], x.template(list[i].field, list[i].value)})
		}
		return bound
	}
	out.before, out.after = bind(in.before), bind(in.after)
	var column *event.Column
	if value.single && value.parts[0].filter == filterNone && value.parts[0].column >= 0 {
		column = &x.table.Columns[value.parts[0].column]
	}
	switch {
	case column != nil && isBinary(column):
		out.data = dataBase64
	case column != nil && isJSON(column) && in.json:
		out.data = dataJSON
	case in.json:
		out.data = dataChecked
	default:
		out.data = dataString
	}
	return out
}

// attribute renders an attribute behind the buffer's end and gives its text, which the next use of the buffer overwrites. ok is false where it is left out.
func (w *writer) attribute(a *boundAttribute) (text []byte, ok bool) {
	start := len(w.rec.buf)
	m, ok := w.render(a.field, &a.value)
	text = w.rec.buf[start:]
	w.rec.buf = w.rec.buf[:start]
	column := -1
	if a.value.single {
		column = a.value.parts[0].column
	}
	switch {
	case !ok:
		return nil, false
	case len(text) == 0 && a.required && m.null:
		w.fail(a.field, column, ReasonInvalidAttribute, "the attribute "+a.name+" is NULL, and every event needs one", nil)
		return nil, false
	case len(text) == 0 && a.required:
		w.fail(a.field, column, ReasonInvalidAttribute, "the attribute "+a.name+" is empty, and every event needs one", nil)
		return nil, false
	case len(text) == 0:
		return nil, false
	}
	err := attributeText(text)
	if err == nil && a.uri {
		err = uriText(text)
	}
	if err != nil {
		w.fail(a.field, column, ReasonInvalidAttribute, "the text cannot be the attribute "+a.name, err)
		return nil, false
	}
	return text, true
}

// appendTime appends the event's time: the timestamp column, else the commit (RFC 3339, UTC).
func (w *writer) appendTime(dst []byte, rule *boundRule) []byte {
	t := time.UnixMicro(w.commit)
	if rule.timestamp >= 0 {
		t = time.UnixMilli(w.timestamp(rule))
	}
	return t.UTC().AppendFormat(dst, "2006-01-02T15:04:05.999999Z07:00")
}

// attributeHeaders makes the headers of binary mode.
func (w *writer) attributeHeaders(rule *boundRule, noData bool) {
	e, rec := rule.event, w.rec
	add := func(name string, size int) {
		from := len(rec.buf)
		rec.buf = rec.buf[:from+size] // what stands behind the end
		w.addHeader(name, mark{from: from, to: from + size})
	}
	fixed := func(name, text string) {
		from := len(rec.buf)
		rec.buf = append(rec.buf, text...)
		w.addHeader(name, mark{from: from, to: len(rec.buf)})
	}
	fixed("ce_specversion", specVersion)
	for i := range e.before {
		if text, ok := w.attribute(&e.before[i]); ok {
			add(e.before[i].header, len(text))
		}
	}
	from := len(rec.buf)
	rec.buf = w.appendTime(rec.buf, rule)
	w.addHeader("ce_time", mark{from: from, to: len(rec.buf)})
	for i := range e.after {
		if text, ok := w.attribute(&e.after[i]); ok {
			add(e.after[i].header, len(text))
		}
	}
	if e.contentType != "" && !noData {
		fixed(contentTypeHeader, e.contentType)
	}
}

// structured makes the value of structured mode, in the JSON event format.
func (w *writer) structured(rule *boundRule) mark {
	e, rec := rule.event, w.rec
	from := len(rec.value)
	rec.value = append(rec.value, `{"specversion":"`+specVersion+`"`...)
	w.members(e.before)
	rec.value = append(rec.value, `,"time":"`...)
	rec.value = w.appendTime(rec.value, rule)
	rec.value = append(rec.value, '"')
	w.members(e.after)
	w.data(rule)
	rec.value = append(rec.value, '}')
	return mark{from: from, to: len(rec.value)}
}

func (w *writer) members(list []boundAttribute) {
	rec := w.rec
	for i := range list {
		if text, ok := w.attribute(&list[i]); ok {
			rec.value = append(rec.value, `,"`...)
			rec.value = append(rec.value, list[i].name...)
			rec.value = append(rec.value, `":`...)
			rec.value = appendQuoted(rec.value, text)
		}
	}
}

// data makes the members datacontenttype and data or data_base64; neither for data that is NULL.
func (w *writer) data(rule *boundRule) {
	e, rec := rule.event, w.rec
	before := len(rec.value)
	rec.value = append(rec.value, e.member...)
	var m mark
	ok := true
	switch e.data {
	case dataJSON, dataChecked: // rendered in place
		rec.value = append(rec.value, `,"data":`...)
		start := len(rec.value)
		w.swap(&rule.value)
		m = w.part("value", &rule.value, rule.tombstone, ReasonNullValue)
		rec.buf, rec.value = rec.value, rec.buf
		if text := rec.value[start:]; e.data == dataChecked && !m.null && !json.Valid(text) {
			w.badData(rule, errNoJSON)
			ok = false
		}
	default:
		start := len(rec.buf)
		m = w.part("value", &rule.value, rule.tombstone, ReasonNullValue)
		text := rec.buf[start:]
		rec.buf = rec.buf[:start]
		switch {
		case m.null:
		case e.data == dataBase64:
			rec.value = append(rec.value, `,"data_base64":"`...)
			rec.value = append(base64.StdEncoding.AppendEncode(rec.value, text), '"')
		case utf8.Valid(text):
			rec.value = append(rec.value, `,"data":`...)
			rec.value = appendQuoted(rec.value, text)
		default:
			w.badData(rule, errNotAsText)
			ok = false
		}
	}
	if m.null || !ok {
		rec.value = rec.value[:before]
	}
}

func (w *writer) badData(rule *boundRule, err error) {
	column := -1
	if rule.value.single {
		column = rule.value.parts[0].column
	}
	w.fail("value", column, ReasonInvalidData, "the value cannot be the data of the event", err)
}

// appendQuoted appends valid UTF-8 as a JSON string.
func appendQuoted(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i, b := range text {
		if b >= ' ' && b != '"' && b != '\\' {
			continue
		}
		dst = append(dst, text[from:i]...)
		from = i + 1
		switch b {
		case '"', '\\':
			dst = append(dst, '\\', b)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hex[b>>4], hex[b&15])
		}
	}
	return append(append(dst, text[from:]...), '"')
}
