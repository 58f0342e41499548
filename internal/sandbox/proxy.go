package sandbox

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy is a TCP proxy on 127.0.0.1 that can disturb what it carries. Its methods may be
// called from several goroutines and at any time; none waits for traffic.
type Proxy struct {
	listener net.Listener
	gate     gate
	delay    atomic.Int64 // nanoseconds
	mute     atomic.Bool

	accepted, refused, toServer, toClient atomic.Int64

	mu      sync.Mutex
	target  string
	links   map[*link]struct{}
	refuse  bool
	closed  bool
	cutLeft int64         // bytes to clients until the cut; valid while cutDone is not nil
	cutDone chan struct{} // closed by the cut

	wg sync.WaitGroup // all goroutines
}

// ProxyStats counts since the proxy's start.
type ProxyStats struct {
	Accepted int64 // connections taken, refused ones not among them
	Refused  int64 // connections closed at once by Refuse
	Open     int   // connections now
	ToServer int64 // bytes handed on to the server
	ToClient int64 // bytes handed on to clients
}

// NewProxy starts a proxy before the address target. The caller must Close it.
func NewProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting a proxy: %w", err)
	}
	p := &Proxy{listener: l, target: target, links: map[*link]struct{}{}}
	p.gate.init()
	p.wg.Go(p.accept) // ends with the listener, in Close
	return p, nil
}

// Addr returns the host:port to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut closes all connections now. Bytes on their way are lost. New connections are taken.
func (p *Proxy) Cut() {
	p.mu.Lock()
	links := make([]*link, 0, len(p.links))
	for l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, l := range links {
		l.close()
	}
}

// CutAfter lets exactly n more bytes pass from the server to clients, counted over all
// connections together, and then closes all connections, once. The returned channel is
// closed when that has happened. A new call replaces one that has not happened yet, whose
// channel then stays open.
func (p *Proxy) CutAfter(n int64) <-chan struct{} {
	done := make(chan struct{})
	if n <= 0 {
		p.Cut()
		close(done)
		return done
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLeft, p.cutDone = n, done
	return done
}

// Freeze keeps the connections and takes new ones, but hands nothing on, in neither
// direction, closings included, until Thaw.
func (p *Proxy) Freeze() { p.gate.shut() }

// Thaw ends Freeze; what was held back is handed on.
func (p *Proxy) Thaw() { p.gate.open() }

// Mute throws away what the server sends while all that clients send goes on to it: answers are lost, until Unmute.
func (p *Proxy) Mute() { p.mute.Store(true) }

// Unmute ends Mute and closes all connections, since streams have holes.
func (p *Proxy) Unmute() {
	p.mute.Store(false)
	p.Cut()
}

// Delay makes each byte arrive d later, in both directions, without lowering throughput: a
// round trip takes 2d longer. It holds for bytes that the proxy reads from now on.
func (p *Proxy) Delay(d time.Duration) { p.delay.Store(int64(d)) }

// Refuse makes the proxy close new connections at once (true), or take them again
// (false). Existing ones stay.
func (p *Proxy) Refuse(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = refuse
}

// Retarget sends new connections to another server.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Stats returns the counters.
func (p *Proxy) Stats() ProxyStats {
	p.mu.Lock()
	open := len(p.links)
	p.mu.Unlock()
	return ProxyStats{Accepted: p.accepted.Load(), Refused: p.refused.Load(), Open: open,
		ToServer: p.toServer.Load(), ToClient: p.toClient.Load()}
}

// Close ends the listener and all connections and waits until all is gone. It may be
// called more than once.
func (p *Proxy) Close() error {
	p.mu.Lock()
	already := p.closed
	p.closed = true
	p.mu.Unlock()
	if already {
		return nil
	}
	err := p.listener.Close()
	p.Cut()
	p.wg.Wait()
	return err
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.mu.Lock()
		if p.closed || p.refuse {
			p.mu.Unlock()
			p.refused.Add(1)
			reset(client)
			continue
		}
		l := &link{proxy: p, client: client, target: p.target, ended: make(chan struct{})}
		p.links[l] = struct{}{}
		p.accepted.Add(1)
		p.wg.Go(l.serve) // ends when the link is closed
		p.mu.Unlock()
	}
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// allowance takes up to n bytes from what may still pass to clients before a planned cut,
// and returns the channel of the cut if that reaches it.
func (p *Proxy) allowance(n int) (allowed int, cut chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cutDone == nil {
		return n, nil
	}
	if int64(n) < p.cutLeft {
		p.cutLeft -= int64(n)
		return n, nil
	}
	cut = p.cutDone
	p.cutDone = nil
	return int(p.cutLeft), cut
}
