package kafka

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/relay/kafka/conn"
	"outbox-relay/relay/kafka/produce"
)

const (
	laneNormal = 0
	laneAside  = 1 // for partitions that wait for replicas
	lanes      = 2

	// hugeRequest is from which size on a request, of one record then, is encoded only when what it came from is gone: one or two copies are made of
	// it, and the buffers that the row went through would add two more.
	hugeRequest = 4 << 20

	// produceTimeout is how long a broker may wait for replicas before it answers with code 7. A connection is served one request at a
	// time, so this bounds how long a partition short of replicas holds up its neighbours.
	produceTimeout = 2500 * time.Millisecond
	// answerTimeout is how long the oldest request of a connection may be without an answer.
	answerTimeout = produceTimeout + 3*time.Second

	// openTimeout bounds the question for the versions on a new connection.
	openTimeout = 2500 * time.Millisecond

	maxInFlight = 3 // requests of a connection: a broker works on one at a time, the next ones wait in its socket
	// worthwhile is what there has to be, in bytes before compression, for a request beside one in flight: the broker looks at it only when it has answered that one,
	// and until then more may come.
	worthwhile  = wakePending
	produceCall = 0 // the number of the call

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
	seqs      [][]uint64   // of requests that were acknowledged, to be used again
	link      *conn.Link   // nil without a connection
	answered  time.Time    // when an answer came last
	opening   *conn.Link   // while it is dialed
	openingAt time.Time
	failures  int
	lastErr   error
	rest      time.Time  // nothing is sent before, by the broker's wish
	muted     *conn.Link // whose wish is longer than that

	pipe    *produce.Pipe // of link
	encoder produce.Encoder
}

// request is a produce request: the heads of some partitions of one node.
type request struct {
	sender  *sender
	link    *conn.Link
	parts   []*partition
	batches []*batch
	size    int
	pipe    *produce.Pipe
	seqs    []uint64 // of the records
	sentAt  time.Time
	late    bool // its connection was ended since there was no answer in time
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
	}
}

// step sends one request. False means that there is nothing to do, or that the wait after a failure was cut by the end of ctx.
func (s *sender) step(ctx context.Context) bool {
	if !s.pending() {
		return false
	}
	if rest := s.throttled(); rest > 0 {
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
	frame := s.encode(r)
	if !s.permitted(ctx, r) {
		return false
	}
	s.pipe.Send(frame, func(resp *sarama.ProduceResponse, err error) { s.p.complete(r, resp, err) })
	s.encoder.Forget()
	return true
}

// permitted waits until the request may be sent; false means that ctx has ended.
func (s *sender) permitted(ctx context.Context, r *request) bool {
	for {
		s.pipe.Renew()
		if !s.allowed(ctx) {
			return false
		}
		rest := s.throttled()
		if rest == 0 {
			break
		}
		if !sleep(ctx, rest) {
			return false
		}
	}
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	r.sentAt = time.Now()
	s.p.startWatch(r.sentAt)
	return true
}

// pending tells whether there is something to send and a free slot; while a request is under way, whether what waits is worth another.
func (s *sender) pending() bool {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if len(s.requests) >= maxInFlight {
		return false
	}
	have := 0
	for _, part := range s.ready {
		if part.sender != s {
			continue
		}
		if len(s.requests) == 0 {
			return true
		}
		if have += part.pending; have >= worthwhile {
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
	l, err := conn.Dial(ctx, &p.o.conn, addr, answerTimeout, func(l *conn.Link) {
		p.mu.Lock()
		s.opening, s.openingAt = l, time.Now()
		p.startWatch(s.openingAt)
		p.mu.Unlock()
	})
	if err == nil {
		err = s.open(l)
	}
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

// open makes the pipe of a new connection.
func (s *sender) open(l *conn.Link) error {
	limit := time.AfterFunc(openTimeout, l.Cut)
	defer limit.Stop()
	newest, err := l.Newest(produceCall)
	version, ok := produce.VersionFor(min(newest, s.p.o.produceVersion()))
	if err == nil && !ok {
		err = fmt.Errorf("its newest version of the produce call is %d, which has no record batches (Kafka before 0.11)", newest)
	}
	var pipe *produce.Pipe
	if err == nil {
		pipe, err = produce.NewPipe(l.Conn(), version, l, l.Cut)
	}
	if err != nil {
		s.p.start(func(context.Context) { l.Close() }) // ends with the last call on the broker
		return s.p.o.conn.Explain(l, s.node.addr, err)
	}
	s.pipe = pipe
	s.p.start(func(context.Context) { pipe.Run() }) // ended by the end of the connection
	return nil
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
	r := &request{sender: s, link: l, pipe: s.pipe}
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
	if n := len(s.seqs); n > 0 {
		r.seqs, s.seqs = s.seqs[n-1], s.seqs[:n-1]
	}
	s.requests = append(s.requests, r)
	return r
}

// fits tells whether b may join the request.
func (r *request) fits(b *batch) bool {
	if len(r.batches) == 0 {
		return true
	}
	return r.size+b.size <= maxRequest
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
	r.size += b.size
}

// encode makes the bytes of the request, which are valid until the next one.
func (s *sender) encode(r *request) []byte {
	order, topics := r.byTopic()
	head := produce.Head{Version: s.pipe.Version(), ClientID: s.p.o.ClientID, TimeoutMillis: int32(produceTimeout / time.Millisecond), Topics: topics}
	if t := s.p.txn; t != nil {
		head.TransactionalID = &t.id
	}
	e := &s.encoder
	e.Begin(head)
	for i := 0; i < len(order); {
		t, n := r.parts[order[i]].topic, 1
		for i+n < len(order) && r.parts[order[i+n]].topic == t {
			n++
		}
		e.Topic(t.name, n, i == 0)
		for _, k := range order[i : i+n] {
			s.encodeBatch(r, r.parts[k].index, r.batches[k])
		}
		i += n
	}
	return e.End()
}

// byTopic gives the indexes of the batches with those of a topic side by side, and the number of topics.
func (r *request) byTopic() (order []int, topics int) {
	order = make([]int, len(r.parts))
	seen := make(map[*topic]int, 1)
	for i, part := range r.parts {
		order[i] = i
		if _, ok := seen[part.topic]; !ok {
			seen[part.topic] = len(seen)
		}
	}
	if len(seen) > 1 {
		slices.SortStableFunc(order, func(a, b int) int { return seen[r.parts[a].topic] - seen[r.parts[b].topic] })
	}
	return order, len(seen)
}

// encodeBatch also notes whose acknowledgement the batch's is: its records are read here anyway, and are out of the caches when the answer comes.
func (s *sender) encodeBatch(r *request, partition int32, b *batch) {
	e := &s.encoder
	e.BeginBatch(produce.Batch{
		Partition: partition, Codec: s.p.o.codec, Count: b.count, Base: b.base, Latest: b.latest, Size: b.size,
		ProducerID: b.pid, Epoch: b.epoch, Sequence: b.sequence, Transactional: s.p.txn != nil,
	})
	from := len(r.seqs)
	b.instead = 0
	for _, chunk := range b.chunks {
		for len(chunk) > 0 {
			var rec entry
			rec, chunk = firstEntry(chunk)
			e.Record(rec.millis()-b.base, rec.wire())
			r.seqs = append(r.seqs, rec.seq())
			if rec.instead() {
				b.instead++
			}
		}
	}
	e.EndBatch()
	b.seqs = r.seqs[from:len(r.seqs):len(r.seqs)]
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
	case s.version.IsAtLeast(sarama.V2_4_0_0):
		return 8
	default:
		return 7
	}
}
