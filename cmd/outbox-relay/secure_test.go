package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/relaytest"
)

// A relay whose source and brokers demand certificates and logins publishes; a password that is changed at the brokers is told in one sentence, and
// heals when its file follows, without a restart.
func TestARelayAmidCertificatesAndLogins(t *testing.T) {
	t.Parallel()
	ca := sandbox.NewAuthority(t, "ours")
	server, own := ca.Issue(sandbox.CertificateOptions{Name: "server"}), ca.Issue(sandbox.CertificateOptions{Name: "relay"})
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Certificate: &server, ClientCA: ca.CAFile(), Args: []string{"--require-secure-transport=ON"}})
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Authorizer: true, Listeners: map[string]sandbox.KafkaListener{
		"BOTH": {Certificate: &server, ClientCA: ca.CAFile(), Mechanisms: []string{"SCRAM-SHA-512"}, Reauthenticate: 2 * time.Second},
	}})
	ctx := context.Background()
	if err := k.SetUser(ctx, "relay", "first password"); err != nil {
		t.Fatal(err)
	}
	topic, broker := k.NewTopic(t, 1, nil), k.ListenerAddrs("BOTH")[0]
	for _, operation := range []sarama.AclOperation{sarama.AclOperationWrite, sarama.AclOperationDescribe, sarama.AclOperationDescribeConfigs} {
		if err := k.Grant(sandbox.ACL{User: "relay", Resource: "topic", Name: topic, Operation: operation}); err != nil {
			t.Fatal(err)
		}
	}
	mysqlExec(t, m, "ALTER USER relay@'%' REQUIRE X509", "CREATE DATABASE app", "CREATE TABLE app.o "+outboxColumns)
	s := newSite(t, "")
	file := s.write("password", "first password\n")
	secure := fmt.Sprintf("{mode: verify-identity, ca: %q, cert: %q, key: %q}", ca.CAFile(), own.CertFile, own.KeyFile)
	s.write("outbox-relay.yaml", s.read("outbox-relay.yaml")+fmt.Sprintf(`source: {address: %q, user: relay, password: relay, start: latest, heartbeat: 500ms, tls: %s}
kafka: {brokers: [%q], tls: %s, sasl: {mechanism: scram-sha-512, user: relay, password_file: %q}}
tables:
  - {table: app.o, topic: %s}
`, m.Addr(), secure, broker, secure, file, topic))

	check := s.start("check")
	if code := check.wait(); code != 0 {
		t.Errorf("check: exit code %d:\n%s%s", code, check.out.String(), check.err.String())
	}
	c := s.start("run")
	s.awaitReadyz(c, 200, "active")
	insert := func(id int) {
		mysqlExec(t, m, fmt.Sprintf("INSERT INTO app.o (aggregate_type, aggregate_id, event_type, payload) VALUES ('order', '%d', 'Made', '{}')", id))
	}
	arrived := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			got := 0
			err := relaytest.Consume(ctx, relaytest.ConsumeOptions{Brokers: k.Addrs(), Topics: []string{topic}}, func(relaytest.Message) error { got++; return nil })
			if err == nil && got == n {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d rows, %v; the log:\n%s", got, n, err, c.err.String())
			}
		}
	}
	insert(1)
	arrived(1)

	if err := k.SetUser(ctx, "relay", "second password"); err != nil {
		t.Fatal(err)
	}
	sentence := "the Kafka broker at " + broker + ` refuses the login of user "relay" by scram-sha-512: Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512; ` +
		"check kafka.sasl.user and kafka.sasl.password, and that the user exists for this mechanism"
	s.awaitReadyz(c, 503, sentence) // when the login has lasted its time
	c.awaitLog(strings.ReplaceAll(sentence, `"`, `\"`))
	insert(2)
	check = s.start("check")
	if code := check.wait(); code != 1 || !strings.Contains(check.out.String(), sentence) {
		t.Errorf("check: exit code %d:\n%s", code, check.out.String())
	}
	s.write("password", "second password\n")
	s.awaitReadyz(c, 200, "active")
	arrived(2)
	if code := c.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
