package event

import "encoding/binary"

// cursor reads a body from front to back. A read beyond the end gives zero and marks the cursor as failed for good, so a
// decoder checks once, at its end. Loops over counts from the input must check bad themselves.
type cursor struct {
	b   []byte
	bad bool
}

func (c *cursor) fail() { c.b, c.bad = nil, true }

// bytes takes n bytes; they alias the input and have no spare capacity.
func (c *cursor) bytes(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.fail()
		return nil
	}
	out := c.b[:n:n]
	c.b = c.b[n:]
	return out
}

func (c *cursor) skip(n uint64) { c.bytes(n) }

func (c *cursor) u8() byte {
	if len(c.b) < 1 {
		c.fail()
		return 0
	}
	v := c.b[0]
	c.b = c.b[1:]
	return v
}

func (c *cursor) u16() uint16 {
	if b := c.bytes(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u56() uint64 {
	if b := c.bytes(7); b != nil {
		return uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint32(b[3:]))>>8<<32
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// uint takes an integer of n bytes, n ≤ 8.
func (c *cursor) uint(n int) uint64 {
	var v uint64
	for i, x := range c.bytes(uint64(n)) {
		v |= uint64(x) << (8 * i)
	}
	return v
}

// lenenc takes a length-encoded integer; 0xfb (NULL) and 0xff are refused.
func (c *cursor) lenenc() uint64 {
	switch first := c.u8(); first {
	case 0xfc:
		return c.uint(2)
	case 0xfd:
		return c.uint(3)
	case 0xfe:
		return c.uint(8)
	case 0xfb, 0xff:
		c.fail()
		return 0
	default:
		return uint64(first)
	}
}

// varint takes an integer of the serialization format: the number of trailing one bits of the first byte plus one is
// the number of bytes; the rest of them is the value. First byte 0xff: the value is the 8 bytes behind it.
func (c *cursor) varint() uint64 {
	if len(c.b) == 0 {
		c.fail()
		return 0
	}
	n := 1
	for first := c.b[0]; first&1 != 0; first >>= 1 {
		n++
	}
	if n == 9 {
		c.b = c.b[1:]
		return c.u64()
	}
	return c.uint(n) >> n
}

// signedVarint takes a varint whose lowest bit is the sign.
func (c *cursor) signedVarint() int64 {
	u := c.varint()
	if u&1 != 0 {
		return -1 - int64(u>>1)
	}
	return int64(u >> 1)
}
