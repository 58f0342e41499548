package conn

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/internal/redact"
	"outbox-relay/internal/tlsfault"
)

// Error tells why a broker cannot be used at all. Its text is one sentence with what, where and what to do, and holds no secret.
type Error struct {
	Addr string
	// Cause is a word for the kind of error, the same for the same cause.
	Cause string
	Err   error

	text string
}

// Error gives the sentence.
func (e *Error) Error() string { return e.text }

// Unwrap gives the cause. Its text can hold what a broker said, which can hold secrets.
func (e *Error) Unwrap() error { return e.Err }

// Explain makes the error of a connection that did not come about, or that ended before anything was answered on it. The link is nil where there was
// none. An Error stays as it is.
func (o *Options) Explain(l *Link, addr string, err error) *Error {
	var known *Error
	if errors.As(err, &known) {
		return known
	}
	if l == nil {
		l = &Link{}
	}
	cause, text := explain(o, l, addr, l.Redact(err))
	return &Error{Addr: addr, Cause: cause, Err: err, text: text}
}

// ExplainClient is Explain for sarama's own client, which was made with conf.
func (o *Options) ExplainClient(conf *sarama.Config, addr string, err error) *Error {
	return o.Explain(&Link{user: conf.Net.SASL.User, password: conf.Net.SASL.Password}, addr, err)
}

// Redact takes the secret of the login out of an error's text: brokers and their plugins may repeat in their answers what they were told.
func (l *Link) Redact(err error) error {
	err = redact.Error(err, l.password, l.user)
	if l.token != nil {
		if last := l.token.last.Load(); last != nil {
			err = redact.Error(err, *last, l.user)
		}
	}
	return err
}

// Cause gives a word for an error that is the same for the same cause, for logs that tell changes only.
func Cause(err error) string {
	var connect *Error
	var code sarama.KError
	switch {
	case errors.As(err, &connect):
		return connect.Cause
	case errors.As(err, &code):
		return fmt.Sprintf("code %d", int16(code))
	}
	return "other"
}

// explain gives the cause and the sentence.
func explain(o *Options, l *Link, addr string, err error) (cause, text string) {
	at := "the Kafka broker at " + addr
	var setting *settingError
	var dns *net.DNSError
	var foreign *notKafkaError
	switch {
	case errors.As(err, &setting):
		return "setting", fmt.Sprintf("connecting to %s: %s; check %s", at, setting, setting.key)
	case errors.As(err, &dns):
		return "dns", fmt.Sprintf("Kafka host %q cannot be found: %s; check kafka.brokers and the brokers' advertised.listeners", dns.Name, dns.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused", fmt.Sprintf("nothing listens at the Kafka address %s (connection refused); start the broker or correct kafka.brokers", addr)
	case errors.As(err, &foreign) && foreign.tls():
		return "tls_wanted", at + " speaks TLS on this port but kafka.tls.mode is disabled; set kafka.tls.mode to verify-identity, or use its port without TLS"
	case errors.As(err, &foreign):
		return "foreign", fmt.Sprintf("%s is no Kafka broker: %s; correct kafka.brokers", strings.Replace(at, "the Kafka broker", "what listens", 1), foreign)
	}
	if cause, text, ok := explainTLS(l, at, err); ok {
		return cause, text
	}
	if cause, text, ok := explainLogin(o, l, at, err); ok {
		return cause, text
	}
	return explainEnd(o, l, at, err)
}

// explainTLS knows what goes wrong with certificates.
func explainTLS(l *Link, at string, err error) (cause, text string, ok bool) {
	own := l.ownCertificate()
	if f, ok := tlsfault.Find(err, "kafka.tls", "kafka.brokers and the brokers' advertised.listeners", own); ok {
		if f.Client() {
			return f.Kind, fmt.Sprintf("%s %s; %s", at, f.What, f.Do), true
		}
		return f.Kind, fmt.Sprintf("the certificate of %s %s; %s", at, f.What, f.Do), true
	}
	var handshake *handshakeError
	switch {
	case l.Dead() && errors.Is(err, ErrCut):
		return "", "", false // too slow, whatever came of it then
	case errors.As(err, &handshake) && (isClosed(err) || isRecord(err)):
		return "no_tls", at + " speaks no TLS on this port but kafka.tls.mode demands it; use its TLS port, or set kafka.tls.mode to disabled", true
	case errors.As(err, &handshake):
		return "tls", fmt.Sprintf("%s: %s; check kafka.tls and the broker's ssl settings", at, handshake), true
	case isClosed(err) && l.wantedCertificate() && !own:
		f := tlsfault.Missing("kafka.tls")
		return f.Kind, fmt.Sprintf("%s %s; %s", at, f.What, f.Do), true
	}
	return "", "", false
}

// isRecord tells whether the other side's bytes are none of TLS.
func isRecord(err error) bool {
	return strings.Contains(err.Error(), "first record does not look like a TLS handshake")
}

// explainLogin knows what brokers say to a login.
func explainLogin(o *Options, l *Link, at string, err error) (cause, text string, ok bool) {
	var refused *serverError
	switch {
	case errors.Is(err, sarama.ErrSASLAuthenticationFailed) && o.SASL.Mechanism == oauthBearer:
		return "login", fmt.Sprintf("%s refuses the token of kafka.sasl%s: %s; check what gives the token", at, l.expiry(time.Now()), said(err)), true
	case errors.Is(err, sarama.ErrSASLAuthenticationFailed), errors.As(err, &refused):
		return "login", fmt.Sprintf("%s refuses the login of user %q by %s: %s; check kafka.sasl.user and kafka.sasl.password, and that the user exists for this mechanism",
			at, o.SASL.User, o.SASL.Mechanism, said(err)), true
	case errors.Is(err, sarama.ErrUnsupportedSASLMechanism):
		return "mechanism", fmt.Sprintf("%s does not offer the mechanism %s on this port; set kafka.sasl.mechanism to one that its sasl.enabled.mechanisms names", at, o.SASL.Mechanism), true
	case errors.Is(err, sarama.ErrIllegalSASLState) && o.SASL.Mechanism != "":
		return "no_login", at + " takes no login on this port; use its port with SASL, or drop kafka.sasl", true
	}
	return "", "", false
}

// explainEnd knows what little is told by a connection that ends.
func explainEnd(o *Options, l *Link, at string, err error) (cause, text string) {
	var timeout net.Error
	switch {
	case errors.Is(err, ErrCut), errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout", at + " does not answer in time; check that it runs and that the port is the one for clients with the right kafka.tls.mode"
	case isClosed(err) && o.SASL.Mechanism == "" && l.answered:
		return "login_wanted", at + " demands a login on this port, or ends the connection for another reason of its own; set kafka.sasl, or see the broker's log"
	case isClosed(err) && l.encrypted():
		return "closed", at + " closes the connection; check its log and that kafka.brokers names its port for clients"
	case isClosed(err):
		return "closed", at + " closes the connection: it may demand TLS (kafka.tls) or a login (kafka.sasl), or be no Kafka broker; check its listeners"
	}
	return "other", fmt.Sprintf("%s cannot be used: %v; check kafka.brokers and that it runs", at, err)
}

// said is the broker's own word of an error.
func said(err error) string {
	text := err.Error()
	for _, k := range []sarama.KError{sarama.ErrSASLAuthenticationFailed} {
		text = strings.TrimPrefix(strings.TrimPrefix(text, k.Error()), ": ")
	}
	if text == "" {
		return "authentication failed"
	}
	return text
}

// isClosed tells whether the other side ended the connection.
func isClosed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// ownCertificate tells whether the client has a certificate to show.
func (l *Link) ownCertificate() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.socket != nil && l.socket.own
}

func (l *Link) wantedCertificate() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.socket != nil && l.socket.wanted.Load()
}

func (l *Link) encrypted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.socket != nil && l.socket.tls
}

// expiry tells whether the token that was used says itself that it has expired (RFC 7519, section 4.1.4).
func (l *Link) expiry(now time.Time) string {
	_, rest, _ := strings.Cut(l.password, ".")
	claims, _, _ := strings.Cut(rest, ".")
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(claims, "="))
	if err != nil {
		return ""
	}
	var c struct {
		Exp json.Number `json:"exp"`
	}
	if json.Unmarshal(raw, &c) != nil {
		return ""
	}
	seconds, err := c.Exp.Float64()
	if at := time.Unix(int64(seconds), 0); err == nil && at.Before(now) {
		return ", which has expired at " + at.UTC().Format(time.RFC3339)
	}
	return ""
}
