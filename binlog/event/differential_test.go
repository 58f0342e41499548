package event_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/go-cmp/cmp"

	"outbox-relay/binlog/event"
)

// TestAgainstGoMySQL compares what this package reads in the captured files with another decoder.
func TestAgainstGoMySQL(t *testing.T) {
	t.Parallel()
	eachCaptured(t, compareAll)
}

func compareAll(t *testing.T, events []ev) {
	t.Helper()
	p := replication.NewBinlogParser()
	p.SetVerifyChecksum(true)
	compared := map[string]int{}
	tables := map[uint64]*event.Table{}
	for _, e := range events {
		other, err := p.Parse(e.whole)
		if err != nil {
			t.Fatalf("%s: %v", e.Type, err)
		}
		h := other.Header
		if want := (event.Header{Timestamp: h.Timestamp, Type: event.Type(h.EventType), ServerID: h.ServerID, Size: h.EventSize, LogPos: h.LogPos, Flags: event.Flags(h.Flags)}); e.Header != want {
			t.Errorf("header %+v, want %+v", e.Header, want)
		}
		switch o := other.Event.(type) {
		case *replication.GTIDEvent:
			compareGTID(t, e, *o)
		case *replication.GtidTaggedLogEvent:
			compareGTID(t, e, o.GTIDEvent)
		case *replication.QueryEvent:
			q, err := event.ParseQuery(e.body)
			if err != nil || q.ThreadID != o.SlaveProxyID || q.ExecutionTime != o.ExecutionTime || q.ErrorCode != o.ErrorCode || string(q.Schema) != string(o.Schema) ||
				string(q.StatusVars) != string(o.StatusVars) || string(q.Text) != string(o.Query) {
				t.Errorf("QUERY %+v, %v, want %+v", q, err, o)
			}
		case *replication.XIDEvent:
			if x, err := event.ParseXID(e.body); err != nil || x != o.XID {
				t.Errorf("XID %d, %v, want %d", x, err, o.XID)
			}
		case *replication.TableMapEvent:
			tm, err := event.ParseTableMap(e.body)
			if err != nil {
				t.Fatal(err)
			}
			tables[tm.ID] = tm
			compareTableMap(t, tm, o)
		case *replication.RowsEvent:
			compareRows(t, e, tables, o)
		default:
			continue
		}
		compared[fmt.Sprintf("%T", other.Event)]++
	}
	kinds := 5
	if slices.ContainsFunc(events, func(e ev) bool { return e.Type == event.TypeGTIDTagged }) {
		kinds++
	}
	if len(compared) != kinds {
		t.Errorf("compared %v", compared)
	}
}

func compareGTID(t *testing.T, e ev, o replication.GTIDEvent) {
	t.Helper()
	g, err := event.ParseGTID(e.Type, e.body, &event.Tags{})
	if err != nil {
		t.Fatal(err)
	}
	// go-mysql reads numbers from 2^55 on as 0.
	if g.GTID.UUID != [16]byte(o.SID) || g.GTID.Number != o.GNO && g.GTID.Number < 1<<55 || g.GTID.Tag != fmt.Sprint(o.Tag) || g.LastCommitted != o.LastCommitted ||
		g.SequenceNumber != o.SequenceNumber || g.ImmediateCommit != o.ImmediateCommitTimestamp || g.TransactionLength != o.TransactionLength || g.ServerVersion != o.ImmediateServerVersion {
		t.Errorf("GTID %+v, want %+v", g, o)
	}
	if original := o.OriginalCommitTimestamp; original != 0 && original != g.OriginalCommit {
		t.Errorf("original commit %d, want %d", g.OriginalCommit, original)
	}
}

func compareTableMap(t *testing.T, tm *event.Table, o *replication.TableMapEvent) {
	t.Helper()
	if tm.ID != o.TableID || tm.Schema != string(o.Schema) || tm.Name != string(o.Table) || len(tm.Columns) != int(o.ColumnCount) {
		t.Errorf("table map %+v, want %+v", tm, o)
	}
	var names []string
	unsigned, enums, sets := o.UnsignedMap(), o.EnumStrValueMap(), o.SetStrValueMap()
	collations, enumCollations, visibility := o.CollationMap(), o.EnumSetCollationMap(), o.VisibilityMap()
	var keys []uint64
	afterVector := false
	for i, c := range tm.Columns {
		names = append(names, c.Name)
		_, nullable := o.Nullable(i)
		if c.Nullable != nullable {
			t.Errorf("%s nullable %v", c.Name, c.Nullable)
		}
		if c.Type.IsNumeric() && c.Unsigned != unsigned[i] {
			t.Errorf("%s unsigned %v", c.Name, c.Unsigned)
		}
		if c.Type == event.ColumnEnum && !cmp.Equal(c.Members, enums[i]) || c.Type == event.ColumnSet && !cmp.Equal(c.Members, sets[i]) {
			t.Errorf("%s members %q", c.Name, c.Members)
		}
		// go-mysql does not count VECTOR among the character columns and shifts what comes behind one.
		afterVector = afterVector || c.Type == event.ColumnVector
		if id, ok := collations[i]; ok && !afterVector && uint64(c.Collation) != id {
			t.Errorf("%s collation %d, want %d", c.Name, c.Collation, id)
		}
		if id, ok := enumCollations[i]; ok && uint64(c.Collation) != id {
			t.Errorf("%s collation %d, want %d", c.Name, c.Collation, id)
		}
		if c.Visible != visibility[i] {
			t.Errorf("%s visible %v", c.Name, c.Visible)
		}
		if c.PrimaryKey {
			keys = append(keys, uint64(i))
		}
	}
	if !tm.HasNames || !slices.Equal(names, o.ColumnNameString()) {
		t.Errorf("names %q, want %q", names, o.ColumnNameString())
	}
	if !slices.Equal(keys, o.PrimaryKey) {
		t.Errorf("%s: keys %v, want %v", tm.Name, keys, o.PrimaryKey)
	}
}

func compareRows(t *testing.T, e ev, tables map[uint64]*event.Table, o *replication.RowsEvent) {
	t.Helper()
	h, err := event.ParseRowsHeader(e.Type, e.body)
	if err != nil || h.TableID != o.TableID || uint16(h.Flags) != o.Flags || h.Columns != int(o.ColumnCount) || string(h.Present) != string(o.ColumnBitmap1) || string(h.After) != string(o.ColumnBitmap2) {
		t.Errorf("head %+v, %v, want %+v", h, err, o)
	}
	tm := tables[h.TableID]
	var rows event.Rows
	if err := rows.Reset(tm, h, e.body); err != nil {
		t.Fatal(err)
	}
	cells := make([]event.Cell, len(tm.Columns))
	n := 0
	for ; rows.Next(cells); n++ {
		if n >= len(o.Rows) {
			t.Fatalf("more than %d images", n)
		}
		for i, c := range cells {
			absent := slices.Contains(o.SkippedColumns[n], i)
			if (c.State == event.CellAbsent) != absent || (c.State == event.CellNull) != (!absent && o.Rows[n][i] == nil) {
				t.Errorf("image %d, column %d: state %d, want %v", n, i, c.State, o.Rows[n][i])
			}
			if tm.Columns[i].Type == event.ColumnJSON { // text there; package value compares it with the server's
				continue
			}
			switch v := o.Rows[n][i].(type) {
			case string:
				if string(c.Raw) != v {
					t.Errorf("image %d, column %d: %.80q, want %.80q", n, i, c.Raw, v)
				}
			case []byte:
				if string(c.Raw) != string(v) {
					t.Errorf("image %d, column %d: %.80q, want %.80q", n, i, c.Raw, v)
				}
			}
		}
	}
	if rows.Err() != nil || n != len(o.Rows) {
		t.Errorf("%d images, %v, want %d", n, rows.Err(), len(o.Rows))
	}
}
