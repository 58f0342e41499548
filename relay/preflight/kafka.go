package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/kafkastore"
	"outbox-relay/relay/kafka"
	"outbox-relay/router"
)

// kafkaTimeout bounds the look at the cluster.
const kafkaTimeout = 30 * time.Second

// brokerDefaultMessage is max.message.bytes of a broker that nobody configured.
const brokerDefaultMessage = 1<<20 + 12

// cluster is the look at the brokers and topics.
type cluster struct {
	section
	plan    *plan
	brokers string // for commands
	count   int    // of brokers in the cluster
}

func (p *plan) kafka(ctx context.Context) []Item {
	ctx, cancel := context.WithTimeout(ctx, kafkaTimeout)
	defer cancel()
	k := &cluster{section: section{area: "kafka"}, plan: p, brokers: strings.Join(p.Kafka.Brokers, ",")}
	uses := p.topics()
	names := fixedTopics(uses)
	for _, topic := range p.DeadLetterTopics {
		if !slices.Contains(names, topic) {
			names = append(names, topic)
		}
	}
	asked := names
	if s := p.CheckpointTopic; s != nil && !slices.Contains(names, s.Topic) {
		asked = append(slices.Clone(names), s.Topic)
	}
	if in, ok := k.inspect(ctx, asked); ok {
		k.cluster(in)
		for i := range in.Topics {
			if t := &in.Topics[i]; i < len(names) {
				k.topic(t)
			}
		}
		if p.CheckpointTopic != nil {
			k.checkpointTopic(ctx, &in.Topics[slices.Index(asked, p.CheckpointTopic.Topic)])
		}
		k.patterns(ctx, uses, asked)
	}
	return k.items
}

// checkpointTopic looks at the topic that keeps the checkpoint, and at the transactional.id under which it is written.
func (k *cluster) checkpointTopic(ctx context.Context, t *kafka.TopicInspection) {
	label := "checkpoint topic " + t.Name
	in, err := kafkastore.Inspect(ctx, *k.plan.CheckpointTopic)
	if err != nil {
		k.add(Unknown, label, "it cannot be looked at: %v", err)
		return
	}
	switch {
	case in.Topic != nil:
		item := k.add(Failed, label, "%v", in.Topic)
		var fault *checkpoint.Error
		if errors.As(in.Topic, &fault) && fault.Hint != "" {
			item.do(fault.Hint)
		}
	case !in.Exists:
		k.add(OK, label, "it does not exist yet: the relay creates it, with one partition and compacted")
	default:
		k.durability(label, t)
	}
	label = "transactional.id " + k.plan.Name
	if in.ID != nil {
		k.add(Failed, label, "%v", in.ID).do("allow it", kafkastore.AllowCommands(k.brokers, k.plan.Kafka.SASL.User, t.Name, k.plan.Name)[1])
		return
	}
	k.add(OK, label, "the user may see it; whether it may write under it shows at the first start")
}

// topics are those of the rules, which have no faults.
func (p *plan) topics() []router.TopicUse {
	r, err := router.New(router.Options{Rules: p.Rules})
	if err != nil {
		return nil
	}
	return r.Topics()
}

func fixedTopics(uses []router.TopicUse) []string {
	var names []string
	seen := map[string]bool{}
	for _, u := range uses {
		if u.Topic != "" && !seen[u.Topic] {
			seen[u.Topic] = true
			names = append(names, u.Topic)
		}
	}
	return names
}

// inspect asks the cluster; false means that nothing was learned about topics.
func (k *cluster) inspect(ctx context.Context, names []string) (*kafka.Inspection, bool) {
	in, err := kafka.Inspect(ctx, k.plan.Kafka, names)
	if in == nil {
		k.add(Failed, "brokers", "%v", err).do("correct the section kafka of the configuration")
		return nil, false
	}
	bad := 0
	for _, b := range in.Seeds {
		if b.Err != nil {
			bad++
		}
	}
	state := Warning // any of them that answers is enough
	if bad == len(in.Seeds) {
		state = Failed
	}
	for _, b := range in.Seeds {
		if b.Err != nil {
			k.add(state, "broker "+b.Addr, "%s", kafka.Explain(k.plan.Kafka, b.Addr, b.Err))
		}
	}
	if bad == len(in.Seeds) {
		k.add(Unknown, "topics", "not looked at, since no broker can be used")
		return in, false
	}
	if err != nil {
		k.add(Failed, "brokers", "%s", kafka.Explain(k.plan.Kafka, k.brokers, err))
		return in, false
	}
	return in, true
}

func (k *cluster) cluster(in *kafka.Inspection) {
	k.count = len(in.Brokers)
	reached := 0
	for _, b := range in.Brokers {
		if b.Err == nil {
			reached++
			continue
		}
		k.add(Failed, fmt.Sprintf("broker %d", b.ID), "it leads partitions, and %s", kafka.Explain(k.plan.Kafka, b.Addr, b.Err))
	}
	if reached == k.count {
		k.add(OK, "brokers", "all %d of the cluster answer", k.count)
	}
	if in.ProducerID != nil {
		k.add(Failed, "producer id", "the brokers give none: %v", in.ProducerID).do("allow the user idempotent writes, or wait for the brokers to start",
			kafka.AllowProducerCommand(k.plan.Kafka.Brokers, k.plan.Kafka.SASL.User))
		return
	}
	k.add(OK, "producer id", "given")
}

func (k *cluster) topic(t *kafka.TopicInspection) {
	label := "topic " + t.Name
	switch {
	case t.Write == kafka.PermissionDenied:
		k.add(Failed, label, "the user may not write to it").do("allow it", AllowWriteCommand(k.brokers, k.plan.Kafka.SASL.User, t.Name))
		return
	case t.Err != nil:
		k.add(Unknown, label, "nothing can be learned about it: %v", t.Err)
		return
	case !t.Exists:
		k.missing(label, t.Name)
		return
	case t.Leaderless > 0:
		k.add(Failed, label, "%d of its %d partitions have no leader", t.Leaderless, t.Partitions).do("start the brokers that hold their replicas")
		return
	}
	k.durability(label, t)
	if t.ConfigErr != nil {
		k.add(Unknown, label, "its configuration cannot be read: %v", t.ConfigErr).
			do("to check it too, let the user read it; the relay then also knows its limits before it sends", AllowWriteCommand(k.brokers, k.plan.Kafka.SASL.User, t.Name))
		return
	}
	if t.MaxMessageBytes < brokerDefaultMessage && int64(t.MaxMessageBytes) < k.plan.RowLimit {
		k.add(Warning, label, "it takes records up to %s (max.message.bytes), limits.row allows rows up to %s: a row between them is poison", size(int64(t.MaxMessageBytes)), size(k.plan.RowLimit)).
			do("raise it, if rows can be that large", k.alter(t.Name, "max.message.bytes", brokerDefaultMessage))
	}
	if strings.Contains(t.CleanupPolicy, "compact") {
		k.add(Warning, label, "it is compacted (cleanup.policy=%s): events of a key are dropped once a newer one is there", t.CleanupPolicy).
			do("leave it so only if consumers want the last event of a key", k.alter(t.Name, "cleanup.policy", "delete"))
	}
}

// durability judges what acknowledged means for the topic.
func (k *cluster) durability(label string, t *kafka.TopicInspection) {
	rf, isr := t.ReplicationFactor, t.MinInSync
	found := fmt.Sprintf("%d partitions, replication factor %d", t.Partitions, rf)
	if isr > 0 {
		found += fmt.Sprintf(", min.insync.replicas %d, records up to %s", isr, size(int64(t.MaxMessageBytes)))
	}
	switch {
	case isr > rf:
		k.add(Failed, label, "%s: no record can ever be acknowledged", found).do("lower min.insync.replicas", k.alter(t.Name, "min.insync.replicas", max(rf-1, 1)))
	case rf == 1:
		k.add(Warning, label, "%s: the loss of one disk loses acknowledged records, and one broker that is down stops partitions", found).
			do("give it three replicas where the cluster has three brokers (kafka-reassign-partitions.sh), and min.insync.replicas 2")
	case isr == 1:
		k.add(Warning, label, "%s: a record counts as acknowledged with one copy", found).do("raise min.insync.replicas", k.alter(t.Name, "min.insync.replicas", max(rf-1, 2)))
	case isr == rf:
		k.add(Warning, label, "%s: one broker that is down stops the topic", found).do("lower min.insync.replicas", k.alter(t.Name, "min.insync.replicas", rf-1))
	default:
		k.add(OK, label, "%s", found)
	}
}

func (k *cluster) alter(topic, key string, value any) string {
	return fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config %s=%v", k.brokers, topic, key, value)
}

func (k *cluster) missing(label, topic string) {
	c := k.plan.Kafka.CreateTopics
	switch {
	case !c.Enabled:
		k.add(Failed, label, "it does not exist").do("create it, or let the relay do it (kafka.create_topics)", CreateTopicCommand(k.brokers, topic, 6, min(3, k.count)))
	case int(c.ReplicationFactor) > k.count:
		k.add(Failed, label, "it does not exist, and cannot be created with kafka.create_topics.replication_factor %d on %d brokers", c.ReplicationFactor, k.count).
			do(fmt.Sprintf("set kafka.create_topics.replication_factor to %d", min(3, k.count)))
	default:
		k.add(OK, label, "it does not exist yet: the relay creates it with %d partitions, replication factor %d", c.Partitions, c.ReplicationFactor)
	}
}

// patterns looks at the topics that exist for rules whose topic names come from rows.
func (k *cluster) patterns(ctx context.Context, uses []router.TopicUse, done []string) {
	var existing []string
	var err error
	asked := false
	seen := map[string]bool{}
	for _, name := range done {
		seen[name] = true
	}
	said := map[string]bool{}
	for _, u := range uses {
		if u.Topic != "" || said[u.Template] {
			continue
		}
		said[u.Template] = true
		label := "topics " + u.Template
		if !asked {
			asked = true
			existing, err = kafka.ListTopics(ctx, k.plan.Kafka)
		}
		if err != nil {
			k.add(Unknown, label, "the topics of the cluster cannot be listed: %v", err)
			continue
		}
		var fresh []string
		matching := 0
		for _, name := range existing {
			if !u.Matches(name) {
				continue
			}
			matching++
			if !seen[name] {
				seen[name] = true
				fresh = append(fresh, name)
			}
		}
		k.pattern(ctx, label, matching, fresh)
	}
}

// maxMatching bounds how many topics of a pattern are looked at one by one.
const maxMatching = 50

func (k *cluster) pattern(ctx context.Context, label string, matching int, fresh []string) {
	created := k.plan.Kafka.CreateTopics.Enabled
	switch {
	case matching > 0:
		k.add(OK, label, "%d topics of the cluster match", matching)
	case created:
		k.add(OK, label, "no topic matches yet: the relay creates them")
	default:
		k.add(Warning, label, "names come from rows, and no topic matches yet: a row whose topic is missing waits").
			do("create a topic for each value, or let the relay do it (kafka.create_topics)", CreateTopicCommand(k.brokers, "<topic>", 6, min(3, k.count)))
	}
	if len(fresh) == 0 {
		return
	}
	if len(fresh) > maxMatching {
		k.add(Unknown, label, "%d of them are not looked at one by one", len(fresh)-maxMatching)
		fresh = fresh[:maxMatching]
	}
	in, err := kafka.Inspect(ctx, k.plan.Kafka, fresh)
	if in == nil || err != nil || len(in.Topics) == 0 {
		k.add(Unknown, label, "they cannot be looked at: %v", errors.Join(err, ctx.Err()))
		return
	}
	for i := range in.Topics {
		k.topic(&in.Topics[i])
	}
}
