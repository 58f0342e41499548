package relay

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"time"

	"outbox-relay/router"
)

// PoisonPolicy says what becomes of the poison records of a rule.
type PoisonPolicy struct {
	Action PoisonAction
	// Topic takes the dead letters.
	Topic string
}

// reasonParked is that of a good record which follows a dead letter of its key.
const reasonParked = "parked"

// PoisonAction is what is done with a poison record.
type PoisonAction uint8

const (
	// HaltAtPoison stands still: nothing behind the record is published in its partition, and no checkpoint passes it.
	HaltAtPoison PoisonAction = iota
	// SkipPoison goes on without the record: counted and logged.
	SkipPoison
	// DeadLetterPoison publishes what there is of the record to another topic and goes on once that is acknowledged.
	DeadLetterPoison
)

// Headers of a dead letter, behind those of the record.
const (
	headerReason = "dead-letter-reason"
	headerError  = "dead-letter-error"
	headerTopic  = "dead-letter-topic"
	headerTable  = "dead-letter-table"
	headerSize   = "dead-letter-size"
	headerHash   = "dead-letter-sha256"
	// headerRelay tells the letters of relays apart that share a topic.
	headerRelay = "dead-letter-relay"
	// headerTimestamp is there only if the record had a timestamp that its topic refused: then that of the letter is when it was made.
	headerTimestamp = "dead-letter-timestamp"
	// headerPosition takes the place of router.PositionHeader where the record has none: so its headers are, when it is published again, what they were.
	headerPosition = "dead-letter-position"
	// headerPartition is there only if the rule chose the partition.
	headerPartition = "dead-letter-partition"
)

// deadLetter makes the dead letter of a record, which shares its bytes: a sink copies what it takes. Key, value and headers are the record's; what could not be made of it is missing.
func deadLetter(rec *router.Record, bad *Poison, topic, name string, now time.Time) *router.Record {
	out := &router.Record{Topic: topic, Key: rec.Key, Value: rec.Value, TimestampMillis: rec.TimestampMillis, Partition: router.AnyPartition, Table: rec.Table, Rule: rec.Rule, ID: rec.ID, Position: rec.Position}
	var incomplete *router.Poison
	invalid := bad.Reason == string(router.ReasonInvalidTimestamp)
	if invalid {
		out.TimestampMillis = now.UnixMilli()
	}
	add := func(key string, value []byte) {
		out.Headers = append(out.Headers, router.Header{Key: key, Value: value, Null: value == nil})
	}
	position := []byte(bad.Position)
	for _, h := range rec.Headers {
		if h.Key == router.PositionHeader {
			position = h.Value
			continue
		}
		add(h.Key, h.Value)
	}
	add(headerReason, []byte(bad.Reason))
	text := bad.Reason
	if bad.Err != nil {
		text = bad.Err.Error()
	}
	add(headerError, []byte(text))
	from := bad.Topic
	if from == "" {
		from = rec.Topic
	}
	add(headerTopic, []byte(from))
	add(headerTable, []byte(bad.Table))
	size := int64(len(rec.Value))
	if bad.Size > 0 {
		size = bad.Size
	}
	add(headerSize, strconv.AppendInt(nil, size, 10))
	hash := []byte(nil)
	if rec.Value != nil {
		sum := sha256.Sum256(rec.Value)
		hash = []byte(hex.EncodeToString(sum[:]))
	}
	add(headerHash, hash)
	add(headerRelay, []byte(name))
	if invalid && !errors.As(bad.Err, &incomplete) {
		add(headerTimestamp, strconv.AppendInt(nil, rec.TimestampMillis, 10))
	}
	if rec.Partition != router.AnyPartition {
		add(headerPartition, strconv.AppendInt(nil, int64(rec.Partition), 10))
	}
	if rec.Position != nil {
		add(headerPosition, rec.Position)
	} else {
		add(router.PositionHeader, position)
	}
	return out
}

// isDeadLetter reports whether a record is one that deadLetter made for the topic.
func isDeadLetter(rec *router.Record, topic string) bool {
	if rec.Topic != topic {
		return false
	}
	for i := range rec.Headers {
		if rec.Headers[i].Key == headerReason {
			return true
		}
	}
	return false
}

// acceptable makes a dead letter of one that its topic refuses, nil if nothing is left to try.
func acceptable(letter *router.Record, bad *Poison, now time.Time) *router.Record {
	out := *letter
	dated := slices.ContainsFunc(out.Headers, func(h router.Header) bool { return h.Key == headerTimestamp })
	switch {
	case bad.Reason == string(router.ReasonInvalidTimestamp) && !dated:
		at := router.Header{Key: headerTimestamp, Value: strconv.AppendInt(nil, out.TimestampMillis, 10)}
		out.Headers = slices.Insert(slices.Clone(out.Headers), len(out.Headers)-1, at) // the position stays the last
	case out.Value == nil:
		return nil
	default:
		out.Value = nil
	}
	out.TimestampMillis = now.UnixMilli()
	return &out
}

// policy is the policy of a rule.
func (s *session) policy(rule int32) PoisonPolicy {
	if s.o.PoisonPolicy == nil {
		return PoisonPolicy{}
	}
	return s.o.PoisonPolicy(int(rule))
}

// verdict applies the policy of its rule to a poison record: something else is published in its place, it is dropped, or neither, which halts. It is
// called by the pump and by the sink, and does not block.
func (s *session) verdict(bad *Poison, rec *router.Record) (instead *router.Record, drop bool) {
	policy := s.policy(rec.Rule)
	attrs := []any{"reason", bad.Reason, "gtid", bad.GTID, "position", bad.Position, "table", bad.Table, "id", bad.ID, "topic", bad.Topic, "err", bad.Err}
	switch policy.Action {
	case SkipPoison:
		s.metrics.poison.WithLabelValues(bad.Reason).Inc()
		s.log.Warn("poison record skipped", attrs...)
		return nil, true
	case DeadLetterPoison:
		if isDeadLetter(rec, policy.Topic) {
			return acceptable(rec, bad, time.Now()), false
		}
		s.metrics.deadLetters.WithLabelValues(bad.Reason).Inc()
		if bad.Reason != reasonParked {
			s.metrics.poison.WithLabelValues(bad.Reason).Inc()
			s.log.Warn("poison record becomes a dead letter", append(attrs, "dead_letter_topic", policy.Topic)...)
		}
		return deadLetter(rec, bad, policy.Topic, s.o.Name, time.Now()), false
	}
	return nil, false
}
