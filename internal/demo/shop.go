package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// shop is the order service: each step of an order is a transaction that changes the order and inserts what happened into the outbox.
// About one transaction in ten is rolled back after both.
type shop struct {
	db    *sql.DB
	ticks chan struct{} // one for each transaction
	rate  atomic.Int64  // transactions per second

	transactions, rollbacks, rows atomic.Int64 // committed, rolled back, committed outbox rows

	mu         sync.Mutex
	rolledBack [][]byte // ids of outbox rows that were rolled back
}

// workers is how many connections write at the same time. An order belongs to one of them, so its transactions do not overlap and the
// ids of its outbox rows are in commit order.
const workers = 4

// states of an order with the event that leads into each.
var states = []struct{ state, event string }{
	{"placed", "OrderPlaced"}, {"paid", "OrderPaid"}, {"packed", "OrderPacked"}, {"shipped", "OrderShipped"}, {"delivered", "OrderDelivered"},
}

var customers = []string{"Ada", "Grace", "Edsger", "Barbara", "Zoë", "Katherine", "Jürgen", "Радия"}

// order is an order under way.
type order struct {
	id       int64
	customer string
	cents    int64
	state    int
}

func newShop(db *sql.DB, rate int) *shop {
	s := &shop{db: db, ticks: make(chan struct{})}
	s.rate.Store(int64(rate))
	return s
}

// run writes until open ends; then the transactions under way are finished. It returns the first error, or that of ctx.
func (s *shop) run(ctx context.Context, open context.Context) error {
	open, closeShop := context.WithCancel(open)
	defer closeShop()
	var group sync.WaitGroup
	faults := make(chan error, workers)
	for range workers {
		group.Go(func() { // ends with open, or with its first error, which ends all
			if err := s.work(ctx, open); err != nil {
				faults <- err
				closeShop()
			}
		})
	}
	group.Go(func() { s.pace(open) }) // ends with open
	group.Wait()
	select {
	case err := <-faults:
		return fmt.Errorf("the order service: %w", err)
	default:
		return ctx.Err()
	}
}

// pace hands out ticks at the rate, as far as the workers keep up.
func (s *shop) pace(open context.Context) {
	next := time.Now()
	for {
		next = next.Add(time.Second / time.Duration(s.rate.Load()))
		if late := time.Now(); next.Before(late.Add(-time.Second)) {
			next = late // a slow server: the lost time is not made up for
		}
		select {
		case <-open.Done():
			return
		case <-time.After(time.Until(next)):
		}
		select {
		case <-open.Done():
			return
		case s.ticks <- struct{}{}:
		}
	}
}

// work takes orders through their states, a random one at each tick.
func (s *shop) work(ctx, open context.Context) error {
	var pending []*order
	for {
		select {
		case <-open.Done():
			return nil
		case <-s.ticks:
		}
		if len(pending) < 3 || len(pending) < 20 && rand.IntN(3) == 0 {
			placed, err := s.place(ctx)
			if err != nil {
				return err
			}
			if placed != nil {
				pending = append(pending, placed)
			}
			continue
		}
		at := rand.IntN(len(pending))
		if err := s.advance(ctx, pending[at]); err != nil {
			return err
		}
		if pending[at].state == len(states)-1 {
			pending = append(pending[:at], pending[at+1:]...)
		}
	}
}

// place writes a new order. It gives nil if the transaction was rolled back.
func (s *shop) place(ctx context.Context) (*order, error) {
	o := &order{customer: customers[rand.IntN(len(customers))], cents: 100 + rand.Int64N(50_000)}
	committed, err := s.transaction(ctx, func(t *change) error {
		id, err := t.insert(ctx, "INSERT INTO orders (customer, cents, state) VALUES (?, ?, 'placed')", o.customer, o.cents)
		if err != nil {
			return err
		}
		o.id = id
		return t.outbox(ctx, "order", o)
	})
	if err != nil || !committed {
		return nil, err
	}
	return o, nil
}

// advance takes an order to its next state; a payment is an event of its own in the same transaction.
func (s *shop) advance(ctx context.Context, o *order) error {
	next := *o
	next.state++
	committed, err := s.transaction(ctx, func(t *change) error {
		if _, err := t.tx.ExecContext(ctx, "UPDATE orders SET state = ? WHERE id = ?", states[next.state].state, next.id); err != nil {
			return err
		}
		if err := t.outbox(ctx, "order", &next); err != nil {
			return err
		}
		if states[next.state].state == "paid" {
			return t.outbox(ctx, "payment", &next)
		}
		return nil
	})
	if committed {
		o.state = next.state
	}
	return err
}

// change is a transaction under way.
type change struct {
	tx  *sql.Tx
	ids []int64 // of its outbox rows
}

func (s *shop) transaction(ctx context.Context, write func(*change) error) (committed bool, err error) {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	t := &change{tx: tx}
	if err := write(t); err != nil {
		_ = tx.Rollback() // the first error is the one to tell
		return false, err
	}
	if rand.IntN(10) == 0 {
		s.remember(t.ids)
		return false, tx.Rollback()
	}
	if err := tx.Commit(); err != nil {
		return false, err
	}
	s.transactions.Add(1)
	s.rows.Add(int64(len(t.ids)))
	return true, nil
}

func (s *shop) remember(ids []int64) {
	s.rollbacks.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.rolledBack = append(s.rolledBack, strconv.AppendInt(nil, id, 10))
	}
}

func (t *change) insert(ctx context.Context, statement string, args ...any) (int64, error) {
	result, err := t.tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// outbox inserts the event of the order's present state.
func (t *change) outbox(ctx context.Context, aggregate string, o *order) error {
	event := states[o.state].event
	if aggregate == "payment" {
		event = "PaymentCaptured"
	}
	id, err := t.insert(ctx, `INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload, idempotency_key)
		VALUES (?, ?, ?, JSON_OBJECT('order', ?, 'customer', ?, 'total', CAST(? AS DECIMAL(12,2)), 'state', ?), ?)`,
		aggregate, o.id, event, o.id, o.customer, fmt.Sprintf("%d.%02d", o.cents/100, o.cents%100), states[o.state].state,
		fmt.Sprintf("%s-%d-%s", aggregate, o.id, states[o.state].state))
	if err != nil {
		return err
	}
	t.ids = append(t.ids, id)
	return nil
}
