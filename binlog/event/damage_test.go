package event_test

import (
	"errors"
	"testing"

	"outbox-relay/binlog/event"
)

// TestTruncation cuts every body of the file everywhere: decoders must not panic, and the ones whose layout has no
// optional end must refuse.
func TestTruncation(t *testing.T) {
	t.Parallel()
	eachCaptured(t, truncate)
}

func truncate(t *testing.T, events []ev) {
	t.Helper()
	tables := map[uint64]*event.Table{}
	for _, e := range events {
		for n := range e.body {
			b := e.body[:n:n]
			err := error(nil)
			switch e.Type {
			case event.TypeTableMap:
				_, err = event.ParseTableMap(b)
				if err == nil { // cut between two metadata fields
					continue
				}
			case event.TypeXAPrepare:
				_, err = event.ParseXAPrepare(b)
			case event.TypePreviousGTIDs:
				_, err = event.ParsePreviousGTIDs(b)
			case event.TypeWriteRows, event.TypeUpdateRows, event.TypeDeleteRows:
				err = walk(tables, e.Type, b)
				if err == nil { // cut between two rows
					continue
				}
			default:
				parseAny(e.Header, b)
				continue
			}
			if !errors.Is(err, event.ErrMalformed) {
				t.Errorf("%s with %d of %d bytes: %v", e.Type, n, len(e.body), err)
			}
		}
		if e.Type == event.TypeTableMap {
			tm, err := event.ParseTableMap(e.body)
			if err != nil {
				t.Fatal(err)
			}
			tables[tm.ID] = tm
		}
	}
}

// walk reads all rows of an event.
func walk(tables map[uint64]*event.Table, typ event.Type, b []byte) error {
	h, err := event.ParseRowsHeader(typ, b)
	if err != nil {
		return err
	}
	tm := tables[h.TableID]
	if tm == nil {
		return errors.New("unknown table")
	}
	var rows event.Rows
	if err := rows.Reset(tm, h, b); err != nil {
		return err
	}
	cells := make([]event.Cell, len(tm.Columns))
	for rows.Next(cells) {
	}
	return rows.Err()
}

// parseAny hands a body to the decoder of its type and drops the result.
func parseAny(h event.Header, b []byte) {
	switch h.Type {
	case event.TypeFormatDescription:
		event.ParseFormatDescription(b)
	case event.TypeRotate:
		event.ParseRotate(b)
	case event.TypeGTID, event.TypeAnonymousGTID, event.TypeGTIDTagged:
		event.ParseGTID(h.Type, b, &event.Tags{})
	case event.TypePreviousGTIDs:
		event.ParsePreviousGTIDs(b)
	case event.TypeQuery:
		if q, err := event.ParseQuery(b); err == nil {
			q.UpdatedSchemas(nil)
			event.Classify(q.Text)
			event.ParseXAStatement(q.Text)
		}
	case event.TypeXAPrepare:
		event.ParseXAPrepare(b)
	case event.TypeTransactionPayload:
		event.ParsePayloadHead(b)
	case event.TypeIncident:
		event.ParseIncident(b)
	case event.TypeHeartbeat, event.TypeHeartbeatV2:
		event.ParseHeartbeat(h, b)
	case event.TypeXID:
		event.ParseXID(b)
	case event.TypeTableMap:
		event.TableMapName(b)
		event.ParseTableMap(b)
	}
}

func FuzzBodies(f *testing.F) {
	for _, file := range captured {
		for _, e := range readFile(f, file) {
			f.Add(uint8(e.Type), e.body)
		}
	}
	f.Fuzz(func(t *testing.T, typ uint8, b []byte) {
		parseAny(event.Header{Type: event.Type(typ)}, b)
		event.ParseRowsHeader(event.Type(typ), b)
		q, err := event.ParseQuery(b)
		if begin := err == nil && string(q.Text) == "BEGIN"; event.IsBegin(b) != begin {
			t.Errorf("IsBegin says %v, the statement is %q (%v)", !begin, q.Text, err)
		}
	})
}

// FuzzRows walks arbitrary rows of an arbitrary table.
func FuzzRows(f *testing.F) {
	var tm []byte
	for _, file := range captured {
		for _, e := range readFile(f, file) {
			switch e.Type {
			case event.TypeTableMap:
				tm = e.body
			case event.TypeWriteRows, event.TypeUpdateRows, event.TypeDeleteRows:
				f.Add(tm, uint8(e.Type), e.body)
			}
		}
	}
	f.Fuzz(func(t *testing.T, tableMap []byte, typ uint8, b []byte) {
		tm, err := event.ParseTableMap(tableMap)
		if err != nil {
			return
		}
		h, err := event.ParseRowsHeader(event.Type(typ), b)
		if err != nil {
			return
		}
		var rows event.Rows
		if rows.Reset(tm, h, b) != nil {
			return
		}
		cells := make([]event.Cell, len(tm.Columns))
		for n := 0; rows.Next(cells); n++ {
			if n > 2*len(b) {
				t.Fatal("more images than bytes")
			}
		}
	})
}
