package event

import (
	"encoding/binary"

	"outbox-relay/binlog/gtid"
)

// GTID opens a transaction: all events up to its end, or up to the next GTID, belong to it.
type GTID struct {
	// MayHaveStatements is set when the transaction may contain changes in statement format: DDL and all else that
	// is not pure row changes (flag 0x01).
	MayHaveStatements bool
	Anonymous         bool // ANONYMOUS_GTID: GTID is the zero value
	GTID              gtid.GTID

	LastCommitted, SequenceNumber int64 // logical clock of the file; 0 when absent

	// Microseconds since 1970: the commit on this server and the one on the first server. Original is equal to
	// Immediate when the event does not tell it apart. Both are 0 when the server is older than 8.0.1.
	ImmediateCommit, OriginalCommit uint64

	TransactionLength uint64 // bytes of the whole transaction, this event included; 0 when absent
	ServerVersion     uint32 // of this server, such as 90704; 0 when absent
	OriginalVersion   uint32 // of the first server
}

// Tags keeps one string for each tag that was seen, so that parsing a tagged GTID does not allocate. The zero value is
// ready to use; nil allocates every time. It forgets everything when it holds 1,024 tags. Not safe for concurrent use.
type Tags struct{ seen map[string]gtid.Tag }

func (t *Tags) intern(b []byte) gtid.Tag {
	if t == nil {
		return string(b)
	}
	if s, ok := t.seen[string(b)]; ok {
		return s
	}
	if t.seen == nil || len(t.seen) >= 1024 {
		t.seen = make(map[string]gtid.Tag)
	}
	s := string(b)
	t.seen[s] = s
	return s
}

// ParseGTID reads the body of a GTID, ANONYMOUS_GTID or GTID_TAGGED event, t being the type. Number and tag of the
// result are valid, except in an anonymous one. It does not allocate, apart from a tag that is new to tags.
func ParseGTID(t Type, b []byte, tags *Tags) (GTID, error) {
	var g GTID
	if err := g.Parse(t, b, tags); err != nil {
		return GTID{}, err
	}
	return g, nil
}

// Parse is ParseGTID into g, whose content has no meaning after an error.
func (g *GTID) Parse(t Type, b []byte, tags *Tags) error {
	switch t {
	case TypeGTID, TypeAnonymousGTID:
		return g.parse(t, b)
	case TypeGTIDTagged:
		var err error
		*g, err = parseTaggedGTID(b, tags)
		return err
	}
	return malformed(t, "is no GTID event")
}

const (
	originalCommitFollows  = 1 << 55
	originalVersionFollows = 1 << 31
)

// parse reads
//
//	0 u8 flags · 1 uuid · 17 i64 number · 25 u8 = 2: logical clock follows · 26 i64 last committed · 34 i64 sequence number ·
//	42 u56 immediate commit, bit 55: u56 original commit follows · lenenc transaction length ·
//	u32 server version, bit 31: u32 original version follows
//
// Everything from 25 on is absent on older servers; what comes behind it (the commit group ticket) is skipped.
func (g *GTID) parse(t Type, b []byte) error {
	const clockAt, commitAt = 25, 42
	if len(b) < clockAt {
		return malformed(t, "%d bytes are too few", len(b))
	}
	*g = GTID{MayHaveStatements: b[0]&1 != 0, Anonymous: t == TypeAnonymousGTID}
	if !g.Anonymous {
		copy(g.GTID.UUID[:], b[1:17])
		g.GTID.Number = int64(binary.LittleEndian.Uint64(b[17:]))
		if g.GTID.Number < 1 || g.GTID.Number > gtid.MaxNumber {
			return malformed(t, "number %d", g.GTID.Number)
		}
	}
	if len(b) == clockAt || b[clockAt] != 2 {
		return nil
	}
	if len(b) < commitAt {
		return malformed(t, "cut off at %d bytes", len(b))
	}
	g.LastCommitted, g.SequenceNumber = int64(binary.LittleEndian.Uint64(b[26:])), int64(binary.LittleEndian.Uint64(b[34:]))
	c := cursor{b: b[commitAt:]}
	if len(c.b) > 0 {
		g.ImmediateCommit = c.u56()
		g.OriginalCommit = g.ImmediateCommit
		if g.ImmediateCommit&originalCommitFollows != 0 {
			g.ImmediateCommit &^= originalCommitFollows
			g.OriginalCommit = c.u56()
		}
	}
	if len(c.b) > 0 {
		g.TransactionLength = c.lenenc()
	}
	if len(c.b) > 0 {
		g.ServerVersion = c.u32()
		g.OriginalVersion = g.ServerVersion
		if g.ServerVersion&originalVersionFollows != 0 {
			g.ServerVersion &^= originalVersionFollows
			g.OriginalVersion = c.u32()
		}
	}
	if c.bad {
		return malformed(t, "cut off at %d bytes", len(b))
	}
	return nil
}

// Fields of a GTID_TAGGED message.
const (
	taggedFlags = iota
	taggedUUID
	taggedNumber
	taggedTag
	taggedLastCommitted
	taggedSequenceNumber
	taggedImmediateCommit
	taggedOriginalCommit
	taggedLength
	taggedServerVersion
	taggedOriginalVersion
	taggedTicket // commit group ticket
	taggedFieldCount
)

// parseTaggedGTID reads a message of the serialization library: varint version = 1, varint message size (from the
// first byte of the body on), varint id + 1 of the last field that must be understood, then `varint field id, value`
// by ascending ids. Fields may be left out. A field behind the known ones ends the message for this reader.
func parseTaggedGTID(b []byte, tags *Tags) (GTID, error) {
	const t = TypeGTIDTagged
	c := cursor{b: b}
	version, size := c.varint(), c.varint()
	if !c.bad && version > 1 {
		return GTID{}, newer(t, "version %d", version)
	}
	if c.bad || version != 1 || size > uint64(len(b)) || size < uint64(len(b)-len(c.b)) {
		return GTID{}, malformed(t, "version %d, message of %d bytes in a body of %d", version, size, len(b))
	}
	c.b = c.b[:size-uint64(len(b)-len(c.b))]
	if last := c.varint(); !c.bad && last > taggedFieldCount {
		return GTID{}, newer(t, "field %d must be understood and is not known", last-1)
	}
	var g GTID
	seen, next := uint32(0), uint64(0)
	for len(c.b) > 0 {
		id := c.varint()
		if id >= taggedFieldCount && !c.bad {
			break
		}
		if c.bad || id < next {
			return GTID{}, malformed(t, "field ids do not ascend or are cut off")
		}
		seen, next = seen|1<<id, id+1
		g.readTagged(&c, id, tags)
	}
	if c.bad || seen&(1<<taggedUUID) == 0 {
		return GTID{}, malformed(t, "cut off, without a UUID or with an invalid field")
	}
	if g.GTID.Number < 1 || g.GTID.Number > gtid.MaxNumber {
		return GTID{}, malformed(t, "number %d", g.GTID.Number)
	}
	if seen&(1<<taggedOriginalCommit) == 0 {
		g.OriginalCommit = g.ImmediateCommit
	}
	if seen&(1<<taggedOriginalVersion) == 0 {
		g.OriginalVersion = g.ServerVersion
	}
	return g, nil
}

func (g *GTID) readTagged(c *cursor, id uint64, tags *Tags) {
	switch id {
	case taggedFlags:
		g.MayHaveStatements = c.varint()&1 != 0
	case taggedUUID:
		for i := range g.GTID.UUID {
			v := c.varint()
			if v > 0xff {
				c.fail()
			}
			g.GTID.UUID[i] = byte(v)
		}
	case taggedNumber:
		g.GTID.Number = c.signedVarint()
	case taggedTag:
		tag := c.bytes(c.varint())
		if len(tag) > 0 && !gtid.ValidTag(tag) {
			c.fail()
			return
		}
		g.GTID.Tag = tags.intern(tag)
	case taggedLastCommitted:
		g.LastCommitted = c.signedVarint()
	case taggedSequenceNumber:
		g.SequenceNumber = c.signedVarint()
	case taggedImmediateCommit:
		g.ImmediateCommit = c.varint()
	case taggedOriginalCommit:
		g.OriginalCommit = c.varint()
	case taggedLength:
		g.TransactionLength = c.varint()
	case taggedServerVersion:
		g.ServerVersion = uint32(c.varint())
	case taggedOriginalVersion:
		g.OriginalVersion = uint32(c.varint())
	case taggedTicket:
		c.varint()
	}
}

// ParsePreviousGTIDs reads the body of a PREVIOUS_GTIDS event: everything that is in earlier files.
func ParsePreviousGTIDs(b []byte) (*gtid.Set, error) {
	s, err := gtid.Decode(b)
	if err != nil {
		return nil, malformed(TypePreviousGTIDs, "%v", err)
	}
	return s, nil
}
