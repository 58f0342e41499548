package kafkastore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/checkpoint"
	"outbox-relay/relay/kafka/conn"
	"outbox-relay/relay/kafka/txn"
)

// Options say which topic of which cluster. Name, Topic and Brokers are required.
type Options struct {
	// Name is the relay's name: key of its records and transactional.id.
	Name string
	// Topic has one partition and is compacted. Relays may share it.
	Topic string
	// Brokers are the addresses to begin with, and Conn is how they are connected to.
	Brokers []string
	Conn    conn.Options
	// TransactionTimeout is how long the brokers leave a transaction of a dead instance open that nobody follows. 0 means a minute.
	TransactionTimeout time.Duration
	// Timeout bounds how long a call waits for a leader or a coordinator. 0 means 10 s.
	Timeout time.Duration
	// Logger is told when the topic was made, and how long reading it took. nil discards.
	Logger *slog.Logger
}

// complete checks the options and fills in what was left out.
func (o *Options) complete() error {
	if o.Name == "" || o.Topic == "" || len(o.Brokers) == 0 {
		return &checkpoint.Error{Op: "opening checkpoint", Err: checkpoint.ErrInvalid, Detail: "name, topic and brokers are needed"}
	}
	if o.Conn.Version == (sarama.KafkaVersion{}) {
		o.Conn.Version = sarama.V3_7_0_0
	}
	if o.TransactionTimeout == 0 {
		o.TransactionTimeout = time.Minute
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func (o *Options) path() string {
	return "topic " + o.Topic + " of " + strings.Join(o.Brokers, ", ")
}

// Store is a checkpoint.Store in a topic.
type Store struct {
	o Options

	mu      sync.Mutex
	cluster *cluster
	id      *txn.Coordinator
	end     context.CancelFunc // of the life of the connections
	closed  bool
	// known is true once the end of the partition was read, or found empty, without fault, under an epoch that is still ours.
	known bool
	token uint64 // of the stored checkpoint, 0 for none
	writer
}

var _ checkpoint.Store = (*Store)(nil)

// Open checks the options. It connects to nothing: brokers that are away are no reason not to start. Its error is a *checkpoint.Error.
func Open(o Options) (*Store, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	s := &Store{o: o, end: end}
	s.cluster = &cluster{o: &s.o, life: life}
	var err error
	s.id, err = txn.New(txn.Options{
		Conn: o.Conn, Brokers: o.Brokers, Addresses: s.cluster.others, ID: o.Name, Timeout: o.TransactionTimeout, Logger: o.Logger,
	})
	if err != nil {
		end()
		return nil, &checkpoint.Error{Op: "opening checkpoint", Path: o.path(), Err: checkpoint.ErrInvalid, Detail: err.Error()}
	}
	return s, nil
}

// Coordinator is the owner of the transactional.id, for a publisher whose transactions hold the checkpoint: Load has fenced others, and between that and
// the next Load the publisher, which takes an epoch of its own, saves in place of this store.
func (s *Store) Coordinator() *txn.Coordinator { return s.id }

// Load takes the transactional.id, so that no other instance can save any more, and returns the last checkpoint; see checkpoint.Store. Only the active
// instance may call it: two that do so in turn fence each other.
func (s *Store) Load(ctx context.Context) (*checkpoint.Checkpoint, error) {
	const op = "loading checkpoint"
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, op); err != nil {
		return nil, err
	}
	return s.load(ctx, op)
}

func (s *Store) load(ctx context.Context, op string) (*checkpoint.Checkpoint, error) {
	s.known, s.token = false, 0
	p, err := s.cluster.find(ctx, false)
	missing := errors.Is(err, errMissing)
	if err == nil {
		err = s.cluster.check(ctx)
	}
	if err != nil && !missing {
		return nil, failed(ctx, op, &s.o, err)
	}
	if err := s.take(ctx); err != nil {
		return nil, failed(ctx, op, &s.o, err)
	}
	if missing {
		s.known = true
		return nil, failed(ctx, op, &s.o, errMissing)
	}
	c, err := s.cluster.last(ctx, op, p)
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
	case err != nil:
		return nil, err
	default:
		s.token = c.FencingToken
	}
	s.known, s.place = true, p
	return c, err
}

// Save replaces the checkpoint; see checkpoint.Store. It fails with checkpoint.ErrFenced once another instance has loaded. How durable it is depends on
// the topic: on its replicas and min.insync.replicas.
func (s *Store) Save(ctx context.Context, c *checkpoint.Checkpoint) error {
	const op = "saving checkpoint"
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, op); err != nil {
		return err
	}
	if c.Name != s.o.Name {
		return &checkpoint.Error{Op: op, Path: s.o.path(), Err: checkpoint.ErrInvalid, Detail: fmt.Sprintf("it is of the relay %q, the store of %q", c.Name, s.o.Name)}
	}
	value, err := Value(c)
	if err != nil {
		return failed(ctx, op, &s.o, err)
	}
	if !s.known {
		if _, err := s.load(ctx, op); !s.known {
			return err
		}
	}
	if err := s.older(op, c); err != nil {
		return err
	}
	err = s.write(ctx, value)
	if errors.Is(err, txn.ErrForgotten) {
		// The coordinator forgets an id that was idle for a week (transactional.id.expiration.ms), or somebody took it after that: the partition tells.
		if _, err := s.load(ctx, op); !s.known {
			return err
		}
		if err = s.older(op, c); err == nil {
			err = s.write(ctx, value)
		}
	}
	if err != nil {
		return failed(ctx, op, &s.o, err)
	}
	s.token = c.FencingToken
	return nil
}

// older refuses a checkpoint of an instance before the one that saved last.
func (s *Store) older(op string, c *checkpoint.Checkpoint) error {
	if c.FencingToken >= s.token {
		return nil
	}
	return &checkpoint.Error{Op: op, Path: s.o.path(), Err: checkpoint.ErrFenced, Detail: fmt.Sprintf("the stored token is %d, this instance's is %d", s.token, c.FencingToken)}
}

// Remove makes the next Load find no checkpoint, whatever is there now. A missing one is no error. Tokens begin anew.
func (s *Store) Remove(ctx context.Context) error {
	const op = "removing checkpoint"
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, op); err != nil {
		return err
	}
	if _, err := s.cluster.find(ctx, false); errors.Is(err, errMissing) {
		return nil
	}
	s.known = false
	if err := s.take(ctx); err != nil {
		return failed(ctx, op, &s.o, err)
	}
	if err := s.write(ctx, nil); err != nil {
		return failed(ctx, op, &s.o, err)
	}
	s.known, s.token = true, 0
	return nil
}

// Close gives up the connections; the transactional.id stays with this instance until another one takes it. It may be called twice.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.cluster.close()
	s.id.Close()
	s.end()
	return nil
}

// usable refuses a call on a closed store and one whose ctx has ended.
func (s *Store) usable(ctx context.Context, op string) error {
	if s.closed {
		return &checkpoint.Error{Op: op, Path: s.o.path(), Err: checkpoint.ErrClosed}
	}
	return ctx.Err()
}
