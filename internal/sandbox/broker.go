package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/IBM/sarama"
)

// Broker is one node of a Kafka cluster.
type Broker struct {
	cluster *Kafka
	node    nodeConfig
	dir     string
	ports   []port
	proxy   *Proxy
	proxies map[string]*Proxy // by names of further listeners

	mu     sync.Mutex
	extra  map[string]string
	run    *process
	closed bool
}

// Start starts the broker again, on the same data and ports, and waits until it takes part
// in the cluster. It needs a majority of the cluster's nodes, itself included, and after Kill
// the end of its old session (6 s). It is an error if it runs already.
func (b *Broker) Start(ctx context.Context) error { return b.start(ctx, []int{b.node.id}) }

// start is ready when the broker's metadata lists the brokers of the given ids and it gives out producer ids, which it refuses for a moment after
// its start.
func (b *Broker) start(ctx context.Context, ids []int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return fmt.Errorf("starting broker %d: it is closed", b.node.id)
	}
	if b.run != nil && b.run.running() {
		return fmt.Errorf("starting broker %d: it is running", b.node.id)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	properties := map[string]string{}
	protocols := []string{defaultProtocols}
	for name, listener := range b.cluster.options.Listeners {
		maps.Copy(properties, listener.properties(name))
		protocols = append(protocols, name+":"+listener.protocol())
	}
	properties["listener.security.protocol.map"] = strings.Join(protocols, ",")
	if b.cluster.options.Authorizer {
		maps.Copy(properties, authorizer)
	}
	maps.Copy(properties, b.cluster.options.Properties)
	maps.Copy(properties, b.extra)
	config := filepath.Join(b.dir, "server.properties")
	if err := os.WriteFile(config, []byte(b.node.properties(properties)), 0o600); err != nil {
		return err
	}
	cmd, err := b.cluster.program.command(b.flags(), "kafka.Kafka", config)
	if err != nil {
		return err
	}
	run, err := startProcess(fmt.Sprintf("Kafka broker %d", b.node.id), cmd, b.logFile())
	if err != nil {
		return err
	}
	b.run = run
	ready := func(ctx context.Context) error {
		// The broker answers before it has started; its log tells.
		if !strings.Contains(run.output(), kafkaStarted) {
			return errors.New("not started")
		}
		if err := b.lists(ctx, ids); err != nil {
			return err
		}
		return givesProducerID(b.node.internal)
	}
	if err := run.await(ctx, ready); err != nil {
		run.kill()
		return err
	}
	return nil
}

func (b *Broker) flags() []string {
	flags := []string{"-Xms256m", "-Xmx512m", "-XX:TieredStopAtLevel=1"}
	if b.cluster.options.Benchmark {
		flags = []string{"-Xms1g", "-Xmx1g"}
	}
	if b.cluster.program.archive != "" {
		flags = append(flags, "-XX:SharedArchiveFile="+b.cluster.program.archive)
	}
	return append(flags, b.cluster.options.JVMFlags...)
}

// lists asks the broker for its metadata and returns nil if that names all the brokers.
func (b *Broker) lists(ctx context.Context, ids []int) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", b.node.client)
	if err != nil {
		return err
	}
	conn.Close()
	metadata, err := brokerMetadata(b.node.internal, nil)
	if err != nil {
		return err
	}
	for _, id := range ids {
		known := false
		for _, other := range metadata.Brokers {
			known = known || other.ID() == int32(id)
		}
		if !known {
			return fmt.Errorf("broker %d does not list broker %d", b.node.id, id)
		}
	}
	return nil
}

func (b *Broker) logFile() string { return filepath.Join(b.dir, "kafka.log") }

// Stop shuts the broker down in order and waits for its end. If ctx ends first or a minute
// passes, as it does without a majority of the cluster's nodes, it is killed and an error
// returned. Stopping a stopped broker does nothing.
func (b *Broker) Stop(ctx context.Context) error {
	return b.with(func(run *process) error { return run.stop(ctx) })
}

// Kill ends the broker with SIGKILL and waits until it is gone.
func (b *Broker) Kill() error {
	return b.with(func(run *process) error { run.kill(); return nil })
}

// Pause freezes the broker (SIGSTOP): its sockets stay open and nothing is answered. After
// the session timeout (6 s) the others take it for dead. It returns once the broker is frozen.
func (b *Broker) Pause() error { return b.with((*process).pause) }

// Resume lets a paused broker go on.
func (b *Broker) Resume() error { return b.with((*process).resume) }

// Restart is Stop and Start.
func (b *Broker) Restart(ctx context.Context) error {
	if err := b.Stop(ctx); err != nil {
		return err
	}
	return b.Start(ctx)
}

func (b *Broker) with(verb func(*process) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run == nil {
		return ErrNotRunning
	}
	return verb(b.run)
}

// SetProperties replaces this broker's additions to KafkaOptions.Properties from its next
// start on.
func (b *Broker) SetProperties(p map[string]string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.extra = maps.Clone(p)
}

// Running reports whether the broker's process exists, also when it is paused.
func (b *Broker) Running() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.run != nil && b.run.running()
}

func (b *Broker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	if b.run != nil {
		b.run.kill()
	}
	if b.proxy != nil {
		_ = b.proxy.Close()
	}
	for _, p := range b.proxies {
		_ = p.Close()
	}
	for _, p := range b.ports {
		p.release()
	}
}

// ID returns the node id, as in Kafka's metadata.
func (b *Broker) ID() int32 { return int32(b.node.id) }

// Addr returns the host:port that clients are told: the proxy's if there is one.
func (b *Broker) Addr() string { return b.node.advertised }

// Proxy returns the proxy before the broker, nil without KafkaOptions.Proxied.
func (b *Broker) Proxy() *Proxy { return b.proxy }

// ListenerProxy returns the proxy before one of KafkaOptions.Listeners of the broker, nil where it is not Proxied.
func (b *Broker) ListenerProxy(name string) *Proxy { return b.proxies[name] }

func (b *Broker) addListener(name, addr string) error {
	a := listenerAddrs{own: addr, advertised: addr}
	if b.cluster.options.Listeners[name].Proxied {
		p, err := NewProxy(addr)
		if err != nil {
			return err
		}
		if b.proxies == nil {
			b.proxies = map[string]*Proxy{}
		}
		b.proxies[name], a.advertised = p, p.Addr()
	}
	b.node.more[name] = a
	return nil
}

// DataDir returns the broker's log folder, with a folder for each partition.
func (b *Broker) DataDir() string { return b.node.data }

// Pid returns the process id of the running or last broker process, 0 if there is none.
func (b *Broker) Pid() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run == nil {
		return 0
	}
	return b.run.pid()
}

// LogTail returns the last lines that the broker has logged.
func (b *Broker) LogTail() string {
	text, err := os.ReadFile(b.logFile())
	if err != nil {
		return ""
	}
	return tail(string(text), 50)
}

// brokerMetadata asks one broker, with a connection of its own, about the topics (all
// brokers and no topic for none).
func brokerMetadata(addr string, topics []string) (*sarama.MetadataResponse, error) {
	config := adminConfig()
	broker := sarama.NewBroker(addr)
	if err := broker.Open(config); err != nil {
		return nil, err
	}
	defer broker.Close()
	if topics == nil {
		topics = []string{}
	}
	return broker.GetMetadata(sarama.NewMetadataRequest(config.Version, topics))
}

// givesProducerID asks one broker for the id of an idempotent producer.
func givesProducerID(addr string) error {
	broker := sarama.NewBroker(addr)
	if err := broker.Open(adminConfig()); err != nil {
		return err
	}
	defer broker.Close()
	a, err := broker.InitProducerID(&sarama.InitProducerIDRequest{Version: 4, ProducerID: -1, ProducerEpoch: -1})
	if err != nil {
		return err
	}
	if a.Err != sarama.ErrNoError {
		return a.Err
	}
	return nil
}
