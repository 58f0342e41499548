package relay

import (
	"context"
	"log/slog"

	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
)

// Room is the part of a session that bounds the transactions in flight.
type Room struct {
	pump    pump
	tracker *checkpoint.Tracker
}

// NewRoom makes a Room for at most limit transactions.
func NewRoom(limit int, sink Sink) *Room {
	s := &session{Relay: &Relay{o: Options{MaxInFlight: limit}}, sink: sink, room: make(chan struct{}, 1), tracker: checkpoint.NewTracker(&gtid.Set{})}
	return &Room{pump: pump{session: s}, tracker: s.tracker}
}

// Begin waits for room and opens a transaction with one record.
func (r *Room) Begin(ctx context.Context, id gtid.Range) (seq uint64, err error) {
	if err := r.pump.waitRoom(ctx); err != nil {
		return 0, err
	}
	seq = r.tracker.Begin(checkpoint.Transaction{Ranges: []gtid.Range{id}})
	r.tracker.Published(seq, 1)
	return seq, nil
}

// Close closes it, and Acked acknowledges its record from another goroutine.
func (r *Room) Close(seq uint64)    { r.pump.advanced(r.tracker.Close(seq)) }
func (r *Room) Acked(seqs []uint64) { r.pump.acked(seqs) }

// Done is how many rows of a transaction are done with under a checkpoint.
func Done(b checkpoint.Begun, gtid string, commitMicros int64) int {
	s := &session{Relay: &Relay{log: slog.New(slog.DiscardHandler)}, begun: []begun{{Begun: b}}}
	return s.done([]byte(gtid), commitMicros)
}

// DeadLetter makes the dead letter of a record.
var DeadLetter = deadLetter

// Acceptable makes a dead letter of one that its topic refuses.
var Acceptable = acceptable

// cutOnly is a sink that keeps what a window is cut with.
type cutOnly struct {
	Transactional
	checkpoint *checkpoint.Checkpoint
}

func (s *cutOnly) Cut(c *checkpoint.Checkpoint) error {
	s.checkpoint = c
	return nil
}

// CutAmidStep gives the checkpoint of a window that is cut when rows of a step were handed over, so many behind base, up to the one with the key.
func CutAmidStep(base *checkpoint.Snapshot, rows int, key []byte) (*checkpoint.Checkpoint, error) {
	s := &session{Relay: &Relay{o: Options{Name: "test"}}, tracker: checkpoint.NewTracker(&gtid.Set{})}
	s.tracker.Gather()
	s.tracker.Snapshot(base)
	sink := &cutOnly{}
	w := newWindows(s, sink)
	s.tracker.Published(s.tracker.BeginRows(1), rows)
	w.handedRow(base, rows, key)
	err := w.cut()
	return sink.checkpoint, err
}
