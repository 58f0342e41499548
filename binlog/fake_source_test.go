package binlog_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
)

// fakeSource plays a MySQL server in memory: the handshake, the questions that a reader asks, and then bytes that the test has written. Its
// connections have no goroutine and no clock of their own, so what a reader does with a stream depends on the bytes alone.
type fakeSource struct {
	executed string // @@global.gtid_executed; by default all transactions of fakeUUID
	gtidMode string // ON by default
	chunk    int    // the most that one read of the connection gives; 0 = no limit
	hold     bool   // at the end of the last stream the server is silent; else it ends the connection
	streams  [][]byte
	// send gives the stream of dump i, from 0, and whether it is the last one; nil: the streams in turn, the last one again and again.
	send   func(i int, behind *gtid.Set) (stream []byte, last bool)
	ended  func() // called at the end of the last stream; may be nil
	closed func() // called when the reader closes a connection; may be nil

	mu    sync.Mutex
	dials int
	dumps []*gtid.Set // what each dump asked to start behind
}

const (
	fakeUUID     = "11111111-2222-3333-4444-555555555555"
	fakeAll      = fakeUUID + ":1-9223372036854775806"
	fakeDatabase = "app"
	fakeMaxDials = 100
)

// options are those of a reader that watches app.o and starts behind nothing.
func (s *fakeSource) options() binlog.Options {
	return binlog.Options{
		Name: "fake", Addresses: []string{"fake:3306"}, Tables: []binlog.TableName{{Schema: fakeDatabase, Name: "o"}},
		Login: binlog.Login{User: "relay", Dial: s.dial}, Start: new(gtid.Set), Heartbeat: time.Second, Memory: 1 << 20, RowLimit: 1 << 20,
	}
}

func (s *fakeSource) dial(context.Context, string, string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dials++; s.dials > fakeMaxDials {
		panic("the reader connects again and again")
	}
	c := &fakeConn{source: s, closed: make(chan struct{})}
	c.out = append(c.out, fakeGreeting...)
	return c, nil
}

// asked gives what each dump so far asked to start behind.
func (s *fakeSource) asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sets []string
	for _, d := range s.dumps {
		sets = append(sets, d.String())
	}
	return sets
}

// fakeConn is one connection of a fakeSource.
type fakeConn struct {
	source *fakeSource
	closed chan struct{}
	once   sync.Once

	in      []byte // of the client, not yet a whole packet
	out     []byte // to the client
	greeted bool
	dumping bool
	last    bool // the stream is the source's last one
}

func (c *fakeConn) Write(p []byte) (int, error) {
	if c.isClosed() {
		return 0, net.ErrClosed
	}
	c.in = append(c.in, p...)
	for len(c.in) >= 4 {
		n := int(c.in[0]) | int(c.in[1])<<8 | int(c.in[2])<<16
		if len(c.in) < 4+n {
			break
		}
		c.answer(c.in[4:4+n], c.in[3]+1)
		c.in = c.in[4+n:]
	}
	return len(p), nil
}

// answer takes one packet of the client.
func (c *fakeConn) answer(b []byte, seq byte) {
	const comQuery, comBinlogDumpGTID = 0x03, 0x1e
	switch {
	case !c.greeted:
		c.greeted = true
		c.out = appendPacket(c.out, seq, fakeOK)
	case b[0] == comQuery:
		c.out = c.source.query(c.out, seq, string(b[1:]))
	case b[0] == comBinlogDumpGTID:
		c.out, c.last = c.source.dump(b)
		c.dumping = true
	}
}

func (c *fakeConn) Read(p []byte) (int, error) {
	if c.isClosed() {
		return 0, net.ErrClosed
	}
	if len(c.out) == 0 {
		if c.dumping && c.last && c.source.ended != nil {
			c.source.ended()
		}
		if c.dumping && !(c.last && c.source.hold) {
			return 0, io.EOF
		}
		<-c.closed
		return 0, net.ErrClosed
	}
	n := len(p)
	if c.dumping && c.source.chunk > 0 {
		n = min(n, c.source.chunk)
	}
	n = copy(p[:n], c.out)
	c.out = c.out[n:]
	return n, nil
}

func (c *fakeConn) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

func (c *fakeConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		if c.source.closed != nil {
			c.source.closed()
		}
	})
	return nil
}

func (*fakeConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*fakeConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*fakeConn) SetDeadline(time.Time) error      { return nil }
func (*fakeConn) SetReadDeadline(time.Time) error  { return nil }
func (*fakeConn) SetWriteDeadline(time.Time) error { return nil }

var (
	fakeOK  = []byte{0, 0, 0, 2, 0, 0, 0}
	fakeEOF = []byte{0xfe, 0, 0, 2, 0}
	// fakeGreeting is a handshake packet: protocol 4.1, mysql_native_password, no TLS. Any password is accepted.
	fakeGreeting = appendPacket(nil, 0, slicesOf(
		[]byte{10}, []byte("9.7.4\x00"), []byte{1, 0, 0, 0}, []byte("saltsalt\x00"),
		[]byte{0x01, 0x82, 45, 2, 0, 0x08, 0x00, 21}, make([]byte, 10), []byte("saltsaltsalt\x00"), []byte("mysql_native_password\x00")))
)

func slicesOf(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func appendPacket(b []byte, seq byte, payload []byte) []byte {
	n := len(payload)
	return append(append(b, byte(n), byte(n>>8), byte(n>>16), seq), payload...)
}

func (s *fakeSource) query(out []byte, seq byte, query string) []byte {
	executed, mode := s.executed, s.gtidMode
	if executed == "" {
		executed = fakeAll
	}
	if mode == "" {
		mode = "ON"
	}
	switch {
	case strings.HasPrefix(query, "SELECT @@version,"):
		return appendResult(out, seq, "9.7.4", "", fakeUUID, "1", "ROW", "FULL", mode, "0", executed, "")
	case strings.HasPrefix(query, "SELECT @@global.binlog_row_metadata"):
		return appendResult(out, seq, "FULL", "2592000")
	case strings.HasPrefix(query, "SELECT @@global.gtid_executed"):
		return appendResult(out, seq, executed)
	}
	return appendPacket(out, seq, fakeOK)
}

// appendResult appends a result set of one row of texts.
func appendResult(b []byte, seq byte, values ...string) []byte {
	packet := func(payload []byte) {
		b = appendPacket(b, seq, payload)
		seq++
	}
	packet([]byte{byte(len(values))})
	for i := range values {
		packet([]byte{3, 'd', 'e', 'f', 0, 0, 0, 1, 'a' + byte(i), 0, 12, 45, 0, 0, 1, 0, 0, 253, 0, 0, 0, 0, 0})
	}
	packet(fakeEOF)
	var row []byte
	for _, v := range values {
		row = append(append(row, byte(len(v))), v...)
	}
	packet(row)
	packet(fakeEOF)
	return b
}

// dump notes what a dump starts behind and gives the next stream.
func (s *fakeSource) dump(command []byte) (stream []byte, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const setAt = 23
	n := binary.LittleEndian.Uint32(command[setAt-4:])
	set, err := gtid.Decode(command[setAt : setAt+n])
	if err != nil {
		panic(err)
	}
	i := len(s.dumps)
	s.dumps = append(s.dumps, set)
	if s.send != nil {
		return s.send(i, set)
	}
	return without(s.streams[min(i, len(s.streams)-1)], set), i >= len(s.streams)-1
}

// without gives a stream without the transactions of the set, as a server sends it. It takes what lies in whole packets.
func without(b []byte, set *gtid.Set) []byte {
	if set.IsEmpty() {
		return b
	}
	var out []byte
	dropped, dropping := byte(0), false
	tags := &event.Tags{}
	for len(b) > 4 {
		n := 4 + (int(b[0]) | int(b[1])<<8 | int(b[2])<<16)
		if n > len(b) {
			break
		}
		const typeAt, bodyAt = 5 + 4, 5 + event.HeaderSize
		isLast := false
		if n > bodyAt && b[4] == 0 {
			switch typ := event.Type(b[typeAt]); typ {
			case event.TypeGTID, event.TypeGTIDTagged:
				g, err := event.ParseGTID(typ, b[bodyAt:n], tags)
				dropping = err == nil && set.Contains(g.GTID)
			case event.TypeRotate:
				dropping = false
			case event.TypeXID:
				isLast = true
			}
		}
		if dropping {
			dropped++
		} else {
			out = appendPacket(out, b[3]-dropped, b[4:n])
		}
		dropping = dropping && !isLast
		b = b[n:]
	}
	return append(out, b...)
}
