package binlog

import (
	"bytes"

	"outbox-relay/binlog/event"
)

// watched is the set of tables whose rows are wanted, with the columns that each had last.
type watched struct {
	fold   bool // names are compared without regard to case: the server's lower_case_table_names is not 0
	tables []watchedTable
}

type watchedTable struct {
	name          TableName
	schema, table []byte
	// body is the last TABLE_MAP without its table id; table stays valid while it is the same, so that whoever binds to a
	// table's columns does so once per definition and not once per transaction.
	body    []byte
	columns *event.Table
}

func newWatched(tables []TableName) watched {
	var w watched
	for _, t := range tables {
		w.tables = append(w.tables, watchedTable{name: t, schema: []byte(t.Schema), table: []byte(t.Name)})
	}
	return w
}

// twins gives two watched tables that are one where case does not matter: the rows would all go by the name of the first.
func (w *watched) twins() (a, b TableName, found bool) {
	for i := range w.tables {
		for j := range i {
			if bytes.EqualFold(w.tables[i].schema, w.tables[j].schema) && bytes.EqualFold(w.tables[i].table, w.tables[j].table) {
				return w.tables[j].name, w.tables[i].name, true
			}
		}
	}
	return a, b, false
}

// find returns the watched table of that name, or nil. It allocates nothing: it runs for every table map of the server.
func (w *watched) find(schema, table []byte) *watchedTable {
	for i := range w.tables {
		t := &w.tables[i]
		if len(t.table) != len(table) || len(t.schema) != len(schema) {
			continue
		}
		if bytes.Equal(t.table, table) && bytes.Equal(t.schema, schema) || w.fold && bytes.EqualFold(t.table, table) && bytes.EqualFold(t.schema, schema) {
			return t
		}
	}
	return nil
}

// hasSchema reports whether a table of that database is watched.
func (w *watched) hasSchema(schema []byte) bool {
	for i := range w.tables {
		if bytes.EqualFold(w.tables[i].schema, schema) {
			return true
		}
	}
	return false
}

// columnsOf returns the columns that a TABLE_MAP body describes.
func (t *watchedTable) columnsOf(body []byte) (*event.Table, error) {
	const idSize = 6
	if t.columns != nil && bytes.Equal(t.body, body[idSize:]) {
		return t.columns, nil
	}
	columns, err := event.ParseTableMap(body)
	if err != nil {
		return nil, err
	}
	columns.Schema, columns.Name = t.name.Schema, t.name.Name // as the user wrote them, where the server folds case
	t.body = append(t.body[:0], body[idSize:]...)
	t.columns = columns
	return columns, nil
}
