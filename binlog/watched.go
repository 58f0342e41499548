package binlog

import (
	"bytes"
	"slices"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/wildcard"
)

// watched is the set of tables whose rows are wanted, with the columns that each had last.
type watched struct {
	fold   bool // names are compared without regard to case: the server's lower_case_table_names is not 0
	tables []watchedTable
	// patterns name tables by wildcards; matched are the tables of them that were seen, by their names as the server writes them.
	patterns []TableName
	matched  map[string]*watchedTable
	key      []byte // for a look into matched
}

// maxMatched bounds the tables of patterns whose columns are kept. Beyond it all are forgotten, and read again from their next TABLE_MAP.
const maxMatched = 2000

// IsPattern tells whether the name stands for all tables that match it: % in it is any run of characters.
func (t TableName) IsPattern() bool { return wildcard.Is(t.Schema) || wildcard.Is(t.Name) }

// Matches tells whether the pattern t stands for the table. With fold, case does not matter.
func (t TableName) Matches(schema, table []byte, fold bool) bool {
	return wildcard.Match(t.Name, table, fold) && wildcard.Match(t.Schema, schema, fold)
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
		if t.IsPattern() {
			w.patterns = append(w.patterns, t)
			continue
		}
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
	for _, p := range w.patterns {
		if p.Matches(schema, table, w.fold) {
			return w.match(schema, table)
		}
	}
	return nil
}

// match gives the table of a pattern, the same each time.
func (w *watched) match(schema, table []byte) *watchedTable {
	w.key = append(append(append(w.key[:0], schema...), 0), table...)
	t := w.matched[string(w.key)]
	if t == nil {
		if w.matched == nil || len(w.matched) >= maxMatched {
			w.matched = map[string]*watchedTable{}
		}
		name := TableName{string(schema), string(table)}
		t = &watchedTable{name: name, schema: []byte(name.Schema), table: []byte(name.Name)}
		w.matched[string(w.key)] = t
	}
	return t
}

// isMatched tells whether a table is one of a pattern's, and not named itself.
func (w *watched) isMatched(t *watchedTable) bool {
	w.key = append(append(append(w.key[:0], t.schema...), 0), t.table...)
	return w.matched[string(w.key)] == t
}

// names tells whether a table is watched, or would be on a server that does not tell upper from lower case.
func (w *watched) names(t TableName) bool {
	return slices.ContainsFunc(w.tables, func(x watchedTable) bool { return x.name == t }) ||
		slices.ContainsFunc(w.patterns, func(p TableName) bool { return p.Matches([]byte(t.Schema), []byte(t.Name), true) })
}

// hasSchema reports whether a table of that database is watched.
func (w *watched) hasSchema(schema []byte) bool {
	for i := range w.tables {
		if bytes.EqualFold(w.tables[i].schema, schema) {
			return true
		}
	}
	return slices.ContainsFunc(w.patterns, func(p TableName) bool { return wildcard.Match(p.Schema, schema, true) })
}

// columnsOf returns the columns that a TABLE_MAP body describes.
func (t *watchedTable) columnsOf(body []byte, fold bool) (*event.Table, error) {
	const idSize = 6
	if t.columns != nil && bytes.Equal(t.body, body[idSize:]) {
		return t.columns, nil
	}
	columns, err := event.ParseTableMap(body)
	if err != nil {
		return nil, err
	}
	columns.Schema, columns.Name = t.name.Schema, t.name.Name // as the user wrote them, where the server folds case and they are no pattern's
	columns.FoldCase = fold
	t.body = append(t.body[:0], body[idSize:]...)
	t.columns = columns
	return columns, nil
}
