package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// KafkaOptions says which cluster to start. The zero value is one broker for tests.
type KafkaOptions struct {
	// Brokers is the number of nodes, each broker and controller: 1 (also for 0) or 3. With
	// three, topics have three replicas of which two must be in sync.
	Brokers int
	// Properties are added to each broker's configuration and override the sandbox's own.
	// The clients' listener is called CLIENT: TLS or SASL for it is set by
	// listener.security.protocol.map and listener.name.client.* properties.
	Properties map[string]string
	// Listeners are further ones for clients, by names in capitals; see ListenerAddrs.
	Listeners map[string]KafkaListener
	// Authorizer lets users do only what Grant allows. Who comes without a login may do everything.
	Authorizer bool
	// Proxied puts a Proxy before each broker and has the broker advertise it, so that all
	// clients pass through it. The brokers among themselves do not.
	Proxied bool
	// Benchmark gives the JVM its optimizing compiler and a heap of 1 GiB. Without it a
	// broker starts faster and is slower.
	Benchmark bool
	// JVMFlags are added to the JVM's command line.
	JVMFlags []string
	// FormatArgs are given to the storage tool, such as "--feature", "transaction.version=1".
	FormatArgs []string
	// Progress gets a line about each slow step. May be nil.
	Progress func(string)
}

// Kafka is a cluster of real brokers without automatic topic creation. Its methods may be
// called from several goroutines.
type Kafka struct {
	options  KafkaOptions
	program  *kafkaProgram // nil if the environment gave the cluster
	dir      string
	brokers  []*Broker
	external []string // addresses that the environment gave

	close sync.Once
}

// StartKafka fetches Kafka if it is not in the cache, makes a cluster and waits until each
// broker lists all of them. The caller must Close it. ctx bounds only this call.
func StartKafka(ctx context.Context, o KafkaOptions) (*Kafka, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	program, err := findKafka(ctx, o.Progress)
	if err != nil {
		return nil, err
	}
	k, err := newKafka(program, o)
	if err != nil {
		return nil, err
	}
	if len(o.FormatArgs) > 0 {
		if err := k.formatAnew(ctx); err != nil {
			return nil, errors.Join(err, k.Close())
		}
	}
	if err := k.Start(ctx); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// newKafka makes the folders of a cluster and starts nothing.
func newKafka(program *kafkaProgram, o KafkaOptions) (*Kafka, error) {
	if o.Brokers == 0 {
		o.Brokers = 1
	}
	if o.Brokers != 1 && o.Brokers != 3 {
		return nil, fmt.Errorf("a Kafka cluster of %d brokers: want 1 or 3", o.Brokers)
	}
	dir, err := newFolder("kafka")
	if err != nil {
		return nil, err
	}
	k := &Kafka{options: o, program: program, dir: dir}
	if err := k.makeBrokers(); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

func (k *Kafka) makeBrokers() error {
	var voters []string
	for id := 1; id <= k.options.Brokers; id++ {
		b := &Broker{cluster: k, dir: filepath.Join(k.dir, fmt.Sprintf("broker-%d", id))}
		k.brokers = append(k.brokers, b)
		if err := os.Mkdir(b.dir, 0o755); err != nil {
			return err
		}
		for range 3 + len(k.options.Listeners) {
			p, err := reservePort()
			if err != nil {
				return err
			}
			b.ports = append(b.ports, p)
		}
		b.node = nodeConfig{id: id, nodes: k.options.Brokers, data: filepath.Join(b.dir, "data"),
			client: b.ports[0].addr(), advertised: b.ports[0].addr(), internal: b.ports[1].addr(), controller: b.ports[2].addr(), more: map[string]listenerAddrs{}}
		for i, name := range slices.Sorted(maps.Keys(k.options.Listeners)) {
			if err := b.addListener(name, b.ports[3+i].addr()); err != nil {
				return err
			}
		}
		voters = append(voters, fmt.Sprintf("%d@%s", id, b.node.controller))
		if k.options.Proxied {
			proxy, err := NewProxy(b.node.client)
			if err != nil {
				return err
			}
			b.proxy, b.node.advertised = proxy, proxy.Addr()
		}
	}
	cluster := newKafkaID()
	for _, b := range k.brokers {
		b.node.voters = strings.Join(voters, ",")
		if err := copyTree(b.node.data, filepath.Join(k.program.root, "data")); err != nil {
			return fmt.Errorf("copying Kafka's data folder: %w", err)
		}
		if err := writeMeta(b.node.data, cluster, b.node.id); err != nil {
			return err
		}
	}
	return nil
}

// formatAnew replaces the copied data folders by ones that were formatted with FormatArgs.
func (k *Kafka) formatAnew(ctx context.Context) error {
	if err := k.program.format(ctx, k.dir, "formatted", k.options.FormatArgs); err != nil {
		return err
	}
	cluster := newKafkaID()
	for _, b := range k.brokers {
		if err := os.RemoveAll(b.node.data); err != nil {
			return err
		}
		if err := copyTree(b.node.data, filepath.Join(k.dir, "formatted")); err != nil {
			return err
		}
		if err := writeMeta(b.node.data, cluster, b.node.id); err != nil {
			return err
		}
	}
	return nil
}

// each runs f for all brokers at once and joins the errors.
func (k *Kafka) each(f func(*Broker) error) error {
	if k.program == nil {
		return ErrExternal
	}
	errs := make([]error, len(k.brokers))
	var wg sync.WaitGroup
	for i, b := range k.brokers {
		wg.Go(func() { errs[i] = f(b) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Start starts the brokers that do not run, all at once, and waits until each lists all.
func (k *Kafka) Start(ctx context.Context) error {
	all := make([]int, len(k.brokers))
	for i, b := range k.brokers {
		all[i] = b.node.id
	}
	return k.each(func(b *Broker) error {
		if b.Running() {
			return nil
		}
		return b.start(ctx, all)
	})
}

// A broker that stops asks the controllers for leave, and without a majority of them it
// would wait minutes. So the whole cluster's stop ends in a kill of the rest: so long
// after the majority has gone, or so long after its beginning.
const (
	lonelyGrace  = 2 * time.Second
	clusterGrace = 20 * time.Second
)

// Stop shuts all brokers down and waits for their end. Of three, the last one usually
// finds no majority to stop in order and is killed after a moment; nothing acknowledged is
// lost by that. If ctx ends first, the rest is killed and an error returned.
func (k *Kafka) Stop(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, clusterGrace)
	defer cancel()
	var ended atomic.Int32
	return k.each(func(b *Broker) error {
		err := b.Stop(limited)
		if int(ended.Add(1))*2 > len(k.brokers) {
			time.AfterFunc(lonelyGrace, cancel)
		}
		if limited.Err() != nil && ctx.Err() == nil || errors.Is(err, ErrNotRunning) {
			return nil
		}
		return err
	})
}

// Kill ends all brokers with SIGKILL and waits until they are gone.
func (k *Kafka) Kill() error { return k.each((*Broker).Kill) }

// Close kills the brokers, closes their proxies and removes the cluster's folder. It may
// be called more than once.
func (k *Kafka) Close() error {
	if k.program == nil {
		return nil
	}
	var err error
	k.close.Do(func() {
		_ = k.each(func(b *Broker) error { b.close(); return nil })
		err = removeFolder(k.dir)
	})
	return err
}

// Addrs returns the addresses that clients start from, one of each broker.
func (k *Kafka) Addrs() []string {
	if k.program == nil {
		return k.external
	}
	var addrs []string
	for _, b := range k.brokers {
		addrs = append(addrs, b.Addr())
	}
	return addrs
}

// Broker returns the broker with that node id, 1 to the number of brokers. It panics for
// another id, and for a cluster that the environment gave.
func (k *Kafka) Broker(id int) *Broker {
	if id < 1 || id > len(k.brokers) {
		panic(fmt.Sprintf("sandbox: no broker %d among %d of the sandbox's own", id, len(k.brokers)))
	}
	return k.brokers[id-1]
}
