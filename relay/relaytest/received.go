package relaytest

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"slices"
)

// Received tells of a message. The messages of one partition come in the order of their offsets. Nothing of m is kept.
func (v *Validator) Received(m Message) {
	v.received++
	topic := number(v.topics, m.Topic)
	part := v.partition(place{topic, m.Partition}, m.Topic)
	where := at{m}
	if m.Offset <= part.last {
		v.faults.add(Stream, "%v comes after offset %d", where, part.last)
	}
	part.last = m.Offset

	id, ok := header(m.Headers, v.o.IDHeader)
	if !ok {
		v.faults.add(Phantom, "%v has no header %s", where, v.o.IDHeader)
		return
	}
	row, ok := v.find(id)
	if !ok {
		if _, rolledBack := v.rolledBack[string(id)]; rolledBack {
			v.faults.add(Phantom, "%v: id %q was rolled back", where, id)
		} else {
			v.faults.add(Phantom, "%v: id %q was never committed", where, id)
		}
		return
	}
	r := &v.rows[row]
	if r.topic != topic {
		v.faults.add(WrongTopic, "%v: id %q belongs to another topic", where, id)
		return // for its own topic it is not delivered
	}
	v.compare(r, id, m)
	v.checkPosition(r, id, m)
	isFirst := r.seen == 0
	r.seen++
	if !isFirst {
		v.duplicates++
	} else {
		r.partition = m.Partition
	}
	if r.key != noKey {
		v.checkOrder(r, part, id, m, isFirst)
		if v.o.ByProducer {
			v.checkProducer(row, part, m, isFirst)
		} else {
			v.checkReplay(row, part, m, isFirst)
		}
	} else if !isFirst && v.o.Restarts == 0 {
		v.faults.add(Replay, "%v: id %q again, without a restart", where, id)
	}
}

func (v *Validator) partition(p place, topic string) *partitionState {
	s := v.byPlace[p]
	if s == nil {
		s = &partitionState{last: -1, moving: v.o.KeysMove || slices.Contains(v.o.GrownTopics, topic), producers: map[int64]int{}}
		v.byPlace[p] = s
	}
	return s
}

// at is a message's place, for reports.
type at struct{ m Message }

func (a at) String() string { return fmt.Sprintf("%s[%d]@%d", a.m.Topic, a.m.Partition, a.m.Offset) }

func header(headers []Header, name string) ([]byte, bool) {
	for _, h := range headers {
		if h.Key == name {
			return h.Value, true
		}
	}
	return nil, false
}

// compare judges the contents.
func (v *Validator) compare(r *rowState, id []byte, m Message) {
	if v.hashValue(m.Value) != r.value {
		v.faults.add(WrongValue, "%v: id %q has a value of %d bytes that differs from the row's", at{m}, id, len(m.Value))
	}
	if v.hashHeaders(m.Headers) != r.headers {
		v.faults.add(WrongHeaders, "%v: id %q has other headers than expected: %s", at{m}, id, names(m.Headers))
	}
	if same := (m.Key == nil) == (r.key == noKey) && (m.Key == nil || string(m.Key) == v.states[r.key].text); !same {
		v.faults.add(WrongKey, "%v: id %q has the key %q", at{m}, id, m.Key)
	}
}

func names(headers []Header) string {
	var b bytes.Buffer
	for i, h := range headers {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(h.Key)
		if h.Value == nil {
			b.WriteString(" (null)")
		}
	}
	return b.String()
}

// checkPosition judges the position header: one, the last, readable, and the same each time. What it counts is judged in the report.
func (v *Validator) checkPosition(r *rowState, id []byte, m Message) {
	count := 0
	for _, h := range m.Headers {
		if h.Key == positionHeader {
			count++
		}
	}
	if count != 1 || m.Headers[len(m.Headers)-1].Key != positionHeader {
		v.faults.add(WrongPosition, "%v: id %q has %d headers %s, and one is due as the last", at{m}, id, count, positionHeader)
		return
	}
	p, err := parsePosition(m.Headers[len(m.Headers)-1].Value)
	if err != nil {
		v.faults.add(WrongPosition, "%v: id %q: %v", at{m}, id, err)
		return
	}
	gtid := number(v.gtids, maphash.Bytes(v.seed, p.gtid))
	if bytes.HasPrefix(p.gtid, []byte("snapshot:")) { // a row that was selected may come from the binlog, too, under its GTID
		if r.selected == noGTID {
			r.selected = gtid
		}
		if r.selected != gtid || p.n != 0 {
			v.faults.add(WrongPosition, "%v: id %q has the position %s#%d, which differs from the one before", at{m}, id, p.gtid, p.n)
		}
		return
	}
	if r.gtid == noGTID {
		r.gtid, r.n = gtid, p.n
	} else if r.gtid != gtid || r.n != p.n {
		v.faults.add(WrongPosition, "%v: id %q has the position %s#%d, which differs from the one before", at{m}, id, p.gtid, p.n)
	}
}

// checkOrder judges the order of first occurrences of a key, and that it stays in one partition.
func (v *Validator) checkOrder(r *rowState, part *partitionState, id []byte, m Message, isFirst bool) {
	k := &v.states[r.key]
	if k.partition < 0 {
		k.partition = m.Partition
	}
	highest := k.highest
	if m.Partition != k.partition {
		if !part.moving {
			if k.split {
				return
			}
			k.split = true
			v.faults.add(TwoPartitions, "%v: id %q of key %q, which is in partition %d", at{m}, id, k.text, k.partition)
			return
		}
		var known bool
		if highest, known = k.elsewhere[m.Partition]; !known {
			highest = -1
		}
	}
	if !isFirst {
		return
	}
	if int64(r.rank) < highest {
		v.faults.add(OutOfOrder, "%v: id %q is row %d of key %q and comes after row %d", at{m}, id, r.rank, k.text, highest)
		return
	}
	switch {
	case m.Partition == k.partition:
		k.highest = int64(r.rank)
	case k.elsewhere == nil:
		k.elsewhere = map[int32]int64{m.Partition: int64(r.rank)}
	default:
		k.elsewhere[m.Partition] = int64(r.rank)
	}
}

// checkReplay follows the partition: see the package comment for what a replay is.
func (v *Validator) checkReplay(row uint32, part *partitionState, m Message, isFirst bool) {
	r := &v.rows[row]
	if isFirst {
		if part.next < len(part.first) {
			v.faultReplay(part, "%v: id %q is new and comes before the replay has repeated id %q", at{m}, v.id(row), v.id(part.first[part.next]))
		}
		r.index = uint32(len(part.first))
		part.first = append(part.first, row)
		part.next = len(part.first)
		return
	}
	if r.partition != m.Partition {
		// In two partitions: reported by checkOrder, or accepted by KeysMove after a restart.
		if part.moving {
			v.faultReplay(part, "%v: id %q again, after partition %d", at{m}, v.id(row), r.partition)
		}
		return
	}
	index := int(r.index)
	switch {
	case index < part.next:
		part.rewinds++
		if part.rewinds > v.o.Restarts {
			v.faultReplay(part, "%v: id %q again: replay %d of the partition with %d restarts", at{m}, v.id(row), part.rewinds, v.o.Restarts)
		}
	case index > part.next:
		v.faultReplay(part, "%v: the replay goes on with id %q and leaves out id %q", at{m}, v.id(row), v.id(part.first[part.next]))
	}
	part.next = index + 1
}

// checkProducer follows each producer of the partition by itself.
func (v *Validator) checkProducer(row uint32, part *partitionState, m Message, isFirst bool) {
	r := &v.rows[row]
	next, known := part.producers[m.Producer]
	if isFirst {
		if known && next < len(part.first) {
			v.faultReplay(part, "%v: id %q is new and its producer %d has not repeated id %q", at{m}, v.id(row), m.Producer, v.id(part.first[next]))
		}
		r.index = uint32(len(part.first))
		part.first = append(part.first, row)
		part.next = len(part.first)
		part.producers[m.Producer] = part.next
		return
	}
	if r.partition != m.Partition {
		if part.moving {
			v.faultReplay(part, "%v: id %q again, after partition %d", at{m}, v.id(row), r.partition)
		}
		return
	}
	index := int(r.index)
	switch {
	case !known:
		part.rewinds++
		if part.rewinds > v.o.Restarts {
			v.faults.add(Replay, "%v: id %q again: replay %d of the partition with %d restarts", at{m}, v.id(row), part.rewinds, v.o.Restarts)
		}
	case index < next && !part.moving:
		v.faults.add(Replay, "%v: id %q again, by the same producer %d", at{m}, v.id(row), m.Producer)
	case index > next:
		v.faultReplay(part, "%v: producer %d goes on with id %q and leaves out id %q", at{m}, m.Producer, v.id(row), v.id(part.first[next]))
	}
	part.producers[m.Producer] = index + 1
}

func (v *Validator) faultReplay(part *partitionState, format string, args ...any) {
	if !v.anyDuplicates(part) {
		v.faults.add(Replay, format, args...)
	}
}

// anyDuplicates tells whether the run had a reason for duplicates of any pattern. A key that moves leaves out its rows where it was.
func (v *Validator) anyDuplicates(part *partitionState) bool {
	return v.o.Restarts > 0 && (v.o.LateRequests || part.moving)
}
