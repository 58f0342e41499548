package binlog

import (
	"fmt"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
)

// xaPrepare ends a group by XA_PREPARE: committed when it is one-phase, else only prepared.
func (r *Reader) xaPrepare(body []byte) (*Transaction, error) {
	if err := r.inGroup(event.TypeXAPrepare); err != nil {
		return nil, err
	}
	p, err := event.ParseXAPrepare(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	if p.OnePhase {
		return r.commit(r.group.rows), nil
	}
	if r.touched != nil {
		r.touched[p.Branch] = struct{}{}
	}
	g := &r.group
	b := &branch{micros: g.commitMicros}
	changed := b.micros
	if old := r.branches[p.Branch]; old != nil {
		changed = min(changed, old.micros)
		// The branch ended unseen (sql_log_bin=0) and its name is used again. Whether its rows were committed cannot be known; its GTIDs go
		// with the new one.
		if old.rows != nil && !r.o.SkipUnknownXA {
			return nil, r.stop(ReasonUnknownXA, fmt.Sprintf("XA branch %s was prepared again although the binlog holds no end of it: whether its outbox rows were committed is unknown", p.Branch),
				"check the branch's rows by hand, then go on with on_unknown_xa: skip", nil)
		}
		b.prepared = old.prepared
		if old.rows != nil {
			r.metrics.unknownXA.Inc()
			old.rows.discard()
		}
	}
	b.prepared = append(b.prepared, gtid.Range{UUID: g.gtid.UUID, Tag: g.gtid.Tag, First: g.gtid.Number, Last: g.gtid.Number})
	if g.rows.entries > 0 {
		if err := g.rows.hold(); err != nil {
			return nil, err
		}
		b.rows, g.rows = g.rows, r.newLog()
	}
	r.branches[p.Branch] = b
	r.countBranches(changed)
	// The position of this reader has the PREPARE, so that a reconnect does not read it again; the steps handed on do not,
	// so that a restart does.
	r.seen.Add(g.gtid)
	r.closeGroup()
	return nil, nil
}

// countBranches updates the metrics after a branch that was prepared at micros came or went. All branches are looked at only when it was the
// oldest one.
func (r *Reader) countBranches(micros int64) {
	m := r.metrics
	m.xaPending.Set(float64(len(r.branches)))
	if oldest := m.xaOldest.Load(); oldest != 0 && micros > oldest {
		return
	}
	oldest := int64(0)
	for _, b := range r.branches {
		if oldest == 0 || b.micros < oldest {
			oldest = b.micros
		}
	}
	m.xaOldest.Store(oldest)
}

// xaStatement handles the XA statements of the stream.
func (r *Reader) xaStatement(text []byte) (*Transaction, error) {
	x, err := event.ParseXAStatement(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCorrupt, err)
	}
	switch x.Verb {
	case event.XAStart:
		r.group.begun = true
		return nil, nil
	case event.XAEnd:
		return nil, nil
	}
	if r.touched != nil {
		r.touched[x.Branch] = struct{}{}
	}
	b := r.branches[x.Branch]
	if b == nil {
		if x.Verb == event.XACommit && !r.o.SkipUnknownXA {
			return nil, r.stop(ReasonUnknownXA, fmt.Sprintf("XA COMMIT of branch %s, which was prepared before the relay's first position: its outbox rows, if any, are unknown", x.Branch),
				"check the branch's rows by hand, then go on with on_unknown_xa: skip", nil)
		}
		if x.Verb == event.XACommit {
			r.metrics.unknownXA.Inc()
		}
		return r.commit(r.group.rows), nil
	}
	delete(r.branches, x.Branch)
	r.countBranches(b.micros)
	for _, p := range b.prepared {
		r.addPending(p)
	}
	if b.rows == nil {
		return r.commit(r.group.rows), nil
	}
	if x.Verb == event.XARollback {
		b.rows.discard()
		return r.commit(r.group.rows), nil
	}
	r.lent = b.rows
	return r.commit(b.rows), nil
}
