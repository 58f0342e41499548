package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/internal/sandbox"
)

// Groups of faults. Two faults at the same time are of two groups, so that each knows what it finds.
const (
	groupRelay  = "relay"
	groupBroker = "broker"
	groupLinks  = "links" // between the relay and the brokers
	groupSource = "source"
	groupAdmin  = "admin" // what operators of Kafka do
)

// chaosFault is one way to disturb. It undoes itself before it returns.
type chaosFault struct {
	name, group string
	make        func(ctx context.Context, r *chaosRun, random *rand.Rand) error
}

// errRefused is returned by an operation that the servers did not take, which can be the work of another fault.
var errRefused = errors.New("refused")

var chaosFaults = []chaosFault{
	{"relay-kill", groupRelay, relayKill},
	{"relay-stop", groupRelay, relayStop},
	{"relay-freeze", groupRelay, relayFreeze(200*time.Millisecond, 4*time.Second)},
	{"relay-freeze-beyond-lease", groupRelay, relayFreeze(11*time.Second, 16*time.Second)},

	{"broker-kill", groupBroker, brokersKill(1)},
	{"broker-restart", groupBroker, brokerRestart},
	{"broker-freeze", groupBroker, brokersFreeze(1, 500*time.Millisecond, 4*time.Second)},
	{"broker-freeze-beyond-session", groupBroker, brokersFreeze(1, 8*time.Second, 14*time.Second)},
	{"two-brokers-kill", groupBroker, brokersKill(2)},
	{"two-brokers-freeze", groupBroker, brokersFreeze(2, 3*time.Second, 12*time.Second)},
	{"all-brokers-kill", groupBroker, brokersKill(3)},
	{"too-few-in-sync", groupBroker, tooFewInSync},

	{"links-cut", groupLinks, linksCut},
	{"links-stall", groupLinks, linksFor(time.Second, 9*time.Second, (*sandbox.Proxy).Freeze, (*sandbox.Proxy).Thaw)},
	{"links-refused", groupLinks, linksFor(500*time.Millisecond, 6*time.Second, refuse, admit)},
	{"links-slow", groupLinks, linksSlow},
	{"answers-lost", groupLinks, answersLost},

	{"mysql-kill", groupSource, mysqlKill},
	{"mysql-restart", groupSource, mysqlRestart},
	{"mysql-freeze", groupSource, mysqlFreeze},
	{"source-cut", groupSource, sourceCut},
	{"source-cut-in-transaction", groupSource, sourceCutAfter},
	{"source-stall", groupSource, sourceFor(time.Second, 9*time.Second, (*sandbox.Proxy).Freeze, (*sandbox.Proxy).Thaw)},
	{"source-refused", groupSource, sourceFor(500*time.Millisecond, 6*time.Second, refuse, admit)},
	{"source-slow", groupSource, sourceSlow},
	{"source-connections-killed", groupSource, connectionsKilled},
	{"binlog-rotation", groupSource, rotate},

	{"leaders-moved", groupAdmin, leadersMoved},
	{"replicas-moved", groupAdmin, replicasMoved},
	{"partitions-added", groupAdmin, partitionsAdded},
	{"throttled", groupAdmin, throttled},
}

// within gives a random time.
func within(random *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(random.Int64N(int64(to-from)))
}

// hold does something, and undoes it after a random time or with the end of ctx.
func hold(ctx context.Context, length time.Duration, do, undo func() error) error {
	if err := do(); err != nil {
		return errors.Join(err, undo())
	}
	return errors.Join(pause(ctx, length), undo())
}

func relayKill(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	i := r.crew.active(ctx)
	for again := true; again; again = random.IntN(3) == 0 { // also while it starts
		r.crew.kill(i)
		if err := pause(ctx, time.Duration(random.IntN(2))*within(random, 1, 2*time.Second)); err != nil {
			return err
		}
		if err := r.crew.start(ctx, i); err != nil {
			return err
		}
		if err := pause(ctx, lifetime(random)); err != nil {
			return err
		}
	}
	return nil
}

func relayStop(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	i := r.crew.active(ctx)
	if err := r.crew.stop(ctx, i); err != nil {
		return err
	}
	if err := pause(ctx, within(random, 1, time.Second)); err != nil {
		return err
	}
	return r.crew.start(ctx, i)
}

func relayFreeze(from, to time.Duration) func(context.Context, *chaosRun, *rand.Rand) error {
	return func(ctx context.Context, r *chaosRun, random *rand.Rand) error {
		relay := r.crew.at(r.crew.active(ctx), false)
		relay.Freeze()
		defer relay.Thaw()
		return pause(ctx, within(random, from, to))
	}
}

// brokers gives n of them.
func (r *chaosRun) brokers(random *rand.Rand, n int) []*sandbox.Broker {
	var list []*sandbox.Broker
	for _, i := range random.Perm(len(r.o.Kafka.Addrs()))[:n] {
		list = append(list, r.o.Kafka.Broker(i+1))
	}
	return list
}

func brokersKill(n int) func(context.Context, *chaosRun, *rand.Rand) error {
	return func(ctx context.Context, r *chaosRun, random *rand.Rand) error {
		for _, b := range r.brokers(random, n) {
			if err := b.Kill(); err != nil {
				return err
			}
			if err := pause(ctx, within(random, 1, 500*time.Millisecond)); err != nil {
				return err
			}
		}
		if err := pause(ctx, within(random, 1, 3*time.Second)); err != nil {
			return err
		}
		return r.o.Kafka.Start(ctx)
	}
}

func brokerRestart(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	return r.brokers(random, 1)[0].Restart(ctx)
}

func brokersFreeze(n int, from, to time.Duration) func(context.Context, *chaosRun, *rand.Rand) error {
	return func(ctx context.Context, r *chaosRun, random *rand.Rand) error {
		brokers := r.brokers(random, n)
		freeze := func() (err error) {
			for _, b := range brokers {
				err = errors.Join(err, b.Pause())
			}
			return err
		}
		thaw := func() (err error) {
			for _, b := range brokers {
				err = errors.Join(err, b.Resume())
			}
			return err
		}
		return hold(ctx, within(random, from, to), freeze, thaw)
	}
}

// tooFewInSync demands three replicas in sync while one of three is frozen.
func tooFewInSync(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	set := func(n int) error {
		return r.persist(ctx, func(admin sarama.ClusterAdmin) error {
			value := strconv.Itoa(n)
			entry := map[string]sarama.IncrementalAlterConfigsEntry{"min.insync.replicas": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}
			for _, topic := range r.site.Topics() {
				if err := admin.IncrementalAlterConfig(sarama.TopicResource, topic, entry, false); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := set(3); err != nil {
		return errors.Join(err, set(2))
	}
	return errors.Join(brokersFreeze(1, 8*time.Second, 12*time.Second)(ctx, r, random), set(2))
}

// links gives the proxies before one broker or all.
func (r *chaosRun) links(random *rand.Rand) []*sandbox.Proxy {
	n := 1
	if random.IntN(2) == 0 {
		n = len(r.o.Kafka.Addrs())
	}
	var list []*sandbox.Proxy
	for _, b := range r.brokers(random, n) {
		list = append(list, b.Proxy())
	}
	return list
}

func linksCut(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	for range 1 + random.IntN(10) {
		for _, p := range r.links(random) {
			p.Cut()
		}
		if err := pause(ctx, within(random, 1, 500*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

func refuse(p *sandbox.Proxy) { p.Refuse(true); p.Cut() }
func admit(p *sandbox.Proxy)  { p.Refuse(false) }

func linksFor(from, to time.Duration, do, undo func(*sandbox.Proxy)) func(context.Context, *chaosRun, *rand.Rand) error {
	return func(ctx context.Context, r *chaosRun, random *rand.Rand) error {
		links := r.links(random)
		all := func(f func(*sandbox.Proxy)) func() error {
			return func() error {
				for _, p := range links {
					f(p)
				}
				return nil
			}
		}
		return hold(ctx, within(random, from, to), all(do), all(undo))
	}
}

func linksSlow(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	delay := within(random, 5*time.Millisecond, 400*time.Millisecond)
	return linksFor(2*time.Second, 8*time.Second, func(p *sandbox.Proxy) { p.Delay(delay) }, func(p *sandbox.Proxy) { p.Delay(0) })(ctx, r, random)
}

// answersLost has brokers take requests and nobody hear of it, again and again.
func answersLost(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	for range 1 + random.IntN(8) {
		err := linksFor(30*time.Millisecond, 1200*time.Millisecond, (*sandbox.Proxy).Mute, (*sandbox.Proxy).Unmute)(ctx, r, random)
		if err = errors.Join(err, pause(ctx, within(random, 1, 800*time.Millisecond))); err != nil {
			return err
		}
	}
	return nil
}

func mysqlKill(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	if err := r.o.MySQL.Kill(); err != nil {
		return err
	}
	if err := pause(ctx, within(random, 1, 2*time.Second)); err != nil {
		return err
	}
	return r.o.MySQL.Start(ctx)
}

func mysqlRestart(ctx context.Context, r *chaosRun, _ *rand.Rand) error {
	return r.o.MySQL.Restart(ctx)
}

func mysqlFreeze(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	return hold(ctx, within(random, 500*time.Millisecond, 12*time.Second), r.o.MySQL.Pause, r.o.MySQL.Resume)
}

func sourceCut(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	for range 1 + random.IntN(5) {
		r.source.Cut()
		if err := pause(ctx, within(random, 1, time.Second)); err != nil {
			return err
		}
	}
	return nil
}

// sourceCutAfter cuts after a number of bytes, most of the time in the middle of a transaction. A relay that does not read is not cut.
func sourceCutAfter(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	for range 1 + random.IntN(5) {
		select {
		case <-r.source.CutAfter(1 + random.Int64N(300_000)):
		case <-time.After(5 * time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func sourceFor(from, to time.Duration, do, undo func(*sandbox.Proxy)) func(context.Context, *chaosRun, *rand.Rand) error {
	return func(ctx context.Context, r *chaosRun, random *rand.Rand) error {
		one := func(f func(*sandbox.Proxy)) func() error { return func() error { f(r.source); return nil } }
		return hold(ctx, within(random, from, to), one(do), one(undo))
	}
}

func sourceSlow(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	delay := within(random, 5*time.Millisecond, 400*time.Millisecond)
	return sourceFor(2*time.Second, 8*time.Second, func(p *sandbox.Proxy) { p.Delay(delay) }, func(p *sandbox.Proxy) { p.Delay(0) })(ctx, r, random)
}

// connectionsKilled has the server end some or all connections of the relay: those that read, those that hold the lock.
func connectionsKilled(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	for range 1 + random.IntN(6) {
		var list sql.NullString
		if err := r.site.DB.QueryRowContext(ctx, "SELECT GROUP_CONCAT(ID) FROM information_schema.PROCESSLIST WHERE USER = ?", r.site.Database()).Scan(&list); err != nil {
			return err
		}
		for id := range strings.SplitSeq(list.String, ",") {
			if random.IntN(2) == 0 {
				_, _ = r.site.DB.ExecContext(ctx, "KILL "+id) // it may have ended
			}
		}
		if err := pause(ctx, within(random, 1, 1500*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

// rotate begins new binlogs, and removes those that no restart needs any more.
func rotate(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	for range 1 + random.IntN(5) {
		if _, err := r.site.DB.ExecContext(ctx, "FLUSH BINARY LOGS"); err != nil {
			return err
		}
		if err := pause(ctx, within(random, 1, 500*time.Millisecond)); err != nil {
			return err
		}
	}
	if c, err := r.crew.at(0, false).Checkpoint(); err == nil && !r.o.ExactlyOnce && c.BinlogFile != "" {
		_, err := r.site.DB.ExecContext(ctx, "PURGE BINARY LOGS TO '"+c.BinlogFile+"'")
		return err
	}
	return nil
}

// operate asks Kafka to change something. What it does not do counts as refused.
func (r *chaosRun) operate(f func(sarama.ClusterAdmin) error) error {
	admin, err := r.o.Kafka.Admin()
	if err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	defer admin.Close()
	if err := f(admin); err != nil {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return nil
}

// persist repeats an operation until it is done, since what follows rests on it. The end of ctx alone does not end it at once: it also undoes.
func (r *chaosRun) persist(ctx context.Context, f func(sarama.ClusterAdmin) error) error {
	for deadline := time.Now().Add(recoveryTime); ; {
		err := r.operate(f)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		_ = pause(ctx, 200*time.Millisecond)
	}
}

// permuted gives each partition of a topic a random order of its brokers, of which the first is the preferred leader.
func (r *chaosRun) permuted(topic string, random *rand.Rand, replicas int) [][]int32 {
	var assignment [][]int32
	for range r.partitions(topic) {
		var brokers []int32
		for _, i := range random.Perm(len(r.o.Kafka.Addrs()))[:replicas] {
			brokers = append(brokers, int32(i+1))
		}
		assignment = append(assignment, brokers)
	}
	return assignment
}

func leadersMoved(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	for range 1 + random.IntN(3) {
		for _, topic := range r.site.Topics() {
			assignment := r.permuted(topic, random, len(r.o.Kafka.Addrs()))
			err := r.operate(func(admin sarama.ClusterAdmin) error {
				if err := admin.AlterPartitionReassignments(topic, assignment); err != nil {
					return err
				}
				var all []int32
				for p := range assignment {
					all = append(all, int32(p))
				}
				_, err := admin.ElectLeaders(sarama.PreferredElection, map[string][]int32{topic: all})
				return err
			})
			if err != nil {
				return err
			}
		}
		if err := pause(ctx, within(random, 1, 2*time.Second)); err != nil {
			return err
		}
	}
	return nil
}

// replicasMoved takes a replica from each partition of a topic and gives it back.
func replicasMoved(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	topics := r.site.Topics()
	topic := topics[random.IntN(len(topics))]
	all := len(r.o.Kafka.Addrs())
	fewer, full := r.permuted(topic, random, all-1), r.permuted(topic, random, all)
	err := r.operate(func(admin sarama.ClusterAdmin) error { return admin.AlterPartitionReassignments(topic, fewer) })
	err = errors.Join(err, pause(ctx, within(random, time.Second, 4*time.Second)))
	return errors.Join(err, r.persist(ctx, func(admin sarama.ClusterAdmin) error { return admin.AlterPartitionReassignments(topic, full) }))
}

// mostPartitions is how far the topic that grows grows.
const mostPartitions = 16

func partitionsAdded(_ context.Context, r *chaosRun, random *rand.Rand) error {
	topic := r.growing()
	n := r.partitions(topic) + 1 + random.IntN(2)
	if n > mostPartitions {
		return errRefused
	}
	r.grow(n)
	return r.operate(func(admin sarama.ClusterAdmin) error { return admin.CreatePartitions(topic, int32(n), nil, false) })
}

// throttled gives all producers a quota that is far below what the load needs.
func throttled(ctx context.Context, r *chaosRun, random *rand.Rand) error {
	entity := []sarama.QuotaEntityComponent{{EntityType: sarama.QuotaEntityClientID, MatchType: sarama.QuotaMatchDefault}}
	quota := func(op sarama.ClientQuotasOp) func(sarama.ClusterAdmin) error {
		return func(admin sarama.ClusterAdmin) error { return admin.AlterClientQuotas(entity, op, false) }
	}
	rate := float64(2_000 + random.IntN(30_000))
	err := r.operate(quota(sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: rate}))
	err = errors.Join(err, pause(ctx, within(random, 3*time.Second, 9*time.Second)))
	return errors.Join(err, r.persist(ctx, quota(sarama.ClientQuotasOp{Key: "producer_byte_rate", Remove: true})))
}
