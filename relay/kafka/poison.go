package kafka

import "fmt"

// The reasons of a [PoisonError]. The set is fixed, so a metric may be labelled by it.
const (
	// ReasonInvalidTopic: no broker takes a topic of this name from a producer.
	ReasonInvalidTopic = "invalid_topic"
	// ReasonTooLarge: alone in a batch and before compression the record is above max.message.bytes of its topic, or a broker said so.
	ReasonTooLarge = "too_large"
	// ReasonInvalidTimestamp: the timestamp is negative, beyond the year 2262 or outside the bounds of its topic.
	ReasonInvalidTimestamp = "invalid_timestamp"
	// ReasonInvalidPartition: the record names a partition that its topic does not have.
	ReasonInvalidPartition = "invalid_partition"
	// ReasonNullKey: a null key for a compacted topic.
	ReasonNullKey = "null_key"
	// ReasonRefused: a broker refused the record as invalid.
	ReasonRefused = "refused"
	// ReasonPolicy: a policy of the cluster refused the record.
	ReasonPolicy = "policy_violation"
	// ReasonParked: an earlier record of the key is among the dead letters. The record itself is good. See [Parking].
	ReasonParked = "parked"
)

// PoisonError is a record that Kafka can never accept. All of it is copied: it may be kept. It holds no key, value or header besides
// the position.
type PoisonError struct {
	// Reason is one of the constants above.
	Reason string
	// Topic and Partition say where it was going; Partition is -1 when none was chosen yet.
	Topic     string
	Partition int32
	// Table and ID are those of the record, for people.
	Table string
	ID    string
	// Position is that of the row, empty where the record has none.
	Position string
	// Seq is the number that the record was published with.
	Seq uint64
	// Size is the size in bytes of an uncompressed batch of this record alone, which is what a broker compares with max.message.bytes.
	Size int
	// Err is the cause, a sentence or a broker's code.
	Err error
}

// Error gives one line for logs.
func (e *PoisonError) Error() string {
	where := fmt.Sprintf("poison record for topic %s", e.Topic)
	if e.Partition >= 0 {
		where += fmt.Sprintf(" partition %d", e.Partition)
	}
	if e.Table != "" {
		where += ", table " + e.Table
	}
	if e.ID != "" {
		where += fmt.Sprintf(", id %q", e.ID)
	}
	if e.Position != "" {
		where += ", position " + e.Position
	}
	text := fmt.Sprintf("%s, %d bytes: %s", where, e.Size, e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives the cause.
func (e *PoisonError) Unwrap() error { return e.Err }
