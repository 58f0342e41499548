package sandbox

import (
	"errors"
	"io"
	"net"
	"sync"
)

// gate lets callers of wait pass while it is open.
type gate struct {
	mu   sync.Mutex
	pass chan struct{} // closed while the gate is open
}

func (g *gate) init() {
	g.pass = make(chan struct{})
	close(g.pass)
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.pass:
		g.pass = make(chan struct{})
	default:
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.pass:
	default:
		close(g.pass)
	}
}

// wait returns true once the gate is open, false if stop is closed first.
func (g *gate) wait(stop <-chan struct{}) bool {
	g.mu.Lock()
	pass := g.pass
	g.mu.Unlock()
	select {
	case <-pass:
		return true
	case <-stop:
		return false
	}
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// reset closes a connection with a RST, as a port without a listener would answer.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}
