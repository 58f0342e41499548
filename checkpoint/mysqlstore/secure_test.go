package mysqlstore_test

import (
	"context"
	"crypto/tls"
	"errors"
	"sync/atomic"
	"testing"

	"outbox-relay/checkpoint/mysqlstore"
	"outbox-relay/checkpoint/storetest"
	"outbox-relay/internal/sandbox"
)

// trusting verifies chain and name, and shows a certificate if there is one.
func trusting(ca *sandbox.Authority, own *sandbox.Certificate) func(string) (*tls.Config, error) {
	return func(host string) (*tls.Config, error) {
		c := ca.ClientConfig()
		c.ServerName = host
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

// The ways into a server with certificates, and what is said of the wrong ones.
func TestCertificatesAndLogins(t *testing.T) {
	t.Parallel()
	ca, other := sandbox.NewAuthority(t, "ours"), sandbox.NewAuthority(t, "theirs")
	server, own, foreign := ca.Issue(sandbox.CertificateOptions{Name: "mysql"}), ca.Issue(sandbox.CertificateOptions{Name: "relay"}), other.Issue(sandbox.CertificateOptions{Name: "relay"})
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Certificate: &server, ClientCA: ca.CAFile(), Args: []string{"--require-secure-transport=ON"}})
	if err := m.Exec(t.Context(), "CREATE USER x509@'%' IDENTIFIED BY 'right' REQUIRE X509", "GRANT ALL ON *.* TO x509@'%'"); err != nil {
		t.Fatal(err)
	}
	var password atomic.Value
	password.Store("right")
	store := func(secure func(string) (*tls.Config, error)) *mysqlstore.Store {
		o := options(m, "cp_secure")
		o.User, o.TLS, o.Password = "x509", secure, func(context.Context) (string, error) { return password.Load().(string), nil }
		return open(t, o)
	}
	save := func(secure func(string) (*tls.Config, error)) error {
		return store(secure).Save(t.Context(), storetest.Checkpoint(1))
	}
	if err := save(trusting(ca, &own)); err != nil {
		t.Fatal(err)
	}
	plain := options(m, "cp_secure")
	plain.User, plain.Password = "relay", func(context.Context) (string, error) { return "relay", nil }
	wantHint(t, open(t, plain).Save(t.Context(), storetest.Checkpoint(1)), "require_secure_transport=ON", "set tls.mode to required or stricter")
	wantHint(t, save(trusting(ca, nil)), "Access denied", "whether the account demands TLS or a certificate")
	wantHint(t, save(trusting(other, &own)), m.Addr(), "signed by an authority that is not trusted (CN=ours)", "set tls.ca to the PEM file")
	wantHint(t, save(trusting(ca, &foreign)), m.Addr())
	wantHint(t, save(func(string) (*tls.Config, error) { return nil, errors.New("open /no/such/file") }), "a TLS file cannot be read: open /no/such/file", "check tls")

	// A password that is changed is read again.
	password.Store("wrong")
	s := store(trusting(ca, &own))
	wantHint(t, s.Save(t.Context(), storetest.Checkpoint(2)), "Access denied", "check user and password")
	if err := m.Exec(t.Context(), "ALTER USER x509@'%' IDENTIFIED BY 'wrong'"); err != nil {
		t.Fatal(err)
	}
	if err := s.Save(t.Context(), storetest.Checkpoint(2)); err != nil {
		t.Error(err)
	}
}

// Each plugin for passwords, with TLS and without, where the password crosses the wire encrypted with the server's key.
func TestPluginsForPasswords(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Version: "8.0"})
	for _, plugin := range []string{"mysql_native_password", "sha256_password", "caching_sha2_password"} {
		if err := m.Exec(t.Context(), "CREATE USER "+plugin+"@'%' IDENTIFIED WITH "+plugin+" BY 'right'", "GRANT ALL ON *.* TO "+plugin+"@'%'"); err != nil {
			t.Fatal(err)
		}
		for name, secure := range map[string]func(string) (*tls.Config, error){
			"plain": nil,
			"TLS": func(string) (*tls.Config, error) {
				return &tls.Config{InsecureSkipVerify: true}, nil //nolint:gosec // the mode required
			},
		} {
			o := options(m, fresh())
			o.User, o.TLS, o.Password = plugin, secure, func(context.Context) (string, error) { return "right", nil }
			if err := open(t, o).Save(t.Context(), storetest.Checkpoint(1)); err != nil {
				t.Errorf("%s, %s: %v", plugin, name, err)
			}
			if err := m.Exec(t.Context(), "FLUSH PRIVILEGES"); err != nil { // empties the cache of caching_sha2_password
				t.Fatal(err)
			}
		}
	}
}
