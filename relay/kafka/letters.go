package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/relay/kafka/conn"
	"outbox-relay/router"
)

// Letters reads a topic of dead letters and remembers in a consumer group how far they were published again. Make one with [OpenLetters]. It is
// used by one goroutine.
type Letters struct {
	ctx     context.Context // of OpenLetters: the connections end with it
	topic   string
	group   string
	version sarama.KafkaVersion
	client  sarama.Client
	known   bool            // done holds what Kafka remembers
	done    map[int32]int64 // by partition: offset of the first letter that was not published again
	read    map[int32]int64 // by partition: offset of the first message that was not read
	closing bool
}

// Place is how far the letters of a partition were published again.
type Place struct {
	// Offset is that of the first letter that was not, negative where none was.
	Offset int64
	// Closing is set while whoever publishes them is at their end and wants no more for a moment: see [Letters.Closing].
	Closing bool
}

// closingMark is the metadata of a committed offset with Place.Closing.
const closingMark = "closing"

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

const (
	// lettersIdle is how long a broker may take to send what it says is there.
	lettersIdle = 15 * time.Second
	// groupLimit is how long the group is waited for while it moves to another broker.
	groupLimit = 15 * time.Second
)

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
	conf.Metadata.AllowAutoTopicCreation = false
	conf.Net.Proxy.Enable = true
	conf.Net.Proxy.Dialer = conn.Dialer(ctx, &s.conn)
	l := &Letters{ctx: ctx, topic: topic, group: group, version: s.version, done: map[int32]int64{}, read: map[int32]int64{}}
	if l.client, err = sarama.NewClient(s.Brokers, conf); err != nil {
		return nil, s.conn.ExplainClient(conf, strings.Join(s.Brokers, ","), err)
	}
	return l, nil
}

// Close gives up the connections. What Done was not told of is not remembered.
func (l *Letters) Close() error { return l.client.Close() }

// Reading says which letters [Letters.Read] gives.
type Reading struct {
	// All begins with the first one that is kept; otherwise it begins behind those that are done.
	All bool
	// Whole leaves nothing out that is there: a transaction that is open, of whomever, hides what lies behind it, and its end is waited for. It is an error that
	// it does not come in some seconds. Otherwise what lies behind it is not there yet.
	Whole bool
}

// Read gives the letters that are there now, partition by partition and in their order within each, to receive, until it returns an error. It blocks for the
// network.
func (l *Letters) Read(ctx context.Context, what Reading, receive func(Letter) error) error {
	partitions, err := l.client.Partitions(l.topic)
	if err != nil {
		return fmt.Errorf("topic %s: %w", l.topic, err)
	}
	if !l.known {
		places, err := l.Places(ctx)
		if err != nil {
			return err
		}
		for p, place := range places {
			l.done[p] = place.Offset
		}
		l.known = true
	}
	for _, p := range partitions {
		if err := l.readPartition(ctx, p, what, receive); err != nil {
			return err
		}
	}
	return nil
}

func (l *Letters) readPartition(ctx context.Context, partition int32, reading Reading, receive func(Letter) error) error {
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
	done := l.done[partition]
	from := max(oldest, done)
	if reading.All {
		from = oldest
	}
	log := fetcher{client: l.client, topic: l.topic, partition: partition, next: from}
	deadline := time.Now().Add(lettersIdle)
	for log.next < end {
		if err := ctx.Err(); err != nil {
			return err
		}
		before := log.next
		messages, stable, err := log.fetch()
		if err != nil {
			return fail("reading", err)
		}
		if !reading.Whole {
			end = min(end, stable)
		}
		for _, m := range messages {
			if err := receive(Letter{Partition: partition, Offset: m.Offset, Time: m.Timestamp, Done: m.Offset < done, Record: recordOf(m)}); err != nil {
				return err
			}
		}
		if log.next > before {
			deadline = time.Now().Add(lettersIdle)
		} else if time.Now().After(deadline) {
			why := "the broker does not send what it says is there"
			if log.next >= stable {
				why = "a transaction that is open hides what lies behind it"
			}
			return fail("reading", errors.New(why))
		}
	}
	l.read[partition] = log.next
	return nil
}

// Done remembers that the letters of a partition before offset are published again. It returns once Kafka has stored that.
func (l *Letters) Done(partition int32, offset int64) error {
	if err := l.commit(partition, offset); err != nil {
		return err
	}
	l.done[partition] = offset
	return nil
}

// Closing says whether the letters are about to be published again up to the last; all that were read are by now. With true the relay keeps records of parked keys back, for some seconds
// after each call of Done at most, so that an end is reached: see [Place]. It returns once Kafka has stored that.
func (l *Letters) Closing(closing bool) error {
	if l.closing == closing {
		return nil
	}
	l.closing = closing
	var faults []error
	for partition, at := range l.read { // also behind letters that are deleted by now
		if at == 0 {
			continue
		}
		faults = append(faults, l.commit(partition, at))
	}
	return errors.Join(faults...)
}

func (l *Letters) mark() string {
	if l.closing {
		return closingMark
	}
	return ""
}

// commit stores the place of a partition.
func (l *Letters) commit(partition int32, offset int64) error {
	err := l.ask(l.ctx, func(b *sarama.Broker) error {
		req := &sarama.OffsetCommitRequest{Version: 6, ConsumerGroup: l.group, ConsumerGroupGeneration: sarama.GroupGenerationUndefined}
		req.AddBlockWithLeaderEpoch(l.topic, partition, offset, -1, 0, l.mark())
		resp, err := b.CommitOffset(req)
		if err != nil {
			return err
		}
		code, ok := resp.Errors[l.topic][partition]
		switch {
		case !ok:
			return errNoAnswer
		case code != sarama.ErrNoError:
			return code
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("storing the place in topic %s, partition %d: %w", l.topic, partition, err)
	}
	return nil
}

// Places tells how far the letters of each partition were published again, by whomever. It blocks for the network.
func (l *Letters) Places(ctx context.Context) (map[int32]Place, error) {
	partitions, err := l.client.Partitions(l.topic)
	if err != nil {
		return nil, fmt.Errorf("topic %s: %w", l.topic, err)
	}
	places := map[int32]Place{}
	err = l.ask(ctx, func(b *sarama.Broker) error {
		// Version 7 and below name one group.
		version := l.version
		if version.IsAtLeast(sarama.V2_5_0_0) {
			version = sarama.V2_5_0_0
		}
		resp, err := b.FetchOffset(sarama.NewOffsetFetchRequest(version, l.group, map[string][]int32{l.topic: partitions}))
		switch {
		case err != nil:
			return err
		case resp.Err == sarama.ErrGroupIDNotFound: // nothing was remembered yet
			return nil
		case resp.Err != sarama.ErrNoError:
			return resp.Err
		}
		for _, p := range partitions {
			b := resp.GetBlock(l.topic, p)
			switch {
			case b == nil:
				return errNoAnswer
			case b.Err != sarama.ErrNoError:
				return b.Err
			}
			places[p] = Place{Offset: b.Offset, Closing: b.Metadata == closingMark}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("asking how far the letters of topic %s were published again: %w", l.topic, err)
	}
	return places, nil
}

// ask puts a question to the coordinator of the group, again while that moves to another broker or cannot be reached, for groupLimit at most.
func (l *Letters) ask(ctx context.Context, question func(*sarama.Broker) error) error {
	deadline := time.Now().Add(groupLimit)
	for failures := 0; ; failures++ {
		broker, err := l.client.Coordinator(l.group)
		if err == nil {
			if err = question(broker); err == nil {
				return nil
			}
		}
		var code sarama.KError
		switch known := errors.As(err, &code); {
		case known && !passes(code):
			return err
		case !known && broker != nil:
			_ = broker.Close() // a late answer would be taken for that of the next question
		}
		if ctx.Err() != nil || time.Now().After(deadline) || !sleep(ctx, backoff(failures, retryMin, retryMax)) {
			return err
		}
		_ = l.client.RefreshCoordinator(l.group) // or the next attempt tells
	}
}

// passes tells whether time heals what a coordinator says.
func passes(code sarama.KError) bool {
	v, known := judge(code)
	return known && v.class == classTransient
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
