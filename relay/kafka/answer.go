package kafka

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/relay/kafka/conn"
)

// errLate is the error of a connection that was ended since there was no answer in time.
var errLate = fmt.Errorf("the broker does not answer within %v", answerTimeout)

// errNoAnswer is the error of a batch that is missing in the answer to its request.
var errNoAnswer = errors.New("the broker's answer does not name the partition")

// complete takes the answer to a request, or the error that came instead. It runs in the reader of the connection, or in the sender when the connection
// has ended; so it must not block.
func (p *Publisher) complete(r *request, resp *sarama.ProduceResponse, err error) {
	err = r.link.Redact(err)
	p.mu.Lock()
	if err != nil && r.late {
		err = errLate
	}
	s := r.sender
	if i := slices.Index(s.requests, r); i >= 0 {
		s.requests = slices.Delete(s.requests, i, i+1)
	}
	if resp != nil {
		p.answeredAt = time.Now()
		s.answered = p.answeredAt
		if resp.ThrottleTime > 0 {
			p.throttle(s, r.link, resp.ThrottleTime)
		}
	}
	if err != nil {
		p.lost(s, r.link, err)
	}
	var acked []*batch
	for i, part := range r.parts {
		part.flying = nil
		var answer *sarama.ProduceResponseBlock
		if resp != nil {
			answer = resp.Blocks[part.topic.name][part.index]
		}
		switch {
		case answer == nil:
			p.unanswered(part, err)
		default:
			if p.answered(part, answer, resp.NodeEndpoints) {
				acked = append(acked, r.batches[i])
			}
		}
		p.kick(part)
	}
	if len(s.ready) > 0 {
		s.notify()
	}
	if len(acked) == 0 {
		p.wakePublish() // it may have waited for this request to give it more room
	}
	poisons := p.release()
	if len(acked) > 0 {
		p.acknowledge(acked, r)
	}
	p.judge(poisons)
}

// lost drops a connection after an error. Part of a request may be on the wire, so it can never be used again.
func (p *Publisher) lost(s *sender, l *conn.Link, err error) {
	l.Cut()
	p.failed(err)
	p.metrics.errors[classTransient].Inc()
	if s.link == l && s.lastErr == nil && !p.closed {
		s.lastErr = err
		p.o.Logger.Warn("connection to broker lost", "broker", s.node.addr, "err", err)
	}
	s.notify()
}

// unanswered puts a batch back whose fate is unknown: it is sent again as it is.
func (p *Publisher) unanswered(part *partition, err error) {
	if err == nil {
		err = errNoAnswer
		p.failed(err)
	}
	b := part.queue[0]
	b.unknown = true
	p.again(part, classTransient)
	p.want(part.topic, 0)
}

// again puts the head back for a resend after a while.
func (p *Publisher) again(part *partition, c class) {
	b := part.queue[0]
	low, high := retryPace(c)
	b.attempts++
	part.pending += b.size
	part.notBefore = time.Now().Add(backoff(part.failures, low, high))
	part.failures++
}

// giveBack takes the numbers of the head back, which is not in the log by its last attempt. With unknown it may be there by an earlier one, so its
// sequences are not free.
func (p *Publisher) giveBack(part *partition, unknown bool) {
	if unknown && p.txn != nil {
		p.lose(errUnknownFate)
		return
	}
	if unknown {
		p.bump(part, false)
		return
	}
	part.unnumber(part.queue[0])
}

// answered treats the answer to the head of a partition. True means that it is acknowledged.
func (p *Publisher) answered(part *partition, a *sarama.ProduceResponseBlock, endpoints []*sarama.ProduceResponseNodeEndpoint) bool {
	v, known := judge(a.Err)
	b := part.queue[0]
	if v.class == classOK {
		b.offset = a.Offset
		part.pop()
		part.failures = 0
		part.notBefore = time.Time{}
		p.recovered(part)
		return true
	}
	p.metrics.errors[v.class].Inc()
	err := answerError(a)
	p.failed(fmt.Errorf("%s partition %d: %w", part.topic.name, part.index, err))
	if !known {
		p.o.Logger.Error("unknown error code from broker, trying again", "topic", part.topic.name, "partition", part.index, "err", err)
	}
	if v.refresh {
		p.lead(part, a, endpoints)
		p.want(part.topic, 0)
	}
	unknownBefore := b.unknown
	b.unknown = b.unknown || v.maybeAppended
	now := time.Now()
	switch v.class {
	case classTransient:
		if v.aside && !part.aside {
			part.aside = true
			p.house(part)
		}
		if v.stall != "" && now.Sub(b.openedAt) > stallAfter {
			p.stallPart(part, v.stall, now)
		}
		p.again(part, v.class)
	case classConfiguration:
		if v.stall != StallMissing || now.Sub(b.openedAt) > stallAfter { // a topic just made is missing for a moment
			p.stallPart(part, v.stall, now)
		}
		p.again(part, v.class)
	case classProducerState:
		if p.txn != nil {
			part.pending += b.size
			p.lose(err)
			break
		}
		p.renew(part, v.newID, err)
	case classPoison:
		p.refused(part, v, a, unknownBefore, err)
	case classFatal:
		part.pending += b.size
		if p.txn != nil && a.Err == sarama.ErrProducerFenced {
			p.lose(err)
			break
		}
		p.die(&FatalError{Topic: part.topic.name, Partition: part.index, Err: err})
	}
	return false
}

// answerError is the code of an answer with the broker's words.
func answerError(a *sarama.ProduceResponseBlock) error {
	if a.ErrorMessage != nil && *a.ErrorMessage != "" {
		return fmt.Errorf("%w (%s)", a.Err, *a.ErrorMessage)
	}
	return a.Err
}

// renew begins a new epoch after the broker's and our idea of sequences differ, and sends the same records again. If the batch was sent
// before with an unknown fate, it may be in the log already, which the new epoch cannot recognise.
func (p *Publisher) renew(part *partition, newID bool, err error) {
	b := part.queue[0]
	p.bump(part, newID)
	p.again(part, classTransient)
	p.o.Logger.Warn("new producer epoch", "topic", part.topic.name, "partition", part.index, "possible_duplicates", b.unknown, "err", err)
}

// bump gives the partition a new epoch or has a new producer id asked for.
func (p *Publisher) bump(part *partition, newID bool) {
	b := part.queue[0]
	if b.unknown {
		p.metrics.duplicates.Add(float64(b.count))
		b.unknown = false
	}
	p.metrics.epochs.Inc()
	p.newEpoch(part, newID)
}

// newEpoch begins a new epoch. If the producer id has none left, partitions without an id must not take that one either.
func (p *Publisher) newEpoch(part *partition, newID bool) {
	old := part.pid
	if !part.bump(newID) && old != noProducer {
		if p.producer == old {
			p.producer = noProducer
		}
		p.control.notify()
	}
}

// refused treats a batch that was refused for a record in it: it is not in the log by this attempt.
func (p *Publisher) refused(part *partition, v verdict, a *sarama.ProduceResponseBlock, unknownBefore bool, err error) {
	b := part.queue[0]
	part.pending += b.size
	p.giveBack(part, unknownBefore)
	p.wantLimits(part.topic) // they may have changed
	if b.count == 1 {
		reason := v.reason
		if e := a.RecordErrors; len(e) > 0 && e[0].BatchIndexErrorMessage != nil {
			err = fmt.Errorf("%w (%s)", a.Err, *e[0].BatchIndexErrorMessage)
		}
		p.refuse(part, reason, err)
		return
	}
	p.divide(part, cuts(b.count, a.RecordErrors))
}

// cuts says where to split a refused batch: around the first record that the broker names, else in the middle. The named record is sent
// alone, so a record is never given up without an answer of its own.
func cuts(n int, named []sarama.ProduceResponseRecordError) []int {
	guilty := n
	for _, e := range named {
		if i := int(e.BatchIndex); i >= 0 {
			guilty = min(guilty, i)
		}
	}
	if guilty >= n {
		return []int{n / 2}
	}
	var at []int
	for _, i := range []int{guilty, guilty + 1} {
		if i > 0 && i < n {
			at = append(at, i)
		}
	}
	return at
}

// divide splits the head; the parts get numbers when they are sent.
func (p *Publisher) divide(part *partition, at []int) {
	b := part.queue[0]
	part.pending -= b.size
	parts := b.split(&p.chunks, at)
	for _, b := range parts {
		part.pending += b.size
	}
	part.replaceHead(parts)
}

// refuse declares the only record of the head poison.
func (p *Publisher) refuse(part *partition, reason string, err error) {
	b := part.queue[0]
	b.poison = p.poisonOf(b.first(), part.topic.name, part.index, reason, err)
}

// die ends Run.
func (p *Publisher) die(err error) {
	if p.fatal == nil {
		p.fatal = err
	}
	p.stop()
}

// recovered ends what an acknowledgement ends: a stall, and the use of the second connection.
func (p *Publisher) recovered(part *partition) {
	if part.aside {
		part.aside = false
		p.house(part)
	}
	if part.stall != "" {
		part.stall = ""
		if part.topic.stalledParts("") == 0 {
			p.o.Logger.Info("topic goes on", "topic", part.topic.name)
		}
	}
	part.topic.stall = ""
}

// acknowledge reports batches and gives their memory back.
func (p *Publisher) acknowledge(acked []*batch, r *request) {
	instead := p.tell(acked)
	p.mu.Lock()
	defer p.unlock()
	p.instead -= instead
	r.sender.seqs = append(r.sender.seqs, r.seqs[:0])
	for _, b := range acked {
		part := r.parts[slices.Index(r.batches, b)]
		t := part.topic
		if instead > 0 && p.parking != nil {
			p.ackedLetters(part, b)
		}
		p.gone(b.count, b.window)
		t.routed -= b.count
		t.count(b, p.txn != nil)
		b.release(&p.chunks)
		if t.routed == 0 && t.grown > 0 {
			p.route(t)
		}
	}
	p.lessCrowded()
	p.wakePublish()
	p.progress()
}

// tell reports acknowledged batches, and gives the number of records in them that were published instead of others. In a transaction they count only when
// it is committed.
func (p *Publisher) tell(acked []*batch) (instead int) {
	p.ackMu.Lock()
	defer p.ackMu.Unlock()
	p.seqs = p.seqs[:0]
	for _, b := range acked {
		p.seqs = append(p.seqs, b.seqs...)
		instead += b.instead
	}
	if p.txn != nil {
		p.o.Step(StepAcknowledged)
		return instead
	}
	p.o.Acked(p.seqs)
	return instead
}

// failed remembers an error for [Stats].
func (p *Publisher) failed(err error) {
	p.lastErr, p.lastErrAt = err, time.Now()
}

// stallPart notes that a partition stands still.
func (p *Publisher) stallPart(part *partition, reason string, now time.Time) {
	if part.stall == reason || part.stall == StallPoison {
		return
	}
	if part.stall == "" {
		part.since = now
	}
	part.stall = reason
	if part.topic.stalledParts(reason) == 1 { // others follow for the same reason
		p.o.Logger.Warn("partition stands still", "topic", part.topic.name, "partition", part.index, "reason", reason, "err", p.lastErr)
	}
}

// lead follows a broker's hint about the new leader, without waiting for metadata (KIP-951).
func (p *Publisher) lead(part *partition, a *sarama.ProduceResponseBlock, endpoints []*sarama.ProduceResponseNodeEndpoint) {
	hint := a.CurrentLeader
	if hint == nil || hint.LeaderID < 0 || hint.LeaderEpoch <= part.leaderEpoch {
		return
	}
	for _, e := range endpoints {
		if e.NodeID == hint.LeaderID {
			p.node(e.NodeID, hostPort(e.Host, e.Port))
		}
	}
	if p.nodes[hint.LeaderID] == nil {
		return
	}
	part.leader, part.leaderEpoch = hint.LeaderID, hint.LeaderEpoch
	p.house(part)
}
