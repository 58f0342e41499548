package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/relay/kafka/conn"
	"outbox-relay/relay/kafka/txn"
	"outbox-relay/router"
)

const (
	defaultClientID = "outbox-relay"
	defaultVersion  = "3.7.0"
	defaultWindow   = 12 << 20
	minWindow       = 64 << 10
	minMaxBatch     = 1 << 10
	// maxRequest caps the raw bytes of one produce request, unless a single batch is larger.
	maxRequest = 1 << 20
)

// Options configure a [Publisher]. Brokers, Acked and Poisoned are required.
type Options struct {
	// Brokers are the addresses to begin with, host:port.
	Brokers []string
	// ClientID is the name that brokers log. Default "outbox-relay".
	ClientID string
	// Version is the newest protocol that is spoken, as "3.7.0"; each connection goes down to what its broker knows. At least 2.1.0.
	Version string
	// TLS gives the settings for a host at each connect, so that renewed certificates are picked up; nil, or a nil result, means plain text. An empty
	// ServerName is filled with the host.
	TLS func(host string) (*tls.Config, error)
	// SASL is off while its Mechanism is empty.
	SASL SASL
	// Compression is none (also ""), gzip, snappy, lz4 or zstd.
	Compression string
	// Partitioner is murmur2 (also ""), crc32 or fnv1a. A record that names its partition does not use it.
	Partitioner string
	// Idle is how long no broker may be heard of before one is asked for a sign of life. Default 5 s.
	Idle time.Duration
	// MaxThrottle bounds how long a broker's wish for a pause is heeded, which it has where a quota is used up. Default 15 s.
	MaxThrottle time.Duration
	// Window bounds the memory of unacknowledged records, in bytes; a single larger record is let in when nothing else is held.
	// Default 12 MiB.
	Window int64
	// MaxBatch bounds the uncompressed size of a batch, in bytes, below the limit of its topic. Default 1 MiB, as much as one request holds.
	MaxBatch int
	// CreateTopics tells whether and how missing topics are created.
	CreateTopics CreateTopics
	// Acked is told the sequence numbers of acknowledged records, each once. Calls never overlap; the slice is valid during the call.
	// It is called without a lock that Publish needs, and it must not block.
	Acked func(seqs []uint64)
	// Judge, if not nil, is asked what becomes of a record that is refused for ever, after everything before it in its partition is in the log. The
	// record is the judge's; for one that was published instead of another it is that one. It is called without locks and must not block.
	Judge func(*PoisonError, *router.Record) Judgement
	// Poisoned is told a record that is refused for ever. Everything before it in its partition is in the log by then, nothing behind
	// it will be sent. It is called without locks and must not block.
	Poisoned func(*PoisonError)
	// Coordinator, if not nil, makes the publisher write in transactions, see [Publisher.Cut]: records become visible to read_committed consumers when
	// their window is committed. Its id must have been fenced by the caller, and be this publisher's alone while Run runs. Acked is not called then.
	Coordinator *txn.Coordinator
	// Step, if not nil, is told where a transaction is, by the names of the Step constants: for tests that stop there.
	Step func(string)
	// Parking, if not nil, keeps the order of keys that have dead letters. It needs Judge.
	Parking *Parking
	// Allowed is asked right before every request; while it gives false nothing is sent and it is asked again soon. nil means always.
	// It must not block.
	Allowed func() bool
	// Logger is told changes only: lost brokers, stalled topics and their end. nil discards.
	Logger *slog.Logger
	// Registerer takes the metrics and adds the label source. nil keeps them private.
	Registerer prometheus.Registerer
	// TopicsLimit is how many topics get a metric label of their own; later ones count as "other". Default 1000.
	TopicsLimit int
	// Dialer opens connections to brokers; nil is TCP. It must end when ctx does.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
}

// SASL says how to authenticate to brokers.
type SASL = conn.SASL

// CreateTopics says how a missing topic is made. Names of topics that must not appear by accident are a reason to leave it off.
type CreateTopics struct {
	Enabled           bool
	Partitions        int32             // -1 = the broker's default
	ReplicationFactor int16             // -1 = the broker's default
	Configs           map[string]string // topic configuration, such as retention.ms
}

// settings are Options after validation.
type settings struct {
	Options
	conn        conn.Options
	version     sarama.KafkaVersion
	codec       sarama.CompressionCodec
	partitioner func(key []byte, n int32) int32
}

func (o Options) settings() (*settings, error) {
	s := &settings{Options: o}
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("kafka: "+format, args...)) }

	if len(o.Brokers) == 0 {
		fault("no broker address")
	}
	for _, b := range o.Brokers {
		if _, port, err := net.SplitHostPort(b); err != nil || port == "" {
			fault("broker address %q is not host:port", b)
		}
	}
	if o.Acked == nil || o.Poisoned == nil {
		fault("Acked and Poisoned are required")
	}
	if k := o.Parking; k != nil && (k.Topic == nil || k.Of == nil || k.Group == "" || k.Limit < 1 || o.Judge == nil) {
		fault("incomplete options of parking")
	}
	s.defaults()
	var err error
	if s.version, err = sarama.ParseKafkaVersion(s.Version); err != nil {
		fault("version: %w", err)
	} else if !s.version.IsAtLeast(sarama.V2_1_0_0) {
		fault("version %s is below 2.1.0, the oldest that brokers of today speak", s.Version)
	}
	var ok bool
	if s.codec, ok = codecs[s.Compression]; !ok {
		fault("compression %q is not one of none, gzip, snappy, lz4, zstd", s.Compression)
	}
	if s.partitioner, ok = partitioners[s.Partitioner]; !ok {
		fault("partitioner %q is not one of murmur2, crc32, fnv1a", s.Partitioner)
	}
	if s.Window < minWindow {
		fault("window of %d bytes is below %d", s.Window, minWindow)
	}
	if s.MaxBatch < minMaxBatch || s.MaxBatch > maxRequest {
		fault("batch of %d bytes is not between %d and %d", s.MaxBatch, minMaxBatch, maxRequest)
	}
	if s.Idle < 0 || s.MaxThrottle < 0 {
		fault("negative idle time or longest pause")
	}
	if c := s.CreateTopics; c.Enabled && (c.Partitions == 0 || c.Partitions < -1 || c.ReplicationFactor == 0 || c.ReplicationFactor < -1) {
		fault("create topics: %d partitions, replication factor %d: each is above 0, or -1 for the broker's default", c.Partitions, c.ReplicationFactor)
	}
	if err := s.SASL.Validate(); err != nil {
		faults = append(faults, err)
	}
	s.conn = conn.Options{ClientID: s.ClientID, Version: s.version, TLS: s.TLS, SASL: s.SASL, Dialer: s.Dialer}
	return s, errors.Join(faults...)
}

func (s *settings) defaults() {
	if s.ClientID == "" {
		s.ClientID = defaultClientID
	}
	if s.Version == "" {
		s.Version = defaultVersion
	}
	if s.Window == 0 {
		s.Window = defaultWindow
	}
	if s.MaxBatch == 0 {
		s.MaxBatch = maxRequest
	}
	if s.Idle == 0 {
		s.Idle = defaultIdle
	}
	if s.MaxThrottle == 0 {
		s.MaxThrottle = defaultMaxThrottle
	}
	if s.TopicsLimit == 0 {
		s.TopicsLimit = 1000
	}
	if s.Step == nil {
		s.Step = func(string) {}
	}
	if s.Allowed == nil {
		s.Allowed = func() bool { return true }
	}
	if s.Logger == nil {
		s.Logger = slog.New(slog.DiscardHandler)
	}
}

var codecs = map[string]sarama.CompressionCodec{
	"": sarama.CompressionNone, "none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}
