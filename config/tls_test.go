package config_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outbox-relay/config"
)

// pki is a CA with one server certificate for db1, in PEM files.
type pki struct{ ca, cert, key string }

func newPKI(t *testing.T) pki {
	t.Helper()
	dir := t.TempDir()
	caKey, key := newKey(t), newKey(t)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "db1"}, NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"db1"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, kind string, der []byte, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	caDER, caErr := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	leafDER, leafErr := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	return pki{
		ca: file("ca.pem", "CERTIFICATE", caDER, caErr), cert: file("cert.pem", "CERTIFICATE", leafDER, leafErr),
		key: file("key.pem", "EC PRIVATE KEY", keyDER, nil),
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// handshake connects a client with c to a server with the certificate of p.
func handshake(t *testing.T, p pki, c *tls.Config) error {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err != nil {
		t.Fatal(err)
	}
	client, server := net.Pipe()
	defer client.Close()
	go func() { // ends with the client's side of the pipe
		_ = tls.Server(server, &tls.Config{Certificates: []tls.Certificate{pair}}).HandshakeContext(t.Context())
		server.Close()
	}()
	return tls.Client(client, c).HandshakeContext(t.Context())
}

func TestTLSVerifiesWhatTheModeSays(t *testing.T) {
	t.Parallel()
	own, other := newPKI(t), newPKI(t)
	for _, c := range []struct {
		mode, ca, host string
		ok             bool
	}{
		{"preferred", "", "elsewhere", true},
		{"required", other.ca, "elsewhere", true},
		{"verify-ca", own.ca, "elsewhere", true},
		{"verify-ca", other.ca, "db1", false},
		{"verify-ca", "", "db1", false},
		{"verify-identity", own.ca, "db1", true},
		{"verify-identity", own.ca, "elsewhere", false},
		{"verify-identity", other.ca, "db1", false},
		{"verify-identity", "", "db1", false},
	} {
		settings, err := config.TLS{Mode: c.mode, CA: c.ca, Cert: own.cert, Key: own.key}.Config(c.host)
		if err != nil {
			t.Fatal(err)
		}
		if len(settings.Certificates) != 1 {
			t.Errorf("%s: the client's certificate is missing", c.mode)
		}
		if err := handshake(t, own, settings); (err == nil) != c.ok {
			t.Errorf("%s with CA %q and host %s: %v, want success %t", c.mode, c.ca, c.host, err, c.ok)
		}
	}
}

func TestTLSFiles(t *testing.T) {
	t.Parallel()
	p := newPKI(t)
	if c, err := (config.TLS{Mode: "disabled"}).Config("db1"); c != nil || err != nil {
		t.Errorf("disabled gave %v, %v", c, err)
	}
	for want, settings := range map[string]config.TLS{
		"reading the CA file":            {Mode: "verify-ca", CA: p.ca + ".not"},
		"holds no PEM certificate":       {Mode: "verify-ca", CA: p.key},
		"reading the client certificate": {Mode: "required", Cert: p.cert, Key: p.ca},
	} {
		if _, err := settings.Config("db1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
