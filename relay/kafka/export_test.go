package kafka

import (
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// SetNumbers sets epoch and next sequence of all known partitions of a topic, for tests of their ends.
func (p *Publisher) SetNumbers(topic string, epoch int16, sequence int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, part := range p.topics[topic].parts {
		part.epoch, part.sequence = epoch, sequence
	}
}

// Producers gives the producer ids of the partitions of a topic.
func (p *Publisher) Producers(topic string) (ids []int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, part := range p.topics[topic].parts {
		ids = append(ids, part.pid)
	}
	return ids
}

// LearnStale applies what a broker would say that still knows only the first n partitions of a topic.
func (p *Publisher) LearnStale(topic string, n int) {
	p.mu.Lock()
	defer p.unlock()
	t := p.topics[topic]
	m := &sarama.TopicMetadata{Name: topic, Uuid: sarama.Uuid(t.uuid)}
	for _, part := range t.parts[:n] {
		m.Partitions = append(m.Partitions, &sarama.PartitionMetadata{ID: part.index, Leader: part.leader, LeaderEpoch: part.leaderEpoch})
	}
	p.learnTopic(t, m, time.Now())
}

// Memory gives what is charged to the window and what is kept for later.
func (p *Publisher) Memory() (used, kept int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.chunks.used, p.chunks.kept
}

// ClassOf gives the class of a broker's code by its name.
func ClassOf(code sarama.KError) string {
	v, known := judge(code)
	if !known {
		return "unknown, " + v.class.String()
	}
	return v.class.String()
}

// PartitionOf applies a partitioner by name.
func PartitionOf(name string, key []byte, n int32) int32 { return partitioners[name](key, n) }

// Murmur2 is the hash alone.
var Murmur2 = murmur2

// Cuts is where a refused batch is split.
var Cuts = cuts

// SetFirstSequence makes the publisher learn about a topic and begin with a sequence in all its partitions.
func (p *Publisher) SetFirstSequence(topic string, sequence int32) {
	for {
		p.mu.Lock()
		t := p.topic(topic)
		if len(t.parts) > 0 && p.producer != noProducer {
			for _, part := range t.parts {
				part.pid, part.epoch, part.sequence = p.producer, 0, sequence
			}
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
}

// Epochs tells how many new epochs were begun.
func (p *Publisher) Epochs() float64 { return counterValue(p.metrics.epochs) }

// Duplicates tells how many records may be doubled.
func (p *Publisher) Duplicates() float64 { return counterValue(p.metrics.duplicates) }

func counterValue(c prometheus.Counter) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

// PartitionCount is how many partitions of a topic are in use.
func (p *Publisher) PartitionCount(topic string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.topics[topic].parts)
}

// Refresh asks for metadata of a topic now.
func (p *Publisher) Refresh(topic string) {
	p.mu.Lock()
	defer p.unlock()
	p.want(p.topics[topic], 0)
}

// KnownPartitions is how many partitions the last metadata named.
func (p *Publisher) KnownPartitions(topic string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.topics[topic]
	return max(len(t.parts), int(t.grown))
}

// Age makes the knowledge about a topic older.
func (p *Publisher) Age(topic string, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.topics[topic]
	t.metaAt, t.limitsAt = t.metaAt.Add(-d), t.limitsAt.Add(-d)
}
