package conn

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
)

// scram is the client side of SCRAM (RFC 5802, RFC 7677) without channel binding, as Kafka speaks it: brokers take the bytes of the
// password as they are, without SASLprep. It implements sarama.SCRAMClient.
type scram struct {
	newHash func() hash.Hash
	size    int

	user, password, authz string
	nonce                 string
	firstBare             string
	serverSignature       []byte
	step                  int
	done                  bool
}

// serverError is the refusal of a server in the exchange itself (RFC 5802, section 7). Kafka's brokers refuse with a code instead.
type serverError struct{ code string }

func (e *serverError) Error() string { return fmt.Sprintf("SCRAM: server says %q", e.code) }

const (
	scramMinIterations = 4096
	scramMaxIterations = 1 << 20
)

func newSCRAM256() *scram { return &scram{newHash: sha256.New, size: sha256.Size} }
func newSCRAM512() *scram { return &scram{newHash: sha512.New, size: sha512.Size} }

// Begin starts an exchange.
func (s *scram) Begin(user, password, authz string) error {
	raw := make([]byte, 24)
	if _, err := rand.Read(raw); err != nil {
		return err
	}
	s.user, s.password, s.authz = user, password, authz
	s.nonce = base64.RawStdEncoding.EncodeToString(raw)
	s.step, s.done = 0, false
	return nil
}

// Step answers a message of the server; the first call has none.
func (s *scram) Step(challenge string) (string, error) {
	s.step++
	switch s.step {
	case 1:
		return s.first(), nil
	case 2:
		return s.final(challenge)
	case 3:
		return "", s.verify(challenge)
	default:
		return "", errors.New("SCRAM: more messages than the exchange has")
	}
}

// Done tells whether the server has proved that it knows the password.
func (s *scram) Done() bool { return s.done }

func (s *scram) header() string {
	if s.authz == "" {
		return "n,,"
	}
	return "n,a=" + saslName(s.authz) + ","
}

func (s *scram) first() string {
	s.firstBare = "n=" + saslName(s.user) + ",r=" + s.nonce
	return s.header() + s.firstBare
}

func (s *scram) final(challenge string) (string, error) {
	f := attributes(challenge)
	if e := f["e"]; e != "" {
		return "", &serverError{e}
	}
	if !strings.HasPrefix(f["r"], s.nonce) || len(f["r"]) == len(s.nonce) {
		return "", errors.New("SCRAM: the server's nonce does not continue ours")
	}
	salt, err := base64.StdEncoding.DecodeString(f["s"])
	if err != nil || len(salt) == 0 {
		return "", errors.New("SCRAM: bad salt")
	}
	n, err := strconv.Atoi(f["i"])
	if err != nil || n < scramMinIterations || n > scramMaxIterations {
		return "", fmt.Errorf("SCRAM: %q iterations", f["i"])
	}
	salted, err := pbkdf2.Key(s.newHash, s.password, salt, n, s.size)
	if err != nil {
		return "", err
	}
	bare := "c=" + base64.StdEncoding.EncodeToString([]byte(s.header())) + ",r=" + f["r"]
	message := []byte(s.firstBare + "," + challenge + "," + bare)
	clientKey := s.mac(salted, []byte("Client Key"))
	stored := s.newHash()
	stored.Write(clientKey)
	proof := s.mac(stored.Sum(nil), message)
	for i := range proof {
		proof[i] ^= clientKey[i]
	}
	s.serverSignature = s.mac(s.mac(salted, []byte("Server Key")), message)
	return bare + ",p=" + base64.StdEncoding.EncodeToString(proof), nil
}

func (s *scram) verify(challenge string) error {
	f := attributes(challenge)
	if e := f["e"]; e != "" {
		return &serverError{e}
	}
	signature, err := base64.StdEncoding.DecodeString(f["v"])
	if err != nil || !hmac.Equal(signature, s.serverSignature) {
		return errors.New("SCRAM: the server does not know the password")
	}
	s.done = true
	return nil
}

func (s *scram) mac(key, data []byte) []byte {
	h := hmac.New(s.newHash, key)
	h.Write(data)
	return h.Sum(nil)
}

// attributes reads `a=1,b=2`.
func attributes(message string) map[string]string {
	f := make(map[string]string)
	for part := range strings.SplitSeq(message, ",") {
		if name, value, ok := strings.Cut(part, "="); ok {
			f[name] = value
		}
	}
	return f
}

// saslName escapes a name as RFC 5802 section 5.1 asks.
func saslName(name string) string { return strings.NewReplacer("=", "=3D", ",", "=2C").Replace(name) }
