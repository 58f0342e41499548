package gtid

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Layout (the body of PREVIOUS_GTIDS and the set of COM_BINLOG_DUMP_GTID; MySQL source: Gtid_set::encode):
//
//	plain   0 u64 number of entries (byte 7 is 0)
//	tagged  0 u8 = 1, 1 u48 number of entries, 7 u8 = 1
//
// and for each entry, i.e. each (uuid, tag):
//
//	16 bytes UUID
//	tagged only: tag length as a varint of the serialization format (one byte, length × 2), tag
//	u64 number of runs, for each run u64 first and u64 last + 1
const (
	formatPlain  = 0
	formatTagged = 1
)

// Encode appends the set to dst in the form that COM_BINLOG_DUMP_GTID sends: plain without tags (every server reads
// it), tagged when there is one (servers from 8.3 on).
func (s *Set) Encode(dst []byte) []byte {
	tagged := s.HasTags()
	size := 8
	for i := range s.entries {
		size += 16 + 1 + len(s.entries[i].tag) + 8 + 16*len(s.entries[i].runs)
	}
	dst = slices.Grow(dst, size)
	head := uint64(len(s.entries))
	if tagged {
		head = head<<8 | formatTagged | formatTagged<<56
	}
	dst = binary.LittleEndian.AppendUint64(dst, head)
	for i := range s.entries {
		e := &s.entries[i]
		dst = append(dst, e.uuid[:]...)
		if tagged {
			dst = append(append(dst, byte(len(e.tag)<<1)), e.tag...)
		}
		dst = binary.LittleEndian.AppendUint64(dst, uint64(len(e.runs)))
		for _, r := range e.runs {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(r.first))
			dst = binary.LittleEndian.AppendUint64(dst, uint64(r.last)+1)
		}
	}
	return dst
}

// Decode reads either form. All of b must belong to the set. The memory it takes is bounded by the length of b,
// whatever counts b claims.
func Decode(b []byte) (*Set, error) {
	if len(b) < 8 {
		return nil, fmt.Errorf("%w set: %d bytes are shorter than the head", ErrMalformed, len(b))
	}
	head, rest := binary.LittleEndian.Uint64(b), b[8:]
	tagged := false
	switch b[7] {
	case formatPlain:
	case formatTagged:
		if b[0] != formatTagged {
			return nil, fmt.Errorf("%w set: unknown format %d", ErrMalformed, b[0])
		}
		tagged = true
		head = head << 8 >> 16
	default:
		return nil, fmt.Errorf("%w set: unknown format %d", ErrMalformed, b[7])
	}
	s := &Set{}
	for n := uint64(0); n < head; n++ {
		var err error
		if rest, err = s.decodeEntry(rest, tagged); err != nil {
			return nil, fmt.Errorf("entry %d of %d at byte %d: %w", n+1, head, len(b)-len(rest), err)
		}
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("%w set: %d bytes behind the last entry", ErrMalformed, len(rest))
	}
	return s, nil
}

// decodeEntry adds one entry and gives the bytes behind it, or the unread bytes with an error.
func (s *Set) decodeEntry(b []byte, tagged bool) ([]byte, error) {
	var uuid UUID
	if copy(uuid[:], b) < len(uuid) {
		return b, fmt.Errorf("%w set: cut off in a UUID", ErrMalformed)
	}
	b = b[len(uuid):]
	tag := Tag("")
	if tagged {
		if len(b) == 0 || b[0]&1 != 0 || int(b[0]>>1) > len(b)-1 {
			return b, fmt.Errorf("%w set: bad tag length", ErrMalformed)
		}
		n := int(b[0] >> 1)
		if n > 0 && !ValidTag(b[1:1+n]) {
			return b, fmt.Errorf("%w set: invalid tag %q", ErrMalformed, b[1:1+n])
		}
		tag, b = string(b[1:1+n]), b[1+n:]
	}
	if len(b) < 8 {
		return b, fmt.Errorf("%w set: cut off in a count of ranges", ErrMalformed)
	}
	count := binary.LittleEndian.Uint64(b)
	b = b[8:]
	if count > uint64(len(b)/16) {
		return b, fmt.Errorf("%w set: %d ranges do not fit into %d bytes", ErrMalformed, count, len(b))
	}
	runs := make([]run, 0, count)
	end := uint64(0) // exclusive; two runs are never adjacent
	for range count {
		first, next := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		if first <= end || next <= first || next > MaxNumber+1 {
			return b, fmt.Errorf("%w set: range from %d to before %d", ErrMalformed, first, next)
		}
		runs = append(runs, run{int64(first), int64(next) - 1})
		end, b = next, b[16:]
	}
	if count > 0 {
		s.AddSet(&Set{entries: []entry{{uuid: uuid, tag: tag, runs: runs}}})
	}
	return b, nil
}
