package relay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/checkpoint"
	"outbox-relay/router"
	"outbox-relay/snapshot"
)

// errCaughtUp ends the pump under UntilCaughtUp.
var errCaughtUp = errors.New("caught up")

// pump reads, routes and hands over until read ends or something stops it, stretch by stretch between pauses. A transaction that was begun is handed over as a whole, also after
// read has ended, so that a stop leaves no half of it in Kafka; work bounds that.
func (s *session) pump(read, work context.Context) error {
	p := pump{session: s, bindings: map[*event.Table]*router.Binding{}}
	p.overlap = s.overlapOf(s.tracker.Position().Snapshot)
	for {
		err := p.stretch(read, work)
		switch {
		case errors.Is(err, errCaughtUp):
			return nil
		case !errors.Is(err, errPaused):
			return err
		}
		s.sink.Flush()
		s.log.Info("paused: the connection to the source is closed until outbox-relay resume", "since", s.pausing.paused())
		if err := s.pausing.wait(read); err != nil {
			return err
		}
		s.log.Info("publishing goes on after a pause")
	}
}

// stretch moves rows until a pause, of which the error is errPaused. The source has closed its connection then, so that a pause of days holds nothing
// anywhere.
func (p *pump) stretch(read, work context.Context) error {
	stretch, end := p.pausing.stretch(read)
	defer end()
	if p.reading.Load() {
		if err := p.existing(stretch, work); err != nil {
			return p.readError(stretch, err)
		}
	}
	for {
		tx, err := p.source.Next(stretch)
		if err != nil {
			return p.readError(stretch, err)
		}
		if err := p.step(read, work, tx); err != nil {
			return err
		}
	}
}

// readError tells what the end of a stretch means.
func (p *pump) readError(stretch context.Context, err error) error {
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(stretch), errPaused) {
		return errPaused
	}
	return p.sourceError(err)
}

// pump is the state of the goroutine that moves rows.
type pump struct {
	*session
	bindings map[*event.Table]*router.Binding
	last     *event.Table // the table of the row before, and its binding
	binding  *router.Binding
	row      binlog.Row
	rec      router.Record

	rowsCounter prometheus.Counter // of last
	overlap     *overlap           // with the snapshot; nil where there is none
}

// origin is what the rows under way come from.
type origin struct {
	name []byte         // the GTID of their transaction, or the position of a row that was selected
	step *snapshot.Step // nil for a transaction
}

// sourceError tells what the end of the source means.
func (p *pump) sourceError(err error) error {
	var s *binlog.SourceError
	switch {
	case errors.As(err, &s) && s.Reason == binlog.ReasonPurged && p.o.SnapshotGap:
		return &startOver{cause: err, gap: s}
	case errors.As(err, &s):
		return &HaltError{Source: err}
	case errors.Is(err, binlog.ErrFenced):
		return errTakenOver
	}
	return err
}

func (p *pump) step(read, work context.Context, tx *binlog.Transaction) error {
	if tx.Lost != nil {
		p.advanced(p.tracker.Forget(tx.Lost))
	}
	if len(tx.Ranges) > 0 {
		if err := p.waitRoom(read); err != nil {
			return err
		}
		if err := p.transaction(work, tx); err != nil {
			return err
		}
		p.overlap = p.overlap.passed(tx.Ranges)
		p.metrics.lastCommit.Store(tx.CommitMicros)
	}
	if !tx.CaughtUp {
		return nil
	}
	p.proof.Store(time.Now().UnixMicro())
	if !p.caughtUp.Swap(true) {
		p.log.Info("caught up with the source")
		if p.o.UntilCaughtUp {
			return errCaughtUp
		}
	}
	return nil
}

// waitRoom blocks while too many transactions are in flight: behind a stalled topic the tracker would grow without bound.
func (p *pump) waitRoom(read context.Context) error {
	// The tracker itself is asked: acknowledgements that come between this check and the wait leave their signal in room.
	for p.tracker.InFlight() >= p.o.MaxInFlight {
		p.sink.Flush()
		select {
		case <-p.room:
		case <-read.Done():
			return read.Err()
		}
	}
	return nil
}

func (p *pump) transaction(work context.Context, tx *binlog.Transaction) error {
	t := checkpoint.Transaction{Ranges: tx.Ranges, CommitMicros: tx.CommitMicros, BinlogFile: tx.File, BinlogPosition: tx.Position, Last: tx.Last}
	if !tx.HasRows {
		if tx.Own {
			p.advanced(p.tracker.SkipOwn(t))
		} else {
			p.advanced(p.tracker.Skip(t))
		}
		return nil
	}
	seq := p.tracker.Begin(t)
	done := p.done(tx.GTIDText, tx.CommitMicros)
	of := origin{name: tx.GTIDText}
	meta := router.Meta{Position: tx.GTIDText, CommitMicros: tx.CommitMicros}
	for {
		ok, err := tx.NextRow(&p.row)
		if err != nil {
			return p.sourceError(err)
		}
		if !ok {
			break
		}
		if p.row.Number < done {
			continue
		}
		if p.known.at(tx.GTIDText, p.row.Number) {
			return &HaltError{Poison: p.known.poison}
		}
		if err := p.publish(work, of, meta, seq); err != nil {
			return err
		}
		p.overlap.row(tx.GTID, &p.row)
	}
	p.closed(seq)
	return nil
}

// closed closes a transaction that was handed over whole.
func (p *pump) closed(seq uint64) {
	if w := p.windows; w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.rows, w.base = 0, nil
	}
	p.advanced(p.tracker.Close(seq))
}

// publish routes the row and hands its record over.
func (p *pump) publish(work context.Context, of origin, meta router.Meta, seq uint64) error {
	if p.row.Table != p.last {
		if err := p.bind(of, p.row.Table); err != nil {
			return err
		}
	}
	p.rowsCounter.Inc()
	if p.row.Limit > 0 {
		meta.Size, meta.Limit = int64(p.row.Size), p.row.Limit
	}
	rec := &p.rec
	outcome, err := p.o.Router.Route(p.binding, p.row.Cells, meta, p.row.Number, rec)
	var refused *Poison
	if err != nil || outcome != router.Routed {
		if refused, err = p.notRouted(of, outcome, err); refused == nil {
			return err
		}
	}
	p.o.Points.hit(PointBeforePublish)
	if w := p.windows; w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if err := p.hand(work, of, rec, seq, refused); err != nil {
			if of.step == nil {
				w.handed(of.name, meta.CommitMicros, p.row.Number) // a halt commits what is before this row
			}
			return err
		}
		if of.step != nil {
			w.handedRow(of.step.Base(), of.step.Rows(), of.step.Key())
		} else {
			w.handed(of.name, meta.CommitMicros, p.row.Number+1)
		}
		return nil
	}
	return p.hand(work, of, rec, seq, refused)
}

// hand gives a record to the sink, and what takes its place if the sink refuses it for ever.
func (p *pump) hand(work context.Context, of origin, rec *router.Record, seq uint64, refused *Poison) error {
	p.tracker.Published(seq, 1)
	for {
		var err error
		if refused != nil {
			err = p.sink.Refuse(work, rec, seq, refused)
			refused = nil
		} else {
			err = p.sink.Publish(work, rec, seq)
		}
		if err == nil {
			p.rec.Release() // the sink has its copy
			p.o.Points.hit(PointPublished)
			return nil
		}
		var bad *Poison
		if !errors.As(err, &bad) {
			return err
		}
		instead, drop, err := p.judged(of, bad, rec)
		if drop {
			p.advanced(p.tracker.Acked([]uint64{seq}))
		}
		if instead == nil {
			return err
		}
		rec = instead
	}
}

// notRouted gives the poison that a row is of which no record could be made, if something is published in its place. Without, the row is done with; an
// error halts.
func (p *pump) notRouted(of origin, outcome router.Outcome, err error) (*Poison, error) {
	switch outcome {
	case router.Ignored:
		p.metrics.unmatched.WithLabelValues(p.metrics.tables.Of(p.row.Table.Schema + "." + p.row.Table.Name)).Inc()
		return nil, nil
	case router.Unmatched:
		p.metrics.unmatched.WithLabelValues(p.metrics.tables.Of(p.row.Table.Schema + "." + p.row.Table.Name)).Inc()
	}
	var bad *router.Poison
	if !errors.As(err, &bad) {
		return nil, fmt.Errorf("routing a row of transaction %s: %w", of.name, err)
	}
	poison := &Poison{Reason: string(bad.Reason), Table: bad.Table, ID: bad.ID, Position: bad.Position, Topic: bad.Topic, Err: err, Hint: hintOf(bad)}
	if bad.Reason == router.ReasonRowTooLarge {
		poison.Size = int64(p.row.Size)
	}
	poison.GTID = string(of.name)
	if p.policy(p.rec.Rule).Action == DeadLetterPoison {
		return poison, nil // its letter has its place in the order of its key, which the sink knows
	}
	_, _, err = p.judged(of, poison, &p.rec)
	return nil, err
}

// judged gives what is published in place of a poison record, or whether it is dropped. An error halts: the transaction stays open in the tracker,
// so the position never passes it.
func (p *pump) judged(of origin, bad *Poison, rec *router.Record) (instead *router.Record, drop bool, err error) {
	bad.GTID = string(of.name)
	if instead, drop = p.verdict(bad, rec); instead == nil && !drop {
		return nil, false, &HaltError{Poison: bad}
	}
	return instead, drop, nil
}

// hintOf tells what an operator can do about a row that has no record, where it is not about rules and topics.
func hintOf(bad *router.Poison) string {
	if bad.Reason == router.ReasonRowTooLarge {
		return "raise limits.row so that the row fits and restart, or set the checkpoint behind it"
	}
	return ""
}

// bind finds the binding of a table's columns to the rules. A reader gives the same table while its definition is the same.
func (p *pump) bind(of origin, t *event.Table) error {
	b, ok := p.bindings[t]
	if !ok {
		var err error
		if b, err = p.o.Router.Bind(t); err != nil {
			return &HaltError{Source: &columnsError{gtid: string(of.name), err: err}}
		}
		if len(p.bindings) > 1000 {
			clear(p.bindings)
		}
		p.bindings[t] = b
	}
	p.last, p.binding = t, b
	p.rowsCounter = p.metrics.rows.WithLabelValues(p.metrics.tables.Of(t.Schema + "." + t.Name))
	if of.step != nil {
		p.rowsCounter = p.metrics.snapshotRows.WithLabelValues(t.Schema + "." + t.Name)
	}
	return nil
}
