package router

import (
	"errors"
	"fmt"
	"strings"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/value"
	"outbox-relay/router/debezium"
)

// Binding is the rules of one table with their columns found in one version of that table. It belongs to its Router.
type Binding struct {
	table  *event.Table
	name   string // `schema.table`
	rules  []boundRule
	id     int // index of the column for Record.ID, or -1
	ignore bool
	policy string
}

// boundRule is a rule with column indexes in place of names.
type boundRule struct {
	*rule
	when      []boundCondition
	topic     boundTemplate
	recent    recentTopics
	key       boundTemplate
	value     boundTemplate
	headers   []boundHeader
	timestamp int // column index, or -1
	partition int // column index, or -1
	debezium  *debezium.Bound
	event     *boundCloudEvents
}

type boundCondition struct {
	column int
	values map[string]struct{}
}

// boundTemplate is empty for a template without text.
type boundTemplate struct {
	parts  []boundPart
	single bool // one column and nothing else
}

// boundPart is a literal where column is -1.
type boundPart struct {
	literal string
	column  int
	filter  filter
}

type boundHeader struct {
	name   string
	value  boundTemplate
	spread bool
	field  string
}

// RowMetadataSQL makes a server write column names into the binlog, for the sessions that start after it.
const RowMetadataSQL = "SET PERSIST binlog_row_metadata = 'FULL';"

// Bind finds the columns of the table's rules by name, without regard to case. The Binding keeps t, which must not change, and serves the
// rows of this t alone.
//
// Errors: [ErrNotWatched]; [*NamesError] when t has no names; otherwise every [*ColumnError] and [*KindError] of the table's rules, joined.
func (r *Router) Bind(t *event.Table) (*Binding, error) {
	name := TableName{Schema: t.Schema, Name: t.Name}
	rules := r.of(name, t.FoldCase)
	if rules == nil {
		return nil, fmt.Errorf("table %s: %w", name, ErrNotWatched)
	}
	if !t.HasNames {
		return nil, &NamesError{Table: name.String(), SQL: RowMetadataSQL}
	}
	b := &Binding{table: t, name: name.String(), ignore: rules.ignore, policy: rules.policy, id: idColumn(t)}
	x := &binder{table: t, values: &r.values, name: b.name}
	for i := range rules.rules {
		b.rules = append(b.rules, x.bind(&rules.rules[i]))
	}
	if len(x.errs) > 0 {
		return nil, errors.Join(x.errs...)
	}
	return b, nil
}

// idColumn is the column `id`, else the primary key where that is one column.
func idColumn(t *event.Table) int {
	if i := findColumn(t, "id"); i >= 0 {
		return i
	}
	found := -1
	for i := range t.Columns {
		if t.Columns[i].PrimaryKey {
			if found >= 0 {
				return -1
			}
			found = i
		}
	}
	return found
}

// findColumn gives the index of a column, or -1. MySQL does not allow two names that differ only in case.
func findColumn(t *event.Table, name string) int {
	for i := range t.Columns {
		if strings.EqualFold(t.Columns[i].Name, name) {
			return i
		}
	}
	return -1
}

// binder collects the errors of a table's rules.
type binder struct {
	table  *event.Table
	name   string
	rule   int
	errs   []error
	values *value.Printer
}

func (x *binder) bind(in *rule) boundRule {
	x.rule = in.index
	out := boundRule{rule: in, timestamp: -1, partition: -1}
	for _, c := range in.when {
		out.when = append(out.when, boundCondition{column: x.column("when."+c.column, c.column), values: c.values})
	}
	if in.fixed == "" {
		out.topic = x.template("topic", in.topic)
		out.recent = recentOf(&out.topic)
	}
	out.key = x.template("key", in.key)
	out.value = x.template("value", in.value)
	for _, h := range in.headers {
		if h.optional && findColumn(x.table, h.value.parts[0].column) < 0 {
			continue
		}
		bound := boundHeader{name: h.name, value: x.template(h.field, h.value), spread: h.spread, field: h.field}
		if h.spread {
			x.kind(h.field, bound.value.parts[0].column, "only a JSON column can be spread into headers", isJSON)
		}
		out.headers = append(out.headers, bound)
	}
	if in.debezium != nil {
		out.debezium = in.debezium.Bind(x.table, x, x.values)
	}
	if in.event != nil {
		out.event = x.cloudEvents(in.event, out.value)
	}
	if in.timestamp != "" {
		out.timestamp = x.column("timestamp", in.timestamp)
		x.kind("timestamp", out.timestamp, "a timestamp is a DATETIME, a TIMESTAMP or an integer of milliseconds", isTime)
	}
	if in.partition != "" {
		out.partition = x.column("partition", in.partition)
		x.kind("partition", out.partition, "a partition is an integer", isInteger)
	}
	return out
}

func (x *binder) template(field string, in template) boundTemplate {
	out := boundTemplate{single: in.single()}
	for _, p := range in.parts {
		bound := boundPart{literal: p.literal, column: -1, filter: p.filter}
		if p.column != "" {
			bound.column = x.column(field, p.column)
		}
		switch p.filter {
		case filterUUID:
			x.kind(field, bound.column, "filter uuid takes a binary column", isBinary)
		case filterHex, filterBase64:
			x.kind(field, bound.column, "filter "+p.filter.String()+" takes a column of bytes or characters", isBytes)
		}
		out.parts = append(out.parts, bound)
	}
	return out
}

// Column is column, for [debezium.Finder].
func (x *binder) Column(field, name string) int { return x.column(field, name) }

// Unsuitable notes a column that the preset cannot use.
func (x *binder) Unsuitable(field string, column int, err error) {
	x.errs = append(x.errs, &KindError{Table: x.name, Rule: x.rule, Field: field, Column: x.table.Columns[column].Name, Err: err})
}

// column finds a column whose values can be read, or notes why there is none and gives -1.
func (x *binder) column(field, name string) int {
	i := findColumn(x.table, name)
	if i < 0 {
		columns := make([]string, len(x.table.Columns))
		for j := range x.table.Columns {
			columns[j] = x.table.Columns[j].Name
		}
		x.errs = append(x.errs, &ColumnError{Table: x.name, Rule: x.rule, Field: field, Column: name, Columns: columns})
		return -1
	}
	col := &x.table.Columns[i]
	err := value.Supported(col)
	if err == nil && col.Type.IsNumeric() && !x.table.HasSigns {
		err = errors.New("the binlog does not tell whether it is unsigned")
	}
	if err != nil {
		x.errs = append(x.errs, &KindError{Table: x.name, Rule: x.rule, Field: field, Column: col.Name, Err: err})
		return -1
	}
	return i
}

// kind notes a column of the wrong type; -1 has been noted already.
func (x *binder) kind(field string, column int, wanted string, suits func(*event.Column) bool) {
	if column < 0 || suits(&x.table.Columns[column]) {
		return
	}
	col := &x.table.Columns[column]
	err := fmt.Errorf("%s, and this is %s", wanted, col.Type)
	x.errs = append(x.errs, &KindError{Table: x.name, Rule: x.rule, Field: field, Column: col.Name, Err: err})
}

func isJSON(c *event.Column) bool { return c.Type == event.ColumnJSON }

func isInteger(c *event.Column) bool {
	switch c.Type {
	case event.ColumnTiny, event.ColumnShort, event.ColumnInt24, event.ColumnLong, event.ColumnLongLong:
		return true
	}
	return false
}

func isTime(c *event.Column) bool {
	return isInteger(c) || c.Type == event.ColumnDatetime || c.Type == event.ColumnTimestamp
}

func isBytes(c *event.Column) bool {
	return c.Type.IsCharacter() && c.Type != event.ColumnVector
}

func isBinary(c *event.Column) bool { return isBytes(c) && c.Collation == event.CollationBinary }
