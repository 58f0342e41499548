package binlog

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// coalescer lets more bytes come in before a reader that has read much is woken. A server with a backlog writes event by event, a reader that passes by foreign rows is
// faster, and each time the kernel wakes it costs as much as tens of kilobytes of them. While waiting, the kernel is told to wake for no less than so many bytes. Nothing
// that has come waits for longer than coalesceTime, and where reads bring little nothing waits at all.
type coalescer struct {
	conn    *net.TCPConn // nil lets nothing wait
	raw     syscall.RawConn
	brought int // by the last read
	lowest  int // bytes for which the kernel wakes the reader
	enough  func(fd uintptr) bool
}

// newCoalescer is for reads of conn. Only TCP connections of which nobody else holds bytes back can wait.
func newCoalescer(conn net.Conn) *coalescer {
	if g, ok := conn.(*clearGuard); ok {
		conn = g.Conn
	}
	c := &coalescer{lowest: 1}
	c.enough = func(fd uintptr) bool {
		n, err := unix.IoctlGetInt(int(fd), unix.SIOCINQ)
		return err != nil || n >= c.lowest
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			c.conn, c.raw = tcp, raw
		}
	}
	return c
}

// await waits if the last read brought much. Errors are the next read's to find. It leaves a read deadline behind.
func (c *coalescer) await() {
	if c.conn == nil {
		return
	}
	if c.brought < muchBytes {
		c.wakeFor(1)
		return
	}
	if c.lowest == 1 {
		c.wakeFor(coalescedBytes) // which may make the buffer larger
		c.wakeFor(min(coalescedBytes, c.buffer()/4))
	}
	_ = c.conn.SetReadDeadline(time.Now().Add(coalesceTime))
	if c.raw.Read(c.enough) != nil {
		c.wakeFor(1) // for what there is, or the first to come
	}
}

// wakeFor sets for how many bytes the kernel wakes a reader.
func (c *coalescer) wakeFor(n int) {
	n = max(n, 1)
	if c.lowest == n {
		return
	}
	_ = c.raw.Control(func(fd uintptr) {
		if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVLOWAT, n) == nil {
			c.lowest = n
		}
	})
}

// buffer is the size of the socket's buffer, of which data take a part.
func (c *coalescer) buffer() (n int) {
	_ = c.raw.Control(func(fd uintptr) { n, _ = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF) })
	return n
}
