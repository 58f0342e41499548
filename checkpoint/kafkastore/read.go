package kafkastore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/checkpoint"
)

// Read reads the last committed checkpoint and takes nothing away from anybody: it may run beside the relay, whose save under way it does not see. It is
// the last one there is only after the transactional.id was taken (InitProducerId has returned): then every transaction of the
// relay has an end in the partition. It blocks for the network. Its errors are those of checkpoint.Store.Load.
func Read(ctx context.Context, o Options) (*checkpoint.Checkpoint, error) {
	const op = "loading checkpoint"
	if err := o.complete(); err != nil {
		return nil, err
	}
	c := &cluster{o: &o, life: context.WithoutCancel(ctx)}
	defer c.close()
	p, err := c.find(ctx, false)
	if err != nil {
		return nil, failed(ctx, op, &o, err)
	}
	return c.last(ctx, op, p)
}

// EnsureTopic checks the topic and makes a missing one. It blocks for the network. Its error is a *checkpoint.Error, or that of ctx.
func EnsureTopic(ctx context.Context, o Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	c := &cluster{o: &o, life: context.WithoutCancel(ctx)}
	defer c.close()
	if _, err := c.ensure(ctx); err != nil {
		return failed(ctx, "opening checkpoint", &o, err)
	}
	return nil
}

// Inspection is what Inspect found.
type Inspection struct {
	// Exists tells whether the topic is there.
	Exists bool
	// Topic is why the topic cannot keep the checkpoint, or cannot be made where it is missing; nil if it can.
	Topic error
	// ID is why the user may not use the relay's name as transactional.id, as far as brokers tell without giving it: the right to describe it.
	ID error
}

// Inspect looks whether a store could work, and changes nothing: it makes no topic and fences nobody. It blocks for the network. The errors in the result
// are *checkpoint.Error, its own is that of ctx.
func Inspect(ctx context.Context, o Options) (*Inspection, error) {
	const op = "inspecting checkpoint"
	if err := o.complete(); err != nil {
		return nil, err
	}
	c := &cluster{o: &o, life: context.WithoutCancel(ctx)}
	defer c.close()
	in := &Inspection{Exists: true}
	p, err := c.find(ctx, false)
	switch {
	case errors.Is(err, errMissing):
		in.Exists = false
		err = c.create(ctx, true)
	case err == nil && p.operations != untold && p.operations&(readOperation|writeOperation) != readOperation|writeOperation:
		err = sarama.ErrTopicAuthorizationFailed
	case err == nil:
		err = c.check(ctx)
	}
	if err != nil {
		in.Topic = failed(ctx, op, &o, err)
	}
	if err := c.findCoordinator(ctx); err != nil {
		in.ID = failed(ctx, op, &o, err)
	}
	return in, ctx.Err()
}

// findCoordinator asks who coordinates the transactional.id, which needs a right.
func (c *cluster) findCoordinator(ctx context.Context) error {
	deadline := time.Now().Add(c.o.Timeout)
	for attempt := 0; ; attempt++ {
		var resp *sarama.FindCoordinatorResponse
		err := c.call(ctx, func(b *sarama.Broker) (err error) {
			resp, err = b.FindCoordinator(&sarama.FindCoordinatorRequest{Version: 1, CoordinatorKey: c.o.Name, CoordinatorType: sarama.CoordinatorTransaction})
			return err
		})
		switch {
		case err == nil && resp.Err == sarama.ErrNoError:
			return nil
		case err == nil && resp.Err == sarama.ErrTransactionalIDAuthorizationFailed:
			return resp.Err
		case err == nil:
			err = resp.Err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("asking for the transaction coordinator: %w", err)
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// ensure gives the place of the partition of a topic that can keep a checkpoint.
func (c *cluster) ensure(ctx context.Context) (place, error) {
	p, err := c.find(ctx, true)
	if err != nil {
		return place{}, err
	}
	return p, c.check(ctx)
}

// last reads the partition to its end and decodes what is the last there.
func (c *cluster) last(ctx context.Context, op string, p place) (*checkpoint.Checkpoint, error) {
	began := time.Now()
	s := newScan(c.o.Name)
	if err := c.read(ctx, p, s); err != nil {
		return nil, failed(ctx, op, c.o, err)
	}
	c.o.Logger.Info("checkpoint topic read", "topic", c.o.Topic, "seconds", time.Since(began).Seconds(), "records", s.records, "aborted", s.aborted, "undecided", len(s.open), "offset", s.offset)
	if s.value == nil { // none yet, or removed
		return nil, &checkpoint.Error{Op: op, Path: c.o.path(), Err: checkpoint.ErrNotFound}
	}
	found, err := checkpoint.Unmarshal(s.value, c.o.Name)
	if err != nil {
		return nil, failed(ctx, op, c.o, err)
	}
	return found, nil
}

// read feeds the batches of the partition up to its end of now to a scan.
func (c *cluster) read(ctx context.Context, p place, s *scan) error {
	var end int64
	err := c.retry(ctx, &p, func() (err error) { end, err = c.offset(ctx, p, sarama.OffsetNewest); return err })
	f := fetching{size: fetchBytes}
	for err == nil && s.next < end && f.empty < emptyEnough {
		err = c.retry(ctx, &p, func() error { return c.fetch(ctx, p, s, &f) })
	}
	return err
}

// retry puts a question to the leader again until it is answered, for the timeout at most. The leader may be another one by then.
func (c *cluster) retry(ctx context.Context, p *place, ask func() error) error {
	deadline := time.Now().Add(c.o.Timeout)
	for attempt := 0; ; attempt++ {
		err := ask()
		if err == nil || ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		var code sarama.KError
		if errors.As(err, &code) && !passes(code) || time.Now().After(deadline) {
			return err
		}
		if err := pause(ctx, attempt); err != nil {
			return err
		}
		if *p, err = c.find(ctx, false); err != nil {
			return err
		}
	}
}

// offset asks where the partition begins (sarama.OffsetOldest) or ends (sarama.OffsetNewest). A leader of late does not know how much is committed until its
// followers have told, and says so only to this question (KIP-207); the high watermark in the answer to a fetch may lie before what others have read.
func (c *cluster) offset(ctx context.Context, p place, which int64) (int64, error) {
	req := sarama.NewOffsetRequest(c.o.Conn.Version)
	req.AddBlock(c.o.Topic, 0, which, 1)
	var resp *sarama.OffsetResponse
	err := c.atLeader(ctx, p, func(b *sarama.Broker) (err error) { resp, err = b.GetAvailableOffsets(req); return err })
	if err != nil {
		return -1, err
	}
	b := resp.GetBlock(c.o.Topic, 0)
	switch {
	case b == nil:
		return -1, sarama.ErrIncompleteResponse
	case b.Err != sarama.ErrNoError:
		return -1, b.Err
	case b.Offset < 0:
		return -1, fmt.Errorf("the partition is said to begin or end at %d", b.Offset)
	}
	return b.Offset, nil
}

// emptyEnough is how many answers without a batch in a row mean that nothing is left below the end: compaction has taken it.
const emptyEnough = 3

// fetching is the state from one fetch to the next.
type fetching struct {
	size  int32 // to ask for
	empty int   // answers without a batch in a row
}

// fetch gives the batches of one answer to the scan.
func (c *cluster) fetch(ctx context.Context, p place, s *scan, f *fetching) error {
	req := &sarama.FetchRequest{Version: 11, MaxWaitTime: 100, MinBytes: 1, MaxBytes: f.size, Isolation: sarama.ReadUncommitted, SessionEpoch: -1}
	req.AddBlock(c.o.Topic, 0, s.next, f.size, p.epoch)
	var resp *sarama.FetchResponse
	err := c.atLeader(ctx, p, func(b *sarama.Broker) (err error) { resp, err = b.Fetch(req); return err })
	if err != nil {
		return err
	}
	b := resp.GetBlock(c.o.Topic, 0)
	switch {
	case b == nil:
		return sarama.ErrIncompleteResponse
	case b.Err == sarama.ErrOffsetOutOfRange: // DeleteRecords
		oldest, err := c.offset(ctx, p, sarama.OffsetOldest)
		if err != nil || oldest <= s.next {
			return errors.Join(b.Err, err)
		}
		s.next = oldest
		return nil
	case b.Err != sarama.ErrNoError:
		return b.Err
	}
	before := s.next
	for _, set := range b.RecordsSet {
		if set.MsgSet != nil {
			return errors.New("the topic holds messages of the format before Kafka 0.11")
		}
		if set.RecordBatch == nil || set.RecordBatch.PartialTrailingRecord {
			break
		}
		s.add(set.RecordBatch)
	}
	switch {
	case s.next > before:
		f.size, f.empty = fetchBytes, 0
	case b.Partial:
		f.size = min(2*f.size, sarama.MaxResponseSize/2)
	case resp.ThrottleTime == 0: // else a quota is used up, and the answer comes without data
		f.empty++
	}
	return nil
}
