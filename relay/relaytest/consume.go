package relaytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"golang.org/x/sync/errgroup"
)

// ConsumeOptions choose what [Consume] reads.
type ConsumeOptions struct {
	Brokers []string
	Topics  []string
	// ReadCommitted leaves out the records of aborted transactions and waits for open ones.
	ReadCommitted bool
	// Follow goes on at the end and waits for topics that do not exist yet, until the context ends or the function gives ErrStop. Partitions
	// that a topic gets later are not followed.
	Follow bool
	// Patience is how long a broker or leader may be missing before it is an error. 0 means 30 s. Without meaning for Follow.
	Patience time.Duration
	// Config replaces the default sarama configuration, for TLS and the like.
	Config *sarama.Config
}

// ErrStop is what the function of [Consume] gives to end it without an error.
var ErrStop = errors.New("stop consuming")

const (
	fetchBytes   = 1 << 20
	fetchWait    = 250 * time.Millisecond
	retryWait    = 50 * time.Millisecond
	fetchVersion = 11
	netTimeout   = 5 * time.Second
)

// Consume reads all partitions of the topics from their beginning up to the high watermark that each has at its first fetch, and calls
// receive for each record: partitions at the same time but one call at a time, in the order of offsets within a partition. The message
// is valid during the call. It blocks until all is read, and gives the first error: that of receive, a topic that does not exist, a
// partition without a leader for longer than Patience, or the context's.
//
// It decodes batches itself, since the last offset of a partition may be a transaction marker or an aborted record, which a sarama
// consumer never delivers and so cannot be waited for.
func Consume(ctx context.Context, o ConsumeOptions, receive func(Message) error) error {
	if o.Patience <= 0 {
		o.Patience = 30 * time.Second
	}
	if o.Config == nil {
		o.Config = sarama.NewConfig()
		o.Config.Version = sarama.V2_8_0_0
		o.Config.ClientID = "relaytest"
		o.Config.Metadata.Retry.Max = 0
		o.Config.Metadata.AllowAutoTopicCreation = false
		o.Config.Net.DialTimeout, o.Config.Net.ReadTimeout, o.Config.Net.WriteTimeout = netTimeout, netTimeout, netTimeout
	}
	client, err := newClient(ctx, o)
	if err != nil {
		return fmt.Errorf("connecting to %v: %w", o.Brokers, err)
	}
	defer client.Close()

	var one sync.Mutex
	serial := func(m Message) error {
		one.Lock()
		defer one.Unlock()
		return receive(m)
	}
	// Each goroutine ends at the end of its partition, or with the context, which the first error ends for all.
	group, ctx := errgroup.WithContext(ctx)
	for _, topic := range o.Topics {
		group.Go(func() error {
			partitions, err := partitionsOf(ctx, client, o, topic)
			if err != nil {
				return fmt.Errorf("partitions of topic %s: %w", topic, err)
			}
			for _, p := range partitions {
				group.Go(func() error {
					r := &partitionReader{o: o, client: client, topic: topic, partition: p, receive: serial, size: fetchBytes, aborted: map[int64]bool{}}
					if err := r.run(ctx); err != nil {
						return fmt.Errorf("reading %s[%d] at offset %d: %w", topic, p, r.next, err)
					}
					return nil
				})
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil && !errors.Is(err, ErrStop) {
		return err
	}
	return nil
}

// retry repeats try until it succeeds, its error is final, patience is over or the context ends.
func retry(ctx context.Context, patience time.Duration, try func() (final bool, err error)) error {
	deadline := time.Now().Add(patience)
	for {
		final, err := try()
		if err == nil || final || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryWait):
		}
	}
}

const forever = 1 << 62

func (o ConsumeOptions) patience() time.Duration {
	if o.Follow {
		return forever
	}
	return o.Patience
}

func newClient(ctx context.Context, o ConsumeOptions) (client sarama.Client, err error) {
	err = retry(ctx, o.patience(), func() (bool, error) {
		client, err = sarama.NewClient(o.Brokers, o.Config)
		return false, err
	})
	return client, err
}

func partitionsOf(ctx context.Context, client sarama.Client, o ConsumeOptions, topic string) (partitions []int32, err error) {
	err = retry(ctx, o.patience(), func() (bool, error) {
		if err := client.RefreshMetadata(topic); err != nil {
			return !o.Follow && errors.Is(err, sarama.ErrUnknownTopicOrPartition), err
		}
		partitions, err = client.Partitions(topic)
		return false, err
	})
	return partitions, err
}

// partitionReader reads one partition over a connection of its own.
type partitionReader struct {
	o         ConsumeOptions
	client    sarama.Client
	topic     string
	partition int32
	receive   func(Message) error

	broker  *sarama.Broker
	size    int32          // bytes to ask for, more when a batch does not fit
	next    int64          // offset
	end     int64          // high watermark of the first fetch; known after it
	ended   bool           // end is known
	aborted map[int64]bool // producer ids whose transactional records are to be left out at next
}

func (r *partitionReader) run(ctx context.Context) error {
	// Closing the broker waits for the request under way, at most for fetchWait or the configuration's read timeout.
	defer r.disconnect()
	err := retry(ctx, r.o.patience(), func() (bool, error) {
		var err error
		r.next, err = r.client.GetOffset(r.topic, r.partition, sarama.OffsetOldest)
		return false, err
	})
	if err != nil {
		return err
	}
	for {
		var block *sarama.FetchResponseBlock
		err := retry(ctx, r.o.patience(), func() (final bool, err error) {
			if block, err = r.fetch(); err != nil {
				r.disconnect()
			}
			return errors.Is(err, sarama.ErrOffsetOutOfRange), err
		})
		if err != nil {
			return err
		}
		if !r.ended {
			r.ended, r.end = true, block.HighWaterMarkOffset
		}
		if err := r.deliver(block); err != nil {
			return err
		}
		if !r.o.Follow && r.next >= r.end {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

func (r *partitionReader) disconnect() {
	if r.broker != nil {
		_ = r.broker.Close() // of a read-only connection: nothing to do about an error
		r.broker = nil
	}
}

// fetch asks the partition's leader for what follows next. The answer may be empty.
func (r *partitionReader) fetch() (*sarama.FetchResponseBlock, error) {
	if r.broker == nil {
		if err := r.client.RefreshMetadata(r.topic); err != nil {
			return nil, err
		}
		leader, err := r.client.Leader(r.topic, r.partition)
		if err != nil {
			return nil, err
		}
		r.broker = sarama.NewBroker(leader.Addr())
		if err := r.broker.Open(r.o.Config); err != nil {
			return nil, err
		}
	}
	request := &sarama.FetchRequest{Version: fetchVersion, MaxWaitTime: int32(fetchWait.Milliseconds()), MinBytes: 1, MaxBytes: r.size, SessionEpoch: -1}
	if !r.o.Follow && !r.ended {
		request.MinBytes = 0 // an empty partition answers at once
	}
	if r.o.ReadCommitted {
		request.Isolation = sarama.ReadCommitted
	}
	request.AddBlock(r.topic, r.partition, r.next, r.size, -1)
	response, err := r.broker.Fetch(request)
	if err != nil {
		return nil, err
	}
	block := response.GetBlock(r.topic, r.partition)
	if block == nil {
		return nil, sarama.ErrIncompleteResponse
	}
	if block.Err != sarama.ErrNoError {
		return nil, block.Err
	}
	return block, nil
}

// deliver passes on the records of an answer. A batch of an aborted transaction is left out: the answer lists the first offset of each
// such transaction, and an abort marker ends it (KIP-98).
func (r *partitionReader) deliver(block *sarama.FetchResponseBlock) error {
	before := r.next
	starts := slices.Clone(block.AbortedTransactions)
	slices.SortFunc(starts, func(a, b *sarama.AbortedTransaction) int { return cmp.Compare(a.FirstOffset, b.FirstOffset) })
	for _, set := range block.RecordsSet {
		if set.RecordBatch == nil {
			return errors.New("message set older than Kafka 0.11")
		}
		batch := set.RecordBatch
		if batch.PartialTrailingRecord {
			if r.next == before {
				r.size *= 2
			}
			break
		}
		for len(starts) > 0 && starts[0].FirstOffset <= batch.LastOffset() {
			r.aborted[starts[0].ProducerID] = true
			starts = starts[1:]
		}
		switch {
		case batch.Control:
			if isAbort(batch) {
				delete(r.aborted, batch.ProducerID)
			}
		case batch.IsTransactional && r.o.ReadCommitted && r.aborted[batch.ProducerID]:
		default:
			if err := r.deliverBatch(batch); err != nil {
				return err
			}
		}
		r.next = max(r.next, batch.LastOffset()+1)
	}
	return nil
}

// isAbort reads the key of a marker: version i16, type i16 (0 abort, 1 commit).
func isAbort(batch *sarama.RecordBatch) bool {
	return len(batch.Records) > 0 && len(batch.Records[0].Key) >= 4 && batch.Records[0].Key[3] == 0
}

func (r *partitionReader) deliverBatch(batch *sarama.RecordBatch) error {
	m := Message{Topic: r.topic, Partition: r.partition, Producer: batch.ProducerID}
	if batch.LogAppendTime {
		m.Appended = batch.MaxTimestamp.UnixMilli()
	}
	for _, record := range batch.Records {
		m.Offset = batch.FirstOffset + record.OffsetDelta
		if m.Offset < r.next {
			continue // the first batch may begin before the offset that was asked for
		}
		m.Millis = batch.FirstTimestamp.Add(record.TimestampDelta).UnixMilli()
		m.Key, m.Value, m.Headers = record.Key, record.Value, m.Headers[:0]
		for _, h := range record.Headers {
			m.Headers = append(m.Headers, Header{Key: string(h.Key), Value: h.Value})
		}
		if err := r.receive(m); err != nil {
			return err
		}
	}
	return nil
}
