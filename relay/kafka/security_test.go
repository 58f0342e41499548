package kafka_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"outbox-relay/relay/kafka"
)

// K21: a wrong password is named, and the right one is taken without a restart.
func TestSASLSecretIsReadAtEachConnect(t *testing.T) {
	t.Parallel()
	for mechanism, name := range map[string]string{"plain": "PLAIN", "scram-sha-256": "SCRAM-SHA-256", "scram-sha-512": "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			_, brokers := fake(t, kfake.SeedTopics(1, "t"), kfake.EnableSASL(), kfake.Superuser(name, "relay", "right,=pass"))
			var secret atomic.Value
			secret.Store("wrong")
			h := start(t, brokers, func(o *kafka.Options) {
				o.SASL = kafka.SASL{Mechanism: mechanism, User: "relay", Secret: func(context.Context) (string, error) { return secret.Load().(string), nil }}
			})
			h.publish("t", 1, 10)
			h.p.Flush()
			h.awaitStats("an error", 5*time.Second, func(s kafka.Stats) bool { return s.LastError != nil })
			if n := h.ackedCount(); n != 0 {
				t.Errorf("%d acknowledged with a wrong password", n)
			}
			secret.Store("right,=pass")
			h.drain(15 * time.Second)
			if n := h.ackedCount(); n != 10 {
				t.Errorf("%d acknowledged", n)
			}
		})
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.StartTLS()
	defer server.Close()
	_, brokers := fake(t, kfake.SeedTopics(1, "t"), kfake.TLS(&tls.Config{Certificates: server.TLS.Certificates}))
	trusted := server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	h := start(t, brokers, func(o *kafka.Options) { o.TLS = secured(&tls.Config{RootCAs: trusted}) })
	h.publish("t", 5, 1000)
	h.drain(10 * time.Second)
	if n := h.ackedCount(); n != 1000 {
		t.Errorf("%d acknowledged", n)
	}
	bad := start(t, brokers, func(o *kafka.Options) { o.TLS = secured(&tls.Config{}) })
	bad.publish("t", 5, 10)
	s := bad.awaitStats("an error", 5*time.Second, func(s kafka.Stats) bool { return s.LastError != nil })
	var unknown *tls.CertificateVerificationError
	if !errors.As(s.LastError, &unknown) {
		t.Errorf("with an unknown certificate: %v", s.LastError)
	}
}

func secured(c *tls.Config) func(string) (*tls.Config, error) {
	return func(string) (*tls.Config, error) { return c, nil }
}
