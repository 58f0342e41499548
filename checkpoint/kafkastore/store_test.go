package kafkastore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/kafkastore"
	"outbox-relay/checkpoint/storetest"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka/conn"
)

// The suite has one relay name, and that is one transactional.id of the cluster: tests at the same time would fence each other.
func TestConformance(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	var one sync.Mutex
	storetest.Run(t, func(t *testing.T) storetest.Place {
		one.Lock()
		t.Cleanup(one.Unlock)
		o := options(k, storetest.Name)
		o.Topic = unique()
		return func() (checkpoint.Store, error) { return kafkastore.Open(o) }
	})
}

// What makes a save durable and the topic small.
func TestTheTopicThatTheStoreMakes(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	o := options(k, unique())
	if err := open(t, o).Save(t.Context(), numbered(o.Name, 1)); err != nil {
		t.Fatal(err)
	}
	admin, err := k.Admin()
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	topics, err := admin.ListTopics()
	if err != nil {
		t.Fatal(err)
	}
	d := topics[o.Topic]
	if d.NumPartitions != 1 || d.ConfigEntries["cleanup.policy"] == nil || *d.ConfigEntries["cleanup.policy"] != "compact" || *d.ConfigEntries["segment.bytes"] != "16777216" {
		t.Errorf("got %+v", d)
	}
}

// An instance that was replaced can save nothing more, however often it tries, and does not take the place of its successor by trying.
func TestAnInstanceThatWasReplaced(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	o := options(k, unique())
	a, b := open(t, o), open(t, o)
	save := func(s *kafkastore.Store, n, token uint64) error {
		c := numbered(o.Name, n)
		c.FencingToken = token
		return s.Save(t.Context(), c)
	}
	if err := save(a, 1, 1); err != nil {
		t.Fatal(err)
	}
	c, err := b.Load(t.Context())
	wantNumber(t, c, err, 1)
	for n := range uint64(3) {
		wantHint(t, save(a, 10+n, 99), checkpoint.ErrFenced, o.Topic)
		if err := save(b, 2+n, 2); err != nil {
			t.Error(err)
		}
	}
	// A look takes nothing away.
	c, err = kafkastore.Read(t.Context(), o)
	if err != nil || c.FencingToken != 2 {
		t.Errorf("%+v, %v", c, err)
	}
	if err := save(b, 7, 2); err != nil {
		t.Error(err)
	}
	// Active again, the first one sees what happened meanwhile.
	c, err = a.Load(t.Context())
	wantNumber(t, c, err, 7)
	wantHint(t, save(b, 8, 2), checkpoint.ErrFenced)
}

func TestRemove(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	o := options(k, unique())
	s := open(t, o)
	if err := s.Remove(t.Context()); err != nil { // without a topic
		t.Error(err)
	}
	if err := s.Save(t.Context(), numbered(o.Name, 1)); err != nil {
		t.Fatal(err)
	}
	newWriter(t, k, unique(), o.Topic).commit(o.Name, []byte("{damaged"))
	if _, err := open(t, o).Load(t.Context()); !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("got %v", err)
	}
	wantHint(t, open(t, o).Save(t.Context(), numbered(o.Name, 2)), checkpoint.ErrDamaged)
	s = open(t, o)
	for range 2 {
		if err := s.Remove(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Load(t.Context()); !errors.Is(err, checkpoint.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	c := numbered(o.Name, 3)
	c.FencingToken = 0 // lower than before
	if err := s.Save(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// Relays may share a topic.
func TestTwoRelaysInOneTopic(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	one, other := options(k, unique()), options(k, unique())
	other.Topic = one.Topic
	for n := range uint64(3) {
		for _, o := range []kafkastore.Options{one, other} {
			if err := open(t, o).Save(t.Context(), numbered(o.Name, n)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, o := range []kafkastore.Options{one, other} {
		c, err := open(t, o).Load(t.Context())
		wantNumber(t, c, err, 2)
	}
}

func TestATopicThatCannotKeepACheckpoint(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	for name, test := range map[string]struct {
		partitions int
		policy     string
		words      []string
	}{
		"several partitions": {3, "compact", []string{"has 3 partitions", "kafka-topics.sh --bootstrap-server " + k.Addrs()[0] + " --create --topic "}},
		"delete":             {1, "delete", []string{"cleanup.policy=delete", "kafka-configs.sh", "--add-config cleanup.policy=compact"}},
		"delete too":         {1, "compact,delete", []string{"cleanup.policy=compact,delete", "--add-config cleanup.policy=compact"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(k, unique())
			if err := k.CreateTopic(t.Context(), o.Topic, test.partitions, 0, map[string]string{"cleanup.policy": test.policy}); err != nil {
				t.Fatal(err)
			}
			_, err := open(t, o).Load(t.Context())
			wantHint(t, err, checkpoint.ErrUnfit, test.words...)
			wantHint(t, open(t, o).Save(t.Context(), numbered(o.Name, 1)), checkpoint.ErrUnfit, test.words...)
			wantHint(t, kafkastore.EnsureTopic(t.Context(), o), checkpoint.ErrUnfit, test.words...)
		})
	}
}

// Exactly what the hints say is enough, and it heals without a new store.
func TestRights(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Properties: map[string]string{
		"listener.security.protocol.map":               "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"listener.name.client.sasl.enabled.mechanisms": "PLAIN",
		"listener.name.client.plain.sasl.jaas.config":  `org.apache.kafka.common.security.plain.PlainLoginModule required user_relay="relay";`,
		"sasl.enabled.mechanisms":                      "PLAIN",
		"authorizer.class.name":                        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users":                                  "User:ANONYMOUS",
	}})
	o := options(k, unique())
	o.Conn.SASL = conn.SASL{Mechanism: "plain", User: "relay", Secret: func(context.Context) (string, error) { return "relay", nil }}
	s := open(t, o)
	allow := kafkastore.AllowCommands(o.Brokers[0], "relay", o.Topic, o.Name)
	_, err := s.Load(t.Context())
	wantHint(t, err, nil, "may not use the topic", allow[0])
	grant(t, k, strings.ReplaceAll(allow[0], " --operation Create", ""))
	_, err = s.Load(t.Context())
	wantHint(t, err, nil, "may not use the transactional.id "+o.Name, allow[1])
	grant(t, k, allow[1])
	if _, err = s.Load(t.Context()); !errors.Is(err, checkpoint.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	wantHint(t, s.Save(t.Context(), numbered(o.Name, 1)), checkpoint.ErrUnfit, "does not exist, and the user may not create it", kafkastore.CreateCommand(o.Brokers[0], o.Topic), allow[0])
	grant(t, k, allow[0])
	for n := range uint64(3) {
		if err := s.Save(t.Context(), numbered(o.Name, n)); err != nil {
			t.Error(err)
		}
	}
	c, err := open(t, o).Load(t.Context())
	wantNumber(t, c, err, 2)
	o.Conn.SASL.Secret = func(context.Context) (string, error) { return "wrong", nil }
	o.Timeout = time.Millisecond
	_, err = open(t, o).Load(t.Context())
	wantHint(t, err, nil, "Authentication failed")
}

// grant does what a kafka-acls.sh command would.
func grant(t *testing.T, k *sandbox.Kafka, command string) {
	t.Helper()
	words := strings.Fields(command)
	after := func(option string) (values []string) {
		for i, w := range words {
			if w == option {
				values = append(values, words[i+1])
			}
		}
		return values
	}
	resource := sarama.Resource{ResourceType: sarama.AclResourceTopic, ResourcePatternType: sarama.AclPatternLiteral}
	if topics := after("--topic"); len(topics) > 0 {
		resource.ResourceName = topics[0]
	} else {
		resource.ResourceType, resource.ResourceName = sarama.AclResourceTransactionalID, after("--transactional-id")[0]
	}
	acls := &sarama.ResourceAcls{Resource: resource}
	for _, name := range after("--operation") {
		var operation sarama.AclOperation
		if err := operation.UnmarshalText([]byte(name)); err != nil {
			t.Fatal(err)
		}
		acls.Acls = append(acls.Acls, &sarama.Acl{Principal: after("--allow-principal")[0], Host: "*", Operation: operation, PermissionType: sarama.AclPermissionAllow})
	}
	admin, err := k.Admin()
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if err := admin.CreateACLs([]*sarama.ResourceAcls{acls}); err != nil {
		t.Fatal(err)
	}
}

// The broker restarts between saves, and freezes in one. No store is opened anew, and no save that was acknowledged is missing.
func TestABrokerThatComesAndGoes(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{})
	o := options(k, unique())
	o.Timeout = 300 * time.Millisecond
	s := open(t, o)
	save := func(n uint64) error { return s.Save(t.Context(), numbered(o.Name, n)) }
	until := func(n uint64) {
		t.Helper()
		for {
			err := save(n)
			if err == nil {
				return
			}
			if t.Context().Err() != nil || errors.Is(err, checkpoint.ErrFenced) {
				t.Fatal(err)
			}
		}
	}
	until(1)
	for n := range uint64(3) {
		if err := k.Broker(1).Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(10 * (n + 1))
		if err := k.Broker(1).Kill(); err != nil {
			t.Fatal(err)
		}
		if err := save(10*(n+1) + 1); err == nil {
			t.Error("saved without a broker")
		}
		if err := k.Broker(1).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		until(10*(n+1) + 2)
	}
	if err := k.Broker(1).Pause(); err != nil {
		t.Fatal(err)
	}
	defer k.Broker(1).Resume()
	if err := save(50); err == nil {
		t.Error("saved at a frozen broker")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Save(ctx, numbered(o.Name, 51)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := k.Broker(1).Resume(); err != nil {
		t.Fatal(err)
	}
	until(52)
	o.Timeout = 0
	c, err := open(t, o).Load(t.Context())
	wantNumber(t, c, err, 52)
}

// The record is in the log and the commit gets no answer. The next save must not give its sequence number again: the broker would take the new record for the
// old one, and commit that.
func TestASaveBehindOneOfUnknownFate(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	o := kafkastore.Options{Name: "relay", Topic: "checkpoints", Brokers: cluster.ListenAddrs(), Timeout: 200 * time.Millisecond}
	s := open(t, o)
	if err := s.Save(t.Context(), numbered(o.Name, 1)); err != nil {
		t.Fatal(err)
	}
	f := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.CoordinatorLoadInProgress, Count: 1 << 30})
	if err := s.Save(t.Context(), numbered(o.Name, 2)); err == nil || f.Hits() == 0 {
		t.Fatalf("saved without a commit (%v)", err)
	}
	f.Remove()
	if err := s.Save(t.Context(), numbered(o.Name, 3)); err != nil {
		t.Fatal(err)
	}
	c, err := open(t, o).Load(t.Context())
	wantNumber(t, c, err, 3)
}

// What the leader answers to a record: what a second attempt heals costs no failed save, and the rest is told with what to do. Afterwards the store goes on.
func TestAnswersToARecord(t *testing.T) {
	t.Parallel()
	for code, test := range map[int16]struct {
		healed bool
		says   string
	}{
		47: {true, ""}, 48: {true, ""}, 6: {true, ""}, 3: {true, ""}, 7: {true, ""}, 56: {true, ""},
		10: {false, "raise its max.message.bytes"}, 29: {false, "kafka-acls.sh"}, 87: {false, "topic checkpoints"},
	} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			t.Parallel()
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			o := kafkastore.Options{Name: "relay", Topic: "checkpoints", Brokers: cluster.ListenAddrs()}
			s := open(t, o)
			if err := s.Save(t.Context(), numbered(o.Name, 1)); err != nil {
				t.Fatal(err)
			}
			f := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.TypedErrorForCode(code), Count: 1})
			err = s.Save(t.Context(), numbered(o.Name, 2))
			if f.Hits() != 1 || test.healed != (err == nil) {
				t.Fatalf("%d faults, %v", f.Hits(), err)
			}
			if !test.healed {
				wantHint(t, err, nil, test.says)
			}
			if err := s.Save(t.Context(), numbered(o.Name, 3)); err != nil {
				t.Error(err)
			}
			c, err := open(t, o).Load(t.Context())
			wantNumber(t, c, err, 3)
		})
	}
}

// Somebody deletes the topic while the relay runs: it is made anew, and the next checkpoint is there.
func TestATopicThatIsDeletedIsMadeAnew(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	o := options(k, unique())
	s := open(t, o)
	for n := range uint64(2) {
		if err := s.Save(t.Context(), numbered(o.Name, n)); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := k.Admin()
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if err := admin.DeleteTopic(o.Topic); err != nil {
		t.Fatal(err)
	}
	for s.Save(t.Context(), numbered(o.Name, 3)) != nil {
		if t.Context().Err() != nil {
			t.Fatal("it is not saved")
		}
	}
	// The deletion may take effect behind that save: the next one finds out, as the next position is saved in a relay.
	for {
		if err := s.Save(t.Context(), numbered(o.Name, 4)); err == nil {
			if c, err := kafkastore.Read(t.Context(), o); err == nil && c.BinlogPosition == 4+4 {
				break
			}
		}
		if t.Context().Err() != nil {
			t.Fatal("it is not saved")
		}
	}
	topics, err := admin.DescribeTopics([]string{o.Topic})
	if err != nil || len(topics[0].Partitions) != 1 {
		t.Errorf("%+v, %v", topics, err)
	}
}

// After a week without a save the coordinator has forgotten the id.
func TestAnIDThatTheCoordinatorForgot(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Properties: map[string]string{
		"transactional.id.expiration.ms": "1000", "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
	}})
	o := options(k, unique())
	s := open(t, o)
	forgotten := func() {
		t.Helper()
		if err := k.WaitForgotten(t.Context(), o.Name); err != nil {
			t.Fatal(err)
		}
	}
	save := func(s *kafkastore.Store, n, token uint64) error {
		c := numbered(o.Name, n)
		c.FencingToken = token
		return s.Save(t.Context(), c)
	}
	if err := save(s, 1, 1); err != nil {
		t.Fatal(err)
	}
	forgotten()
	if err := save(s, 2, 1); err != nil {
		t.Fatal(err)
	}
	forgotten()
	// Here another instance was active meanwhile, and its id is forgotten too.
	if err := save(open(t, o), 3, 2); err != nil {
		t.Fatal(err)
	}
	forgotten()
	wantHint(t, save(s, 4, 1), checkpoint.ErrFenced)
	c, err := open(t, o).Load(t.Context())
	wantNumber(t, c, err, 3)
}

// The leader of the partition is killed again and again. What a save acknowledged is never missing, also right after the next leader took over, which does
// not know at once how much is committed.
func TestTheLeaderDies(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Brokers: 3})
	o := options(k, unique())
	s := open(t, o)
	n := uint64(0)
	until := func() {
		t.Helper()
		for n++; ; {
			err := s.Save(t.Context(), numbered(o.Name, n))
			if err == nil {
				return
			}
			if t.Context().Err() != nil || errors.Is(err, checkpoint.ErrFenced) {
				t.Fatal(err)
			}
			t.Log(err)
		}
	}
	for range 2 {
		for range 5 {
			until()
		}
		leader, err := k.Leader(t.Context(), o.Topic, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Broker(leader).Kill(); err != nil {
			t.Fatal(err)
		}
		for {
			c, err := open(t, o).Load(t.Context())
			if err == nil {
				wantNumber(t, c, err, n)
				break
			}
			if t.Context().Err() != nil {
				t.Fatal(err)
			}
			t.Log(err)
		}
		if _, err := s.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		until()
		if err := k.Broker(leader).Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := k.WaitInSync(t.Context(), o.Topic); err != nil {
			t.Fatal(err)
		}
	}
	admin, err := k.Admin()
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	topics, err := admin.ListTopics()
	if d := topics[o.Topic]; err != nil || d.ReplicationFactor != 3 || d.ConfigEntries["min.insync.replicas"] == nil || *d.ConfigEntries["min.insync.replicas"] != "2" {
		t.Errorf("got %+v, %v", d, err)
	}
	theOnlyConfiguredBrokerDies(t, k)
}

// Of the brokers in the configuration one is enough to begin with: when it dies, and coordinated the id, the others of its cluster are asked.
func theOnlyConfiguredBrokerDies(t *testing.T, k *sandbox.Kafka) {
	t.Helper()
	o := options(k, unique())
	if err := open(t, o).Save(t.Context(), numbered(o.Name, 1)); err != nil {
		t.Fatal(err)
	}
	conf := sarama.NewConfig()
	conf.Version = sarama.V3_6_0_0
	client, err := sarama.NewClient(k.Addrs(), conf)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	coordinator, err := client.TransactionCoordinator(o.Name)
	if err != nil {
		t.Fatal(err)
	}
	o.Brokers = []string{coordinator.Addr()}
	s := open(t, o)
	if _, err := s.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := k.Broker(int(coordinator.ID())).Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; {
		err := s.Save(t.Context(), numbered(o.Name, 2))
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
