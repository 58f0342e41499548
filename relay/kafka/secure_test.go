package kafka_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka"
)

// guarded is a broker with a listener for each way to come in.
type guarded struct {
	*sandbox.Kafka
	ca, other *sandbox.Authority
	client    sandbox.Certificate
	topic     string
}

const password = "right,=pass"

func runGuarded(t *testing.T) *guarded {
	t.Helper()
	ca, other := sandbox.NewAuthority(t, "ours"), sandbox.NewAuthority(t, "theirs")
	server, expired, elsewhere := ca.Issue(sandbox.CertificateOptions{Name: "broker"}), ca.Issue(sandbox.CertificateOptions{Name: "broker", Expired: true}),
		ca.Issue(sandbox.CertificateOptions{Name: "broker", Hosts: []string{"kafka.example"}})
	users := map[string]string{"relay": password}
	all := []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"}
	g := &guarded{ca: ca, other: other, client: ca.Issue(sandbox.CertificateOptions{Name: "relay"})}
	g.Kafka = sandbox.RunKafka(t, sandbox.KafkaOptions{Listeners: map[string]sandbox.KafkaListener{
		"TLS": {Certificate: &server}, "EXPIRED": {Certificate: &expired}, "ELSEWHERE": {Certificate: &elsewhere},
		"MUTUAL": {Certificate: &server, ClientCA: ca.CAFile()},
		"BOTH":   {Certificate: &server, Mechanisms: all, Users: users},
		"LOGIN":  {Mechanisms: all, Users: users},
		"SCRAM":  {Mechanisms: []string{"SCRAM-SHA-512"}},
		"SHORT":  {Mechanisms: all, Users: users, Reauthenticate: 2 * time.Second},
	}})
	if err := g.SetUser(context.Background(), "relay", password); err != nil {
		t.Fatal(err)
	}
	g.topic = g.NewTopic(t, 1, nil)
	return g
}

// trusting is a configuration that verifies all, with a certificate of the client if there is one.
func trusting(t *testing.T, ca *sandbox.Authority, own *sandbox.Certificate) func(string) (*tls.Config, error) {
	return func(string) (*tls.Config, error) {
		c := ca.ClientConfig()
		if own != nil {
			pair, err := tls.LoadX509KeyPair(own.CertFile, own.KeyFile)
			if err != nil {
				return nil, err
			}
			c.Certificates = []tls.Certificate{pair}
		}
		return c, nil
	}
}

func login(mechanism, user, secret string) kafka.SASL {
	return kafka.SASL{Mechanism: mechanism, User: user, Secret: func(context.Context) (string, error) { return secret, nil }}
}

// TestARealBrokerThatDemandsCertificatesAndLogins has one broker for all of them.
func TestARealBrokerThatDemandsCertificatesAndLogins(t *testing.T) {
	t.Parallel()
	g := runGuarded(t)
	t.Run("ways in", func(t *testing.T) { waysIn(t, g) })
	t.Run("a password is changed while the relay runs", func(t *testing.T) { changedPassword(t, g) })
	t.Run("a token is renewed on a long connection", func(t *testing.T) { renewedToken(t, g) })
	t.Run("certificates are renewed while the relay runs", func(t *testing.T) { renewedCertificate(t, g) })
}

// waysIn: each way in works against a real broker, and each wrong one is told in one sentence with what to do.
func waysIn(t *testing.T, g *guarded) {
	t.Parallel()
	mine, theirs := trusting(t, g.ca, nil), trusting(t, g.other, nil)
	foreign := g.other.Issue(sandbox.CertificateOptions{Name: "relay"})
	token := sandbox.UnsecuredToken("relay", time.Now().Add(time.Hour))
	old := sandbox.UnsecuredToken("relay", time.Now().Add(-10*time.Minute))
	broken := func(context.Context) (string, error) {
		return "", errors.New("running the password command vault: exit status 2")
	}
	for name, c := range map[string]struct {
		listener string
		tls      func(string) (*tls.Config, error)
		sasl     kafka.SASL
		want     string // empty: it publishes
	}{
		"plain text":              {listener: "CLIENT"},
		"TLS":                     {listener: "TLS", tls: mine},
		"TLS that verifies names": {listener: "TLS", tls: mine},
		"TLS without a look":      {listener: "EXPIRED", tls: secured(&tls.Config{InsecureSkipVerify: true})},
		"client certificate":      {listener: "MUTUAL", tls: trusting(t, g.ca, &g.client)},
		"PLAIN":                   {listener: "LOGIN", sasl: login("plain", "relay", password)},
		"SCRAM-SHA-256":           {listener: "LOGIN", sasl: login("scram-sha-256", "relay", password)},
		"SCRAM-SHA-512":           {listener: "LOGIN", sasl: login("scram-sha-512", "relay", password)},
		"OAUTHBEARER":             {listener: "LOGIN", sasl: login("oauthbearer", "", token)},
		"PLAIN over TLS":          {listener: "BOTH", tls: mine, sasl: login("plain", "relay", password)},
		"SCRAM over TLS":          {listener: "BOTH", tls: mine, sasl: login("scram-sha-512", "relay", password)},
		"OAUTHBEARER over TLS":    {listener: "BOTH", tls: mine, sasl: login("oauthbearer", "", token)},

		"unknown authority": {listener: "TLS", tls: theirs,
			want: "the certificate of the Kafka broker at ADDR is signed by an authority that is not trusted (CN=ours); set kafka.tls.ca to the PEM file of the authority that signed it"},
		"wrong host name": {listener: "ELSEWHERE", tls: mine,
			want: "the certificate of the Kafka broker at ADDR is not for the host 127.0.0.1 but for kafka.example; use a name of the certificate in kafka.brokers and the brokers' advertised.listeners, have the certificate issued for this host, or set kafka.tls.mode to verify-ca, which does not look at names"},
		"expired certificate": {listener: "EXPIRED", tls: mine,
			want: "the certificate of the Kafka broker at ADDR has expired at TIME; have the server's certificate renewed, or correct the clock of this host"},
		"no client certificate": {listener: "MUTUAL", tls: mine,
			want: "the Kafka broker at ADDR demands a certificate of the client; set kafka.tls.cert and kafka.tls.key"},
		"a client certificate that the broker does not trust": {listener: "MUTUAL", tls: trusting(t, g.ca, &foreign),
			want: "the Kafka broker at ADDR refuses the client's certificate (ALERT); check that the authority which signed kafka.tls.cert is among those that the server trusts, and that it is for clients and has not expired"},
		"plain text to a port with TLS": {listener: "TLS",
			want: "the Kafka broker at ADDR speaks TLS on this port but kafka.tls.mode is disabled; set kafka.tls.mode to verify-identity, or use its port without TLS"},
		"TLS to a port without": {listener: "CLIENT", tls: mine,
			want: "the Kafka broker at ADDR speaks no TLS on this port but kafka.tls.mode demands it; use its TLS port, or set kafka.tls.mode to disabled"},
		"TLS and a login to a port with a login alone": {listener: "LOGIN", tls: mine, sasl: login("plain", "relay", password),
			want: "the Kafka broker at ADDR speaks no TLS on this port but kafka.tls.mode demands it; use its TLS port, or set kafka.tls.mode to disabled"},
		"wrong password of PLAIN": {listener: "LOGIN", sasl: login("plain", "relay", "wrong"),
			want: `the Kafka broker at ADDR refuses the login of user "relay" by plain: Authentication failed: Invalid username or password; check kafka.sasl.user and kafka.sasl.password, and that the user exists for this mechanism`},
		"wrong password of SCRAM": {listener: "LOGIN", sasl: login("scram-sha-256", "relay", "wrong"),
			want: `the Kafka broker at ADDR refuses the login of user "relay" by scram-sha-256: Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256; check kafka.sasl.user and kafka.sasl.password, and that the user exists for this mechanism`},
		"unknown user": {listener: "LOGIN", sasl: login("scram-sha-512", "nobody", password),
			want: `the Kafka broker at ADDR refuses the login of user "nobody" by scram-sha-512: Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-512; check kafka.sasl.user and kafka.sasl.password, and that the user exists for this mechanism`},
		"wrong mechanism": {listener: "SCRAM", sasl: login("plain", "relay", password),
			want: "the Kafka broker at ADDR does not offer the mechanism plain on this port; set kafka.sasl.mechanism to one that its sasl.enabled.mechanisms names"},
		"a login where none is taken": {listener: "CLIENT", sasl: login("plain", "relay", password),
			want: "the Kafka broker at ADDR takes no login on this port; use its port with SASL, or drop kafka.sasl"},
		"no login where one is demanded": {listener: "LOGIN",
			want: "the Kafka broker at ADDR demands a login on this port, or ends the connection for another reason of its own; set kafka.sasl, or see the broker's log"},
		"expired token": {listener: "LOGIN", sasl: login("oauthbearer", "", old),
			want: `the Kafka broker at ADDR refuses the token of kafka.sasl, which has expired at TIME: Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER; check what gives the token`},
		"something that is no token": {listener: "LOGIN", sasl: login("oauthbearer", "", "nonsense"),
			want: `the Kafka broker at ADDR refuses the token of kafka.sasl: Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER; check what gives the token`},
		"a secret that cannot be had": {listener: "LOGIN", sasl: kafka.SASL{Mechanism: "plain", User: "relay", Secret: broken},
			want: "connecting to the Kafka broker at ADDR: the secret cannot be read: running the password command vault: exit status 2; check kafka.sasl.password_file and kafka.sasl.password_command"},
		"a file that cannot be read": {listener: "TLS", tls: func(string) (*tls.Config, error) { _, err := os.ReadFile("/no/such/file"); return nil, err },
			want: "connecting to the Kafka broker at ADDR: a TLS file cannot be read: open /no/such/file: no such file or directory; check kafka.tls"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addrs := g.ListenerAddrs(c.listener)
			if c.listener == "CLIENT" {
				addrs = g.Addrs()
			}
			change := func(o *kafka.Options) { o.TLS, o.SASL = c.tls, c.sasl }
			if c.want == "" {
				h := start(t, addrs, change)
				h.publish(g.topic, 1, 10)
				h.p.Flush()
				h.awaitAcked(10, time.Minute)
				return
			}
			o := kafka.Options{Brokers: addrs}
			change(&o)
			in, err := kafka.Inspect(t.Context(), o, nil)
			said := kafka.Explain(o, addrs[0], err)
			if in.Seeds[0].Err != nil {
				said = kafka.Explain(o, addrs[0], in.Seeds[0].Err)
			}
			same(t, "the look at the cluster", said, c.want, addrs[0])
			h := start(t, addrs, change)
			h.publish(g.topic, 1, 1)
			s := h.awaitStats("a reason", time.Minute, func(s kafka.Stats) bool { return s.NoProducerID != "" })
			same(t, "the publisher", s.NoProducerID, c.want, addrs[0])
			if h.ackedCount() != 0 {
				t.Error("it publishes")
			}
		})
	}
}

// same compares a sentence with the wanted one, in which ADDR, TIME and ALERT stand for what differs.
func same(t *testing.T, who, said, want, addr string) {
	t.Helper()
	rest, ok := said, true
	for i, part := range strings.FieldsFunc(strings.NewReplacer("ADDR", addr, "TIME", "\x00", "ALERT", "\x00").Replace(want), func(r rune) bool { return r == 0 }) {
		at := strings.Index(rest, part)
		ok = ok && at >= 0 && (i > 0 || at == 0)
		rest = rest[max(at, 0)+min(len(part), len(rest)-max(at, 0)):]
	}
	if !ok || rest != "" {
		t.Errorf("%s says\n%s\nand not\n%s", who, said, want)
	}
}

// changedPassword: a password that is changed at the broker and then in its file is taken without a restart, on connections that were in use, too.
func changedPassword(t *testing.T, g *guarded) {
	t.Parallel()
	if err := g.SetUser(context.Background(), "changing", password); err != nil {
		t.Fatal(err)
	}
	topic := g.NewTopic(t, 1, nil)
	var secret atomic.Value
	secret.Store(password)
	h := start(t, g.ListenerAddrs("SHORT"), func(o *kafka.Options) {
		o.SASL = kafka.SASL{Mechanism: "scram-sha-256", User: "changing", Secret: func(context.Context) (string, error) { return secret.Load().(string), nil }}
	})
	h.publish(topic, 1, 10)
	h.p.Flush()
	h.awaitAcked(10, time.Minute)
	if err := g.SetUser(context.Background(), "changing", "another"); err != nil {
		t.Fatal(err)
	}
	n, changed := 10, time.Now()
	ended := func(s kafka.Stats) bool {
		return s.LastErrorAt.After(changed) && strings.Contains(s.LastError.Error(), "refuses the login")
	}
	for !ended(h.p.Stats()) { // until the login on the old connection has ended
		h.publish(topic, 1, 1)
		h.p.Flush()
		n++
		time.Sleep(50 * time.Millisecond)
		if time.Since(changed) > time.Minute {
			t.Fatal("the login never ends")
		}
	}
	secret.Store("another")
	h.awaitAcked(n, time.Minute)
	h.drain(time.Minute)
	h.stop()
	h.brokers = g.Addrs()
	h.verify(topic)
}

// renewedToken: a token is short-lived, and the connection goes on with the next one.
func renewedToken(t *testing.T, g *guarded) {
	t.Parallel()
	var asked atomic.Int64
	h := start(t, g.ListenerAddrs("SHORT"), func(o *kafka.Options) {
		o.SASL = kafka.SASL{Mechanism: "oauthbearer", Secret: func(context.Context) (string, error) {
			asked.Add(1)
			return sandbox.UnsecuredToken("relay", time.Now().Add(3*time.Second)), nil
		}}
	})
	h.publish(g.topic, 1, 1)
	h.p.Flush()
	h.awaitAcked(1, time.Minute)
	for n, first := 1, asked.Load(); asked.Load() < first+2; n++ {
		h.publish(g.topic, 1, 1)
		h.p.Flush()
		h.awaitAcked(n+1, time.Minute)
		time.Sleep(20 * time.Millisecond)
	}
	if err := h.p.Stats().LastError; err != nil {
		t.Errorf("the renewal is felt: %v", err)
	}
}

// renewedCertificate: certificates are renewed in their files, and the next connection takes the new ones.
func renewedCertificate(t *testing.T, g *guarded) {
	t.Parallel()
	expired := g.ca.Issue(sandbox.CertificateOptions{Name: "relay", Expired: true})
	var own atomic.Pointer[sandbox.Certificate]
	own.Store(&expired)
	h := start(t, g.ListenerAddrs("MUTUAL"), func(o *kafka.Options) {
		o.TLS = func(host string) (*tls.Config, error) { return trusting(t, g.ca, own.Load())(host) }
	})
	h.publish(g.topic, 1, 10)
	h.p.Flush()
	h.awaitStats("the refusal", time.Minute, func(s kafka.Stats) bool {
		return s.LastError != nil && strings.Contains(s.LastError.Error(), "refuses the client's certificate")
	})
	own.Store(&g.client)
	h.awaitAcked(10, time.Minute)
}

// A wrong port can be anything: its first bytes are no length to make room for.
func TestAnAnswerOfAnotherProtocolIsNamed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			defer c.Close()
		}
	}()
	o := kafka.Options{Brokers: []string{l.Addr().String()}}
	in, _ := kafka.Inspect(t.Context(), o, nil)
	want := "what listens at ADDR is no Kafka broker: the answer is one of HTTP; correct kafka.brokers"
	same(t, "the look at the cluster", in.Seeds[0].Err.Error(), want, l.Addr().String())
}
