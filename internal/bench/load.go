package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"golang.org/x/sync/errgroup"

	"outbox-relay/relay/relaytest"
)

// steadyLoad inserts rows at a rate, one in a transaction, and notes when each was committed and received.
type steadyLoad struct {
	s      *servers
	prefix string
	// direct publishes each row right after its commit, in the place of a relay. May be nil.
	direct sarama.AsyncProducer

	mu        sync.Mutex
	committed map[uint64]time.Time
	received  map[uint64]time.Time
	twice     int
	first     chan struct{} // closed when a record was received
	once      sync.Once
}

func newSteadyLoad(s *servers, prefix string) *steadyLoad {
	return &steadyLoad{s: s, prefix: prefix, committed: map[uint64]time.Time{}, received: map[uint64]time.Time{}, first: make(chan struct{})}
}

// receive takes a record.
func (l *steadyLoad) receive(m relaytest.Message) error {
	now := time.Now()
	id, err := idOf(m)
	if err != nil {
		return err
	}
	l.mu.Lock()
	if _, again := l.received[id]; again {
		l.twice++
	}
	l.received[id] = now
	l.mu.Unlock()
	l.once.Do(func() { close(l.first) })
	return nil
}

// phases are the parts of a load; rows of the first do not count.
type phases struct {
	rate   int // transactions per second
	warm   time.Duration
	length time.Duration
}

// run inserts until a relay is there, then at the rate, and waits until all that counts was received. measure is called at the beginning and at the
// end of what counts.
func (l *steadyLoad) run(ctx context.Context, p phases, measure func()) error {
	ctx, cancel := context.WithTimeout(ctx, p.warm+p.length+3*time.Minute)
	defer cancel()
	in, err := l.inserter(ctx)
	if err != nil {
		return err
	}
	defer in.close()
	for waiting := true; waiting; {
		if err := in.insert(ctx, false); err != nil {
			return err
		}
		select {
		case <-l.first:
			waiting = false
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("no record came: %w", ctx.Err())
		}
	}
	if err := in.pace(ctx, p.rate, p.warm, false); err != nil {
		return err
	}
	measure()
	if err := in.pace(ctx, p.rate, p.length, true); err != nil {
		return err
	}
	measure()
	for deadline := time.Now().Add(time.Minute); l.missing() > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("%d rows were not received", l.missing())
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.twice > 0 {
		return fmt.Errorf("%d rows were received twice", l.twice)
	}
	return nil
}

func (l *steadyLoad) missing() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.committed {
		if _, ok := l.received[id]; !ok {
			n++
		}
	}
	return n
}

// took gives the milliseconds from the end of COMMIT to the consumer, in ascending order.
func (l *steadyLoad) took() (ms []float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, at := range l.committed {
		ms = append(ms, float64(l.received[id].Sub(at).Microseconds())/1000)
	}
	slices.Sort(ms)
	return ms
}

// quantile of ascending values; 0 without any.
func quantile(sorted []float64, part float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(part*float64(len(sorted)-1))]
}

// inserter commits the rows of a load. Only pace may be called from several goroutines' point of view: it owns them.
type inserter struct {
	l      *steadyLoad
	exec   func(ctx context.Context, n int, payload string) (uint64, error)
	close  func()
	mu     sync.Mutex
	number int
}

func (l *steadyLoad) inserter(ctx context.Context) (*inserter, error) {
	db, err := l.s.open()
	if err != nil {
		return nil, err
	}
	statement, err := db.PrepareContext(ctx, "INSERT INTO "+database+".outbox_events (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('"+aggregateType+"', ?, 'OrderCreated', ?, ?)")
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	exec := func(ctx context.Context, n int, payload string) (uint64, error) {
		r, err := statement.ExecContext(ctx, n%aggregates, payload, fmt.Sprintf("%s%d", l.prefix, n))
		if err != nil {
			return 0, err
		}
		id, err := r.LastInsertId()
		return uint64(id), err
	}
	return &inserter{l: l, exec: exec, close: func() { statement.Close(); db.Close() }}, nil
}

// insert commits one row.
func (in *inserter) insert(ctx context.Context, counts bool) error {
	in.mu.Lock()
	n := in.number
	in.number++
	in.mu.Unlock()
	var payload strings.Builder
	writeJSON(&payload, n, 290)
	id, err := in.exec(ctx, n, payload.String())
	at := time.Now()
	if err != nil {
		return err
	}
	if counts {
		in.l.mu.Lock()
		in.l.committed[id] = at
		in.l.mu.Unlock()
	}
	if in.l.direct != nil {
		in.l.direct.Input() <- &sarama.ProducerMessage{
			Topic: in.l.prefix + aggregateType, Key: sarama.StringEncoder(fmt.Sprint(n % aggregates)), Value: sarama.StringEncoder(payload.String()),
			Headers: []sarama.RecordHeader{{Key: []byte("id"), Value: fmt.Append(nil, id)}},
		}
	}
	return nil
}

// pace inserts at the rate for so long, with a few connections.
func (in *inserter) pace(ctx context.Context, rate int, length time.Duration, counts bool) error {
	group, ctx := errgroup.WithContext(ctx)
	next := make(chan struct{})
	for range 2 * writers {
		group.Go(func() error { // ends with next
			for range next {
				if err := in.insert(ctx, counts); err != nil {
					return err
				}
			}
			return nil
		})
	}
	begin := time.Now()
	for i := range int(length.Seconds() * float64(rate)) {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		select {
		case next <- struct{}{}:
		case <-ctx.Done():
			close(next)
			return errors.Join(group.Wait(), ctx.Err())
		}
	}
	close(next)
	return group.Wait()
}
