package sandbox_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"outbox-relay/internal/sandbox"
)

// echo starts a server that sends back what it gets and ends a connection when the client
// has ended its side.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the connection
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return l.Addr().String()
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.TCPConn)
}

// roundTrip sends text and reads it back.
func roundTrip(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("sent %q, got %q, %v", text, got, err)
	}
}

func TestProxyCarriesBothWaysAndHalfClose(t *testing.T) {
	t.Parallel()
	p := sandbox.RunProxy(t, echo(t))
	c := dial(t, p.Addr())
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	go func() { // ends when all is sent
		_, _ = c.Write(data)
		_ = c.CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, data) {
		t.Fatalf("got %d bytes, %v; want the %d sent", len(got), err, len(data))
	}
	c.Close()
	eventually(t, "the link is gone", func() bool { return p.Stats().Open == 0 })
	want := sandbox.ProxyStats{Accepted: 1, ToServer: int64(len(data)), ToClient: int64(len(data))}
	if got := p.Stats(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestProxyCutEndsConnectionsAndTakesNewOnes(t *testing.T) {
	t.Parallel()
	p := sandbox.RunProxy(t, echo(t))
	one, two := dial(t, p.Addr()), dial(t, p.Addr())
	roundTrip(t, one, "one")
	roundTrip(t, two, "two")
	p.Cut()
	for _, c := range []net.Conn{one, two} {
		if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after the cut got %d bytes, error %v; want the end", n, err)
		}
	}
	roundTrip(t, dial(t, p.Addr()), "three")
}

func TestProxyMuteLosesAnswersOnly(t *testing.T) {
	t.Parallel()
	p := sandbox.RunProxy(t, echo(t))
	c := dial(t, p.Addr())
	roundTrip(t, c, "before")
	p.Mute()
	if _, err := io.WriteString(c, "lost"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server has got what was sent", func() bool { return p.Stats().ToServer == int64(len("beforelost")) })
	p.Unmute()
	if got, err := io.ReadAll(c); len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v; want the end of the connection alone", got, err)
	}
	if got := p.Stats().ToClient; got != int64(len("before")) {
		t.Errorf("%d bytes were handed to clients, want %d", got, len("before"))
	}
	roundTrip(t, dial(t, p.Addr()), "after")
}

func TestProxyCutAfterLetsExactlySoManyBytesPass(t *testing.T) {
	t.Parallel()
	p := sandbox.RunProxy(t, echo(t))
	one, two := dial(t, p.Addr()), dial(t, p.Addr())
	roundTrip(t, one, "before")
	roundTrip(t, two, "before")
	cut := p.CutAfter(10)
	roundTrip(t, one, "1234")
	select {
	case <-cut:
		t.Fatal("cut after 4 bytes, want 10")
	default:
	}
	if _, err := io.WriteString(two, "56789abcdef"); err != nil {
		t.Fatal(err)
	}
	<-cut
	got, _ := io.ReadAll(two)
	if string(got) != "56789a" {
		t.Errorf("the second connection got %q, want the 6 bytes that were left", got)
	}
	if _, err := one.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the first connection is not cut: %v", err)
	}
	// Once only.
	roundTrip(t, dial(t, p.Addr()), "a longer text than was allowed before")
}

func TestProxyFreezeHoldsBytesAndThawHandsThemOn(t *testing.T) {
	t.Parallel()
	p := sandbox.RunProxy(t, echo(t))
	old := dial(t, p.Addr())
	roundTrip(t, old, "warm")
	p.Freeze()
	before := p.Stats()
	fresh := dial(t, p.Addr())
	for _, c := range []net.Conn{old, fresh} {
		if _, err := io.WriteString(c, "held"); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("frozen: got %d bytes, error %v; want a timeout", n, err)
		}
	}
	if after := p.Stats(); after.ToServer != before.ToServer || after.ToClient != before.ToClient {
		t.Errorf("frozen: counters went from %+v to %+v", before, after)
	}
	p.Thaw()
	for _, c := range []net.Conn{old, fresh} {
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		got := make([]byte, 4)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "held" {
			t.Errorf("thawed: got %q, %v; want what was held", got, err)
		}
	}
}

func TestProxyDelayKeepsThroughput(t *testing.T) {
	t.Parallel()
	p := sandbox.RunProxy(t, echo(t))
	c := dial(t, p.Addr())
	const d = 100 * time.Millisecond
	p.Delay(d)
	start := time.Now()
	roundTrip(t, c, "x")
	if took := time.Since(start); took < 2*d {
		t.Errorf("a round trip took %v, want at least %v", took, 2*d)
	}
	// 40 pieces of their own, one after the other without waiting for an echo.
	start = time.Now()
	go func() { // ends when all is sent
		for range 40 {
			_, _ = c.Write([]byte("y"))
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := io.ReadFull(c, make([]byte, 40)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 2*d || took > 20*d {
		t.Errorf("40 pieces took %v, want a little over %v: the delay must not add up", took, 2*d)
	}
	p.Delay(0)
	roundTrip(t, c, "z")
}

func TestProxyRefusesAndRetargets(t *testing.T) {
	t.Parallel()
	p := sandbox.RunProxy(t, echo(t))
	old := dial(t, p.Addr())
	roundTrip(t, old, "old")
	p.Refuse(true)
	c, err := net.Dial("tcp", p.Addr())
	if err == nil {
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("refused connection: %d bytes, %v; want its end", n, err)
		}
	}
	roundTrip(t, old, "still there")
	eventually(t, "the refusal is counted", func() bool { return p.Stats().Refused == 1 })
	p.Refuse(false)
	p.Retarget(hello(t))
	got, err := io.ReadAll(dial(t, p.Addr()))
	if err != nil || string(got) != "hello" {
		t.Errorf("after Retarget got %q, %v; want the other server's hello", got, err)
	}
}

// hello starts a server that greets and closes.
func hello(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello")
			c.Close()
		}
	}()
	return l.Addr().String()
}

func TestProxyToADeadServerEndsTheConnection(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	p := sandbox.RunProxy(t, l.Addr().String())
	if got, err := io.ReadAll(dial(t, p.Addr())); len(got) != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v; want the end", got, err)
	}
}

func TestProxyCloseEndsFrozenAndDelayedLinks(t *testing.T) {
	t.Parallel()
	p := sandbox.RunProxy(t, echo(t))
	c := dial(t, p.Addr())
	roundTrip(t, c, "x")
	p.Delay(time.Hour)
	_, _ = io.WriteString(c, "late")
	p.Freeze()
	done := make(chan error)
	go func() { done <- p.Close() }() // ends with Close
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Close hangs")
	}
	if err := p.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}
