package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"outbox-relay/router"
)

// Judgement says what becomes of a record that its topic refuses for ever. The zero value halts its partition.
type Judgement struct {
	// Drop forgets the record: Acked is told its sequence number as if it had been acknowledged.
	Drop bool
	// Instead is published in the record's place, to whatever topic, and acknowledged under its sequence number. It belongs to the publisher.
	Instead *router.Record
}

// poisoned is a record at the head of its partition that was refused for ever and waits for its judgement.
type poisoned struct {
	part  *partition
	batch *batch // holds it, and others of parked keys at most
	err   *PoisonError
	rec   *router.Record // nil without Options.Judge
}

// errParked is the cause of a record that is not published although it is good.
var errParked = errors.New("an earlier record of the key is among the dead letters")

// maxInstead bounds how often a record is replaced: what is published instead of it may be refused too.
const maxInstead = 3

// Refuse takes a record over that can never be published, for a reason of the caller's. It is judged when everything before it in its partition is in the
// log, as if its topic had refused it: so what is published instead of the records of a key has their order. It blocks like Publish. A [*PoisonError]
// comes back where there is no such order to wait for: the record has no key or no valid topic, or nothing before it waits. Then it was not kept.
func (p *Publisher) Refuse(ctx context.Context, rec *router.Record, seq uint64, reason string, cause error) error {
	s := shapeOf(rec)
	p.mu.Lock()
	defer p.unlock()
	if err := p.waitRoom(ctx, s.size); err != nil {
		return err
	}
	bad := p.poison(reason, cause, rec, s, seq)
	if rec.Key == nil || router.CheckTopic([]byte(rec.Topic)) != nil {
		return bad
	}
	return p.keepRefused(rec, s, bad, true)
}

// queueRefused keeps a record that Publish may not take. An error says that it was not kept, since nothing of its partition waits.
func (p *Publisher) queueRefused(rec *router.Record, s shape, bad *PoisonError) error {
	if bad.Reason == ReasonInvalidTopic {
		return bad
	}
	reason, _ := checkAlways(rec.Topic, s.size, rec.TimestampMillis, rec.Partition)
	return p.keepRefused(rec, s, bad, reason != "")
}

func (p *Publisher) keepRefused(rec *router.Record, s shape, bad *PoisonError, final bool) error {
	b := &batch{openedAt: time.Now(), window: p.window, sealed: true, final: final, poison: bad}
	s.put(b.add(&p.chunks, s.size, s.body, rec.TimestampMillis), rec, bad.Seq, p.origin(rec))
	t := p.topic(rec.Topic)
	if !t.open() {
		p.hurry(t)
		t.wait(b)
		p.count(s.size, b.window)
		p.txn.grew(s.size)
		return nil
	}
	part := p.partitionOf(t, b.first())
	if len(part.queue) == 0 && !p.parks(t, b.first()) {
		b.release(&p.chunks)
		return bad
	}
	p.count(s.size, b.window)
	p.txn.grew(s.size)
	p.append(part, b)
	return nil
}

// awaitJudgement notes that the head of a partition is poison. It is judged when the lock is released, or later while what is published instead of other
// records fills the window.
func (p *Publisher) awaitJudgement(part *partition) {
	if part.judging || part.waiting {
		return
	}
	if part.topic.own { // no policy of rows may drop a checkpoint: its window would be committed without it
		p.die(&FatalError{Topic: part.topic.name, Partition: part.index, Err: part.queue[0].poison})
		return
	}
	if p.instead > 0 && p.chunks.used > p.o.Window {
		part.waiting = true
		p.crowded = append(p.crowded, part)
		return
	}
	part.judging = true
	b := part.queue[0]
	x := poisoned{part: part, batch: b, err: b.poison}
	if p.o.Judge != nil {
		e := b.first()
		if b.parked {
			x.err = p.poisonOf(e, part.topic.name, part.index, ReasonParked, errParked)
		}
		x.rec = e.record(part.topic.name, p.origins[e.origin()])
	}
	p.poisons = append(p.poisons, x)
}

// judge asks what becomes of poison records and does it, without the lock. Nothing behind such a record is sent before. Records that prove to be
// poison once the ones before them are gone are judged in the same loop: a whole backlog may be.
func (p *Publisher) judge(poisons []poisoned) {
	for len(poisons) > 0 {
		x := poisons[0]
		poisons = poisons[1:]
		err := x.err
		for range maxInstead {
			if p.o.Judge == nil {
				break
			}
			j := p.o.Judge(err, x.rec)
			if !j.Drop && j.Instead == nil {
				break
			}
			var more []poisoned
			if more, err = p.settle(x, j); err == nil {
				poisons = append(poisons, more...)
				break
			}
			if errors.Is(err, ErrParkedKeys) {
				break
			}
			x.rec = j.Instead
		}
		if err != nil {
			poisons = append(poisons, p.halt(x, err)...)
		}
	}
}

// settle takes a judged record out of its partition, and gives the records to be judged next. An error says why what should be published instead can
// never be; then nothing has changed.
func (p *Publisher) settle(x poisoned, j Judgement) ([]poisoned, *PoisonError) {
	p.mu.Lock()
	part, b := x.part, x.batch
	if len(part.queue) == 0 || part.queue[0] != b { // the topic was made anew, and its partitions with it
		part.judging = false
		p.kick(part)
		return p.release(), nil
	}
	head := b.first()
	seq := head.seq()
	if k := p.parking; k != nil && !j.Drop {
		if full := k.full(j.Instead); full != nil {
			p.mu.Unlock()
			e := *x.err
			e.Err = fmt.Errorf("%w; %w", e.Err, full)
			return nil, &e
		}
	}
	if !j.Drop {
		if bad := p.replace(part, j.Instead, seq); bad != nil {
			p.mu.Unlock()
			return nil, bad
		}
	}
	if head.instead() {
		p.letter(head.record(part.topic.name, p.origins[head.origin()]), head.origin(), -1)
	}
	part.judging = false
	replaced := part.queue[0] != b
	if !replaced {
		part.topic.routed--
	}
	part.failures = 0
	if !b.parked {
		p.metrics.errors[classPoison].Inc()
	}
	if b.count > 1 {
		part.pending -= b.shift(&p.chunks)
	} else {
		part.pending -= b.size
		if !replaced {
			part.pop()
		}
		p.forgetInstead(b)
		part.topic.unblock(b)
		b.release(&p.chunks)
	}
	part.due = part.due || part.pending > 0
	t := part.topic
	p.lessCrowded()
	if len(t.unrouted) > 0 || t.grown > 0 {
		p.route(t)
	}
	p.kick(part)
	p.wakePublish()
	p.progress()
	more := p.release()
	if j.Drop {
		if p.txn == nil { // else it counts when its window is committed
			p.ackMu.Lock()
			p.o.Acked([]uint64{seq})
			p.ackMu.Unlock()
		}
		p.mu.Lock()
		p.gone(1, b.window) // not before: Drain gives back what Acked was told of
		p.progress()
		p.mu.Unlock()
	}
	return more, nil
}

// replace publishes rec instead of the head of a partition. In a topic of its own it goes behind what is there; in that of the head it takes the place of the
// head, so that the records of a key keep their order.
func (p *Publisher) replace(part *partition, rec *router.Record, seq uint64) *PoisonError {
	s, t := shapeOf(rec), part.topic
	m := mark{seq, p.origin(rec) | insteadMark, part.queue[0].window}
	if rec.Topic != t.name {
		if bad := p.accept(rec, s, m); bad != nil {
			return bad
		}
		p.instead++
		p.gone(1, m.window) // the one instead of the other
		p.flushAll()
		p.letter(rec, p.origin(rec), 1)
		return nil
	}
	reason, err := checkAlways(t.name, s.size, rec.TimestampMillis, rec.Partition)
	if now := time.Now(); err == nil && t.fresh(now) {
		reason, err = t.check(rec.Key, s.body, rec.TimestampMillis, rec.Partition, now)
	}
	if err != nil {
		return p.poison(reason, err, rec, s, seq)
	}
	b := &batch{openedAt: part.queue[0].openedAt, window: m.window, sealed: true}
	s.put(b.add(&p.chunks, s.size, s.body, rec.TimestampMillis), rec, m.seq, m.from)
	if part.queue[0].count > 1 { // the others are judged behind it
		part.queue = slices.Insert(part.queue, 0, b)
	} else {
		part.queue[0] = b
	}
	part.pending += b.size
	p.instead++
	p.letter(rec, p.origin(rec), 1)
	return nil
}

// letter notes that what is published instead of a record was taken over (n = 1), or is taken out again (n = -1), if it parks its key.
func (p *Publisher) letter(rec *router.Record, from uint32, n int) {
	if p.parking != nil && p.origins[from].letters == rec.Topic {
		p.parking.sent(rec, n)
	}
}

// forgetInstead counts the records of a batch no more that were published instead of others.
func (p *Publisher) forgetInstead(b *batch) {
	if p.instead == 0 {
		return
	}
	for e := range b.entries() {
		if e.instead() {
			p.instead--
		}
	}
}

// lessCrowded has the heads judged that waited for room.
func (p *Publisher) lessCrowded() {
	for len(p.crowded) > 0 && (p.instead == 0 || p.chunks.used <= p.o.Window) {
		part := p.crowded[0]
		p.crowded = p.crowded[1:]
		part.waiting = false
		p.kick(part)
	}
}

// halt stops a partition for good at its head and tells the caller. It gives the records to be judged next.
func (p *Publisher) halt(x poisoned, e *PoisonError) []poisoned {
	p.mu.Lock()
	p.haltPart(x.part, e)
	p.route(x.part.topic)
	more := p.release()
	p.o.Logger.Error("partition halted at a poison record", "topic", e.Topic, "partition", e.Partition, "position", e.Position,
		"table", e.Table, "err", e)
	p.o.Poisoned(e)
	return more
}
