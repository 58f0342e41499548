package snapshot

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/value"
	"outbox-relay/checkpoint"
)

// PositionPrefix begins the position of a row that was selected.
const PositionPrefix = "snapshot:"

// chunk is a statement under way.
type chunk struct {
	result  *binlog.Result  // nil in one without rows
	watch   *time.Timer     // closes the connection of a chunk that is read too slowly
	expired atomic.Bool     // it did
	size    int             // rows at most
	rows    int             // that came
	end     json.RawMessage // the key of its last row, met or not; nil where that is the last one that comes
	last    bool            // nothing comes behind it
	over    bool            // all rows were read
	err     error           // that ended it before

	texts [][]byte
	cells []event.Cell
	image []byte // what the cells point to
	ends  []int  // of the columns in image
}

// Step is a run of rows of one table. It belongs to its Reader and is valid until the next call of Next.
type Step struct {
	r        *Reader
	base     *checkpoint.Snapshot // before it
	progress *checkpoint.Snapshot // behind it; nil before NextRow gave false
	rows     int                  // guarded by the Reader's mu
	bytes    int
	key      json.RawMessage
	position []byte
}

func (s *Step) begin(r *Reader) {
	r.mu.Lock()
	s.rows = 0
	r.mu.Unlock()
	s.r, s.base, s.progress, s.bytes = r, r.at, nil, 0
}

// end makes it a step without rows.
func (s *Step) end(progress *checkpoint.Snapshot) {
	s.progress = progress
	s.r.set(progress)
}

// NextRow gives the next row, or false behind the last one. The row's number is 0. A row beyond the row limit is one too, as in the binlog. Its error is a
// *binlog.SourceError: a value that is not understood. A connection that ends, ends the step behind the row before.
func (s *Step) NextRow(row *binlog.Row) (bool, error) {
	c := s.r.chunk
	if s.progress != nil {
		return false, nil
	}
	if !c.over && s.rows < stepRows && s.bytes < stepBytes {
		ok, err := c.result.Next(c.texts)
		switch {
		case err != nil:
			c.err = err
		case ok:
			c.rows++
			err := s.take(row)
			var lasting *binlog.SourceError
			if err == nil || errors.As(err, &lasting) {
				return err == nil, err
			}
			c.err = err
		default:
			c.over = true
		}
	}
	s.finish()
	return false, nil
}

// finish makes the progress behind the step.
func (s *Step) finish() {
	r, c := s.r, s.r.chunk
	at := s.base
	if s.rows > 0 {
		at = at.At(s.key, int64(s.rows))
	}
	if c.over {
		c.watch.Stop()
		if c.result != nil {
			if _, err := r.conn.Rows(r.ctx, askTimeout, "COMMIT"); err != nil && r.ctx.Err() == nil {
				r.disconnect(err)
			}
		}
		if c.end != nil { // rows up to there were looked at
			at = at.At(c.end, 0)
		} else {
			c.last = c.last || c.rows < c.size
		}
		if c.last {
			r.log.Info("snapshot of a table ends", "table", at.Tables[0].Table, "rows", at.Tables[0].Rows)
			at = at.Finished(0)
		}
		r.chunk = nil
	}
	s.say(s.rows)
	s.progress = at
	r.set(at)
}

// say takes the rate and logs the progress, now and then.
func (s *Step) say(rows int) {
	r := s.r
	r.mu.Lock()
	r.since += int64(rows)
	took := time.Since(r.rated)
	due := took >= sayInterval
	if due {
		r.status.Rate = float64(r.since) / took.Seconds()
		r.rated, r.since = time.Now(), 0
	}
	r.mu.Unlock()
	if !due {
		return
	}
	st := r.Status()
	r.log.Info("snapshot under way", "table", st.Table, "rows", st.Rows, "rows_per_second", int64(st.Rate), "rows_remaining_estimated", st.Remaining, "tables_left", st.Tables)
}

// Progress is what the snapshot comes to once the rows of the step are done. Call it after NextRow gave false.
func (s *Step) Progress() *checkpoint.Snapshot { return s.progress }

// Rows is how many rows were given.
func (s *Step) Rows() int { return s.rows }

// Base is the progress before the step. It is immutable and any goroutine's.
func (s *Step) Base() *checkpoint.Snapshot { return s.base }

// Key is that of the row given last, as checkpoint.Snapshot.At takes it; valid until the next row.
func (s *Step) Key() []byte { return s.key }

// Position names the row given last: `snapshot:schema.table:key`, equal whenever the row is read. Valid until the next row.
func (s *Step) Position() []byte { return s.position }

// take makes a row of what was selected.
func (s *Step) take(row *binlog.Row) error {
	r, c := s.r, s.r.chunk
	t := r.plan.table
	size := (len(t.Columns) + 7) / 8
	if cap(c.image) > stepBytes {
		c.image = nil
	}
	// Cells point into image, which may move while it grows: they are cut when it is complete.
	c.image, c.ends = c.image[:0], c.ends[:0]
	for i := range t.Columns {
		col := &t.Columns[i]
		c.cells[i] = event.Cell{State: event.CellNull}
		if c.texts[i] != nil {
			from := len(c.image)
			image, err := r.appendImage(c.image, i)
			if err != nil && !errors.Is(err, value.ErrMalformed) && !errors.As(err, new(*value.UnsupportedError)) {
				return err
			}
			if err != nil {
				return &binlog.SourceError{Reason: binlog.ReasonSnapshot, Err: err, Detail: fmt.Sprintf("a row of %s.%s cannot be read", t.Schema, t.Name), Hint: "report it with the definition of the table"}
			}
			c.image = image
			c.cells[i].State = event.CellValue
			size += col.LengthBytes()
			if !slices.Contains(r.plan.large, i) {
				size += len(c.image) - from
			}
		}
		c.ends = append(c.ends, len(c.image))
	}
	from := 0
	for i := range c.cells {
		if c.cells[i].State == event.CellValue {
			c.cells[i].Raw = c.image[from:c.ends[i]:c.ends[i]]
		}
		from = c.ends[i]
	}
	limit, size, err := r.judgeSize(size)
	if err != nil {
		return err
	}
	s.key = appendKey(s.key[:0], r.plan.key, func(i int) []byte { return c.texts[r.plan.key[i].index] })
	s.name(t)
	*row = binlog.Row{Table: t, Cells: c.cells, Size: size, Limit: limit}
	s.r.mu.Lock()
	s.rows++
	s.r.mu.Unlock()
	s.bytes += len(c.image)
	return nil
}

// name makes the position of a row.
func (s *Step) name(t *event.Table) {
	c := s.r.chunk
	s.position = append(s.position[:0], PositionPrefix...)
	s.position = append(append(append(s.position, t.Schema...), '.'), t.Name...)
	for i, k := range s.r.plan.key[s.r.plan.own:] {
		s.position = append(s.position, ":,"[min(i, 1)])
		s.position = k.appendPosition(s.position, c.cells[k.index].Raw)
	}
}

// judgeSize gives the size of the row as it is in a row image, and the limit if it is beyond that: then what is not short is dropped, as the reader of the
// binlog does it. size is that of the values that are never large, of lengths and the bitmap.
func (r *Reader) judgeSize(size int) (limit int64, _ int, err error) {
	c, columns := r.chunk, r.plan.table.Columns
	if len(r.plan.large) == 0 {
		return r.shorten(size), size, nil
	}
	all, err := strconv.Atoi(string(c.texts[len(columns)]))
	if err != nil {
		return 0, 0, fmt.Errorf("the size of a row: %w", err)
	}
	size += all
	if lengths := c.texts[len(columns)+1]; lengths != nil {
		for i, text := range strings.Split(string(lengths), ",") {
			if n, err := strconv.Atoi(text); err == nil && n > event.KeptValue {
				column := r.plan.large[i]
				c.cells[column] = event.Cell{State: event.CellDropped}
				size += columns[column].LengthBytes()
			}
		}
	}
	return r.shorten(size), size, nil
}

// shorten gives the limit if a row is beyond it, and drops what the reader of the binlog would.
func (r *Reader) shorten(size int) (limit int64) {
	c, columns := r.chunk, r.plan.table.Columns
	if int64(size) <= r.o.RowLimit {
		return 0
	}
	kept := 0
	for i := range c.cells {
		if c.cells[i].State != event.CellValue {
			continue
		}
		n := len(c.cells[i].Raw)
		if with := kept + columns[i].LengthBytes() + n; n > event.KeptValue || with > event.KeptRow {
			c.cells[i] = event.Cell{State: event.CellDropped}
		} else {
			kept = with
		}
	}
	return r.o.RowLimit
}
