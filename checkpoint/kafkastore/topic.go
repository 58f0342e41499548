package kafkastore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// Partitions is how many partitions the topic has to have: with one, its end is the last checkpoint.
const Partitions = 1

// Configs are the settings that the store gives a topic that it makes, for the number of its replicas; 0 where that is not known. Small segments and a
// short memory for control records let compaction keep the topic small, and so the start short: only segments that are full are compacted, and each
// save leaves a control record.
func Configs(replicas int) map[string]string {
	c := map[string]string{"cleanup.policy": "compact", "segment.bytes": strconv.Itoa(16 << 20), "delete.retention.ms": strconv.FormatInt((10 * time.Minute).Milliseconds(), 10)}
	if replicas >= 3 {
		c["min.insync.replicas"] = strconv.Itoa(replicas/2 + 1)
	}
	return c
}

// CreateCommand is the shell command that makes the topic with the number of replicas that is the cluster's default.
func CreateCommand(brokers, topic string) string {
	return fmt.Sprintf("kafka-topics.sh --bootstrap-server %s --create --topic %s --partitions %d --config cleanup.policy=compact --config segment.bytes=%d", brokers, topic, Partitions, 16<<20)
}

// AllowCommands are the shell commands that let a user keep the checkpoint of a relay.
func AllowCommands(brokers, user, topic, name string) []string {
	if user == "" {
		user = "<user>"
	}
	base := fmt.Sprintf("kafka-acls.sh --bootstrap-server %s --add --allow-principal User:%s", brokers, user)
	return []string{
		fmt.Sprintf("%s --operation Read --operation Write --operation Describe --operation DescribeConfigs --operation Create --topic %s", base, topic),
		fmt.Sprintf("%s --operation Write --operation Describe --transactional-id %s", base, name),
	}
}

// CompactCommand is the shell command that makes a topic compacted.
func CompactCommand(brokers, topic string) string {
	return fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config cleanup.policy=compact", brokers, topic)
}

// unfit is a topic that cannot keep a checkpoint until somebody changes it.
type unfit struct{ detail, hint string }

func (u *unfit) Error() string { return u.detail }

// errMissing means that there is no topic.
var errMissing = errors.New("the topic does not exist")

// place is where the partition is.
type place struct {
	addr  string // of its leader
	epoch int32  // of the leader
	// operations are the rights that the user has on the topic (KIP-430), or untold.
	operations int32
}

const (
	untold         = math.MinInt32
	readOperation  = 1 << 3
	writeOperation = 1 << 4
)

// look asks for the place of the partition. Its error is errMissing, an *unfit, or one that time may heal.
func (c *cluster) look(ctx context.Context) (place, error) {
	var meta *sarama.MetadataResponse
	req := sarama.NewMetadataRequest(c.o.Conn.Version, []string{c.o.Topic})
	req.IncludeTopicAuthorizedOperations = req.Version >= 8
	err := c.call(ctx, func(b *sarama.Broker) (err error) { meta, err = b.GetMetadata(req); return err })
	if err != nil {
		return place{}, fmt.Errorf("asking for metadata: %w", err)
	}
	c.learn(meta.Brokers)
	if len(meta.Topics) != 1 || meta.Topics[0].Name != c.o.Topic {
		return place{}, errors.New("asking for metadata: the answer does not name the topic")
	}
	t := meta.Topics[0]
	switch t.Err {
	case sarama.ErrNoError, sarama.ErrLeaderNotAvailable, sarama.ErrReplicaNotAvailable:
	case sarama.ErrUnknownTopicOrPartition:
		return place{}, errMissing
	default:
		return place{}, t.Err
	}
	if n := len(t.Partitions); n > Partitions {
		return place{}, &unfit{fmt.Sprintf("the topic has %d partitions, and only one of one partition has an end", n),
			"set checkpoint.topic to a new name, or delete the topic if nothing needs it and let the relay make it; partitions cannot be taken away. The command for a new one is " + CreateCommand(c.o.brokers(), c.o.Topic)}
	}
	for _, p := range t.Partitions {
		for _, b := range meta.Brokers {
			if b.ID() == p.Leader && p.Err != sarama.ErrLeaderNotAvailable {
				operations := int32(untold)
				if req.Version >= 8 {
					operations = t.TopicAuthorizedOperations
				}
				return place{b.Addr(), p.LeaderEpoch, operations}, nil
			}
		}
	}
	return place{}, sarama.ErrLeaderNotAvailable
}

// check looks at the settings of the topic, where it may.
func (c *cluster) check(ctx context.Context) error {
	var resp *sarama.DescribeConfigsResponse
	req := &sarama.DescribeConfigsRequest{Version: 2, Resources: []*sarama.ConfigResource{{Type: sarama.TopicResource, Name: c.o.Topic, ConfigNames: []string{"cleanup.policy"}}}}
	err := c.call(ctx, func(b *sarama.Broker) (err error) { resp, err = b.DescribeConfigs(req); return err })
	if err != nil {
		return fmt.Errorf("asking for the topic's configuration: %w", err)
	}
	for _, r := range resp.Resources {
		for _, e := range r.Configs {
			if e.Name == "cleanup.policy" && r.ErrorCode == 0 && !compactOnly(e.Value) {
				return &unfit{fmt.Sprintf("the topic has cleanup.policy=%s, so a checkpoint that does not change for long is deleted", e.Value), "run " + CompactCommand(c.o.brokers(), c.o.Topic)}
			}
		}
	}
	return nil
}

func compactOnly(policy string) bool { return strings.TrimSpace(policy) == "compact" }

// create makes the topic. First it asks what would be made, since the number of replicas is the cluster's default and decides how many have to
// be in sync. Another instance may be faster. With ask it does no more than that.
func (c *cluster) create(ctx context.Context, ask bool) error {
	replicas := 0
	var resp *sarama.CreateTopicsResponse
	for _, validate := range []bool{true, false} {
		if ask && !validate {
			return nil
		}
		detail := &sarama.TopicDetail{NumPartitions: Partitions, ReplicationFactor: -1, ConfigEntries: map[string]*string{}}
		for k, v := range Configs(replicas) {
			detail.ConfigEntries[k] = &v
		}
		// Brokers in KRaft mode pass the request on to the controller. Others answer NOT_CONTROLLER unless they are it, and another one is asked next time.
		req := sarama.NewCreateTopicsRequest(c.o.Conn.Version, map[string]*sarama.TopicDetail{c.o.Topic: detail}, readTimeout/2, validate)
		err := c.call(ctx, func(b *sarama.Broker) (err error) { resp, err = b.CreateTopics(req); return err })
		if err != nil {
			return fmt.Errorf("creating the topic: %w", err)
		}
		e := resp.TopicErrors[c.o.Topic]
		switch {
		case e == nil:
			return errors.New("creating the topic: the answer does not name it")
		case e.Err == sarama.ErrTopicAlreadyExists:
			return nil
		case e.Err == sarama.ErrNotController:
			c.leave()
			return e
		case e.Err == sarama.ErrTopicAuthorizationFailed, e.Err == sarama.ErrClusterAuthorizationFailed:
			return &unfit{"the topic does not exist, and the user may not create it", "create it, or allow the user to: " + CreateCommand(c.o.brokers(), c.o.Topic) + " or " + AllowCommands(c.o.brokers(), c.o.Conn.SASL.User, c.o.Topic, c.o.Name)[0]}
		case e.Err == sarama.ErrPolicyViolation, e.Err == sarama.ErrInvalidConfig, e.Err == sarama.ErrInvalidReplicationFactor:
			return &unfit{fmt.Sprintf("the topic does not exist, and the brokers do not create it: %v", e), "create it: " + CreateCommand(c.o.brokers(), c.o.Topic)}
		case e.Err != sarama.ErrNoError:
			return fmt.Errorf("creating the topic: %w", e)
		}
		if r := resp.TopicResults[c.o.Topic]; r != nil {
			replicas = int(r.ReplicationFactor)
		}
	}
	c.o.Logger.Info("checkpoint topic created", "topic", c.o.Topic, "replicas", replicas)
	return nil
}

// find gives the place of the partition, waiting for a leader. With make, a missing topic is made; without, it is errMissing.
func (c *cluster) find(ctx context.Context, mk bool) (place, error) {
	deadline := time.Now().Add(c.o.Timeout)
	for attempt := 0; ; attempt++ {
		p, err := c.look(ctx)
		if errors.Is(err, errMissing) && mk {
			if err = c.create(ctx, false); err == nil {
				err = errMissing // until the metadata has it
			}
		}
		var u *unfit
		var code sarama.KError
		known := errors.As(err, &code)
		switch {
		case err == nil:
			return p, nil
		case ctx.Err() != nil:
			return place{}, ctx.Err()
		case errors.As(err, &u), errors.Is(err, errMissing) && !mk, known && !passes(code), time.Now().After(deadline):
			return place{}, err
		}
		if err := pause(ctx, attempt); err != nil {
			return place{}, err
		}
	}
}

// passes tells whether waiting may heal what a broker said about the topic or the partition.
func passes(code sarama.KError) bool {
	switch code {
	case sarama.ErrUnknownTopicOrPartition, sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition, sarama.ErrRequestTimedOut, sarama.ErrBrokerNotAvailable,
		sarama.ErrReplicaNotAvailable, sarama.ErrNetworkException, sarama.ErrNotController, sarama.ErrKafkaStorageError, sarama.ErrFencedLeaderEpoch,
		sarama.ErrUnknownLeaderEpoch, sarama.ErrOffsetNotAvailable, sarama.ErrThrottlingQuotaExceeded, sarama.ErrUnknown, sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend:
		return true
	}
	return false
}

// pause waits before the next attempt: 20 ms at first, half a second at most.
func pause(ctx context.Context, attempt int) error {
	t := time.NewTimer(min(20*time.Millisecond<<min(attempt, 10), 500*time.Millisecond))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
