package relay

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"outbox-relay/router"
)

// DeadLetterInfo is what the headers of a dead letter say.
type DeadLetterInfo struct {
	Reason, Error, Table, ID, Position string
	Relay                              string // its name, empty in letters of before there was that header
	Topic                              string // empty where the row gives none
	Size                               int64  // of the value in bytes, or of the row where the value could not be had
	Hash                               string // SHA-256 of the value, empty for a null one and where the value could not be had
	Timestamp                          int64  // of the record in milliseconds, where that of the letter is another one; else -1
	Partition                          int32  // that the row asked for; router.AnyPartition where the partitioner chooses
}

// redrivable are the reasons for which the record was complete: only its topic refused it, or nobody.
var redrivable = map[string]bool{
	"too_large": true, "invalid_timestamp": true, "invalid_partition": true, "refused": true, "policy_violation": true, reasonParked: true,
}

// maxTimestamp is the last one that is published, in the year 2262.
const maxTimestamp = math.MaxInt64 / int64(time.Millisecond)

// ReadDeadLetter reads the headers of a dead letter; false if it is none.
func ReadDeadLetter(rec *router.Record) (DeadLetterInfo, bool) {
	d := DeadLetterInfo{Partition: router.AnyPartition, Timestamp: -1}
	placed := false
	for _, h := range rec.Headers {
		switch h.Key {
		case headerReason:
			d.Reason = string(h.Value)
		case headerError:
			d.Error = string(h.Value)
		case headerTopic:
			d.Topic, placed = string(h.Value), true
		case headerRelay:
			d.Relay = string(h.Value)
		case headerTable:
			d.Table = string(h.Value)
		case headerSize:
			d.Size, _ = strconv.ParseInt(string(h.Value), 10, 64)
		case headerHash:
			d.Hash = string(h.Value)
		case headerTimestamp:
			if n, err := strconv.ParseInt(string(h.Value), 10, 64); err == nil && n >= 0 {
				d.Timestamp = n
			}
		case headerPartition:
			if n, err := strconv.ParseInt(string(h.Value), 10, 32); err == nil && n >= 0 {
				d.Partition = int32(n)
			}
		case router.PositionHeader, headerPosition:
			d.Position = string(h.Value)
		}
	}
	d.ID = string(rec.ID)
	return d, d.Reason != "" && placed
}

// Redrive makes of a dead letter the record that it was: key, value, headers and timestamp, to its topic and the partition that the row asked for. The error says why it cannot be.
func Redrive(rec *router.Record) (*router.Record, error) {
	d, ok := ReadDeadLetter(rec)
	switch {
	case !ok:
		return nil, fmt.Errorf("it is no dead letter: it lacks the headers %s and %s", headerReason, headerTopic)
	case !redrivable[d.Reason], d.Reason == string(router.ReasonInvalidPartition) && d.Partition == router.AnyPartition, // the row names none
		d.Reason == string(router.ReasonInvalidTimestamp) && d.Timestamp < 0:
		return nil, fmt.Errorf("no complete record could be made of the row (%s): correct the rule or the row and insert it again", d.Reason)
	case d.Timestamp > maxTimestamp:
		return nil, fmt.Errorf("no record can have its timestamp, %d ms: correct the row and insert it again", d.Timestamp)
	case rec.Value == nil && (d.Size > 0 || d.Hash != ""): // an empty value is none that is null
		return nil, fmt.Errorf("its value of %d bytes did not fit into the dead-letter topic: insert the row again", d.Size)
	}
	out := *rec
	out.Topic, out.Table, out.Partition, out.Headers = d.Topic, d.Table, d.Partition, nil
	if d.Timestamp >= 0 {
		out.TimestampMillis = d.Timestamp
	}
	for _, h := range rec.Headers {
		switch h.Key {
		case headerReason, headerError, headerTopic, headerTable, headerSize, headerHash, headerRelay, headerTimestamp, headerPosition, headerPartition:
		default:
			out.Headers = append(out.Headers, h)
		}
	}
	return &out, nil
}
