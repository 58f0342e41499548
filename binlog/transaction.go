package binlog

import (
	"fmt"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
)

// Transaction is one step of the source: a committed transaction with rows of watched tables, or a stretch of others that only
// moves the position. It belongs to the Reader and is valid until the next call of Next.
type Transaction struct {
	// Ranges are the GTIDs that the position gains once everything before this step and the rows of this step are done. They include
	// the transactions without watched rows that were read since the step before. Empty only when the step just tells CaughtUp or Lost.
	Ranges []gtid.Range
	// Lost are transactions of earlier steps that the position loses before it gains Ranges, since the server lacks them; nil but under
	// Options.ContinueDiverged.
	Lost *gtid.Set
	// GTID names the transaction whose rows follow: of an XA transaction its XA COMMIT. Zero when there are no rows.
	GTID gtid.GTID
	// GTIDText is GTID as text.
	GTIDText []byte
	// CommitMicros is when the transaction (or the last one of the stretch) committed on the server that executed it first, in µs since 1970 UTC.
	CommitMicros int64
	// Transactions is how many the step stands for.
	Transactions int
	// Own is set when all of them wrote nothing but the table of Options.Own.
	Own bool
	// CaughtUp is set when the source had nothing more to send at this point.
	CaughtUp bool
	// HasRows is set when NextRow will give at least one row.
	HasRows bool
	// File and Position are where the step ended in the server's binlog, for people.
	File     string
	Position uint64
	// Last is the transaction that committed at CommitMicros; zero where that is not known.
	Last gtid.GTID

	rows     rowWalk
	rowLimit int64
}

// Row is one inserted row of a watched table.
type Row struct {
	Table *event.Table
	// Cells are the row's columns in table order; they and their bytes are valid until the next row.
	Cells []event.Cell
	// Number counts the rows of watched tables in the transaction, from 0.
	Number int
	// Size is the row's size in bytes in the binlog.
	Size int
	// Limit is 0 but for a row that is larger than the row limit, which it then tells. Of such a row the values beyond a few KiB are not kept:
	// their cells are event.CellDropped.
	Limit int64
}

// rowWalk walks the rows of the log of a committed transaction.
type rowWalk struct {
	log    logReader
	entry  entry
	rows   event.Rows
	cells  []event.Cell
	inside bool // rows belong to entry
	number int
}

func (w *rowWalk) start(l *rowLog) {
	w.log = logReader{log: l, page: w.log.page}
	w.inside, w.number = false, 0
}

// stop makes the walk empty and lets go of what it has read: a large row must not stay in memory until the next one comes.
func (w *rowWalk) stop() {
	w.log.log, w.inside, w.entry = nil, false, entry{}
	if cap(w.log.page) > keepBuffer {
		w.log.page = nil
	}
	w.rows.Forget()
	clear(w.cells)
}

// NextRow gives the next row of the transaction, or false after the last one. A row beyond the row limit is one too, see Row.Limit. Errors: a
// *SourceError when the row cannot be decoded; others when the spool file cannot be read.
func (t *Transaction) NextRow(r *Row) (bool, error) {
	w := &t.rows
	for {
		if w.inside {
			from := w.rows.Offset()
			if w.rows.Next(w.cells) {
				*r = Row{Table: w.entry.table, Cells: w.cells, Number: w.number, Size: w.rows.Offset() - from}
				w.number++
				return true, nil
			}
			if err := w.rows.Err(); err != nil {
				return false, t.corrupt(err)
			}
			w.inside = false
		}
		if w.log.log == nil {
			return false, nil
		}
		ok, err := w.log.next(&w.entry)
		if err != nil || !ok {
			return false, err
		}
		if err := w.open(); err != nil {
			return false, t.corrupt(err)
		}
		if w.entry.tooLarge > 0 {
			if err := w.takeShortened(); err != nil {
				return false, t.corrupt(err)
			}
			*r = Row{Table: w.entry.table, Cells: w.cells, Number: w.number, Size: int(w.entry.tooLarge), Limit: t.rowLimit}
			w.number++
			return true, nil
		}
	}
}

// takeShortened reads the one row of an entry beyond the row limit.
func (w *rowWalk) takeShortened() error {
	w.inside = false
	if !w.rows.Next(w.cells) {
		return w.rows.Err()
	}
	for i := range w.cells {
		if w.cells[i].State == event.CellAbsent && w.entry.present[i/8]>>(i%8)&1 != 0 {
			w.cells[i].State = event.CellDropped
		}
	}
	return nil
}

// open begins the rows of the entry.
func (w *rowWalk) open() error {
	h, err := event.ParseRowsHeader(event.Type(w.entry.kind), w.entry.body)
	if err != nil {
		return err
	}
	if err := w.rows.Reset(w.entry.table, h, w.entry.body); err != nil {
		return err
	}
	if n := len(w.entry.table.Columns); cap(w.cells) < n {
		w.cells = make([]event.Cell, n)
	} else {
		w.cells = w.cells[:n]
	}
	w.inside = true
	return nil
}

func (t *Transaction) corrupt(err error) error {
	return &SourceError{
		Reason: ReasonCorrupt, GTID: t.GTID.String(), Err: err,
		Detail: fmt.Sprintf("a row of %s.%s cannot be decoded", t.rows.entry.table.Schema, t.rows.entry.table.Name),
		Hint:   "compare with mysqlbinlog -vv and report it",
	}
}
