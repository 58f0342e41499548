package binlog_test

import (
	"context"
	"strings"
	"testing"

	"outbox-relay/binlog"
	"outbox-relay/internal/fakemysql"
)

// Tables of a pattern are taken as soon as they appear, each under its own name; a transaction of others is foreign.
func TestTablesOfAPatternAreTaken(t *testing.T) {
	t.Parallel()
	s := newStream()
	for i, name := range []string{"out_a", "f", "out_b", "out_a", "outx"} {
		s.gtid(int64(i+1)).query("BEGIN").tableMap(uint64(10+i), name).insert(uint64(10+i), uint64(i), "k", "{}").xid()
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	source := &fakemysql.Source{Streams: [][]byte{s.bytes()}, Ended: cancel}
	o := fakeOptions(source)
	o.Tables = []binlog.TableName{{Schema: "%", Name: "out_%"}}
	r, err := binlog.New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []string
	tables := map[string]any{}
	for {
		tx, err := r.Next(ctx)
		if err != nil {
			break
		}
		if !tx.HasRows {
			continue
		}
		var row binlog.Row
		for {
			ok, err := tx.NextRow(&row)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			name := row.Table.Name
			got = append(got, name)
			if before, seen := tables[name]; seen && before != any(row.Table) {
				t.Errorf("the columns of %s were parsed twice", name)
			}
			tables[name] = row.Table
		}
	}
	if text, want := strings.Join(got, " "), "out_a out_b out_a"; text != want {
		t.Errorf("got %q, want %q", text, want)
	}
}
