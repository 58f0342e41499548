package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/go-mysql-org/go-mysql/replication"

	"outbox-relay/binlog/event"
	"outbox-relay/router"
)

// Targets of decoding, against go-mysql's parser with its defaults on the same bytes.
const (
	wantDecode = 6.0
	wantAllocs = 2.0
)

// decodeRun is one measurement of one decoder.
type decodeRun struct{ nanoseconds, allocations, bytes float64 } // of one row

func decodeCommand(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("decode", flag.ContinueOnError)
	rounds := flags.Int("rounds", 3, "measurements of each decoder, of about a second")
	profile := flags.String("cpuprofile", "", "folder for CPU profiles of the reader that passes by foreign events")
	only := flags.String("only", "", "measure only the outbox or only the foreign rows")
	if err := flags.Parse(args); err != nil {
		return err
	}
	s, err := startServers(ctx, false)
	if err != nil {
		return err
	}
	defer s.Close()
	missed := s.createForeign(ctx)
	if missed == nil && *only != "outbox" {
		missed = foreignDecode(ctx, s, *rounds, *profile, out)
	}
	if missed != nil && !errors.Is(missed, errMissed) || *only == "foreign" {
		return missed
	}
	for _, w := range []workload{{Name: "small", Rows: 2000, PerTx: 10, JSON: 290}, {Name: "large", Rows: 500, PerTx: 1, JSON: 10_000}} {
		if err := s.backlog(ctx, w, false); err != nil {
			return err
		}
		c, err := captureEvents(s, w.Rows)
		if err != nil {
			return err
		}
		var theirs, ours []decodeRun
		for range *rounds {
			for _, d := range []struct {
				run  func(*capture) (int, error)
				into *[]decodeRun
			}{{goMySQL, &theirs}, {relayDecoder, &ours}} {
				r, err := measureDecode(c, d.run)
				if err != nil {
					return err
				}
				*d.into = append(*d.into, r)
			}
		}
		if err := reportDecode(out, w, theirs, ours); err != nil {
			missed = err
		}
	}
	return missed
}

// capture holds the events of the outbox table as the server wrote them.
type capture struct {
	rows   int
	format []byte   // the FORMAT_DESCRIPTION
	events [][]byte // TABLE_MAP and WRITE_ROWS in their order, with headers and checksums
}

// captureEvents takes the outbox table's events of the newest statements from the binlog files.
func captureEvents(s *servers, rows int) (*capture, error) {
	files, err := filepath.Glob(filepath.Join(s.DataDir, "binlog.[0-9]*"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	c := &capture{rows: rows}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		if err := c.take(text); err != nil {
			return nil, fmt.Errorf("reading %s: %w", f, err)
		}
	}
	return c, nil
}

func (c *capture) take(file []byte) error {
	const magic = 4
	if len(file) < magic {
		return errors.New("no binlog")
	}
	ours := false
	for b := file[magic:]; len(b) > 0; {
		if len(b) < eventHead || int(binary.LittleEndian.Uint32(b[9:])) > len(b) {
			return errors.New("cut off event")
		}
		ev := b[:binary.LittleEndian.Uint32(b[9:])]
		b = b[len(ev):]
		switch event.Type(ev[4]) {
		case event.TypeFormatDescription:
			c.format = ev
		case event.TypeTableMap:
			_, _, table, err := event.TableMapName(body(ev))
			if err != nil {
				return err
			}
			if ours = string(table) == "outbox_events"; ours {
				c.events = append(c.events, ev)
			}
		case event.TypeQuery:
			if bytes.Contains(ev, []byte("DROP DATABASE")) {
				c.events = nil // rows of an earlier workload
			}
		case event.TypeWriteRows:
			if ours {
				c.events = append(c.events, ev)
			}
		}
	}
	return nil
}

// body is an event without header and checksum.
func body(ev []byte) []byte { return ev[eventHead : len(ev)-4] }

// measureDecode lets a decoder go over the capture again and again.
func measureDecode(c *capture, decode func(*capture) (int, error)) (decodeRun, error) {
	return measurePasses(func() (pass, error) {
		end := meter()
		n, err := decode(c)
		if err == nil && n != c.rows {
			err = fmt.Errorf("%d rows decoded instead of %d", n, c.rows)
		}
		return end(n), err
	})
}

// goMySQL decodes rows into values; topic, key and headers would have to be made of them still.
func goMySQL(c *capture) (int, error) {
	p := replication.NewBinlogParser()
	if _, err := p.Parse(c.format); err != nil {
		return 0, err
	}
	n := 0
	for _, ev := range c.events {
		e, err := p.Parse(ev)
		if err != nil {
			return 0, err
		}
		if rows, ok := e.Event.(*replication.RowsEvent); ok {
			n += len(rows.Rows)
		}
	}
	return n, nil
}

// relayDecoder decodes rows and makes the whole records of them, with JSON as text, key and headers.
func relayDecoder(c *capture) (int, error) {
	rules, err := router.New(router.Options{Rules: []router.Rule{{Table: database + ".outbox_events"}}})
	if err != nil {
		return 0, err
	}
	d := rowDecoder{router: rules, position: []byte("3e11fa47-71ca-11e1-9e33-c80aa9429562:77")}
	for _, ev := range c.events {
		if event.Type(ev[4]) == event.TypeTableMap {
			err = d.tableMap(body(ev))
		} else {
			err = d.rows(ev)
		}
		if err != nil {
			return 0, err
		}
	}
	return d.count, nil
}

// rowDecoder does with row events what the relay's reader and pump do.
type rowDecoder struct {
	router   *router.Router
	position []byte
	mapBody  []byte // of the last TABLE_MAP without its id
	table    *event.Table
	binding  *router.Binding
	cells    []event.Cell
	walk     event.Rows
	record   router.Record
	count    int
}

// tableMap notes the columns, which are the same as the time before but for the table's first event.
func (d *rowDecoder) tableMap(b []byte) error {
	const idSize = 6
	if _, _, _, err := event.TableMapName(b); err != nil {
		return err
	}
	if bytes.Equal(d.mapBody, b[idSize:]) {
		return nil
	}
	var err error
	if d.table, err = event.ParseTableMap(b); err != nil {
		return err
	}
	d.mapBody = append(d.mapBody[:0], b[idSize:]...)
	d.cells = make([]event.Cell, len(d.table.Columns))
	d.binding, err = d.router.Bind(d.table)
	return err
}

func (d *rowDecoder) rows(ev []byte) error {
	h, err := event.ParseRowsHeader(event.Type(ev[4]), body(ev))
	if err != nil {
		return err
	}
	if err := d.walk.Reset(d.table, h, body(ev)); err != nil {
		return err
	}
	for d.walk.Next(d.cells) {
		if _, err := d.router.Route(d.binding, d.cells, router.Meta{Position: d.position, CommitMicros: 1}, d.count, &d.record); err != nil {
			return err
		}
		d.count++
	}
	return d.walk.Err()
}

func reportDecode(out io.Writer, w workload, theirs, ours []decodeRun) error {
	fmt.Fprintf(out, "decoding rows with about %d bytes of JSON; processor time, medians of %d runs; ours includes routing to key, value and headers\n", w.JSON, len(ours))
	return printLines(out, decodeLines("row", theirs, ours, wantDecode, wantAllocs))
}

// decodeLines compares the medians of what one row or event takes.
func decodeLines(what string, theirs, ours []decodeRun, wantRatio, wantAllocs float64) []line {
	figure := func(name, format string, of func(decodeRun) float64) (line, float64) {
		t, o := medianOf(theirs, of), medianOf(ours, of)
		return line{name: name + " per " + what, baseline: fmt.Sprintf(format, t), relay: fmt.Sprintf(format, o), ratio: fmt.Sprintf("%.2f×", t/o)}, t / o
	}
	speed, ratio := figure("ns", "%.2f", func(r decodeRun) float64 { return r.nanoseconds })
	speed.target, speed.judged, speed.ok = fmt.Sprintf("≥ %g×", wantRatio), true, ratio >= wantRatio
	allocs, _ := figure("allocations", "%.4f", func(r decodeRun) float64 { return r.allocations })
	allocs.target, allocs.judged, allocs.ratio = fmt.Sprintf("≤ %g", wantAllocs), true, ""
	allocs.ok = medianOf(ours, func(r decodeRun) float64 { return r.allocations }) <= wantAllocs
	memory, _ := figure("bytes allocated", "%.2f", func(r decodeRun) float64 { return r.bytes })
	memory.ratio = ""
	return []line{{name: "figure", baseline: "go-mysql", relay: "relay", ratio: "factor", target: "target"}, speed, allocs, memory}
}
