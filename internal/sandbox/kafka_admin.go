package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

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
	admin, err := k.Admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	if err := admin.CreateTopic(name, detail, false); err != nil {
		return fmt.Errorf("creating topic %s: %w", name, err)
	}
	err = k.awaitTopic(ctx, name, func(p *sarama.PartitionMetadata) bool { return p.Leader >= 0 && p.Err == sarama.ErrNoError }, partitions)
	if err != nil {
		return fmt.Errorf("creating topic %s: %w", name, err)
	}
	return nil
}

// WaitInSync returns when every running broker says that all replicas of the topic are in
// sync: after a broker's restart, the cluster is whole again.
func (k *Kafka) WaitInSync(ctx context.Context, topic string) error {
	full := func(p *sarama.PartitionMetadata) bool { return p.Leader >= 0 && len(p.Isr) == len(p.Replicas) }
	if err := k.awaitTopic(ctx, topic, full, 1); err != nil {
		return fmt.Errorf("waiting for the replicas of topic %s: %w", topic, err)
	}
	return nil
}

// awaitTopic waits until all running brokers describe the topic with at least so many
// partitions, all of them good.
func (k *Kafka) awaitTopic(ctx context.Context, topic string, good func(*sarama.PartitionMetadata) bool, partitions int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		addrs := k.internalAddrs()
		all := len(addrs) > 0
		for _, addr := range addrs {
			m, err := brokerMetadata(addr, []string{topic})
			all = all && err == nil && topicGood(m, good, partitions)
		}
		if all {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), errors.New("not all brokers know it as wanted"))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func topicGood(m *sarama.MetadataResponse, good func(*sarama.PartitionMetadata) bool, partitions int) bool {
	if len(m.Topics) != 1 || m.Topics[0].Err != sarama.ErrNoError || len(m.Topics[0].Partitions) < partitions {
		return false
	}
	for _, p := range m.Topics[0].Partitions {
		if !good(p) {
			return false
		}
	}
	return true
}
