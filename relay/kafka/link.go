package kafka

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

const (
	dialTimeout = 1500 * time.Millisecond
	// produceTimeout is how long a broker may wait for replicas before it answers with code 7. A connection is served one request at a
	// time, so this bounds how long a partition short of replicas holds up its neighbours.
	produceTimeout = 2500 * time.Millisecond
	produceRead    = produceTimeout + 3*time.Second
	// connectTimeout bounds dial, TLS, version exchange and authentication together. A frozen broker accepts connections and says nothing.
	connectTimeout = 2500 * time.Millisecond
)

var errCut = errors.New("connection was cut")

// link is one connection to a broker: a sarama.Broker of our own and the net.Conn below it. Closing that net.Conn ends every call at
// once, where Broker.Close can wait for time-outs and for the lock of a call.
type link struct {
	broker *sarama.Broker

	mu   sync.Mutex
	conn net.Conn
	dead bool
	undo func() bool
}

// dial opens a link and waits until it can be used. It ends when ctx does.
func dial(ctx context.Context, s *settings, addr string, read time.Duration, opened func(*link)) (*link, error) {
	conf, err := s.sarama(ctx, read)
	if err != nil {
		return nil, err
	}
	l := &link{broker: sarama.NewBroker(addr)}
	conf.Net.Proxy.Enable = true
	conf.Net.Proxy.Dialer = dialer(func(network, addr string) (net.Conn, error) { return l.open(ctx, s, network, addr) })
	l.undo = context.AfterFunc(ctx, l.cut)
	limit := time.AfterFunc(connectTimeout, l.cut)
	defer limit.Stop()
	opened(l)
	if err := l.broker.Open(conf); err != nil {
		l.close()
		return nil, err
	}
	ok, err := l.broker.Connected()
	if l.isDead() {
		ok = false
		err = errors.Join(err, errCut)
	}
	if !ok {
		l.close()
		if err == nil {
			err = sarama.ErrNotConnected
		}
		return nil, err
	}
	return l, nil
}

// dialer lets a function be sarama's proxy dialer.
type dialer func(network, addr string) (net.Conn, error)

// Dial implements proxy.Dialer.
func (d dialer) Dial(network, addr string) (net.Conn, error) { return d(network, addr) }

func (l *link) open(ctx context.Context, s *settings, network, addr string) (net.Conn, error) {
	if l.isDead() {
		return nil, errCut
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := s.Dialer(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = conn.Close()
		return nil, errCut
	}
	l.conn = conn
	return conn, nil
}

// cut closes the connection at once. Every call on the broker and every callback ends with an error. It may be called from anywhere,
// also several times and from a callback.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	if l.conn != nil {
		_ = l.conn.Close()
	}
}

func (l *link) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// close cuts the connection and frees what sarama holds. It can block for the time of a throttled call, so it runs apart from senders.
func (l *link) close() {
	l.undo()
	l.cut()
	_ = l.broker.Close()
}
