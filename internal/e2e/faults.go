package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"outbox-relay/internal/sandbox"
	status "outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// FaultsOptions configure [Faults]. MySQL, Kafka (one broker) and Builder are required; the servers are killed and frozen.
type FaultsOptions struct {
	MySQL   *sandbox.MySQL
	Kafka   *sandbox.Kafka
	Builder *Builder
	Build   Build
	// Rounds is how often each fault is made.
	Rounds int
	// Only is the name of a single fault; empty means all.
	Only string
	Seed uint64
	Load Load
	// Freeze is how long a server is frozen. 0 means 10 s.
	Freeze time.Duration
	// Progress gets a line for each round.
	Progress func(string)
}

// FaultResult is the account of one kind of fault: one relay process lived through all its rounds.
type FaultResult struct {
	Name       string
	Rounds     int
	Load       LoadStats
	Report     *relaytest.Report
	Recoveries []time.Duration // from the end of the fault until all of before was published and saved
	StopCode   int             // of the SIGTERM at the end
	Connects   int             // "source connected" in the log
}

// FaultsResult is the account of all.
type FaultsResult []*FaultResult

// fault is one way to disturb.
type fault struct {
	name    string
	brokers int
	make    func(ctx context.Context, r *faultRun) error
}

// faultRun is what a fault acts on.
type faultRun struct {
	o      FaultsOptions
	site   *Site
	kafka  *sandbox.Kafka
	proxy  *sandbox.Proxy // before MySQL
	random *rand.Rand
	round  int
}

var faults = []fault{
	{"mysql-kill", 1, killMySQL},
	{"kafka-kill", 1, killBroker},
	{"broker-of-three-kill", 3, killBroker},
	{"cut-in-large-transaction", 1, cutTransaction},
	{"mysql-freeze", 1, freezeMySQL},
	{"kafka-freeze", 1, freezeBroker},
}

// Faults makes each fault Rounds times under load. The relay has to live through all of it, without a restart and so without a duplicate.
func Faults(ctx context.Context, o FaultsOptions) (FaultsResult, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Freeze == 0 {
		o.Freeze = 10 * time.Second
	}
	var all FaultsResult
	for _, f := range faults {
		if o.Only != "" && o.Only != f.name {
			continue
		}
		r, err := makeFaults(ctx, o, f)
		if err != nil {
			return all, fmt.Errorf("%s: %w", f.name, err)
		}
		all = append(all, r)
		o.Progress(f.name + ": " + r.Report.String())
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no fault %q", o.Only)
	}
	return all, nil
}

func makeFaults(ctx context.Context, o FaultsOptions, f fault) (*FaultResult, error) {
	kafka := o.Kafka
	if f.brokers == 3 {
		var err error
		if kafka, err = sandbox.StartKafka(ctx, sandbox.KafkaOptions{Brokers: 3}); err != nil {
			return nil, err
		}
		defer kafka.Close()
	}
	proxy, err := sandbox.NewProxy(o.MySQL.Addr())
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	site, err := NewSite(ctx, SiteOptions{MySQL: o.MySQL, Kafka: kafka, Builder: o.Builder, Label: "faults", Source: proxy.Addr()})
	if err != nil {
		return nil, err
	}
	defer site.Close()
	run := &faultRun{o: o, site: site, kafka: kafka, proxy: proxy, random: rand.New(rand.NewPCG(o.Seed, 1))}
	res := &FaultResult{Name: f.name, Rounds: o.Rounds}
	if err := run.all(ctx, f, res); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, site.LogTails())
	}
	return res, nil
}

// recoveryTime bounds how long a relay may need after a fault. It is wide: how long it took is reported.
const recoveryTime = 2 * time.Minute

// slowRecovery is a time that wants an explanation.
const slowRecovery = 5 * time.Second

func (r *faultRun) all(ctx context.Context, f fault, res *FaultResult) error {
	relay, err := r.site.Start(ctx, RelayOptions{Build: r.o.Build})
	if err != nil {
		return err
	}
	err = relay.WaitStatus(ctx, "the relay is connected", func(s status.Status) bool { return s.Source.Connected })
	if err != nil {
		return err
	}
	r.o.Load.Seed = r.o.Seed
	load, err := r.site.StartLoad(r.o.Load)
	if err != nil {
		return err
	}
	err = r.rounds(ctx, f, relay, res)
	res.Load = load.Stop()
	if err = errors.Join(err, res.Load.Err); err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, recoveryTime)
	defer cancel()
	if err := r.site.WaitRelayed(wait, relay); err != nil {
		return err
	}
	if res.StopCode, _, err = relay.Stop(wait); err != nil {
		return err
	}
	if err := r.site.Check(); err != nil {
		return err
	}
	res.Connects = strings.Count(relay.Log(), `msg="source connected"`)
	res.Report, err = r.site.Judge(ctx, relaytest.Options{})
	return err
}

func (r *faultRun) rounds(ctx context.Context, f fault, relay *Relay, res *FaultResult) error {
	for r.round = 1; r.round <= r.o.Rounds; r.round++ {
		if err := pause(ctx, time.Duration(r.random.IntN(1000))*time.Millisecond); err != nil {
			return err
		}
		if err := f.make(ctx, r); err != nil {
			return fmt.Errorf("round %d: %w", r.round, err)
		}
		begin := time.Now()
		if err := r.recovered(ctx, relay); err != nil {
			return fmt.Errorf("round %d: the relay did not recover: %w", r.round, err)
		}
		res.Recoveries = append(res.Recoveries, time.Since(begin))
		r.o.Progress(fmt.Sprintf("%s: round %d, recovered in %.1f s", f.name, r.round, time.Since(begin).Seconds()))
		if time.Since(begin) > slowRecovery {
			r.o.Progress("that is slow; the end of the relay's log:\n" + relay.LogTail(10))
		}
	}
	return nil
}

// recovered waits until a transaction of after the fault, and with it all before, is published and saved.
func (r *faultRun) recovered(ctx context.Context, relay *Relay) error {
	ctx, cancel := context.WithTimeout(ctx, recoveryTime)
	defer cancel()
	if err := r.site.Insert(ctx, Row{Kind: "order", Key: "after-the-fault"}); err != nil {
		return err
	}
	return r.site.WaitRelayed(ctx, relay)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func killMySQL(ctx context.Context, r *faultRun) error {
	if err := r.o.MySQL.Kill(); err != nil {
		return err
	}
	return r.o.MySQL.Start(ctx)
}

// killBroker kills any broker of the cluster. Among three it waits until all replicas are in sync again: two dead ones are another fault.
func killBroker(ctx context.Context, r *faultRun) error {
	b := r.broker()
	if err := b.Kill(); err != nil {
		return err
	}
	if err := b.Start(ctx); err != nil {
		return err
	}
	if len(r.kafka.Addrs()) == 1 {
		return nil
	}
	for _, topic := range r.site.Topics() {
		if err := r.kafka.WaitInSync(ctx, topic); err != nil {
			return err
		}
	}
	return nil
}

func (r *faultRun) broker() *sandbox.Broker {
	return r.kafka.Broker(1 + r.random.IntN(len(r.kafka.Addrs())))
}

const (
	// bulkRows are about 5 MB in the binlog, far more than what else passes in the time.
	bulkRows = 8000
	bulkMin  = 500_000
	bulkMax  = 4_000_000
)

// cutTransaction cuts the connections to MySQL within a large transaction. The keys of its rows are the worker's that no load writes.
func cutTransaction(ctx context.Context, r *faultRun) error {
	cut := r.proxy.CutAfter(bulkMin + r.random.Int64N(bulkMax-bulkMin))
	var b strings.Builder
	b.WriteString("INSERT INTO orders_outbox (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ")
	padding := strings.Repeat("x", 500)
	for i := range bulkRows {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, `('order', 'bulk-%d', 'bulk', '{"n": %d, "padding": "%s"}', 'bulk-%d-%d')`, i%50, i, padding, r.round, i)
	}
	if _, err := r.site.DB.ExecContext(ctx, b.String()); err != nil {
		return err
	}
	select {
	case <-cut:
		return nil
	case <-time.After(recoveryTime):
		return errors.New("the connection was not cut: the relay did not read")
	}
}

func freezeMySQL(ctx context.Context, r *faultRun) error {
	if err := r.o.MySQL.Pause(); err != nil {
		return err
	}
	err := pause(ctx, r.o.Freeze)
	return errors.Join(err, r.o.MySQL.Resume())
}

func freezeBroker(ctx context.Context, r *faultRun) error {
	b := r.broker()
	if err := b.Pause(); err != nil {
		return err
	}
	err := pause(ctx, r.o.Freeze)
	return errors.Join(err, b.Resume())
}

// Err is nil when the promise was kept in every round.
func (r FaultsResult) Err() error {
	var errs []error
	for _, f := range r {
		if err := f.Report.Err(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", f.Name, err))
		}
		if f.Report.Duplicates > 0 {
			errs = append(errs, fmt.Errorf("%s: %d duplicates without a restart", f.Name, f.Report.Duplicates))
		}
		if f.StopCode != 0 {
			errs = append(errs, fmt.Errorf("%s: the relay stopped with code %d", f.Name, f.StopCode))
		}
	}
	return errors.Join(errs...)
}

// String is the table of figures.
func (r FaultsResult) String() string {
	var b strings.Builder
	const line = "%-25s %6v %8v %8v %5v %12v %10v %11v %8v %14v\n"
	fmt.Fprintf(&b, line, "fault", "rounds", "rows", "received", "lost", "out of order", "duplicates", "two partit.", "connects", "recovery s")
	for _, f := range r {
		slices.Sort(f.Recoveries)
		recovery := fmt.Sprintf("%.1f .. %.1f", f.Recoveries[len(f.Recoveries)/2].Seconds(), f.Recoveries[len(f.Recoveries)-1].Seconds())
		fmt.Fprintf(&b, line, f.Name, f.Rounds, f.Report.Committed, f.Report.Received, f.Report.Count(relaytest.Lost),
			f.Report.Count(relaytest.OutOfOrder), f.Report.Duplicates, f.Report.Count(relaytest.TwoPartitions), f.Connects, recovery)
	}
	b.WriteString("recovery: median .. maximum, from the end of the fault until all of before was published and its checkpoint stored\n")
	return b.String()
}
