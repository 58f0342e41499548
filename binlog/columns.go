package binlog

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
)

// A columnMemory keeps the columns of watched tables where the binlog does not name them (binlog_row_metadata=MINIMAL): for each table its
// versions, each beginning with the statement that may have changed the columns. It goes with the checkpoint, so that rows from before an
// ALTER are still named after it. Safe for concurrent use: the position is saved while the reader goes on.
type columnMemory struct {
	mu     sync.Mutex
	tables map[TableName]*columnHistory
}

// columnHistory is one table's versions in the order of the binlog; at is the one that holds where the reader is.
type columnHistory struct {
	versions []columnVersion
	at       int
}

type columnVersion struct {
	since   gtid.GTID      // the statement that began it; zero for what held when the memory began
	columns []event.Column // nil while they are not known
}

// current gives the columns that the table has where the reader is, nil when they are not known, and the statement since which that is so.
func (m *columnMemory) current(name TableName) ([]event.Column, gtid.GTID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.tables[name]
	if h == nil {
		return nil, gtid.GTID{}
	}
	v := h.versions[h.at]
	return v.columns, v.since
}

// began notes that a new version of the table begins with transaction g. Its columns are known only if an earlier run has learnt them.
func (m *columnMemory) began(name TableName, g gtid.GTID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.history(name)
	if next := h.at + 1; next < len(h.versions) && h.versions[next].since == g {
		h.at = next
		return
	}
	if h.versions[h.at].since != g {
		h.versions = append(h.versions[:h.at+1], columnVersion{since: g})
		h.at++
	}
}

// learnt gives the present version its columns.
func (m *columnMemory) learnt(name TableName, columns []event.Column) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := m.history(name)
	h.versions[h.at].columns = columns
}

func (m *columnMemory) history(name TableName) *columnHistory {
	h := m.tables[name]
	if h == nil {
		if m.tables == nil {
			m.tables = map[TableName]*columnHistory{}
		}
		h = &columnHistory{versions: make([]columnVersion, 1)}
		m.tables[name] = h
	}
	return h
}

// names are the tables of which something is remembered.
func (m *columnMemory) names() []TableName {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.tables))
}

func (m *columnMemory) empty() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.tables) == 0
}

// The stored form.
type (
	storedTable struct {
		Schema   string          `json:"schema"`
		Table    string          `json:"table"`
		Versions []storedVersion `json:"versions"`
	}
	storedVersion struct {
		Since   string         `json:"since,omitempty"`
		Columns []storedColumn `json:"columns,omitempty"` // none: not known
	}
	storedColumn struct {
		Name       string   `json:"name"`
		Type       uint8    `json:"type"`
		Meta       uint16   `json:"meta,omitempty"`
		Nullable   bool     `json:"nullable,omitempty"`
		Unsigned   bool     `json:"unsigned,omitempty"`
		Collation  uint16   `json:"collation,omitempty"`
		Members    []string `json:"members,omitempty"`
		PrimaryKey bool     `json:"primary_key,omitempty"`
		Invisible  bool     `json:"invisible,omitempty"`
	}
)

// stored gives what a reader that starts at position p has to know, nil if that is nothing. Older versions are forgotten.
func (m *columnMemory) stored(p *gtid.Set) (json.RawMessage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []storedTable
	for name, h := range m.tables {
		first := h.startAt(p)
		h.versions = slices.Delete(h.versions, 0, first)
		h.at -= first
		t := storedTable{Schema: name.Schema, Table: name.Name}
		for _, v := range h.versions {
			s := storedVersion{}
			if v.since != (gtid.GTID{}) {
				s.Since = v.since.String()
			}
			for _, c := range v.columns {
				s.Columns = append(s.Columns, storedColumn{c.Name, uint8(c.Type), c.Meta, c.Nullable, c.Unsigned, c.Collation, c.Members, c.PrimaryKey, !c.Visible})
			}
			t.Versions = append(t.Versions, s)
		}
		out = append(out, t)
	}
	if out == nil {
		return nil, nil
	}
	slices.SortFunc(out, func(a, b storedTable) int {
		return slices.Compare([]string{a.Schema, a.Table}, []string{b.Schema, b.Table})
	})
	return json.Marshal(out)
}

// startAt gives the version that holds at position p: the last one whose statement is in p. The reader itself is never before it.
func (h *columnHistory) startAt(p *gtid.Set) int {
	at := 0
	for i, v := range h.versions[:h.at+1] {
		if v.since == (gtid.GTID{}) || p.Contains(v.since) {
			at = i
		}
	}
	return at
}

// load takes over what stored gave, for the watched tables, at position p.
func (m *columnMemory) load(raw json.RawMessage, watched *watched, p *gtid.Set) error {
	if len(raw) == 0 {
		return nil
	}
	var in []storedTable
	if err := json.Unmarshal(raw, &in); err != nil {
		return fmt.Errorf("the columns remembered in the checkpoint: %w", err)
	}
	for _, t := range in {
		name := TableName{t.Schema, t.Table}
		if len(t.Versions) == 0 || !watched.names(name) {
			continue
		}
		h := m.history(name)
		h.versions = h.versions[:0]
		for _, s := range t.Versions {
			var v columnVersion
			if s.Since != "" {
				var err error
				if v.since, err = gtid.Parse(s.Since); err != nil {
					return fmt.Errorf("the columns remembered in the checkpoint: %w", err)
				}
			}
			for _, c := range s.Columns {
				v.columns = append(v.columns, event.Column{
					Name: c.Name, Type: event.ColumnType(c.Type), Meta: c.Meta, Nullable: c.Nullable, Unsigned: c.Unsigned,
					Collation: c.Collation, Members: c.Members, PrimaryKey: c.PrimaryKey, Visible: !c.Invisible,
				})
			}
			h.versions = append(h.versions, v)
		}
		if first := h.versions[0].since; first != (gtid.GTID{}) && !p.Contains(first) {
			h.versions = slices.Insert(h.versions, 0, columnVersion{}) // somebody moved the position back
		}
		h.at = len(h.versions) - 1
		h.at = h.startAt(p)
	}
	return nil
}

// nameColumns gives the columns of a TABLE_MAP without names those of the memory. It changes nothing, and says what differs, when they are not
// the same columns.
func nameColumns(t *event.Table, known []event.Column) error {
	if len(known) != len(t.Columns) {
		return fmt.Errorf("the binlog has %d columns where %d are known", len(t.Columns), len(known))
	}
	for i := range known {
		k, c := known[i], &t.Columns[i]
		same := k.Type == c.Type && k.Meta == c.Meta && k.Nullable == c.Nullable && (k.Unsigned == c.Unsigned || !t.HasSigns) &&
			(k.Collation == c.Collation || c.Collation == 0)
		if !same {
			return fmt.Errorf("column %d is %s in the binlog, and %q, known in its place, is another %s", i+1, c.Type, k.Name, k.Type)
		}
	}
	for i := range known {
		c := &t.Columns[i]
		c.Name, c.Members, c.PrimaryKey, c.Visible = known[i].Name, known[i].Members, known[i].PrimaryKey, known[i].Visible
		if c.Collation == 0 {
			c.Collation = known[i].Collation
		}
	}
	t.HasNames = true
	return nil
}
