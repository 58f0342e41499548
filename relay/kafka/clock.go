package kafka

import (
	"context"
	"sync"
	"time"

	"outbox-relay/relay/kafka/conn"
)

const (
	// watchEvery is how often requests in flight are looked at.
	watchEvery = 500 * time.Millisecond
	// staleAfter is the age at which a request makes the publisher ask who leads its partitions now.
	staleAfter = 2 * time.Second
)

// clock wakes the publisher when something is due: a delayed partition, an old window, a look at requests in flight. It has one timer, and
// none runs while nothing is waited for.
type clock struct {
	timer *time.Timer
	mu    sync.Mutex
	at    time.Time // of the timer, zero = not running
}

func newClock() *clock {
	c := &clock{timer: time.NewTimer(time.Hour)}
	c.timer.Stop()
	return c
}

// arm makes sure that the clock looks around at that time at the latest.
func (c *clock) arm(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.IsZero() || !c.at.IsZero() && !at.Before(c.at) {
		return
	}
	c.at = at
	c.timer.Reset(max(time.Until(at), 0))
}

// run looks after what is due, until ctx ends.
func (c *clock) run(p *Publisher) func(ctx context.Context) {
	return func(ctx context.Context) {
		defer c.timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-c.timer.C:
			}
			c.mu.Lock()
			c.at = time.Time{}
			c.mu.Unlock()
			p.tick(time.Now())
		}
	}
}

// tick does what is due.
func (p *Publisher) tick(now time.Time) {
	p.mu.Lock()
	defer p.unlock()
	if p.txn != nil {
		p.clock.arm(p.txn.age(now))
	}
	rest := p.delayed[:0]
	for _, part := range p.delayed {
		if now.Before(part.notBefore) {
			rest = append(rest, part)
			p.clock.arm(part.notBefore)
			continue
		}
		part.delayed = false
		p.kick(part)
	}
	clear(p.delayed[len(rest):])
	p.delayed = rest
	if p.watch(now) {
		p.clock.arm(now.Add(watchEvery))
	} else {
		p.watching = false
	}
}

// startWatch has the clock look at requests in flight.
func (p *Publisher) startWatch(now time.Time) {
	if !p.watching {
		p.watching = true
		p.clock.arm(now.Add(watchEvery))
	}
}

// watch looks for requests without an answer. A frozen broker keeps its connections and says nothing for long; when the controller has
// given its partitions to another one, the connection is cut, so that the batches can go there. It tells whether anything is in flight.
func (p *Publisher) watch(now time.Time) bool {
	busy := false
	for _, n := range p.nodes {
		for _, s := range n.lanes {
			if s == nil {
				continue
			}
			silent := false
			if s.opening != nil {
				busy = true
				silent = now.Sub(s.openingAt) >= staleAfter
			}
			for i, r := range s.requests {
				busy = true
				if i == 0 && r.overdue(now) {
					s.endLate(r.link)
				}
				if r.sentAt.IsZero() || now.Sub(r.sentAt) < staleAfter {
					continue
				}
				silent = true
				for _, b := range r.parts {
					if b.leader != n.id && b.leader != unknownLeader {
						r.link.Cut()
					}
					p.want(b.topic, 0)
				}
			}
			if silent {
				for _, part := range s.ready { // they may have another leader by now
					p.want(part.topic, 0)
				}
			}
		}
	}
	return busy
}

// overdue tells of the oldest request of a connection whether it has waited too long. A large one may be written for long, as long as it gets on.
func (r *request) overdue(now time.Time) bool {
	return !r.sentAt.IsZero() && now.Sub(r.sentAt) > answerTimeout && now.Sub(r.sender.answered) > answerTimeout && now.Sub(r.pipe.LastWrite()) > answerTimeout
}

// endLate ends a connection since the answer to its oldest request is overdue.
func (s *sender) endLate(l *conn.Link) {
	for _, r := range s.requests {
		r.late = r.late || r.link == l
	}
	l.Cut()
}
