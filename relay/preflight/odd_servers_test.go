package preflight_test

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka"
	"outbox-relay/relay/preflight"
)

// listen accepts connections and gives each to f.
func listen(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f(c)
		}
	}()
	return l.Addr().String()
}

func TestServersThatDoNotTalk(t *testing.T) {
	t.Parallel()
	silent := listen(t, func(c net.Conn) { t.Cleanup(func() { c.Close() }) })
	o := options(t)
	o.Login.Timeout = 300 * time.Millisecond
	o.Addresses, o.Kafka.Brokers = []string{silent}, []string{silent}
	r := run(t, o)
	expect(t, r, "source", "login", preflight.Failed, "MySQL at "+silent+" does not answer in time")
	expect(t, r, "kafka", "broker "+silent, preflight.Failed, "does not answer in time")

	closing := listen(t, func(c net.Conn) { c.Close() })
	o.Addresses, o.Kafka.Brokers = []string{closing}, []string{closing}
	r = run(t, o)
	expect(t, r, "source", "login", preflight.Failed, "MySQL at "+closing+" ends the connection during the login")
	expect(t, r, "kafka", "broker "+closing, preflight.Failed, "closes the connection: it may demand TLS (kafka.tls) or a login (kafka.sasl)")
}

func TestTLSForABrokerThatHasNone(t *testing.T) {
	t.Parallel()
	at := sandbox.SharedKafka(t).Addrs()[0]
	o := options(t)
	o.Kafka = kafka.Options{Brokers: []string{at}, TLS: func(string) (*tls.Config, error) { return &tls.Config{InsecureSkipVerify: true}, nil }} //nolint:gosec // there is nothing to verify
	expect(t, run(t, o), "kafka", "broker "+at, preflight.Failed, "speaks no TLS on this port but kafka.tls.mode demands it; use its TLS port, or set kafka.tls.mode to disabled")
}
