package preflight_test

import (
	"context"
	"testing"

	"outbox-relay/checkpoint/kafkastore"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka"
	"outbox-relay/relay/kafka/conn"
	"outbox-relay/relay/preflight"
	"outbox-relay/router"
)

func TestTopicsOfTheRules(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	at := k.Addrs()[0]
	ordinary := k.NewTopic(t, 3, nil)
	small := k.NewTopic(t, 1, map[string]string{"max.message.bytes": "2000"})
	compacted := k.NewTopic(t, 1, map[string]string{"cleanup.policy": "compact"})
	impossible := k.NewTopic(t, 1, map[string]string{"min.insync.replicas": "2"})
	pattern := k.NewTopic(t, 1, nil)
	o := options(t,
		router.Rule{Table: "app.a", Topic: ordinary}, router.Rule{Table: "app.b", Topic: small}, router.Rule{Table: "app.c", Topic: compacted},
		router.Rule{Table: "app.d", Topic: impossible}, router.Rule{Table: "app.e", Topic: "missing-topic"},
		router.Rule{Table: "app.f", Topic: pattern[:len(pattern)-4] + "{event_type}"}, router.Rule{Table: "app.g", Topic: "none-of-{event_type}"})
	o.Kafka = kafka.Options{Brokers: []string{at, nothingListens}}
	r := run(t, o)
	expect(t, r, "kafka", "brokers", preflight.OK, "all 1")
	expect(t, r, "kafka", "broker "+nothingListens, preflight.Warning, "nothing listens")
	expect(t, r, "kafka", "producer id", preflight.OK)
	expect(t, r, "kafka", "topic "+ordinary, preflight.Warning, "3 partitions, replication factor 1, min.insync.replicas 1")
	expect(t, r, "kafka", "topic "+small, preflight.Warning, "up to 2.0 KiB (max.message.bytes), limits.row allows rows up to 16.0 MiB", "kafka-configs.sh", "max.message.bytes=1048588")
	expect(t, r, "kafka", "topic "+compacted, preflight.Warning, "it is compacted", "cleanup.policy=delete")
	expect(t, r, "kafka", "topic "+impossible, preflight.Failed, "no record can ever be acknowledged", "min.insync.replicas=1")
	expect(t, r, "kafka", "topic missing-topic", preflight.Failed, "does not exist", "kafka-topics.sh --bootstrap-server "+at+","+nothingListens+" --create --topic missing-topic --partitions 6 --replication-factor 1")
	expect(t, r, "kafka", "topics "+pattern[:len(pattern)-4]+"{event_type}", preflight.OK, "1 topics of the cluster match")
	expect(t, r, "kafka", "topic "+pattern, preflight.Warning, "1 partitions")
	expect(t, r, "kafka", "topics none-of-{event_type}", preflight.Warning, "no topic matches yet", "--create --topic <topic>")

	o.Kafka.CreateTopics = kafka.CreateTopics{Enabled: true, Partitions: 2, ReplicationFactor: 1}
	r = run(t, o)
	expect(t, r, "kafka", "topic missing-topic", preflight.OK, "the relay creates it with 2 partitions, replication factor 1")
	expect(t, r, "kafka", "topics none-of-{event_type}", preflight.OK, "the relay creates them")
	o.Kafka.CreateTopics.ReplicationFactor = 3
	expect(t, run(t, o), "kafka", "topic missing-topic", preflight.Failed, "replication_factor 3 on 1 brokers", "set kafka.create_topics.replication_factor to 1")
}

func TestTheTopicOfTheCheckpoint(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	o := options(t)
	o.Kafka = kafka.Options{Brokers: k.Addrs()}
	look := func(topic string) *preflight.Report {
		o.CheckpointTopic = &kafkastore.Options{Name: "test", Topic: topic, Brokers: k.Addrs()}
		return run(t, o)
	}
	r := look("missing.checkpoint")
	expect(t, r, "kafka", "checkpoint topic missing.checkpoint", preflight.OK, "the relay creates it")
	expect(t, r, "kafka", "transactional.id test", preflight.OK)
	expect(t, look("missing.checkpoint"), "kafka", "checkpoint topic missing.checkpoint", preflight.OK, "it does not exist yet")
	good := k.NewTopic(t, 1, map[string]string{"cleanup.policy": "compact"})
	expect(t, look(good), "kafka", "checkpoint topic "+good, preflight.Warning, "1 partitions, replication factor 1")
	several := k.NewTopic(t, 3, map[string]string{"cleanup.policy": "compact"})
	expect(t, look(several), "kafka", "checkpoint topic "+several, preflight.Failed, "has 3 partitions", "kafka-topics.sh")
	deleted := k.NewTopic(t, 1, map[string]string{"cleanup.policy": "delete"})
	expect(t, look(deleted), "kafka", "checkpoint topic "+deleted, preflight.Failed, "cleanup.policy=delete", "kafka-configs.sh", "cleanup.policy=compact")
}

// TestAClusterThatDemandsALogin: SASL on the clients' listener and an authorizer that lets a user only see.
func TestAClusterThatDemandsALogin(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Properties: map[string]string{
		"listener.security.protocol.map":               "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"listener.name.client.sasl.enabled.mechanisms": "PLAIN",
		"listener.name.client.plain.sasl.jaas.config":  `org.apache.kafka.common.security.plain.PlainLoginModule required user_relay="relay";`,
		"sasl.enabled.mechanisms":                      "PLAIN",
		"authorizer.class.name":                        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":                                  "User:ANONYMOUS",
	}})
	at := k.Addrs()[0]
	if err := k.CreateTopic(context.Background(), "orders", 1, 0, nil); err != nil {
		t.Fatal(err)
	}
	login := func(password string) kafka.Options {
		return kafka.Options{Brokers: []string{at}, SASL: kafka.SASL{Mechanism: "plain", User: "relay", Secret: func(context.Context) (string, error) { return password, nil }}}
	}
	o := options(t, router.Rule{Table: "app.a", Topic: "orders"})
	o.Kafka = login("wrong")
	expect(t, run(t, o), "kafka", "broker "+at, preflight.Failed, "refuses the login", "check kafka.sasl.user and kafka.sasl.password")
	o.Kafka = kafka.Options{Brokers: []string{at}}
	expect(t, run(t, o), "kafka", "brokers", preflight.Failed, "demands a login on this port", "set kafka.sasl")
	o.Kafka = login("relay")
	r := run(t, o)
	expect(t, r, "kafka", "topic orders", preflight.Failed, "may not write to it", "kafka-acls.sh", "--allow-principal User:relay --operation Write", "--topic orders")

	if err := k.CreateTopic(context.Background(), "place", 1, 0, map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}
	o.CheckpointTopic = &kafkastore.Options{Name: "test", Topic: "place", Brokers: []string{at}, Conn: conn.Options{SASL: o.Kafka.SASL}}
	r = run(t, o)
	expect(t, r, "kafka", "checkpoint topic place", preflight.Failed, "not authorized", "--allow-principal User:relay --operation Read --operation Write", "--topic place")
	expect(t, r, "kafka", "transactional.id test", preflight.Failed, "--allow-principal User:relay", "--operation Write --operation Describe --transactional-id test")
}
