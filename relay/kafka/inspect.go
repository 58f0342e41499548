package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/relay/kafka/conn"
)

// Inspection is what [Inspect] found.
type Inspection struct {
	// Seeds are the addresses of Options.Brokers.
	Seeds []BrokerInspection
	// Brokers are those that the cluster names. All of them have to be reachable: each leads some partitions.
	Brokers []BrokerInspection
	// ProducerID is why no idempotent producer can be made, nil if it can.
	ProducerID error
	// Topics are in the order of the call.
	Topics []TopicInspection
}

// BrokerInspection is one address.
type BrokerInspection struct {
	ID   int32 // -1 for an address of the configuration
	Addr string
	Err  error // why it cannot be used, nil if it can
}

// TopicInspection is one topic. Numbers are 0 where they are unknown.
type TopicInspection struct {
	Name   string
	Exists bool
	// Err is why nothing could be learned about it, nil for a topic that is there or missing.
	Err        error
	Partitions int
	// ReplicationFactor is the lowest of its partitions.
	ReplicationFactor int
	// Leaderless is how many partitions have no leader now.
	Leaderless int
	// Write tells whether the user may write to it.
	Write Permission
	// ConfigErr is why its configuration could not be read, nil if it was.
	ConfigErr       error
	MinInSync       int
	MaxMessageBytes int
	CleanupPolicy   string
	// TimestampType is CreateTime or LogAppendTime.
	TimestampType string
}

// Permission is what a broker says about a right.
type Permission uint8

const (
	// PermissionUnknown: the broker does not tell.
	PermissionUnknown Permission = iota
	// PermissionGranted: the broker says that the user has the right.
	PermissionGranted
	// PermissionDenied: the broker says that the user lacks it.
	PermissionDenied
)

// Inspect connects to brokers and topics and reports what is there; it changes nothing but the count of producer ids given out. It
// takes the connection settings of o; callbacks are not needed. The error is that of ctx or of the options, or that no broker answers;
// the Inspection then holds what was learned before.
func Inspect(ctx context.Context, o Options, topics []string) (*Inspection, error) {
	o.Acked, o.Poisoned = func([]uint64) {}, func(*PoisonError) {}
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	in := &Inspection{}
	var l *conn.Link
	var at string
	for _, addr := range s.Brokers {
		found, err := conn.Dial(ctx, &s.conn, addr, controlRead, nil)
		in.Seeds = append(in.Seeds, BrokerInspection{ID: -1, Addr: addr, Err: err})
		switch {
		case err != nil:
		case l == nil:
			l, at = found, addr
		default:
			found.Close()
		}
	}
	if l == nil {
		return in, errors.Join(ctx.Err(), errors.New("kafka: no broker can be reached"))
	}
	defer l.Close()
	if err := in.ask(ctx, s, l, at, topics); err != nil {
		return in, errors.Join(ctx.Err(), err)
	}
	return in, nil
}

func (in *Inspection) ask(ctx context.Context, s *settings, l *conn.Link, addr string, topics []string) error {
	req := sarama.NewMetadataRequest(s.version, topics)
	if len(topics) == 0 {
		req.Topics = []string{} // in versions above 0 that means all, and the answer is not used
	}
	req.IncludeTopicAuthorizedOperations = true
	meta, err := l.Broker.GetMetadata(req)
	if err != nil {
		return s.conn.Explain(l, addr, err)
	}
	for _, b := range meta.Brokers {
		found, err := conn.Dial(ctx, &s.conn, b.Addr(), controlRead, nil)
		if err == nil {
			found.Close()
		}
		in.Brokers = append(in.Brokers, BrokerInspection{ID: b.ID(), Addr: b.Addr(), Err: err})
	}
	if in.ProducerID, err = inspectProducer(ctx, s, l); err != nil {
		return err
	}
	named := make(map[string]*sarama.TopicMetadata, len(meta.Topics))
	for _, m := range meta.Topics {
		named[m.Name] = m
	}
	for _, name := range topics {
		in.Topics = append(in.Topics, inspectTopic(name, named[name]))
	}
	return in.configs(s, l)
}

// inspectProducer asks for a producer id, repeatedly while the broker is starting.
func inspectProducer(ctx context.Context, s *settings, l *conn.Link) (refused, failed error) {
	for i := range 5 {
		resp, err := l.Broker.InitProducerID(&sarama.InitProducerIDRequest{Version: s.initVersion(), ProducerID: -1, ProducerEpoch: -1})
		if err != nil {
			return nil, fmt.Errorf("kafka: asking for a producer id: %w", err)
		}
		if resp.Err == sarama.ErrNoError && resp.ProducerID >= 0 {
			return nil, nil
		}
		refused = resp.Err
		if v, _ := judge(resp.Err); v.class != classTransient && resp.Err != sarama.ErrNoError {
			return refused, nil
		}
		select {
		case <-ctx.Done():
			return refused, ctx.Err()
		case <-time.After(backoff(i, retryMin, retryMax)):
		}
	}
	return refused, nil
}

// writeOperation is the bit of WRITE in the authorized operations of a topic (KIP-430); noOperations says that the broker does not tell.
const (
	writeOperation = 1 << 4
	noOperations   = -1 << 31
)

func inspectTopic(name string, m *sarama.TopicMetadata) TopicInspection {
	t := TopicInspection{Name: name}
	switch {
	case m == nil:
		t.Err = errors.New("the broker's answer does not name the topic")
		return t
	case m.Err == sarama.ErrUnknownTopicOrPartition:
		return t
	case m.Err != sarama.ErrNoError && m.Err != sarama.ErrLeaderNotAvailable:
		t.Err = m.Err
		if m.Err == sarama.ErrTopicAuthorizationFailed {
			t.Write = PermissionDenied
		}
		return t
	}
	t.Exists = true
	t.Partitions = len(m.Partitions)
	for i, p := range m.Partitions {
		if i == 0 || len(p.Replicas) < t.ReplicationFactor {
			t.ReplicationFactor = len(p.Replicas)
		}
		if p.Leader < 0 {
			t.Leaderless++
		}
	}
	if m.Version >= 8 && m.TopicAuthorizedOperations != noOperations {
		t.Write = PermissionDenied
		if m.TopicAuthorizedOperations&writeOperation != 0 {
			t.Write = PermissionGranted
		}
	}
	return t
}

// configs reads the settings of the topics that exist.
func (in *Inspection) configs(s *settings, l *conn.Link) error {
	req := &sarama.DescribeConfigsRequest{Version: s.describeVersion()}
	index := make(map[string]int)
	for i, t := range in.Topics {
		if t.Exists {
			index[t.Name] = i
			req.Resources = append(req.Resources, &sarama.ConfigResource{
				Type: sarama.TopicResource, Name: t.Name, ConfigNames: append([]string{"min.insync.replicas"}, limitNames...),
			})
		}
	}
	if len(req.Resources) == 0 {
		return nil
	}
	resp, err := l.Broker.DescribeConfigs(req)
	if err != nil {
		return fmt.Errorf("kafka: asking for topic configurations: %w", err)
	}
	for _, r := range resp.Resources {
		i, ok := index[r.Name]
		if !ok {
			continue
		}
		t := &in.Topics[i]
		if r.ErrorCode != 0 {
			t.ConfigErr = sarama.KError(r.ErrorCode)
			continue
		}
		for _, e := range r.Configs {
			switch e.Name {
			case "min.insync.replicas":
				t.MinInSync, _ = strconv.Atoi(e.Value)
			case "max.message.bytes":
				t.MaxMessageBytes, _ = strconv.Atoi(e.Value)
			case "cleanup.policy":
				t.CleanupPolicy = e.Value
			case "message.timestamp.type":
				t.TimestampType = e.Value
			}
		}
	}
	return nil
}

// Explain makes one sentence of why the broker at an address cannot be used: what, where and what to do.
func Explain(o Options, addr string, err error) string {
	c := conn.Options{TLS: o.TLS, SASL: o.SASL}
	return c.Explain(nil, addr, err).Error()
}
