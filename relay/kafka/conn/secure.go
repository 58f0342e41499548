package conn

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync/atomic"
	"time"
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
	// session is set while sarama uses the connection and may log in.
	session *session
}

// session listens for how long a login is good: the broker says so in its answer to the last step of it, and sarama keeps it for itself.
type session struct {
	version  int16  // of that call, when it was the last; 0 otherwise
	tail     []byte // the end of what was read since
	lifetime time.Duration
	renewed  bool
}

const (
	authenticateCall = 36 // the number of the call
	// A frame is its length i32, the number of the call i16, its version i16, and more.
	callAt, callVersionAt = 4, 6
	lifetimeSize          = 8
)

func (s *session) wrote(b []byte) {
	s.settle()
	s.tail = s.tail[:0]
	if len(b) >= callVersionAt+2 && binary.BigEndian.Uint16(b[callAt:]) == authenticateCall {
		s.version = int16(binary.BigEndian.Uint16(b[callVersionAt:]))
	}
}

func (s *session) read(b []byte) {
	s.tail = append(s.tail, b...)
	if n := len(s.tail) - (lifetimeSize + 1); n > 0 {
		s.tail = append(s.tail[:0], s.tail[n:]...)
	}
}

// settle takes the lifetime from the answer to the last call, if that was a login. From version 1 on it is the last field, and from 2 on tags follow, of
// which there are none.
func (s *session) settle() {
	version, tail := s.version, s.tail
	s.version = 0
	switch {
	case version < 1 || len(tail) < lifetimeSize+1:
		return
	case version == 1:
		tail = tail[1:]
	}
	s.renewed = true
	s.lifetime = time.Duration(min(binary.BigEndian.Uint64(tail), math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
}

// end is when the login has to be renewed, where that is asked after one at now; zero for never. sarama renews it from some time between 85 and 95 % of
// its lifetime on.
func (s *session) end(now time.Time) time.Time {
	s.settle()
	renewed := s.renewed
	s.renewed = false
	switch {
	case s.lifetime == 0:
		return time.Time{}
	case !renewed:
		return now.Add(s.lifetime / 100)
	}
	return now.Add(s.lifetime - s.lifetime/20 + time.Millisecond)
}

// Read refuses a first answer that cannot be Kafka's. Its length comes first and is far below 16 MiB; sarama would take a buffer of any length that
// another protocol's bytes happen to mean, up to 4 GiB.
func (c *socket) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.session != nil {
		c.session.read(b[:n])
	}
	if !c.begun && n > 0 {
		c.begun = true
		if b[0] != 0 {
			return 0, &notKafkaError{bytes.Clone(b[:min(n, 8)])}
		}
	}
	return n, err
}

// Write implements io.Writer.
func (c *socket) Write(b []byte) (int, error) {
	if c.session != nil {
		c.session.wrote(b)
	}
	return c.Conn.Write(b)
}

// secure makes the socket of a new connection, with TLS if the options ask for it. The handshake is done here and not by sarama, so that its errors are
// told from a broker's and files are read at each connect. It ends when conn is closed or ctx ends.
func (o *Options) secure(ctx context.Context, conn net.Conn, addr string) (*socket, error) {
	if o.TLS == nil {
		return &socket{Conn: conn, session: o.listen()}, nil
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
		return &socket{Conn: conn, session: o.listen()}, nil
	}
	cfg = cfg.Clone()
	if cfg.ServerName == "" {
		cfg.ServerName = host
	}
	own := cfg.Certificates
	c := &socket{tls: true, own: len(own) > 0, session: o.listen()}
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

func (o *Options) listen() *session {
	if o.SASL.Mechanism == "" {
		return nil
	}
	return new(session)
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
