package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/relaytest"
)

// SiteOptions describe a Site. MySQL, Kafka and Builder are required.
type SiteOptions struct {
	MySQL   *sandbox.MySQL
	Kafka   *sandbox.Kafka
	Builder *Builder
	// Label is a short word for names.
	Label string
	// Source is the address of MySQL that the relay is told; empty means the server's own. A proxy before it goes here.
	Source string
	// Sources, if not empty, are the addresses that the relay is told instead of Source.
	Sources []string
	// SourceConfig is more of the configuration's source, such as ", on_divergence: continue".
	SourceConfig string
	// Writes is the address that the load writes to; empty means the server's own. A proxy before it goes here.
	Writes string
	// AppendTime makes the broker's time of a record its timestamp (relaytest.Message.Appended).
	AppendTime bool
	// Partitions of each topic. 0 means 4.
	Partitions int
	// SaveInterval is checkpoint.interval. 0 means the relay's default of 1 s.
	SaveInterval time.Duration
	// MySQLStore keeps the checkpoint in a table on the source.
	MySQLStore bool
	// KafkaStore keeps the checkpoint in a topic, as ExactlyOnce does in any case.
	KafkaStore bool
	// ExactlyOnce publishes in Kafka's transactions, with the checkpoint in Kafka; Consume and Judge then read what is committed.
	ExactlyOnce bool
	// TransactionTimeout is kafka.transaction_timeout of an exactly-once relay. 0 means the relay's default of 1 min.
	TransactionTimeout time.Duration
	// Rules is YAML of more rules, each line a member of the list; <database> in it is replaced.
	Rules string
	// Config is YAML that is added to the relay's configuration, at its top level.
	Config string
	// NoTopics leaves the topics uncreated, for tests of missing ones.
	NoTopics bool
}

// Site is a database, topics, a folder and a relay's name of one run.
//
// It has two outbox tables and three rules: rows of orders_outbox go to <name>.order or <name>.payment by their aggregate_type, those of
// shipments_outbox to <name>.shipment. Ids are unique over both tables.
type Site struct {
	o SiteOptions
	// Name is that of the relay, of the database (with _ for -) and the prefix of the topics.
	Name string
	// Dir holds the configuration, the checkpoint and the logs.
	Dir string
	// DB is a pool of the account that may do everything, on the site's database.
	DB *sql.DB
	// First is what was executed before the tables were used: the relay's first position.
	First string

	mu     sync.Mutex
	relays []*Relay
	keep   bool
}

// outboxColumns are what the preset needs and a usual table has.
const outboxColumns = `(
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
  aggregate_type VARCHAR(64) NOT NULL,
  aggregate_id VARCHAR(64) NOT NULL,
  event_type VARCHAR(100) NOT NULL,
  payload JSON NOT NULL,
  idempotency_key VARCHAR(128) NOT NULL UNIQUE,
  created_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)
) AUTO_INCREMENT=`

// Names of the kinds of events, each with a rule and a topic of its own.
var kinds = []string{"order", "payment", "shipment"}

// NewSite makes the database, the tables, the topics and the folder. The caller calls Close.
func NewSite(ctx context.Context, o SiteOptions) (*Site, error) {
	if o.Partitions == 0 {
		o.Partitions = 4
	}
	if o.Source == "" {
		o.Source = o.MySQL.Addr()
	}
	s := &Site{o: o, Name: fmt.Sprintf("e2e-%s-%06x", o.Label, rand.N(1<<24))}
	if err := s.make(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Site) make(ctx context.Context) error {
	var err error
	if s.Dir, err = os.MkdirTemp("", "outbox-relay-"+s.Name+"-"); err != nil {
		return err
	}
	database := s.Database()
	err = s.o.MySQL.Exec(ctx,
		"CREATE DATABASE "+database,
		"CREATE TABLE "+database+".orders (id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY, customer VARCHAR(64) NOT NULL, amount DECIMAL(10,2) NOT NULL)",
		"CREATE TABLE "+database+".orders_outbox "+outboxColumns+"1",
		"CREATE TABLE "+database+".shipments_outbox "+outboxColumns+"1000000001")
	if err != nil {
		return err
	}
	if s.DB, err = s.o.MySQL.Open(database); err != nil {
		return err
	}
	if err := s.allow(ctx); err != nil {
		return err
	}
	first, err := s.Executed(ctx)
	if err != nil {
		return err
	}
	s.First = first.String()
	if s.o.NoTopics {
		return nil
	}
	for _, topic := range s.Topics() {
		if err := s.CreateTopic(ctx, topic); err != nil {
			return err
		}
	}
	return nil
}

// CreateTopic creates one of the site's topics.
func (s *Site) CreateTopic(ctx context.Context, topic string) error {
	var configs map[string]string
	if s.o.AppendTime {
		configs = map[string]string{"message.timestamp.type": "LogAppendTime"}
	}
	return s.o.Kafka.CreateTopic(ctx, topic, s.o.Partitions, 0, configs)
}

// Move makes another server, which has the site's database, the one that the site asks from now on. Nothing else of the site may run meanwhile.
func (s *Site) Move(m *sandbox.MySQL) error {
	db, err := m.Open(s.Database())
	if err != nil {
		return err
	}
	s.DB.Close()
	s.o.MySQL, s.DB = m, db
	return nil
}

// Database is the name of the site's database, and of the relay's account, which has the rights that `config grants` names and no other.
func (s *Site) Database() string { return strings.ReplaceAll(s.Name, "-", "_") }

// Topics are the site's topics.
func (s *Site) Topics() []string {
	var topics []string
	for _, kind := range kinds {
		topics = append(topics, s.Name+"."+kind)
	}
	return topics
}

// CheckpointPath is the relay's checkpoint file.
func (s *Site) CheckpointPath() string { return filepath.Join(s.Dir, "checkpoint") }

// Executed is the server's gtid_executed.
func (s *Site) Executed(ctx context.Context) (*gtid.Set, error) {
	var set string
	if err := s.DB.QueryRowContext(ctx, "SELECT @@global.gtid_executed").Scan(&set); err != nil {
		return nil, fmt.Errorf("asking for gtid_executed: %w", err)
	}
	return gtid.ParseSet(set)
}

// Keep leaves the folder where it is at Close.
func (s *Site) Keep() { s.keep = true }

// Close kills the relays that still run, drops the database if the server answers, and removes the folder.
func (s *Site) Close() error {
	for _, r := range s.all() {
		r.Kill()
	}
	if s.DB != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, _ = s.DB.ExecContext(ctx, "DROP DATABASE "+s.Database()) // the server may be gone by now
		_, _ = s.DB.ExecContext(ctx, "DROP USER IF EXISTS "+s.Database())
		s.DB.Close()
	}
	if s.keep {
		return nil
	}
	return os.RemoveAll(s.Dir)
}

func (s *Site) all() []*Relay {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.relays)
}

// Check reports what a relay of this site must never do, whatever happens to it: data races and panics, by its log.
func (s *Site) Check() error {
	var errs []error
	for _, r := range s.all() {
		errs = append(errs, r.Check())
	}
	return errors.Join(errs...)
}

// LogTails gives the end of the logs of the last relays, for reports of failures.
func (s *Site) LogTails() string {
	var b strings.Builder
	all := s.all()
	for i, r := range all[max(0, len(all)-3):] {
		fmt.Fprintf(&b, "--- log of %s, relay %d of %d\n%s\n", s.Name, max(0, len(all)-3)+i+1, len(all), r.LogTail(40))
	}
	return b.String()
}

// KillSessions ends all sessions that the relay has on the server.
func (s *Site) KillSessions(ctx context.Context) error {
	var list string
	err := s.DB.QueryRowContext(ctx, "SELECT COALESCE(GROUP_CONCAT(ID), '') FROM information_schema.PROCESSLIST WHERE USER = ?", s.Database()).Scan(&list)
	if err != nil {
		return err
	}
	for id := range strings.SplitSeq(list, ",") {
		_, _ = s.DB.ExecContext(ctx, "KILL "+id) // it may have ended
	}
	return nil
}

// WaitRelayed returns once the checkpoint that the relay has stored contains all that the server has executed by now.
func (s *Site) WaitRelayed(ctx context.Context, r *Relay) error {
	executed, err := s.Executed(ctx)
	if err != nil {
		return err
	}
	return r.WaitCheckpoint(ctx, executed)
}

// ExecMany runs several statements, separated by semicolons, in one round trip.
func (s *Site) ExecMany(ctx context.Context, statements string) error {
	db, err := s.openMulti()
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, statements)
	return err
}

// openMulti opens a pool whose statements may be several.
func (s *Site) openMulti() (*sql.DB, error) {
	c, err := mysql.ParseDSN(s.o.MySQL.RootDSN(s.Database()))
	if err != nil {
		return nil, err
	}
	c.MultiStatements = true
	if s.o.Writes != "" {
		c.Addr = s.o.Writes
	}
	c.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// Row is an outbox row for Insert.
type Row struct {
	Kind string // order, payment or shipment
	Key  string
}

// Insert writes rows in one transaction, statement by statement, in the order given.
func (s *Site) Insert(ctx context.Context, rows ...Row) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if _, err := tx.ExecContext(ctx, InsertStatement(r)); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

// InsertStatement is the SQL of one row, for transactions of a test's own.
func InsertStatement(r Row) string {
	table := "orders_outbox"
	if r.Kind == "shipment" {
		table = "shipments_outbox"
	}
	return fmt.Sprintf("INSERT INTO %s (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('%s', '%s', 'Written', '{\"by\": \"hand\"}', UUID())", table, r.Kind, r.Key)
}

// Judge compares the tables with the topics. It is to be called when the load has ended and the relay has caught up.
func (s *Site) Judge(ctx context.Context, o relaytest.Options) (*relaytest.Report, error) {
	v := relaytest.NewValidator(o)
	if err := s.ReadOracle(ctx, v); err != nil {
		return nil, err
	}
	err := s.Consume(ctx, func(m relaytest.Message) error {
		v.Received(m)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return v.Report(), nil
}

// ReadOracle tells v of all committed rows.
func (s *Site) ReadOracle(ctx context.Context, v *relaytest.Validator) error {
	for _, table := range []string{"orders_outbox", "shipments_outbox"} {
		q := relaytest.OutboxQuery{Table: table, TopicPrefix: s.Name + "."}
		if _, err := relaytest.ReadOutbox(ctx, s.DB, q, v); err != nil {
			return err
		}
	}
	return nil
}

// Consume reads the site's topics to their end.
func (s *Site) Consume(ctx context.Context, receive func(relaytest.Message) error) error {
	return relaytest.Consume(ctx, relaytest.ConsumeOptions{Brokers: s.o.Kafka.Addrs(), Topics: s.Topics(), ReadCommitted: s.o.ExactlyOnce}, receive)
}
