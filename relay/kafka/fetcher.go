package kafka

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

const (
	fetchBytes = 1 << 20
	fetchWait  = 500 * time.Millisecond
)

// fetcher reads a partition from an offset on, committed messages only. It knows where it is also behind what it does not give: marks of transactions, aborted
// messages and those that were compacted away; so the end of the log is recognised, which sarama's consumer does not tell.
type fetcher struct {
	client    sarama.Client
	topic     string
	partition int32
	next      int64 // offset of the next message
}

// fetch gives messages from next on and moves it. It waits a moment for some. stable is the offset before which all transactions have ended.
func (f *fetcher) fetch() (messages []*sarama.ConsumerMessage, stable int64, err error) {
	broker, err := f.client.Leader(f.topic, f.partition)
	if err != nil {
		return nil, 0, err
	}
	// Version 10, of Kafka 2.1, is the first that gives batches compressed by zstd (KIP-110).
	req := &sarama.FetchRequest{
		Version: 10, MaxWaitTime: int32(fetchWait / time.Millisecond), MinBytes: 1, MaxBytes: fetchBytes, Isolation: sarama.ReadCommitted, SessionEpoch: -1,
	}
	req.AddBlock(f.topic, f.partition, f.next, fetchBytes, -1)
	resp, err := broker.Fetch(req)
	if err != nil {
		_ = broker.Close()
		return nil, 0, err
	}
	block := resp.GetBlock(f.topic, f.partition)
	if block == nil {
		return nil, 0, errNoAnswer
	}
	if block.Err != sarama.ErrNoError {
		_ = f.client.RefreshMetadata(f.topic) // the leader may have moved
		return nil, 0, block.Err
	}
	messages, err = f.read(block)
	return messages, block.LastStableOffset, err
}

func (f *fetcher) read(block *sarama.FetchResponseBlock) (messages []*sarama.ConsumerMessage, err error) {
	aborted := slices.Clone(block.AbortedTransactions)
	open := map[int64]bool{} // producers in the midst of an aborted transaction
	for _, set := range block.RecordsSet {
		b := set.RecordBatch
		if b == nil {
			return nil, fmt.Errorf("messages of a format before Kafka 0.11 at offset %d", f.next)
		}
		last := b.LastOffset()
		aborted = slices.DeleteFunc(aborted, func(a *sarama.AbortedTransaction) bool {
			if a.FirstOffset > last {
				return false
			}
			open[a.ProducerID] = true
			return true
		})
		switch {
		case b.Control:
			if aborts(b) {
				delete(open, b.ProducerID)
			}
		case b.IsTransactional && open[b.ProducerID]:
		default:
			for _, r := range b.Records {
				if offset := b.FirstOffset + r.OffsetDelta; offset >= f.next {
					messages = append(messages, &sarama.ConsumerMessage{
						Topic: f.topic, Partition: f.partition, Offset: offset, Key: r.Key, Value: r.Value, Headers: r.Headers, Timestamp: timeOf(b, r),
					})
				}
			}
		}
		f.next = max(f.next, last+1)
	}
	return messages, nil
}

// aborts tells whether a control batch ends a transaction by an abort: its key is a version and a type, 0 for abort.
func aborts(b *sarama.RecordBatch) bool {
	return len(b.Records) > 0 && len(b.Records[0].Key) >= 4 && binary.BigEndian.Uint16(b.Records[0].Key[2:]) == 0
}

func timeOf(b *sarama.RecordBatch, r *sarama.Record) time.Time {
	if b.LogAppendTime {
		return b.MaxTimestamp
	}
	return b.FirstTimestamp.Add(r.TimestampDelta)
}
