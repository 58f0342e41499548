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

// shapes are the names of objects that came before. The documents of a table are made by a few programs and the elements of an array by one, so most objects
// have the names of an earlier one, and the server stores those in the same bytes at the same places: then the text before each value is known.
type shapes struct {
	slots [shapeSlots]slot
	last  *slot // that was of use
}

// slot is the place of one of them.
type slot struct {
	mark    uint64 // of the object that used the slot last, whether it is remembered or not
	learned int    // how often names with this mark were learned
	shape   *shape // that is remembered, if any
	next    *slot  // of the object that came after this one the last time, unless it had the same names
}

// shape is what a small object has in front of its values, as stored and as text. It is never changed: another object may take the slot while one inside of
// the first is written.
type shape struct {
	values     int      // offset of the entries of the values
	entries    int      // offset of what stands behind them: the names
	end        int      // of the last name
	words      []masked // that an object with these names begins with
	spent      int      // bytes of the names
	room       int      // what one takes at most in which everything is plain, with what plain writes over
	debezium   bool
	between    [4]byte // what stands between two of them in an array
	betweenLen int
	pieces     []piece // what stands before each value: `{"first": `, `, "second": ` and so on
}

// piece is a text, of which the first bytes are copied at once, whether there are as many or not.
type piece struct {
	n     int
	first [pad]byte
	rest  []byte
}

// masked are eight bytes of an object and the bits of them that count: its size and values differ from one to the next.
type masked struct {
	at         int
	bits, mask uint64
}

// is tells whether the object at the front of b has these names.
func (s *shape) is(b []byte) bool {
	if s == nil || len(b) < s.end {
		return false
	}
	if s.end <= 64 && len(b) >= 72 { // one check for all
		near := (*[72]byte)(b)
		for i := range s.words {
			m := &s.words[i]
			if (binary.LittleEndian.Uint64(near[m.at&63:])^m.bits)&m.mask != 0 {
				return false
			}
		}
		return true
	}
	for i := range s.words {
		m := &s.words[i]
		if (binary.LittleEndian.Uint64(b[m.at:m.at+8:m.at+8])^m.bits)&m.mask != 0 {
			return false
		}
	}
	return true
}

// of gives the shape of the object at the front of b if it is known; nil makes the caller look at each name.
func (s *shapes) of(w *writer, b []byte) *shape {
	last := s.last
	if last == nil {
		return s.find(w, b)
	}
	if last.shape.is(b) {
		return last.shape
	}
	if next := last.next; next != nil && next.shape.is(b) {
		s.last = next
		return next.shape
	}
	return s.find(w, b)
}

// find looks the object up by its names, and remembers it when it comes a second time in a row in its slot, so that names that are data, like ids, cost a look
// and no more.
func (s *shapes) find(w *writer, b []byte) *shape {
	if len(b) < 4 {
		return nil
	}
	count, size := int(binary.LittleEndian.Uint16(b)), int(binary.LittleEndian.Uint16(b[2:]))
	values := 4 + 4*count
	entries := values + 3*count
	if count == 0 || count > shapeNames || size < entries || size > len(b) {
		return nil
	}
	last := b[values-4:]
	end := int(binary.LittleEndian.Uint16(last)) + int(binary.LittleEndian.Uint16(last[2:]))
	if end-entries < 8 || end-entries > shapeBytes || end > size {
		return nil
	}
	names := b[entries:end]
	mark := binary.LittleEndian.Uint64(names)*0x9e3779b97f4a7c15 ^ binary.LittleEndian.Uint64(names[len(names)-8:])*0xc2b2ae3d27d4eb4f ^ uint64(count<<12|len(names))
	slot := &s.slots[mark*0x9e3779b97f4a7c15>>58]
	switch {
	case slot.mark != mark:
		slot.mark, slot.learned, slot.shape = mark, 0, nil
		return nil
	case slot.shape.is(b):
	case slot.learned == shapeTries:
		return nil
	default:
		slot.learned++
		if slot.shape = newShape(w, b[:end], values, entries); slot.shape == nil {
			slot.learned = shapeTries
			return nil
		}
	}
	if s.last != nil {
		s.last.next = slot
	}
	s.last = slot
	return slot.shape
}

// newShape makes the shape of an object that ends with its last name. It is nil if the names are not stored one behind the other.
func newShape(w *writer, b []byte, values, entries int) *shape {
	s := &shape{values: values, entries: entries, end: len(b), spent: len(b) - entries, debezium: w.debezium}
	s.betweenLen = copy(s.between[:], w.comma([]byte{'}'}))
	mask := bytes.Repeat([]byte{0xff}, len(b))
	clear(mask[2:4]) // the size
	clear(mask[values:entries])
	for at := 0; at < len(b); at += 8 {
		at := min(at, len(b)-8)
		m := masked{at, binary.LittleEndian.Uint64(b[at:]), binary.LittleEndian.Uint64(mask[at:])}
		if m.bits &= m.mask; m.mask != 0 {
			s.words = append(s.words, m)
		}
	}
	for at := 4; at < values; at += 4 {
		name, ok := keyOf(b, b[at:], uint64(entries), layout{wide: 2})
		if !ok || int(binary.LittleEndian.Uint16(b[at:])) != entries {
			return nil
		}
		entries += len(name)
		text := []byte{'{'}
		if at > 4 {
			text = w.comma(text[:0])
		}
		text = w.colon(appendString(text, name, w.hex))
		p := piece{n: len(text)}
		p.rest = text[copy(p.first[:], text):]
		s.pieces = append(s.pieces, p)
		s.room += p.n + word + 2
	}
	s.room += plainRoom
	return s
}
