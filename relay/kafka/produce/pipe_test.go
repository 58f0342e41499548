package produce

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// broker is the other end of a Pipe.
type broker struct {
	t    *testing.T
	conn net.Conn
}

// receive gives the number of the next request.
func (b *broker) receive() uint32 {
	b.t.Helper()
	head := make([]byte, 4)
	if _, err := io.ReadFull(b.conn, head); err != nil {
		b.t.Fatal(err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(head))
	if _, err := io.ReadFull(b.conn, frame); err != nil {
		b.t.Fatal(err)
	}
	return binary.BigEndian.Uint32(frame[4:])
}

// answer answers a request; millis shows which answer it is.
func (b *broker) answer(number uint32, millis int32) {
	b.t.Helper()
	frame := binary.BigEndian.AppendUint32(make([]byte, 4), number)
	frame = append(frame, body(&kmsg.ProduceResponse{Version: 10, ThrottleMillis: millis})...)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	if _, err := b.conn.Write(frame); err != nil {
		b.t.Fatal(err)
	}
}

// told gathers what a Pipe says.
type told struct {
	mu     sync.Mutex
	what   []string
	errors []error
}

func (o *told) add(s string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.what = append(o.what, s)
	o.errors = append(o.errors, err)
}

func (o *told) done(name string) Done {
	return func(resp *sarama.ProduceResponse, err error) {
		if err == nil {
			name += " " + resp.ThrottleTime.String()
		}
		o.add(name, err)
	}
}

// check compares what was said, once nothing more happens.
func (o *told) check(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !slices.Equal(o.what, want) {
		t.Fatalf("the pipe said %q, want %q", o.what, want)
	}
}

// login is one that is good for a while.
type login struct {
	until time.Time
	do    func() error
}

const lifetime = 5 * time.Second

func (l *login) LogInAt() time.Time { return l.until }

func (l *login) LogIn() error {
	l.until = time.Now().Add(lifetime)
	return l.do()
}

func newTestPipe(t *testing.T, ask func(net.Conn) error) (*Pipe, *broker, *told) {
	t.Helper()
	client, server := net.Pipe()
	o := &told{}
	l := &login{}
	if ask != nil {
		l.until = time.Now().Add(lifetime)
		l.do = func() error { o.add("login", nil); return ask(client) }
	}
	p, err := NewPipe(client, 10, l, func() { o.add("lost", nil) })
	if err != nil {
		t.Fatal(err)
	}
	go p.Run() // ends with the connection
	t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
	return p, &broker{t, server}, o
}

func someRequest() []byte {
	var e Encoder
	return encodeOne(&e, sarama.CompressionNone, fieldsOf(1))
}

func (p *Pipe) renewAndSend(done Done) {
	p.Renew()
	p.Send(someRequest(), done)
}

func TestAnswersComeInTheOrderOfTheRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, o := newTestPipe(t, nil)
		var numbers []uint32
		go func() { // ends with the third request
			for range 3 {
				numbers = append(numbers, b.receive())
			}
		}()
		p.Send(someRequest(), o.done("first"))
		p.Send(someRequest(), o.done("second"))
		p.Send(someRequest(), o.done("third"))
		o.check(t)
		for i, number := range numbers {
			b.answer(number, int32(i+1))
		}
		o.check(t, "first 1ms", "second 2ms", "third 3ms")
	})
}

// An idle connection that ends is told, and every request that is under way gets the error, as does the next one.
func TestEndOfTheConnectionReachesEveryRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, b, o := newTestPipe(t, nil)
		go func() { b.receive(); b.receive() }() // ends with the second request
		p.Send(someRequest(), o.done("first"))
		p.Send(someRequest(), o.done("second"))
		synctest.Wait()
		_ = b.conn.Close()
		o.check(t, "lost", "first", "second")
		p.Send(someRequest(), o.done("third"))
		o.check(t, "lost", "first", "second", "third")
		for i, err := range o.errors[1:] {
			if !errors.Is(err, io.EOF) {
				t.Errorf("error %d is %v", i, err)
			}
		}
	})
}

// A request that cannot be written ends the connection; it must not wait for an answer for ever.
func TestRequestThatCannotBeWrittenGetsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := net.Pipe()
		o := &told{}
		p, err := NewPipe(deaf{client}, 10, &login{}, func() { o.add("lost", nil) })
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		go p.Run() // ends with the connection
		p.Send(someRequest(), o.done("first"))
		o.check(t, "lost", "first")
	})
}

type deaf struct{ net.Conn }

func (deaf) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// An answer to something else means that requests and answers have come apart: nothing may be taken for acknowledged from there on.
func TestAnswerThatIsNotAwaitedEndsTheConnection(t *testing.T) {
	for what, number := range map[string]uint32{"of the next request": 2, "of an earlier one": 0, "of none": 1 << 31} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, b, o := newTestPipe(t, nil)
				go func() { b.receive(); b.answer(number, 1) }() // ends with the answer
				p.Send(someRequest(), o.done("first"))
				o.check(t, "lost", "first")
				if err := o.errors[1]; !errors.Is(err, ErrMalformed) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

// A login happens before a request, when nothing is under way, and with the connection for itself.
func TestLoginHasTheConnectionForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := func(c net.Conn) error {
			if _, err := c.Write([]byte("login")); err != nil {
				return err
			}
			if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil { // as sarama leaves one
				return err
			}
			_, err := io.ReadFull(c, make([]byte, 7))
			return err
		}
		p, b, o := newTestPipe(t, ask)
		grant := func() {
			t.Helper()
			asked := make([]byte, 5)
			if _, err := io.ReadFull(b.conn, asked); err != nil || string(asked) != "login" {
				t.Fatalf("the pipe sent %q, %v", asked, err)
			}
			if _, err := b.conn.Write([]byte("granted")); err != nil {
				t.Fatal(err)
			}
		}
		go p.Send(someRequest(), o.done("first")) // ends when it is written
		first := b.receive()
		o.check(t) // too early for another login

		time.Sleep(lifetime)
		go p.renewAndSend(o.done("second")) // ends when it is written
		o.check(t)                          // the first is under way
		b.answer(first, 1)
		grant()
		b.answer(b.receive(), 2)
		o.check(t, "first 1ms", "login", "second 2ms")

		time.Sleep(time.Hour)              // idle, with the reader at its place
		go p.renewAndSend(o.done("third")) // ends when it is written
		grant()
		b.answer(b.receive(), 3)
		o.check(t, "first 1ms", "login", "second 2ms", "login", "third 3ms")
	})
}

func TestLoginThatFailsEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("refused")
		p, _, o := newTestPipe(t, func(net.Conn) error { return refused })
		time.Sleep(time.Hour)
		p.renewAndSend(o.done("first"))
		o.check(t, "login", "lost", "first")
		if !errors.Is(o.errors[2], refused) {
			t.Errorf("error %v", o.errors[2])
		}
	})
}
