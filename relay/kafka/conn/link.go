package conn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	// DialTimeout bounds the opening of the TCP connection.
	DialTimeout = 1500 * time.Millisecond
	// connectTimeout bounds dial, TLS, version exchange and authentication together. A frozen broker accepts connections and says nothing.
	connectTimeout = 2500 * time.Millisecond
)

// ErrCut is the error of a connection that was cut while it was opened.
var ErrCut = errors.New("connection was cut")

// Options are what all connections of one client have in common. Version, Dialer and the validity of SASL are the caller's to see to.
type Options struct {
	// ClientID is the name that brokers log.
	ClientID string
	// Version is the newest protocol that is spoken; each connection goes down to what its broker knows.
	Version sarama.KafkaVersion
	// TLS gives the settings for a host at each connect, so that renewed certificates are picked up; nil, or a nil result, means plain text. An empty
	// ServerName is filled with the host.
	TLS func(host string) (*tls.Config, error)
	// SASL is off while its Mechanism is empty.
	SASL SASL
	// Dialer opens connections to brokers; nil is TCP. It must end when ctx does.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
}

// Link is one connection to a broker: a sarama.Broker of our own and the net.Conn below it. Closing that net.Conn ends every call at
// once, where Broker.Close can wait for time-outs and for the lock of a call.
type Link struct {
	// Broker takes the calls. It is not opened again by anybody.
	Broker *sarama.Broker

	mu   sync.Mutex
	conn net.Conn
	dead bool
	undo func() bool

	socket   *socket // nil before the connection stands
	user     string
	password string // what it logged in with
	token    *token // what gives the later ones, with oauthbearer
	answered bool   // Dial succeeded: the broker has told its versions
	session  *session
	until    time.Time // when the login has to be renewed; zero for never
}

// Dial opens a link and waits until it can be used, a few seconds at most. The link is cut when ctx ends. Single reads and writes on it take read
// at most. opened, which may be nil, gets the link before it can be used, to cut it. The error is an [Error].
func Dial(ctx context.Context, o *Options, addr string, read time.Duration, opened func(*Link)) (*Link, error) {
	l := &Link{Broker: sarama.NewBroker(addr)}
	conf, err := o.Sarama(ctx, read)
	if err != nil {
		return nil, o.Explain(l, addr, err)
	}
	l.user, l.password = conf.Net.SASL.User, conf.Net.SASL.Password
	l.token, _ = conf.Net.SASL.TokenProvider.(*token)
	conf.Net.Proxy.Dialer = dialer(func(network, addr string) (net.Conn, error) { return l.open(ctx, o, network, addr) })
	l.undo = context.AfterFunc(ctx, l.Cut)
	limit := time.AfterFunc(connectTimeout, l.Cut)
	defer limit.Stop()
	if opened != nil {
		opened(l)
	}
	if err := l.Broker.Open(conf); err != nil {
		l.Close()
		return nil, o.Explain(l, addr, err)
	}
	ok, err := l.Broker.Connected()
	if l.Dead() {
		ok = false
		err = errors.Join(err, ErrCut)
	}
	if !ok {
		l.Close()
		if err == nil {
			err = sarama.ErrNotConnected
		}
		return nil, o.Explain(l, addr, err)
	}
	l.answered = true
	l.until = l.sessionEnd(time.Now())
	return l, nil
}

func (l *Link) open(ctx context.Context, o *Options, network, addr string) (net.Conn, error) {
	if l.Dead() {
		return nil, ErrCut
	}
	limited, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	conn, err := o.dial(limited, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	if l.dead {
		l.mu.Unlock()
		_ = conn.Close()
		return nil, ErrCut
	}
	l.conn = conn
	l.mu.Unlock()
	secured, err := o.secure(ctx, conn, addr)
	l.mu.Lock()
	l.socket = secured
	l.mu.Unlock()
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secured, nil
}

// Cut closes the connection at once. Every call on the broker and every callback ends with an error. It may be called from anywhere,
// also several times and from a callback.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

// Dead tells whether the link was cut.
func (l *Link) Dead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// Close cuts the connection and frees what sarama holds. It can block for the time of a throttled call, so it runs apart from senders.
func (l *Link) Close() {
	l.undo()
	l.Cut()
	_ = l.Broker.Close()
}

// Newest gives the newest version of a call that the broker knows, by the number of the call; -1 if it knows none.
func (l *Link) Newest(call int16) (int16, error) {
	resp, err := l.Broker.ApiVersions(&sarama.ApiVersionsRequest{})
	if err != nil {
		return 0, err
	}
	for _, k := range resp.ApiKeys {
		if k.ApiKey == call {
			return k.MaxVersion, nil
		}
	}
	return -1, nil
}

// Conn is the connection itself, for calls that sarama does not make. Nothing may be under way on Broker meanwhile.
func (l *Link) Conn() net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.socket
}

// LogInAt is when LogIn has to be called, since the broker ends the session for its age soon after; zero for never.
func (l *Link) LogInAt() time.Time { return l.until }

// LogIn logs in again over the connection, on which nothing else may be under way.
func (l *Link) LogIn() error {
	l.socket.session = l.session
	_, err := l.Broker.ApiVersions(&sarama.ApiVersionsRequest{}) // sarama logs in before any call when it is time
	l.until = l.sessionEnd(time.Now())
	return err
}

// sessionEnd takes what was heard of the session's lifetime, and listens no more.
func (l *Link) sessionEnd(now time.Time) time.Time {
	s := l.socket.session
	if s == nil {
		return time.Time{}
	}
	l.session, l.socket.session = s, nil
	return s.end(now)
}

// Dialer is a dialer for a client of sarama's whose connections end when ctx does, as sarama's Config.Net.Proxy.Dialer takes it.
func Dialer(ctx context.Context, o *Options) interface {
	Dial(network, addr string) (net.Conn, error)
} {
	return dialer(func(network, addr string) (net.Conn, error) {
		dialing, cancel := context.WithTimeout(ctx, DialTimeout)
		defer cancel()
		c, err := o.dial(dialing, network, addr)
		if err != nil {
			return nil, err
		}
		one := &tied{Conn: c}
		one.undo = context.AfterFunc(ctx, func() { _ = c.Close() })
		return one, nil
	})
}

// tied is a connection that ends with a context.
type tied struct {
	net.Conn
	undo func() bool
}

// Close closes the connection.
func (t *tied) Close() error {
	t.undo()
	return t.Conn.Close()
}

func (o *Options) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if o.Dialer != nil {
		return o.Dialer(ctx, network, addr)
	}
	return (&net.Dialer{Timeout: DialTimeout, KeepAlive: 15 * time.Second}).DialContext(ctx, network, addr)
}
