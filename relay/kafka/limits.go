package kafka

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// limitNames are the settings of a topic that decide whether it takes a record. message.timestamp.difference.max.ms is what brokers
// before 3.6 have instead of the other two bounds.
var limitNames = []string{
	"max.message.bytes", "message.timestamp.type", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms",
	"message.timestamp.difference.max.ms", "cleanup.policy",
}

// readLimits reads the configuration of topics in a metadata answer whose limits are not known or old.
func (c *control) readLimits(ctx context.Context, meta *sarama.MetadataResponse, now time.Time) error {
	p := c.p
	req := &sarama.DescribeConfigsRequest{Version: p.o.describeVersion()}
	p.mu.Lock()
	for _, m := range meta.Topics {
		t := p.topics[m.Name]
		if t != nil && len(m.Partitions) > 0 && (t.limitsOld || t.checking || now.Sub(t.limitsAt) >= refreshEvery) {
			req.Resources = append(req.Resources, &sarama.ConfigResource{Type: sarama.TopicResource, Name: m.Name, ConfigNames: limitNames})
		}
	}
	p.mu.Unlock()
	if len(req.Resources) == 0 {
		return nil
	}
	var resp *sarama.DescribeConfigsResponse
	err := c.call(ctx, func(b *sarama.Broker) (err error) {
		resp, err = b.DescribeConfigs(req)
		return err
	})
	if err != nil {
		return fmt.Errorf("asking for topic configurations: %w", err)
	}
	p.mu.Lock()
	defer p.unlock()
	for _, r := range resp.Resources {
		t := p.topics[r.Name]
		if t == nil {
			continue
		}
		t.limits = limitsOf(r)
		t.limitsAt, t.limitsOld = now, false
	}
	return nil
}

// limitsOf reads the settings of one topic. Where they may not be read, the default counts and the broker decides about records.
func limitsOf(r *sarama.ResourceResponse) limits {
	if r.ErrorCode != 0 {
		return defaultLimits
	}
	l := limits{known: true, maxMessage: defaultMaxMessage, checkTime: true, before: math.MaxInt64, after: math.MaxInt64}
	seen := false
	for _, e := range r.Configs {
		switch e.Name {
		case "max.message.bytes":
			if n, err := strconv.Atoi(e.Value); err == nil && n > 0 {
				l.maxMessage, seen = n, true
			}
		case "message.timestamp.type":
			l.checkTime = e.Value != "LogAppendTime"
		case "message.timestamp.before.max.ms":
			l.before = millisOf(e.Value)
		case "message.timestamp.after.max.ms":
			l.after = millisOf(e.Value)
		case "message.timestamp.difference.max.ms":
			l.before, l.after = min(l.before, millisOf(e.Value)), min(l.after, millisOf(e.Value))
		case "cleanup.policy":
			for policy := range strings.SplitSeq(e.Value, ",") {
				l.compacted = l.compacted || strings.TrimSpace(policy) == "compact"
			}
		}
	}
	if !seen {
		return defaultLimits
	}
	return l
}

// millisOf reads a bound; one that does not fit a Duration is none.
func millisOf(v string) time.Duration {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n > maxMillis {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Millisecond
}

// describeVersion is the newest version of DescribeConfigs that is used under the configured protocol.
func (s *settings) describeVersion() int16 {
	if s.version.IsAtLeast(sarama.V2_0_0_0) {
		return 2
	}
	return 1
}

// create makes the topics that a metadata answer calls missing. A failed attempt is repeated with the next refresh of the topic.
func (c *control) create(ctx context.Context, meta *sarama.MetadataResponse, now time.Time) error {
	p := c.p
	details := make(map[string]*sarama.TopicDetail)
	p.mu.Lock()
	for _, m := range meta.Topics {
		if t := p.topics[m.Name]; t != nil && m.Err == sarama.ErrUnknownTopicOrPartition {
			details[m.Name] = p.o.CreateTopics.detail()
		}
	}
	p.mu.Unlock()
	if len(details) == 0 {
		return nil
	}
	var resp *sarama.CreateTopicsResponse
	// Brokers in KRaft mode pass the request on to the controller. Older ones answer NOT_CONTROLLER unless they are it.
	req := sarama.NewCreateTopicsRequest(p.o.version, details, controlRead/2, false)
	err := c.call(ctx, func(b *sarama.Broker) (err error) {
		resp, err = b.CreateTopics(req)
		return err
	})
	if err != nil {
		return fmt.Errorf("creating topics: %w", err)
	}
	p.mu.Lock()
	notController := false
	for name, e := range resp.TopicErrors {
		t := p.topics[name]
		if t == nil {
			continue
		}
		switch e.Err {
		case sarama.ErrNoError:
			p.o.Logger.Info("topic created", "topic", name)
			fallthrough
		case sarama.ErrTopicAlreadyExists:
			t.failures = 0
			p.want(t, refreshGap)
		case sarama.ErrNotController:
			notController = true
			p.want(t, refreshGap)
		default:
			p.stallTopic(t, StallCreation, now)
			p.failed(fmt.Errorf("creating topic %s: %w", name, e))
		}
	}
	p.unlock()
	if notController {
		c.drop()
	}
	return nil
}

func (c CreateTopics) detail() *sarama.TopicDetail {
	d := &sarama.TopicDetail{NumPartitions: c.Partitions, ReplicationFactor: c.ReplicationFactor}
	if len(c.Configs) > 0 {
		d.ConfigEntries = make(map[string]*string, len(c.Configs))
		for k, v := range c.Configs {
			d.ConfigEntries[k] = &v
		}
	}
	return d
}
