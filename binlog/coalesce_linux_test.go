package binlog

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pairOf gives both ends of a TCP connection.
func pairOf(t *testing.T) (reader, writer *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r.(*net.TCPConn), w.(*net.TCPConn)
}

func (c *coalescer) int(t *testing.T, get func(fd int) (int, error)) (n int) {
	t.Helper()
	var err error
	if failed := c.raw.Control(func(fd uintptr) { n, err = get(int(fd)) }); failed != nil || err != nil {
		t.Fatal(failed, err)
	}
	return n
}

// waiting is how many bytes have come and were not read.
func (c *coalescer) waiting(t *testing.T) int {
	t.Helper()
	return c.int(t, func(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.SIOCINQ) })
}

// wakesFor is for how many bytes the kernel wakes a reader.
func (c *coalescer) wakesFor(t *testing.T) int {
	t.Helper()
	return c.int(t, func(fd int) (int, error) { return unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVLOWAT) })
}

func send(t *testing.T, w net.Conn, n int) {
	t.Helper()
	if _, err := w.Write(make([]byte, n)); err != nil {
		t.Error(err)
	}
}

// A reader that has read much finds many small writes as one.
func TestManyWritesAreReadTogether(t *testing.T) {
	t.Parallel()
	r, w := pairOf(t)
	c := newCoalescer(r)
	c.brought = muchBytes
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for range 4 * coalescedBytes / 1000 {
			send(t, w, 1000)
		}
	}()
	together := 0
	for deadline := time.Now().Add(10 * time.Second); together == 0 && time.Now().Before(deadline); {
		c.brought = muchBytes
		c.await()
		if n := c.waiting(t); n >= coalescedBytes/4 { // as much as fits into its buffer, if that is small
			together = n
		}
	}
	if together == 0 {
		t.Error("it never waited until much was there")
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	<-sent
}

// What a read has brought decides about the next one.
func TestAReadTellsWhatItHasBrought(t *testing.T) {
	t.Parallel()
	r, w := pairOf(t)
	p := newPackets(r, 1<<20, func() {})
	for _, n := range []int{muchBytes, 100, muchBytes + 1} {
		send(t, w, n)
		for p.more.waiting(t) < n {
			time.Sleep(time.Millisecond)
		}
		p.r = p.w
		if err := p.receive(1); err != nil {
			t.Fatal(err)
		}
		if p.more.brought != n {
			t.Errorf("%d bytes and not %d", p.more.brought, n)
		}
	}
}

// Nothing that has come is kept waiting, and the next to come wakes the reader, however little it is.
func TestTheLastBytesAreNotHeldBack(t *testing.T) {
	t.Parallel()
	for _, more := range []int{0, 1, 5000} {
		r, w := pairOf(t)
		p := newPackets(r, 1<<20, func() {})
		p.more.brought = muchBytes
		send(t, w, 4000)
		if err := p.receive(4000); err != nil { // waits in vain for more
			t.Fatal(err)
		}
		if n := p.more.wakesFor(t); n != 1 {
			t.Errorf("a reader is woken for no less than %d bytes", n)
		}
		for range 3 {
			p.r = p.w
			p.more.brought = muchBytes
			time.AfterFunc(20*time.Millisecond, func() { send(t, w, 100+more) })
			begun := time.Now()
			if err := p.receive(100 + more); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(begun); d > 10*time.Second {
				t.Errorf("it took %s", d)
			}
		}
	}
}

// Where reads bring little nothing waits; and a wait takes no memory.
func TestLittleIsReadAtOnce(t *testing.T) {
	r, w := pairOf(t)
	c := newCoalescer(r)
	send(t, w, 10)
	c.brought = muchBytes - 1
	if n := testing.AllocsPerRun(100, c.await); n != 0 || c.lowest != 1 {
		t.Errorf("%v allocations, woken for %d bytes", n, c.lowest)
	}
	send(t, w, coalescedBytes+1000)
	c.brought = muchBytes
	for deadline := time.Now().Add(10 * time.Second); c.lowest == 1 && time.Now().Before(deadline); {
		c.await() // until enough has come
	}
	if n := testing.AllocsPerRun(100, c.await); n != 0 || c.lowest == 1 {
		t.Errorf("%v allocations, woken for %d bytes", n, c.lowest)
	}
	c.brought = 0
	c.await()
	if n := c.wakesFor(t); n != 1 {
		t.Errorf("a reader is woken for no less than %d bytes", n)
	}
}

// The end of the connection is found by the read behind the wait, and both kinds of it end a wait.
func TestAConnectionEndsWhileMoreIsWaitedFor(t *testing.T) {
	t.Parallel()
	r, w := pairOf(t)
	p := newPackets(r, 1<<20, func() {})
	p.more.brought = muchBytes
	send(t, w, 10)
	w.Close()
	if err := p.receive(10); err != nil {
		t.Fatal(err)
	}
	p.r = p.w
	p.more.brought = muchBytes
	if err := p.receive(1); !errors.Is(err, io.EOF) || !p.failed {
		t.Errorf("%v", err)
	}
	r, _ = pairOf(t)
	p = newPackets(r, 1<<20, func() {})
	p.more.brought = muchBytes
	time.AfterFunc(100*time.Millisecond, func() { r.Close() })
	if err := p.receive(1); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// Connections that hold bytes back themselves, or are none of TCP, are read as ever.
func TestOnlyTCPIsWaitedFor(t *testing.T) {
	t.Parallel()
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	if c := newCoalescer(a); c.conn != nil {
		t.Error("a pipe is waited for")
	}
	r, _ := pairOf(t)
	if c := newCoalescer(&clearGuard{Conn: r}); c.conn == nil {
		t.Error("a connection whose login was watched is not waited for")
	}
}
