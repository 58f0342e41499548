package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/router"
)

// Letters reads a topic of dead letters and remembers in a consumer group how far they were published again. Make one with [OpenLetters]. It is
// used by one goroutine.
type Letters struct {
	topic  string
	client sarama.Client
	groups sarama.OffsetManager
	parts  map[int32]sarama.PartitionOffsetManager
}

// Letter is a message of the topic. It belongs to the receiver.
type Letter struct {
	Partition int32
	Offset    int64
	Time      time.Time
	// Done is set when it lies before the remembered place.
	Done bool
	// Record has key, value, headers and timestamp; its Topic is that of the letters.
	Record *router.Record
}

// lettersIdle is how long a broker may take to send what it says is there.
const lettersIdle = 15 * time.Second

// OpenLetters connects with the connection settings of o; callbacks are not needed. It blocks until a broker answers, ctx ends or the attempts of the
// client are used up.
func OpenLetters(ctx context.Context, o Options, topic, group string) (*Letters, error) {
	o.Acked, o.Poisoned = func([]uint64) {}, func(*PoisonError) {}
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	conf, err := s.conn.Sarama(ctx, controlRead)
	if err != nil {
		return nil, err
	}
	conf.Consumer.Offsets.AutoCommit.Enable = false
	conf.Consumer.Offsets.Initial = sarama.OffsetOldest
	conf.Consumer.Return.Errors = true
	conf.Metadata.AllowAutoTopicCreation = false
	l := &Letters{topic: topic, parts: map[int32]sarama.PartitionOffsetManager{}}
	if l.client, err = sarama.NewClient(s.Brokers, conf); err != nil {
		return nil, s.conn.Explain(nil, strings.Join(s.Brokers, ","), err)
	}
	if l.groups, err = sarama.NewOffsetManagerFromClient(group, l.client); err != nil {
		return nil, errors.Join(err, l.client.Close())
	}
	return l, nil
}

// Close gives up the connections. What Done was not told of is not remembered.
func (l *Letters) Close() error {
	for _, p := range l.parts {
		p.AsyncClose()
	}
	return errors.Join(l.groups.Close(), l.client.Close())
}

// Read gives the letters that are there now, partition by partition and in their order within each, to receive, until it returns an error. Unless all is
// set it begins behind those that are done. It blocks for the network.
func (l *Letters) Read(ctx context.Context, all bool, receive func(Letter) error) error {
	partitions, err := l.client.Partitions(l.topic)
	if err != nil {
		return fmt.Errorf("topic %s: %w", l.topic, err)
	}
	consumer, err := sarama.NewConsumerFromClient(l.client)
	if err != nil {
		return err
	}
	defer consumer.Close()
	for _, p := range partitions {
		if err := l.readPartition(ctx, consumer, p, all, receive); err != nil {
			return err
		}
	}
	return nil
}

func (l *Letters) readPartition(ctx context.Context, consumer sarama.Consumer, partition int32, all bool, receive func(Letter) error) error {
	fail := func(what string, err error) error {
		return fmt.Errorf("%s of topic %s, partition %d: %w", what, l.topic, partition, err)
	}
	oldest, err := l.client.GetOffset(l.topic, partition, sarama.OffsetOldest)
	if err != nil {
		return fail("asking for the offsets", err)
	}
	end, err := l.client.GetOffset(l.topic, partition, sarama.OffsetNewest)
	if err != nil {
		return fail("asking for the offsets", err)
	}
	place, err := l.manage(partition)
	if err != nil {
		return fail("asking how far the letters were published again", err)
	}
	done, _ := place.NextOffset() // negative when nothing was remembered
	from := max(oldest, done)
	if all {
		from = oldest
	}
	if from >= end {
		return nil
	}
	messages, err := consumer.ConsumePartition(l.topic, partition, from)
	if err != nil {
		return fail("reading", err)
	}
	defer messages.AsyncClose()
	idle := time.NewTimer(lettersIdle)
	defer idle.Stop()
	for {
		select {
		case m := <-messages.Messages():
			if err := receive(Letter{Partition: partition, Offset: m.Offset, Time: m.Timestamp, Done: m.Offset < done, Record: recordOf(m)}); err != nil {
				return err
			}
			if m.Offset+1 >= end {
				return nil
			}
			idle.Reset(lettersIdle)
		case err := <-messages.Errors():
			return fail("reading", err.Err)
		case <-idle.C:
			return fail("reading", errors.New("the broker does not send what it says is there"))
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *Letters) manage(partition int32) (sarama.PartitionOffsetManager, error) {
	if p := l.parts[partition]; p != nil {
		return p, nil
	}
	p, err := l.groups.ManagePartition(l.topic, partition)
	if err == nil {
		l.parts[partition] = p
	}
	return p, err
}

// Done remembers that the letters of a partition before offset are published again. It returns once Kafka has stored that.
func (l *Letters) Done(partition int32, offset int64) error {
	p, err := l.manage(partition)
	if err != nil {
		return err
	}
	p.MarkOffset(offset, "")
	l.groups.Commit()
	select {
	case err := <-p.Errors():
		return fmt.Errorf("storing the place in topic %s, partition %d: %w", l.topic, partition, err.Err)
	default:
		return nil
	}
}

func recordOf(m *sarama.ConsumerMessage) *router.Record {
	rec := &router.Record{Topic: m.Topic, Key: m.Key, Value: m.Value, TimestampMillis: max(m.Timestamp.UnixMilli(), 0), Partition: router.AnyPartition, Rule: router.NoRule}
	for _, h := range m.Headers {
		rec.Headers = append(rec.Headers, router.Header{Key: string(h.Key), Value: h.Value, Null: h.Value == nil})
		if string(h.Key) == "id" {
			rec.ID = h.Value
		}
	}
	return rec
}
