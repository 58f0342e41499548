package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/relay/relaytest"
)

// thePackets is the limit of reading: it counts the packets of the backlog and does nothing with them.
func thePackets(self string) contestant {
	return contestant{name: "packets", limit: true, silent: true, start: func(ctx context.Context, s *servers, _ string) (*child, error) {
		return startPrinting(ctx, "packets", s.Pids, self, "read", "-how", "count", "-mysql", s.MySQL, "-start", s.Start, "-transactions", strconv.Itoa(s.Workload.transactions()))
	}}
}

// theProducer is the limit of publishing: it sends the records of the warm-up's topic, which it has in memory, in full batches.
func theProducer(self, compression string) contestant {
	return contestant{name: "producer", limit: true, start: func(ctx context.Context, s *servers, topic string) (*child, error) {
		return startChild(ctx, "producer", s.Pids, nil, nil, self, "produce", "-brokers", strings.Join(s.Brokers, ","), "-from", s.records, "-topic", topic+aggregateType, "-compression", compression)
	}}
}

const (
	fullBatch   = 1_000_000 // bytes before compression; a topic takes 1 MiB
	fullRecords = 8192
)

// produceCommand is the child that sends prepared records: the structs are made before, encoding and compression belong to sending. It is not
// idempotent, which costs the broker a little less than the relay does.
func produceCommand(ctx context.Context, args []string, _ io.Writer) error {
	flags := flag.NewFlagSet("produce", flag.ContinueOnError)
	brokers := flags.String("brokers", "", "addresses of Kafka")
	from := flags.String("from", "", "topic with the records")
	topic := flags.String("topic", "", "topic to send them to, with as many partitions")
	compression := flags.String("compression", "none", "compression of batches")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var codec sarama.CompressionCodec
	if err := codec.UnmarshalText([]byte(*compression)); err != nil {
		return err
	}
	byPartition := map[int32][]*sarama.RecordBatch{}
	err := relaytest.Consume(ctx, relaytest.ConsumeOptions{Brokers: strings.Split(*brokers, ","), Topics: []string{*from}}, func(m relaytest.Message) error {
		byPartition[m.Partition] = addRecord(byPartition[m.Partition], m, codec)
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the records: %w", err)
	}
	return sendBatches(strings.Split(*brokers, ",")[0], *topic, byPartition)
}

// addRecord appends a copy of m to the last batch, or to a new one if that is full.
func addRecord(batches []*sarama.RecordBatch, m relaytest.Message, codec sarama.CompressionCodec) []*sarama.RecordBatch {
	r := &sarama.Record{Key: slices.Clone(m.Key), Value: slices.Clone(m.Value)}
	size := len(m.Key) + len(m.Value) + 20
	for _, h := range m.Headers {
		r.Headers = append(r.Headers, &sarama.RecordHeader{Key: []byte(h.Key), Value: slices.Clone(h.Value)})
		size += len(h.Key) + len(h.Value) + 4
	}
	var last *sarama.RecordBatch
	if len(batches) > 0 {
		last = batches[len(batches)-1]
	}
	// Nothing reads PartitionLeaderEpoch of a request: it holds the size until then.
	if last == nil || len(last.Records) == fullRecords || int(last.PartitionLeaderEpoch)+size > fullBatch {
		at := time.UnixMilli(m.Millis)
		last = &sarama.RecordBatch{Version: 2, Codec: codec, CompressionLevel: sarama.CompressionLevelDefault, FirstTimestamp: at, MaxTimestamp: at, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1}
		batches = append(batches, last)
	}
	last.PartitionLeaderEpoch += int32(size)
	r.OffsetDelta = int64(len(last.Records))
	r.TimestampDelta = time.Duration(m.Millis-last.FirstTimestamp.UnixMilli()) * time.Millisecond
	last.LastOffsetDelta = int32(len(last.Records))
	last.Records = append(last.Records, r)
	return batches
}

// sendBatches sends a batch of each partition in turn, one in a request, with a few requests under way.
func sendBatches(address, topic string, byPartition map[int32][]*sarama.RecordBatch) error {
	config := kafkaConfig()
	config.Net.MaxOpenRequests = 3 // as the relay
	config.Net.ReadTimeout, config.Net.WriteTimeout = time.Minute, time.Minute
	broker := sarama.NewBroker(address)
	if err := broker.Open(config); err != nil {
		return err
	}
	defer broker.Close()
	var left int
	for _, b := range byPartition {
		left += len(b)
	}
	answers := make(chan error, left)
	for n, sent := 0, 0; sent < left; n++ {
		for partition, batches := range byPartition {
			if n >= len(batches) {
				continue
			}
			sent++
			batches[n].PartitionLeaderEpoch = 0
			r := &sarama.ProduceRequest{RequiredAcks: sarama.WaitForAll, Timeout: 30_000, Version: 8}
			r.AddBatch(topic, partition, batches[n])
			err := broker.AsyncProduce(r, func(answer *sarama.ProduceResponse, err error) {
				if err == nil {
					if b := answer.GetBlock(topic, partition); b == nil || b.Err != sarama.ErrNoError {
						err = fmt.Errorf("partition %d: %+v", partition, b)
					}
				}
				answers <- err
			})
			if err != nil {
				return err
			}
		}
	}
	for range left {
		if err := <-answers; err != nil {
			return err
		}
	}
	return nil
}
