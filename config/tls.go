package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// Values of TLS.Mode.
const (
	TLSDisabled       = "disabled"
	TLSPreferred      = "preferred"
	TLSRequired       = "required"
	TLSVerifyCA       = "verify-ca"
	TLSVerifyIdentity = "verify-identity"
)

// TLS says whether a connection is encrypted and what is verified.
type TLS struct {
	// Mode is disabled, preferred (encrypt if the server can), required
	// (encrypt, verify nothing), verify-ca (verify the chain) or
	// verify-identity (chain and host name).
	Mode string `yaml:"mode" oneof:"disabled preferred required verify-ca verify-identity"`
	// CA is a PEM file; empty means the system's roots.
	CA string `yaml:"ca"`
	// Cert and Key are PEM files of the client's certificate; both or none.
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// Config reads the files and returns the settings for a connection to host, or
// nil if Mode is disabled. Call it at each connect to pick up renewed files.
func (t TLS) Config(host string) (*tls.Config, error) {
	if t.Mode == TLSDisabled {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("reading the CA file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA file %s holds no PEM certificate", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("reading the client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	switch t.Mode {
	case TLSVerifyIdentity:
	case TLSVerifyCA:
		// The standard check cannot leave out the host name alone, so it is
		// switched off and the chain is verified here.
		c.InsecureSkipVerify = true
		roots := c.RootCAs
		c.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(s, roots) }
	default:
		c.InsecureSkipVerify = true
	}
	return c, nil
}

func verifyChain(s tls.ConnectionState, roots *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the server sent no certificate")
	}
	opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, cert := range s.PeerCertificates[1:] {
		opts.Intermediates.AddCert(cert)
	}
	_, err := s.PeerCertificates[0].Verify(opts)
	return err
}
