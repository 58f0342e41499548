package binlog

import (
	"fmt"
	"io"

	"outbox-relay/binlog/event"
)

const (
	// queryHead and queryTail are how much is kept of a statement too large for the buffer: its frame and both ends of its text.
	queryHead = 64 << 10
	queryTail = 32
	// executeLoadExtra is the part of an EXECUTE_LOAD_QUERY's post-header that a QUERY lacks: file id u32, start u32, end u32, duplicate handling u8.
	executeLoadExtra = 13
	queryPostHeader  = 13
)

// query handles the statements that frame a transaction, and judges all others.
func (r *Reader) query(ev *raw) (*Transaction, error) {
	if r.group.open && ev.Type == event.TypeQuery && event.IsBegin(ev.Body) {
		r.group.begun = true
		return nil, nil
	}
	q, err := r.parseQuery(ev)
	if err != nil {
		return nil, err
	}
	if err := r.inGroup(ev.Type); err != nil {
		return nil, err
	}
	g := &r.group
	kind := event.Classify(q.Text)
	if kind == event.StatementCreateTransaction && !g.begun {
		kind = event.StatementOther // the body of a stored program may end in the same words
	}
	switch kind {
	case event.StatementBegin:
		g.begun = true
		return nil, nil
	case event.StatementCommit:
		return r.commit(g.rows), nil
	case event.StatementRollback:
		g.rows.reset()
		return r.commit(g.rows), nil
	case event.StatementCreateTransaction:
		r.changedColumns(q.Text, ev.Big == nil)
		return nil, nil
	case event.StatementSavepoint:
		return nil, nil
	case event.StatementRollbackTo:
		if g.rows.entries > 0 {
			return nil, r.stop(ReasonStatementWrite, fmt.Sprintf("the transaction at %s:%d was rolled back to a savepoint and the binlog keeps what came behind it, which a server with enforce_gtid_consistency=ON never does", r.file, r.pos),
				"compare the outbox with the topics, then set the checkpoint behind it", nil)
		}
		return nil, nil
	case event.StatementXA:
		return r.xaStatement(q.Text)
	}
	g.others = true
	if !g.begun {
		if event.CreatesWithRows(q.Text) {
			if err := r.judgeStatement(q); err != nil {
				return nil, err
			}
		}
		r.countTruncate(q)
		r.changedColumns(q.Text, ev.Big == nil)
		return r.commit(g.rows), nil // DDL and the like: a group of its own
	}
	return nil, r.judgeStatement(q)
}

// parseQuery parses a QUERY of any size, or the EXECUTE_LOAD_QUERY that is one with more in its head.
func (r *Reader) parseQuery(ev *raw) (event.Query, error) {
	body := ev.Body
	if ev.Big != nil {
		var err error
		if body, err = readEnds(ev.Big); err != nil {
			return event.Query{}, err
		}
	}
	if ev.Type == event.TypeExecuteLoadQuery && len(body) >= queryPostHeader+executeLoadExtra {
		r.scratch = append(append(r.scratch[:0], body[:queryPostHeader]...), body[queryPostHeader+executeLoadExtra:]...)
		body = r.scratch
	}
	q, err := event.ParseQuery(body)
	if err != nil {
		return q, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	return q, nil
}

// readEnds reads a statement of any size, keeping its beginning and its end.
func readEnds(b bigBody) ([]byte, error) {
	head := make([]byte, min(b.Len(), queryHead), queryHead+queryTail)
	if _, err := io.ReadFull(b, head); err != nil {
		return nil, err
	}
	for b.Len() > queryTail {
		if _, err := io.CopyN(io.Discard, b, int64(b.Len()-queryTail)); err != nil {
			return nil, err
		}
	}
	tail := make([]byte, b.Len())
	if _, err := io.ReadFull(b, tail); err != nil {
		return nil, err
	}
	return append(head, tail...), b.Skip()
}

// judgeStatement handles a change in statement format: its rows, if it has any in a watched table, are not in the binlog. The event lists
// the databases that the statement changed, triggers included; only a list that is complete and names no watched one clears it.
func (r *Reader) judgeStatement(q event.Query) error {
	var names [16][]byte
	schemas, state := q.UpdatedSchemas(names[:0])
	if state == event.SchemasListed {
		touched := false
		for _, s := range schemas {
			touched = touched || r.watched.hasSchema(s)
		}
		if !touched {
			return nil
		}
	}
	if r.o.IgnoreStatementWrites {
		r.metrics.statementsSeen.Inc()
		return nil
	}
	return r.stop(ReasonStatementWrite, fmt.Sprintf("a statement-format change in database %q at %s:%d may have written outbox rows that the binlog does not hold", q.Schema, r.file, r.pos),
		"find who sets binlog_format for a session; then go on behind it with on_statement_write: ignore", nil)
}
