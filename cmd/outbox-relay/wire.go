package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/filestore"
	"outbox-relay/checkpoint/kafkastore"
	"outbox-relay/config"
	"outbox-relay/relay"
	"outbox-relay/relay/kafka"
	"outbox-relay/relay/kafka/txn"
	"outbox-relay/relay/stdout"
	"outbox-relay/router"
	"outbox-relay/router/debezium"
	"outbox-relay/snapshot"
)

// Shares of limits.buffer: the records in flight, the open transactions in memory, the tracker's transactions.
const (
	windowShare      = 0.70
	openShare        = 0.15
	trackerShare     = 0.15
	trackerEntrySize = 224 // bytes of a transaction in flight, rounded up
)

// relayOptions maps the configuration onto the packages.
func (a *app) relayOptions(cfg *config.Config, f runFlags, log *slog.Logger, reg prometheus.Registerer) (relay.Options, error) {
	rules, err := router.New(routes(cfg))
	if err != nil {
		return relay.Options{}, err
	}
	var names []string
	var watched []binlog.TableName
	for _, t := range rules.Tables() {
		names = append(names, t.String())
		watched = append(watched, binlog.TableName{Schema: t.Schema, Name: t.Name})
	}
	login := loginOf(cfg)
	host, _ := os.Hostname()
	var store checkpoint.Store // that is open
	return relay.Options{
		Name: cfg.Name, Instance: fmt.Sprintf("%s/%d", host, os.Getpid()), Tables: names, Router: rules,
		OpenStore: func() (s checkpoint.Store, err error) {
			store, err = openStore(cfg, log)
			return store, err
		},
		Lease:         relay.NewMySQLLease(leaseOptions(cfg, login, log)),
		FirstPosition: func(ctx context.Context) (*gtid.Set, error) { return firstPosition(ctx, cfg, login, log) },
		PoisonPolicy:  func(rule int) relay.PoisonPolicy { return poisonPolicy(cfg, rule) },
		StartSnapshot: cfg.Source.Start == config.StartSnapshot, SnapshotGap: cfg.Source.OnGap == config.PolicySnapshot,
		Latest: func(ctx context.Context) (*gtid.Set, error) {
			return positionAt(ctx, cfg, config.StartLatest, login, log)
		},
		TablesOf: func(ctx context.Context, names []string) ([]string, error) {
			return tablesOf(ctx, cfg, login, log, names)
		},
		AddedTables: func(ctx context.Context, added []string) ([]string, error) {
			return addedTables(ctx, cfg, login, added)
		},
		OpenSnapshot: func(progress *checkpoint.Snapshot, position *gtid.Set, beforeWait func()) (*snapshot.Reader, error) {
			return snapshot.New(snapshot.Options{
				Login: login, Addresses: cfg.Source.Addresses, Tables: snapshotTables(cfg, namesIn(progress)), Progress: progress, Position: position,
				Primary: cfg.Source.ReadFrom == config.ReadFromPrimary, ContinueDiverged: cfg.Source.OnDivergence == config.PolicyContinue, RowLimit: int64(cfg.Limits.Row), BeforeWait: beforeWait, Logger: log,
			})
		},
		OpenSource: func(start *gtid.Set, hooks relay.SourceHooks, reg prometheus.Registerer) (relay.Source, error) {
			r, err := binlog.New(binlog.Options{
				Name: cfg.Name, Login: login, Addresses: cfg.Source.Addresses, Primary: cfg.Source.ReadFrom == config.ReadFromPrimary, ServerID: cfg.Source.ServerID, Tables: watched, Start: start,
				Heartbeat: cfg.Source.Heartbeat, IgnoreStatementWrites: cfg.Source.OnStatementWrite == config.PolicyIgnore,
				ContinueDiverged: cfg.Source.OnDivergence == config.PolicyContinue, SkipGap: cfg.Source.OnGap == config.PolicySkip,
				SkipUnknownXA: cfg.Source.OnUnknownXA == config.PolicySkip, Memory: share(cfg, openShare), RowLimit: int64(cfg.Limits.Row),
				Own: ownTable(cfg), SpoolDir: spoolDir(cfg), SpoolLimit: int64(cfg.Limits.Spool), Columns: hooks.Columns, Place: hooks.Place, Gap: hooks.Gap, BeforeWait: hooks.BeforeWait,
				Linger: cfg.Kafka.Linger, Allowed: hooks.Allowed, Logger: log, Registerer: reg,
			})
			if err != nil {
				return nil, err // not the nil reader, which would be a source
			}
			return r, nil
		},
		OpenSink: func(h relay.SinkHooks, reg prometheus.Registerer) (relay.Sink, error) {
			if f.sink == "stdout" {
				return stdoutSink{stdout.New(a.out, h.Acked)}, nil
			}
			if k, ok := store.(*kafkastore.Store); ok && cfg.Kafka.Delivery == config.DeliveryExactlyOnce {
				return newKafkaSink(cfg, h, k.Coordinator(), log, reg)
			}
			return newKafkaSink(cfg, h, nil, log, reg)
		},
		Distance:     binlog.Distance,
		SaveInterval: cfg.Checkpoint.Interval, Heartbeat: cfg.Source.Heartbeat, DrainTimeout: drainTimeout,
		MaxInFlight: int(share(cfg, trackerShare) / trackerEntrySize),
		NoStandby:   f.noStandby, UntilCaughtUp: f.untilCaughtUp, ExitOnHalt: cfg.OnHalt == config.OnHaltExit,
		Logger: log, Registerer: reg, Points: points,
	}, nil
}

// Failpoints: nil but in a build with the tag failpoints.
var (
	points relay.Points
	layer  filestore.Layer
)

func share(cfg *config.Config, part float64) int64 {
	return int64(float64(cfg.Limits.Buffer) * part)
}

func spoolDir(cfg *config.Config) string {
	if cfg.Limits.SpoolDir != "" {
		return cfg.Limits.SpoolDir
	}
	return filepath.Dir(cfg.Checkpoint.Path)
}

// routes are the rules, and the topics that they may not name.
func routes(cfg *config.Config) router.Options {
	o := router.Options{Rules: rulesOf(cfg), Reserved: map[string]string{}}
	for _, topic := range deadLetterTopics(cfg) {
		o.Reserved[topic] = "dead letters"
	}
	if cfg.Checkpoint.Store == config.StoreKafka {
		o.Reserved[cfg.Checkpoint.Topic] = "checkpoints"
	}
	return o
}

func rulesOf(cfg *config.Config) []router.Rule {
	var rules []router.Rule
	for _, t := range cfg.Tables {
		r := router.Rule{
			Table: t.Table.String(), Preset: t.Preset, Topic: t.Topic, Key: t.Key, Value: t.Value, Timestamp: t.Timestamp, TimeZone: t.TimeZone,
			Partition: t.Partition, When: t.When, Otherwise: t.Otherwise, Tombstone: t.Tombstone, NullKey: t.NullKey, Poison: t.Poison.Policy,
		}
		if t.Preset == config.PresetCloudEvents {
			r.CloudEvents = cloudEventsOf(t.CloudEvents, cfg.Name)
		}
		if t.Preset == config.PresetDebezium {
			r.Debezium = debeziumOf(t.Debezium)
		}
		for _, h := range t.Headers {
			r.Headers = append(r.Headers, router.HeaderRule{Name: h.Name, Value: h.Value})
		}
		rules = append(rules, r)
	}
	return rules
}

func cloudEventsOf(e config.CloudEvents, name string) *router.CloudEvents {
	out := &router.CloudEvents{Mode: e.Mode, ID: e.ID, Source: e.Source, SourcePrefix: "/" + url.PathEscape(name) + "/", Type: e.Type, Subject: e.Subject, DataSchema: e.DataSchema, DataContentType: e.DataContentType}
	for _, x := range e.Extensions {
		out.Extensions = append(out.Extensions, router.HeaderRule{Name: x.Name, Value: x.Value})
	}
	return out
}

func debeziumOf(d config.Debezium) *debezium.Options {
	return &debezium.Options{
		ID: d.ID, Key: d.Key, Payload: d.Payload, Timestamp: d.Timestamp, RouteBy: d.Route, TopicRegex: d.TopicRegex, TopicReplacement: d.TopicReplacement,
		Additional: d.Additional, AdditionalMissing: d.AdditionalMissing, ExpandJSON: d.ExpandJSON, JSONNull: d.JSONNull, TombstoneOnEmpty: d.TombstoneOnEmpty,
		KeyConverter: d.KeyConverter, ValueConverter: d.ValueConverter, HeaderConverter: d.HeaderConverter,
		NoContextHeaders: !d.ContextHeaders, TopicPrefix: d.TopicPrefix, RunID: runID(),
		Binary: d.Binary, UnsignedBigint: d.BigintUnsigned, JSONText: d.JSONText, NoPositionHeader: !d.PositionHeader,
	}
}

// runID is a UUID of version 7 (RFC 9562, section 5.7), one for each process: the context header of that name.
var runID = sync.OnceValue(func() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	binary.BigEndian.PutUint64(b[:], uint64(time.Now().UnixMilli())<<16|uint64(b[6])<<8|uint64(b[7]))
	b[6], b[8] = b[6]&0x0f|0x70, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
})

func loginOf(cfg *config.Config) binlog.Login {
	return binlog.Login{
		User: cfg.Source.User, Password: cfg.Source.Password.Read, TLS: cfg.Source.TLS.Config,
		TLSOptional: cfg.Source.TLS.Mode == config.TLSPreferred, Program: "outbox-relay " + cfg.Name,
	}
}

// leaseOptions say where the activity lock is.
func leaseOptions(cfg *config.Config, login binlog.Login, log *slog.Logger) relay.LeaseOptions {
	return relay.LeaseOptions{Login: login, Addresses: cfg.Source.Addresses, Primary: cfg.Source.ReadFrom == config.ReadFromPrimary, Name: cfg.Name, Logger: log}
}

func firstPosition(ctx context.Context, cfg *config.Config, login binlog.Login, log *slog.Logger) (*gtid.Set, error) {
	switch cfg.Source.Start {
	case "":
		return nil, errNoStart(cfg)
	case config.StartSnapshot:
		if err := snapshotFaults(ctx, cfg, login, namesOf(cfg)); err != nil {
			return nil, err
		}
		return positionAt(ctx, cfg, config.StartLatest, login, log)
	}
	return positionAt(ctx, cfg, cfg.Source.Start, login, log)
}

func positionAt(ctx context.Context, cfg *config.Config, start string, login binlog.Login, log *slog.Logger) (*gtid.Set, error) {
	return binlog.FirstPosition(ctx, binlog.StartOptions{
		Name: cfg.Name, Login: login, Addresses: cfg.Source.Addresses, Primary: cfg.Source.ReadFrom == config.ReadFromPrimary, Start: start,
		SkipUnknownXA: cfg.Source.OnUnknownXA == config.PolicySkip, Logger: log,
	})
}

// snapshotTables tell how the named tables are read: the first rule that names each, or has a pattern for it, does.
func snapshotTables(cfg *config.Config, names []string) (out []snapshot.Table) {
	for _, name := range names {
		n, err := router.ParseTableName(name)
		if err != nil {
			continue
		}
		one := snapshot.Table{Name: binlog.TableName{Schema: n.Schema, Name: n.Name}, ID: name}
		for _, t := range cfg.Tables {
			if (router.TableName{Schema: t.Table.Schema, Name: t.Table.Table}).Covers(n, true) {
				one.Where, one.OrderBy, one.Chunk = t.Snapshot.Where, t.Snapshot.OrderBy, t.Snapshot.Chunk
				break
			}
		}
		out = append(out, one)
	}
	for _, t := range cfg.Tables { // Debezium's text of JSON depends on the types in it
		for i := range out {
			if out[i].Name == (binlog.TableName{Schema: t.Table.Schema, Name: t.Table.Table}) && t.Preset == config.PresetDebezium && t.Debezium.JSONText == "debezium" {
				out[i].JSONTypes = true
			}
		}
	}
	return out
}

// snapshotsOf are the tables and patterns of which the rows that exist may have to be read.
func snapshotsOf(cfg *config.Config) []snapshot.Table {
	if cfg.Source.Start == config.StartSnapshot || cfg.Source.OnGap == config.PolicySnapshot {
		return snapshotTables(cfg, namesOf(cfg))
	}
	var names []string
	for _, t := range cfg.Tables {
		if t.From == config.StartSnapshot {
			names = append(names, nameOf(t.Table))
		}
	}
	return snapshotTables(cfg, names)
}

// nameOf is a table as the relay and its checkpoint call it.
func nameOf(t config.TableName) string {
	return router.TableName{Schema: t.Schema, Name: t.Table}.String()
}

// namesIn are the tables of which a snapshot has rows to read or has read them.
func namesIn(x *checkpoint.Snapshot) (names []string) {
	for _, of := range [][]checkpoint.SnapshotTable{x.Tables, x.Done} {
		for _, t := range of {
			names = append(names, t.Table)
		}
	}
	return names
}

// namesOf are the tables and patterns of the rules, each once.
func namesOf(cfg *config.Config) (names []string) {
	for _, t := range cfg.Tables {
		if name := nameOf(t.Table); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// tablesOf gives the tables that names stand for now. It asks the source only where a pattern is among them, and until it answers.
func tablesOf(ctx context.Context, cfg *config.Config, login binlog.Login, log *slog.Logger, names []string) ([]string, error) {
	for said := false; ; said = true {
		out, err := tablesNow(ctx, cfg, login, names)
		if err == nil {
			return out, nil
		}
		if !said {
			log.Warn("the tables of a pattern cannot be asked for, trying again", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// tablesNow asks once. Each table comes once, in the order of the names.
func tablesNow(ctx context.Context, cfg *config.Config, login binlog.Login, names []string) ([]string, error) {
	var out []string
	add := func(name string) {
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	for _, name := range names {
		n, err := router.ParseTableName(name)
		if err != nil || !n.IsPattern() {
			add(name)
			continue
		}
		found, err := matching(ctx, cfg, login, n)
		if err != nil {
			return nil, err
		}
		for _, t := range found {
			add(router.TableName{Schema: t.Schema, Name: t.Name}.String())
		}
	}
	return out, nil
}

// matching asks the first server that answers.
func matching(ctx context.Context, cfg *config.Config, login binlog.Login, pattern router.TableName) (found []binlog.TableName, err error) {
	for _, address := range cfg.Source.Addresses {
		l := login
		l.Address = address
		found, err = func() ([]binlog.TableName, error) {
			c, err := binlog.Dial(ctx, l)
			if err != nil {
				return nil, err
			}
			defer c.Close()
			s, err := c.Server(address)
			if err != nil {
				return nil, err
			}
			return c.MatchingTables(ctx, readTimeout, binlog.TableName{Schema: pattern.Schema, Name: pattern.Name}, s.FoldCase)
		}()
		if err == nil {
			return found, nil
		}
	}
	return nil, err
}

// snapshotFaults looks at tables before the first row is read, where the source can be reached: what is wrong with them is a fault of the configuration.
func snapshotFaults(ctx context.Context, cfg *config.Config, login binlog.Login, names []string) error {
	names, err := tablesNow(ctx, cfg, login, names)
	if err != nil {
		return nil // what comes next waits for a server
	}
	for _, address := range cfg.Source.Addresses {
		l := login
		l.Address = address
		found, err := snapshot.Check(ctx, l, snapshotTables(cfg, names))
		if err != nil {
			continue // the next address, or what comes next waits for a server
		}
		var texts []string
		for _, f := range found {
			if f.Err != nil {
				texts = append(texts, f.Err.Error())
			}
		}
		if len(texts) > 0 {
			return configurationError("the rows that exist cannot be read: " + strings.Join(texts, "; "))
		}
		return nil
	}
	return nil
}

// firstStart refuses what needs no server to be refused: a checkpoint that cannot be trusted, and none without a place to start.
func firstStart(cfg *config.Config) error {
	if cfg.Checkpoint.Store != config.StoreFile {
		return nil
	}
	_, err := filestore.Read(cfg.Checkpoint.Path, cfg.Name)
	switch {
	case errors.Is(err, checkpoint.ErrNotFound) && cfg.Source.Start == "":
		return errNoStart(cfg)
	case errors.Is(err, checkpoint.ErrNotFound):
		return nil
	}
	return err
}

func errNoStart(cfg *config.Config) error {
	return configurationError(fmt.Sprintf("there is no checkpoint at %s and source.start is not set; set it to latest, earliest, snapshot or a GTID set", placeOf(cfg)))
}

// ruleFaults compiles the rules to find the faults of their templates.
func ruleFaults(cfg *config.Config) []config.Fault {
	var faults router.Faults
	if _, err := router.New(routes(cfg.Each()[0])); len(cfg.Tables) == 0 || !errors.As(err, &faults) {
		return nil
	}
	var out []config.Fault
	for _, f := range faults {
		out = append(out, cfg.Fault(fmt.Sprintf("tables[%d].%s", f.Rule, f.Field), f.Text, ""))
	}
	return out
}

// addedTables refuses tables that are new to a relay with a checkpoint unless the configuration says from where to read them, and gives those whose rows
// that exist are read.
func addedTables(ctx context.Context, cfg *config.Config, login binlog.Login, added []string) (read []string, err error) {
	for _, name := range added {
		from := ""
		for _, t := range cfg.Tables {
			if nameOf(t.Table) == name && from == "" {
				from = t.From
			}
		}
		switch from {
		case "":
			return nil, configurationError(fmt.Sprintf("table %s is new to this relay, whose checkpoint already exists; set from on its rule: latest publishes what is inserted from the checkpoint on, snapshot the rows that exist first", name))
		case config.StartSnapshot:
			read = append(read, name)
		}
	}
	if len(read) == 0 {
		return nil, nil
	}
	return read, snapshotFaults(ctx, cfg, login, read)
}

// poisonPolicy is the policy of a rule, or the general one.
func poisonPolicy(cfg *config.Config, rule int) relay.PoisonPolicy {
	p := poisonOfRule(cfg, rule)
	actions := map[string]relay.PoisonAction{config.PolicyHalt: relay.HaltAtPoison, config.PolicySkip: relay.SkipPoison, config.PolicyDeadLetter: relay.DeadLetterPoison}
	return relay.PoisonPolicy{Action: actions[p.Policy], Topic: p.Topic}
}

func poisonOfRule(cfg *config.Config, rule int) config.Poison {
	if rule >= 0 && rule < len(cfg.Tables) {
		return cfg.Tables[rule].Poison
	}
	return cfg.Poison
}

// stdoutSink gives the stdout sink the statistics that it does not have.
type stdoutSink struct{ *stdout.Sink }

func (stdoutSink) Stats() relay.SinkStats { return relay.SinkStats{} }

// Refuse has a record judged at once: what was printed is acknowledged.
func (stdoutSink) Refuse(_ context.Context, _ *router.Record, _ uint64, p *relay.Poison) error {
	return p
}

// kafkaSink speaks the relay's words for a publisher.
type kafkaSink struct {
	*kafka.Publisher
	settings config.Kafka
}

// newKafkaSink makes the sink of a session. With a coordinator, whose id the session's store has fenced, it publishes in transactions.
func newKafkaSink(cfg *config.Config, h relay.SinkHooks, c *txn.Coordinator, log *slog.Logger, reg prometheus.Registerer) (relay.Sink, error) {
	o := kafkaOptions(cfg)
	o.Coordinator = c
	if points != nil {
		o.Step = func(step string) { points(relay.Point(step)) }
	}
	o.Acked, o.Allowed = h.Acked, h.Allowed
	o.Poisoned = func(e *kafka.PoisonError) { h.Poisoned(poisonOf(e)) }
	o.Judge = func(e *kafka.PoisonError, rec *router.Record) kafka.Judgement {
		instead, drop := h.Judge(poisonOf(e), rec)
		return kafka.Judgement{Instead: instead, Drop: drop}
	}
	o.Parking = parkingOf(cfg)
	o.Logger, o.Registerer = log, reg
	p, err := kafka.New(o)
	if err != nil {
		return nil, err
	}
	if c != nil {
		return transactionalSink{kafkaSink{p, cfg.Kafka}, cfg.Name, cfg.Checkpoint.Topic}, nil
	}
	return kafkaSink{p, cfg.Kafka}, nil
}

// parkingOf is nil where no policy parks keys.
func parkingOf(cfg *config.Config) *kafka.Parking {
	topics := parkingTopics(cfg)
	if len(topics) == 0 {
		return nil
	}
	return &kafka.Parking{
		Topic: func(rule int32) string {
			if p := poisonOfRule(cfg, int(rule)); p.ParkKeys {
				return p.Topic
			}
			return ""
		},
		Topics: topics, Group: redriveGroup(cfg), Limit: cfg.Limits.ParkedKeys,
		Of: func(letter *router.Record) (topic string, ok bool) {
			d, ok := relay.ReadDeadLetter(letter)
			return d.Topic, ok && ownLetter(cfg, d)
		},
	}
}

func kafkaOptions(cfg *config.Config) kafka.Options {
	k := cfg.Kafka
	var secure func(host string) (*tls.Config, error)
	if k.TLS.Mode != config.TLSDisabled && k.TLS.Mode != config.TLSPreferred { // a broker's port speaks one or the other
		secure = k.TLS.Config
	}
	return kafka.Options{
		Brokers: k.Brokers, ClientID: "outbox-relay-" + cfg.Name, TLS: secure,
		SASL:        kafka.SASL{Mechanism: k.SASL.Mechanism, User: k.SASL.User, Secret: k.SASL.Password.Read},
		Compression: k.Compression, Partitioner: k.Partitioner, Idle: cfg.Source.Heartbeat, Window: share(cfg, windowShare),
		CreateTopics: kafka.CreateTopics{Enabled: k.CreateTopics.Enabled, Partitions: k.CreateTopics.Partitions, ReplicationFactor: k.CreateTopics.ReplicationFactor, Configs: k.CreateTopics.Configs},
		TopicsLimit:  cfg.Limits.Topics,
	}
}

// poisonOf gives the relay's own word back for a record that it had refused.
func poisonOf(e *kafka.PoisonError) *relay.Poison {
	var own *relay.Poison
	if errors.As(e.Err, &own) && !errors.Is(e, kafka.ErrParkedKeys) {
		return own
	}
	p := &relay.Poison{Reason: e.Reason, Table: e.Table, ID: e.ID, Position: e.Position, Topic: e.Topic, Err: e}
	if errors.Is(e, kafka.ErrParkedKeys) {
		p.Hint = "publish the dead letters again (outbox-relay dead-letter redrive), or raise limits.parked_keys, and restart"
	}
	return p
}

func (k kafkaSink) Publish(ctx context.Context, rec *router.Record, seq uint64) error {
	return poisonIn(k.Publisher.Publish(ctx, rec, seq))
}

func (k kafkaSink) Refuse(ctx context.Context, rec *router.Record, seq uint64, p *relay.Poison) error {
	return poisonIn(k.Publisher.Refuse(ctx, rec, seq, p.Reason, p))
}

func poisonIn(err error) error {
	if err == nil {
		return nil // nearly always; errors.As makes bad an allocation
	}
	var bad *kafka.PoisonError
	if errors.As(err, &bad) {
		return poisonOf(bad)
	}
	return err
}

func (k kafkaSink) Stats() relay.SinkStats {
	s := k.Publisher.Stats()
	out := relay.SinkStats{ParkedKeys: s.ParkedKeys, Records: s.InFlightRecords, Bytes: s.InFlightBytes, OldestAge: s.OldestAge, Connected: append([]string{}, s.Connected...), Unreachable: s.NoProducerID, LastAnswer: s.LastAnswer}
	if s.LastError != nil {
		out.LastError = s.LastError.Error()
	}
	for _, t := range s.Stalled {
		reason := out.LastError
		if t.Reason == kafka.StallProducerID {
			reason = s.NoProducerID
		}
		out.Stalled = append(out.Stalled, stallSentence(t, k.settings, reason))
	}
	return out
}
