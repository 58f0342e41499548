package sandbox

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is one connection through a proxy.
type link struct {
	proxy  *Proxy
	client net.Conn
	target string

	once   sync.Once
	ended  chan struct{} // closed by close
	mu     sync.Mutex
	server net.Conn // nil until connected
}

// chunk is a piece of a stream and the time at which it may be handed on.
type chunk struct {
	bytes []byte
	due   time.Time
}

// Read ahead per direction: 8 chunks of 32 KiB, so a proxy does not hide back-pressure.
const (
	chunkSize  = 32 << 10
	chunkQueue = 8
)

// serve connects to the target and copies until both directions have ended.
func (l *link) serve() {
	defer l.proxy.forget(l)
	defer l.close()
	if !l.proxy.gate.wait(l.ended) {
		return
	}
	server, err := net.DialTimeout("tcp", l.target, 10*time.Second)
	if err != nil {
		return
	}
	l.mu.Lock()
	l.server = server
	l.mu.Unlock()
	select {
	case <-l.ended: // close may have missed the new connection
		server.Close()
		return
	default:
	}
	var directions sync.WaitGroup
	directions.Go(func() { l.copy(server, l.client, &l.proxy.toServer, false) })
	directions.Go(func() { l.copy(l.client, server, &l.proxy.toClient, true) })
	directions.Wait()
}

// close ends both connections; what is on its way is lost.
func (l *link) close() {
	l.once.Do(func() {
		close(l.ended)
		l.client.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.server != nil {
			l.server.Close()
		}
	})
}

// copy carries one direction. The end of src is handed on as an end of writing to dst; a
// fault of either ends the whole link.
func (l *link) copy(dst, src net.Conn, count *atomic.Int64, toClient bool) {
	queue := make(chan chunk, chunkQueue)
	var reader sync.WaitGroup
	reader.Go(func() { l.read(src, queue) }) // ends when src does or the link is closed
	defer reader.Wait()
	holed := false
	for c := range queue {
		if !l.wait(c.due) || !l.proxy.gate.wait(l.ended) {
			l.close()
			return
		}
		if len(c.bytes) == 0 { // end of the stream
			if tcp, ok := dst.(*net.TCPConn); ok {
				_ = tcp.CloseWrite()
			}
			return
		}
		if holed = holed || toClient && l.proxy.mute.Load(); holed {
			continue // nothing may pass behind a hole
		}
		var cut chan struct{}
		if toClient {
			var allowed int
			allowed, cut = l.proxy.allowance(len(c.bytes))
			c.bytes = c.bytes[:allowed]
		}
		n, err := dst.Write(c.bytes)
		count.Add(int64(n))
		if cut != nil {
			l.proxy.Cut()
			close(cut)
			return
		}
		if err != nil {
			l.close()
			return
		}
	}
}

// read fills the queue; an empty chunk stands for the orderly end of src.
func (l *link) read(src net.Conn, queue chan<- chunk) {
	defer close(queue)
	for {
		b := make([]byte, chunkSize)
		n, err := src.Read(b)
		due := time.Now().Add(time.Duration(l.proxy.delay.Load()))
		if n > 0 && !l.put(queue, chunk{b[:n], due}) {
			return
		}
		if err != nil {
			if isEOF(err) {
				l.put(queue, chunk{nil, due})
			} else {
				l.close()
			}
			return
		}
	}
}

func (l *link) put(queue chan<- chunk, c chunk) bool {
	select {
	case queue <- c:
		return true
	case <-l.ended:
		return false
	}
}

// wait sleeps until the time comes; false if the link is closed before.
func (l *link) wait(until time.Time) bool {
	d := time.Until(until)
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ended:
		return false
	}
}
