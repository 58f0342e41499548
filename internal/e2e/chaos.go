package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
)

// ChaosOptions configure [Chaos]. MySQL, Kafka (three brokers behind proxies), Builder and one of Duration and Rounds are required; the
// servers are killed and frozen.
type ChaosOptions struct {
	MySQL   *sandbox.MySQL
	Kafka   *sandbox.Kafka
	Builder *Builder
	Build   Build
	// Duration ends the campaign with the round of faults that is under way then, Rounds after so many. 0 means no such end.
	Duration time.Duration
	Rounds   int
	// Seed decides which faults are made, in which order and for how long.
	Seed uint64
	// Load of the zero value means transactions of 1 to 200 rows and some of 3,000, with hot keys and foreign rows.
	Load Load
	// ExactlyOnce runs the relay with kafka.delivery: exactly-once and demands that no row comes twice.
	ExactlyOnce bool
	// MySQLStore keeps the checkpoint on the source.
	MySQLStore bool
	// Standby runs a second relay of the same name.
	Standby bool
	// Only are the names of the faults to choose from; empty means all.
	Only []string
	// Progress gets a line for each round.
	Progress func(string)
}

// ChaosKafka is the cluster that a campaign needs: proxies before its brokers, and small heaps so that three fit beside the rest.
var ChaosKafka = sandbox.KafkaOptions{Brokers: 3, Proxied: true, JVMFlags: []string{"-Xms96m", "-Xmx288m"}}

// chaosLoad is what the order service does unless it is told otherwise.
var chaosLoad = Load{Rate: 60, Keys: 300, MaxRows: 200, Skewed: true, LargeEvery: 400, LargeRows: 3000, HotShare: 20, ForeignRows: 5}

// chaosRun is a campaign under way.
type chaosRun struct {
	o        ChaosOptions
	site     *Site
	source   *sandbox.Proxy // before MySQL
	crew     *crew
	timeline *timeline
	sampler  *sampler
	load     *Running
	faults   []chaosFault

	mu     sync.Mutex
	grown  int // partitions of the topic that grows; 0 means that it has not
	counts map[string]*chaosCount
}

// chaosCount is how often a fault was made, and how often the servers did not take it.
type chaosCount struct{ made, refused int }

// Chaos disturbs everything at random, one or two faults at a time, while the relay publishes under load, and judges every row. The same seed
// gives the same faults in the same order. When the campaign fails, its error or the result name a folder with all that is known of it.
func Chaos(ctx context.Context, o ChaosOptions) (*ChaosResult, error) {
	r, err := newChaos(ctx, o)
	if err != nil {
		return nil, err
	}
	defer r.source.Close()
	defer r.site.Close()
	res, err := r.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("seed %d: %w\nwhat is known of it is in %s", o.Seed, err, r.record(ctx, err.Error(), false))
	}
	if err := res.Err(); err != nil {
		res.Folder = r.record(ctx, res.String()+"\n"+err.Error(), true)
	}
	return res, nil
}

func newChaos(ctx context.Context, o ChaosOptions) (*chaosRun, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Load == (Load{}) {
		o.Load = chaosLoad
	}
	o.Load.Seed = o.Seed
	r := &chaosRun{o: o, timeline: &timeline{begin: time.Now()}, counts: map[string]*chaosCount{}}
	for _, f := range chaosFaults {
		if len(o.Only) == 0 || slices.Contains(o.Only, f.name) {
			r.faults = append(r.faults, f)
			r.counts[f.name] = &chaosCount{}
		}
	}
	for _, name := range o.Only {
		if r.counts[name] == nil {
			return nil, fmt.Errorf("there is no fault %q", name)
		}
	}
	if o.Duration <= 0 && o.Rounds <= 0 {
		return nil, errors.New("a campaign without an end")
	}
	var err error
	if r.source, err = sandbox.NewProxy(o.MySQL.Addr()); err != nil {
		return nil, err
	}
	so := SiteOptions{MySQL: o.MySQL, Kafka: o.Kafka, Builder: o.Builder, Label: "chaos", Source: r.source.Addr(), MySQLStore: o.MySQLStore, ExactlyOnce: o.ExactlyOnce}
	if r.site, err = NewSite(ctx, so); err != nil {
		return nil, errors.Join(err, r.source.Close())
	}
	// Brokers tell when they appended to the topic that grows: its keys move, and times tell their order over partitions.
	value := "LogAppendTime"
	entry := map[string]sarama.IncrementalAlterConfigsEntry{"message.timestamp.type": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value}}
	err = r.persist(ctx, func(admin sarama.ClusterAdmin) error {
		return admin.IncrementalAlterConfig(sarama.TopicResource, r.growing(), entry, false)
	})
	if err != nil {
		return nil, errors.Join(err, r.site.Close(), r.source.Close())
	}
	return r, nil
}

func (r *chaosRun) run(ctx context.Context) (*ChaosResult, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	size := 1
	if r.o.Standby {
		size = 2
	}
	var err error
	if r.crew, err = newCrew(ctx, r.site, func(int) RelayOptions { return RelayOptions{Build: r.o.Build} }, size, r.o.Seed, fail); err != nil {
		return nil, err
	}
	if r.load, err = r.site.StartLoad(r.o.Load); err != nil {
		return nil, err
	}
	defer r.load.Stop()
	r.sampler = &sampler{run: r}
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	var watchers sync.WaitGroup
	watchers.Go(func() { r.timeline.watch(watching, r.crew) }) // both end with stopWatching
	watchers.Go(func() { r.sampler.watch(watching) })

	if err = r.rounds(ctx); err == nil {
		r.load.Stop()
		err = r.settle(ctx)
	}
	stopWatching()
	watchers.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	if stats := r.load.Stop(); err == nil {
		err = stats.Err
	}
	if err != nil {
		r.crew.abort()
		return nil, err
	}
	if err := r.crew.stopAll(ctx); err != nil {
		return nil, err
	}
	if err := r.site.Check(); err != nil {
		return nil, err
	}
	return r.judge(ctx)
}

// rounds makes faults until the campaign's end.
func (r *chaosRun) rounds(ctx context.Context) error {
	plan := rand.New(rand.NewPCG(r.o.Seed, 3))
	for round := 1; (r.o.Rounds == 0 || round <= r.o.Rounds) && (r.o.Duration == 0 || time.Since(r.timeline.begin) < r.o.Duration); round++ {
		var names []string
		var work sync.WaitGroup
		errs := make([]error, 2)
		for i, f := range r.choose(plan) {
			names = append(names, f.name)
			random, wait := rand.New(rand.NewPCG(plan.Uint64(), 0)), time.Duration(i)*within(plan, 1, 2*time.Second)
			work.Go(func() { errs[i] = r.disturb(ctx, f, random, wait) }) // ends with the fault
		}
		rest, whole := within(plan, 1, 2*time.Second), plan.IntN(3) == 0
		begin := time.Now()
		work.Wait()
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		line := fmt.Sprintf("round %d: %s, %.1f s", round, strings.Join(names, " + "), time.Since(begin).Seconds())
		if whole {
			begin = time.Now()
			if err := r.settle(ctx); err != nil {
				return fmt.Errorf("round %d, %s: %w", round, strings.Join(names, " + "), err)
			}
			line += fmt.Sprintf(", all published and in sync %.1f s later", time.Since(begin).Seconds())
		}
		r.o.Progress(line)
		if err := pause(ctx, rest); err != nil {
			return err
		}
	}
	return nil
}

// choose takes one fault, or as often two of different groups.
func (r *chaosRun) choose(plan *rand.Rand) []chaosFault {
	one := r.faults[plan.IntN(len(r.faults))]
	others := slices.DeleteFunc(slices.Clone(r.faults), func(f chaosFault) bool { return f.group == one.group })
	if plan.IntN(2) == 0 || len(others) == 0 {
		return []chaosFault{one}
	}
	return []chaosFault{one, others[plan.IntN(len(others))]}
}

func (r *chaosRun) disturb(ctx context.Context, f chaosFault, random *rand.Rand, wait time.Duration) error {
	if err := pause(ctx, wait); err != nil {
		return err
	}
	s := r.timeline.start(f.name, f.group)
	err := f.make(ctx, r, random)
	r.timeline.end(s)
	r.mu.Lock()
	defer r.mu.Unlock()
	count := r.counts[f.name]
	count.made++
	if errors.Is(err, errRefused) {
		count.refused++
		err = nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

// settleTime bounds how long everything may need to be whole again. It is wide: how long it took is reported.
const settleTime = 4 * time.Minute

// settle waits until all that is committed by now is published and saved, and all replicas are in sync.
func (r *chaosRun) settle(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	executed, err := r.site.Executed(limited)
	if err != nil {
		return err
	}
	var last *gtid.Set
	err = poll(limited, func() (bool, error) {
		stored, err := r.stored(limited)
		if err != nil {
			return false, nil
		}
		last = stored
		return stored.ContainsSet(executed), nil
	})
	if err != nil {
		return fmt.Errorf("%v after the last fault the checkpoint does not contain %s: %w; it has %v", settleTime, executed, err, last)
	}
	for _, topic := range r.site.Topics() {
		if err := r.o.Kafka.WaitInSync(limited, topic); err != nil {
			return err
		}
	}
	return nil
}

// stored is the stored position: what a restart would read, or where only the relay can read it, what it says.
func (r *chaosRun) stored(ctx context.Context) (*gtid.Set, error) {
	relay := r.crew.at(r.crew.active(ctx), false)
	if r.o.ExactlyOnce {
		st, err := relay.Status(ctx)
		if err == nil && st.Checkpoint.GTIDSet == "" {
			err = ErrNotYet
		}
		if err != nil {
			return nil, err
		}
		return gtid.ParseSet(st.Checkpoint.GTIDSet)
	}
	c, err := relay.Checkpoint()
	if err != nil {
		return nil, err
	}
	return c.GTIDSet, nil
}

// growing is the topic that gets partitions.
func (r *chaosRun) growing() string { return r.site.Topics()[len(kinds)-1] }

// partitions is how many a topic has, or is about to have.
func (r *chaosRun) partitions(topic string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if topic == r.growing() && r.grown > 0 {
		return r.grown
	}
	return r.site.o.Partitions
}

func (r *chaosRun) grow(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.grown = n
}
