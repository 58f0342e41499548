package sandbox

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
	"sync"
	"time"
)

// folderTB is the part of testing.TB that an Authority needs.
type folderTB interface {
	TB
	TempDir() string
}

// Authority is a certificate authority of one test, which keeps its files in a folder.
type Authority struct {
	tb   folderTB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	mu     sync.Mutex
	serial int64
}

// Certificate is a certificate with its key, in PEM files and as a server wants it.
type Certificate struct {
	// CertFile and KeyFile are what clients and MySQL are given.
	CertFile, KeyFile string
	// Bundle holds key and certificate in one file, as Kafka wants it.
	Bundle string
}

// CertificateOptions say what differs from a good certificate for 127.0.0.1 and localhost.
type CertificateOptions struct {
	Name  string
	Hosts []string // instead of 127.0.0.1 and localhost
	// Expired makes it end an hour ago.
	Expired bool
	// Until makes it end then, to the second. MySQL takes no certificate that has expired, and keeps one that does.
	Until time.Time
}

// NewAuthority makes an authority whose certificate is in CAFile.
func NewAuthority(tb folderTB, name string) *Authority {
	tb.Helper()
	a := &Authority{tb: tb, dir: tb.TempDir(), key: newKey(tb)}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		tb.Fatalf("sandbox: %v", err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		tb.Fatalf("sandbox: %v", err)
	}
	a.serial = 1
	a.write("ca.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return a
}

func newKey(tb folderTB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatalf("sandbox: %v", err)
	}
	return key
}

// CAFile is the PEM file of the authority's own certificate.
func (a *Authority) CAFile() string { return filepath.Join(a.dir, "ca.pem") }

// Issue makes a certificate for servers and clients.
func (a *Authority) Issue(o CertificateOptions) Certificate {
	a.tb.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serial++
	template := &x509.Certificate{SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: o.Name}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	if o.Expired {
		template.NotAfter = time.Now().Add(-time.Hour)
	}
	if !o.Until.IsZero() {
		template.NotAfter = o.Until
	}
	hosts := o.Hosts
	if hosts == nil {
		hosts = []string{"127.0.0.1", "localhost"}
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	key := newKey(a.tb)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.tb.Fatalf("sandbox: %v", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.tb.Fatalf("sandbox: %v", err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	base := big.NewInt(a.serial).String()
	return Certificate{
		CertFile: a.write(base+"-cert.pem", certPEM), KeyFile: a.write(base+"-key.pem", keyPEM),
		Bundle: a.write(base+"-bundle.pem", append(keyPEM, certPEM...)),
	}
}

// ClientConfig trusts the authority, for clients of a test that are not under test.
func (a *Authority) ClientConfig() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{RootCAs: pool}
}

func (a *Authority) write(name string, content []byte) string {
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		a.tb.Fatalf("sandbox: %v", err)
	}
	return path
}
