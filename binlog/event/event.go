// Package event decodes the events of MySQL's binary log (version 4, MySQL 8.0 to 9.x).
//
// Every function works on bytes that the caller owns. An event is the 19-byte header, the body and, where the file
// has checksums, 4 bytes of CRC-32; Parse functions of bodies want the body alone. Results alias the body wherever a
// field is a []byte: they are valid as long as the body is, and the caller copies what must live longer. Hot paths
// do not allocate.
//
// Every offset and length is checked: damaged bytes give an error that wraps [ErrMalformed], never a panic, and
// memory is bounded by the size of the input. Integers are little-endian.
//
// The package does no I/O, keeps no state between events and does not convert column values: that is package value. It
// does not know MariaDB's events, and it parses no SQL beyond the control statements that frame transactions.
package event

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// ErrMalformed is wrapped by the error of every decoder that meets bytes which are no valid event.
var ErrMalformed = errors.New("malformed event")

// ErrNewer is wrapped, together with ErrMalformed, by the error of a decoder that meets what only a later version can understand.
var ErrNewer = errors.New("written by a newer server")

const (
	// HeaderSize is the length of an event header in bytes.
	HeaderSize = 19
	// ChecksumSize is the length of the CRC-32 at the end of an event, where there is one.
	ChecksumSize = 4
)

// Flags of an event header.
type Flags uint16

const (
	FlagInUse       Flags = 0x0001 // the file was not closed; cleared by the server when it sends
	FlagThread      Flags = 0x0004 // the statement depends on the connection (temporary tables)
	FlagSuppressUse Flags = 0x0008
	FlagArtificial  Flags = 0x0020 // made by the server for this stream, not in the file
	FlagRelayLog    Flags = 0x0040
	FlagIgnorable   Flags = 0x0080 // a reader that does not know the type may skip the event
	FlagNoFilter    Flags = 0x0100
	FlagMTSIsolate  Flags = 0x0200
)

// Header is the head of every event:
//
//	0 u32 timestamp · 4 u8 type · 5 u32 server id · 9 u32 size · 13 u32 position of the next event · 17 u16 flags
type Header struct {
	Timestamp uint32 // seconds since 1970, start of the statement; 0 on artificial events
	Type      Type
	ServerID  uint32 // the server that executed the statement first
	Size      uint32 // of the whole event, header and checksum included
	LogPos    uint32 // end of the event in its file, modulo 2^32; 0 on artificial events and inside payloads
	Flags     Flags
}

// ParseHeader reads the first 19 bytes of b, which may be longer or shorter than the event. It refuses a size that
// is below the header's own; whether Size fits len(b) is for the caller to decide.
func ParseHeader(b []byte) (Header, error) {
	var h Header
	err := h.Parse(b)
	return h, err
}

// Parse is ParseHeader into h. It is for where every event passes by: a header that is put together and then copied makes the processor wait, as
// it is read in other portions than it was written.
func (h *Header) Parse(b []byte) error {
	if len(b) < HeaderSize {
		return errShortHeader
	}
	_ = b[18]
	h.Timestamp = binary.LittleEndian.Uint32(b)
	h.Type = Type(b[4])
	h.ServerID = binary.LittleEndian.Uint32(b[5:])
	h.Size = binary.LittleEndian.Uint32(b[9:])
	h.LogPos = binary.LittleEndian.Uint32(b[13:])
	h.Flags = Flags(binary.LittleEndian.Uint16(b[17:]))
	if h.Size < HeaderSize {
		return errSmallSize
	}
	return nil
}

var (
	errShortHeader = fmt.Errorf("%w: shorter than a header", ErrMalformed)
	errSmallSize   = fmt.Errorf("%w: size field is smaller than a header", ErrMalformed)
)

// VerifyChecksum tells whether the last 4 bytes of ev are the CRC-32 (IEEE) of the bytes before them. ev is the
// whole event.
func VerifyChecksum(ev []byte) bool {
	if len(ev) < HeaderSize+ChecksumSize {
		return false
	}
	end := len(ev) - ChecksumSize
	return crc32.ChecksumIEEE(ev[:end]) == binary.LittleEndian.Uint32(ev[end:])
}

// newer makes an error about something in an event of type t that a later version has to understand.
func newer(t Type, format string, args ...any) error {
	return fmt.Errorf("%w: %w: %s: %s", ErrMalformed, ErrNewer, t, fmt.Sprintf(format, args...))
}

// malformed makes an error about the body of an event of type t.
func malformed(t Type, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrMalformed, t, fmt.Sprintf(format, args...))
}
