package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
	status "outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// ShardsOptions configure [NewShards]. Kafka, Builder and Sources are required.
type ShardsOptions struct {
	Kafka   *sandbox.Kafka
	Builder *Builder
	Sources int
	// Version is a prefix of the MySQL version; empty for the newest.
	Version string
	// Config is YAML that is added to the relay's configuration, at its top level.
	Config   string
	Progress func(string)
}

// Shards are several MySQL servers with one table each and the configuration of one relay that reads all. The caller calls Close.
type Shards struct {
	o      ShardsOptions
	Dir    string
	Topic  string
	shards []*Shard
	relays []*Relay
}

// Shard is one server.
type Shard struct {
	*sandbox.MySQL
	Name   string // of the entry in sources
	db     *sql.DB
	number int
}

// smallServer makes a server take 210 MB of memory instead of 370, and write without waiting for the disk. A kill of the process loses nothing; of the machine it would.
var smallServer = []string{
	"--performance-schema=OFF", "--innodb-buffer-pool-size=8M", "--innodb-log-buffer-size=1M", "--innodb-page-cleaners=1", "--innodb-read-io-threads=1", "--innodb-write-io-threads=1",
	"--innodb-purge-threads=1", "--max-connections=40", "--table-open-cache=50", "--table-definition-cache=400", "--key-buffer-size=8K", "--thread-cache-size=4", "--temptable-max-ram=2M",
	"--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2", "--innodb-adaptive-hash-index=OFF", "--skip-name-resolve",
}

// NewShards starts the servers, a few at a time.
func NewShards(ctx context.Context, o ShardsOptions) (_ *Shards, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	s := &Shards{o: o, shards: make([]*Shard, o.Sources)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.Dir, err = os.MkdirTemp("", "outbox-relay-shards-"); err != nil {
		return nil, err
	}
	s.Topic = strings.TrimPrefix(filepath.Base(s.Dir), "outbox-relay-") + ".order"
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(3)
	for i := range s.shards {
		group.Go(func() error { return s.add(gctx, i) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return s, o.Kafka.CreateTopic(ctx, s.Topic, 8, 0, nil)
}

func (s *Shards) add(ctx context.Context, i int) error {
	m, err := sandbox.StartMySQL(ctx, sandbox.MySQLOptions{Version: s.o.Version, Args: smallServer})
	if err != nil {
		return err
	}
	s.shards[i] = &Shard{MySQL: m, Name: fmt.Sprintf("shard%d", i+1), number: i}
	if err := m.Exec(ctx, "CREATE DATABASE app", fmt.Sprintf("CREATE TABLE app.orders_outbox %s%d", outboxColumns, i*1_000_000_000+1)); err != nil {
		return err
	}
	s.shards[i].db, err = m.Open("app")
	return err
}

// Close ends the relays and the servers.
func (s *Shards) Close() error {
	var errs []error
	for _, r := range s.relays {
		r.Kill()
	}
	for _, x := range s.shards {
		if x == nil {
			continue
		}
		if x.db != nil {
			x.db.Close()
		}
		errs = append(errs, x.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.Dir))...)
}

// Shard is one of the servers, counted from 0.
func (s *Shards) Shard(i int) *Shard { return s.shards[i] }

// Start starts a relay of all servers.
func (s *Shards) Start(ctx context.Context, o RelayOptions) (*Relay, error) {
	binary, err := s.o.Builder.Binary(ctx, o.Build)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString("name: shards\nsource: {user: relay, password: relay, start: earliest, heartbeat: 1s}\nsources:\n")
	for _, x := range s.shards {
		fmt.Fprintf(&b, "  - {name: %s, address: %q}\n", x.Name, x.Addr())
	}
	fmt.Fprintf(&b, "tables: [{table: \"app.%%_outbox\", topic: %q}]\nkafka: {brokers: [\"%s\"]}\n", s.Topic, strings.Join(s.o.Kafka.Addrs(), `", "`))
	fmt.Fprintf(&b, "checkpoint: {path: %q}\nhttp: {address: \"127.0.0.1:0\"}\n%s\n", filepath.Join(s.Dir, "{name}.checkpoint"), s.o.Config)
	r := &Relay{}
	if err := r.start(binary, filepath.Join(s.Dir, fmt.Sprintf("relay-%d", len(s.relays)+1)), b.String(), o); err != nil {
		return nil, err
	}
	s.relays = append(s.relays, r)
	return r, nil
}

// Command runs a subcommand with the configuration of the last relay, and gives its exit code and what it printed.
func (s *Shards) Command(ctx context.Context, args ...string) (code int, out string, err error) {
	binary, err := s.o.Builder.Binary(ctx, Build{})
	if err != nil {
		return 0, "", err
	}
	c := exec.CommandContext(ctx, binary, append(args, "--config", filepath.Join(s.Dir, fmt.Sprintf("relay-%d.yaml", len(s.relays))))...)
	text, err := c.CombinedOutput()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		err = nil
	}
	return c.ProcessState.ExitCode(), string(text), err
}

// WaitRelayed returns once the checkpoints of all sources contain what their servers have executed by now.
func (s *Shards) WaitRelayed(ctx context.Context, r *Relay) error {
	for _, x := range s.shards {
		var executed string
		if err := x.db.QueryRowContext(ctx, "SELECT REPLACE(@@global.gtid_executed, '\\n', '')").Scan(&executed); err != nil {
			return err
		}
		want, err := gtid.ParseSet(executed)
		if err != nil {
			return err
		}
		err = r.WaitOverview(ctx, x.Name+" is relayed", func(v status.Overview) bool {
			st, ok := SourceOf(v, x.Name)
			have, err := gtid.ParseSet(st.Checkpoint.GTIDSet)
			return ok && err == nil && have.ContainsSet(want)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// SourceOf is the status of one source.
func SourceOf(v status.Overview, name string) (status.Status, bool) {
	i := slices.IndexFunc(v.Sources, func(s status.Status) bool { return s.Name == "shards-"+name })
	if i < 0 {
		return status.Status{}, false
	}
	return v.Sources[i], true
}

// Judge compares the tables of all servers with the topic.
func (s *Shards) Judge(ctx context.Context, o relaytest.Options) (*relaytest.Report, error) {
	v := relaytest.NewValidator(o)
	for _, x := range s.shards {
		q := relaytest.OutboxQuery{Table: "app.orders_outbox", TopicPrefix: strings.TrimSuffix(s.Topic, "order")}
		if _, err := relaytest.ReadOutbox(ctx, x.db, q, v); err != nil {
			return nil, fmt.Errorf("%s: %w", x.Name, err)
		}
	}
	err := relaytest.Consume(ctx, relaytest.ConsumeOptions{Brokers: s.o.Kafka.Addrs(), Topics: []string{s.Topic}}, func(m relaytest.Message) error {
		v.Received(m)
		return nil
	})
	return v.Report(), err
}

// Write inserts rows into one server until stop is closed, each in a transaction of its own, through all failures of the server.
func (x *Shard) Write(rate int, stop <-chan struct{}) (rows int) {
	pace := pacer{begin: time.Now(), each: time.Second / time.Duration(rate)}
	for n := 0; ; n++ {
		select {
		case <-stop:
			return rows
		case <-time.After(pace.wait()):
		}
		if x.Insert(n) == nil {
			rows++
		}
	}
}

// Insert writes one row.
func (x *Shard) Insert(n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	_, err := x.db.ExecContext(ctx, fmt.Sprintf(`INSERT INTO orders_outbox (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('order', '%s-%d', 'Changed', '{"n": %d, "note": "a row as others, of some two hundred bytes, that says little and says it at length"}', UUID())`, x.Name, n%20, n))
	return err
}

// latencies gathers how long rows took from their commit to a consumer, by the shard that their key names.
type latencies struct {
	mu    sync.Mutex
	since map[string][]time.Duration
}

// follow consumes until ctx ends.
func (l *latencies) follow(ctx context.Context, brokers []string, topic string) error {
	err := relaytest.Consume(ctx, relaytest.ConsumeOptions{Brokers: brokers, Topics: []string{topic}, Follow: true}, func(m relaytest.Message) error {
		took := time.Since(time.UnixMilli(m.Millis))
		name, _, _ := strings.Cut(string(m.Key), "-")
		l.mu.Lock()
		defer l.mu.Unlock()
		l.since[name] = append(l.since[name], took)
		return nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// take gives the latencies of all shards but one and forgets all.
func (l *latencies) take(but string) (all []time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, some := range l.since {
		if name != but {
			all = append(all, some...)
		}
	}
	l.since = map[string][]time.Duration{}
	slices.Sort(all)
	return all
}
