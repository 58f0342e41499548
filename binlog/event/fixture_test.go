package event_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"outbox-relay/binlog/event"
)

//go:generate go run outbox-relay/internal/capture
//go:generate env UPDATE_GOLDEN=1 go test -count=1 -run TestGroups .

// ev is one event of a binlog file.
type ev struct {
	event.Header
	whole, body []byte
}

// captured are the files of groups.sql, of a server of 9.7 and of one of 8.0.
var captured = []string{"testdata/groups.binlog", "testdata/groups-8.0.binlog"}

// eachCaptured runs a test on the events of each file.
func eachCaptured(t *testing.T, test func(t *testing.T, events []ev)) {
	t.Helper()
	for _, file := range captured {
		t.Run(filepath.Base(file), func(t *testing.T) { test(t, readFile(t, file)) })
	}
}

// readFile splits a binlog file with checksums into its events.
func readFile(t testing.TB, path string) []ev {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b, ok := bytes.CutPrefix(b, []byte("\xfebin"))
	if !ok {
		t.Fatalf("%s is no binlog file", path)
	}
	return split(t, b, event.ChecksumSize)
}

func split(t testing.TB, b []byte, checksum int) []ev {
	t.Helper()
	var out []ev
	for len(b) > 0 {
		h, err := event.ParseHeader(b)
		if err != nil || int(h.Size) > len(b) {
			t.Fatalf("event %d: %+v, %v", len(out), h, err)
		}
		whole := b[:h.Size:h.Size]
		out = append(out, ev{h, whole, whole[event.HeaderSize : len(whole)-checksum]})
		b = b[h.Size:]
	}
	return out
}

// describe gives one line about an event, made with the decoders under test.
func describe(t testing.TB, e ev, tables map[uint64]*event.Table, tags *event.Tags) string {
	t.Helper()
	fail := func(err error) {
		if err != nil {
			t.Fatalf("%s: %v", e.Type, err)
		}
	}
	switch e.Type {
	case event.TypeFormatDescription:
		fd, err := event.ParseFormatDescription(e.body)
		fail(err)
		return fmt.Sprintf("FORMAT %s crc %d", fd.ServerVersion, fd.Checksum)
	case event.TypeRotate:
		r, err := event.ParseRotate(e.body)
		fail(err)
		return fmt.Sprintf("ROTATE %s %d", r.File, r.Position)
	case event.TypePreviousGTIDs:
		s, err := event.ParsePreviousGTIDs(e.body)
		fail(err)
		return fmt.Sprintf("PREVIOUS %d", s.Count())
	case event.TypeGTID, event.TypeGTIDTagged:
		g, err := event.ParseGTID(e.Type, e.body, tags)
		fail(err)
		stmt := ""
		if g.MayHaveStatements {
			stmt = " statements"
		}
		name := g.GTID.String()
		if g.GTID.UUID.String() != "eeeeeeee-ffff-ffff-ffff-ffffffffffff" {
			name = fmt.Sprintf("%s:%d", g.GTID.Tag, g.GTID.Number)
		}
		return fmt.Sprintf("GTID %s length %d server %d/%d%s", name, g.TransactionLength, g.ServerVersion, g.OriginalVersion, stmt)
	case event.TypeQuery:
		q, err := event.ParseQuery(e.body)
		fail(err)
		schemas, state := q.UpdatedSchemas(nil)
		return fmt.Sprintf("QUERY %d %q schemas %s %d", event.Classify(q.Text), q.Text[:min(len(q.Text), 60)], bytes.Join(schemas, []byte(",")), state)
	case event.TypeTableMap:
		tm, err := event.ParseTableMap(e.body)
		fail(err)
		tables[tm.ID] = tm
		return fmt.Sprintf("TABLE_MAP %s.%s %d", tm.Schema, tm.Name, len(tm.Columns))
	case event.TypeWriteRows, event.TypeUpdateRows, event.TypeDeleteRows:
		return describeRows(t, e, tables)
	case event.TypeXAPrepare:
		p, err := event.ParseXAPrepare(e.body)
		fail(err)
		return fmt.Sprintf("XA_PREPARE %v %s", p.OnePhase, p.Branch)
	case event.TypeTransactionPayload:
		p, err := event.ParsePayloadHead(e.body)
		fail(err)
		if p.Size != uint64(len(e.body)-p.Offset) {
			t.Errorf("payload of %d bytes, body has %d", p.Size, len(e.body)-p.Offset)
		}
		return fmt.Sprintf("PAYLOAD %d from %d", p.Compression, p.UncompressedSize)
	}
	return e.Type.String()
}

func describeRows(t testing.TB, e ev, tables map[uint64]*event.Table) string {
	h, err := event.ParseRowsHeader(e.Type, e.body)
	if err != nil {
		t.Fatal(err)
	}
	tm := tables[h.TableID]
	if tm == nil {
		t.Fatalf("rows of unknown table %d", h.TableID)
	}
	var rows event.Rows
	if err := rows.Reset(tm, h, e.body); err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s end %v:", e.Type, tm.Name, h.Flags&event.RowsStatementEnd != 0)
	cells := make([]event.Cell, len(tm.Columns))
	images := 0
	for rows.Next(cells) {
		if images++; images > 2 {
			continue
		}
		s.WriteString(" (")
		for i, c := range cells {
			if i > 0 {
				s.WriteString("|")
			}
			switch c.State {
			case event.CellAbsent:
				s.WriteString("-")
			case event.CellNull:
				s.WriteString("NULL")
			case event.CellValue:
				fmt.Fprintf(&s, "%x", c.Raw[:min(len(c.Raw), 20)])
			}
		}
		s.WriteString(")")
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	if rows.Offset() != len(e.body)-h.Offset || rows.Count() != images {
		t.Errorf("walked %d bytes of %d, %d images of %d", rows.Offset(), len(e.body)-h.Offset, rows.Count(), images)
	}
	fmt.Fprintf(&s, " %d images", images)
	return s.String()
}

// TestGroups describes each file event by event and compares with a description that was read line by line against
// groups.sql. UPDATE_GOLDEN=1 writes it anew.
func TestGroups(t *testing.T) {
	t.Parallel()
	for _, file := range captured {
		t.Run(filepath.Base(file), func(t *testing.T) { compareGolden(t, file) })
	}
}

func compareGolden(t *testing.T, file string) {
	t.Helper()
	var got strings.Builder
	tables, tags := map[uint64]*event.Table{}, &event.Tags{}
	for _, e := range readFile(t, file) {
		if !event.VerifyChecksum(e.whole) {
			t.Errorf("checksum of %s at %d", e.Type, e.LogPos)
		}
		fmt.Fprintln(&got, describe(t, e, tables, tags))
	}
	golden := strings.TrimSuffix(file, "binlog") + "txt"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	gotLines, wantLines := strings.Split(got.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(gotLines), len(wantLines)) {
		if i >= len(gotLines) || i >= len(wantLines) {
			t.Fatalf("%d lines, want %d", len(gotLines), len(wantLines))
		}
		if gotLines[i] != wantLines[i] {
			t.Errorf("line %d:\n got %s\nwant %s", i+1, gotLines[i], wantLines[i])
		}
	}
}
