package kafkastore

import (
	"context"
	"errors"
	"fmt"

	"github.com/IBM/sarama"

	"outbox-relay/checkpoint"
	"outbox-relay/relay/kafka/txn"
)

// failed makes the error for the caller, with what an operator can do.
func failed(ctx context.Context, op string, o *Options, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var fault *checkpoint.Error // of Marshal, Unmarshal and the store itself
	if errors.As(err, &fault) {
		fault.Op, fault.Path = op, o.path()
		return fault
	}
	e := &checkpoint.Error{Op: op, Path: o.path(), Err: err}
	var u *unfit
	if errors.As(err, &u) {
		e.Err, e.Detail, e.Hint = checkpoint.ErrUnfit, u.detail, u.hint
		return e
	}
	switch {
	case errors.Is(err, errMissing):
		e.Err = checkpoint.ErrNotFound
		return e
	case errors.Is(err, txn.ErrFenced):
		e.Err, e.Detail = checkpoint.ErrFenced, err.Error()
		return e
	}
	var code sarama.KError
	e.Passing = true // rights and passwords are given while the relay waits, as they are for the topics of records
	if !errors.As(err, &code) {
		return e
	}
	allow := AllowCommands(o.brokers(), o.Conn.SASL.User, o.Topic, o.Name)
	switch code {
	case sarama.ErrTopicAuthorizationFailed:
		e.Hint = "the user may not use the topic: run " + allow[0]
	case sarama.ErrTransactionalIDAuthorizationFailed:
		e.Hint = fmt.Sprintf("the user may not use the transactional.id %s: run %s", o.Name, allow[1])
	case sarama.ErrMessageSizeTooLarge, sarama.ErrMessageSetSizeTooLarge:
		e.Hint = fmt.Sprintf("the checkpoint is larger than the topic takes: raise its max.message.bytes, as by kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config max.message.bytes=%d", o.brokers(), o.Topic, 8<<20)
	case sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend:
		e.Hint = "start the brokers that hold its replicas, or lower its min.insync.replicas"
	case sarama.ErrInvalidTransactionTimeout:
		e.Hint = "lower kafka.transaction_timeout, or raise the brokers' transaction.max.timeout.ms"
	}
	return e
}
