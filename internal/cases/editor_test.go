package cases_test

import (
	"encoding/binary"
	"hash/crc32"
	"net"
	"sync/atomic"

	"outbox-relay/binlog"
)

const (
	typeQuery     = 2
	typeXID       = 16
	typeWriteRows = 30
	typeIncident  = 26

	eventHead, eventSum = 19, 4
)

func eventType(e []byte) byte { return e[4] }

// editor makes the reader's dump go through edit: it gets each event, header and checksum included, and gives those that the reader shall see.
// Sizes and checksums are made right afterwards. It may close the connection, and then nothing more comes of it.
func editor(edit func(c net.Conn, event []byte) [][]byte) func(*binlog.Options) {
	return dialer(func(c net.Conn) net.Conn { return &editedConn{Conn: c, edit: edit} })
}

// unchanged gives the event as it is.
func unchanged(e []byte) [][]byte { return [][]byte{e} }

// editedConn is a connection whose dump is edited packet by packet.
type editedConn struct {
	net.Conn
	edit func(net.Conn, []byte) [][]byte
	dump bool
	shut atomic.Bool // nothing more comes, also of what has been read
	seq  byte
	in   []byte // not yet a whole packet
	out  []byte // to be read
}

func (c *editedConn) Close() error {
	c.shut.Store(true)
	return c.Conn.Close()
}

// Write sees where the dump begins.
func (c *editedConn) Write(p []byte) (int, error) {
	const comBinlogDumpGTID = 0x1e
	if len(p) > 5 && p[3] == 0 && p[4] == comBinlogDumpGTID {
		c.dump, c.seq = true, 1
	}
	return c.Conn.Write(p)
}

func (c *editedConn) Read(p []byte) (int, error) {
	if !c.dump {
		return c.Conn.Read(p)
	}
	buf := make([]byte, 64<<10)
	for len(c.out) == 0 {
		n, err := c.Conn.Read(buf)
		c.in = append(c.in, buf[:n]...)
		c.cut()
		if err != nil && len(c.out) == 0 {
			return 0, err
		}
	}
	n := copy(p, c.out)
	c.out = c.out[n:]
	return n, nil
}

// cut edits the whole packets: length u24, sequence u8, status u8, event.
func (c *editedConn) cut() {
	for len(c.in) >= 4 {
		n := int(c.in[0]) | int(c.in[1])<<8 | int(c.in[2])<<16
		if len(c.in) < 4+n {
			return
		}
		body := c.in[4 : 4+n]
		c.in = c.in[4+n:]
		if c.shut.Load() {
			return
		}
		if n < 1+eventHead+eventSum || body[0] != 0 {
			c.packet(body)
			continue
		}
		for _, e := range c.edit(c, append([]byte{}, body[1:]...)) {
			if c.shut.Load() {
				return
			}
			binary.LittleEndian.PutUint32(e[9:], uint32(len(e)))
			binary.LittleEndian.PutUint32(e[len(e)-eventSum:], crc32.ChecksumIEEE(e[:len(e)-eventSum]))
			c.packet(append([]byte{0}, e...))
		}
	}
}

func (c *editedConn) packet(body []byte) {
	n := len(body)
	c.out = append(append(c.out, byte(n), byte(n>>8), byte(n>>16), c.seq), body...)
	c.seq++
}

// newEvent makes an event of a type and a body after the model of another: its header otherwise, with room for the checksum.
func newEvent(model []byte, kind byte, body []byte) []byte {
	e := append([]byte{}, model[:eventHead]...)
	e[4] = kind
	return append(append(e, body...), 0, 0, 0, 0)
}
