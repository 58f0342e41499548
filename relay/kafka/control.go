package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/relay/kafka/conn"
)

const (
	// refreshEvery is how often the metadata and limits of a topic are read when nothing asks for them.
	refreshEvery = 3 * time.Minute
	// refreshIdle is how often a topic is asked for that cannot be used, while no record waits for it.
	refreshIdle = 30 * time.Second
	// refreshGap is the least time between two reads of one topic.
	refreshGap   = 100 * time.Millisecond
	controlRead  = 2 * time.Second
	controlLimit = 2500 * time.Millisecond
	defaultIdle  = 5 * time.Second
	// controlTopics bounds the topics of one request.
	controlTopics = 200
)

// control asks brokers for metadata, topic limits and producer ids over a connection of its own, apart from those that carry records: a
// broker answers in order, and a produce request may take seconds.
type control struct {
	p    *Publisher
	wake chan struct{}

	// Of its goroutine.
	link     *conn.Link
	addr     string
	next     int             // index of the address to try
	failures int             // rounds in a row
	used     bool            // the link has answered a request
	answered bool            // a broker has answered in this round
	quiet    time.Time       // no request before, after a failure
	told     map[string]bool // causes of failures in a row that were logged
}

func newControl(p *Publisher) *control {
	return &control{p: p, wake: make(chan struct{}, 1), told: map[string]bool{}}
}

// notify makes it look for work. It does not block.
func (c *control) notify() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// want asks for metadata of a topic after a delay, and not more often than refreshGap.
func (p *Publisher) want(t *topic, delay time.Duration) {
	now := time.Now()
	at := now.Add(delay)
	if gap := t.askedAt.Add(refreshGap); at.Before(gap) {
		at = gap
	}
	if t.refreshAt.IsZero() || at.Before(t.refreshAt) {
		t.refreshAt = at
		p.control.notify()
	}
}

// wantAgain asks for metadata later and later while a topic cannot be used, and rarely if nothing waits for it.
func (p *Publisher) wantAgain(t *topic) {
	wait := backoff(t.failures, refreshGap, 2*time.Second)
	if t.routed == 0 && len(t.unrouted) == 0 {
		wait = refreshIdle
	}
	t.refreshAt = time.Now().Add(wait)
	t.failures++
}

// hurry asks for metadata of a topic that could not be used and has a record now.
func (p *Publisher) hurry(t *topic) {
	if t.routed == 0 && len(t.unrouted) == 0 {
		p.want(t, 0)
	}
}

// wantLimits asks for the configuration of a topic.
func (p *Publisher) wantLimits(t *topic) {
	t.limitsOld = true
	p.want(t, 0)
}

// run does what is asked for until ctx ends.
func (c *control) run(ctx context.Context) {
	defer c.drop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-timer.C:
		}
		if wait := time.Until(c.quiet); wait > 0 {
			timer.Reset(wait)
			continue
		}
		c.answered = false
		err := c.work(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.fail(err)
			timer.Reset(time.Until(c.quiet))
			continue
		}
		if c.answered {
			c.failures = 0
			clear(c.told)
		}
		timer.Reset(time.Until(c.nextAt()))
	}
}

// fail notes an error and tries the next broker after a while.
func (c *control) fail(err error) {
	c.failures++
	kind := classOfLocal(err)
	low, high := retryPace(kind)
	c.quiet = time.Now().Add(backoff(c.failures, low, high))
	p := c.p
	p.mu.Lock()
	defer p.unlock()
	p.failed(err)
	p.metrics.errors[kind].Inc()
	if cause := conn.Cause(err); !c.told[cause] { // each cause once until a broker answers
		c.told[cause] = true
		p.o.Logger.Warn("request to broker failed", "broker", c.addr, "err", err)
	}
}

// nextAt is when the next topic wants metadata, or a sign of life is due.
func (c *control) nextAt() time.Time {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	at := c.p.answeredAt.Add(c.p.o.Idle)
	for _, t := range c.p.topics {
		if !t.refreshAt.IsZero() && t.refreshAt.Before(at) {
			at = t.refreshAt
		}
	}
	return at
}

// work does one round.
func (c *control) work(ctx context.Context) error {
	p := c.p
	p.mu.Lock()
	needID := p.producer == noProducer && p.txn == nil
	p.mu.Unlock()
	var noID error
	if needID {
		noID = c.initProducer(ctx)
	}
	for {
		due := c.due(time.Now())
		if len(due) == 0 {
			if noID != nil && !c.answered {
				return noID // a sign of life would fail in the same way
			}
			return errors.Join(noID, c.ping(ctx))
		}
		if err := c.refresh(ctx, due); err != nil {
			p.mu.Lock()
			for _, name := range due {
				p.want(p.topics[name], 0)
			}
			p.unlock()
			return err
		}
	}
}

// asking says what was asked for, unless the error is a whole sentence.
func asking(what string, err error) error {
	var connect *conn.Error
	if errors.As(err, &connect) {
		return err
	}
	return fmt.Errorf("asking for %s: %w", what, err)
}

// ping asks a broker for a sign of life if none was heard of for a while, so that the loss of an idle cluster is seen.
func (c *control) ping(ctx context.Context) error {
	c.p.mu.Lock()
	silence := time.Since(c.p.answeredAt)
	c.p.mu.Unlock()
	if silence < c.p.o.Idle {
		return nil
	}
	err := c.call(ctx, func(b *sarama.Broker) error {
		_, err := b.ApiVersions(&sarama.ApiVersionsRequest{})
		return err
	})
	if err != nil {
		return asking("a sign of life", err)
	}
	return nil
}

// due gives topics whose metadata is wanted by now, and takes the wish as fulfilled.
func (c *control) due(now time.Time) []string {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	var names []string
	for name, t := range c.p.topics {
		if !t.refreshAt.IsZero() && !t.refreshAt.After(now) && len(names) < controlTopics {
			t.refreshAt, t.askedAt = time.Time{}, now
			names = append(names, name)
		}
	}
	return names
}

// refresh reads metadata, and limits where they are not known or old, and lets records go that have waited for it.
func (c *control) refresh(ctx context.Context, names []string) error {
	p := c.p
	var resp *sarama.MetadataResponse
	err := c.call(ctx, func(b *sarama.Broker) (err error) {
		resp, err = b.GetMetadata(sarama.NewMetadataRequest(p.o.version, names))
		return err
	})
	if err != nil {
		return asking("metadata", err)
	}
	if len(resp.Brokers) == 0 {
		c.drop()
		return errors.New("asking for metadata: the broker names no brokers, it is starting")
	}
	now := time.Now()
	p.learn(resp, now)
	if p.o.CreateTopics.Enabled {
		if err := c.create(ctx, resp, now); err != nil {
			return err
		}
	}
	if err := c.readLimits(ctx, resp, now); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.unlock()
	for _, m := range resp.Topics {
		if t := p.topics[m.Name]; t != nil && len(m.Partitions) > 0 && !t.limitsAt.IsZero() {
			p.route(t)
			if t.checking {
				p.want(t, 0)
			}
		}
	}
	return nil
}

// initProducer gets a producer id. An answer is believed only with code 0 and an id: a broker that is starting gives code 14 and -1, and
// batches with -1 are accepted without idempotence.
func (c *control) initProducer(ctx context.Context) error {
	p := c.p
	var resp *sarama.InitProducerIDResponse
	err := c.call(ctx, func(b *sarama.Broker) (err error) {
		resp, err = b.InitProducerID(&sarama.InitProducerIDRequest{Version: p.o.initVersion(), ProducerID: -1, ProducerEpoch: -1})
		return err
	})
	if err == nil && resp.Err != sarama.ErrNoError {
		err = resp.Err
	}
	if err == nil && resp.ProducerID < 0 {
		err = fmt.Errorf("answer without an id (%d)", resp.ProducerID)
	}
	p.mu.Lock()
	defer p.unlock()
	if err != nil {
		p.noProducerID = p.o.withoutID(c.addr, err)
		return asking("a producer id", err)
	}
	p.noProducerID = ""
	p.producer = resp.ProducerID
	for _, t := range p.topics {
		for _, part := range t.parts {
			p.kick(part)
		}
	}
	return nil
}

// withoutID is the sentence for why there is no producer id.
func (s *settings) withoutID(addr string, err error) string {
	var connect *conn.Error
	switch {
	case errors.As(err, &connect):
		return connect.Error()
	case errors.Is(err, sarama.ErrClusterAuthorizationFailed):
		return fmt.Sprintf("the Kafka broker at %s lets this user have no producer id; allow it with: %s", addr, AllowProducerCommand(s.Brokers, s.SASL.User))
	}
	return fmt.Sprintf("the Kafka broker at %s gives no producer id: %v; wait until it has started, or see its log", addr, err)
}

// AllowProducerCommand lets a user have a producer id. The right to write to any topic includes it.
func AllowProducerCommand(brokers []string, user string) string {
	if user == "" {
		user = "<user>"
	}
	return fmt.Sprintf("kafka-acls.sh --bootstrap-server %s --add --allow-principal User:%s --operation IdempotentWrite --cluster", strings.Join(brokers, ","), user)
}

// initVersion is the newest version of InitProducerId under the configured protocol.
func (s *settings) initVersion() int16 {
	switch {
	case s.version.IsAtLeast(sarama.V2_7_0_0):
		return 4
	case s.version.IsAtLeast(sarama.V2_5_0_0):
		return 3
	case s.version.IsAtLeast(sarama.V2_4_0_0):
		return 2
	default:
		return 1
	}
}

// call runs one request on the control connection, dialing it if there is none. It takes controlLimit at most. After an error the
// connection is dropped and the next call tries another broker.
func (c *control) call(ctx context.Context, f func(*sarama.Broker) error) error {
	if err := c.dial(ctx); err != nil {
		return err
	}
	limit := time.AfterFunc(controlLimit, c.link.Cut)
	err := f(c.link.Broker)
	limit.Stop() // if it has fired, the next call dials again
	if err != nil {
		if c.used {
			err = fmt.Errorf("broker %s: %w", c.addr, c.link.Redact(err))
		} else {
			err = c.p.o.conn.Explain(c.link, c.addr, err)
		}
		c.drop()
		return err
	}
	c.answered, c.used = true, true
	c.p.mu.Lock()
	c.p.answeredAt = time.Now()
	c.p.mu.Unlock()
	return nil
}

func (c *control) dial(ctx context.Context) error {
	if c.link != nil && !c.link.Dead() {
		return nil
	}
	c.drop()
	addrs := c.p.addresses()
	c.addr = addrs[c.next%len(addrs)]
	l, err := conn.Dial(ctx, &c.p.o.conn, c.addr, controlRead, nil)
	if err != nil {
		c.next++
		return err
	}
	c.link, c.used = l, false
	return nil
}

// drop closes the connection; the next one goes to another broker.
func (c *control) drop() {
	if l := c.link; l != nil {
		c.link = nil
		c.next++
		l.Cut()
		c.p.start(func(context.Context) { l.Close() }) // ends with the last call on the broker
	}
}

// addresses are all that may answer: those of the configuration, then those of metadata.
func (p *Publisher) addresses() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	addrs := append([]string(nil), p.o.Brokers...)
	for _, n := range p.nodes {
		addrs = append(addrs, n.addr)
	}
	return addrs
}
