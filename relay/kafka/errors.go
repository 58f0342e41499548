package kafka

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// ErrClosed is returned by Publish and Drain when Run has ended.
var ErrClosed = errors.New("kafka: publisher is closed")

// FatalError ends Run: the publisher cannot go on, and trying again in this process would not help.
type FatalError struct {
	Topic     string
	Partition int32
	Err       error
}

// Error gives one line for logs.
func (e *FatalError) Error() string {
	if e.Topic == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("publishing to %s partition %d: %v", e.Topic, e.Partition, e.Err)
}

// Unwrap gives the broker's code.
func (e *FatalError) Unwrap() error { return e.Err }

// class says what a broker's error code means for the batch that got it.
type class uint8

const (
	classOK            class = iota
	classTransient           // time heals it: wait, send the same batch again
	classPoison              // a record in it can never be accepted: find it, stop before it
	classConfiguration       // someone has to change something: slow retries, the topic counts as stalled
	classProducerState       // broker and producer disagree on ids or sequences: new epoch, same records
	classFatal               // end Run
)

var classNames = [...]string{"ok", "transient", "poison", "configuration", "producer_state", "fatal"}

func (c class) String() string { return classNames[c] }

// verdict is one line of the error table.
type verdict struct {
	class class
	// maybeAppended: the batch may be in the log although the answer is an error, so it must not be altered.
	maybeAppended bool
	// refresh: the leader may be another one, ask for metadata.
	refresh bool
	// aside: the partition waits for replicas, which would hold up its neighbours on the connection. Resends use a second one.
	aside bool
	// newID: a bump of the epoch does not help, a new producer id does.
	newID bool
	// stall is the reason under which the topic counts as stalled, "" for the class's own name after a while.
	stall string
	// reason is the reason of a poison record.
	reason string
}

// Reasons of a stalled topic, see [Stall].
const (
	StallMissing        = "missing"
	StallNotAuthorized  = "not_authorized"
	StallNoLeader       = "no_leader"
	StallReplicas       = "not_enough_replicas"
	StallConfiguration  = "configuration"
	StallCreation       = "creation_failed"
	StallProducerID     = "no_producer_id"
	StallPoison         = "poison"
	StallUnreachable    = "unreachable"
	StallPartitionsGone = "partitions_gone"
)

// verdicts is the one table of broker codes. Codes 6 and 3 can also come while a batch that was appended waits for its replicas, hence
// maybeAppended. A code that is not here is transient with an alert: an outage must never turn into a drop.
var verdicts = map[sarama.KError]verdict{
	0:  {class: classOK},
	46: {class: classOK}, // DUPLICATE_SEQUENCE_NUMBER: it is in the log

	-1:  {class: classTransient, maybeAppended: true},
	2:   {class: classTransient}, // CORRUPT_MESSAGE: checked before the append
	5:   {class: classTransient, maybeAppended: true, refresh: true, stall: StallNoLeader},
	6:   {class: classTransient, maybeAppended: true, refresh: true, stall: StallNoLeader},
	7:   {class: classTransient, maybeAppended: true, aside: true, stall: StallReplicas},
	8:   {class: classTransient, maybeAppended: true, refresh: true},
	9:   {class: classTransient, maybeAppended: true, refresh: true},
	13:  {class: classTransient, maybeAppended: true, refresh: true},
	14:  {class: classTransient, maybeAppended: true},
	15:  {class: classTransient, maybeAppended: true},
	16:  {class: classTransient, maybeAppended: true},
	19:  {class: classTransient, aside: true, stall: StallReplicas},
	20:  {class: classTransient, maybeAppended: true, aside: true, stall: StallReplicas},
	41:  {class: classTransient, maybeAppended: true, refresh: true},
	51:  {class: classTransient},
	52:  {class: classTransient, maybeAppended: true},
	55:  {class: classTransient},
	56:  {class: classTransient, maybeAppended: true, refresh: true},
	72:  {class: classTransient, maybeAppended: true, refresh: true},
	74:  {class: classTransient, maybeAppended: true, refresh: true},
	75:  {class: classTransient, maybeAppended: true, refresh: true},
	78:  {class: classTransient, maybeAppended: true, refresh: true},
	89:  {class: classTransient},
	100: {class: classTransient, maybeAppended: true, refresh: true},
	103: {class: classTransient, maybeAppended: true, refresh: true},

	10: {class: classPoison, reason: ReasonTooLarge},
	18: {class: classPoison, reason: ReasonTooLarge},
	32: {class: classPoison, reason: ReasonInvalidTimestamp},
	44: {class: classPoison, reason: ReasonPolicy},
	87: {class: classPoison, reason: ReasonRefused},

	3:  {class: classConfiguration, maybeAppended: true, refresh: true, stall: StallMissing},
	17: {class: classConfiguration, stall: StallConfiguration},
	21: {class: classConfiguration, stall: StallConfiguration},
	29: {class: classConfiguration, refresh: true, stall: StallNotAuthorized},
	31: {class: classConfiguration, stall: StallNotAuthorized},
	33: {class: classConfiguration, stall: StallConfiguration},
	34: {class: classConfiguration, stall: StallConfiguration},
	35: {class: classConfiguration, stall: StallConfiguration},
	43: {class: classConfiguration, stall: StallConfiguration},
	50: {class: classConfiguration, stall: StallConfiguration},
	53: {class: classConfiguration, stall: StallNotAuthorized},
	54: {class: classConfiguration, stall: StallConfiguration},
	58: {class: classConfiguration, stall: StallNotAuthorized},
	76: {class: classConfiguration, stall: StallConfiguration},

	45: {class: classProducerState},
	47: {class: classProducerState},
	48: {class: classProducerState},
	49: {class: classProducerState, newID: true},
	59: {class: classProducerState},

	42: {class: classFatal},
	90: {class: classFatal},
}

// judge looks a code up; known is false for a code that is not in the table.
func judge(code sarama.KError) (v verdict, known bool) {
	v, known = verdicts[code]
	if !known {
		v = verdict{class: classTransient, maybeAppended: true}
	}
	return v, known
}

// classOfLocal puts an error without a broker's code into a class.
func classOfLocal(err error) class {
	var code sarama.KError
	if errors.As(err, &code) {
		v, _ := judge(code)
		return v.class
	}
	return classTransient
}

// retryPace bounds the waits between attempts: what time heals is tried soon, what a person has to change slowly.
func retryPace(c class) (low, high time.Duration) {
	if c == classConfiguration {
		return retrySlowMin, retrySlowMax
	}
	return retryMin, retryMax
}
