package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"outbox-relay/relay/kafka/txn"
	"outbox-relay/router"
)

const (
	// windowRecords and windowBytes bound a window in a backlog, so that a transaction's fixed cost of some 50 ms is small beside it. Records leave the memory
	// when they are acknowledged, so neither is held.
	windowRecords = 50_000
	windowBytes   = 48 << 20
	// windowAge is how long a window may gather while records flow without a pause.
	windowAge = time.Second
	// noWindow is a window that no record belongs to.
	noWindow = math.MaxUint32

	addRetryMin = 100 * time.Millisecond
	addRetryMax = 5 * time.Second

	leaveTimeout = 700 * time.Millisecond
)

// The steps of a transaction that Options.Step is told of.
const (
	StepAdded        = "txn-added"        // partitions are a part of the transaction, nothing of them was sent
	StepAcknowledged = "txn-acknowledged" // some records of the window are in the log
	StepComplete     = "txn-complete"     // all are, the checkpoint as well; nothing is committed
	StepCommitted    = "txn-committed"    // the coordinator has stored the commit, nobody here knows
)

// errUnknownFate is why a transaction is lost whose sequences are not known any more.
var errUnknownFate = errors.New("a batch was refused after an attempt whose fate is not known")

// transaction is the transactional part of a [Publisher]. Fields below mu's comment are guarded by the lock of the Publisher.
//
// A window is what one Kafka transaction holds. Records are accepted into the window p.window; those of p.sending may be sent. The two are the same until
// Cut, which begins the next window; then they differ until Commit returns.
type transaction struct {
	p           *Publisher
	coordinator *txn.Coordinator
	id          string
	wake        chan struct{}
	due         chan struct{}

	// Guarded by the lock of the Publisher.
	joining  []*partition // to be added to the transaction
	added    uint32       // the last window in whose transaction partitions are
	ready    bool         // there is a producer id
	records  int          // accepted since the last Cut
	bytes    int
	openedAt time.Time // of the first of them
	cutAt    time.Time // openedAt of the window that was cut
	flushed  bool      // nothing more came after some of them
	asked    bool      // due was told since the last Cut
	lost     error
}

func newTransaction(p *Publisher, c *txn.Coordinator) *transaction {
	return &transaction{p: p, coordinator: c, id: c.ID(), wake: make(chan struct{}, 1), due: make(chan struct{}, 1)}
}

// Due receives when the open window should be cut: records are in it and nothing more is coming right now, or it is large or old. Only with a Coordinator.
func (p *Publisher) Due() <-chan struct{} { return p.txn.due }

// Cut ends the open window: what was published before and the record, which says how far that is, become visible together when Commit has returned nil, or
// never. What is published afterwards belongs to the next window, which is sent after that. Cut does not block; it belongs to the goroutine of Commit,
// Publish must not run meanwhile, and one Commit follows each Cut. The error says that the record can never be accepted.
func (p *Publisher) Cut(rec *router.Record) error {
	p.mu.Lock()
	defer p.unlock()
	if p.window != p.sending && p.sending != noWindow {
		return errors.New("kafka: the window before is not committed")
	}
	if bad := p.accept(rec, shapeOf(rec), mark{0, p.origin(rec), p.window}); bad != nil {
		return bad
	}
	p.recent.own = true
	p.window++
	t := p.txn
	t.cutAt = t.openedAt
	if t.records == 0 {
		t.cutAt = time.Now()
	}
	t.records, t.bytes, t.flushed, t.asked = 0, 0, false, false
	p.flushAll()
	return nil
}

// Commit waits until all of the window that was cut is in the log and makes it visible. An error of ctx leaves its fate open; any other says that the publisher
// has ended, with the [*FatalError] that ended it.
func (p *Publisher) Commit(ctx context.Context) error {
	if err := p.awaitWindow(ctx); err != nil {
		return err
	}
	p.o.Step(StepComplete)
	if err := p.txn.insist(ctx, p.txn.coordinator.Commit); err != nil {
		if ctx.Err() != nil {
			return err
		}
		p.mu.Lock()
		defer p.unlock()
		p.die(&FatalError{Err: err})
		return p.endError()
	}
	p.o.Step(StepCommitted)
	p.mu.Lock()
	defer p.unlock()
	p.sending = p.window
	if now := p.txn.coordinator.Producer(); now.ID != p.producer || now.Epoch != p.epoch {
		p.renumber(now)
	}
	for _, t := range p.topics {
		if t.records > 0 {
			t.metrics.records.Add(float64(t.records))
			t.metrics.bytes.Add(float64(t.bytes))
			t.records, t.bytes = 0, 0
		}
		for _, part := range t.parts {
			p.kick(part)
		}
	}
	p.txn.ask()
	return nil
}

// renumber goes on with a new epoch, in which all sequences begin at 0. Nothing that was sent is outstanding.
func (p *Publisher) renumber(now txn.Producer) {
	p.producer, p.epoch = now.ID, now.Epoch
	for _, t := range p.topics {
		for _, part := range t.parts {
			part.pid = noProducer
		}
	}
}

// awaitWindow waits until nothing of the window that was cut is outstanding.
func (p *Publisher) awaitWindow(ctx context.Context) error {
	p.mu.Lock()
	defer p.unlock()
	p.drains++
	defer func() { p.drains-- }()
	for p.sending == noWindow || p.left[p.sending&1] > 0 {
		if p.closed {
			return p.endError()
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
			return err
		}
	}
	return nil
}

// join has a partition added to the transaction.
func (p *Publisher) join(part *partition) {
	if part.adding || !part.wants() {
		return
	}
	part.adding = true
	p.txn.joining = append(p.txn.joining, part)
	p.txn.notify()
}

// lose gives the transaction up after an answer that leaves no way to go on with it. Nothing more is sent.
func (p *Publisher) lose(err error) {
	if p.txn.lost == nil {
		p.txn.lost = err
		p.sending = noWindow
		p.txn.notify()
	}
}

// leave aborts the transaction that a stop leaves open, if that is soon done: until its time-out, consumers of committed records would wait behind it.
func (t *transaction) leave() {
	p := t.p
	p.mu.Lock()
	open := p.fatal == nil && t.lost == nil && t.added > 0 && t.added == p.sending
	p.unlock()
	if !open {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_, _ = t.coordinator.Abort(ctx) // or the next instance does, or the time-out
}

func (t *transaction) notify() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run takes a producer epoch and then adds partitions until ctx ends or the transaction is lost.
func (t *transaction) run(ctx context.Context) {
	defer t.leave()
	if !t.begin(ctx) {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.wake:
		}
		if !t.work(ctx) {
			return
		}
	}
}

// begin takes a new epoch, in which all sequences begin at 0, whoever has written under the one before.
func (t *transaction) begin(ctx context.Context) bool {
	p := t.p
	for failures := 0; ; failures++ {
		producer, err := t.coordinator.Abort(ctx)
		p.mu.Lock()
		if err == nil {
			p.producer, p.epoch, p.noProducerID = producer.ID, producer.Epoch, ""
			t.ready = true
			p.unlock()
			return true
		}
		p.noProducerID = err.Error()
		refused := t.refused(ctx, err)
		p.unlock()
		if !refused || !t.pause(ctx, failures) {
			return false
		}
	}
}

// refused tells whether a person has to give a right, change a setting or make a topic, so that the call is worth repeating. Any other error ends the publisher.
func (t *transaction) refused(ctx context.Context, err error) bool {
	t.p.failed(err)
	var e *txn.Error
	if errors.As(err, &e) && (e.Refused() || e.Missing()) {
		t.p.metrics.errors[classConfiguration].Inc()
		return true
	}
	if ctx.Err() == nil {
		t.p.die(&FatalError{Err: err})
	}
	return false
}

// insist repeats a call that is refused until a person has helped.
func (t *transaction) insist(ctx context.Context, call func(context.Context) error) error {
	for failures := 0; ; failures++ {
		err := call(ctx)
		var e *txn.Error
		if !errors.As(err, &e) || !e.Refused() {
			return err
		}
		t.p.mu.Lock()
		t.refused(ctx, err)
		t.p.unlock()
		if !t.pause(ctx, failures) {
			return err
		}
	}
}

func isMissing(err error) bool {
	var e *txn.Error
	return errors.As(err, &e) && e.Missing()
}

// pause waits before a refused call is repeated. False means that ctx has ended.
func (t *transaction) pause(ctx context.Context, failures int) bool {
	timer := time.NewTimer(backoff(failures, addRetryMin, addRetryMax))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// work adds the partitions that wait for it. False ends it.
func (t *transaction) work(ctx context.Context) bool {
	p := t.p
	for failures := 0; ; failures++ {
		p.mu.Lock()
		lost, joining, window := t.lost, t.joining, p.sending
		if lost == nil {
			t.joining = nil
		}
		p.unlock()
		if lost != nil {
			t.bury(ctx, lost)
			return false
		}
		if len(joining) == 0 {
			return true
		}
		partitions := make(map[string][]int32)
		for _, part := range joining {
			partitions[part.topic.name] = append(partitions[part.topic.name], part.index)
		}
		err := t.coordinator.Add(ctx, partitions)
		if err == nil {
			p.o.Step(StepAdded)
		}
		p.mu.Lock()
		refused := err != nil && t.refused(ctx, err)
		gone := isMissing(err)
		now := time.Now()
		for _, part := range joining {
			switch {
			case gone: // metadata tells whether the topic comes back, and with which partitions
				p.want(part.topic, 0)
			case refused:
				p.stallPart(part, StallNotAuthorized, now)
			case err == nil: // otherwise the transaction is lost
				part.adding, part.added = false, window // it has not changed: these partitions have records of it
				p.kick(part)
			}
		}
		if err == nil {
			t.added = window
		}
		if refused {
			t.joining = append(t.joining, joining...)
		}
		p.unlock()
		if err != nil && (!refused || !t.pause(ctx, failures)) {
			return false
		}
	}
}

// bury finds out why the transaction was lost and ends the publisher.
func (t *transaction) bury(ctx context.Context, lost error) {
	err := t.insist(ctx, func(ctx context.Context) error { _, err := t.coordinator.Abort(ctx); return err })
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		err = fmt.Errorf("%w (%w)", txn.ErrAborted, lost)
	}
	t.p.mu.Lock()
	defer t.p.unlock()
	t.p.failed(err)
	t.p.die(&FatalError{Err: err})
}

// grew notes a record in the open window.
func (t *transaction) grew(size int) {
	if t == nil {
		return
	}
	t.records++
	t.bytes += size
	if t.records == 1 {
		t.openedAt = time.Now()
		t.p.clock.arm(t.openedAt.Add(t.maxAge()))
	}
	if t.records >= windowRecords || t.bytes >= windowBytes {
		t.ask()
	}
}

// flush notes that nothing more comes right now.
func (t *transaction) flush() {
	if t.records > 0 {
		t.flushed = true
		t.ask()
	}
}

// maxAge is how long a window may gather.
func (t *transaction) maxAge() time.Duration {
	return min(windowAge, t.coordinator.Timeout()/4)
}

// age asks for the end of a window that is old, and gives the time of the next look; zero for none.
func (t *transaction) age(now time.Time) time.Time {
	if t.records == 0 || t.asked {
		return time.Time{}
	}
	if at := t.openedAt.Add(t.maxAge()); now.Before(at) {
		return at
	}
	t.ask()
	return time.Time{}
}

// ask says that the open window is due, if it is and the one before is committed.
func (t *transaction) ask() {
	p := t.p
	if t.asked || t.records == 0 || p.window != p.sending {
		return
	}
	if !t.flushed && t.records < windowRecords && t.bytes < windowBytes && time.Since(t.openedAt) < t.maxAge() {
		return
	}
	t.asked = true
	select {
	case t.due <- struct{}{}:
	default:
	}
}

// uncommitted counts the records that are in the log and not visible.
func (t *transaction) uncommitted() (n int) {
	if t == nil {
		return 0
	}
	for _, topic := range t.p.topics {
		n += topic.records
	}
	return n
}

// oldest is how long the oldest record waits for its commit.
func (t *transaction) oldest(now time.Time) time.Duration {
	switch {
	case t == nil:
		return 0
	case t.p.window != t.p.sending:
		return now.Sub(t.cutAt)
	case t.records > 0:
		return now.Sub(t.openedAt)
	}
	return 0
}
