package produce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"
)

// ErrMalformed is the error of an answer that is none to a produce request.
var ErrMalformed = errors.New("malformed answer to a produce request")

// parse reads an answer behind its correlation id.
func parse(b []byte, version int16) (*sarama.ProduceResponse, error) {
	a := answer{b: b, flexible: version >= versionFlexible}
	resp := &sarama.ProduceResponse{Version: version, Blocks: map[string]map[int32]*sarama.ProduceResponseBlock{}}
	a.tags(nil) // of the header
	for range a.count() {
		if a.bad {
			break
		}
		name := a.string()
		parts := make(map[int32]*sarama.ProduceResponseBlock)
		for range a.count() {
			if a.bad {
				break
			}
			index := int32(a.u32())
			parts[index] = a.block(version)
		}
		a.tags(nil)
		if name == nil {
			a.bad = true
			break
		}
		resp.Blocks[*name] = parts
	}
	resp.ThrottleTime = time.Duration(int32(a.u32())) * time.Millisecond
	a.tags(func(tag uint64, a *answer) {
		if tag == 0 {
			resp.NodeEndpoints = a.endpoints()
		}
	})
	if a.bad || len(a.b) > 0 {
		return nil, fmt.Errorf("%w of version %d: %d bytes, %d left over", ErrMalformed, version, len(b), len(a.b))
	}
	return resp, nil
}

// answer reads the parts of an answer one after the other. Once something is missing, all that follows is zero.
type answer struct {
	b        []byte
	flexible bool
	bad      bool
}

// block reads the answer for one batch. Of the errors of single records the first in the batch is kept: there may be thousands, and the batch is split there.
func (a *answer) block(version int16) *sarama.ProduceResponseBlock {
	b := &sarama.ProduceResponseBlock{Err: sarama.KError(int16(a.u16())), Offset: int64(a.u64())}
	if millis := int64(a.u64()); millis >= 0 {
		b.Timestamp = time.UnixMilli(millis)
	}
	if version >= versionStart {
		b.StartOffset = int64(a.u64())
	}
	if version >= versionErrors {
		for range a.count() {
			if a.bad {
				break
			}
			index, text := int32(a.u32()), a.text()
			a.tags(nil)
			if len(b.RecordErrors) == 0 || index < b.RecordErrors[0].BatchIndex {
				b.RecordErrors = []sarama.ProduceResponseRecordError{{BatchIndex: index, BatchIndexErrorMessage: stringOf(text)}}
			}
		}
		b.ErrorMessage = a.string()
	}
	a.tags(func(tag uint64, a *answer) {
		if tag == 0 {
			b.CurrentLeader = &sarama.ProduceResponseCurrentLeader{LeaderID: int32(a.u32()), LeaderEpoch: int32(a.u32())}
			a.tags(nil)
		}
	})
	return b
}

func (a *answer) endpoints() (nodes []*sarama.ProduceResponseNodeEndpoint) {
	for range a.count() {
		if a.bad {
			break
		}
		n := &sarama.ProduceResponseNodeEndpoint{NodeID: int32(a.u32())}
		if host := a.string(); host != nil {
			n.Host = *host
		}
		n.Port, n.Rack = int32(a.u32()), a.string()
		a.tags(nil)
		nodes = append(nodes, n)
	}
	return nodes
}

var zeros [8]byte

// take gives the next n bytes, or zeros where there are not so many.
func (a *answer) take(n int) []byte {
	if n < 0 || n > len(a.b) || a.bad {
		a.bad = true
		a.b = nil
		return zeros[:min(max(n, 0), len(zeros))]
	}
	b := a.b[:n]
	a.b = a.b[n:]
	return b
}

func (a *answer) u16() uint16 { return binary.BigEndian.Uint16(a.take(2)) }
func (a *answer) u32() uint32 { return binary.BigEndian.Uint32(a.take(4)) }
func (a *answer) u64() uint64 { return binary.BigEndian.Uint64(a.take(8)) }

func (a *answer) uvarint() uint64 {
	v, n := binary.Uvarint(a.b)
	if n <= 0 || v > 1<<31 {
		a.bad, a.b = true, nil
		return 0
	}
	a.b = a.b[n:]
	return v
}

// count gives the length of an array, of which each element has a byte at least.
func (a *answer) count() int {
	n := 0
	if a.flexible {
		n = int(a.uvarint()) - 1
	} else {
		n = int(int32(a.u32()))
	}
	if n > len(a.b) {
		a.bad, a.b = true, nil
	}
	if a.bad {
		return 0
	}
	return max(n, 0)
}

// string gives nil for null.
func (a *answer) string() *string { return stringOf(a.text()) }

func stringOf(b []byte) *string {
	if b == nil {
		return nil
	}
	s := string(b)
	return &s
}

// text gives the bytes of a string, nil for null.
func (a *answer) text() []byte {
	n := 0
	if a.flexible {
		n = int(a.uvarint()) - 1
	} else {
		n = int(int16(a.u16()))
	}
	if n < 0 || a.bad {
		return nil
	}
	b := a.take(n)
	if a.bad {
		return nil
	}
	return b[:n:n]
}

// tags reads the tagged fields of a flexible version. known, which may be nil, reads one of them; what it leaves is passed by.
func (a *answer) tags(known func(tag uint64, field *answer)) {
	if !a.flexible {
		return
	}
	for range a.uvarint() {
		if a.bad {
			return
		}
		tag := a.uvarint()
		field := answer{b: a.take(int(a.uvarint())), flexible: true}
		if a.bad {
			return
		}
		if known != nil {
			known(tag, &field)
			a.bad = a.bad || field.bad
		}
	}
}
