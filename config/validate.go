package config

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// validate checks the rules that need more than the type of a value. A value
// that already has a fault is left alone.
func (c *collector) validate(cfg *Config) {
	c.name(cfg)
	c.sources(cfg)
	if len(cfg.Tables) == 0 {
		c.missing("tables", "name at least one outbox table")
	}
	seen := map[TableName]int{}
	for i := range cfg.Tables {
		path := fmt.Sprintf("tables[%d]", i)
		c.table(&cfg.Tables[i], path)
		first, again := seen[cfg.Tables[i].Table]
		if !again {
			seen[cfg.Tables[i].Table] = i
			continue
		}
		if _, given := c.origins[path+".snapshot"]; !given {
			cfg.Tables[i].Snapshot = cfg.Tables[first].Snapshot
		}
		c.check(cfg.Tables[i].Snapshot == cfg.Tables[first].Snapshot, path+".snapshot", fmt.Sprintf("write it under tables[%d] alone, the first rule of the table", first), "differs from that of another rule")
	}
	c.kafka(&cfg.Kafka)
	c.checkpoint(&cfg.Checkpoint, cfg.Kafka.Delivery)
	c.poison(&cfg.Poison, "poison")
	c.limits(&cfg.Limits)
	c.address("http.address", cfg.HTTP.Address, true)
}

func (c *collector) missing(path, hint string) {
	if !c.faulty(path) {
		c.add(path, hint, "missing")
	}
}

// check adds a fault unless ok.
func (c *collector) check(ok bool, path, hint, format string, args ...any) {
	if !ok && !c.faulty(path) {
		c.add(path, hint, format, args...)
	}
}

var namePattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,48}$`)

func (c *collector) name(cfg *Config) {
	c.check(namePattern.MatchString(cfg.Name), "name", "use 1 to 48 of A-Z a-z 0-9 . _ -",
		"%q cannot name a lock, a topic and a transactional id", cfg.Name)
}

// gtidSet is the grammar of a GTID set with tags. Whether intervals make sense
// is for binlog/gtid to say.
var gtidSet = regexp.MustCompile(`(?i)^\s*` + gtidMember + `(\s*,\s*` + gtidMember + `)*\s*,?\s*$`)

const gtidMember = `[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}(\s*:\s*([a-z_][a-z0-9_]{0,31}|[0-9]+(\s*-\s*[0-9]+)?))+`

// source checks a source. Values that it shares with others are faults where they were written.
func (c *collector) source(s *Source, path string) {
	at := func(key string) string {
		if _, own := c.origins[path+"."+key]; !own {
			if _, shared := c.origins["source."+key]; shared {
				return "source." + key
			}
		}
		return path + "." + key
	}
	c.addresses(path+".address", s.Addresses, "the MySQL server, such as db1:3306")
	if s.User == "" {
		c.missing(path+".user", "the MySQL user of the relay")
	}
	c.secret(path, &s.Password)
	c.tls(at("tls"), &s.TLS)
	switch s.Start {
	case "", StartLatest, StartEarliest, StartSnapshot:
	default:
		c.check(gtidSet.MatchString(s.Start), at("start"), "use latest, earliest, snapshot or a GTID set", "%q is not a place to start", s.Start)
	}
	c.duration(at("heartbeat"), s.Heartbeat, 100*time.Millisecond, time.Hour)
}

func (c *collector) table(t *Table, path string) {
	if t.Table == (TableName{}) {
		c.missing(path+".table", "write schema.table")
	}
	if t.Preset == PresetNone {
		if t.Topic == "" {
			c.missing(path+".topic", "preset none has no topic of its own")
		}
		if t.Value == "" {
			c.missing(path+".value", "preset none has no value of its own")
		}
	}
	c.debezium(t, path)
	c.cloudEvents(t, path)
	for i, h := range t.Headers {
		if h.Name == "" {
			c.missing(fmt.Sprintf("%s.headers[%d].name", path, i), "the header's key")
		}
	}
	c.check(t.TimeZone == "" || t.Timestamp != "", path+".time_zone", "give timestamp too", "has no effect without a timestamp column")
	for column, values := range t.When {
		c.check(len(values) > 0, join(path+".when", column), "list the values that match", "matches nothing")
	}
	c.check(t.Snapshot.Chunk >= 1 && t.Snapshot.Chunk <= 1_000_000, path+".snapshot.chunk", "", "is not between 1 and 1000000")
	if _, own := c.origins[path+".poison"]; own {
		c.poison(&t.Poison, path+".poison")
	}
}

func (c *collector) kafka(k *Kafka) {
	c.addresses("kafka.brokers", k.Brokers, "one or more of the cluster, such as k1:9092")
	c.duration("kafka.linger", k.Linger, 0, time.Minute)
	c.duration("kafka.transaction_timeout", k.TransactionTimeout, time.Second, 15*time.Minute)
	c.check(k.CreateTopics.Partitions > 0, "kafka.create_topics.partitions", "", "must be at least 1")
	c.check(k.CreateTopics.ReplicationFactor > 0, "kafka.create_topics.replication_factor", "", "must be at least 1")
	c.tls("kafka.tls", &k.TLS)
	c.check(k.TLS.Mode != TLSPreferred, "kafka.tls.mode", "use disabled, required, verify-ca or verify-identity",
		"Kafka does not negotiate encryption")
	c.secret("kafka.sasl", &k.SASL.Password)
	switch m := k.SASL.Mechanism; {
	case m == "":
		c.check(k.SASL.User == "" && k.SASL.Password.Empty(), "kafka.sasl", "give kafka.sasl.mechanism", "has a user or password but no mechanism")
	case k.SASL.Password.Empty():
		c.missing("kafka.sasl.password", "or password_file or password_command; for oauthbearer the token")
	case k.SASL.User == "" && m != "oauthbearer":
		c.missing("kafka.sasl.user", m+" needs one")
	}
}

func (c *collector) checkpoint(k *Checkpoint, delivery string) {
	elsewhere := len(k.Addresses) > 0
	if elsewhere {
		c.addresses("checkpoint.address", k.Addresses, "")
		if k.User == "" {
			c.missing("checkpoint.user", "the account on the server of the checkpoint table")
		}
	}
	c.check(elsewhere || k.User == "" && k.Password.Empty(), "checkpoint.address", "name the server, or drop user and password to use the source with its account",
		"a user or password is given and no server")
	c.check(!elsewhere || k.Store == StoreMySQL, "checkpoint.address", "set checkpoint.store to mysql, or drop it", "has no effect with store %s", k.Store)
	c.secret("checkpoint", &k.Password)
	c.tls("checkpoint.tls", &k.TLS)
	c.check(delivery != DeliveryExactlyOnce || k.Store == StoreKafka, "checkpoint.store", "use kafka",
		"exactly-once delivery keeps its checkpoint in Kafka, not in store %s", k.Store)
	c.check(k.Path != "", "checkpoint.path", "name the file of the file store", "is empty")
	if !c.faulty("name") { // a part of the topic
		c.topic("checkpoint.topic", strings.ReplaceAll(k.Topic, namePlace, "x"))
	}
	c.duration("checkpoint.interval", k.Interval, 10*time.Millisecond, time.Hour)
}

func (c *collector) poison(p *Poison, path string) {
	c.check(!p.ParkKeys || p.Policy == PolicyDeadLetter, path+".park_keys", "it belongs to policy dead_letter", "has no effect with policy %s", p.Policy)
	c.topic(path+".topic", p.Topic)
	c.check(!brokerTopics[p.Topic], path+".topic", "name one of your own, such as outbox.dead-letter", "%s is a topic of the brokers themselves, which refuse producers", p.Topic)
}

// brokerTopics are those that brokers keep for themselves.
var brokerTopics = map[string]bool{"__consumer_offsets": true, "__transaction_state": true, "__share_group_state": true, "__cluster_metadata": true}

func (c *collector) limits(l *Limits) {
	c.size("limits.buffer", l.Buffer, MiB, TiB)
	// 1 GiB is the most that max_allowed_packet allows.
	c.size("limits.row", l.Row, KiB, GiB)
	c.size("limits.spool", l.Spool, MiB, 1024*TiB)
	c.check(l.Topics > 0, "limits.topics", "", "must be at least 1")
	c.check(l.ParkedKeys > 0 && l.ParkedKeys <= 1_000_000, "limits.parked_keys", "", "is not between 1 and 1000000")
}

func (c *collector) secret(path string, s *Secret) {
	given := 0
	for _, set := range []bool{s.Value != "", s.File != "", len(s.Command) > 0} {
		if set {
			given++
		}
	}
	c.check(given < 2, path, "keep one", "more than one of password, password_file and password_command is given")
	if len(s.Command) == 0 {
		return
	}
	program := s.Command[0]
	c.check(program != "", path+".password_command", "", "names no program")
	c.check(len(s.Command) > 1 || !strings.Contains(program, " "), path+".password_command",
		"write a list, such as [cat, /run/secrets/password]", "is one word with spaces, and no shell reads it")
}

func (c *collector) tls(path string, t *TLS) {
	c.check((t.Cert == "") == (t.Key == ""), path, "give both", "cert and key belong together")
	c.check(t.Mode != TLSDisabled || t.CA == "" && t.Cert == "", path+".mode", "use verify-identity, or drop ca, cert and key",
		"is disabled but certificates are given")
}

func (c *collector) addresses(path string, list []string, what string) {
	if len(list) == 0 {
		c.missing(path, what)
	}
	for i, one := range list {
		p := path
		if _, listed := c.origins[fmt.Sprintf("%s[%d]", path, i)]; listed {
			p = fmt.Sprintf("%s[%d]", path, i)
		}
		if strings.Contains(one, ",") {
			c.check(false, p, "write a list: [a:1, b:2]", "%q holds a comma", one)
			continue
		}
		c.address(p, one, false)
	}
}

// address checks host:port; for listening the host may be empty and the port 0.
func (c *collector) address(path, address string, listen bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		c.check(false, path, "write host:port, an IPv6 address in brackets", "%q is not host:port", address)
		return
	}
	n, err := strconv.ParseUint(port, 10, 16)
	c.check(err == nil && (n > 0 || listen), path, "use 1 to 65535", "%q has no valid port", address)
	c.check(listen || host != "", path, "write host:port", "%q has no host", address)
	c.check(!strings.ContainsAny(host, "/@ "), path, "write host:port alone, without scheme, user or path", "%q is not host:port", address)
}

var topicPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)

func (c *collector) topic(path, topic string) {
	ok := topicPattern.MatchString(topic) && topic != "." && topic != ".."
	c.check(ok, path, "use 1 to 249 of A-Z a-z 0-9 . _ -", "%q is not a Kafka topic name", topic)
}

func (c *collector) duration(path string, d, low, high time.Duration) {
	c.check(d >= low && d <= high, path, "", "%s is not between %s and %s", d, low, high)
}

func (c *collector) size(path string, s, low, high Size) {
	c.check(s >= low && s <= high, path, "", "%s is not between %s and %s", s, low, high)
}
