package kafka

import (
	"fmt"
	"time"

	"outbox-relay/relay/kafka/conn"
)

const (
	// defaultMaxThrottle bounds how long a broker's wish to be left alone is heeded (KIP-219). A broker asks for whatever its quota says, minutes for
	// one far below the load, ignores the connection for that long, and does not take it back when the quota is lifted.
	defaultMaxThrottle = 15 * time.Second
	// shortThrottle is a pause that is no news.
	shortThrottle = 500 * time.Millisecond
)

// throttle takes a broker's wish that nothing is sent to it for a while.
func (p *Publisher) throttle(s *sender, l *conn.Link, wish time.Duration) {
	if until := time.Now().Add(min(wish, p.o.MaxThrottle)); until.After(s.rest) {
		s.rest = until
	}
	if wish > p.o.MaxThrottle {
		s.muted = l
	}
	if wish >= shortThrottle {
		p.failed(fmt.Errorf("broker %s asks for a pause of %v: the producer quota is used up", s.node.addr, wish))
	}
}

// throttled gives how long the sender has to wait. Once it has not to, a connection that the broker ignores for longer is given up.
func (s *sender) throttled() time.Duration {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if rest := time.Until(s.rest); rest > 0 {
		return rest
	}
	if s.muted != nil {
		s.muted.Cut()
		s.muted = nil
	}
	return 0
}
