package main

import (
	"errors"
	"testing"

	"github.com/IBM/sarama"

	"outbox-relay/relay"
	"outbox-relay/relay/kafka/txn"
)

// Only an id that another instance has is a takeover. One that Kafka has forgotten is taken anew by whoever is active, also under --no-standby.
func TestEndOfATransaction(t *testing.T) {
	t.Parallel()
	for cause, want := range map[error]error{
		txn.ErrFenced:  relay.ErrSinkFenced,
		txn.ErrAborted: relay.ErrSinkAborted,
		errors.Join(txn.ErrFenced, txn.ErrForgotten): relay.ErrSinkAborted,
		sarama.ErrClosedClient:                       sarama.ErrClosedClient,
	} {
		err := endOf(cause)
		if !errors.Is(err, want) || errors.Is(err, relay.ErrSinkFenced) && errors.Is(err, relay.ErrSinkAborted) {
			t.Errorf("%v becomes %v, want %v", cause, err, want)
		}
	}
}
