package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"time"

	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
)

// keepSaving stores the position in every interval in which it changed. A failed save is tried again at the next one; it makes
// the relay not ready and never stops it from publishing.
func (s *session) keepSaving(ctx context.Context) {
	t := time.NewTicker(s.o.SaveInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if !s.allowed() {
			continue
		}
		err := s.save(ctx, false)
		if errors.Is(err, checkpoint.ErrFenced) {
			s.end(errTakenOver)
			return
		}
	}
}

// save stores the tracker's position if it changed, or in any case with force.
func (s *session) save(ctx context.Context, force bool) error {
	s.saveMu.Lock()
	defer s.saveMu.Unlock()
	p := s.tracker.Position()
	columns, err := s.rememberedColumns(p.Set)
	if err != nil {
		return err
	}
	unchanged := p.Generation == s.generation && bytes.Equal(columns, s.columns) && s.saved.paused.Equal(s.pausing.paused())
	if unchanged && !force && !s.staleOwn(p.Set) {
		s.saved.mu.Lock()
		s.saved.at = time.Now()
		s.saved.mu.Unlock()
		return nil
	}
	c := s.checkpoint(p, columns)
	c.Begun = s.stillBegun(p.Set, "")
	s.o.Points.hit(PointBeforeSave)
	err = s.store.Save(ctx, c)
	s.o.Points.hit(PointAfterSave)
	return s.stored(p, c, err)
}

// checkpoint makes what is stored at a position.
func (s *session) checkpoint(p checkpoint.Position, columns json.RawMessage) *checkpoint.Checkpoint {
	c := &checkpoint.Checkpoint{
		Name: s.o.Name, GTIDSet: p.Set, Tables: s.o.Tables, Paused: s.pausing.paused(), FencingToken: s.token, Instance: s.o.Instance, Time: time.Now(), Columns: columns,
		BinlogFile: p.BinlogFile, BinlogPosition: p.BinlogPosition,
	}
	if p.Done {
		c.SourceUUID = s.source.Status().ServerUUID.String()
		if p.Last.Number > 0 && p.LastCommitMicros > 0 {
			c.Last = &checkpoint.Last{GTID: p.Last.String(), CommitMicros: p.LastCommitMicros}
		}
	} else {
		c.BinlogFile, c.BinlogPosition, c.SourceUUID, c.Last = s.saved.file, s.saved.pos, s.saved.server, s.saved.last
	}
	if x := p.Snapshot; x.Reading() || x != nil && !p.Set.ContainsSet(x.Ended) {
		c.Snapshot = x
	}
	return c
}

// stored notes the outcome of a save.
func (s *session) stored(p checkpoint.Position, c *checkpoint.Checkpoint, err error) error {
	s.saved.mu.Lock()
	defer s.saved.mu.Unlock()
	if err != nil {
		if s.saved.failed++; s.saved.failed == 1 {
			s.log.Warn("saving the checkpoint failed, trying again", "err", Sentence(err))
		}
		s.saved.err = err
		s.metrics.saveFailures.Inc()
		return err
	}
	if s.saved.failed > 0 {
		s.log.Info("checkpoint saved again", "failures", s.saved.failed)
	}
	s.saved.failed, s.saved.err = 0, nil
	s.saved.changed = time.Now()
	s.saved.set, s.saved.at, s.saved.file, s.saved.pos, s.saved.server, s.saved.last = p.Set, time.Now(), c.BinlogFile, c.BinlogPosition, c.SourceUUID, c.Last
	s.generation, s.columns = p.Generation, c.Columns
	s.saved.paused = c.Paused
	s.pausing.saved(c.Paused)
	s.metrics.saves.Inc()
	return nil
}

// rememberedColumns is what the store shall hold of columns at a position. Before there is a source, that is what it holds.
func (s *session) rememberedColumns(position *gtid.Set) (json.RawMessage, error) {
	if s.source == nil {
		return s.columns, nil
	}
	return s.source.Columns(position)
}

// ownInterval is how often transactions that only wrote the checkpoint itself are a reason to store it: so that the newest of them, which the stored
// set can never hold, is not among purged binlogs one day.
const ownInterval = time.Hour

// staleOwn reports whether the position has moved by nothing but its own saves for long.
func (s *session) staleOwn(position *gtid.Set) bool {
	s.saved.mu.Lock()
	defer s.saved.mu.Unlock()
	return time.Since(s.saved.changed) >= ownInterval && s.saved.set != nil && !s.saved.set.Equal(position)
}
