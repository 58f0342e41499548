package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"
)

// adminTimeout bounds each administrative step whose context has no earlier end.
const adminTimeout = time.Minute

func adminConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.ClientID = "sandbox"
	c.Version = sarama.V3_6_0_0
	c.Net.DialTimeout = 5 * time.Second
	c.Net.ReadTimeout = 10 * time.Second
	c.Admin.Timeout = 20 * time.Second
	c.Metadata.Retry.Max = 20
	c.Metadata.Retry.Backoff = 50 * time.Millisecond
	return c
}

// Admin returns a client for administration that passes no proxy and needs no login. The
// caller closes it.
func (k *Kafka) Admin() (sarama.ClusterAdmin, error) {
	admin, err := sarama.NewClusterAdmin(k.internalAddrs(), adminConfig())
	if err != nil {
		return nil, fmt.Errorf("connecting to Kafka: %w", err)
	}
	return admin, nil
}

// internalAddrs returns the INTERNAL listeners of the running brokers.
func (k *Kafka) internalAddrs() []string {
	if k.program == nil {
		return k.external
	}
	var addrs []string
	for _, b := range k.brokers {
		if b.Running() {
			addrs = append(addrs, b.node.internal)
		}
	}
	return addrs
}

// CreateTopic creates a topic and returns when every running broker knows a leader for
// each of its partitions. For replicas 0 the cluster's default is taken. configs are topic
// settings such as max.message.bytes.
func (k *Kafka) CreateTopic(ctx context.Context, name string, partitions, replicas int, configs map[string]string) error {
	detail := &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: int16(replicas),
		ConfigEntries: map[string]*string{}}
	if replicas == 0 {
		detail.ReplicationFactor = -1
	}
	for key, value := range configs {
		detail.ConfigEntries[key] = &value
	}
	create := func() error {
		admin, err := k.Admin()
		if err != nil {
			return err
		}
		defer admin.Close()
		return admin.CreateTopic(name, detail, false)
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	for {
		err := create()
		if err == nil {
			break
		}
		// The broker's answer is final, but for too few brokers if there are enough: one may
		// have lost its session for a moment. Without an answer, a node may just have been killed.
		var refusal *sarama.TopicError
		final := errors.As(err, &refusal) &&
			(refusal.Err != sarama.ErrInvalidReplicationFactor || replicas > len(k.Addrs()))
		if final || ctx.Err() != nil {
			return fmt.Errorf("creating topic %s: %w", name, err)
		}
		sleep(ctx, 50*time.Millisecond)
	}
	led := func(p *sarama.PartitionMetadata) bool { return p.Err == sarama.ErrNoError && k.runs(p.Leader) }
	if err := k.awaitTopic(ctx, name, partitions, led); err != nil {
		return fmt.Errorf("creating topic %s: %w", name, err)
	}
	return nil
}

// Leader returns the id of the broker that leads the partition. It waits until all running
// brokers name the same one and that one runs: after the kill of a leader, the next.
func (k *Kafka) Leader(ctx context.Context, topic string, partition int) (int, error) {
	leaders := map[int32]bool{}
	same := func(m *sarama.TopicMetadata) bool {
		for _, p := range m.Partitions {
			if p.ID == int32(partition) && k.runs(p.Leader) {
				leaders[p.Leader] = true
				return len(leaders) == 1
			}
		}
		return false
	}
	if err := k.awaitMetadata(ctx, topic, func() { clear(leaders) }, same); err != nil {
		return 0, fmt.Errorf("finding the leader of partition %d of topic %s: %w", partition, topic, err)
	}
	for id := range leaders {
		return int(id), nil
	}
	return 0, fmt.Errorf("no broker runs to tell the leader of topic %s", topic)
}

// runs reports whether the node is a broker that runs (any, of a cluster from outside).
func (k *Kafka) runs(id int32) bool {
	if k.program == nil {
		return id >= 0
	}
	return id >= 1 && int(id) <= len(k.brokers) && k.brokers[id-1].Running()
}

// WaitInSync returns when every running broker says that all replicas of the topic are in
// sync: after a broker's restart, the cluster is whole again.
func (k *Kafka) WaitInSync(ctx context.Context, topic string) error {
	full := func(p *sarama.PartitionMetadata) bool { return k.runs(p.Leader) && len(p.Isr) == len(p.Replicas) }
	if err := k.awaitTopic(ctx, topic, 1, full); err != nil {
		return fmt.Errorf("waiting for the replicas of topic %s: %w", topic, err)
	}
	return nil
}

// awaitTopic waits until all running brokers describe the topic with at least so many
// partitions, all of them good.
func (k *Kafka) awaitTopic(ctx context.Context, topic string, partitions int, good func(*sarama.PartitionMetadata) bool) error {
	return k.awaitMetadata(ctx, topic, func() {}, func(m *sarama.TopicMetadata) bool {
		for _, p := range m.Partitions {
			if !good(p) {
				return false
			}
		}
		return len(m.Partitions) >= partitions
	})
}

// awaitMetadata asks all running brokers, in rounds that begin with a call of begin, until
// good holds for all their answers of a round.
func (k *Kafka) awaitMetadata(ctx context.Context, topic string, begin func(), good func(*sarama.TopicMetadata) bool) error {
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	for {
		begin()
		addrs := k.internalAddrs()
		all := len(addrs) > 0
		for _, addr := range addrs {
			m, err := brokerMetadata(addr, []string{topic})
			all = all && err == nil && len(m.Topics) == 1 && m.Topics[0].Err == sarama.ErrNoError && good(m.Topics[0])
		}
		if all {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("not all brokers know it as wanted: %w", ctx.Err())
		}
		sleep(ctx, 20*time.Millisecond)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// WaitForgotten waits until the coordinator of a transactional.id has forgotten it (transactional.id.expiration.ms). The cluster has one broker.
func (k *Kafka) WaitForgotten(ctx context.Context, id string) error {
	b := sarama.NewBroker(k.internalAddrs()[0])
	if err := b.Open(adminConfig()); err != nil {
		return err
	}
	defer b.Close()
	for ctx.Err() == nil {
		resp, err := b.ListTransactions(&sarama.ListTransactionsRequest{DurationFilter: -1})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(resp.TransactionStates, func(s sarama.ListTransactionsResponseTransactionState) bool { return s.TransactionalID == id }) {
			return nil
		}
	}
	return ctx.Err()
}
