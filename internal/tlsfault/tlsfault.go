// Package tlsfault tells why a TLS handshake failed and what to do, in words for operators. It knows the errors of the standard library alone:
// which server it was and how its settings are called is the caller's knowledge.
package tlsfault

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Fault is what went wrong with a certificate.
type Fault struct {
	// Kind is one of unknown_authority, host_name, expired, certificate, client_certificate and protocol: the same for the same cause.
	Kind string
	// What goes on after "the certificate of the server" or, for the kinds client_certificate and protocol, after "the server".
	What string
	// Do says what to do.
	Do string
}

// Client tells whether it is the server that refuses.
func (f Fault) Client() bool { return f.Kind == "client_certificate" || f.Kind == "protocol" }

// Find looks for a cause in an error of a handshake or of the first read after it. key is the section of the configuration, such as
// kafka.tls; hosts is the setting that names the server; own tells whether a certificate of the client is configured.
func Find(err error, key, hosts string, own bool) (Fault, bool) {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verify *tls.CertificateVerificationError
	var remote *net.OpError
	switch {
	case errors.As(err, &unknown):
		return Fault{"unknown_authority", "is signed by an authority that is not trusted" + signer(unknown.Cert),
			fmt.Sprintf("set %s.ca to the PEM file of the authority that signed it", key)}, true
	case errors.As(err, &name):
		return Fault{"host_name", fmt.Sprintf("is not for the host %s%s", name.Host, names(name.Certificate)),
			fmt.Sprintf("use a name of the certificate in %s, have the certificate issued for this host, or set %s.mode to verify-ca, which does not look at names", hosts, key)}, true
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return Fault{"expired", validity(invalid.Cert), "have the server's certificate renewed, or correct the clock of this host"}, true
	case errors.As(err, &invalid):
		return Fault{"certificate", "is not accepted: " + invalid.Error(), fmt.Sprintf("check it and %s.ca", key)}, true
	case errors.As(err, &verify):
		return Fault{"certificate", "is not accepted: " + verify.Err.Error(), fmt.Sprintf("check it and %s.ca", key)}, true
	case errors.As(err, &remote) && remote.Op == "remote error":
		return alert(remote.Err.Error(), key, own), true
	}
	// Some libraries keep the text of a cause alone.
	if _, text, ok := strings.Cut(err.Error(), "remote error: tls: "); ok {
		return alert(text, key, own), true
	}
	return Fault{}, false
}

// alert reads the word of the other side (RFC 8446, section 6). The library has no type for it.
func alert(text, key string, own bool) Fault {
	text = strings.TrimPrefix(text, "tls: ")
	switch {
	case strings.Contains(text, "protocol version"):
		return Fault{"protocol", "speaks no TLS version that this relay takes (1.2 and 1.3)", "enable TLS 1.2 or 1.3 on the server"}
	case !own:
		return Missing(key)
	}
	return Fault{"client_certificate", "refuses the client's certificate (" + text + ")",
		fmt.Sprintf("check that the authority which signed %s.cert is among those that the server trusts, and that it is for clients and has not expired", key)}
}

// Missing is the fault that the server demands a certificate of the client and none is configured.
func Missing(key string) Fault {
	return Fault{"client_certificate", "demands a certificate of the client", fmt.Sprintf("set %s.cert and %s.key", key, key)}
}

func signer(c *x509.Certificate) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf(" (%s)", c.Issuer)
}

func names(c *x509.Certificate) string {
	if c == nil {
		return ""
	}
	list := append([]string(nil), c.DNSNames...)
	for _, ip := range c.IPAddresses {
		list = append(list, ip.String())
	}
	if len(list) == 0 {
		return " and names none"
	}
	return " but for " + strings.Join(list, ", ")
}

func validity(c *x509.Certificate) string {
	if c == nil {
		return "has expired or is not valid yet"
	}
	if now := time.Now(); now.Before(c.NotBefore) {
		return "is valid only from " + c.NotBefore.UTC().Format(time.RFC3339)
	}
	return "has expired at " + c.NotAfter.UTC().Format(time.RFC3339)
}
