package conn

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
)

// settingError is a part of a connection's settings that cannot be had: a secret or a certificate file.
type settingError struct {
	what, key string
	err       error
}

func (e *settingError) Unwrap() error { return e.err }
func (e *settingError) Error() string { return e.what + " cannot be read: " + e.err.Error() }

// handshakeError is a TLS handshake that failed.
type handshakeError struct{ err error }

func (e *handshakeError) Unwrap() error { return e.err }
func (e *handshakeError) Error() string { return "TLS handshake: " + e.err.Error() }

// notKafkaError is a first answer that is none of Kafka's.
type notKafkaError struct{ first []byte }

// Unwrap makes sarama give the connection up instead of asking again in an older version.
func (e *notKafkaError) Unwrap() error { return io.ErrUnexpectedEOF }

func (e *notKafkaError) Error() string {
	switch {
	case e.tls():
		return "the answer is one of TLS"
	case bytes.HasPrefix(e.first, []byte("HTTP")):
		return "the answer is one of HTTP"
	}
	return fmt.Sprintf("the answer begins with %q", e.first)
}

// tls tells whether the answer is a TLS record of type alert (RFC 8446, section 5.1).
func (e *notKafkaError) tls() bool { return bytes.HasPrefix(e.first, []byte{21, 3}) }

// socket is the connection that sarama reads and writes: TLS or plain.
type socket struct {
	net.Conn
	begun bool
	tls   bool
	own   bool // a certificate of the client is configured
	// wanted is set when the broker asks for a certificate of the client.
	wanted atomic.Bool
}

// Read refuses a first answer that cannot be Kafka's. Its length comes first and is far below 16 MiB; sarama would take a buffer of any length that
// another protocol's bytes happen to mean, up to 4 GiB.
func (c *socket) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if !c.begun && n > 0 {
		c.begun = true
		if b[0] != 0 {
			return 0, &notKafkaError{bytes.Clone(b[:min(n, 8)])}
		}
	}
	return n, err
}

// secure makes the socket of a new connection, with TLS if the options ask for it. The handshake is done here and not by sarama, so that its errors are
// told from a broker's and files are read at each connect. It ends when conn is closed or ctx ends.
func (o *Options) secure(ctx context.Context, conn net.Conn, addr string) (*socket, error) {
	if o.TLS == nil {
		return &socket{Conn: conn}, nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	cfg, err := o.TLS(host)
	if err != nil {
		return nil, &settingError{what: "a TLS file", key: "kafka.tls", err: err}
	}
	if cfg == nil {
		return &socket{Conn: conn}, nil
	}
	cfg = cfg.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	own := cfg.Certificates
	c := &socket{tls: true, own: len(own) > 0}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		c.wanted.Store(true)
		if len(own) > 0 {
			return &own[0], nil // also one that the broker says not to trust: it then says why
		}
		return new(tls.Certificate), nil
	}
	secured := tls.Client(conn, cfg)
	c.Conn = secured
	if err := secured.HandshakeContext(ctx); err != nil {
		return c, &handshakeError{err}
	}
	return c, nil
}

// dialer lets a function be sarama's proxy dialer.
type dialer func(network, addr string) (net.Conn, error)

// Dial implements proxy.Dialer.
func (d dialer) Dial(network, addr string) (net.Conn, error) { return d(network, addr) }

// plainDialer opens connections for sarama's own client.
func (o *Options) plainDialer(ctx context.Context) dialer {
	return func(network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, connectTimeout)
		defer cancel()
		conn, err := o.dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		secured, err := o.secure(ctx, conn, addr)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return secured, nil
	}
}
