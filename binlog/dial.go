package binlog

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"

	"outbox-relay/internal/redact"
	"outbox-relay/internal/tlsfault"
)

// Login says how to reach a MySQL server. It is used for the replication connection, for the activity lock and for checks.
type Login struct {
	Address  string // host:port, or the path of a socket
	User     string
	Password func(context.Context) (string, error) // asked at each connect; nil means no password
	// TLS gives the settings for a host at each connect, so that renewed certificates are picked up; nil, or a nil result, means plain text.
	TLS func(host string) (*tls.Config, error)
	// TLSOptional goes on in plain text with a server that has no TLS.
	TLSOptional bool
	Program     string // shown to operators in performance_schema.session_connect_attrs
	Timeout     time.Duration
	// Dial replaces the network in tests; nil means TCP or a unix socket.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Lookup replaces the resolver of names in tests; nil means the system's, or none with Dial.
	Lookup func(ctx context.Context, host string) (ips []string, err error)

	dialTo string // one of the IP addresses, with port, that Address stands for; empty where it is one server
}

// At is what errors and logs call the server: its address, and which one of several that a name stands for.
func (l Login) At() string {
	if l.dialTo == "" {
		return l.Address
	}
	return l.Address + " (" + l.dialTo + ")"
}

const defaultConnectTimeout = 10 * time.Second

// Conn is an authenticated MySQL connection for a few small statements. Not for concurrent use.
// Closing is always immediate: it closes the socket.
type Conn struct {
	*client.Conn
	net   net.Conn // the TCP connection, below TLS
	login Login
	stop  func() bool
	rows  *bufio.Reader // of results that are read row by row; nil before the first one
}

// Close closes the socket. Calls that wait on it return at once.
func (c *Conn) Close() error {
	c.stop()
	return c.net.Close()
}

// errEnded says that the server ended an idle session: because of its wait_timeout, a KILL, or a shutdown.
var errEnded = errors.New("the server ended the session")

// Idle blocks for d while no statement is under way. It returns early, with an error, when the connection ends: at once, and not with the next
// statement.
func (c *Conn) Idle(ctx context.Context, d time.Duration) error {
	if err := c.net.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	var b [1]byte
	n, err := c.Read(b[:]) // below the library's buffer, which is empty between statements
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case n > 0, errors.Is(err, io.EOF):
		return errEnded
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil
	}
	return err
}

// Dial connects and authenticates. It blocks for at most l.Timeout (10 s by default), also on a frozen server, and returns early
// when ctx ends. The connection is closed when ctx ends.
func Dial(ctx context.Context, l Login) (*Conn, error) {
	fault := &ConnectError{Address: l.At(), User: l.User}
	c, err := l.dial(ctx, true, fault)
	if err != nil && l.TLSOptional && isNoTLS(err) {
		c, err = l.dial(ctx, false, fault)
	}
	if err != nil {
		fault.Err = redact.Error(err, fault.password, l.User)
		return nil, fault
	}
	return c, nil
}

func isNoTLS(err error) bool { return strings.Contains(err.Error(), "does not support TLS") }

// dial makes one attempt and notes in fault how it is made.
func (l Login) dial(ctx context.Context, secure bool, fault *ConnectError) (*Conn, error) {
	timeout := l.Timeout
	if timeout == 0 {
		timeout = defaultConnectTimeout
	}
	password := ""
	if l.Password != nil {
		var err error
		if password, err = l.Password(ctx); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, &settingError{what: "the password", key: "source.password_file and source.password_command", err: err}
		}
	}
	fault.password = password
	var cfg *tls.Config
	if secure && l.TLS != nil {
		host, _, err := net.SplitHostPort(l.Address)
		if err != nil {
			host = l.Address
		}
		if cfg, err = l.TLS(host); err != nil {
			return nil, &settingError{what: "a TLS file", key: "source.tls", err: err}
		}
	}
	fault.encrypted, fault.certificate = cfg != nil, cfg != nil && len(cfg.Certificates) > 0
	c := &Conn{login: l, stop: func() bool { return true }}
	deadline := time.Now().Add(timeout)
	dial := l.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: timeout, KeepAlive: 15 * time.Second}).DialContext
	}
	var watch *clearGuard
	conn, err := login(func() (*client.Conn, error) {
		return client.ConnectWithDialer(ctx, network(l.Address), l.Address, l.User, password, "", func(ctx context.Context, network, address string) (net.Conn, error) {
			if l.dialTo != "" {
				address = l.dialTo
			}
			nc, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			c.net = nc
			c.stop = context.AfterFunc(ctx, func() { nc.Close() })
			// The library's context covers the dial only: without a deadline a frozen server would hold the handshake for ever.
			if cfg == nil && network != "unix" {
				watch = &clearGuard{Conn: nc}
				return watch, watch.SetDeadline(deadline)
			}
			return nc, nc.SetDeadline(deadline) // never assigned anew: the function above may run at any time
		}, func(lc *client.Conn) error {
			lc.SetAttributes(map[string]string{"program_name": l.Program})
			if cfg != nil {
				lc.SetTLSConfig(cfg)
			}
			return nil
		})
	})
	if err != nil {
		c.stop()
		if c.net != nil {
			c.net.Close()
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !time.Now().Before(deadline) { // the library gives the cause as text only
			return nil, fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, err)
		}
		return nil, err
	}
	if watch != nil {
		watch.done()
	}
	c.Conn = conn
	return c, nil
}

// clearSwitch is how a server asks for the password as it is (protocol packet AuthSwitchRequest).
var clearSwitch = []byte("\xfemysql_clear_password\x00")

// errClear is the refusal to send a password that everybody on the way could read. The library would send it.
var errClear = errors.New("the server asks for the password in clear text")

// clearGuard looks at what the server says during a login without TLS.
type clearGuard struct {
	net.Conn
	passed bool // the login is over
	said   []byte
}

// Read implements net.Conn.
func (g *clearGuard) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if g.passed {
		return n, err
	}
	g.said = append(g.said, b[:n]...)
	if bytes.Contains(g.said, clearSwitch) {
		return 0, errClear
	}
	if len(g.said) > 1<<16 { // a login is short
		g.said = g.said[len(g.said)-len(clearSwitch):]
	}
	return n, err
}

// done ends the look at the stream.
func (g *clearGuard) done() { g.passed, g.said = true, nil }

// pluginOf is the plugin for passwords that an error of the library names as one that it does not speak.
func pluginOf(err error) (string, bool) {
	_, rest, found := strings.Cut(err.Error(), "auth plugin ")
	_, rest, quoted := strings.Cut(rest, "'")
	name, _, closed := strings.Cut(rest, "'")
	return name, found && quoted && closed
}

// errAnswer is a panic of the library at an answer that it does not understand. It happens where a server refuses to give the key that encrypts
// a password on a connection without TLS.
var errAnswer = errors.New("the answer to the login is not understood")

// login calls the library and survives it.
func login(connect func() (*client.Conn, error)) (c *client.Conn, err error) {
	defer func() {
		if p := recover(); p != nil {
			c, err = nil, fmt.Errorf("%w: %v", errAnswer, p)
		}
	}()
	return connect()
}

func network(address string) string {
	if strings.Contains(address, "/") {
		return "unix"
	}
	return "tcp"
}

// ConnectError tells why a server cannot be used at all. Its text is one sentence with what, where and what to do.
type ConnectError struct {
	Address string
	User    string
	Err     error

	password               string // that was sent
	encrypted, certificate bool   // TLS was asked for, with a certificate of the client
}

func (e *ConnectError) Unwrap() error { return e.Err }

// settingError is a part of the login that cannot be had: a password or a certificate file.
type settingError struct {
	what, key string
	err       error
}

func (e *settingError) Unwrap() error { return e.err }
func (e *settingError) Error() string { return e.what + " cannot be read: " + e.err.Error() }

// Codes of a refused login that the library has no names for.
const (
	codeHostBlocked     = 1129 // ER_HOST_IS_BLOCKED
	codeHostNotAllowed  = 1130 // ER_HOST_NOT_PRIVILEGED
	codeOfflineMode     = 3032 // ER_SERVER_OFFLINE_MODE
	codePasswordExpired = 1862 // ER_MUST_CHANGE_PASSWORD_LOGIN
	codeAccountLocked   = 3118 // ER_ACCOUNT_HAS_BEEN_LOCKED
	codeTLSRequired     = 3159 // ER_SECURE_TRANSPORT_REQUIRED
)

func (e *ConnectError) Error() string {
	var my *mysql.MyError
	var dns *net.DNSError
	var setting *settingError
	plugin, named := pluginOf(e.Err)
	fault, secured := tlsfault.Find(e.Err, "source.tls", "source.address", e.certificate)
	switch {
	case secured && fault.Client():
		return fmt.Sprintf("MySQL at %s %s; %s", e.Address, fault.What, fault.Do)
	case secured:
		return fmt.Sprintf("the certificate of MySQL at %s %s; %s", e.Address, fault.What, fault.Do)
	case errors.As(e.Err, &setting):
		return fmt.Sprintf("connecting to MySQL at %s: %s; check %s", e.Address, setting, setting.key)
	case errors.As(e.Err, &my):
		return e.refusal(my)
	case errors.Is(e.Err, errAnswer):
		return fmt.Sprintf("MySQL at %s takes no password for user %q without encryption; set source.tls.mode to required or stricter", e.Address, e.User)
	case isClear(e.Err):
		return fmt.Sprintf("MySQL at %s asks for the password of user %q in clear text, on a connection without TLS; set source.tls.mode to verify-identity, or make the account with caching_sha2_password", e.Address, e.User)
	case named:
		return fmt.Sprintf("MySQL at %s wants the password of user %q by the plugin %s, which the relay does not speak; make an account for it with CREATE USER ... IDENTIFIED WITH caching_sha2_password", e.Address, e.User, plugin)
	case errors.As(e.Err, &dns):
		return fmt.Sprintf("MySQL host %q cannot be found: %s; check source.address", dns.Name, dns.Err)
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return fmt.Sprintf("nothing listens at the MySQL address %s (connection refused); start the server or correct source.address", e.Address)
	case isNoTLS(e.Err):
		return fmt.Sprintf("MySQL at %s offers no TLS but source.tls.mode demands it; enable TLS on the server or set source.tls.mode to preferred or disabled", e.Address)
	case isTimeout(e.Err):
		return fmt.Sprintf("MySQL at %s does not answer in time; check that it runs, is not frozen, and that source.address names MySQL and no firewall lies between", e.Address)
	case errors.Is(e.Err, mysql.ErrBadConn):
		return fmt.Sprintf("MySQL at %s ends the connection during the login; check its error log, and that source.address names MySQL", e.Address)
	default:
		return fmt.Sprintf("MySQL at %s cannot be reached: %v; check source.address and that the server runs", e.Address, e.Err)
	}
}

// refusal is the sentence for an answer of the server to the login.
func (e *ConnectError) refusal(my *mysql.MyError) string {
	switch my.Code {
	case mysql.ER_ACCESS_DENIED_ERROR:
		return fmt.Sprintf("MySQL at %s refuses user %q: %s; check source.user and source.password%s", e.Address, e.User, redact.Text(my.Message, e.password, e.User), e.demands())
	case codeAccountLocked:
		return fmt.Sprintf("MySQL at %s refuses user %q: the account is locked; unlock it with ALTER USER ... ACCOUNT UNLOCK", e.Address, e.User)
	case codePasswordExpired:
		return fmt.Sprintf("MySQL at %s refuses user %q: the password has expired; set a new one with ALTER USER ... IDENTIFIED BY", e.Address, e.User)
	case codeTLSRequired:
		return fmt.Sprintf("MySQL at %s accepts encrypted connections only; set source.tls.mode to required or stricter", e.Address)
	case codeHostNotAllowed:
		return fmt.Sprintf("MySQL at %s lets no user in from this host: %s; create the account for this host with CREATE USER", e.Address, redact.Text(my.Message, e.password, e.User))
	case codeHostBlocked:
		return fmt.Sprintf("MySQL at %s blocks this host after many failed connections; unblock it with TRUNCATE TABLE performance_schema.host_cache", e.Address)
	case codeOfflineMode:
		return fmt.Sprintf("MySQL at %s is in offline mode and lets only administrators in; run SET GLOBAL offline_mode = OFF when its work is done", e.Address)
	case mysql.ER_CON_COUNT_ERROR:
		return fmt.Sprintf("MySQL at %s has no connection left (max_connections); close some or raise the limit", e.Address)
	}
	return fmt.Sprintf("MySQL at %s refuses the connection: error %d: %s; see the server's error log", e.Address, my.Code, redact.Text(my.Message, e.password, e.User))
}

// demands are what an account can ask for besides the password; the server does not tell which it was.
func (e *ConnectError) demands() string {
	switch {
	case !e.encrypted:
		return ", and whether the account demands TLS (REQUIRE SSL), which source.tls.mode leaves out"
	case !e.certificate:
		return ", and whether the account demands a certificate (REQUIRE X509), which source.tls.cert and source.tls.key give"
	}
	return ", and that the account takes the certificate of source.tls.cert"
}

// Lasting reports whether only a person can heal the error: a wrong name, password or certificate. A relay that starts gives up
// with such an error; one that has been connected keeps trying, since passwords and names are changed and changed back. Files and commands are
// not among them: what gives a secret can be down for a while.
func (e *ConnectError) Lasting() bool {
	var my *mysql.MyError
	var dns *net.DNSError
	switch {
	case errors.As(e.Err, &my):
		switch my.Code {
		case mysql.ER_ACCESS_DENIED_ERROR, codeAccountLocked, codePasswordExpired, codeTLSRequired, codeHostNotAllowed:
			return true
		}
		return false
	case errors.As(e.Err, &dns):
		return dns.IsNotFound
	}
	_, secured := tlsfault.Find(e.Err, "", "", false)
	_, named := pluginOf(e.Err)
	return secured || named || isNoTLS(e.Err) || isClear(e.Err) || errors.Is(e.Err, errAnswer)
}

// isClear looks into the text: the library keeps no more of an error of reading.
func isClear(err error) bool { return strings.Contains(err.Error(), errClear.Error()) }

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
