package kafka

import (
	"time"

	"outbox-relay/router"
)

// hold keeps a record of a topic whose partitions cannot be used yet. Order within the topic is kept.
func (p *Publisher) hold(t *topic, rec *router.Record, s shape, m mark) {
	p.hurry(t)
	var b *batch
	if n := len(t.unrouted); n > 0 {
		b = t.unrouted[n-1]
	}
	// Runs are kept short, so that their memory goes back step by step while they are routed.
	if b == nil || b.size > maxChunk || b.sealed || b.window != m.window {
		b = &batch{openedAt: time.Now(), window: m.window}
		t.wait(b)
	}
	s.put(b.add(&p.chunks, s.size, s.body, rec.TimestampMillis), rec, m.seq, m.from)
	p.count(s.size, m.window)
}

// place gives room for the entry of a record at the end of a partition.
func (p *Publisher) place(part *partition, window uint32, n, body int, millis int64) []byte {
	b := part.tail()
	if b == nil || b.window != window || !b.fits(body, millis, min(part.topic.limits.maxMessage, p.o.MaxBatch)) {
		b = &batch{openedAt: time.Now(), window: window}
		part.enqueue(b)
	}
	if part.sender == nil {
		p.hurry(part.topic)
	}
	before := b.size
	dst := b.add(&p.chunks, n, body, millis)
	part.pending += b.size - before
	part.topic.routed++
	if part.halted != nil {
		p.held++
		return dst
	}
	if !part.gathering {
		p.gather(part)
	}
	if part.pending >= wakePending {
		if part.scheduled && part.pending-(b.size-before) < wakePending {
			part.sender.notify() // it was listed while it was not worth a request beside another
		}
		p.kick(part)
	}
	return dst
}

// gather puts a partition on the dirty list.
func (p *Publisher) gather(part *partition) {
	part.gathering = true
	p.dirty = append(p.dirty, gatherer{part: part, at: p.published})
}

// flushOld sends what has waited while many other records were published. A busy stream has no Flush, and a rare partition must not
// wait for its end.
func (p *Publisher) flushOld() {
	for p.dirtyHead < len(p.dirty) && p.published-p.dirty[p.dirtyHead].at > dirtyBytes {
		p.flushOldest()
	}
}

// flushAll sends all that gathers.
func (p *Publisher) flushAll() {
	for p.dirtyHead < len(p.dirty) {
		p.flushOldest()
	}
}

func (p *Publisher) flushOldest() {
	part := p.dirty[p.dirtyHead].part
	p.dirty[p.dirtyHead].part = nil
	p.dirtyHead++
	if p.dirtyHead == len(p.dirty) {
		p.dirty, p.dirtyHead = p.dirty[:0], 0
	}
	if p.dirtyHead > 256 && p.dirtyHead*2 > len(p.dirty) {
		n := copy(p.dirty, p.dirty[p.dirtyHead:])
		clear(p.dirty[n:])
		p.dirty, p.dirtyHead = p.dirty[:n], 0
	}
	part.gathering = false
	if part.pending > 0 {
		part.due = true
		p.kick(part)
	}
}

// kick moves a partition on: to its halt, to its sender, or to the delayed ones. It may be called whenever something has changed.
func (p *Publisher) kick(part *partition) {
	if len(part.queue) == 0 || part.flying != nil || part.halted != nil {
		return
	}
	if part.queue[0].window != p.sending {
		return // commit kicks it
	}
	if part.queue[0].poison != nil {
		p.awaitJudgement(part)
		return
	}
	if part.added != p.sending {
		p.join(part)
		return
	}
	if part.sender == nil || part.scheduled || part.onHold || !part.wants() {
		return
	}
	if !part.notBefore.IsZero() {
		if now := time.Now(); now.Before(part.notBefore) {
			p.delay(part)
			return
		}
		part.notBefore = time.Time{}
	}
	part.scheduled = true
	part.sender.ready = append(part.sender.ready, part)
	part.sender.notify()
}

// delay has the clock kick a partition at its notBefore.
func (p *Publisher) delay(part *partition) {
	if !part.delayed {
		part.delayed = true
		p.delayed = append(p.delayed, part)
	}
	p.clock.arm(part.notBefore)
}

// haltPart stops a partition for good at its head.
func (p *Publisher) haltPart(part *partition, e *PoisonError) {
	part.halted = e
	for _, b := range part.queue {
		p.held += b.count
		part.topic.unblock(b) // it will never be judged
		p.forgetInstead(b)
	}
	p.lessCrowded()
	part.stall, part.since = StallPoison, time.Now()
	p.metrics.errors[classPoison].Inc()
	p.progress()
}

// progress tells those who drain that something has changed.
func (p *Publisher) progress() {
	if p.drains > 0 {
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

// route sends the records that waited for the topic to their partitions, in order.
func (p *Publisher) route(t *topic) {
	if len(t.parts) == 0 || t.limitsAt.IsZero() {
		return
	}
	if t.grown > 0 {
		if t.routed > 0 {
			return // in flight under the old count: keys must not overtake themselves
		}
		p.adopt(t, t.grown)
		t.grown = 0
	}
	now := time.Now()
	if t.checking && !t.fresh(now) {
		return
	}
	t.checking = false
	for len(t.unrouted) > 0 && !t.checking && t.doubtful == 0 {
		b := t.unrouted[0]
		t.unrouted[0] = nil
		t.unrouted = t.unrouted[1:]
		if rest := p.routeBatch(t, b, now); rest != nil {
			t.unrouted = append([]*batch{rest}, t.unrouted...)
		}
	}
	for _, part := range t.parts {
		if part.pending > 0 {
			part.due = true
			p.kick(part)
		}
	}
	p.wakePublish()
}

// routeBatch sends waiting records to their partitions and releases b. If old knowledge refuses one, that one and the rest are given back
// to wait for new knowledge. If new knowledge refuses one, the rest is given back to wait until it was judged.
func (p *Publisher) routeBatch(t *topic, b *batch, now time.Time) (rest *batch) {
	if b.final {
		p.append(p.partitionOf(t, b.first()), b)
		return nil
	}
	for e := range b.entries() {
		if rest == nil && t.doubtful == 0 && p.routeEntry(t, e, b.window, now) {
			continue
		}
		if rest == nil {
			rest = &batch{openedAt: b.openedAt, window: b.window}
		}
		copy(rest.add(&p.chunks, len(e), e.body(), e.millis()), e)
	}
	b.release(&p.chunks)
	if rest != nil && t.doubtful == 0 {
		t.checking = true
		p.want(t, 0)
	}
	return rest
}

// routeEntry sends one record to its partition. False means that knowledge which may be old refuses it.
func (p *Publisher) routeEntry(t *topic, e entry, window uint32, now time.Time) bool {
	key, want := e.key(), e.partition()
	reason, err := t.check(key, e.body(), e.millis(), want, now)
	if err == nil {
		part := t.choose(p.o.partitioner, key, want, len(e))
		copy(p.place(part, window, len(e), e.body(), e.millis()), e)
		return true
	}
	if !t.fresh(now) {
		return false
	}
	part := p.partitionOf(t, e)
	if part.halted != nil { // nothing of it is sent any more
		copy(p.place(part, window, len(e), e.body(), e.millis()), e)
		return true
	}
	b := &batch{openedAt: now, window: window, sealed: true, blocks: true}
	t.doubtful++
	copy(b.add(&p.chunks, len(e), e.body(), e.millis()), e)
	b.poison = p.poisonOf(e, t.name, part.index, reason, err)
	if want != router.AnyPartition {
		b.poison.Partition = want
	}
	p.append(part, b)
	return true
}

// partitionOf is the partition in whose order a refused record stands. One for a partition that does not exist stops the first one: it has to stop
// something, and in a topic of this kind all records name their partition.
func (p *Publisher) partitionOf(t *topic, e entry) *partition {
	want := e.partition()
	if want < router.AnyPartition || int(want) >= len(t.parts) {
		return t.parts[0]
	}
	return t.choose(p.o.partitioner, e.key(), want, len(e))
}

// append puts a batch with one refused record at the end of a partition.
func (p *Publisher) append(part *partition, b *batch) {
	if b.poison.Partition == router.AnyPartition {
		b.poison.Partition = part.index
	}
	part.enqueue(b)
	part.pending += b.size
	part.topic.routed += b.count
	if part.halted != nil {
		p.held += b.count
		return
	}
	p.kick(part)
}
