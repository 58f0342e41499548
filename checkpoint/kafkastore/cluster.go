package kafkastore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/relay/kafka/conn"
)

const (
	// readTimeout bounds the wait for one answer.
	readTimeout = 6 * time.Second
	// fetchBytes is how much of the partition one answer holds, unless a single batch is larger.
	fetchBytes = 1 << 20
)

// cluster is what the store knows of the brokers: one connection to any of them, one to the leader of the partition. It is used by one goroutine.
type cluster struct {
	o      *Options
	life   context.Context // connections end with it
	any    *conn.Link
	at     int // index of the address of any, or of the next to try
	leader *conn.Link
	place  place // that leader was found at
	// learned are the addresses of the cluster's brokers. Those of the options may be gone for long.
	learned atomic.Pointer[[]string]
}

// learn remembers the brokers of the cluster.
func (c *cluster) learn(brokers []*sarama.Broker) {
	var addrs []string
	for _, b := range brokers {
		addrs = append(addrs, b.Addr())
	}
	c.learned.Store(&addrs)
}

// others are the brokers of the cluster as far as they were learned. Any goroutine may call it.
func (c *cluster) others() []string {
	if p := c.learned.Load(); p != nil {
		return *p
	}
	return nil
}

func (c *cluster) close() {
	c.leave()
	c.leaveLeader()
}

// leave makes the next call go to another broker.
func (c *cluster) leave() {
	if l := c.any; l != nil {
		c.any = nil
		c.at++
		go l.Close() // ends with the last call on the broker
	}
}

func (c *cluster) leaveLeader() {
	if l := c.leader; l != nil {
		c.leader = nil
		go l.Close() // as above
	}
}

// call runs one request on some broker, trying each address once to find one that answers.
func (c *cluster) call(ctx context.Context, f func(*sarama.Broker) error) error {
	if c.any == nil || c.any.Dead() {
		c.leave()
		var errs []error
		addrs := slices.Concat(c.o.Brokers, c.others())
		for range addrs {
			l, err := c.dial(ctx, addrs[c.at%len(addrs)])
			if err == nil {
				c.any = l
				break
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			errs = append(errs, err)
			c.at++
		}
		if c.any == nil {
			return errors.Join(errs...)
		}
	}
	return do(ctx, c.any, f)
}

// atLeader runs one request on the leader of the partition, for which find gave the place.
func (c *cluster) atLeader(ctx context.Context, p place, f func(*sarama.Broker) error) error {
	if c.leader == nil || c.leader.Dead() || c.place.addr != p.addr {
		c.leaveLeader()
		l, err := c.dial(ctx, p.addr)
		if err != nil {
			return err
		}
		c.leader, c.place = l, p
	}
	return do(ctx, c.leader, f)
}

// dial opens a connection that outlives ctx.
func (c *cluster) dial(ctx context.Context, addr string) (*conn.Link, error) {
	stop := func() bool { return true }
	l, err := conn.Dial(c.life, &c.o.Conn, addr, readTimeout, func(l *conn.Link) { stop = context.AfterFunc(ctx, l.Cut) })
	stop()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return l, err
}

// do runs a call that is cut when ctx ends. After an error the connection is not used again: a late answer would be taken for that of the next call.
func do(ctx context.Context, l *conn.Link, f func(*sarama.Broker) error) error {
	stop := context.AfterFunc(ctx, l.Cut)
	err := f(l.Broker)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		l.Cut()
	}
	return err
}

func (o *Options) brokers() string { return strings.Join(o.Brokers, ",") }
