package sandbox_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/internal/sandbox"
)

// send publishes one value with acks=all and gives up after some seconds.
func send(addrs []string, topic, value string, settings ...func(*sarama.Config)) error {
	c := sarama.NewConfig()
	for _, set := range settings {
		set(c)
	}
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Return.Successes = true
	c.Net.DialTimeout, c.Net.ReadTimeout, c.Producer.Timeout = 2*time.Second, 2*time.Second, time.Second
	c.Producer.Retry.Max, c.Metadata.Retry.Max = 0, 0
	p, err := sarama.NewSyncProducer(addrs, c)
	if err != nil {
		return err
	}
	defer p.Close()
	_, _, err = p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)})
	return err
}

// values reads n values of partition 0.
func values(t *testing.T, addrs []string, topic string, n int) []string {
	t.Helper()
	c, err := sarama.NewConsumer(addrs, sarama.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := c.ConsumePartition(topic, 0, sarama.OffsetOldest)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var got []string
	for len(got) < n {
		select {
		case m := <-p.Messages():
			got = append(got, string(m.Value))
		case <-time.After(20 * time.Second):
			t.Fatalf("only %q came", got)
		}
	}
	return got
}

func readable(addrs []string, topic string) bool {
	c, err := sarama.NewClient(addrs, sarama.NewConfig())
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = c.GetOffset(topic, 0, sarama.OffsetNewest)
	return err == nil
}

func TestKafkaVerbs(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Properties: map[string]string{"message.max.bytes": "7654321"}})
	b := k.Broker(1)
	topic := k.NewTopic(t, 1, map[string]string{"retention.ms": "123456789"})
	if got := topicConfig(t, k, topic, "retention.ms", "max.message.bytes"); !slices.Equal(got, []string{"123456789", "7654321"}) {
		t.Errorf("topic has retention.ms and max.message.bytes %q: Properties or configs have no effect", got)
	}
	pid := b.Pid()
	if err := send(k.Addrs(), topic, "one"); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(ctx); err == nil {
		t.Error("Start of a running broker gives no error")
	}

	if err := b.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := send(k.Addrs(), topic, "lost"); err == nil {
		t.Error("a killed broker takes a record")
	}
	if err := errors.Join(b.Kill(), b.Stop(ctx)); err != nil {
		t.Errorf("ending a broker that has ended: %v", err)
	}
	if err := b.Pause(); !errors.Is(err, sandbox.ErrNotRunning) {
		t.Errorf("Pause of an ended broker: got %v, want ErrNotRunning", err)
	}
	b.SetProperties(map[string]string{"message.max.bytes": "6543210"})
	if err := b.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if b.Pid() == pid {
		t.Error("no other process after Kill and Start")
	}
	if got := topicConfig(t, k, topic, "max.message.bytes"); got[0] != "6543210" {
		t.Errorf("max.message.bytes is %q: SetProperties has no effect", got)
	}
	if err := send(k.Addrs(), topic, "two"); err != nil {
		t.Fatal(err)
	}

	if err := b.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := send(k.Addrs(), topic, "lost"); err == nil {
		t.Error("a paused broker acknowledges")
	}
	if err := b.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := b.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if err := send(k.Addrs(), topic, "three"); err != nil {
		t.Fatal(err)
	}
	got := values(t, k.Addrs(), topic, 3)
	if want := []string{"one", "two", "three"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}

	data := b.DataDir()
	if err := errors.Join(k.Close(), k.Close()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("after Close %s is still there", data)
	}
	if err := b.Start(ctx); err == nil {
		t.Error("a closed broker starts")
	}
}

func topicConfig(t *testing.T, k *sandbox.Kafka, topic string, names ...string) []string {
	t.Helper()
	admin, err := k.Admin()
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	var got []string
	for _, name := range names {
		entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{name}})
		if err != nil || len(entries) != 1 {
			t.Fatalf("asking for %s: %v, %v", name, entries, err)
		}
		got = append(got, entries[0].Value)
	}
	return got
}

func TestKafkaOfThreeBrokersLivesOnWithoutOne(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Brokers: 3})
	if got := len(k.Addrs()); got != 3 {
		t.Fatalf("got %d addresses, want 3", got)
	}
	topic := k.NewTopic(t, 1, nil)
	if got := topicConfig(t, k, topic, "min.insync.replicas"); got[0] != "2" {
		t.Errorf("min.insync.replicas is %s, want 2", got[0])
	}
	leader, err := k.Leader(ctx, topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := inSync(t, k, topic); got != 3 {
		t.Errorf("got %d replicas in sync, want 3", got)
	}
	if err := k.Broker(leader).Kill(); err != nil {
		t.Fatal(err)
	}
	next, err := k.Leader(ctx, topic, 0)
	if err != nil || next == leader {
		t.Fatalf("after the kill of leader %d, broker %d leads, %v; want another", leader, next, err)
	}
	k.NewTopic(t, 3, nil) // with a broker missing
	eventually(t, "a record is taken by the other two", func() bool { return send(k.Addrs(), topic, "x") == nil })
	if err := k.Broker(leader).Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := k.WaitInSync(ctx, topic); err != nil {
		t.Fatal(err)
	}
	if got := inSync(t, k, topic); got != 3 {
		t.Errorf("after WaitInSync %d replicas are in sync, want 3", got)
	}
	if err := k.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := k.Start(ctx); err != nil {
		t.Fatalf("starting the whole cluster again: %v", err)
	}
	// No offset is told before the first fetches of the followers.
	eventually(t, "the new leader tells offsets", func() bool { return readable(k.Addrs(), topic) })
	if got := values(t, k.Addrs(), topic, 1); got[0] != "x" {
		t.Errorf("got %q, want x", got)
	}
	if err := k.Stop(ctx); err != nil {
		t.Errorf("stopping the whole cluster: %v", err)
	}
	for id := 1; id <= 3; id++ {
		if k.Broker(id).Running() {
			t.Errorf("after Stop broker %d runs", id)
		}
	}
	if err := k.Start(ctx); err != nil {
		t.Fatalf("starting the stopped cluster again: %v", err)
	}
	eventually(t, "the record is still there", func() bool { return readable(k.Addrs(), topic) })
	if got := values(t, k.Addrs(), topic, 1); got[0] != "x" {
		t.Errorf("got %q, want x", got)
	}
}

func inSync(t *testing.T, k *sandbox.Kafka, topic string) int {
	t.Helper()
	admin, err := k.Admin()
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	m, err := admin.DescribeTopics([]string{topic})
	if err != nil || len(m) != 1 || len(m[0].Partitions) != 1 {
		t.Fatalf("describing %s: %v, %v", topic, m, err)
	}
	return len(m[0].Partitions[0].Isr)
}

func TestKafkaClientsPassThroughTheProxies(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Proxied: true})
	p := k.Broker(1).Proxy()
	if k.Addrs()[0] != p.Addr() {
		t.Fatalf("the cluster's address is %s, want the proxy's %s", k.Addrs()[0], p.Addr())
	}
	topic := k.NewTopic(t, 1, nil)
	before := p.Stats()
	if before.ToServer != 0 {
		t.Errorf("the sandbox's own questions passed the proxy: %+v", before)
	}
	value := strings.Repeat("v", 5000)
	if err := send(k.Addrs(), topic, value); err != nil {
		t.Fatal(err)
	}
	// The record goes to the address that the broker advertises, not to the first one only.
	if after := p.Stats(); after.ToServer < int64(len(value)) {
		t.Errorf("%d bytes passed the proxy, want the record's %d", after.ToServer, len(value))
	}
	p.Freeze()
	if err := send(k.Addrs(), topic, "frozen"); err == nil {
		t.Error("a record was acknowledged through a frozen proxy")
	}
	p.Thaw()
	p.Cut()
	if err := send(k.Addrs(), topic, "thawed"); err != nil {
		t.Error(err)
	}
}

func TestKafkaFormatArgsAndStartError(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{
		FormatArgs: []string{"--feature", "transaction.version=1"},
		Benchmark:  true,
	})
	k.NewTopic(t, 1, nil)
	_, err := sandbox.StartKafka(testContext(t), sandbox.KafkaOptions{Properties: map[string]string{"num.io.threads": "many"}})
	if err == nil {
		t.Fatal("a broker with a bad property starts")
	}
	if !strings.Contains(err.Error(), "num.io.threads") {
		t.Errorf("the error does not show what the broker says: %v", err)
	}
	if _, err := sandbox.StartKafka(testContext(t), sandbox.KafkaOptions{Brokers: 2}); err == nil {
		t.Error("a cluster of 2 brokers starts")
	}
}

func TestCreateTopicReportsTheBrokersRefusal(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic := k.NewTopic(t, 1, nil)
	if err := k.CreateTopic(t.Context(), topic, 1, 0, nil); !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		t.Errorf("a second topic of that name: got %v, want ErrTopicAlreadyExists", err)
	}
	if err := k.CreateTopic(t.Context(), topic+"-3", 1, 3, nil); !errors.Is(err, sarama.ErrInvalidReplicationFactor) {
		t.Errorf("3 replicas on 1 broker: got %v, want ErrInvalidReplicationFactor", err)
	}
}

func TestSharedKafkaTakesRecords(t *testing.T) {
	t.Parallel()
	k := sandbox.SharedKafka(t)
	topic := k.NewTopic(t, 1, nil)
	if err := send(k.Addrs(), topic, "shared"); err != nil {
		t.Fatal(err)
	}
	if got := values(t, k.Addrs(), topic, 1); got[0] != "shared" {
		t.Errorf("got %q, want shared", got)
	}
	if sandbox.SharedKafka(t) != k {
		t.Error("SharedKafka gives another cluster the second time")
	}
}

func TestKafkaClientListenerTakesALogin(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Properties: map[string]string{
		"listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"sasl.enabled.mechanisms":        "PLAIN",
		"listener.name.client.plain.sasl.jaas.config": `org.apache.kafka.common.security.plain.PlainLoginModule ` +
			`required user_relay="secret";`,
	}})
	topic := k.NewTopic(t, 1, nil)
	login := func(password string) func(*sarama.Config) {
		return func(c *sarama.Config) {
			c.Net.SASL.Enable, c.Net.SASL.User, c.Net.SASL.Password = true, "relay", password
		}
	}
	if err := send(k.Addrs(), topic, "x", login("secret")); err != nil {
		t.Errorf("with the login: %v", err)
	}
	if err := send(k.Addrs(), topic, "x", login("wrong")); err == nil {
		t.Error("a wrong password is taken")
	}
}
