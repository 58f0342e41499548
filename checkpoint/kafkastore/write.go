package kafkastore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/relay/kafka/txn"
)

// writer is the state between two saves.
type writer struct {
	place    place // of the partition; without an address it has to be looked for
	producer txn.Producer
	sequence int32
	// doubt is true while a transaction may be open, or its end unknown: then the next one begins with an abort, whose new epoch also keeps a late batch out.
	doubt bool
}

// take makes the transactional.id this instance's.
func (s *Store) take(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	p, err := s.id.Fence(ctx)
	if err != nil {
		return err
	}
	s.begin(p)
	return nil
}

// begin goes on with a new epoch, in which sequences begin at 0.
func (s *Store) begin(p txn.Producer) { s.producer, s.sequence, s.doubt = p, 0, false }

// write commits one record with a value; nil is a tombstone. What a second attempt heals gets one: a connection that idled for too long, a leader or a coordinator
// that moved.
func (s *Store) write(ctx context.Context, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	err := s.transaction(ctx, value)
	if err == nil || ctx.Err() != nil || !repeatable(err) {
		return err
	}
	return s.transaction(ctx, value)
}

func repeatable(err error) bool {
	var code sarama.KError
	var refused *txn.Error
	var u *unfit
	switch {
	case errors.Is(err, txn.ErrFenced), errors.As(err, &u), errors.As(err, &refused) && refused.Refused():
		return false
	case errors.As(err, &code):
		return passes(code) || errors.Is(err, txn.ErrAborted)
	}
	return true
}

func (s *Store) transaction(ctx context.Context, value []byte) error {
	if s.doubt {
		p, err := s.id.Abort(ctx)
		if err != nil {
			return err
		}
		s.begin(p)
	}
	if s.place.addr == "" {
		p, err := s.cluster.ensure(ctx)
		if err != nil {
			return err
		}
		s.place = p
	}
	s.doubt = true
	if err := s.id.Add(ctx, map[string][]int32{s.o.Topic: {0}}); err != nil {
		s.place = place{} // the topic may be gone, and is made anew then
		return fmt.Errorf("beginning a transaction: %w", err)
	}
	if err := s.produce(ctx, value); err != nil {
		s.place = place{}
		return err
	}
	if err := s.id.Commit(ctx); err != nil {
		return err
	}
	s.doubt = false
	s.sequence++ // one per save: 2^31 of them take decades
	if p := s.id.Producer(); p != s.producer {
		s.begin(p)
	}
	return nil
}

// replicaTimeout is how long the leader may wait for its followers.
const replicaTimeout = 5 * time.Second

// produce appends the record. A refusal of the epoch means that another instance has the id, or that the transaction ran into its time-out.
func (s *Store) produce(ctx context.Context, value []byte) error {
	now := time.Now()
	batch := &sarama.RecordBatch{
		Version: 2, Codec: sarama.CompressionLZ4, CompressionLevel: sarama.CompressionLevelDefault, FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: s.producer.ID, ProducerEpoch: s.producer.Epoch, FirstSequence: s.sequence, IsTransactional: true,
		Records: []*sarama.Record{{Key: Key(s.o.Name), Value: value}},
	}
	req := &sarama.ProduceRequest{TransactionalID: &s.o.Name, RequiredAcks: sarama.WaitForAll, Timeout: int32(replicaTimeout.Milliseconds()), Version: 8}
	req.AddBatch(s.o.Topic, 0, batch)
	var resp *sarama.ProduceResponse
	err := s.cluster.atLeader(ctx, s.place, func(b *sarama.Broker) (err error) { resp, err = b.Produce(req); return err })
	if err != nil {
		return fmt.Errorf("sending the record: %w", err)
	}
	b := resp.GetBlock(s.o.Topic, 0)
	switch {
	case b == nil:
		return sarama.ErrIncompleteResponse
	case b.Err == sarama.ErrInvalidProducerEpoch || b.Err == sarama.ErrProducerFenced || b.Err == sarama.ErrInvalidTxnState:
		p, err := s.id.Abort(ctx)
		if err != nil {
			return err
		}
		s.begin(p)
		return fmt.Errorf("sending the record: %w (%w)", txn.ErrAborted, b.Err)
	case b.Err != sarama.ErrNoError:
		return fmt.Errorf("sending the record: %w", b.Err)
	}
	return nil
}
