package conn

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/IBM/sarama"
)

const oauthBearer = "oauthbearer"

// SASL says how to authenticate to brokers.
type SASL struct {
	// Mechanism is plain, scram-sha-256, scram-sha-512 or oauthbearer; "" is off.
	Mechanism string
	User      string
	// Secret gives the password, or the token for oauthbearer. It is called at each connect, so a changed secret needs no restart. It must
	// end when ctx does.
	Secret func(ctx context.Context) (string, error)
}

// Validate names what is missing or unknown.
func (s SASL) Validate() error {
	switch s.Mechanism {
	case "":
		return nil
	case "plain", "scram-sha-256", "scram-sha-512":
		if s.User == "" {
			return fmt.Errorf("kafka: SASL %s needs a user", s.Mechanism)
		}
	case oauthBearer:
	default:
		return fmt.Errorf("kafka: SASL mechanism %q is not one of plain, scram-sha-256, scram-sha-512, oauthbearer", s.Mechanism)
	}
	if s.Secret == nil {
		return fmt.Errorf("kafka: SASL %s needs a secret", s.Mechanism)
	}
	return nil
}

// apply reads the secret and sets it in c.
func (s SASL) apply(ctx context.Context, c *sarama.Config) error {
	if s.Mechanism == "" {
		return nil
	}
	secret, err := s.Secret(ctx)
	if err != nil {
		return err
	}
	if secret == "" {
		return errors.New("the secret is empty")
	}
	sasl := &c.Net.SASL
	sasl.Enable = true
	sasl.Handshake = true
	sasl.Version = sarama.SASLHandshakeV1
	sasl.User, sasl.Password = s.User, secret
	switch s.Mechanism {
	case "plain":
		sasl.Mechanism = sarama.SASLTypePlaintext
	case oauthBearer:
		sasl.Mechanism = sarama.SASLTypeOAuth
		sasl.TokenProvider = newToken(ctx, s.Secret, secret)
	case "scram-sha-256":
		sasl.Mechanism = sarama.SASLTypeSCRAMSHA256
		sasl.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return newSCRAM256() }
	case "scram-sha-512":
		sasl.Mechanism = sarama.SASLTypeSCRAMSHA512
		sasl.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return newSCRAM512() }
	}
	return nil
}

// token gives the secret that was read for the connection, and reads it anew for the repeated authentications of a long one.
type token struct {
	ctx    context.Context
	secret func(context.Context) (string, error)
	first  atomic.Pointer[string]
	last   atomic.Pointer[string]
}

func newToken(ctx context.Context, secret func(context.Context) (string, error), first string) *token {
	t := &token{ctx: ctx, secret: secret}
	t.first.Store(&first)
	return t
}

// Token implements sarama.AccessTokenProvider.
func (t *token) Token() (*sarama.AccessToken, error) {
	if s := t.first.Swap(nil); s != nil {
		t.last.Store(s)
		return &sarama.AccessToken{Token: *s}, nil
	}
	s, err := t.secret(t.ctx)
	if err != nil {
		return nil, err
	}
	t.last.Store(&s)
	return &sarama.AccessToken{Token: s}, nil
}
