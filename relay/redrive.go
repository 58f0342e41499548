package relay

import (
	"fmt"
	"strconv"

	"outbox-relay/router"
)

// DeadLetterInfo is what the headers of a dead letter say.
type DeadLetterInfo struct {
	Reason, Error, Table, ID, Position string
	Topic                              string // empty where the row gives none
	Size                               int64  // of the value in bytes, or of the row where the value could not be had
	Hash                               string // SHA-256 of the value, empty for a null one and where the value could not be had
	Partition                          int32  // that the row asked for; router.AnyPartition where the partitioner chooses
}

// redrivable are the reasons for which the record was complete and only its topic refused it.
var redrivable = map[string]bool{
	"too_large": true, "invalid_timestamp": true, "invalid_partition": true, "refused": true, "policy_violation": true,
}

// ReadDeadLetter reads the headers of a dead letter; false if it is none.
func ReadDeadLetter(rec *router.Record) (DeadLetterInfo, bool) {
	d := DeadLetterInfo{Partition: router.AnyPartition}
	placed := false
	for _, h := range rec.Headers {
		switch h.Key {
		case headerReason:
			d.Reason = string(h.Value)
		case headerError:
			d.Error = string(h.Value)
		case headerTopic:
			d.Topic, placed = string(h.Value), true
		case headerTable:
			d.Table = string(h.Value)
		case headerSize:
			d.Size, _ = strconv.ParseInt(string(h.Value), 10, 64)
		case headerHash:
			d.Hash = string(h.Value)
		case headerPartition:
			if n, err := strconv.ParseInt(string(h.Value), 10, 32); err == nil && n >= 0 {
				d.Partition = int32(n)
			}
		case router.PositionHeader:
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
	case !redrivable[d.Reason], d.Reason == string(router.ReasonInvalidPartition) && d.Partition == router.AnyPartition: // the row names none
		return nil, fmt.Errorf("no complete record could be made of the row (%s): correct the rule or the row and insert it again", d.Reason)
	case rec.Value == nil && (d.Size > 0 || d.Hash != ""): // an empty value is none that is null
		return nil, fmt.Errorf("its value of %d bytes did not fit into the dead-letter topic: insert the row again", d.Size)
	}
	out := *rec
	out.Topic, out.Table, out.Partition, out.Headers = d.Topic, d.Table, d.Partition, nil
	for _, h := range rec.Headers {
		switch h.Key {
		case headerReason, headerError, headerTopic, headerTable, headerSize, headerHash, headerPartition:
		default:
			out.Headers = append(out.Headers, h)
		}
	}
	return &out, nil
}
