package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"outbox-relay/internal/sandbox"
)

// account is the sandbox's account for relays: name and password.
const account = "relay"

// servers are the two real servers that a benchmark uses, and a folder of its own. State is what another process needs to use them too.
type servers struct {
	State
	mysql *sandbox.MySQL // nil when another process keeps them
	dir   string

	records string // topic with all records of the backlog, for the limit of publishing
	history string // topic with the columns that Debezium knows
}

// State names running servers and the backlog on them.
type State struct {
	MySQL    string // host:port
	RootDSN  string
	Brokers  []string
	Pids     []int // of MySQL and Kafka
	DataDir  string
	Start    string // GTID set before the backlog
	Workload workload
}

// bulkArgs let MySQL write a backlog fast. They change nothing about how it sends a binlog.
var bulkArgs = []string{"--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=256M", "--innodb-redo-log-capacity=512M", "--innodb-doublewrite=OFF"}

func say(text string) { fmt.Fprintln(os.Stderr, "bench: "+text) }

// broker is the Kafka of all benchmarks of a run: it takes minutes until it is warm.
type broker struct{ kafka *sandbox.Kafka }

// start starts it the first time.
func (b *broker) start(ctx context.Context) (err error) {
	if b.kafka == nil {
		b.kafka, err = sandbox.StartKafka(ctx, sandbox.KafkaOptions{Benchmark: true, Progress: say})
	}
	return err
}

// Close ends it, if it was started.
func (b *broker) Close() error {
	if b.kafka == nil {
		return nil
	}
	return b.kafka.Close()
}

// startServers starts MySQL for measurements, which the caller closes; Kafka is b's, none if that is nil.
func startServers(ctx context.Context, b *broker, mysqlArgs ...string) (*servers, error) {
	s := &servers{}
	var err error
	if s.dir, err = os.MkdirTemp("", "outbox-relay-bench-*"); err != nil {
		return nil, err
	}
	if s.mysql, err = sandbox.StartMySQL(ctx, sandbox.MySQLOptions{Args: append(append([]string{}, bulkArgs...), mysqlArgs...), Progress: say}); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.MySQL, s.RootDSN, s.DataDir, s.Pids = s.mysql.Addr(), s.mysql.RootDSN(""), s.mysql.DataDir(), []int{s.mysql.Pid()}
	if b == nil {
		return s, nil
	}
	if err := b.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.Brokers, s.Pids = b.kafka.Addrs(), append(s.Pids, b.kafka.Broker(1).Pid())
	return s, nil
}

// loadServers uses the servers of a file that serve has written.
func loadServers(path string) (*servers, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &servers{}
	if err := json.Unmarshal(text, &s.State); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	s.dir, err = os.MkdirTemp("", "outbox-relay-bench-*")
	return s, err
}

// compiled is the processor time that the compilers of the servers' Java have taken so far.
func (s *servers) compiled() (sum time.Duration) {
	for _, pid := range s.Pids {
		names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid)) // the pattern is right
		for _, name := range names {
			text, _ := os.ReadFile(name)
			if !bytes.HasPrefix(text, []byte("C1 Compiler")) && !bytes.HasPrefix(text, []byte("C2 Compiler")) {
				continue
			}
			if d, err := cpuOf(filepath.Join(filepath.Dir(name), "stat")); err == nil {
				sum += d
			}
		}
	}
	return sum
}

// rest blocks until the servers have next to nothing to do, for half a minute at most: deleted topics, purged rows and methods that are being compiled are
// work of what ran before.
func (s *servers) rest(ctx context.Context) error {
	const (
		window = 400 * time.Millisecond
		little = 0.05 // cores
		most   = 75   // windows
	)
	used := func() (sum time.Duration, err error) {
		for _, pid := range s.Pids {
			d, err := processCPU(pid)
			if err != nil {
				return 0, err
			}
			sum += d
		}
		return sum, nil
	}
	before, err := used()
	if err != nil {
		return err
	}
	for range most {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(window):
		}
		now, err := used()
		if err != nil {
			return err
		}
		if (now - before).Seconds() < little*window.Seconds() {
			return nil
		}
		before = now
	}
	say("the servers do not come to rest")
	return nil
}

// Close ends the MySQL that this process started and removes its folder.
func (s *servers) Close() error {
	var all []error
	if s.mysql != nil {
		all = append(all, s.mysql.Close())
	}
	return errors.Join(append(all, os.RemoveAll(s.dir))...)
}

// open gives a pool of the account with all rights whose texts may hold several statements.
func (s *servers) open() (*sql.DB, error) {
	c, err := mysql.ParseDSN(s.RootDSN)
	if err != nil {
		return nil, err
	}
	c.MultiStatements, c.Logger = true, &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(writers)
	return db, nil
}

// backlog creates the tables and writes the workload; Start is the position before it. With debezium set, Debezium can start there too.
func (s *servers) backlog(ctx context.Context, w workload, debezium bool) error {
	db, err := s.open()
	if err != nil {
		return err
	}
	defer db.Close()
	if err := createTables(ctx, db); err != nil {
		return err
	}
	if debezium {
		if err := s.storeDebeziumStart(ctx); err != nil {
			return err
		}
	}
	if _, err := db.ExecContext(ctx, "FLUSH BINARY LOGS"); err != nil { // the search for the start passes over no other backlog
		return err
	}
	if s.Start, err = executed(ctx, db); err != nil {
		return err
	}
	s.Workload = w
	say("writing " + w.String())
	return w.write(ctx, s.open)
}

// executed gives the server's GTID set in one line.
func executed(ctx context.Context, db *sql.DB) (string, error) {
	var set string
	if err := db.QueryRowContext(ctx, "SELECT @@global.gtid_executed").Scan(&set); err != nil {
		return "", fmt.Errorf("asking for the GTID set: %w", err)
	}
	return strings.ReplaceAll(set, "\n", ""), nil
}

// save writes the state for loadServers.
func (s *servers) save(path string) error {
	text, err := json.MarshalIndent(s.State, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
