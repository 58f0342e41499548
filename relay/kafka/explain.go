package kafka

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/IBM/sarama"

	"outbox-relay/relay/kafka/conn"
)

// Explain makes one sentence of why the broker at an address cannot be used with these options: what, where and what to do.
func Explain(o Options, addr string, err error) string {
	var dns *net.DNSError
	var record tls.RecordHeaderError
	var verify *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		return fmt.Sprintf("Kafka host %q cannot be found: %s; check kafka.brokers and the brokers' advertised.listeners", dns.Name, dns.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nothing listens at the Kafka address %s (connection refused); start the broker or correct kafka.brokers", addr)
	case errors.As(err, &record):
		return fmt.Sprintf("the Kafka broker at %s speaks no TLS but kafka.tls.mode demands it; use its TLS port or set kafka.tls.mode to disabled", addr)
	case errors.As(err, &verify), errors.As(err, &unknown):
		return fmt.Sprintf("the certificate of the Kafka broker at %s is not accepted: %v; check kafka.tls.ca and kafka.tls.mode", addr, err)
	case errors.Is(err, sarama.ErrSASLAuthenticationFailed):
		return fmt.Sprintf("the Kafka broker at %s refuses the login: %v; check kafka.sasl.user and kafka.sasl.password", addr, err)
	case errors.Is(err, sarama.ErrUnsupportedSASLMechanism):
		return fmt.Sprintf("the Kafka broker at %s does not know the mechanism of kafka.sasl.mechanism; set one that it offers", addr)
	case isClosed(err) && o.TLS != nil:
		return fmt.Sprintf("the Kafka broker at %s closes the connection: it may speak no TLS on this port (kafka.tls.mode), demand a login (kafka.sasl), or be no Kafka broker; check its listeners", addr)
	case isClosed(err):
		return fmt.Sprintf("the Kafka broker at %s closes the connection: it may demand TLS (kafka.tls) or a login (kafka.sasl), or be no Kafka broker; check its listeners", addr)
	case errors.Is(err, conn.ErrCut), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("the Kafka broker at %s does not answer in time; check that it runs and that the port is the one for clients with the right kafka.tls.mode", addr)
	}
	return fmt.Sprintf("the Kafka broker at %s cannot be used: %v; check kafka.brokers and that it runs", addr, err)
}

// isClosed tells whether the other side ended the connection.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
