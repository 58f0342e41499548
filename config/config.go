// Package config reads the relay's configuration: a YAML file, then
// environment variables, then --set flags, each over the one before.
//
// Keys are strict and every fault is reported at once, with its key path and
// where it was written. A Config that Load returns is complete: defaults are
// filled in and all rules that need no connection have been checked.
//
// The package deliberately does not connect anywhere, does not open the files
// it names other than its own, does not compile templates (router does) and
// imports nothing from the project. The composer maps it onto the options of
// the other packages.
package config

import "time"

// Values of the choices that a caller branches on.
const (
	StartLatest   = "latest"
	StartEarliest = "earliest"
	StartSnapshot = "snapshot"

	ReadFromAny     = "any"
	ReadFromPrimary = "primary"

	PolicyHalt       = "halt"
	PolicySkip       = "skip"
	PolicyIgnore     = "ignore"
	PolicyContinue   = "continue"
	PolicySnapshot   = "snapshot"
	PolicyDeadLetter = "dead_letter"
	PolicyPoison     = "poison"
	PolicyAllow      = "allow"

	DeliveryAtLeastOnce = "at-least-once"
	DeliveryExactlyOnce = "exactly-once"

	StoreFile  = "file"
	StoreMySQL = "mysql"
	StoreKafka = "kafka"

	OnHaltWait = "wait"
	OnHaltExit = "exit"

	PresetOutbox      = "outbox"
	PresetDebezium    = "debezium"
	PresetCloudEvents = "cloudevents"
	PresetNone        = "none"
)

// Config is the whole configuration. It is read-only after Load and then safe
// for concurrent use.
type Config struct {
	// Name is the relay's identity: 1 to 48 of A-Z a-z 0-9 . _ -
	Name string `yaml:"name"`
	// Source is the one server to read, or with Sources what they share.
	Source Source `yaml:"source"`
	// Sources are several servers, each read by a relay of its own (see Each);
	// empty for one.
	Sources []NamedSource `yaml:"sources,omitempty"`
	Tables  []Table       `yaml:"tables"`
	Kafka   Kafka         `yaml:"kafka"`
	// Checkpoint says where the position is kept.
	Checkpoint Checkpoint `yaml:"checkpoint"`
	// Poison is the policy for rows that can never be published. Tables
	// carry their own effective copy.
	Poison Poison `yaml:"poison"`
	// OnHalt is wait or exit.
	OnHalt string `yaml:"on_halt" oneof:"wait exit"`
	Limits Limits `yaml:"limits"`
	HTTP   HTTP   `yaml:"http"`
	Log    Log    `yaml:"log"`

	// File is the path of the file that was read.
	File string `yaml:"-"`

	origins map[string]string
}

// Source is the MySQL server to read from.
type Source struct {
	// Addresses are host:port, tried in order.
	Addresses []string `yaml:"address"`
	User      string   `yaml:"user"`
	Password  Secret   `yaml:",inline"`
	TLS       TLS      `yaml:"tls"`
	// ServerID is the replica's server id; 0 means derived from Name.
	ServerID uint32 `yaml:"server_id"`
	// Start is latest, earliest, snapshot or a GTID set, for a relay without
	// a checkpoint. Empty means not given: such a relay must refuse to run.
	// The set's grammar was checked, its meaning was not.
	Start string `yaml:"start"`
	// OnGap is halt, snapshot or skip.
	OnGap string `yaml:"on_gap" oneof:"halt snapshot skip"`
	// OnDivergence is halt or continue.
	OnDivergence string `yaml:"on_divergence" oneof:"halt continue"`
	// ReadFrom is any or primary: which of the addresses' servers may be read.
	ReadFrom string `yaml:"read_from" oneof:"any primary"`
	// OnStatementWrite is halt or ignore.
	OnStatementWrite string `yaml:"on_statement_write" oneof:"halt ignore"`
	// OnUnknownXA is halt or skip.
	OnUnknownXA string        `yaml:"on_unknown_xa" oneof:"halt skip"`
	Heartbeat   time.Duration `yaml:"heartbeat"`
}

// Table is one rule for the rows of one table. Several rules may name the same
// table; the first whose When matches is used.
type Table struct {
	Table TableName `yaml:"table"`
	// Preset is outbox, debezium, cloudevents or none.
	Preset string `yaml:"preset" oneof:"outbox debezium cloudevents none"`
	// Debezium are the options of the preset of that name, zero with another.
	Debezium Debezium `yaml:"debezium,omitempty"`
	// CloudEvents are the options of the preset of that name, zero with another.
	CloudEvents CloudEvents `yaml:"cloudevents,omitempty"`
	// Topic, Key and Value are templates; empty means the preset's.
	Topic   string   `yaml:"topic"`
	Key     string   `yaml:"key"`
	Value   string   `yaml:"value"`
	Headers []Header `yaml:"headers"`
	// Timestamp names a column; empty means the commit time.
	Timestamp string `yaml:"timestamp"`
	// TimeZone is the IANA zone in which a DATETIME Timestamp is read;
	// empty means not given.
	TimeZone string `yaml:"time_zone"`
	// Partition names a column; empty means kafka.partitioner decides.
	Partition string `yaml:"partition"`
	// When maps a column to the values of which it must have one. Empty
	// matches every row.
	When map[string][]string `yaml:"when"`
	// Otherwise is poison or ignore, for rows that no rule of the table
	// matches; equal in all rules of one table.
	Otherwise string `yaml:"otherwise" oneof:"poison ignore"`
	// Tombstone makes a NULL payload a null value instead of poison.
	Tombstone bool `yaml:"tombstone"`
	// NullKey is poison or allow.
	NullKey string `yaml:"null_key" oneof:"poison allow"`
	// From is latest, snapshot or, if not given, empty.
	From string `yaml:"from" oneof:"latest snapshot"`
	// Snapshot says how the rows that exist are read; equal in all rules of one table.
	Snapshot Snapshot `yaml:"snapshot"`
	// Poison is the effective policy: what the rule says, else Config.Poison.
	Poison Poison `yaml:"poison"`
}

// Snapshot says how the rows that exist in a table are read.
type Snapshot struct {
	// Where is a condition in SQL that a row has to meet; empty for all.
	Where string `yaml:"where"`
	// OrderBy names the column in whose order rows are published; empty for
	// that of the primary key.
	OrderBy string `yaml:"order_by"`
	// Chunk is how many rows one statement reads at most.
	Chunk int `yaml:"chunk"`
}

// Header is one configured record header.
type Header struct {
	// Name is the header's key; "*" spreads a JSON object.
	Name string `yaml:"name"`
	// Value is a template.
	Value string `yaml:"value"`
}

// Kafka is the cluster to publish to and how.
type Kafka struct {
	// Brokers are host:port, used to find the cluster.
	Brokers []string `yaml:"brokers"`
	// Delivery is at-least-once or exactly-once.
	Delivery string `yaml:"delivery" oneof:"at-least-once exactly-once"`
	// Compression is none, gzip, snappy, lz4 or zstd.
	Compression string `yaml:"compression" oneof:"none gzip snappy lz4 zstd"`
	// Partitioner is murmur2, crc32 or fnv1a.
	Partitioner string `yaml:"partitioner" oneof:"murmur2 crc32 fnv1a"`
	// Linger is for how long the source is left alone once transactions came, so that what comes meanwhile is sent together; 0 reads at once.
	Linger             time.Duration `yaml:"linger"`
	TransactionTimeout time.Duration `yaml:"transaction_timeout"`
	CreateTopics       CreateTopics  `yaml:"create_topics"`
	TLS                TLS           `yaml:"tls"`
	SASL               SASL          `yaml:"sasl"`
}

// CreateTopics says whether and how missing topics are created.
type CreateTopics struct {
	Enabled           bool  `yaml:"enabled"`
	Partitions        int32 `yaml:"partitions"`
	ReplicationFactor int16 `yaml:"replication_factor"`
	// Configs are topic settings such as cleanup.policy.
	Configs map[string]string `yaml:"configs"`
}

// SASL is how the relay logs in to Kafka.
type SASL struct {
	// Mechanism is plain, scram-sha-256, scram-sha-512, oauthbearer or, for
	// no login, empty.
	Mechanism string `yaml:"mechanism" oneof:"plain scram-sha-256 scram-sha-512 oauthbearer"`
	User      string `yaml:"user"`
	// Password is the password, for oauthbearer the token.
	Password Secret `yaml:",inline"`
}

// Checkpoint says where the position is kept and how often it is saved.
type Checkpoint struct {
	// Store is file, mysql or kafka.
	Store string `yaml:"store" oneof:"file mysql kafka"`
	// Path is the file of the file store.
	Path string `yaml:"path"`
	// Table is the table of the mysql store.
	Table TableName `yaml:"table"`
	// Addresses, User, Password and TLS reach the server of the mysql store.
	// Without addresses it is the source, with its account.
	Addresses []string `yaml:"address"`
	User      string   `yaml:"user"`
	Password  Secret   `yaml:",inline"`
	TLS       TLS      `yaml:"tls"`
	// Topic is the topic of the kafka store. {name} is already filled in, and so
	// in Path, but with Sources: Each does it there.
	Topic    string        `yaml:"topic"`
	Interval time.Duration `yaml:"interval"`
}

// Poison is the policy for a row that can never be published.
type Poison struct {
	// Policy is halt, dead_letter or skip.
	Policy string `yaml:"policy" oneof:"halt dead_letter skip"`
	// Topic receives dead letters.
	Topic string `yaml:"topic"`
	// ParkKeys sends later rows of a dead-lettered key after it.
	ParkKeys bool `yaml:"park_keys"`
}

// Limits bound memory, disk and metric labels.
type Limits struct {
	// Buffer bounds the bytes in flight.
	Buffer Size `yaml:"buffer"`
	// Row bounds one row.
	Row Size `yaml:"row"`
	// Spool bounds the disk used by open transactions.
	Spool Size `yaml:"spool"`
	// SpoolDir is where they are spooled; empty means beside the checkpoint.
	SpoolDir string `yaml:"spool_dir"`
	// Topics bounds the topic names that appear as metric labels.
	Topics int `yaml:"topics"`
	// ParkedKeys bounds the keys that are parked.
	ParkedKeys int `yaml:"parked_keys"`
}

// HTTP is the server for metrics, health and status.
type HTTP struct {
	// Address is host:port; an empty host listens on all addresses.
	Address string `yaml:"address"`
}

// Log says what is logged and how.
type Log struct {
	// Level is debug, info, warn or error.
	Level string `yaml:"level" oneof:"debug info warn error"`
	// Format is text or json.
	Format string `yaml:"format" oneof:"text json"`
}

// Default returns the configuration that an empty file would give. It lacks
// what has no default: addresses, user, brokers and tables.
func Default() *Config {
	return &Config{
		Name: "outbox-relay",
		Source: Source{
			TLS:              TLS{Mode: TLSPreferred},
			OnGap:            PolicyHalt,
			OnDivergence:     PolicyHalt,
			ReadFrom:         ReadFromAny,
			OnStatementWrite: PolicyHalt,
			OnUnknownXA:      PolicyHalt,
			Heartbeat:        5 * time.Second,
		},
		Kafka: Kafka{
			Delivery:           DeliveryAtLeastOnce,
			Compression:        "lz4",
			Partitioner:        "murmur2",
			TransactionTimeout: time.Minute,
			CreateTopics:       CreateTopics{Partitions: 6, ReplicationFactor: 3},
			TLS:                TLS{Mode: TLSDisabled},
		},
		Checkpoint: Checkpoint{
			Store:    StoreFile,
			Path:     "./outbox-relay.checkpoint",
			Table:    TableName{Schema: "outbox_relay", Table: "checkpoints"},
			Topic:    "outbox-relay.{name}.checkpoint",
			TLS:      TLS{Mode: TLSPreferred},
			Interval: time.Second,
		},
		Poison: Poison{Policy: PolicyHalt, Topic: "outbox.dead-letter"},
		OnHalt: OnHaltWait,
		Limits: Limits{Buffer: 16 * MiB, Row: 16 * MiB, Spool: 10 * GiB, Topics: 1000, ParkedKeys: 10_000},
		HTTP:   HTTP{Address: ":9733"},
		Log:    Log{Level: "info", Format: "text"},
	}
}

// Fault returns a fault about the value at a key path such as "tables[0].topic",
// with the place where that value, or the nearest section around it, was
// written. It serves checks that other packages make on a loaded Config.
func (c *Config) Fault(path, message, hint string) Fault {
	return Fault{Path: path, Message: message, Hint: hint, Origin: origin(c.origins, path)}
}
