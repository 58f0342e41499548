package relay

import (
	"fmt"
	"strings"
	"time"

	"outbox-relay/binlog"
)

// Status is what a relay says of itself: the body of /status, the base of /readyz and of the gauges.
type Status struct {
	Name       string           `json:"name"`
	Instance   string           `json:"instance"`
	Role       Role             `json:"role"`
	Ready      bool             `json:"ready"`
	Cause      Cause            `json:"cause,omitempty"`  // the kind of Reason
	Reason     string           `json:"reason,omitempty"` // why it is not ready, a sentence
	StartedAt  time.Time        `json:"started_at"`
	LagSeconds float64          `json:"lag_seconds"`
	CaughtUp   bool             `json:"caught_up"`
	Snapshot   *SnapshotStatus  `json:"snapshot,omitempty"` // while rows that exist are read
	Source     SourceStatus     `json:"source"`
	Sink       SinkStatus       `json:"sink"`
	Checkpoint CheckpointStatus `json:"checkpoint"`
	Halted     string           `json:"halted,omitempty"`
	HaltReason string           `json:"halt_reason,omitempty"`
	LastError  string           `json:"last_error,omitempty"` // what hurts most, or hurt last
	// PurgeNear says that the source may soon purge binlogs that a restart needs, and what to do. The relay may be ready all the same.
	PurgeNear   string    `json:"purge_near,omitempty"`
	LeaseHeld   bool      `json:"lease_held"`
	LeaseErr    string    `json:"lease_error,omitempty"`
	LastAckedAt time.Time `json:"last_acknowledged_at,omitzero"`
	PausedSince time.Time `json:"paused_since,omitzero"` // zero while publishing goes on
}

// Overview is what a process with several relays says: the body of its /status.
type Overview struct {
	Name    string   `json:"name"`
	Ready   bool     `json:"ready"` // all are
	Sources []Status `json:"sources"`
}

// Cause is the kind of reason why a relay is not ready.
type Cause string

const (
	CauseStarting   Cause = "starting"
	CauseLock       Cause = "lock" // the activity lock's server cannot be reached
	CauseHalted     Cause = "halted"
	CausePaused     Cause = "paused"
	CauseSource     Cause = "source"
	CauseKafka      Cause = "kafka"
	CauseTopic      Cause = "topic"
	CauseStuck      Cause = "stuck"
	CauseCheckpoint Cause = "checkpoint"
)

// SourceStatus is the state of the replication connection.
type SourceStatus struct {
	Connected  bool      `json:"connected"`
	Searching  bool      `json:"searching,omitempty"` // the server looks for the position in its binlogs
	Address    string    `json:"address,omitempty"`
	ServerUUID string    `json:"server_uuid,omitempty"`
	Since      time.Time `json:"since,omitzero"`
	LastError  string    `json:"last_error,omitempty"`
}

// SnapshotStatus is how far the reading of rows that exist has come.
type SnapshotStatus struct {
	Table      string    `json:"table"`                    // under way
	TablesLeft int       `json:"tables_left"`              // with the one under way
	Rows       int64     `json:"rows"`                     // read of all tables
	Remaining  int64     `json:"rows_remaining_estimated"` // -1 where the source was not asked yet
	Rate       float64   `json:"rows_per_second"`
	StartedAt  time.Time `json:"started_at"`
}

// SinkStatus is the state of publishing.
type SinkStatus struct {
	InFlightRecords      int      `json:"in_flight_records"`
	InFlightBytes        int64    `json:"in_flight_bytes"`
	InFlightTransactions int      `json:"in_flight_transactions"`
	OldestSeconds        float64  `json:"oldest_seconds"`
	ParkedKeys           int      `json:"parked_keys"` // whose records become dead letters until theirs are published again
	Connected            []string `json:"connected,omitempty"`
	Stalled              []string `json:"stalled,omitempty"`
	LastError            string   `json:"last_error,omitempty"`
}

// CheckpointStatus is the stored position.
type CheckpointStatus struct {
	GTIDSet    string    `json:"gtid_set"`
	BinlogFile string    `json:"binlog_file,omitempty"`
	Position   uint64    `json:"binlog_position,omitempty"`
	SavedAt    time.Time `json:"saved_at,omitzero"`
	Error      string    `json:"error,omitempty"`
}

// stuckAfter is how long records may wait without any acknowledgement before the relay is not ready.
const stuckAfter = 30 * time.Second

// Status returns the present state. Safe for concurrent use; it takes only short locks.
func (r *Relay) Status() Status {
	r.mu.Lock()
	st := Status{Name: r.o.Name, Instance: r.o.Instance, Role: r.role, StartedAt: r.started}
	s, halt, lastErr, waiting := r.session, r.halt, r.lastErr, r.waiting
	r.mu.Unlock()
	st.PausedSince = r.pausing.paused()
	lease := r.o.Lease.State()
	st.LeaseHeld = lease.Held
	st.LeaseErr = Sentence(lease.Err)
	if halt != nil {
		st.Halted, st.HaltReason = halt.Error(), halt.Reason()
	}
	if s == nil {
		st.LastError = firstOf(st.Halted, st.LeaseErr, Sentence(lastErr))
		st.Cause, st.Reason = idleReason(lease, halt, waiting)
		st.Ready = st.Reason == ""
		return st
	}
	now := time.Now()
	src := s.sourceStatus()
	if !src.Connected && !lease.Held && lease.Err != nil {
		src.LastError = lease.Err // nothing is read without the lock, so this is why
	}
	st.Source = SourceStatus{Connected: src.Connected, Searching: src.Searching, Address: src.Address, Since: src.Since, LastError: Sentence(src.LastError)}
	if src.Connected {
		st.Source.ServerUUID = src.ServerUUID.String()
	}
	sink := s.sink.Stats()
	p := s.tracker.Position()
	st.Sink = SinkStatus{InFlightRecords: sink.Records, InFlightBytes: sink.Bytes, InFlightTransactions: p.InFlight, OldestSeconds: sink.OldestAge.Seconds(), ParkedKeys: sink.ParkedKeys, Connected: sink.Connected, Stalled: sink.Stalled, LastError: sink.LastError}
	st.CaughtUp = s.caughtUp.Load() && src.Connected
	st.LagSeconds = s.lag(now, src, p.InFlight > 0, p.OldestCommitMicros, p.LastCommitMicros)
	if s.reading.Load() {
		x := s.rows.Status()
		st.Snapshot = &SnapshotStatus{Table: x.Table, TablesLeft: x.Tables, Rows: x.Rows, Remaining: x.Remaining, Rate: x.Rate, StartedAt: x.Started}
		st.LagSeconds = max(now.Sub(x.Started).Seconds(), 0) // the binlog since then is not read
	}
	if ack := s.lastAck.Load(); ack > 0 {
		st.LastAckedAt = time.UnixMicro(ack).UTC()
	}
	s.saved.mu.Lock()
	st.Checkpoint = CheckpointStatus{BinlogFile: s.saved.file, Position: s.saved.pos, SavedAt: s.saved.at, Error: Sentence(s.saved.err)}
	if s.saved.set != nil {
		st.Checkpoint.GTIDSet = s.saved.set.String()
	}
	s.saved.mu.Unlock()
	st.LastError = firstOf(st.Halted, st.Checkpoint.Error, st.Source.LastError, st.Sink.LastError, st.LeaseErr)
	st.Cause, st.Reason = s.unready(now, src, sink, st, halt)
	st.PurgeNear = s.purgeNear(time.Duration(st.LagSeconds * float64(time.Second)))
	st.Ready = st.Reason == ""
	return st
}

// sourceStatus is the state of the connection that is read.
func (s *session) sourceStatus() binlog.Status {
	if s.reading.Load() {
		return s.rows.Status().Connection
	}
	return s.source.Status()
}

// firstOf gives the first text that is not empty.
func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// idleReason tells why a relay without a session is not ready. Standing by for another one is ready.
func idleReason(l LeaseState, halt *HaltError, waiting bool) (Cause, string) {
	switch {
	case halt != nil:
		return CauseHalted, halt.Error()
	case waiting, l.Other:
		return "", ""
	case l.Err != nil:
		return CauseLock, Sentence(l.Err)
	case l.Held:
		return CauseStarting, "starting: looking for the position to start from"
	default:
		return CauseStarting, "starting: asking the source for the activity lock"
	}
}

// lag is now minus the commit time of the oldest unacknowledged transaction. Without one it is 0 only while the source is known to have
// nothing more; otherwise it counts from the last acknowledged commit or the last proof of being caught up.
func (s *session) lag(now time.Time, src binlog.Status, inFlight bool, oldest, last int64) float64 {
	since := func(micros int64) float64 { return max(0, now.Sub(time.UnixMicro(micros)).Seconds()) }
	proof := s.proof.Load()
	fresh := src.Connected && proof > 0 && now.Sub(time.UnixMicro(proof)) < 3*s.o.Heartbeat
	switch {
	case inFlight:
		return since(oldest)
	case fresh:
		return 0
	case max(proof, last) > 0:
		return since(max(proof, last))
	}
	began := s.started
	if p := s.pausing.paused(); !p.IsZero() && p.Before(began) {
		began = p // a restart in a pause
	}
	return now.Sub(began).Seconds()
}

// advised adds what to do to an error of the sink that does not say it itself, behind a semicolon as sentences do.
func advised(text string) string {
	if strings.Contains(text, "; ") {
		return text
	}
	return text + "; check kafka.brokers and that the brokers run"
}

// unready gives the first reason why an active relay is not ready.
func (s *session) unready(now time.Time, src binlog.Status, sink SinkStats, st Status, halt *HaltError) (Cause, string) {
	patience := 3 * s.o.Heartbeat
	lastAck := time.UnixMicro(s.lastAck.Load())
	switch {
	case halt != nil:
		return CauseHalted, halt.Error()
	case !st.PausedSince.IsZero():
		return CausePaused, fmt.Sprintf("paused since %s; outbox-relay resume goes on", st.PausedSince.Format(time.RFC3339))
	case !src.Connected && now.Sub(src.Since) > patience:
		return CauseSource, fmt.Sprintf("no source since %s: %s", src.Since.UTC().Format(time.RFC3339), Sentence(src.LastError))
	case !src.FailingSince.IsZero() && now.Sub(src.FailingSince) > patience:
		return CauseSource, fmt.Sprintf("connections to the source have failed since %s before they gave anything: %s", src.FailingSince.UTC().Format(time.RFC3339), Sentence(src.LastError))
	case !src.Connected && src.Address == "":
		return CauseStarting, "starting: connecting to the source"
	case sink.Records > 0 && len(sink.Connected) == 0 && sink.Connected != nil && sink.OldestAge > patience:
		return CauseKafka, "Kafka cannot be reached: " + advised(sink.LastError)
	case !sink.LastAnswer.IsZero() && now.Sub(sink.LastAnswer) > patience:
		return CauseKafka, fmt.Sprintf("Kafka has not answered since %s: %s", sink.LastAnswer.UTC().Format(time.RFC3339), advised(firstOf(sink.LastError, "nothing that it was asked came back")))
	case sink.Unreachable != "" && now.Sub(s.started) > patience:
		return CauseKafka, "Kafka cannot be used: " + sink.Unreachable
	case len(sink.Stalled) > 0:
		return CauseTopic, sink.Stalled[0]
	case sink.Records > 0 && sink.OldestAge > stuckAfter && now.Sub(lastAck) > stuckAfter:
		reason := fmt.Sprintf("%d records in flight without progress for %.0f s", sink.Records, sink.OldestAge.Seconds())
		if sink.LastError != "" {
			reason += ": " + sink.LastError
		}
		return CauseStuck, reason
	case now.Sub(st.Checkpoint.SavedAt) > 3*s.o.SaveInterval+time.Second:
		return CauseCheckpoint, firstOf(st.Checkpoint.Error, "the checkpoint was not saved for three intervals")
	}
	return "", ""
}
