package checkpoint

import (
	"encoding/json"
	"slices"
	"time"

	"outbox-relay/binlog/gtid"
)

// Snapshot is how far the reading of rows that exist in tables has come. It is immutable: progress is a new one, which may share memory with
// the one before.
//
// While Ended is nil the binlog is not read: the position stays where it was when the snapshot was begun. Afterwards, until the position
// contains Ended, the rows that the binlog gives may have been read by the snapshot too.
type Snapshot struct {
	// Started is when it was begun.
	Started time.Time `json:"started"`
	// Tables are those still to be read, the one under way first; Done are those that were.
	Tables []SnapshotTable `json:"tables,omitempty"`
	Done   []SnapshotTable `json:"done,omitempty"`
	// Ended are the transactions that the source had executed when the last table was read to its end; nil before that.
	Ended *gtid.Set `json:"ended,omitempty"`
}

// SnapshotTable is a table that is read or was.
type SnapshotTable struct {
	Table string `json:"table"`
	// Key are the columns by which it is read, in their order; empty while nobody has looked at it.
	Key []string `json:"key,omitempty"`
	// Until is the key of the last row to be read, After that of the last one that is done. JSON of package snapshot's own; empty for none.
	Until json.RawMessage `json:"until,omitempty"`
	After json.RawMessage `json:"after,omitempty"`
	// Rows are how many are done.
	Rows int64 `json:"rows"`
}

// NewSnapshot begins one of tables.
func NewSnapshot(tables []string, now time.Time) *Snapshot {
	return (&Snapshot{Started: now.UTC()}).With(tables)
}

// Reading reports whether rows are still to be read. s may be nil.
func (s *Snapshot) Reading() bool { return s != nil && s.Ended == nil }

// Rows are how many are done in all tables.
func (s *Snapshot) Rows() (rows int64) {
	for _, t := range s.Tables {
		rows += t.Rows
	}
	for _, t := range s.Done {
		rows += t.Rows
	}
	return rows
}

// With adds tables to be read behind those that are. One that was read already is read again.
func (s *Snapshot) With(tables []string) *Snapshot {
	n := *s
	n.Ended = nil
	n.Tables = slices.Clone(s.Tables)
	n.Done = slices.DeleteFunc(slices.Clone(s.Done), func(d SnapshotTable) bool { return slices.Contains(tables, d.Table) })
	for _, t := range tables {
		if !slices.ContainsFunc(n.Tables, func(x SnapshotTable) bool { return x.Table == t }) {
			n.Tables = append(n.Tables, SnapshotTable{Table: t})
		}
	}
	return &n
}

// Only drops the tables to be read that are not watched, and gives their names. s may be nil.
func (s *Snapshot) Only(watched func(table string) bool) (next *Snapshot, dropped []string) {
	if !s.Reading() {
		return s, nil
	}
	n := *s
	n.Tables = nil
	for _, t := range s.Tables {
		if watched(t.Table) {
			n.Tables = append(n.Tables, t)
		} else {
			dropped = append(dropped, t.Table)
		}
	}
	return &n, dropped
}

// Set is the progress with another state of the table under way, or of one behind it.
func (s *Snapshot) Set(i int, t SnapshotTable) *Snapshot {
	n := *s
	n.Tables = slices.Clone(s.Tables)
	n.Tables[i] = t
	return &n
}

// Finished is the progress when a table is read to its end.
func (s *Snapshot) Finished(i int) *Snapshot {
	n := *s
	n.Done = append(slices.Clip(s.Done), s.Tables[i])
	n.Tables = slices.Delete(slices.Clone(s.Tables), i, i+1)
	return &n
}

// At is the progress when so many rows more of the table under way are done, the last one with that key.
func (s *Snapshot) At(key json.RawMessage, rows int64) *Snapshot {
	t := s.Tables[0]
	t.After, t.Rows = slices.Clone(key), t.Rows+rows
	return s.Set(0, t)
}

// sound reports whether it is one that can go on: the end is known only once no table is left.
func (s *Snapshot) sound() bool { return s.Ended == nil || len(s.Tables) == 0 }
