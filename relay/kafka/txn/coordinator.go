package txn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/relay/kafka/conn"
)

// Options configure a [Coordinator]. Conn, Brokers and ID are required.
type Options struct {
	// Conn is how brokers are connected to.
	Conn conn.Options
	// Brokers are the addresses to begin with.
	Brokers []string
	// Addresses, if not nil, gives more addresses to ask. It is safe to call from any goroutine.
	Addresses func() []string
	// ID is the transactional.id.
	ID string
	// Timeout is how long a transaction may be open before the coordinator aborts it. Default one minute; brokers allow
	// transaction.max.timeout.ms, 15 minutes unless changed.
	Timeout time.Duration
	// Logger is told the first of several failures in a row and their end. nil discards.
	Logger *slog.Logger
}

// Producer is a producer id with an epoch.
type Producer struct {
	ID    int64
	Epoch int16
}

var noProducer = Producer{ID: -1, Epoch: -1}

// Coordinator is one transactional.id. It connects when it is called first. Its methods are safe for concurrent use, and one call waits
// for the other. Every call blocks until it has an answer that counts or its context ends; it tries again what time heals: a coordinator that
// moves or is loading, lost connections, lost answers, the transaction before whose markers are being written.
//
// A call whose context ended leaves its fate open. The next call may repeat it, since each is safe to repeat.
type Coordinator struct {
	o      Options
	ctx    context.Context // ends with Close, and all connections with it
	cancel context.CancelFunc

	busy chan struct{} // holds one token; whoever has it may use what follows
	link *conn.Link
	addr string // of the coordinator, empty when it has to be found
	next int    // index of the address to ask for it

	mu         sync.Mutex
	producer   Producer
	unanswered bool // an EndTxn of this epoch has no answer: it may arrive yet
	fault      error
}

const (
	read = 4 * time.Second // of one answer

	retryMin = 20 * time.Millisecond
	retryMax = time.Second
	// markerWait is the pause while the coordinator writes the markers of the transaction before, which it answers with code 51 nearly always.
	markerWait     = 4 * time.Millisecond
	defaultTimeout = time.Minute
	// missingAttempts is how often a partition that is not there is asked for again, for half a second: a topic that was just made is missing for a moment.
	missingAttempts = 5
)

// New checks the options. It does no I/O and starts nothing.
func New(o Options) (*Coordinator, error) {
	switch {
	case len(o.Brokers) == 0:
		return nil, errors.New("txn: no broker address")
	case o.ID == "":
		return nil, errors.New("txn: no transactional.id")
	case o.Timeout < 0:
		return nil, fmt.Errorf("txn: time-out %s is negative", o.Timeout)
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Coordinator{o: o, busy: make(chan struct{}, 1), producer: noProducer}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c, nil
}

// Close ends all calls at once by closing the connection. An open transaction stays open until its time-out, or until the id is taken over.
// It may be called twice.
func (c *Coordinator) Close() { c.cancel() }

// Producer is who may write in this id's transactions, as the last Fence, Abort or Commit found; ID is -1 before.
func (c *Coordinator) Producer() Producer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.producer
}

// Fault is why the last attempt of the call that is under way failed; nil if none did.
func (c *Coordinator) Fault() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault
}

func (c *Coordinator) setFault(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = err
}

// ID is the transactional.id.
func (c *Coordinator) ID() string { return c.o.ID }

// Timeout is how long a transaction may be open.
func (c *Coordinator) Timeout() time.Duration { return c.o.Timeout }

// Fence takes the id over from whoever has it: from then on an older owner can neither write nor commit. A transaction that was open is aborted, and one
// whose commit was decided is completed, before Fence returns.
func (c *Coordinator) Fence(ctx context.Context) (Producer, error) {
	return c.init(ctx, "fencing", noProducer)
}

// Abort ends the transaction that may be open, takes a new epoch, and so keeps late batches of that transaction out for good. It also tells
// whether the id is still this owner's: ErrFenced says that another one has it.
func (c *Coordinator) Abort(ctx context.Context) (Producer, error) {
	p := c.Producer()
	if p == noProducer {
		return p, errors.New("txn: there is no producer id to abort for; fence first")
	}
	return c.init(ctx, "aborting", p)
}

// init asks for a producer id. An answer counts only with code 0 and an id: a broker that is starting can give -1.
func (c *Coordinator) init(ctx context.Context, op string, as Producer) (Producer, error) {
	var p Producer
	err := c.do(ctx, op, func(b *sarama.Broker) (sarama.KError, error) {
		req := &sarama.InitProducerIDRequest{
			Version: c.initVersion(), TransactionalID: &c.o.ID, TransactionTimeout: c.o.Timeout, ProducerID: as.ID, ProducerEpoch: as.Epoch,
		}
		resp, err := b.InitProducerID(req)
		if err != nil {
			return 0, err
		}
		if resp.Err == sarama.ErrNoError && (resp.ProducerID < 0 || resp.ProducerEpoch < 0) {
			return 0, fmt.Errorf("answer without a producer id (%d, epoch %d)", resp.ProducerID, resp.ProducerEpoch)
		}
		p = Producer{resp.ProducerID, resp.ProducerEpoch}
		return resp.Err, nil
	})
	if err != nil {
		var e *Error
		if errors.As(err, &e) && e.kind == lost {
			e.kind = fenced // whoever asks for an epoch with an older one than the id has
		}
		return noProducer, err
	}
	c.mu.Lock()
	c.producer, c.unanswered = p, false
	c.mu.Unlock()
	return p, nil
}

// Add makes partitions, by topic, part of the transaction, which it begins if none is open. Nothing may be sent to a partition before. Adding one again is
// harmless. An [Error] that is Missing says that there is no such partition. After ErrAborted the producer has a new epoch and nothing of the transaction is left.
func (c *Coordinator) Add(ctx context.Context, partitions map[string][]int32) error {
	p := c.Producer()
	err := c.do(ctx, "adding partitions", func(b *sarama.Broker) (sarama.KError, error) {
		resp, err := b.AddPartitionsToTxn(&sarama.AddPartitionsToTxnRequest{
			Version: c.txnVersion(), TransactionalID: c.o.ID, ProducerID: p.ID, ProducerEpoch: p.Epoch, TopicPartitions: partitions,
		})
		if err != nil {
			return 0, err
		}
		return worst(partitions, resp.Errors)
	})
	return c.settle(ctx, err)
}

// worst gives the code that counts of an answer to Add: the one that says why the others were not attempted.
func worst(asked map[string][]int32, answer map[string][]*sarama.PartitionError) (sarama.KError, error) {
	code, named := sarama.ErrNoError, 0
	for topic, parts := range answer {
		for _, e := range parts {
			if slices.Contains(asked[topic], e.Partition) {
				named++
			}
			if e.Err != sarama.ErrNoError && (code == sarama.ErrNoError || code == operationNotAttempted) {
				code = e.Err
			}
		}
	}
	want := 0
	for _, parts := range asked {
		want += len(parts)
	}
	if code == sarama.ErrNoError && named < want {
		return 0, fmt.Errorf("the answer names %d of %d partitions", named, want)
	}
	return code, nil
}

// Commit makes all that was written since the last one visible, and nothing else: it returns nil once the coordinator has stored that decision, also if that was
// an earlier attempt whose answer was lost. ErrAborted says that nothing of the transaction is or ever will be visible. After ErrFenced or an end of ctx it may
// have been committed or not: whoever has the id next finds out by reading what was committed. Where an attempt had no answer the producer has a new epoch
// behind it: that attempt may still be on its way, and would commit what the next transaction holds when it arrives.
func (c *Coordinator) Commit(ctx context.Context) error {
	p := c.Producer()
	err := c.do(ctx, "committing", func(b *sarama.Broker) (sarama.KError, error) {
		resp, err := b.EndTxn(&sarama.EndTxnRequest{
			Version: c.txnVersion(), TransactionalID: c.o.ID, ProducerID: p.ID, ProducerEpoch: p.Epoch, TransactionResult: true,
		})
		if err != nil {
			c.mu.Lock()
			c.unanswered = true
			c.mu.Unlock()
			return 0, err
		}
		return resp.Err, nil
	})
	if err != nil {
		return c.settle(ctx, err)
	}
	c.mu.Lock()
	unanswered := c.unanswered
	c.mu.Unlock()
	if unanswered {
		_, err = c.init(ctx, "taking a new epoch", p)
	}
	return err
}

// settle finds out what a lost transaction means. The codes of one that ran into its time-out and of an id that another instance took are the same; asking for
// a new epoch as the present owner tells. Amid a Fence, when the transaction is aborted and the new owner has no epoch yet, it gives one, which that Fence then
// outdates: the next call tells.
func (c *Coordinator) settle(ctx context.Context, err error) error {
	if !errors.Is(err, errLost) {
		return err
	}
	if _, again := c.Abort(ctx); again != nil {
		return again
	}
	return fmt.Errorf("%w (%w)", ErrAborted, err)
}

// do runs one call against the coordinator until its answer counts.
func (c *Coordinator) do(ctx context.Context, op string, call func(*sarama.Broker) (sarama.KError, error)) error {
	if err := c.lock(ctx); err != nil {
		return c.ended(ctx, op, err)
	}
	defer func() {
		c.setFault(nil)
		<-c.busy
	}()
	for failures := 0; ; {
		code, err := c.attempt(ctx, call)
		if err == nil && code == sarama.ErrNoError {
			if failures > 1 {
				c.o.Logger.Info("transaction coordinator answers again", "op", op, "failures", failures)
			}
			return nil
		}
		if ctx.Err() != nil || c.ctx.Err() != nil {
			return c.ended(ctx, op, errors.Join(ctx.Err(), err))
		}
		wait := markerWait
		if err != nil || code != sarama.ErrConcurrentTransactions {
			if err == nil {
				if v := judge(code); v != transient && (v != missing || failures >= missingAttempts) {
					return &Error{Op: op, ID: c.o.ID, Err: code, kind: v}
				}
				if err = code; code == 15 || code == 16 { // COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR: it is another broker now
					c.drop()
					c.addr = ""
				}
			} else {
				var code sarama.KError // of a login, or of the search for the coordinator
				if errors.As(err, &code) && judge(code) == refused {
					return &Error{Op: op, ID: c.o.ID, Err: err, kind: refused}
				}
				c.drop()
			}
			err = &Error{Op: op, ID: c.o.ID, Err: err}
			c.setFault(err)
			if failures++; failures == 2 { // one is usual: a moved coordinator, an idle connection that was closed
				c.o.Logger.Warn("transaction coordinator does not answer as it should, trying again", "op", op, "err", err)
			}
			d := min(retryMin<<min(failures, 8), retryMax)
			wait = d/2 + rand.N(d/2)
		}
		if err := c.sleep(ctx, wait); err != nil {
			return c.ended(ctx, op, err)
		}
	}
}

func (c *Coordinator) lock(ctx context.Context) error {
	select {
	case c.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// ended is the error of a call that was given up.
func (c *Coordinator) ended(ctx context.Context, op string, err error) error {
	if ctx.Err() == nil && c.ctx.Err() != nil {
		err = ErrClosed
	}
	return &Error{Op: op, ID: c.o.ID, Err: err, kind: transient}
}

func (c *Coordinator) sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// attempt calls the coordinator once, finding and dialing it before if need be. The end of ctx cuts the connection.
func (c *Coordinator) attempt(ctx context.Context, call func(*sarama.Broker) (sarama.KError, error)) (sarama.KError, error) {
	if c.link == nil || c.link.Dead() {
		if err := c.connect(ctx); err != nil {
			return 0, err
		}
	}
	l := c.link
	stop := context.AfterFunc(ctx, l.Cut)
	defer stop()
	code, err := call(l.Broker)
	if err != nil {
		err = fmt.Errorf("broker %s: %w", c.addr, err)
	}
	return code, err
}

// connect finds the coordinator and dials it.
func (c *Coordinator) connect(ctx context.Context) error {
	c.drop()
	if c.addr == "" {
		addr, err := c.find(ctx)
		if err != nil {
			return err
		}
		c.addr = addr
	}
	addr := c.addr
	l, err := c.dial(ctx, addr)
	if err != nil {
		c.addr = ""
		return fmt.Errorf("broker %s: %w", addr, err)
	}
	c.link = l
	return nil
}

// dial opens a connection that lives until Close; ctx bounds the opening only.
func (c *Coordinator) dial(ctx context.Context, addr string) (*conn.Link, error) {
	stop := func() bool { return true }
	l, err := conn.Dial(c.ctx, &c.o.Conn, addr, read, func(l *conn.Link) { stop = context.AfterFunc(ctx, l.Cut) })
	stop()
	return l, err
}

// find asks one broker who the coordinator is; the next call asks another one.
func (c *Coordinator) find(ctx context.Context) (string, error) {
	addrs := slices.Clone(c.o.Brokers)
	if c.o.Addresses != nil {
		addrs = append(addrs, c.o.Addresses()...)
	}
	addr := addrs[c.next%len(addrs)]
	c.next++
	l, err := c.dial(ctx, addr)
	if err != nil {
		return "", fmt.Errorf("broker %s: %w", addr, err)
	}
	defer func() { go l.Close() }() // ends with the last call on the broker
	stop := context.AfterFunc(ctx, l.Cut)
	defer stop()
	resp, err := l.Broker.FindCoordinator(&sarama.FindCoordinatorRequest{Version: 1, CoordinatorKey: c.o.ID, CoordinatorType: sarama.CoordinatorTransaction})
	switch {
	case err != nil:
		return "", fmt.Errorf("asking broker %s for the transaction coordinator: %w", addr, err)
	case resp.Err != sarama.ErrNoError:
		return "", fmt.Errorf("asking broker %s for the transaction coordinator: %w", addr, resp.Err)
	case resp.Coordinator == nil:
		return "", fmt.Errorf("broker %s names no transaction coordinator", addr)
	}
	return resp.Coordinator.Addr(), nil
}

// drop gives up the connection. The place of the coordinator is believed until nobody can be dialed there or it says that it is another broker.
func (c *Coordinator) drop() {
	if l := c.link; l != nil {
		c.link = nil
		l.Cut()
		go l.Close() // ends with the last call on the broker
	}
}

// initVersion is the newest version of InitProducerId under the configured protocol. Below 3 an owner cannot name itself, and so not abort.
func (c *Coordinator) initVersion() int16 {
	if c.o.Conn.Version.IsAtLeast(sarama.V2_7_0_0) {
		return 4
	}
	return 3
}

// txnVersion is the newest version of AddPartitionsToTxn and EndTxn under the configured protocol. sarama knows 3 as the highest.
func (c *Coordinator) txnVersion() int16 {
	if c.o.Conn.Version.IsAtLeast(sarama.V2_8_0_0) {
		return 3
	}
	return 2
}
