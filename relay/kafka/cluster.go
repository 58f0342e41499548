package kafka

import (
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

// node takes note of a broker; a changed address cuts what is open to the old one.
func (p *Publisher) node(id int32, addr string) {
	n := p.nodes[id]
	if n == nil {
		n = &node{id: id, addr: addr}
		p.nodes[id] = n
	}
	if n.addr != addr {
		n.addr = addr
		n.cut()
	}
}

// cut ends the connections of a node.
func (n *node) cut() {
	for _, s := range n.lanes {
		if s == nil {
			continue
		}
		if s.link != nil {
			s.link.Cut()
		}
		if s.opening != nil {
			s.opening.Cut()
		}
	}
}

// house gives a partition the sender of its leader. A head that is in a request to another one stays there until it is answered or cut.
func (p *Publisher) house(part *partition) {
	var s *sender
	if n := p.nodes[part.leader]; n != nil && part.leader != unknownLeader {
		s = p.senderOf(n, part.aside)
	}
	if s == part.sender {
		return
	}
	part.sender = s
	part.scheduled = false // a place in the list of the old sender does not count
	p.kick(part)
}

// learn applies an answer to a metadata request.
func (p *Publisher) learn(resp *sarama.MetadataResponse, now time.Time) {
	p.mu.Lock()
	defer p.unlock()
	named := make(map[int32]bool, len(resp.Brokers))
	for _, b := range resp.Brokers {
		p.node(b.ID(), b.Addr())
		named[b.ID()] = true
	}
	for id, n := range p.nodes {
		if !named[id] {
			n.cut() // it stays known: a partition may still point to it, and it may come back
		}
	}
	for _, m := range resp.Topics {
		if t := p.topics[m.Name]; t != nil {
			p.learnTopic(t, m, now)
		}
	}
}

func (p *Publisher) learnTopic(t *topic, m *sarama.TopicMetadata, now time.Time) {
	switch m.Err {
	case sarama.ErrNoError, sarama.ErrLeaderNotAvailable, sarama.ErrReplicaNotAvailable:
	case sarama.ErrUnknownTopicOrPartition:
		p.stallTopic(t, StallMissing, now)
		p.evict(t)
		p.wantAgain(t)
		return
	case sarama.ErrTopicAuthorizationFailed:
		p.stallTopic(t, StallNotAuthorized, now)
		p.failed(fmt.Errorf("metadata of topic %s: %w", t.name, m.Err))
		p.wantAgain(t)
		return
	default:
		p.stallTopic(t, StallConfiguration, now)
		p.failed(fmt.Errorf("metadata of topic %s: %w", t.name, m.Err))
		p.wantAgain(t)
		return
	}
	if len(m.Partitions) == 0 {
		p.wantAgain(t)
		return
	}
	none, id := [16]byte{}, [16]byte(m.Uuid)
	recreated := t.uuid != none && id != none && t.uuid != id
	if t.uuid != none && !recreated && len(m.Partitions) < len(t.parts) {
		p.want(t, retryMax) // no topic loses partitions: a broker that lags behind
		return
	}
	t.metaAt = now
	p.resize(t, int32(len(m.Partitions)))
	if len(m.Partitions) >= len(t.parts) { // else its records have to come back first
		t.uuid = id
	}
	leaderless := false
	for _, pm := range m.Partitions {
		if pm.ID < 0 || int(pm.ID) >= len(t.parts) {
			continue // grown, and not adopted yet
		}
		part := t.parts[pm.ID]
		if !recreated && pm.LeaderEpoch >= 0 && pm.LeaderEpoch < part.leaderEpoch {
			continue // a broker that lags behind
		}
		part.leaderEpoch = pm.LeaderEpoch
		part.leader = pm.Leader
		if pm.Leader < 0 || p.nodes[pm.Leader] == nil {
			part.leader = unknownLeader
			leaderless = true
			if len(part.queue) > 0 && now.Sub(part.queue[0].openedAt) > stallAfter {
				p.stallPart(part, StallNoLeader, now)
			}
		} else if part.stall == StallNoLeader {
			part.stall = ""
		}
		p.house(part)
	}
	if t.stall != "" {
		p.usable(t)
	}
	if leaderless {
		p.wantAgain(t)
		return
	}
	t.failures = 0
	if t.refreshAt.IsZero() { // nobody has asked for more meanwhile
		t.refreshAt = now.Add(refreshEvery)
	}
}

// resize notes how many partitions a topic has. The first answer is adopted at once, more of them when nothing of the topic is in a
// partition. Fewer mean that the topic was deleted and created again: the records of partitions that are no more go back and are
// distributed again when their requests are answered.
func (p *Publisher) resize(t *topic, n int32) {
	switch have := int32(len(t.parts)); {
	case have == 0:
		p.adopt(t, n)
	case n > have:
		if t.grown != n {
			p.o.Logger.Info("topic has more partitions", "topic", t.name, "from", have, "to", n)
		}
		t.grown = n
		p.route(t)
	case n < have:
		p.shrink(t, n)
	default:
		t.grown = 0
	}
}

// adopt makes the partitions up to n.
func (p *Publisher) adopt(t *topic, n int32) {
	for i := int32(len(t.parts)); i < n; i++ {
		t.parts = append(t.parts, &partition{topic: t, index: i, leader: unknownLeader, leaderEpoch: -1, pid: noProducer})
	}
	if t.grown > 0 {
		p.want(t, 0) // their leaders
	}
}

// evict takes the partitions of a missing topic away from their senders.
func (p *Publisher) evict(t *topic) {
	for _, part := range t.parts {
		part.leader, part.leaderEpoch = unknownLeader, -1
		p.house(part)
	}
}

// shrink distributes the records of a topic again that came back with fewer partitions. The topic that had them is gone with all it
// held. Records go back to the order in which they were published.
func (p *Publisher) shrink(t *topic, n int32) {
	for _, part := range t.parts {
		if part.flying != nil || part.halted != nil {
			p.want(t, retryMax) // again when it is answered
			return
		}
	}
	if p.txn != nil { // what the transaction had in it is gone
		p.lose(fmt.Errorf("topic %s came back with fewer partitions", t.name))
		return
	}
	p.o.Logger.Warn("topic came back with fewer partitions", "topic", t.name, "from", len(t.parts), "to", n)
	for _, part := range t.parts {
		for _, b := range part.queue {
			t.routed -= b.count // what was acknowledged a moment ago is still to be subtracted by acknowledge
			t.unblock(b)
		}
	}
	t.unrouted = append(p.takeBack(t), t.unrouted...)
	t.grown = 0
	t.parts = t.parts[:n]
	for _, part := range t.parts {
		// What was sent with these numbers may have met the new topic.
		p.newEpoch(part, false)
	}
	p.producer = noProducer // nor may partitions that come later begin with numbers that were in use
	p.control.notify()
	p.route(t)
}

// takeBack empties the partitions of a topic and gives their records in the order of their sequence numbers.
func (p *Publisher) takeBack(t *topic) []*batch {
	var cursors []*cursor
	var old []*batch
	for _, part := range t.parts {
		if len(part.queue) > 0 {
			cursors = append(cursors, newCursor(part.queue))
			old = append(old, part.queue...)
		}
		part.queue, part.pending, part.due = nil, 0, false
	}
	var out []*batch
	for {
		var first *cursor
		for _, c := range cursors {
			if c.current != nil && (first == nil || c.current.seq() < first.current.seq()) {
				first = c
			}
		}
		if first == nil {
			break
		}
		e := first.current
		if refused := first.batches[0]; refused.final {
			out = append(out, &batch{openedAt: time.Now(), sealed: true, final: true, poison: refused.poison})
		} else if n := len(out); n == 0 || out[n-1].sealed || out[n-1].size > maxChunk {
			out = append(out, &batch{openedAt: time.Now()})
		}
		copy(out[len(out)-1].add(&p.chunks, len(e), e.body(), e.millis()), e)
		first.next()
	}
	for _, b := range old {
		b.release(&p.chunks)
	}
	return out
}

// cursor walks over the records of some batches.
type cursor struct {
	batches []*batch
	chunk   int
	rest    []byte
	current entry
}

func newCursor(batches []*batch) *cursor {
	c := &cursor{batches: batches, chunk: -1}
	c.next()
	return c
}

func (c *cursor) next() {
	c.current = nil
	for len(c.rest) == 0 {
		if len(c.batches) == 0 {
			return
		}
		c.chunk++
		if c.chunk >= len(c.batches[0].chunks) {
			c.batches, c.chunk = c.batches[1:], -1
			continue
		}
		c.rest = c.batches[0].chunks[c.chunk]
	}
	c.current, c.rest = firstEntry(c.rest)
}

// stallTopic notes that a topic as a whole stands still.
func (p *Publisher) stallTopic(t *topic, reason string, now time.Time) {
	if t.stalled(reason, now) {
		p.o.Logger.Warn("topic stands still", "topic", t.name, "reason", reason)
	}
}

// usable ends the stall of a topic as a whole; what waited for a slow retry goes at once.
func (p *Publisher) usable(t *topic) {
	t.stall = ""
	p.o.Logger.Info("topic is usable", "topic", t.name)
	for _, part := range t.parts {
		part.notBefore, part.failures = time.Time{}, 0
		p.kick(part)
	}
}

func hostPort(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
