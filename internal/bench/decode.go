package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
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

func decodeCommand(ctx context.Context, g global, args []string) (tables []*table, err error) {
	flags := flag.NewFlagSet("decode", flag.ContinueOnError)
	rounds := flags.Int("rounds", g.rounds(3), "measurements of each decoder, of about a second")
	profile := flags.String("cpuprofile", "", "folder for CPU profiles of the reader that passes by foreign events")
	only := flags.String("only", "", "measure only the outbox or only the foreign rows")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	s, err := startServers(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.createForeign(ctx); err != nil {
		return nil, err
	}
	if *only != "outbox" {
		if tables, err = foreignDecode(ctx, s, *rounds, *profile); err != nil {
			return tables, err
		}
	}
	if *only == "foreign" {
		return tables, nil
	}
	for _, w := range []workload{{Name: "small", Rows: 2000, PerTx: 10, JSON: 290}, {Name: "large", Rows: 500, PerTx: 1, JSON: 10_000}} {
		if err := s.backlog(ctx, w, false); err != nil {
			return tables, err
		}
		c, err := captureEvents(s, w.Rows)
		if err != nil {
			return tables, err
		}
		runs := map[string][]decodeRun{}
		for range *rounds {
			for name, decode := range map[string]func(*capture) (int, error){"go-mysql": goMySQL, "relay": relayDecoder} {
				r, err := measureDecode(c, decode)
				if err != nil {
					return tables, err
				}
				runs[name] = append(runs[name], r)
			}
		}
		t := &table{Name: "decode-" + w.Name, About: fmt.Sprintf("decoding rows with about %d bytes of JSON; processor time; the relay's includes routing to key, value and headers", w.JSON)}
		decodeFigures(t, "row", runs, wantDecode, wantAllocs)
		tables = append(tables, t)
	}
	return tables, nil
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

// decodeFigures compares what one row or event takes.
func decodeFigures(t *table, what string, runs map[string][]decodeRun, wantRatio, wantAllocs float64) {
	t.Contestants = []string{"relay", "go-mysql"}
	of := func(figure func(decodeRun) float64) func(string) []float64 {
		return func(c string) []float64 { return figures(runs[c], figure) }
	}
	speed, allocs := "ns per "+what, "allocations per "+what
	t.add(speed, 0, of(func(r decodeRun) float64 { return r.nanoseconds }))
	t.add(allocs, 4, of(func(r decodeRun) float64 { return r.allocations }))
	t.add("bytes allocated per "+what, 1, of(func(r decodeRun) float64 { return r.bytes }))
	t.judge(speed, t.ratio(speed, "go-mysql", 1/wantRatio, true))
	t.judge(allocs, t.limit(allocs, allocs, wantAllocs))
}
