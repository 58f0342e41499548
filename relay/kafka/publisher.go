package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"outbox-relay/router"
)

// Publisher sends records to Kafka. Make one with [New], start it with Run, feed it with Publish.
type Publisher struct {
	o       *settings
	metrics *metrics
	control *control
	parking *parking // nil without

	mu     sync.Mutex
	chunks chunks
	topics map[string]*topic
	recent *topic // of the last Publish
	nodes  map[int32]*node
	// origins are the tables and rules of records by number, numbers is their inverse.
	origins      []origin
	numbers      map[origin]uint32
	recentOrigin uint32 // of the last record

	watching     bool   // the clock looks at requests in flight
	noProducerID string // why there is no producer id

	producer    int64 // id for partitions that have none, noProducer = to be asked for
	epoch       int16 // for partitions that have none; above 0 in transactions only
	outstanding int   // records that were accepted and are not acknowledged

	txn       *transaction // nil without
	window    uint32       // that accepted records belong to; 0 for ever without transactions
	sending   uint32       // whose records may be sent: window, or the one before it, which has been cut
	left      [2]int       // outstanding by window, the even and the odd one
	held      int          // those of them behind a poison record or being it
	published int64        // bytes of entries accepted ever, the clock of the dirty list

	dirty     []gatherer // partitions that gather, oldest first; dirty[:dirtyHead] are done
	dirtyHead int
	delayed   []*partition // partitions with notBefore ahead

	waiting int           // bytes that Publish waits for, 0 = it does not
	room    chan struct{} // tells Publish that room may be there
	changed chan struct{} // closed and replaced when outstanding or held changes while someone drains
	drains  int

	clock   *clock
	poisons []poisoned   // to be judged when the lock is released
	instead int          // records that are published instead of others and are not acknowledged
	crowded []*partition // whose heads are judged once some of them are
	fatal   error
	running bool
	closed  bool
	stop    context.CancelFunc
	ctx     context.Context
	tasks   sync.WaitGroup // all goroutines besides Run's own
	ended   chan struct{}

	answeredAt time.Time // when a broker was heard of last

	lastErr   error
	lastErrAt time.Time

	ackMu sync.Mutex // makes calls of Acked one after the other
	seqs  []uint64
}

// gatherer is an entry of the dirty list.
type gatherer struct {
	part *partition
	at   int64 // Publisher.published
}

// New validates the options and registers the metrics. It does no I/O and starts nothing.
func New(o Options) (*Publisher, error) {
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		o:        s,
		chunks:   chunks{limit: s.Window},
		topics:   make(map[string]*topic),
		nodes:    make(map[int32]*node),
		numbers:  make(map[origin]uint32),
		producer: noProducer,
		room:     make(chan struct{}, 1),
		changed:  make(chan struct{}),
		ended:    make(chan struct{}),
	}
	if s.Coordinator != nil {
		p.txn, p.window, p.sending = newTransaction(p, s.Coordinator), 1, 1
	}
	p.clock = newClock()
	p.control = newControl(p)
	if s.Parking != nil {
		p.parking = newParking(p)
	}
	if p.metrics, err = newMetrics(p); err != nil {
		return nil, err
	}
	return p, nil
}

// Run connects, sends and receives until ctx ends or a broker's answer makes going on impossible (a [*FatalError]). It returns nil when
// ctx ended. All connections are cut at that moment, whatever is in flight, and all goroutines have ended when it returns; those that
// a broker has told to be silent for a while (quota) are left behind after a second, they end by themselves. Run may be called once.
func (p *Publisher) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.mu.Lock()
	if p.running || p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	p.running, p.ctx, p.stop = true, ctx, cancel
	p.mu.Unlock()

	p.start(p.control.run)  // stopped by ctx
	p.start(p.clock.run(p)) // stopped by ctx
	if p.txn != nil {
		p.start(p.txn.run) // stopped by ctx
	}
	if p.parking != nil {
		p.start(p.parking.run) // stopped by ctx
	}
	<-ctx.Done()

	p.mu.Lock()
	p.closed = true
	err := p.fatal
	p.mu.Unlock()
	close(p.ended)
	p.await(900 * time.Millisecond)
	p.metrics.unregister()
	return err
}

// start runs f in a goroutine that Run waits for.
func (p *Publisher) start(f func(ctx context.Context)) {
	p.tasks.Go(func() { f(p.ctx) })
}

// await waits for the goroutines, at most for d.
func (p *Publisher) await(d time.Duration) {
	done := make(chan struct{})
	go func() { // ends with the last task
		p.tasks.Wait()
		close(done)
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		p.o.Logger.Warn("connections did not end in time", "err", context.DeadlineExceeded)
	}
}

// Publish takes a record over for sending; seq comes back through Acked when it is in all in-sync replicas. It copies what it keeps, so
// the record may be used again at once. It blocks while the window is full, and for nothing else. One goroutine may call it.
//
// A [*PoisonError] says that the record can never be accepted; it is not kept, and later records are not affected. It is given only where no earlier
// record of the partition waits. Otherwise, and while the topic is not known well enough, the record is kept and judged when it is its turn: see
// Options.Judge and Options.Poisoned. Other errors are those of ctx and [ErrClosed], with the [*FatalError] that ended Run if there is one; then the
// record was not taken.
func (p *Publisher) Publish(ctx context.Context, rec *router.Record, seq uint64) error {
	s := shapeOf(rec)
	p.mu.Lock()
	defer p.unlock()
	if err := p.waitRoom(ctx, s.size); err != nil {
		return err
	}
	if bad := p.accept(rec, s, mark{seq, p.origin(rec), p.window}); bad != nil {
		return p.queueRefused(rec, s, bad)
	}
	p.txn.grew(s.size)
	return nil
}

// mark is what an accepted record carries besides itself: the caller's number, the index of its origin, its window.
type mark struct {
	seq    uint64
	from   uint32
	window uint32
}

// accept takes a record over, whatever the window holds. An error says that it can never be accepted, and that it was not kept.
func (p *Publisher) accept(rec *router.Record, s shape, m mark) *PoisonError {
	t := p.recent
	if t == nil || t.name != rec.Topic {
		if reason, err := checkAlways(rec.Topic, s.size, rec.TimestampMillis, rec.Partition); err != nil {
			return p.poison(reason, err, rec, s, m.seq)
		}
		t = p.topic(rec.Topic)
	} else if rec.TimestampMillis < 0 || rec.TimestampMillis > maxMillis || s.size > encodeLimit || rec.Partition < router.AnyPartition {
		reason, err := checkAlways(rec.Topic, s.size, rec.TimestampMillis, rec.Partition)
		return p.poison(reason, err, rec, s, m.seq)
	}
	if !t.open() {
		p.hold(t, rec, s, m)
		return nil
	}
	now := t.clock(rec.TimestampMillis)
	if reason, err := t.check(rec.Key, s.body, rec.TimestampMillis, rec.Partition, now); err != nil {
		if t.fresh(time.Now()) {
			return p.poison(reason, err, rec, s, m.seq)
		}
		t.checking = true
		p.hold(t, rec, s, m)
		p.want(t, 0)
		return nil
	}
	part := t.choose(p.o.partitioner, rec.Key, rec.Partition, s.size)
	dst := p.place(part, m.window, s.size, s.body, rec.TimestampMillis)
	s.put(dst, rec, m.seq, m.from)
	p.count(s.size, m.window)
	p.flushOld()
	return nil
}

// Flush says that nothing more is coming right now, so that what waits for company is sent. It does not block.
func (p *Publisher) Flush() {
	p.mu.Lock()
	defer p.unlock()
	p.flushAll()
	if p.txn != nil {
		p.txn.flush()
	}
}

// Drain sends all that waits and returns when every record was acknowledged, those of halted partitions excepted, and Acked was told.
// Errors are those of ctx and [ErrClosed], with the [*FatalError] that ended Run if there is one.
func (p *Publisher) Drain(ctx context.Context) error {
	p.mu.Lock()
	p.drains++
	p.flushAll()
	for p.outstanding > p.held {
		if p.closed {
			p.drains--
			err := p.endError()
			p.unlock()
			return err
		}
		changed := p.changed
		p.unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		case <-p.ended: // closed is set
		}
		p.mu.Lock()
		if err != nil {
			p.drains--
			p.unlock()
			return err
		}
		p.flushAll()
	}
	p.drains--
	p.unlock()
	return nil
}

// unlock releases the lock and then judges the records that were found to be poison while it was held.
func (p *Publisher) unlock() { p.judge(p.release()) }

// release releases the lock and gives the records that were found to be poison while it was held.
func (p *Publisher) release() []poisoned {
	poisons := p.poisons
	p.poisons = nil
	p.mu.Unlock()
	return poisons
}

// endError is what Publish and Drain give once Run has ended. It names the cause: its hearer may hear of it before Run returns.
func (p *Publisher) endError() error {
	if p.fatal != nil {
		return fmt.Errorf("%w: %w", ErrClosed, p.fatal)
	}
	return ErrClosed
}

// waitRoom blocks until a record of n bytes may be kept. The lock is released meanwhile.
func (p *Publisher) waitRoom(ctx context.Context, n int) error {
	for {
		if p.closed {
			return p.endError()
		}
		if p.chunks.used == 0 || p.chunks.used+int64(n) <= p.o.Window {
			return nil
		}
		p.flushAll()
		p.waiting = n
		p.unlock()
		var err error
		select {
		case <-p.room:
		case <-ctx.Done():
			err = ctx.Err()
		case <-p.ended: // closed is set
		}
		p.mu.Lock()
		p.waiting = 0
		if err != nil {
			return err
		}
	}
}

// wakePublish lets a waiting Publish go on when there is room for more than one record, or when nothing is in a request that would
// make more.
func (p *Publisher) wakePublish() {
	if p.waiting == 0 {
		return
	}
	free := p.o.Window - p.chunks.used
	if p.chunks.used > 0 && free < int64(p.waiting) {
		return
	}
	if free < p.o.Window/8 && p.flying() {
		return
	}
	select {
	case p.room <- struct{}{}:
	default:
	}
}

// flying tells whether an answer is awaited that will give room soon. Partitions that wait for replicas do not count.
func (p *Publisher) flying() bool {
	for _, n := range p.nodes {
		if s := n.lanes[laneNormal]; s != nil && len(s.requests) > 0 {
			return true
		}
	}
	return false
}

// topic gives the state of a topic, new ones are asked for.
func (p *Publisher) topic(name string) *topic {
	t := p.topics[name]
	if t == nil {
		t = &topic{name: name, metrics: p.metrics.topic(name)}
		p.topics[name] = t
		p.want(t, 0)
	}
	p.recent = t
	return t
}

// origin is where a record comes from.
type origin struct {
	table   string
	rule    int32
	letters string // topic of the dead letters that park its keys, empty without
}

func (p *Publisher) origin(rec *router.Record) uint32 {
	if i := p.recentOrigin; int(i) < len(p.origins) && p.origins[i].table == rec.Table && p.origins[i].rule == rec.Rule {
		return i
	}
	o := origin{table: rec.Table, rule: rec.Rule}
	i, ok := p.numbers[o]
	if !ok {
		i = uint32(len(p.origins))
		p.numbers[o] = i
		if p.parking != nil {
			o.letters = p.parking.o.Topic(rec.Rule)
		}
		p.origins = append(p.origins, o)
	}
	p.recentOrigin = i
	return i
}

// poison makes the error of a record that is refused before it is kept.
func (p *Publisher) poison(reason string, err error, rec *router.Record, s shape, seq uint64) *PoisonError {
	dst := make([]byte, s.size)
	s.put(dst, rec, seq, p.origin(rec))
	return p.poisonOf(dst, rec.Topic, rec.Partition, reason, err)
}

func (p *Publisher) poisonOf(e entry, topic string, partition int32, reason string, err error) *PoisonError {
	id, position := e.names()
	return &PoisonError{
		Reason: reason, Topic: topic, Partition: partition, Table: p.origins[e.origin()].table, ID: id, Position: position,
		Seq: e.seq(), Size: aloneSize(e.body()), Err: err,
	}
}

// count notes an accepted record.
func (p *Publisher) count(size int, window uint32) {
	p.outstanding++
	p.left[window&1]++
	p.published += int64(size)
}

// gone notes that records of a window are acknowledged, or dropped.
func (p *Publisher) gone(n int, window uint32) {
	p.outstanding -= n
	p.left[window&1] -= n
}
