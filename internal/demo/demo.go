package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"outbox-relay/relay/relaytest"
)

// demo is the settings of a run.
type demo struct {
	screen *screen
	binary string        // of the relay; empty means to build it
	rate   int           // transactions per second under load
	load   time.Duration // under load, before the kill and again after the restart
	dead   time.Duration // between kill and restart
	stay   bool          // after the account, until Ctrl-C
}

const (
	quietRate = 3 // transactions per second while every record is shown
	quiet     = 3 * time.Second
	patience  = time.Minute // for what was committed to arrive
)

// run plays the whole demo. It gives whether the relay kept its promise.
func (d *demo) run(ctx context.Context) (kept bool, err error) {
	s := d.screen
	s.print(s.paint(bold, "outbox-relay: rows of a MySQL outbox table become Kafka records, in order and without loss"))
	s.stage("A real MySQL and a real Kafka on this machine (fetched once, kept in a cache folder)")
	servers, err := startCluster(ctx, s)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()

	dir, err := os.MkdirTemp("", "outbox-relay-demo-*")
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	s.stage("The relay, with this configuration")
	relay, err := newDaemon(ctx, s, d.binary, dir, servers)
	if err != nil {
		return false, err
	}
	play := &play{demo: d, servers: servers, daemon: relay, tape: newTape(s), shop: newShop(servers.db, quietRate)}
	return play.run(ctx)
}

// play is a run with its servers up.
type play struct {
	*demo
	servers *cluster
	daemon  *daemon
	relay   *child
	tape    *tape
	shop    *shop
}

func (p *play) run(ctx context.Context) (kept bool, err error) {
	if err := p.startRelay(ctx); err != nil {
		return false, err
	}
	defer func() { p.relay.kill() }()

	// The consumer and the order service end before run does.
	watching, stopWatching := context.WithCancel(ctx)
	watched := p.watch(watching)
	defer func() { stopWatching(); <-watched }()
	open, closeShop := context.WithCancel(ctx)
	sold := make(chan error, 1)
	go func() { sold <- p.shop.run(ctx, open) }() // ends with closeShop, or with its error

	err = p.scenes(ctx)
	closeShop()
	if err := errors.Join(<-sold, err); err != nil {
		return false, err
	}
	p.screen.note("the order service has stopped: %s transactions committed, %s rolled back",
		number(int(p.shop.transactions.Load())), number(int(p.shop.rollbacks.Load())))
	if err := p.awaitAll(ctx); err != nil {
		return false, err
	}
	return p.settle(ctx)
}

// scenes are what happens while orders come in.
func (p *play) scenes(ctx context.Context) error {
	s := p.screen
	s.stage("An order service writes orders and, in the same transactions, outbox rows; some roll back")
	if err := pause(ctx, quiet); err != nil {
		return err
	}
	s.stage("Load: %d transactions per second", p.rate)
	p.shop.rate.Store(int64(p.rate))
	// The relay saves its checkpoint once a second: the kill hits any moment between two saves.
	if err := pause(ctx, p.load+rand.N(time.Second)); err != nil {
		return err
	}

	s.stage("kill -9 of the relay, process %d, under load", p.relay.process.Pid)
	p.relay.kill()
	before := p.shop.rows.Load()
	s.note("the relay is dead; the order service does not notice and goes on")
	if err := pause(ctx, p.dead); err != nil {
		return err
	}
	s.note("%s rows were committed meanwhile", number(int(p.shop.rows.Load()-before)))

	s.stage("The relay starts again from its checkpoint")
	p.tape.refill()
	if err := p.startRelay(ctx); err != nil {
		return err
	}
	return pause(ctx, p.load)
}

// startRelay starts the relay and waits until it is ready; the first record after it is told when it comes.
func (p *play) startRelay(ctx context.Context) error {
	begun := time.Now()
	first := p.relay == nil
	if !first {
		p.tape.onNext(func() {
			p.screen.note("the first record arrived %.2f s after the restart", time.Since(begun).Seconds())
		})
	}
	relay, err := p.daemon.start()
	if err != nil {
		return err
	}
	p.relay = relay
	if err := relay.awaitReady(ctx); err != nil {
		relay.kill()
		return err
	}
	p.screen.note("the relay is process %d, ready after %.2f s", relay.process.Pid, time.Since(begun).Seconds())
	return nil
}

// watch prints what arrives until ctx ends.
func (p *play) watch(ctx context.Context) (ended chan struct{}) {
	ended = make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		o := relaytest.ConsumeOptions{Brokers: p.servers.brokers, Topics: topics, Follow: true}
		err := relaytest.Consume(ctx, o, func(m relaytest.Message) error {
			p.tape.receive(m, time.Now())
			return nil
		})
		if err != nil && ctx.Err() == nil {
			p.screen.note("%s", p.screen.paint(red, "the consumer ended: "+err.Error()))
		}
	}()
	return ended
}

// awaitAll waits until every committed row has arrived and the relay has nothing in flight. If that does not come, the account will tell.
func (p *play) awaitAll(ctx context.Context) error {
	begun := time.Now()
	late := time.After(patience)
	for {
		_, distinct := p.tape.counts()
		if distinct >= int(p.shop.rows.Load()) {
			st, err := p.daemon.status(ctx)
			if err == nil && st.CaughtUp && st.Sink.InFlightRecords == 0 {
				p.screen.note("everything has arrived, %.2f s after the last commit", time.Since(begun).Seconds())
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.relay.ended:
			return fmt.Errorf("the relay ended (%w); the end of its log:\n%s", p.relay.err, p.daemon.logTail())
		case <-late:
			p.screen.note("%s", p.screen.paint(red, fmt.Sprintf("%d of %d rows have not arrived after %v", int(p.shop.rows.Load())-distinct, p.shop.rows.Load(), patience)))
			return nil
		case <-p.tape.onAdvance:
		case <-time.After(50 * time.Millisecond): // for the relay's status
		}
	}
}

// settle prints the account and ends the relay.
func (p *play) settle(ctx context.Context) (kept bool, err error) {
	s := p.screen
	report, err := judge(ctx, p.servers, p.shop, 1)
	if err != nil {
		return false, err
	}
	s.stage("The account: every row that SELECT finds against every message in the topics of %s", p.servers.kafka)
	lines, kept := account(s, report, p.shop)
	s.print(lines...)
	if bytes, ok := p.relay.peakMemory(); ok {
		s.print(fmt.Sprintf("  %-22s%4d MiB   %s", "memory of the relay", bytes>>20, s.paint(dim, "at its peak (VmHWM), since the restart")))
	}

	s.stage("Where to look")
	// The stored checkpoint follows the last acknowledgement within a second.
	if err := pause(ctx, 1100*time.Millisecond); err != nil {
		return kept, err
	}
	if err := pages(ctx, s, p.daemon); err != nil {
		return kept, err
	}
	if p.stay {
		s.print("", fmt.Sprintf("Everything still runs: MySQL %s (user root, no password), Kafka %s. Ctrl-C ends it.", p.servers.mysql.Addr(), p.servers.brokers[0]))
		select {
		case <-ctx.Done():
		case <-p.relay.ended:
		}
	}
	took, err := p.relay.stop()
	if err != nil {
		return kept, err
	}
	s.print("")
	s.note("SIGTERM: the relay saved its checkpoint and exited 0 after %.2f s", took.Seconds())
	return kept, nil
}

// pause waits, or gives the context's error.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
