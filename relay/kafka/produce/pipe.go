package produce

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

const (
	// maxAnswer is above any answer of a broker: it may have a sentence for each record of a request.
	maxAnswer = 100 << 20
	// piece is how much is written at once of a large request, so that its progress shows.
	piece = 1 << 20
)

// Login renews the login of a connection, which the broker would end for its age.
type Login interface {
	// LogInAt is when LogIn has to be called; zero for never.
	LogInAt() time.Time
	// LogIn has the connection for itself while it runs. Its error ends the connection.
	LogIn() error
}

// Done takes the answer to a request, or the error that came instead. It runs in the reader of the connection: it must not block and must not call the
// Pipe.
type Done func(*sarama.ProduceResponse, error)

// Pipe is a connection to a broker that carries produce requests. One goroutine calls Renew and Send. The end of the connection ends everything: each request that
// is under way gets the error.
type Pipe struct {
	conn    net.Conn
	version int16
	login   Login
	lost    func()    // told once that the connection has ended, before the requests are
	number  int32     // of the last request; Send's
	until   time.Time // when to log in again; Renew's, and the reader's while pausing
	written atomic.Int64

	mu      sync.Mutex
	waiting []request
	pausing chan struct{} // not nil while the reader is to log in; closed when it did
	err     error         // the connection has ended
}

// request is one that waits for its answer.
type request struct {
	number int32
	done   Done
}

// NewPipe takes a connection over that stands and on which nothing is under way. Requests have the given version. lost is told the end of the connection.
func NewPipe(conn net.Conn, version int16, login Login, lost func()) (*Pipe, error) {
	p := &Pipe{conn: conn, version: version, login: login, lost: lost, until: login.LogInAt()}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return p, nil
}

// Version is that of the requests.
func (p *Pipe) Version() int16 { return p.version }

// Run reads answers until the connection ends.
func (p *Pipe) Run() {
	err := p.read()
	p.mu.Lock()
	p.err = err
	waiting, pausing := p.waiting, p.pausing
	p.waiting, p.pausing = nil, nil
	p.mu.Unlock()
	p.lost()
	if pausing != nil {
		close(pausing)
	}
	for _, r := range waiting {
		r.done(nil, err)
	}
}

// Renew logs in again if it is time, which waits for the answers to what is under way. To be called before Send.
func (p *Pipe) Renew() {
	if !p.until.IsZero() && !time.Now().Before(p.until) {
		p.logIn()
	}
}

// LastWrite is when a part of a request was written last; zero before the first.
func (p *Pipe) LastWrite() time.Time {
	if at := p.written.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// Send sends a request that an Encoder has made, and returns when it is written. done is called once, whatever happens; before Send returns only if the
// connection has ended or the broker is quick.
func (p *Pipe) Send(frame []byte, done Done) {
	p.number++
	binary.BigEndian.PutUint32(frame[8:], uint32(p.number))
	p.mu.Lock()
	if err := p.err; err != nil {
		p.mu.Unlock()
		done(nil, err)
		return
	}
	p.waiting = append(p.waiting, request{p.number, done})
	p.mu.Unlock()
	for len(frame) > 0 {
		n, err := p.conn.Write(frame[:min(piece, len(frame))])
		if err != nil {
			_ = p.conn.Close() // the reader hears of it
			return
		}
		p.written.Store(time.Now().UnixNano())
		frame = frame[n:]
	}
}

// logIn has the reader log in once nothing is under way, and waits for it.
func (p *Pipe) logIn() {
	pausing := make(chan struct{})
	p.mu.Lock()
	if p.err != nil {
		p.mu.Unlock()
		return
	}
	p.pausing = pausing
	if len(p.waiting) == 0 {
		_ = p.conn.SetReadDeadline(time.Unix(1, 0)) // wakes the reader
	}
	p.mu.Unlock()
	<-pausing
}

// read reads answers. Its error is why there are no more.
func (p *Pipe) read() error {
	in := bufio.NewReaderSize(p.conn, 4<<10)
	var frame []byte
	for {
		if p.due() {
			if err := p.pause(); err != nil {
				return err
			}
		}
		head, err := in.Peek(4)
		if errors.Is(err, os.ErrDeadlineExceeded) && in.Buffered() == 0 && p.due() {
			continue
		}
		if err != nil {
			return err
		}
		n := int(int32(binary.BigEndian.Uint32(head)))
		if n < 4 || n > maxAnswer {
			return fmt.Errorf("%w: it has %d bytes", ErrMalformed, n)
		}
		_, _ = in.Discard(4)
		if cap(frame) < n {
			frame = make([]byte, n)
		}
		frame = frame[:n]
		if _, err := io.ReadFull(in, frame); err != nil {
			return err
		}
		if err := p.answered(frame); err != nil {
			return err
		}
		if n > keep {
			frame = nil
		}
	}
}

// answered gives an answer to whom it belongs.
func (p *Pipe) answered(frame []byte) error {
	number := int32(binary.BigEndian.Uint32(frame))
	p.mu.Lock()
	if len(p.waiting) == 0 || p.waiting[0].number != number {
		p.mu.Unlock()
		return fmt.Errorf("%w: it is number %d, which is not awaited", ErrMalformed, number)
	}
	done := p.waiting[0].done
	p.mu.Unlock()
	resp, err := parse(frame[4:], p.version)
	if err != nil {
		return err
	}
	p.mu.Lock()
	n := copy(p.waiting, p.waiting[1:])
	p.waiting[n] = request{}
	p.waiting = p.waiting[:n]
	p.mu.Unlock()
	done(resp, nil)
	return nil
}

// due tells whether to log in now.
func (p *Pipe) due() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pausing != nil && len(p.waiting) == 0
}

// pause logs in, which reads the connection, and lets Send go on.
func (p *Pipe) pause() error {
	if err := p.conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if err := p.login.LogIn(); err != nil {
		return err
	}
	p.until = p.login.LogInAt()
	if err := p.conn.SetDeadline(time.Time{}); err != nil { // the login has left its own
		return err
	}
	p.mu.Lock()
	close(p.pausing)
	p.pausing = nil
	p.mu.Unlock()
	return nil
}
