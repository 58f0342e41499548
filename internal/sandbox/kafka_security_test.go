package sandbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/internal/sandbox"
)

// TestListenersThatDemandCertificatesAndLogins: clients that are not the relay's come in as they should, and no others.
func TestListenersThatDemandCertificatesAndLogins(t *testing.T) {
	t.Parallel()
	ca := sandbox.NewAuthority(t, "sandbox")
	server := ca.Issue(sandbox.CertificateOptions{Name: "broker"})
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Authorizer: true, Listeners: map[string]sandbox.KafkaListener{
		"MUTUAL": {Certificate: &server, ClientCA: ca.CAFile()},
		"LOGIN":  {Certificate: &server, Mechanisms: []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"}, Users: map[string]string{"relay": "secret"}},
	}})
	topic := k.NewTopic(t, 1, nil)
	config := func(password string) *sarama.Config {
		c := sarama.NewConfig()
		c.Version = sarama.V3_6_0_0
		c.Metadata.Retry.Max = 0
		c.Net.TLS.Enable, c.Net.TLS.Config = true, ca.ClientConfig()
		c.Net.SASL.Enable, c.Net.SASL.User, c.Net.SASL.Password = true, "relay", password
		return c
	}
	if _, err := sarama.NewClient(k.ListenerAddrs("LOGIN"), config("wrong")); err == nil {
		t.Error("a wrong password is taken")
	}
	if _, err := sarama.NewClient(k.ListenerAddrs("MUTUAL"), func() *sarama.Config { c := config(""); c.Net.SASL.Enable = false; return c }()); err == nil {
		t.Error("no certificate is demanded")
	}
	send := func() error {
		c := config("secret")
		c.Producer.Return.Successes = true
		c.Producer.Retry.Max = 0
		p, err := sarama.NewSyncProducer(k.ListenerAddrs("LOGIN"), c)
		if err != nil {
			return err
		}
		defer p.Close()
		_, _, err = p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("x")})
		return err
	}
	if err := send(); err == nil {
		t.Error("the topic may be written to without a grant")
	}
	right := sandbox.ACL{User: "relay", Resource: "topic", Name: topic, Operation: sarama.AclOperationWrite}
	if err := k.Grant(right); err != nil {
		t.Fatal(err)
	}
	await(t, "the grant", func() bool { return send() == nil })
	if err := k.Revoke(right); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the grant", func() bool { return send() != nil })
	if err := k.SetUser(context.Background(), "relay", "other"); err != nil {
		t.Fatal(err)
	}
}

// await asks until it is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come", what)
		}
	}
}
