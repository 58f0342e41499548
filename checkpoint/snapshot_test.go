package checkpoint_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
)

var begun = time.Date(2026, 11, 30, 7, 0, 0, 0, time.UTC)

func names(s *checkpoint.Snapshot) (tables, done []string) {
	for _, t := range s.Tables {
		tables = append(tables, t.Table)
	}
	for _, t := range s.Done {
		done = append(done, t.Table)
	}
	return tables, done
}

func text(t *testing.T, s *checkpoint.Snapshot) string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A checkpoint with a snapshot is of a version that older relays refuse: they would drop it and go on in the binlog.
func TestASnapshotIsStoredAsVersion4(t *testing.T) {
	t.Parallel()
	x := checkpoint.NewSnapshot([]string{"a.b", "a.c"}, begun)
	x = x.Set(0, checkpoint.SnapshotTable{Table: "a.b", Key: []string{"id"}, Until: json.RawMessage(`["9"]`)}).At(json.RawMessage(`["4"]`), 3)
	c := &checkpoint.Checkpoint{Name: "r", GTIDSet: new(gtid.Set), Snapshot: x, Time: begun}
	data, err := checkpoint.Marshal(c)
	if err != nil || !strings.Contains(string(data), `"version": 4`) {
		t.Fatalf("%v\n%s", err, data)
	}
	got, err := checkpoint.Unmarshal(data, "r")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(text(t, x), text(t, got.Snapshot)); diff != "" {
		t.Error(diff)
	}
	x = x.Finished(0)
	x.Ended = new(gtid.Set)
	if _, err := checkpoint.Marshal(&checkpoint.Checkpoint{Name: "r", GTIDSet: new(gtid.Set), Snapshot: x}); err == nil {
		t.Error("a snapshot that has ended with a table to be read was stored")
	}
}

func TestProgressOfASnapshot(t *testing.T) {
	t.Parallel()
	x := checkpoint.NewSnapshot([]string{"a.b", "a.c", "a.d"}, begun)
	before := text(t, x)
	y := x.At(json.RawMessage(`["4"]`), 3).Finished(0)
	if diff := cmp.Diff(before, text(t, x)); diff != "" {
		t.Errorf("progress changed what was before:\n%s", diff)
	}
	if tables, done := names(y); !cmp.Equal(tables, []string{"a.c", "a.d"}) || !cmp.Equal(done, []string{"a.b"}) || y.Rows() != 3 {
		t.Errorf("got %v, %v, %d rows", tables, done, y.Rows())
	}
	z, dropped := y.Only(func(table string) bool { return table == "a.d" || table == "a.b" })
	if tables, _ := names(z); !cmp.Equal(tables, []string{"a.d"}) || !cmp.Equal(dropped, []string{"a.c"}) {
		t.Errorf("got %v, dropped %v", tables, dropped)
	}
	z.Ended = new(gtid.Set)
	again := z.With([]string{"a.b", "a.d"}) // read before, and still to be read
	if tables, done := names(again); !cmp.Equal(tables, []string{"a.d", "a.b"}) || done != nil || !again.Reading() {
		t.Errorf("got %v, %v", tables, done)
	}
}

// The progress follows acknowledgements as a position does: never past a row that is outstanding, and never out of order.
func TestTrackerKeepsTheProgressOfASnapshotBehindItsRecords(t *testing.T) {
	t.Parallel()
	for _, gather := range []bool{false, true} {
		x := checkpoint.NewSnapshot([]string{"a.b"}, begun)
		tr := checkpoint.NewTracker(new(gtid.Set))
		tr.Snapshot(x)
		if gather {
			tr.Gather()
		}
		at := func(n int64) *checkpoint.Snapshot { return x.At(json.RawMessage(`["x"]`), n) }
		var seqs []uint64
		for n := range int64(3) {
			seq := tr.BeginRows(1)
			tr.Published(seq, 1)
			seqs = append(seqs, seq)
			tr.Read(seq, at(n+1))
		}
		rows := func() int64 { return tr.Position().Snapshot.Rows() }
		if gather {
			_, p := tr.Mark()
			if p.Snapshot.Rows() != 3 || rows() != 0 {
				t.Errorf("the mark has %d rows and the position %d", p.Snapshot.Rows(), rows())
			}
			continue
		}
		generation := tr.Position().Generation
		tr.Acked(seqs[1:])
		if rows() != 0 || tr.Position().Generation != generation {
			t.Errorf("%d rows are done while the first is outstanding", rows())
		}
		tr.Acked(seqs[:1])
		if rows() != 3 || tr.Position().Generation == generation || tr.Position().Done {
			t.Errorf("%d rows are done, %+v", rows(), tr.Position())
		}
	}
}

// In a window the end of a snapshot and the first transaction of the binlog lie side by side.
func TestGatheredRowsAndTransactionsKeepTheirKinds(t *testing.T) {
	t.Parallel()
	x := checkpoint.NewSnapshot([]string{"a.b"}, begun)
	tr := checkpoint.NewTracker(new(gtid.Set))
	tr.Snapshot(x)
	tr.Gather()
	seq := tr.BeginRows(1)
	tr.Published(seq, 1)
	tr.Read(seq, x.Finished(0))
	tx := checkpoint.Transaction{Ranges: []gtid.Range{{UUID: gtid.UUID{1}, First: 1, Last: 1}}, CommitMicros: 5}
	seq = tr.Begin(tx)
	tr.Published(seq, 2)
	tr.Close(seq)
	m, p := tr.Mark()
	if len(p.Snapshot.Tables) != 0 || p.Set.Count() != 1 || p.LastCommitMicros != 5 {
		t.Errorf("got %+v", p)
	}
	tr.AckedThrough(m)
	if p := tr.Position(); p.InFlight != 0 || len(p.Snapshot.Tables) != 0 || p.Set.Count() != 1 {
		t.Errorf("got %+v", p)
	}
}
