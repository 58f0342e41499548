package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/kafkastore"
	"outbox-relay/relay"
	"outbox-relay/relay/kafka/txn"
	"outbox-relay/router"
)

// transactionalSink speaks the relay's words for a publisher in transactions.
type transactionalSink struct {
	kafkaSink

	name  string
	topic string // of checkpoints
}

var _ relay.Transactional = transactionalSink{}

func (k transactionalSink) Run(ctx context.Context) error { return endOf(k.kafkaSink.Run(ctx)) }

func (k transactionalSink) Publish(ctx context.Context, rec *router.Record, seq uint64) error {
	return endOf(k.kafkaSink.Publish(ctx, rec, seq))
}

func (k transactionalSink) Refuse(ctx context.Context, rec *router.Record, seq uint64, p *relay.Poison) error {
	return endOf(k.kafkaSink.Refuse(ctx, rec, seq, p))
}

func (k transactionalSink) Cut(c *checkpoint.Checkpoint) error {
	value, err := kafkastore.Value(c)
	if err != nil {
		return err
	}
	return k.Publisher.Cut(&router.Record{Topic: k.topic, Key: kafkastore.Key(k.name), Value: value, TimestampMillis: time.Now().UnixMilli(), Partition: 0})
}

func (k transactionalSink) Commit(ctx context.Context) error { return endOf(k.Publisher.Commit(ctx)) }

// endOf names the end of a transaction in the relay's words.
func endOf(err error) error {
	switch {
	case errors.Is(err, txn.ErrForgotten): // whoever has the lock on MySQL takes the id anew, and finds out whether another instance had it meanwhile
		return fmt.Errorf("%w: %w", relay.ErrSinkAborted, err)
	case errors.Is(err, txn.ErrFenced):
		return fmt.Errorf("%w: %w", relay.ErrSinkFenced, err)
	case errors.Is(err, txn.ErrAborted):
		return fmt.Errorf("%w: %w", relay.ErrSinkAborted, err)
	}
	return err
}
