package kafka

import (
	"context"
	"runtime"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/relay/kafka/conn"
)

const (
	laneNormal = 0
	laneAside  = 1 // for partitions that wait for replicas
	lanes      = 2

	// hugeRequest is from which size on a request, of one record then, is encoded only when what it came from is gone: sarama makes two or three
	// copies of it, and the buffers that the row went through would add two more.
	hugeRequest = 4 << 20

	// produceTimeout is how long a broker may wait for replicas before it answers with code 7. A connection is served one request at a
	// time, so this bounds how long a partition short of replicas holds up its neighbours.
	produceTimeout = 2500 * time.Millisecond
	produceRead    = produceTimeout + 3*time.Second

	askAgain = 20 * time.Millisecond // while Options.Allowed gives false
)

// node is a broker as metadata names it.
type node struct {
	id    int32
	addr  string
	lanes [lanes]*sender // made when they are needed
}

// sender owns one connection to a node and what is sent over it. Fields below p are guarded by the lock of the Publisher, those of the
// last group belong to its goroutine.
type sender struct {
	node *node
	lane int
	wake chan struct{}

	p         *Publisher
	ready     []*partition // to be sent, in this order
	requests  []*request   // in flight
	link      *conn.Link   // nil without a connection
	opening   *conn.Link   // while it is dialed
	openingAt time.Time
	failures  int
	lastErr   error
	rest      time.Time  // nothing is sent before, by the broker's wish
	muted     *conn.Link // whose wish is longer than that
	sending   *request   // handed to sarama and not back
	retired   bool       // another sender has its place

	slab slab
}

// request is a produce request: the heads of some partitions of one node.
type request struct {
	sender  *sender
	link    *conn.Link
	parts   []*partition
	batches []*batch
	limits  []int // size up to which each batch may grow by compression
	size    int
	count   int
	headers int
	sentAt  time.Time
	// abandoned: its batches are sent again by another request, and its answer means nothing.
	abandoned bool
}

// sender gives the sender that a partition uses, starting it the first time.
func (p *Publisher) senderOf(n *node, aside bool) *sender {
	lane := laneNormal
	if aside {
		lane = laneAside
	}
	if n.lanes[lane] == nil {
		s := &sender{node: n, lane: lane, wake: make(chan struct{}, 1), p: p}
		n.lanes[lane] = s
		if !p.closed {
			p.start(s.run) // stopped by ctx
		}
	}
	return n.lanes[lane]
}

// notify makes the sender look for work. It does not block.
func (s *sender) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run sends what is ready until ctx ends.
func (s *sender) run(ctx context.Context) {
	defer s.disconnect()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		for s.step(ctx) {
		}
		s.p.mu.Lock()
		retired := s.retired
		s.p.mu.Unlock()
		if retired {
			return
		}
	}
}

// step sends one request. False means that there is nothing to do, or that the wait after a failure was cut by the end of ctx.
func (s *sender) step(ctx context.Context) bool {
	if !s.pending() {
		return false
	}
	if rest := s.throttled(nil); rest > 0 {
		return sleep(ctx, rest)
	}
	l, err := s.connect(ctx)
	if err != nil {
		return s.pause(ctx, err)
	}
	r := s.collect(l)
	if r == nil {
		return false
	}
	if r.size > hugeRequest {
		runtime.GC() // tens of milliseconds, beside hundreds for the request
	}
	req := s.build(r)
	for rest := time.Duration(1); rest > 0; {
		if !s.allowed(ctx) {
			return false
		}
		if rest = s.throttled(r); rest > 0 && !sleep(ctx, rest) {
			return false
		}
	}
	if l.Dead() {
		s.p.complete(r, nil, conn.ErrCut) // it may be dead by a broker's wish that sarama would still heed
		return true
	}
	err = l.Broker.AsyncProduce(req, func(resp *sarama.ProduceResponse, err error) { s.p.complete(r, resp, err) })
	s.slab.forget()
	s.p.mu.Lock()
	s.sending = nil
	s.p.mu.Unlock()
	if err != nil {
		s.p.complete(r, nil, err)
	}
	return true
}

// pending tells whether there is something to send and a free slot.
func (s *sender) pending() bool {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if len(s.requests) >= conn.MaxInFlight {
		return false
	}
	for _, part := range s.ready {
		if part.sender == s {
			return true
		}
	}
	return false
}

// connect gives a usable connection.
func (s *sender) connect(ctx context.Context) (*conn.Link, error) {
	p := s.p
	p.mu.Lock()
	l, addr := s.link, s.node.addr
	p.mu.Unlock()
	if l != nil && !l.Dead() {
		return l, nil
	}
	s.disconnect()
	l, err := conn.Dial(ctx, &p.o.conn, addr, produceRead, func(l *conn.Link) {
		p.mu.Lock()
		s.opening, s.openingAt = l, time.Now()
		p.startWatch(s.openingAt)
		p.mu.Unlock()
	})
	p.mu.Lock()
	defer p.unlock()
	s.opening = nil
	if err != nil {
		return nil, err
	}
	if s.lastErr != nil {
		p.o.Logger.Info("connected to broker again", "broker", addr)
	}
	s.link, s.failures, s.lastErr = l, 0, nil
	return l, nil
}

// disconnect drops the connection. Requests on it get their callbacks.
func (s *sender) disconnect() {
	s.p.mu.Lock()
	l := s.link
	s.link = nil
	s.p.mu.Unlock()
	if l != nil {
		s.p.start(func(context.Context) { l.Close() }) // ends with the last call on the broker
	}
}

// pause waits after a failed connect. The partitions may have moved to another sender by then.
func (s *sender) pause(ctx context.Context, err error) bool {
	p := s.p
	if ctx.Err() != nil {
		return false
	}
	p.mu.Lock()
	if s.lastErr == nil || conn.Cause(s.lastErr) != conn.Cause(err) {
		p.o.Logger.Warn("cannot connect to broker", "broker", s.node.addr, "err", err)
	}
	s.lastErr = err
	s.failures++
	kind := classOfLocal(err)
	low, high := retryPace(kind)
	wait := backoff(s.failures, low, high)
	p.failed(err)
	p.metrics.errors[kind].Inc()
	now := time.Now()
	for _, part := range s.ready {
		if part.sender == s {
			p.want(part.topic, 0)
			if len(part.queue) > 0 && now.Sub(part.queue[0].openedAt) > stallAfter {
				p.stallPart(part, StallUnreachable, now)
			}
		}
	}
	p.unlock()
	return sleep(ctx, wait)
}

// sleep waits; false means that ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// collect makes a request of the heads of ready partitions, nil if there is none.
func (s *sender) collect(l *conn.Link) *request {
	p := s.p
	p.mu.Lock()
	defer p.unlock()
	r := &request{sender: s, link: l}
	i := 0
	for ; i < len(s.ready); i++ {
		part := s.ready[i]
		if part.sender == s && part.wants() && part.queue[0].poison == nil && !r.fits(part.queue[0]) {
			break
		}
		part.scheduled = false
		if part.sender != s {
			p.kick(part)
			continue
		}
		if part.wants() && part.queue[0].poison == nil && !p.sift(part) {
			p.take(part, r)
		}
	}
	n := copy(s.ready, s.ready[i:])
	clear(s.ready[n:])
	s.ready = s.ready[:n]
	if len(r.batches) == 0 {
		return nil
	}
	s.requests = append(s.requests, r)
	return r
}

// fits tells whether b may join the request.
func (r *request) fits(b *batch) bool {
	if len(r.batches) == 0 {
		return true
	}
	return !b.alone && !r.batches[0].alone && r.size+b.size <= maxRequest && r.count+b.count <= maxRequestRecords &&
		r.headers+b.headers <= maxRequestHeaders
}

// take puts the head of a partition into a request.
func (p *Publisher) take(part *partition, r *request) {
	b := part.queue[0]
	if !part.number(b, p.producer, p.epoch) {
		p.control.notify() // kicks the partition when the id is there
		return
	}
	b.sealed = true
	part.flying = r
	part.pending -= b.size
	if len(part.queue) == 1 {
		part.due = false
	}
	r.parts = append(r.parts, part)
	r.batches = append(r.batches, b)
	r.limits = append(r.limits, part.topic.batchLimit(maxRequest, true))
	r.size += b.size
	r.count += b.count
	r.headers += b.headers
}

// build encodes the request into sarama's terms.
func (s *sender) build(r *request) *sarama.ProduceRequest {
	s.slab.reset(r.count, r.headers)
	req := &sarama.ProduceRequest{
		RequiredAcks: sarama.WaitForAll,
		Timeout:      int32(produceTimeout / time.Millisecond),
		Version:      s.p.o.produceVersion(),
	}
	if t := s.p.txn; t != nil {
		req.TransactionalID = &t.id
	}
	for i, b := range r.batches {
		codec := s.p.o.codec
		if b.count == 1 && b.size > r.limits[i] {
			codec = sarama.CompressionNone // it fits, but not if it should grow
		}
		req.AddBatch(r.parts[i].topic.name, r.parts[i].index, s.slab.build(b, codec, req.TransactionalID != nil))
	}
	return req
}

// allowed waits for permission to send; false means that ctx has ended.
func (s *sender) allowed(ctx context.Context) bool {
	for !s.p.o.Allowed() {
		timer := time.NewTimer(askAgain)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
	return ctx.Err() == nil
}

// produceVersion is the newest version of the produce request under the configured protocol. Version 8 adds the errors of single
// records (KIP-467), version 10 the new leader in the answer (KIP-951).
func (s *settings) produceVersion() int16 {
	switch {
	case s.version.IsAtLeast(sarama.V3_7_0_0):
		return 10
	case s.version.IsAtLeast(sarama.V2_8_0_0):
		return 9
	case s.version.IsAtLeast(sarama.V2_4_0_0):
		return 8
	default:
		return 7
	}
}
