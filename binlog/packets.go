package binlog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"

	"outbox-relay/binlog/event"
)

const (
	// maxPacket is the payload length that announces a continuation packet.
	maxPacket  = 0xffffff
	headerSize = event.HeaderSize
	// packetHead is a packet's header (3 bytes length, 1 byte sequence) and the status byte of its payload.
	packetHead = 5
)

// errCorrupt marks bytes that contradict the protocol or their checksum. Time may heal it (a damaged transfer),
// so the reader connects again before it gives up.
var errCorrupt = errors.New("corrupt binlog stream")

// packets cuts the events out of a replication stream. It owns one buffer; an event that fits is returned as a
// slice of it, valid until the next call, without a copy. An event that does not fit is streamed.
//
// Deadlines and the wait hook are touched only when the buffer runs dry, never per event.
type packets struct {
	conn    net.Conn
	buf     []byte
	r, w    int
	seq     byte          // sequence number the next packet must carry
	crc     bool          // events end in a CRC-32, by the last FORMAT_DESCRIPTION
	limit   time.Duration // longest silence while waiting for bytes
	wait    func()        // called before each read that may block
	bytes   uint64        // bytes taken from the connection
	counted uint64        // of them, how many the metrics know
	big     bigEvent
	more    *coalescer
	failed  bool // the connection failed: whatever could not be read is its fault
}

// raw is one event as it lies in the stream. Body is nil when the event is larger than the buffer; then Big gives it.
type raw struct {
	event.Header
	Body []byte // after the header, without checksum; valid until the next call
	Big  bigBody
}

// bigBody is the body of an event that lies in no buffer. It must be read or skipped to its end before the next event is taken.
type bigBody interface {
	io.Reader
	Len() int    // bytes not yet read
	Skip() error // reads the rest and checks the checksum
}

func newPackets(conn net.Conn, size int, wait func()) *packets {
	return &packets{conn: conn, buf: make([]byte, size), seq: 1, crc: true, limit: time.Minute, wait: wait, more: newCoalescer(conn)}
}

// ready reports whether the next packet lies in the buffer as a whole, so that next does not block.
func (p *packets) ready() bool {
	have := p.w - p.r
	if have < 4 {
		return false
	}
	n := packetLength(p.buf[p.r:])
	return have >= 4+n || n+4 > len(p.buf)
}

func packetLength(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

// fill makes at least n unread bytes available; n must not exceed the buffer.
func (p *packets) fill(n int) error {
	if p.w-p.r >= n {
		return nil
	}
	return p.receive(n)
}

// receive reads until n unread bytes are there.
func (p *packets) receive(n int) error {
	switch {
	case p.r == p.w:
		p.r, p.w = 0, 0
	case len(p.buf)-p.r < n:
		copy(p.buf, p.buf[p.r:p.w])
		p.w -= p.r
		p.r = 0
	}
	for p.w-p.r < n {
		p.wait()
		p.more.await()
		if err := p.conn.SetReadDeadline(time.Now().Add(p.limit)); err != nil {
			return fmt.Errorf("reading the stream: %w", err)
		}
		m, err := p.conn.Read(p.buf[p.w:])
		p.more.brought = m
		p.w += m
		p.bytes += uint64(m)
		if err != nil && p.w-p.r < n {
			p.failed = true
			if errors.Is(err, io.EOF) && p.w > p.r {
				err = io.ErrUnexpectedEOF
			}
			return fmt.Errorf("reading the stream: %w", err)
		}
	}
	return nil
}

// next puts the next event into ev. It blocks until the event is there, the silence limit passes or the connection is closed.
// A server error packet becomes a *serverError, an EOF packet io.EOF.
func (p *packets) next(ev *raw) error {
	if p.big.left > 0 {
		return fmt.Errorf("%w: the event before was not consumed", errCorrupt)
	}
	if err := p.fill(packetHead); err != nil {
		return err
	}
	n, err := p.packetHeader()
	if err != nil {
		return err
	}
	if n == 0 {
		return fmt.Errorf("%w: empty packet", errCorrupt)
	}
	if status := p.buf[p.r+4]; status != 0 {
		return p.endPacket(status, n)
	}
	if n < 1+headerSize {
		return fmt.Errorf("%w: packet of %d bytes holds no event header", errCorrupt, n)
	}
	if n == maxPacket || n+4 > len(p.buf) {
		return p.startBig(ev, n)
	}
	if err := p.fill(4 + n); err != nil {
		return err
	}
	whole := p.buf[p.r+packetHead : p.r+4+n]
	p.r += 4 + n
	if err := ev.Header.Parse(whole); err != nil {
		return fmt.Errorf("%w: %w", errCorrupt, err)
	}
	if int(ev.Size) != len(whole) {
		return fmt.Errorf("%w: event says %d bytes, packet holds %d", errCorrupt, ev.Size, len(whole))
	}
	ev.Big = nil
	if ev.Type == event.TypeFormatDescription {
		// It tells its own algorithm in the byte before its CRC; its layout does not depend on the setting.
		if len(whole) < headerSize+5 {
			return fmt.Errorf("%w: format description of %d bytes", errCorrupt, len(whole))
		}
		p.crc = whole[len(whole)-5] == 1
	} else if !p.crc {
		ev.Body = whole[headerSize:]
		return nil
	}
	if len(whole) < headerSize+4 || p.crc && !event.VerifyChecksum(whole) {
		return fmt.Errorf("%w: checksum of %s ending at %d", errCorrupt, ev.Type, ev.LogPos)
	}
	ev.Body = whole[headerSize : len(whole)-4] // the last 4 bytes of a format description are there whatever the algorithm
	return nil
}

// packetHeader checks the sequence number of the packet at the read position and returns its length.
func (p *packets) packetHeader() (int, error) {
	b := p.buf[p.r:]
	if b[3] != p.seq {
		return 0, fmt.Errorf("%w: packet number %d instead of %d", errCorrupt, b[3], p.seq)
	}
	p.seq++
	return packetLength(b), nil
}

// endPacket turns the ERR or EOF packet of n bytes at the read position into an error.
func (p *packets) endPacket(status byte, n int) error {
	if status == 0xfe && n < 9 {
		return io.EOF
	}
	if status != 0xff {
		return fmt.Errorf("%w: packet status %#x", errCorrupt, status)
	}
	n = min(n, len(p.buf)-4)
	if err := p.fill(4 + n); err != nil {
		return err
	}
	b := p.buf[p.r+packetHead : p.r+4+n]
	if len(b) < 2 {
		return fmt.Errorf("%w: error packet of %d bytes", errCorrupt, n)
	}
	e := &serverError{Code: binary.LittleEndian.Uint16(b)}
	b = b[2:]
	if len(b) >= 6 && b[0] == '#' {
		b = b[6:]
	}
	e.Text = string(bytes.TrimRight(b, "\x00"))
	return e
}

// bigEvent is an event larger than the buffer. Read gives its body without checksum, which is compared at the end.
type bigEvent struct {
	p      *packets
	packet int    // bytes of the current packet not yet read
	last   bool   // the current packet is the last one of the event
	left   int    // bytes of body and checksum not yet read
	sum    uint32 // CRC-32 so far
	tail   int    // 4 with a checksum, else 0
}

// startBig consumes the head of a packet of n bytes whose event does not fit the buffer.
func (p *packets) startBig(ev *raw, n int) error {
	if err := p.fill(packetHead + headerSize); err != nil {
		return err
	}
	head := p.buf[p.r+packetHead : p.r+packetHead+headerSize]
	h, err := event.ParseHeader(head)
	if err != nil {
		return fmt.Errorf("%w: %w", errCorrupt, err)
	}
	p.r += packetHead + headerSize
	p.big = bigEvent{p: p, packet: n - 1 - headerSize, last: n < maxPacket, left: int(h.Size) - headerSize, sum: crc32.ChecksumIEEE(head)}
	if p.crc {
		p.big.tail = 4
	}
	if p.big.left < p.big.packet || p.big.last && p.big.left != p.big.packet {
		return fmt.Errorf("%w: event says %d bytes, packet holds %d", errCorrupt, h.Size, n-1)
	}
	*ev = raw{Header: h, Big: &p.big}
	return nil
}

// Len is the number of body bytes not yet read.
func (b *bigEvent) Len() int { return max(b.left-b.tail, 0) }

// Read implements io.Reader over the body.
func (b *bigEvent) Read(dst []byte) (int, error) {
	if b.Len() == 0 {
		if err := b.finish(); err != nil {
			return 0, err
		}
		return 0, io.EOF
	}
	chunk, err := b.chunk(min(len(dst), b.Len()))
	n := copy(dst, chunk)
	return n, err
}

// chunk returns up to limit bytes of the event from the buffer and consumes them.
func (b *bigEvent) chunk(limit int) ([]byte, error) {
	p := b.p
	if b.packet == 0 {
		if b.last {
			return nil, fmt.Errorf("%w: event ends %d bytes early", errCorrupt, b.left)
		}
		if err := p.fill(4); err != nil {
			return nil, err
		}
		n, err := p.packetHeader()
		if err != nil {
			return nil, err
		}
		p.r += 4
		b.packet, b.last = n, n < maxPacket
		if n == 0 {
			return nil, nil
		}
	}
	if p.r == p.w {
		if err := p.fill(1); err != nil {
			return nil, err
		}
	}
	n := min(limit, b.packet, p.w-p.r)
	c := p.buf[p.r : p.r+n]
	p.r += n
	b.packet -= n
	b.left -= n
	if b.left >= b.tail {
		b.sum = crc32.Update(b.sum, crc32.IEEETable, c)
	}
	return c, nil
}

// finish consumes the checksum and an empty last packet, and compares.
func (b *bigEvent) finish() error {
	var sum [4]byte
	for got := 0; b.left > 0; {
		c, err := b.chunk(b.left)
		if err != nil {
			return err
		}
		got += copy(sum[got:], c)
	}
	for !b.last {
		if _, err := b.chunk(0); err != nil {
			return err
		}
	}
	if b.tail == 4 && binary.LittleEndian.Uint32(sum[:]) != b.sum {
		b.tail = 0
		return fmt.Errorf("%w: checksum of a large event", errCorrupt)
	}
	b.tail = 0
	return nil
}

// Skip reads the rest of the event and forgets it, checking the checksum.
func (b *bigEvent) Skip() error {
	for b.Len() > 0 {
		if _, err := b.chunk(b.Len()); err != nil {
			return err
		}
	}
	return b.finish()
}
