package kafka

import (
	"fmt"
	"slices"
	"time"

	"outbox-relay/relay/kafka/conn"
)

const (
	// defaultMaxThrottle bounds how long a broker's wish to be left alone is heeded (KIP-219). A broker asks for whatever its quota says, minutes for
	// one far below the load, ignores the connection for that long, and does not take it back when the quota is lifted.
	defaultMaxThrottle = 15 * time.Second
	// shortThrottle is how long a sender may be held up inside sarama.
	shortThrottle = 500 * time.Millisecond
)

// throttle takes a broker's wish that nothing is sent to it for a while. Sarama heeds it too, by sleeping within AsyncProduce under the locks of the
// connection: no end of the connection, of the lease or of ctx would wake it, and no answer of the connection would come through. So the
// sender itself waits before it calls sarama, whose own wait is over then. Only a call that is under way while the answer comes
// runs into that sleep: such a sender is left behind with its connection, and another one takes its place.
func (p *Publisher) throttle(s *sender, l *conn.Link, wish time.Duration) {
	now := time.Now()
	if until := now.Add(min(wish, p.o.MaxThrottle)); until.After(s.rest) {
		s.rest = until
	}
	if wish > p.o.MaxThrottle {
		s.muted = l
	}
	if wish >= shortThrottle {
		p.failed(fmt.Errorf("broker %s asks for a pause of %v: the producer quota is used up", s.node.addr, wish))
	}
	if r := s.sending; r != nil && r.link == l && wish >= shortThrottle && !s.retired {
		p.retire(s, r)
	}
}

// retire leaves a sender behind that sleeps inside sarama with a request.
func (p *Publisher) retire(s *sender, r *request) {
	s.retired, s.sending, r.abandoned = true, nil, true
	r.link.Cut()
	if i := slices.Index(s.requests, r); i >= 0 {
		s.requests = slices.Delete(s.requests, i, i+1)
	}
	for i, part := range r.parts {
		r.batches[i].detach()
		part.flying = nil
		p.unanswered(part, conn.ErrCut)
		p.kick(part)
	}
	if s.node.lanes[s.lane] == s {
		s.node.lanes[s.lane] = nil
		p.senderOf(s.node, s.lane == laneAside).rest = s.rest
	}
	for _, t := range p.topics {
		for _, part := range t.parts {
			if part.sender == s {
				p.house(part)
			}
		}
	}
	s.ready = nil
}

// throttled gives how long the sender has to wait. Once it has not to, a connection that the broker ignores for longer is given up, and r, if there
// is one, counts as handed to sarama: a wish that comes from now on finds it there.
func (s *sender) throttled(r *request) time.Duration {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	now := time.Now()
	if rest := s.rest.Sub(now); rest > 0 {
		return rest
	}
	if s.muted != nil {
		s.muted.Cut()
		s.muted = nil
	}
	if r != nil {
		s.sending, r.sentAt = r, now
		s.p.startWatch(now)
	}
	return 0
}
