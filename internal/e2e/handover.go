package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
	status "outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// HandoverOptions configure [Handover]. MySQL, Kafka (started with [HandoverKafka]), Builder and Rounds are required.
type HandoverOptions struct {
	MySQL   *sandbox.MySQL
	Kafka   *sandbox.Kafka
	Builder *Builder
	Build   Build
	Rounds  int
	// Seed decides which faults are made, to which relay and for how long.
	Seed uint64
	// Load of the zero value means 100 transactions per second.
	Load Load
	// ExactlyOnce runs both relays with kafka.delivery: exactly-once, KafkaStore with the checkpoint in Kafka. Without both it is on the source.
	ExactlyOnce, KafkaStore bool
	// Only are the names of the faults to choose from; empty means all.
	Only []string
	// Longest bounds how long a fault lasts. 0 means 30 s.
	Longest time.Duration
	// Progress gets a line for each round.
	Progress func(string)
}

// HandoverKafka is a broker with a way of its own for each of the two relays.
var HandoverKafka = sandbox.KafkaOptions{Listeners: map[string]sandbox.KafkaListener{wayNames[0]: {Proxied: true}, wayNames[1]: {Proxied: true}}}

var wayNames = [2]string{"ONE", "TWO"}

// ways are the links of one relay.
type ways struct{ mysql, kafka *sandbox.Proxy }

// handoverFault disturbs one of the relays and undoes it before it returns. It calls begun right after the relay is disturbed.
type handoverFault struct {
	name string
	make func(ctx context.Context, r *handoverRun, victim int, random *rand.Rand, begun func()) error
	// moves tells whether the other relay is to take over when the fault lasts for long enough.
	moves bool
}

var handoverFaults = []handoverFault{
	{"kill", handoverKill, true},
	{"restart", handoverRestart, true},
	{"freeze", handoverFreeze, true},
	{"mysql-cut", link(cutOff, admit, mysqlOf), true},
	{"mysql-stall", link((*sandbox.Proxy).Freeze, (*sandbox.Proxy).Thaw, mysqlOf), true},
	{"kafka-cut", link(cutOff, admit, kafkaOf), false},
	{"kafka-stall", link((*sandbox.Proxy).Freeze, (*sandbox.Proxy).Thaw, kafkaOf), false},
	{"both-cut", link(cutOff, admit, mysqlOf, kafkaOf), true},
	{"both-stall", link((*sandbox.Proxy).Freeze, (*sandbox.Proxy).Thaw, mysqlOf, kafkaOf), true},
}

func cutOff(p *sandbox.Proxy)          { refuse(p) }
func mysqlOf(w ways) *sandbox.Proxy    { return w.mysql }
func kafkaOf(w ways) *sandbox.Proxy    { return w.kafka }
func (r *handoverRun) other(i int) int { return 1 - i }

// length is how long a fault lasts: as often short as long.
func (r *handoverRun) length(random *rand.Rand) time.Duration {
	longest := r.o.Longest
	if random.IntN(2) == 0 {
		longest = min(longest, 6*time.Second)
	}
	return within(random, min(time.Second, longest/2), longest)
}

func handoverKill(ctx context.Context, r *handoverRun, victim int, random *rand.Rand, begun func()) error {
	begun()
	r.crew.kill(victim)
	if err := pause(ctx, time.Duration(random.IntN(2))*within(random, 1, 5*time.Second)); err != nil { // as often at once
		return err
	}
	return r.crew.start(ctx, victim)
}

func handoverRestart(ctx context.Context, r *handoverRun, victim int, random *rand.Rand, begun func()) error {
	begun()
	if err := r.crew.stop(ctx, victim); err != nil {
		return err
	}
	if err := pause(ctx, time.Duration(random.IntN(2))*within(random, 1, 5*time.Second)); err != nil {
		return err
	}
	return r.crew.start(ctx, victim)
}

func handoverFreeze(ctx context.Context, r *handoverRun, victim int, random *rand.Rand, begun func()) error {
	relay := r.crew.at(victim, false)
	relay.Freeze()
	defer relay.Thaw()
	begun()
	return pause(ctx, r.length(random))
}

func link(do, undo func(*sandbox.Proxy), links ...func(ways) *sandbox.Proxy) func(context.Context, *handoverRun, int, *rand.Rand, func()) error {
	return func(ctx context.Context, r *handoverRun, victim int, random *rand.Rand, begun func()) error {
		all := func(f func(*sandbox.Proxy)) func() error {
			return func() error {
				for _, of := range links {
					f(of(r.ways[victim]))
				}
				return nil
			}
		}
		begin := func() error { err := all(do)(); begun(); return err }
		return hold(ctx, r.length(random), begin, all(undo))
	}
}

// handoverRun is a campaign under way.
type handoverRun struct {
	o     HandoverOptions
	site  *Site
	ways  [2]ways
	crew  *crew
	load  *Running
	watch *twoActive
	res   *HandoverResult
	// token is the fencing token that the checkpoint had at the end of the round before: one for each session.
	token uint64
	// aborted is how many sessions had lost their transaction by then.
	aborted int
}

// Handover disturbs one of two relays of a name at a time, under load, and judges every row and every change of roles. The relays share a store and
// reach the servers by ways of their own.
func Handover(ctx context.Context, o HandoverOptions) (*HandoverResult, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Load == (Load{}) {
		o.Load = Load{Rate: 100, MaxRows: 20, Skewed: true}
	}
	if o.Longest == 0 {
		o.Longest = 30 * time.Second
	}
	o.Load.Seed = o.Seed
	r := &handoverRun{o: o, res: &HandoverResult{Seed: o.Seed, Rounds: o.Rounds, ExactlyOnce: o.ExactlyOnce, begin: time.Now()}}
	defer r.close()
	if err := r.run(ctx); err != nil {
		if r.site != nil {
			r.site.Keep()
			err = fmt.Errorf("seed %d: %w\nlogs are in %s", o.Seed, err, r.site.Dir)
		}
		return nil, err
	}
	if r.res.Err() != nil {
		r.site.Keep()
		r.res.Folder = r.site.Dir
	}
	return r.res, nil
}

func (r *handoverRun) close() {
	if r.site != nil {
		_ = r.site.Close() // what it cannot remove is in the temporary folder
	}
	for _, w := range r.ways {
		if w.mysql != nil {
			_ = w.mysql.Close()
		}
	}
}

func (r *handoverRun) open(ctx context.Context, fail context.CancelCauseFunc) (err error) {
	broker := r.o.Kafka.Broker(1)
	for i, name := range wayNames {
		if r.ways[i].mysql, err = sandbox.NewProxy(r.o.MySQL.Addr()); err != nil {
			return err
		}
		r.ways[i].kafka = broker.ListenerProxy(name)
	}
	so := SiteOptions{MySQL: r.o.MySQL, Kafka: r.o.Kafka, Builder: r.o.Builder, Label: "handover", ExactlyOnce: r.o.ExactlyOnce, KafkaStore: r.o.KafkaStore}
	so.MySQLStore = !r.o.ExactlyOnce && !r.o.KafkaStore
	if r.site, err = NewSite(ctx, so); err != nil {
		return err
	}
	options := func(i int) RelayOptions {
		return RelayOptions{Build: r.o.Build, Source: r.ways[i].mysql.Addr(), Brokers: r.o.Kafka.ListenerAddrs(wayNames[i])}
	}
	r.crew, err = newCrew(ctx, r.site, options, 2, r.o.Seed, fail)
	return err
}

func (r *handoverRun) run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	err := r.open(ctx, fail)
	if err != nil {
		return err
	}
	if r.load, err = r.site.StartLoad(r.o.Load); err != nil {
		return err
	}
	defer r.load.Stop()
	r.watch = watchRoles(ctx, r.crew)
	defer r.watch.stop()
	err = r.rounds(ctx)
	stats := r.load.Stop()
	if err == nil {
		err = r.settle(ctx)
	}
	r.watch.stop()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if err = errors.Join(err, stats.Err); err != nil {
		r.crew.abort()
		return err
	}
	if err := r.crew.stopAll(ctx); err != nil {
		return err
	}
	if err := r.last(ctx); err != nil {
		return err
	}
	if err := r.site.Check(); err != nil {
		return err
	}
	return r.judge(ctx)
}

func (r *handoverRun) rounds(ctx context.Context) error {
	plan := rand.New(rand.NewPCG(r.o.Seed, 5))
	faults := slices.DeleteFunc(slices.Clone(handoverFaults), func(f handoverFault) bool { return len(r.o.Only) > 0 && !slices.Contains(r.o.Only, f.name) })
	if len(faults) == 0 {
		return fmt.Errorf("there is no fault %q", r.o.Only)
	}
	if err := r.settle(ctx); err != nil {
		return err
	}
	var err error
	if r.token, err = r.sessions(); err != nil {
		return err
	}
	for round := 1; round <= r.o.Rounds; round++ {
		f, onStandby := faults[plan.IntN(len(faults))], plan.IntN(4) == 0
		random, rest := rand.New(rand.NewPCG(plan.Uint64(), 0)), within(plan, 1, time.Second)
		x, err := r.disturb(ctx, f, onStandby, random)
		if err != nil {
			return fmt.Errorf("round %d, %s: %w", round, f.name, err)
		}
		r.res.Handovers = append(r.res.Handovers, x)
		r.o.Progress(fmt.Sprintf("round %d: %v", round, x))
		if err := pause(ctx, rest); err != nil {
			return err
		}
	}
	return nil
}

// disturb makes one fault and waits until all is whole again.
func (r *handoverRun) disturb(ctx context.Context, f handoverFault, onStandby bool, random *rand.Rand) (x Disturbance, err error) {
	x = Disturbance{Fault: f.name, OnStandby: onStandby}
	victim := r.crew.active(ctx)
	if onStandby {
		victim = r.other(victim)
	}
	other := r.other(victim)
	begin := make(chan time.Time, 1)
	took := make(chan time.Duration, 1)
	looking, stop := context.WithCancel(ctx)
	go func() { // ends with stop
		defer close(took)
		var from time.Time
		select {
		case from = <-begin:
		case <-looking.Done():
			return
		}
		for pause(looking, 10*time.Millisecond) == nil {
			st, err := r.crew.at(other, false).Status(looking)
			if err == nil && st.LastAckedAt.After(from) {
				took <- st.LastAckedAt.Sub(from)
				return
			}
		}
	}()
	from := time.Now()
	err = f.make(ctx, r, victim, random, func() { begin <- time.Now() })
	x.Lasted = time.Since(from)
	if err == nil {
		err = r.settle(ctx)
	}
	x.Healed = time.Since(from) - x.Lasted
	stop()
	if d, ok := <-took; ok && !onStandby {
		x.Takeover, x.Took = true, d
	}
	if err != nil {
		return x, err
	}
	token, err := r.sessions()
	lost := r.lost()
	x.Sessions, x.Lost = int(token-r.token), lost-r.aborted
	r.token, r.aborted = token, lost
	return x, err
}

// lost is how often a session lost its transaction and began again, in the same instance.
func (r *handoverRun) lost() (n int) {
	for _, relay := range r.site.all() {
		n += strings.Count(relay.Log(), `msg="starting over from the last checkpoint`)
	}
	return n
}

// sessions is how many sessions there were: each stores a token of its own.
func (r *handoverRun) sessions() (uint64, error) {
	c, err := r.crew.at(0, false).Checkpoint()
	if err != nil {
		return 0, fmt.Errorf("reading the checkpoint: %w", err)
	}
	return c.FencingToken, nil
}

// last publishes what came after the last look at the checkpoint.
func (r *handoverRun) last(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recoveryTime)
	defer cancel()
	relay, err := r.site.Start(ctx, RelayOptions{Build: r.o.Build, Args: []string{"--until-caught-up"}})
	if err != nil {
		return err
	}
	code, err := relay.WaitExit(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("the last relay ended with code %d; the end of its log:\n%s", code, relay.LogTail(20))
	}
	return err
}

// settle waits until one relay is active, the other stands by, both are ready, and all that is committed by now is published and saved.
func (r *handoverRun) settle(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, recoveryTime)
	defer cancel()
	executed, err := r.site.Executed(limited)
	if err != nil {
		return err
	}
	// A checkpoint on the source lacks the transaction that wrote it until there is a reason for the next one.
	if err := r.site.Insert(limited, Row{Kind: "order", Key: "settled"}); err != nil {
		return err
	}
	var last [2]status.Status
	err = poll(limited, func() (bool, error) {
		active := -1
		for i := range last {
			st, err := r.crew.at(i, false).Status(limited)
			if err == nil {
				last[i] = st
			}
			if err != nil || !st.Ready {
				return false, nil
			}
			if st.Role == status.RoleActive && st.LeaseHeld {
				active = i
			}
		}
		if active < 0 || last[r.other(active)].Role != status.RoleStandby {
			return false, nil
		}
		stored, err := gtid.ParseSet(last[active].Checkpoint.GTIDSet)
		return err == nil && stored.ContainsSet(executed), nil
	})
	if err != nil {
		err = fmt.Errorf("%v after the fault the two are not whole again: %w; they say %+v", recoveryTime, err, last)
	}
	return err
}

func (r *handoverRun) judge(ctx context.Context) error {
	res := r.res
	res.Load, res.Elapsed = r.load.Stats(), time.Since(res.begin)
	res.Both, res.Overlaps, res.Polls = r.watch.both, r.watch.overlaps, r.watch.polls
	token, err := r.sessions()
	if err != nil {
		return err
	}
	res.Sessions = int(token)
	res.Aborted = r.lost()
	o := relaytest.Options{ByProducer: true, Restarts: res.Sessions - 1, Examples: 20}
	if r.o.ExactlyOnce {
		o = relaytest.Options{Examples: 20}
	}
	res.Report, err = r.site.Judge(ctx, o)
	return err
}
