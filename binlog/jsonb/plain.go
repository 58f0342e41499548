package jsonb

import (
	"encoding/binary"

	"outbox-relay/binlog/value/scalar"
)

const (
	// pad is how many bytes of a name are copied at once.
	pad = 32
	// word is up to how many bytes of a string are copied at once.
	word = 16
	// plainRoom is what a plain member may write over: its name, the quotes and the word of a string, and as much again as a name may be shorter.
	plainRoom = pad + pad + word + 2
)

// plain writes objects of one shape as long as their values are plain: integers of at most eight digits, literals, strings of at most 127 bytes that need no escape,
// and numbers with up to four digits before and behind the point. It begins with member i of the object at ref in b, and goes on with the objects of the entries
// from at to end of the array b. buf has s.room bytes at least.
//
// It gives the object and the member at which it stopped, and the entry behind that object; how much it has written; and what it took from the budget. The member
// is len(s.pieces) when the object is written, but for its brace, and there is no further one, or not of this shape, or no room for it.
//
// It calls nothing, so what it has in hand need not be put away, and it looks at memory through windows of a fixed size, each of which is checked once.
func (s *shape) plain(buf, b []byte, ref, i, at, end int) (object, member, next, to, spent int) {
	le := binary.LittleEndian
	size := int(le.Uint16(b[ref+2 : ref+4]))
	entry, pieces := ref+s.values+3*i, s.pieces
objects:
	for {
		for ; i < len(pieces); i++ {
			p := &pieces[i]
			if p.n > pad {
				break objects
			}
			out := (*[plainRoom]byte)(buf[to : to+plainRoom : to+plainRoom])
			*(*[pad]byte)(out[:pad]) = p.first
			n := p.n & (2*pad - 1)
			e := le.Uint32(b[entry : entry+4 : entry+4])
			v := e >> 8 & 0xffff
			entry += 3
			switch e & 0xff {
			case uint16Value:
			case int16Value:
				if v >= 1<<15 {
					break objects
				}
			case literal:
				if v &= 0xff; int(v) >= len(literals) {
					break objects
				}
				l := &literals[v]
				*(*[8]byte)(out[n : n+8]) = l.text
				to += n + l.n
				continue
			case stringValue:
				from := ref + int(v)
				if int(v) < s.entries || from+word+1 > len(b) {
					break objects
				}
				in := (*[word + 1]byte)(b[from : from+word+1 : from+word+1])
				length := int(in[0])
				if length >= 0x80 || length >= size-int(v) {
					break objects
				}
				if length > word {
					if to+n+length+2 > len(buf) {
						break objects
					}
					text, quoted, bad := b[from+1:from+1+length:from+1+length], buf[to+n:to+n+length+2:to+n+length+2], uint64(0)
					for k, last := 0, false; !last; k += word {
						if k >= length-word { // the last ones, some of them once more
							k, last = length-word, true
						}
						x, y := le.Uint64(text[k:k+8:k+8]), le.Uint64(text[k+8:k+16:k+16])
						bad |= dirt(x) | dirt(y)
						le.PutUint64(quoted[k+1:k+9:k+9], x)
						le.PutUint64(quoted[k+9:k+17:k+17], y)
					}
					if bad != 0 {
						break objects
					}
					quoted[0], quoted[length+1] = '"', '"'
					to += n + length + 2
					spent += length
					if to+s.room > len(buf) {
						i++
						break objects
					}
					continue
				}
				x, y := le.Uint64(in[1:]), le.Uint64(in[9:])
				if length <= 8 {
					if dirt(x)&upTo[length] != 0 {
						break objects
					}
				} else if dirt(x)|dirt(y)&upTo[length-8] != 0 {
					break objects
				}
				out[n] = '"'
				le.PutUint64(out[n+1:], x)
				le.PutUint64(out[n+9:], y)
				out[n+1+length] = '"'
				to += n + length + 2
				spent += length
				continue
			case doubleValue:
				from := ref + int(v)
				if int(v) < s.entries || size-int(v) < 8 || s.debezium {
					break objects
				}
				f, ok := scalar.TenThousandths(le.Uint64(b[from : from+8 : from+8]))
				if !ok {
					break objects
				}
				d := scalar.EightDigits(f)
				text := d | zeros
				switch { // processors guess how many digits there are, and go on
				case f >= 10_000_000:
					le.PutUint32(out[n:], uint32(text))
					n += 4
				case f >= 1_000_000:
					le.PutUint32(out[n:], uint32(text>>8))
					n += 3
				case f >= 100_000:
					le.PutUint32(out[n:], uint32(text>>16))
					n += 2
				default:
					out[n] = byte(text >> 24)
					n++
				}
				n &= 2*pad - 1 // which it is below: no check of what follows
				out[n] = '.'
				le.PutUint32(out[n+1:], uint32(text>>32))
				switch {
				case d>>40 == 0:
					to += n + 2
				case d>>48 == 0:
					to += n + 3
				case d>>56 == 0:
					to += n + 4
				default:
					to += n + 5
				}
				continue
			case int32Value:
				from := ref + int(v)
				if int(v) < s.entries || size-int(v) < 4 {
					break objects
				}
				if v = le.Uint32(b[from : from+4 : from+4]); v >= 100_000_000 { // or below zero
					break objects
				}
			default:
				break objects
			}
			if v < 10 {
				out[n] = byte('0' + v)
				to += n + 1
				continue
			}
			text := scalar.EightDigits(uint64(v)) | zeros
			switch {
			case v < 100:
				le.PutUint64(out[n:], text>>48)
				to += n + 2
			case v < 1000:
				le.PutUint64(out[n:], text>>40)
				to += n + 3
			case v < 10_000:
				le.PutUint64(out[n:], text>>32)
				to += n + 4
			case v < 100_000:
				le.PutUint64(out[n:], text>>24)
				to += n + 5
			case v < 1_000_000:
				le.PutUint64(out[n:], text>>16)
				to += n + 6
			case v < 10_000_000:
				le.PutUint64(out[n:], text>>8)
				to += n + 7
			default:
				le.PutUint64(out[n:], text)
				to += n + 8
			}
		}
		// The object is written. Is the next one alike?
		if at >= end || to+s.room > len(buf) || spent > len(b) {
			break objects
		}
		e := le.Uint32(b[at : at+4 : at+4])
		following := int(e >> 8 & 0xffff)
		if e&0xff != smallObject || following < end || following+s.end > len(b) || !s.is(b[following:]) {
			break objects
		}
		if size = int(le.Uint16(b[following+2 : following+4])); size < s.end || following+size > len(b) {
			break objects
		}
		*(*[4]byte)(buf[to : to+4 : to+4]) = s.between
		to += s.betweenLen
		spent += s.entries + s.spent
		ref, entry, i = following, following+s.values, 0
		at += 3
	}
	return ref, i, at, to, spent
}

const zeros = 0x3030303030303030

// upTo are the highest bits of so many bytes.
var upTo = [...]uint64{0, 0x80, 0x8080, 0x808080, 0x80808080, 0x8080808080, 0x808080808080, 0x80808080808080, 0x8080808080808080}
