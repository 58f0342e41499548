package kafka

import (
	"slices"
	"strings"
	"time"
)

// Stats is the state of a [Publisher] at one moment, for /readyz and /status.
type Stats struct {
	// InFlightRecords and InFlightBytes were accepted and are not acknowledged; bytes are memory, as the window counts them.
	InFlightRecords int
	InFlightBytes   int64
	// HeldRecords are those of them that halted partitions hold: poison records and what is behind them.
	HeldRecords int
	// ParkedKeys are those whose records become dead letters, see [Parking].
	ParkedKeys int
	// OldestAge is how long the oldest of them has waited, 0 without one.
	OldestAge time.Duration
	// Stalled are topics with records that cannot be published at present, by name.
	Stalled []Stall
	// Halted are the poison records that stop a partition.
	Halted []*PoisonError
	// Connected are the addresses of brokers that records can go to right now.
	Connected []string
	// NoProducerID is why no broker has given a producer id yet, which is the first thing asked of the cluster; empty before the first
	// attempt has failed and once there is one.
	NoProducerID string
	// LastAnswer is when any broker answered last, zero if none has yet. One is asked when none was heard of for 5 s, so a time of more
	// than 10 s ago means that Kafka cannot be reached, whether or not there is anything to send.
	LastAnswer time.Time
	// LastError is the newest failure, nil if there was none since the start. It may be healed long since.
	LastError   error
	LastErrorAt time.Time
}

// Stall is a topic that stands still.
type Stall struct {
	Topic string
	// Reason is one of the Stall constants.
	Reason string
	Since  time.Time
	// Partitions that stand still; empty if it is the whole topic.
	Partitions []int32
}

// Stats gives the state of the moment. It takes a short lock.
func (p *Publisher) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	s := Stats{
		InFlightRecords: p.outstanding + p.txn.uncommitted(), InFlightBytes: p.chunks.used, HeldRecords: p.held,
		NoProducerID: p.noProducerID, LastAnswer: p.answeredAt, LastError: p.lastErr, LastErrorAt: p.lastErrAt,
	}
	if s.InFlightRecords > 0 {
		s.OldestAge = p.txn.oldest(now)
	}
	if p.txn != nil {
		if fault := p.txn.coordinator.Fault(); fault != nil {
			s.LastError, s.LastErrorAt = fault, now
		}
	}
	if p.parking != nil {
		s.ParkedKeys = len(p.parking.keys)
	}
	for _, t := range p.topics {
		waiting := len(t.unrouted) > 0
		if waiting {
			s.OldestAge = max(s.OldestAge, now.Sub(t.unrouted[0].openedAt))
		}
		stall := Stall{Topic: t.name}
		for _, part := range t.parts {
			if part.halted != nil {
				s.Halted = append(s.Halted, part.halted)
			}
			if len(part.queue) == 0 {
				continue
			}
			waiting = true
			s.OldestAge = max(s.OldestAge, now.Sub(part.queue[0].openedAt))
			if part.stall != "" {
				stall.Partitions = append(stall.Partitions, part.index)
				if stall.Reason == "" || part.since.Before(stall.Since) {
					stall.Reason, stall.Since = part.stall, part.since
				}
			}
		}
		switch {
		case !waiting:
			continue
		case t.stall != "":
			stall = Stall{Topic: t.name, Reason: t.stall, Since: t.since}
		case stall.Reason == "" && p.noProducerID != "":
			stall.Reason, stall.Since = StallProducerID, p.lastErrAt
		}
		if stall.Reason != "" {
			s.Stalled = append(s.Stalled, stall)
		}
	}
	for _, n := range p.nodes {
		for _, snd := range n.lanes {
			if snd != nil && snd.link != nil && !snd.link.Dead() && !slices.Contains(s.Connected, n.addr) {
				s.Connected = append(s.Connected, n.addr)
			}
		}
	}
	slices.Sort(s.Connected)
	slices.SortFunc(s.Stalled, func(a, b Stall) int { return strings.Compare(a.Topic, b.Topic) })
	return s
}
