package txn

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

var (
	// ErrFenced says that another owner has taken the transactional.id, or that the coordinator has forgotten it: what was written since the last commit is not
	// visible, and nobody may go on from memory. Only a Fence makes the id usable again, and only whoever is allowed to be active may do that.
	ErrFenced = errors.New("the transactional.id is another instance's now")
	// ErrForgotten is the kind of ErrFenced in which the coordinator has no such producer: it forgets an id that was idle for a week
	// (transactional.id.expiration.ms). Another owner may have had it since.
	ErrForgotten = errors.New("the transactional.id was forgotten by its coordinator")
	// ErrAborted says that the transaction was aborted without anybody else taking the id: it was open for longer than its time-out. The producer has a new epoch.
	ErrAborted = errors.New("the transaction was aborted after its time-out")
	// ErrClosed ends calls after Close.
	ErrClosed = errors.New("transaction coordinator is closed")

	// errLost says that the transaction is gone, for one of both reasons above.
	errLost = errors.New("the transaction is lost")
)

// Error is a call that failed. errors.Is finds ErrFenced, ErrClosed, the end of a context and the broker's code in it.
type Error struct {
	Op  string // what was being done
	ID  string // the transactional.id
	Err error  // a sarama.KError, or what ended the call

	kind verdict
}

// Error gives one line for logs.
func (e *Error) Error() string {
	return fmt.Sprintf("%s for the transactional.id %s: %v", e.Op, e.ID, e.Err)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() []error {
	switch e.kind {
	case fenced:
		return []error{ErrFenced, e.Err}
	case forgotten:
		return []error{ErrFenced, ErrForgotten, e.Err}
	case lost:
		return []error{errLost, e.Err}
	}
	return []error{e.Err}
}

// Refused tells whether brokers refuse the id or a partition for lack of a right or because of a setting: a person has to act.
func (e *Error) Refused() bool { return e.kind == refused }

// Missing tells whether brokers do not know a partition that should be added: its topic was deleted, or made anew with fewer.
func (e *Error) Missing() bool { return e.kind == missing }

// verdict is what a code means for the owner of an id.
type verdict uint8

const (
	transient verdict = iota // try again
	lost                     // the transaction is gone: fenced or timed out
	fenced                   // the id is another owner's
	forgotten                // nobody has the id
	refused                  // a person has to act
	missing                  // a partition is not there, for now or for good
)

// operationNotAttempted is the code of a partition that was not added since another one was refused.
const operationNotAttempted = sarama.KError(55)

// judge gives the meaning of a code. One that is not named is transient: an outage must not end anything.
func judge(code sarama.KError) verdict {
	switch code {
	case 47, 48: // INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE
		return lost
	case 90: // PRODUCER_FENCED: of InitProducerId it is final, of the other calls it can be the time-out
		return lost
	case 49, 105: // INVALID_PRODUCER_ID_MAPPING, TRANSACTIONAL_ID_NOT_FOUND: expired after long idleness
		return forgotten
	case 29, 31, 33, 34, 35, 42, 50, 53, 54, 58:
		return refused
	case 3: // UNKNOWN_TOPIC_OR_PARTITION
		return missing
	}
	return transient
}
