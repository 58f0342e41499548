package kafka

import "outbox-relay/router"

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
	batch *batch // holds it alone
	err   *PoisonError
	rec   *router.Record // nil without Options.Judge
}

// maxInstead bounds how often a record is replaced: what is published instead of it may be refused too.
const maxInstead = 3

// awaitJudgement notes that the head of a partition is poison. It is judged when the lock is released.
func (p *Publisher) awaitJudgement(part *partition) {
	if part.judging {
		return
	}
	part.judging = true
	b := part.queue[0]
	x := poisoned{part: part, batch: b, err: b.poison}
	if p.o.Judge != nil {
		e := b.first()
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
	seq := b.first().seq()
	if !j.Drop {
		if bad := p.accept(j.Instead, shapeOf(j.Instead), seq); bad != nil {
			p.mu.Unlock()
			return nil, bad
		}
		p.outstanding-- // the one instead of the other
		p.flushAll()
	}
	part.judging = false
	part.pending -= b.size
	part.pop()
	part.failures = 0
	part.due = part.due || part.pending > 0
	t := part.topic
	t.routed--
	t.unblock(b)
	b.release(&p.chunks)
	if len(t.unrouted) > 0 || t.grown > 0 {
		p.route(t)
	}
	p.metrics.errors[classPoison].Inc()
	p.kick(part)
	p.wakePublish()
	p.progress()
	more := p.release()
	if j.Drop {
		p.ackMu.Lock()
		p.o.Acked([]uint64{seq})
		p.ackMu.Unlock()
		p.mu.Lock()
		p.outstanding-- // not before: Drain gives back what Acked was told of
		p.progress()
		p.mu.Unlock()
	}
	return more, nil
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
