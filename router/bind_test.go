package router_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/binlog/event"
	"outbox-relay/router"
)

func bind(t *testing.T, tbl *event.Table, rules ...router.Rule) error {
	t.Helper()
	r, err := router.New(router.Options{Rules: rules})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Bind(tbl)
	return err
}

func TestBindNamesMissingColumns(t *testing.T) {
	t.Parallel()
	err := bind(t, table(varchar("k"), varchar("Body")), none(func(r *router.Rule) { r.Headers = []router.HeaderRule{{Name: "h", Value: "{k}{tenant}"}} }))
	var column *router.ColumnError
	if !errors.As(err, &column) {
		t.Fatalf("%v, want a *ColumnError", err)
	}
	want := &router.ColumnError{Table: "app.t", Field: "value", Column: "v", Columns: []string{"k", "Body"}}
	if diff := cmp.Diff(want, column); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	text := "table app.t has no column v, which tables[0].value needs; its columns are k, Body\n" +
		"table app.t has no column tenant, which tables[0].headers[0] needs; its columns are k, Body"
	if err.Error() != text {
		t.Errorf("got %s\nwant %s", err, text)
	}
}

func TestBindOutboxPresetNeedsItsColumns(t *testing.T) {
	t.Parallel()
	err := bind(t, &event.Table{Schema: "app", Name: "o", HasNames: true, HasSigns: true, Columns: []event.Column{varchar("x")}}, router.Rule{Table: "app.o"})
	for _, column := range []string{"aggregate_type", "aggregate_id", "payload", "id", "event_type"} {
		if err == nil || !strings.Contains(err.Error(), "no column "+column+",") {
			t.Errorf("%v does not name %s", err, column)
		}
	}
	if err != nil && strings.Contains(err.Error(), "idempotency_key") {
		t.Errorf("%v: idempotency_key is optional", err)
	}
}

func TestBindWithoutNamesTellsTheRemedy(t *testing.T) {
	t.Parallel()
	tbl := plainTable()
	tbl.HasNames = false
	err := bind(t, tbl, none(nil))
	var names *router.NamesError
	if !errors.As(err, &names) || names.Table != "app.t" || !strings.Contains(err.Error(), "SET PERSIST binlog_row_metadata = 'FULL';") {
		t.Errorf("%v, want a *NamesError with the SQL", err)
	}
}

func TestBindRefusesUnwatchedTables(t *testing.T) {
	t.Parallel()
	tbl := plainTable()
	tbl.Name = "T"
	if err := bind(t, tbl, none(nil)); !errors.Is(err, router.ErrNotWatched) {
		t.Errorf("%v, want ErrNotWatched", err)
	}
	r, err := router.New(router.Options{Rules: []router.Rule{none(nil)}, FoldCase: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Bind(tbl); err != nil {
		t.Errorf("with folded case: %v", err)
	}
}

func TestBindRefusesTypesThatDoNotSuit(t *testing.T) {
	t.Parallel()
	tbl := plainTable()
	tbl.Columns = append(tbl.Columns, ofType("old", event.ColumnTypedArray, 0), ofType("f", event.ColumnDouble, 8), ofType("vec", event.ColumnVector, 4))
	header := func(value string) func(*router.Rule) {
		return func(r *router.Rule) { r.Headers = []router.HeaderRule{{Name: "h", Value: value}} }
	}
	for _, c := range []struct {
		name   string
		change func(*router.Rule)
		want   string
	}{
		{"unsupported", header("{old}"), "column old cannot serve tables[0].headers[0]"},
		{"uuid of text", header("{k|uuid}"), "column k cannot serve tables[0].headers[0]: filter uuid takes a binary column, and this is VARCHAR"},
		{"uuid of a number", header("{n|uuid}"), "filter uuid takes a binary column, and this is BIGINT"},
		{"hex of a number", header("{n|hex}"), "filter hex takes a column of bytes or characters, and this is BIGINT"},
		{"hex of a vector", header("{vec|hex}"), "filter hex takes a column of bytes or characters, and this is VECTOR"},
		{"base64 of JSON", header("{j|base64}"), "filter base64 takes a column of bytes or characters, and this is JSON"},
		{"spread of text", func(r *router.Rule) { r.Headers = []router.HeaderRule{{Name: "*", Value: "{k}"}} }, "only a JSON column can be spread into headers, and this is VARCHAR"},
		{"timestamp of text", func(r *router.Rule) { r.Timestamp = "k" }, "a timestamp is a DATETIME, a TIMESTAMP or an integer of milliseconds, and this is VARCHAR"},
		{"timestamp of a double", func(r *router.Rule) { r.Timestamp = "f" }, "and this is DOUBLE"},
		{"partition of text", func(r *router.Rule) { r.Partition = "k" }, "a partition is an integer, and this is VARCHAR"},
	} {
		err := bind(t, tbl, none(c.change))
		var kind *router.KindError
		if !errors.As(err, &kind) || kind.Table != "app.t" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want a *KindError with %q", c.name, err, c.want)
		}
	}
	tbl.HasSigns = false
	if err := bind(t, tbl, none(func(r *router.Rule) { r.Key = "{n}" })); err == nil || !strings.Contains(err.Error(), "unsigned") {
		t.Errorf("number without sign: %v", err)
	}
}
