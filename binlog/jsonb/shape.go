package jsonb

import (
	"bytes"
	"encoding/binary"
)

// Bounds of what is remembered: objects, names of one object, bytes of those names.
const (
	shapeSlots = 64
	shapeNames = 64
	shapeBytes = 1024
	shapeTries = 8 // of names that look alike and are not
)

// pad is how many bytes a short text is copied with.
const pad = 16

// shapes are the names of objects that came before. The documents of a table are made by a few programs and the elements of an array by one, so most objects
// have the names of an earlier one, and the server stores those in the same bytes at the same places: then the text before each value is known.
type shapes struct {
	slots [shapeSlots]shape
	last  *shape // that was of use
}

// shape is one of them: what its object has in front of the values, as stored and as text.
type shape struct {
	mark    uint64 // of the object that used the slot last, whether it is remembered or not
	learned int    // how often names with this mark were learned
	wide    int    // of the object that is remembered; 0 if none is
	entries []byte // of the names
	names   []byte
	pieces  *pieces
}

// pieces are the texts in front of the values of an object. They are never changed: another object may take the slot while one inside of the first is written.
type pieces struct {
	spent int // bytes of the names
	ends  []uint16
	text  []byte // `{"first": `, `, "second": ` and so on, with pad bytes behind
}

// piece gives the text in front of value i, with pad or more bytes of others behind it, and its length.
func (p *pieces) piece(i int) (text []byte, n int) {
	from := p.ends[i]
	return p.text[from:], int(p.ends[i+1] - from)
}

func (s *shape) is(wide int, keys, names []byte) bool {
	return s.wide == wide && bytes.Equal(s.names, names) && bytes.Equal(s.entries, keys)
}

// of gives the pieces of an object that is known; nil makes the caller look at each name. b is the object, entries the offset of what stands behind its
// entries, keys the entries of its names.
//
// An object is remembered when it comes a second time in a row in its slot, so that names that are data, like ids, cost a look and no more.
func (s *shapes) of(w *writer, b, keys []byte, entries int, l layout) *pieces {
	last := keys[len(keys)-l.wide-2:]
	end := int(l.uint(last)) + int(binary.LittleEndian.Uint16(last[l.wide:]))
	if end-entries < 8 || end-entries > shapeBytes || end > len(b) || len(keys) > shapeNames*(l.wide+2) {
		return nil
	}
	names := b[entries:end]
	if s.last != nil && s.last.is(l.wide, keys, names) {
		return s.last.pieces
	}
	mark := binary.LittleEndian.Uint64(names)*0x9e3779b97f4a7c15 ^ binary.LittleEndian.Uint64(names[len(names)-8:])*0xc2b2ae3d27d4eb4f ^ uint64(len(keys)<<12|len(names))
	slot := &s.slots[mark*0x9e3779b97f4a7c15>>58]
	switch {
	case slot.mark != mark:
		slot.mark, slot.learned, slot.wide = mark, 0, 0
		return nil
	case slot.is(l.wide, keys, names):
	case slot.learned == shapeTries:
		return nil
	default:
		slot.learned++
		if !slot.learn(w, b[:end], keys, entries, l) {
			slot.learned, slot.wide = shapeTries, 0
			return nil
		}
	}
	s.last = slot
	return slot.pieces
}

// learn remembers an object that ends with its last name. False means that its names are not stored one behind the other, or that their text is long.
func (s *shape) learn(w *writer, b, keys []byte, entries int, l layout) bool {
	s.wide = l.wide
	s.entries, s.names = append(s.entries[:0], keys...), append(s.names[:0], b[entries:]...)
	p := &pieces{spent: len(s.names), ends: []uint16{0}}
	for at := 0; at < len(keys); at += l.wide + 2 {
		name, ok := keyOf(b, keys[at:], uint64(entries), l)
		if !ok || len(p.text) > 4*shapeBytes || l.uint(keys[at:]) != uint64(entries) {
			return false
		}
		entries += len(name)
		if at == 0 {
			p.text = append(p.text, '{')
		} else {
			p.text = append(p.text, w.comma...)
		}
		p.text = append(appendString(p.text, name, w.hex), w.colon...)
		p.ends = append(p.ends, uint16(len(p.text)))
	}
	p.text = append(p.text, make([]byte, pad)...)
	s.pieces = p
	return true
}
