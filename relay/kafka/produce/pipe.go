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
	"time"

	"github.com/IBM/sarama"
)

// maxAnswer is above any answer of a broker: it has some dozen bytes for each batch.
const maxAnswer = 16 << 20

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

// Pipe is a connection to a broker that carries produce requests. One goroutine calls Send. The end of the connection ends everything: each request that
// is under way gets the error.
type Pipe struct {
	conn    net.Conn
	version int16
	login   Login
	lost    func()    // told once that the connection has ended, before the requests are
	number  int32     // of the next request; Send's
	until   time.Time // when to log in again; Send's, and the reader's while pausing

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

// Send sends a request that an Encoder has made, and returns when it is written. done is called once, whatever happens; before Send returns only if the
// connection has ended.
func (p *Pipe) Send(frame []byte, done Done) {
	if !p.until.IsZero() && !time.Now().Before(p.until) {
		p.logIn()
	}
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
	if _, err := p.conn.Write(frame); err != nil {
		_ = p.conn.Close() // the reader hears of it
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
		head, err := in.Peek(4)
		if errors.Is(err, os.ErrDeadlineExceeded) && in.Buffered() == 0 && p.due() {
			if err := p.pause(); err != nil {
				return err
			}
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
		if p.due() {
			if err := p.pause(); err != nil {
				return err
			}
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
