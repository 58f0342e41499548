package fakemysql

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
)

// Source is a server with a script. Its fields are set before the first Dial; it may be dialled from several goroutines.
type Source struct {
	Executed string // @@global.gtid_executed; by default all transactions of UUID
	GTIDMode string // ON by default
	Chunk    int    // the most that one read of a stream gives; 0 = no limit
	Hold     bool   // at the end of the last stream the server is silent; else it ends the connection
	// Streams are the answers to the dumps in turn, the last one again and again, each without the transactions that a dump has already.
	Streams [][]byte
	// Send replaces Streams: it gives the stream of dump i, from 0, and whether it is the last one.
	Send func(i int, behind *gtid.Set) (stream []byte, last bool)
	// Show are the answers, rows of texts, to statements that begin with a text.
	Show   map[string][][]string
	Ended  func() // called at the end of the last stream; may be nil
	Closed func() // called when the reader closes a connection; may be nil

	mu    sync.Mutex
	dials int
	dumps []*gtid.Set // what each dump asked to start behind
}

const (
	// UUID is the server's.
	UUID = "11111111-2222-3333-4444-555555555555"
	all  = UUID + ":1-9223372036854775806"
	// maxDials is after how many connections a reader counts as one that connects again and again.
	maxDials = 100
)

// Dial makes a connection; it serves as Login.Dial. It panics when a reader does not stop to connect.
func (s *Source) Dial(context.Context, string, string) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dials++; s.dials > maxDials {
		panic("the reader connects again and again")
	}
	c := &conn{source: s, closed: make(chan struct{})}
	c.out = append(c.out, greeting...)
	return c, nil
}

// Asked gives the sets that the dumps so far asked to start behind.
func (s *Source) Asked() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sets []string
	for _, d := range s.dumps {
		sets = append(sets, d.String())
	}
	return sets
}

// conn is one connection of a Source.
type conn struct {
	source *Source
	closed chan struct{}
	once   sync.Once

	in      []byte // of the client, not yet a whole packet
	out     []byte // to the client
	greeted bool
	dumping bool
	last    bool // the stream is the source's last one
}

func (c *conn) Write(p []byte) (int, error) {
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
func (c *conn) answer(b []byte, seq byte) {
	const comQuery, comRegisterReplica, comBinlogDumpGTID = 0x03, 0x15, 0x1e
	switch {
	case !c.greeted:
		c.greeted = true
		c.out = AppendPacket(c.out, seq, okPacket)
	case b[0] == comQuery:
		c.out = c.source.query(c.out, seq, string(b[1:]))
	case b[0] == comRegisterReplica:
		c.out = AppendPacket(c.out, seq, okPacket)
	case b[0] == comBinlogDumpGTID:
		c.out, c.last = c.source.dump(b)
		c.dumping = true
	}
}

func (c *conn) Read(p []byte) (int, error) {
	if c.isClosed() {
		return 0, net.ErrClosed
	}
	if len(c.out) == 0 {
		if c.dumping && c.last && c.source.Ended != nil {
			c.source.Ended()
		}
		if c.dumping && !(c.last && c.source.Hold) {
			return 0, io.EOF
		}
		<-c.closed
		return 0, net.ErrClosed
	}
	n := len(p)
	if c.dumping && c.source.Chunk > 0 {
		n = min(n, c.source.Chunk)
	}
	n = copy(p[:n], c.out)
	c.out = c.out[n:]
	return n, nil
}

func (c *conn) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		if c.source.Closed != nil {
			c.source.Closed()
		}
	})
	return nil
}

func (*conn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*conn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*conn) SetDeadline(time.Time) error      { return nil }
func (*conn) SetReadDeadline(time.Time) error  { return nil }
func (*conn) SetWriteDeadline(time.Time) error { return nil }

var (
	okPacket  = []byte{0, 0, 0, 2, 0, 0, 0}
	eofPacket = []byte{0xfe, 0, 0, 2, 0}
	// greeting is a handshake packet: protocol 4.1, mysql_native_password, no TLS. Any password is accepted.
	greeting = AppendPacket(nil, 0, bytes.Join([][]byte{
		{10}, []byte("9.7.4\x00"), {1, 0, 0, 0}, []byte("saltsalt\x00"),
		{0x01, 0x82, 45, 2, 0, 0x08, 0x00, 21}, make([]byte, 10), []byte("saltsaltsalt\x00"), []byte("mysql_native_password\x00"),
	}, nil))
)

// AppendPacket appends a packet with a payload of less than 2^24−1 bytes.
func AppendPacket(b []byte, seq byte, payload []byte) []byte {
	n := len(payload)
	return append(append(b, byte(n), byte(n>>8), byte(n>>16), seq), payload...)
}

func (s *Source) query(out []byte, seq byte, query string) []byte {
	executed, mode := s.Executed, s.GTIDMode
	if executed == "" {
		executed = all
	}
	if mode == "" {
		mode = "ON"
	}
	switch {
	case strings.HasPrefix(query, "SELECT @@version,"):
		return appendResult(out, seq, "9.7.4", "", UUID, "1", "ROW", "FULL", mode, "0", executed, "")
	case strings.HasPrefix(query, "SELECT @@global.binlog_row_metadata"):
		return appendResult(out, seq, "FULL", "2592000")
	case strings.HasPrefix(query, "SELECT @@global.gtid_executed"):
		return appendResult(out, seq, executed)
	}
	for begin, rows := range s.Show {
		if strings.HasPrefix(query, begin) && len(rows) > 0 {
			return appendRows(out, seq, rows)
		}
	}
	return AppendPacket(out, seq, okPacket)
}

// appendResult appends a result set of one row of texts.
func appendResult(b []byte, seq byte, values ...string) []byte {
	return appendRows(b, seq, [][]string{values})
}

// appendRows appends a result set of rows of texts of less than 251 bytes.
func appendRows(b []byte, seq byte, rows [][]string) []byte {
	values := rows[0]
	packet := func(payload []byte) {
		b = AppendPacket(b, seq, payload)
		seq++
	}
	packet([]byte{byte(len(values))})
	for i := range values {
		packet([]byte{3, 'd', 'e', 'f', 0, 0, 0, 1, 'a' + byte(i), 0, 12, 45, 0, 0, 1, 0, 0, 253, 0, 0, 0, 0, 0})
	}
	packet(eofPacket)
	for _, values := range rows {
		var row []byte
		for _, v := range values {
			row = append(append(row, byte(len(v))), v...)
		}
		packet(row)
	}
	packet(eofPacket)
	return b
}

// dump notes what a dump starts behind and gives the next stream.
func (s *Source) dump(command []byte) (stream []byte, last bool) {
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
	if s.Send != nil {
		return s.Send(i, set)
	}
	return without(s.Streams[min(i, len(s.Streams)-1)], set), i >= len(s.Streams)-1
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
			out = AppendPacket(out, b[3]-dropped, b[4:n])
		}
		dropping = dropping && !isLast
		b = b[n:]
	}
	return append(out, b...)
}
