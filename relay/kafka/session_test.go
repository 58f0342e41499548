package kafka_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka"
)

// expiring is a fake cluster whose logins are good for a while. before is called with each handshake in hand.
func expiring(t *testing.T, lifetime time.Duration, before func(), opts ...kfake.Opt) (cluster *kfake.Cluster, brokers []string, logins *atomic.Int64) {
	t.Helper()
	cluster, brokers = fake(t, opts...)
	logins = new(atomic.Int64)
	cluster.ControlKey(int16(kmsg.SASLHandshake), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		before()
		answer := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
		answer.SupportedMechanisms = []string{"PLAIN"}
		return answer, nil, true
	})
	cluster.ControlKey(int16(kmsg.SASLAuthenticate), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		logins.Add(1)
		answer := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
		answer.SessionLifetimeMillis = lifetime.Milliseconds()
		return answer, nil, true
	})
	return cluster, brokers, logins
}

// Logins are renewed many times a second while records flow, and connections end in the midst of it: each record is in the log once and in order.
func TestExactOrderWhileLoginsAreRenewed(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]int{"calm": 0, "encrypted": 0, "connections end": 40} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, brokers, logins := expiring(t, 60*time.Millisecond, func() {}, kfake.SeedTopics(4, "t"))
			var front *tlsFront
			if name == "encrypted" {
				front = newTLSFront(t)
			}
			h := start(t, brokers, func(o *kafka.Options) {
				o.Window = 256 << 10
				o.SASL = login("plain", "relay", password)
				if front != nil {
					o.TLS, o.Dialer = front.trust, front.dial
					return
				}
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, network, addr)
					if one > 0 {
						return forgetful{c, one}, err
					}
					return c, err
				}
			})
			for began := time.Now(); time.Since(began) < 6*time.Second; {
				h.publish("t", 40, 100)
				h.p.Flush()
				time.Sleep(time.Millisecond)
			}
			h.drain(time.Minute)
			if n := logins.Load(); n < 60 {
				t.Errorf("%d logins", n)
			}
			if one == 0 {
				if err := h.p.Stats().LastError; err != nil {
					t.Errorf("the renewals are felt: %v", err)
				}
			}
			h.stop()
			h.verify("t")
			h.noEpochs()
		})
	}
}

// tlsFront speaks TLS before brokers that do not, so that a test reads the log without it.
type tlsFront struct {
	server *tls.Config
	ca     *sandbox.Authority
}

func newTLSFront(t *testing.T) *tlsFront {
	ca := sandbox.NewAuthority(t, "ours")
	own := ca.Issue(sandbox.CertificateOptions{Name: "broker"})
	pair, err := tls.LoadX509KeyPair(own.CertFile, own.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	return &tlsFront{server: &tls.Config{Certificates: []tls.Certificate{pair}}, ca: ca}
}

func (f *tlsFront) trust(string) (*tls.Config, error) { return f.ca.ClientConfig(), nil }

func (f *tlsFront) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	broker, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	client, inner, err := connected()
	if err != nil {
		return nil, err
	}
	secured := tls.Server(inner, f.server)
	for _, way := range [][2]net.Conn{{secured, broker}, {broker, secured}} {
		go func() { // ends with either connection
			_, _ = io.Copy(way[0], way[1])
			_, _ = secured.Close(), broker.Close()
		}()
	}
	return client, nil
}

// connected gives both ends of a connection.
func connected() (client, server net.Conn, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = l.Close() }()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	server, err = l.Accept()
	return client, server, err
}

// A broker freezes while a login is renewed before a request.
func TestBrokerThatFreezesDuringALoginIsLeft(t *testing.T) {
	t.Parallel()
	_, brokers, _ := expiring(t, time.Second, func() {}, kfake.NumBrokers(1), kfake.SeedTopics(3, "t"))
	var g gate
	h := start(t, brokers, func(o *kafka.Options) { o.Dialer, o.SASL = g.dial, login("plain", "relay", password) })
	h.publish("t", 30, 30)
	h.drain(20 * time.Second)
	time.Sleep(1200 * time.Millisecond)
	release := g.hold()
	defer release()
	time.AfterFunc(8*time.Second, release)
	h.publish("t", 30, 300)
	h.p.Flush()
	h.drain(40 * time.Second)
	h.verify("t")
	h.noEpochs()
}

// The activity lock can be lost while a login is renewed: what was allowed before it is asked for again behind it.
func TestPermissionToSendIsAskedForAfterALogin(t *testing.T) {
	t.Parallel()
	var allowed, renewing atomic.Bool
	var handshakes atomic.Int64
	allowed.Store(true)
	cluster, brokers, logins := expiring(t, time.Second, func() {
		handshakes.Add(1)
		if renewing.Load() {
			allowed.Store(false)
		}
	}, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	h := start(t, brokers, func(o *kafka.Options) {
		o.SASL = login("plain", "relay", password)
		o.Idle = time.Hour // the login of the other connection is not renewed
		o.Allowed = allowed.Load
	})
	h.publish("t", 1, 1)
	h.drain(20 * time.Second)
	requests := produceRequests(cluster)
	first := logins.Load()
	time.Sleep(1200 * time.Millisecond)
	renewing.Store(true)
	h.publish("t", 1, 1)
	h.p.Flush()
	deadline := time.Now().Add(20 * time.Second)
	for logins.Load() == first && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(300 * time.Millisecond)
	if n := requests.Hits(); n != 0 {
		t.Errorf("%d requests were sent behind the loss of the permission", n)
	}
	renewing.Store(false)
	allowed.Store(true)
	h.awaitAcked(2, 20*time.Second)
	h.drain(20 * time.Second)
}

// heard keeps what is logged at level Warn or above.
type heard struct {
	slog.Handler
	mu   sync.Mutex
	said []string
}

func (h *heard) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		h.mu.Lock()
		h.said = append(h.said, r.Message)
		h.mu.Unlock()
	}
	return h.Handler.Handle(ctx, r)
}

func (h *heard) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h *heard) warnings() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string{}, h.said...)
}

// gate is a proxy before brokers whose connections can be ended from the side of the broker, or held up so that nothing is read from either side.
type gate struct {
	mu    sync.Mutex
	conns []net.Conn
	open  chan struct{} // closed while bytes pass
}

func (g *gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	broker, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	client, inner, err := connected()
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.conns = append(g.conns, inner, broker)
	g.mu.Unlock()
	go g.copy(inner, broker) // both end with their connections
	go g.copy(broker, inner)
	return client, nil
}

func (g *gate) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		g.mu.Lock()
		open := g.open
		g.mu.Unlock()
		if open != nil {
			<-open
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func (g *gate) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.conns {
		_ = c.Close()
	}
	g.conns = nil
}

// hold holds all connections up until release.
func (g *gate) hold() (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.open != nil {
			close(g.open)
			g.open = nil
		}
	}
}

// Brokers end idle connections (connections.max.idle.ms). That is no news, and the next record goes out at once.
func TestEndOfAnIdleConnectionIsNoNews(t *testing.T) {
	t.Parallel()
	_, brokers := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	var g gate
	said := &heard{Handler: slog.NewTextHandler(t.Output(), nil)}
	h := start(t, brokers, func(o *kafka.Options) { o.Dialer, o.Logger, o.Idle = g.dial, slog.New(said), time.Hour })
	h.publish("t", 1, 1)
	h.drain(20 * time.Second)
	for n := 1; n < 20; n++ {
		g.end()
		time.Sleep(50 * time.Millisecond)
		began := time.Now()
		h.publish("t", 1, 1)
		h.p.Flush()
		h.awaitAcked(n+1, 20*time.Second)
		if d := time.Since(began); d > time.Second {
			t.Errorf("record behind the end of the connection took %v", d)
		}
	}
	if s := h.p.Stats(); s.LastError != nil {
		t.Errorf("error %v", s.LastError)
	}
	if w := said.warnings(); len(w) > 0 {
		t.Errorf("warnings: %q", w)
	}
	h.verify("t")
}

// A broker freezes while a request is written that its socket buffers do not take: the connection is ended, and all goes on over another one.
func TestBrokerThatStopsReadingIsLeft(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.NumBrokers(1))
	if err := cluster.CreateTopic("t", 3, map[string]string{"max.message.bytes": "67108864"}); err != nil {
		t.Fatal(err)
	}
	var g gate
	h := start(t, brokers, func(o *kafka.Options) { o.Dialer, o.Window = g.dial, 64<<20 })
	h.publish("t", 30, 30)
	h.drain(20 * time.Second)
	release := g.hold()
	defer release()
	time.AfterFunc(8*time.Second, release)
	h.seq++
	r := record("t", "key-0", h.seq)
	r.Value = append(r.Value, noise(24<<20)...)
	h.send(r)
	h.publish("t", 30, 300)
	began := time.Now()
	h.drain(40 * time.Second)
	t.Logf("took %v", time.Since(began))
	h.verify("t")
	h.noEpochs()
}

// A broker that leaves partitions out of its answer, or names others, is asked again: nothing counts as acknowledged that it did not name.
func TestAnswersThatDoNotNameWhatWasAsked(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(4, "t"))
	var count atomic.Int64
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		n := count.Add(1)
		if n%3 != 1 {
			return nil, nil, false
		}
		answer := req.ResponseKind().(*kmsg.ProduceResponse)
		if n%2 == 0 { // another topic and partition
			topic := kmsg.NewProduceResponseTopic()
			topic.Topic = "other"
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition = 77
			topic.Partitions = append(topic.Partitions, p)
			answer.Topics = append(answer.Topics, topic)
		}
		return answer, nil, true
	})
	h := start(t, brokers, nil)
	for range 50 {
		h.publish("t", 40, 40)
		h.p.Flush()
		time.Sleep(3 * time.Millisecond)
	}
	h.drain(time.Minute)
	h.verify("t")
	h.noEpochs()
}

// A request that goes on is not blocked for ever by an answer that never comes whole.
func TestHalfAnAnswerIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	_, brokers := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	var half atomic.Bool
	h := start(t, brokers, func(o *kafka.Options) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &halving{Conn: c, half: &half, closed: make(chan struct{})}, err
		}
	})
	h.publish("t", 1, 10)
	h.drain(20 * time.Second)
	half.Store(true)
	h.publish("t", 1, 10)
	h.drain(30 * time.Second)
	h.verify("t")
	h.noEpochs()
}

// halving gives a byte of the next read and then nothing, once.
type halving struct {
	net.Conn
	half   *atomic.Bool
	silent atomic.Bool
	once   sync.Once
	closed chan struct{}
}

func (c *halving) Read(b []byte) (int, error) {
	if c.silent.Load() {
		<-c.closed
		return 0, io.EOF
	}
	n, err := c.Conn.Read(b)
	if n > 7 && c.half.CompareAndSwap(true, false) {
		c.silent.Store(true)
		return 7, nil
	}
	return n, err
}

func (c *halving) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A broker names each record of a large batch that it refuses, with a reason: such an answer is read as any other.
func TestAnswerWithAReasonForEachOfManyRecords(t *testing.T) {
	t.Parallel()
	cluster, brokers := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	var refusals atomic.Int64
	reason := fmt.Sprintf("Compacted topic cannot accept message without key in topic partition %02500d-0.", 0) // 20 MB in all
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		asked := req.(*kmsg.ProduceRequest).Topics[0]
		var batch kmsg.RecordBatch
		if err := batch.ReadFrom(asked.Partitions[0].Records); err != nil || batch.NumRecords < 8192 { // full batches only
			return nil, nil, false
		}
		refusals.Add(1)
		answer := req.ResponseKind().(*kmsg.ProduceResponse)
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = asked.Topic, asked.TopicID
		p := kmsg.NewProduceResponseTopicPartition()
		p.ErrorCode = 87
		for i := range batch.NumRecords {
			e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
			e.RelativeOffset, e.ErrorMessage = i, &reason
			p.ErrorRecords = append(p.ErrorRecords, e)
		}
		topic.Partitions = append(topic.Partitions, p)
		answer.Topics = append(answer.Topics, topic)
		return answer, nil, true
	})
	var allowed atomic.Bool
	h := start(t, brokers, func(o *kafka.Options) { o.MaxBatch, o.Window, o.Allowed = 1<<20, 32<<20, allowed.Load })
	for range 20_000 { // what was taken before the others came, and a full batch behind it
		h.seq++
		r := record("t", "", h.seq)
		r.Key, r.ID, r.Headers, r.Value = nil, nil, nil, r.Value[:8]
		h.send(r)
	}
	h.p.Flush()
	allowed.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := h.p.Drain(ctx); err != nil {
		t.Errorf("after %d refusals: %v; last error %v", refusals.Load(), err, h.p.Stats().LastError)
	}
	if refusals.Load() == 0 {
		t.Error("no batch was large enough")
	}
}
