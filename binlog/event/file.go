package event

import (
	"bytes"
	"encoding/binary"
)

// ChecksumAlgorithm is the last byte of a FORMAT_DESCRIPTION before its own checksum.
type ChecksumAlgorithm uint8

const (
	ChecksumNone  ChecksumAlgorithm = 0
	ChecksumCRC32 ChecksumAlgorithm = 1
)

// FormatDescription says how the events of a file are written.
type FormatDescription struct {
	ServerVersion string            // such as "9.7.4"
	Created       uint32            // seconds; 0 when the stream starts inside the file
	Checksum      ChecksumAlgorithm // of all events up to the next FORMAT_DESCRIPTION
}

// ParseFormatDescription reads a FORMAT_DESCRIPTION:
//
//	0 u16 version = 4 · 2 server version, 50 bytes, zero padded · 52 u32 created · 56 u8 header length = 19 ·
//	57 one byte of post-header length per type · size−5 u8 algorithm · size−4 CRC
//
// This event ends in algorithm and CRC whatever the algorithm is; b is the body without its last 4 bytes, as for
// an event with a checksum. Post-header lengths that other decoders of this package rely on are compared with
// theirs, so a layout that they would misread is refused here.
func ParseFormatDescription(b []byte) (FormatDescription, error) {
	const t = TypeFormatDescription
	const lengthsAt = 57
	if len(b) < lengthsAt+int(TypeDeleteRows)+1 /* algorithm */ {
		return FormatDescription{}, malformed(t, "%d bytes are too few", len(b))
	}
	if v := binary.LittleEndian.Uint16(b); v != 4 {
		return FormatDescription{}, malformed(t, "binlog version %d, want 4", v)
	}
	if b[56] != HeaderSize {
		return FormatDescription{}, malformed(t, "event header of %d bytes, want %d", b[56], HeaderSize)
	}
	lengths := b[lengthsAt : len(b)-1]
	for _, want := range postHeaders {
		n := lengths[want.t-1]
		if n == 0 && want.t.isRowsV1() { // a server that does not write them any more
			continue
		}
		if n != want.n {
			return FormatDescription{}, malformed(t, "post-header of %s has %d bytes, want %d", want.t, n, want.n)
		}
	}
	version, _, _ := bytes.Cut(b[2:52], []byte{0})
	fd := FormatDescription{
		ServerVersion: string(version),
		Created:       binary.LittleEndian.Uint32(b[52:]),
		Checksum:      ChecksumAlgorithm(b[len(b)-1]),
	}
	if fd.Checksum > ChecksumCRC32 {
		return FormatDescription{}, malformed(t, "unknown checksum algorithm %d", fd.Checksum)
	}
	return fd, nil
}

// postHeaders lists the fixed parts whose length the decoders take for granted.
var postHeaders = [...]struct {
	t Type
	n byte
}{
	{TypeQuery, 13}, {TypeRotate, 8}, {TypeTableMap, 8}, {TypeIncident, 2},
	{TypeWriteRowsV1, 8}, {TypeUpdateRowsV1, 8}, {TypeDeleteRowsV1, 8},
	{TypeWriteRows, 10}, {TypeUpdateRows, 10}, {TypeDeleteRows, 10},
}

// Rotate names the file and the position that the stream goes on at.
type Rotate struct {
	Position uint64
	File     []byte // aliases the body
}

// ParseRotate reads a ROTATE: 0 u64 position · 8 file name to the end.
func ParseRotate(b []byte) (Rotate, error) {
	if len(b) < 9 {
		return Rotate{}, malformed(TypeRotate, "%d bytes are too few", len(b))
	}
	return Rotate{Position: binary.LittleEndian.Uint64(b), File: b[8:]}, nil
}

// Heartbeat tells how far the server has come while it has nothing to send.
type Heartbeat struct {
	File     []byte // aliases the body
	Position uint64 // 32 bits of it under HEARTBEAT
}

// ParseHeartbeat reads a HEARTBEAT (the body is the file name, the position is the header's) or a HEARTBEAT_V2 (`u8 type,
// lenenc length, value`: 1 file name, 2 position as lenenc; 0 ends).
func ParseHeartbeat(h Header, b []byte) (Heartbeat, error) {
	if h.Type == TypeHeartbeat {
		return Heartbeat{File: b, Position: uint64(h.LogPos)}, nil
	}
	var hb Heartbeat
	c := cursor{b: b}
	for len(c.b) > 0 {
		field := c.u8()
		if field == 0 {
			break
		}
		value := cursor{b: c.bytes(c.lenenc())}
		switch field {
		case 1:
			hb.File = value.b
		case 2:
			hb.Position = value.lenenc()
		}
		c.bad = c.bad || value.bad
	}
	if c.bad {
		return Heartbeat{}, malformed(h.Type, "cut off or overlong field")
	}
	return hb, nil
}

// Incident says that the server knows its binlog to be incomplete: a reader must stop.
type Incident struct {
	Number  uint16 // 1 = lost events
	Message []byte // aliases the body
}

// ParseIncident reads an INCIDENT: 0 u16 number · 2 u8 length · 3 message.
func ParseIncident(b []byte) (Incident, error) {
	c := cursor{b: b}
	in := Incident{Number: c.u16()}
	in.Message = c.bytes(uint64(c.u8()))
	if c.bad {
		return Incident{}, malformed(TypeIncident, "cut off")
	}
	return in, nil
}
