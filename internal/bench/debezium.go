package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/relaytest"
)

// tuned is what makes Debezium faster on this load than its defaults do.
var tuned = []string{"max.batch.size=16384", "max.queue.size=65536", "poll.interval.ms=10", "producer.override.linger.ms=5", "producer.override.batch.size=262144"}

// theDebezium runs a standalone Kafka Connect from the stored offset before the backlog. It never ends by itself.
func theDebezium(name string, settings ...string) contestant {
	return contestant{name: name, debezium: true, start: func(ctx context.Context, s *servers, topic string) (*child, error) {
		dir := filepath.Join(s.dir, "connect-"+topic)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		offsets, err := os.ReadFile(s.offsets())
		if err != nil {
			return nil, fmt.Errorf("Debezium has not stored its start: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, "offsets"), offsets, 0o644); err != nil {
			return nil, err
		}
		return s.startConnect(ctx, name, dir, topic, settings)
	}}
}

// offsets is the file of Debezium's position before the backlog.
func (s *servers) offsets() string { return filepath.Join(s.dir, "debezium-offsets") }

func (s *servers) startConnect(ctx context.Context, name, dir, topic string, settings []string) (*child, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	brokers := strings.Join(s.Brokers, ",")
	worker := []string{
		"bootstrap.servers=" + brokers, "key.converter=org.apache.kafka.connect.storage.StringConverter", "value.converter=org.apache.kafka.connect.storage.StringConverter",
		"offset.storage.file.filename=" + filepath.Join(dir, "offsets"), "offset.flush.interval.ms=10000", fmt.Sprintf("listeners=http://127.0.0.1:%d", port),
	}
	host, mysqlPort, _ := strings.Cut(s.MySQL, ":")
	connector := slices.Concat([]string{
		"name=outbox", "connector.class=io.debezium.connector.mysql.MySqlConnector", "tasks.max=1", "database.hostname=" + host, "database.port=" + mysqlPort,
		"database.user=" + account, "database.password=" + account, "database.server.id=777", "database.ssl.mode=disabled", "driver.allowPublicKeyRetrieval=true", "topic.prefix=dbz",
		"database.include.list=" + database, "table.include.list=" + database + ".outbox_events", "snapshot.mode=no_data", "snapshot.locking.mode=none",
		"schema.history.internal.kafka.bootstrap.servers=" + brokers, "schema.history.internal.kafka.topic=" + s.history, "include.schema.changes=false",
		"transforms=outbox", "transforms.outbox.type=io.debezium.transforms.outbox.EventRouter", "transforms.outbox.table.field.event.id=id",
		"transforms.outbox.table.field.event.key=aggregate_id", "transforms.outbox.table.field.event.payload=payload", "transforms.outbox.route.by.field=aggregate_type",
		"transforms.outbox.route.topic.replacement=" + topic + "${routedByValue}",
		// The relay's headers, but for the position. Debezium adds four of its own.
		"transforms.outbox.table.fields.additional.placement=event_type:header:event_type,aggregate_type:header:aggregate_type,idempotency_key:header:idempotency_key",
	}, settings)
	paths := [2]string{filepath.Join(dir, "worker.properties"), filepath.Join(dir, "connector.properties")}
	for i, lines := range [2][]string{worker, connector} {
		if err := os.WriteFile(paths[i], []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			return nil, err
		}
	}
	cmd, err := sandbox.ConnectCommand(ctx, say, paths[0], paths[1])
	if err != nil {
		return nil, err
	}
	return startChild(ctx, name, s.Pids, nil, nil, cmd.Path, cmd.Args[1:]...)
}

// storeDebeziumStart lets Debezium publish a few rows of the tables as they are, so that its history of their columns and its offset are stored. What is
// written after that is a backlog to it. The outbox table is empty again at the end.
func (s *servers) storeDebeziumStart(ctx context.Context) error {
	id := time.Now().UnixNano()
	prefix := fmt.Sprintf("start-%d.", id)
	s.history = fmt.Sprintf("dbz.history-%d", id)
	topic := prefix + aggregateType
	if err := s.createTopic(topic, 1); err != nil {
		return err
	}
	dir := filepath.Join(s.dir, "connect-"+prefix)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	say("letting Debezium store its start")
	c, err := s.startConnect(ctx, "debezium", dir, prefix, nil)
	if err != nil {
		return err
	}
	if err := s.awaitLastRow(ctx, topic, c); err != nil {
		c.kill()
		_, _ = c.wait() // it was killed
		return fmt.Errorf("letting Debezium store its start: %w; the end of its output:\n%s", err, c.output)
	}
	if err := c.stop(); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(dir, "offsets"), s.offsets()); err != nil {
		return fmt.Errorf("Debezium has stored no offset: %w", err)
	}
	db, err := s.open()
	if err != nil {
		return err
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "SET SESSION sql_log_bin = 0; TRUNCATE "+database+".outbox_events; SET SESSION sql_log_bin = 1"); err != nil {
		return err
	}
	return s.deleteTopic(topic)
}

// awaitLastRow inserts rows until Debezium publishes them, then a last one, and returns when that is there.
func (s *servers) awaitLastRow(ctx context.Context, topic string, c *child) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	w, err := newWatcher(ctx, s, topic, 1)
	if err != nil {
		return err
	}
	defer w.close()
	db, err := s.open()
	if err != nil {
		return err
	}
	defer db.Close()
	for n, some := 0, false; !some; n++ {
		if isClosed(c.done) {
			return errors.New("it has ended")
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, err := db.ExecContext(ctx, workload{Rows: n + 1, PerTx: 1, JSON: 100}.transaction(n)); err != nil {
			return err
		}
		if some, err = w.awaitSome(); err != nil {
			return err
		}
	}
	const last = "last-row"
	if _, err := db.ExecContext(ctx, "INSERT INTO "+database+".outbox_events (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES (?, 1, 'Last', '{}', ?)", aggregateType, last); err != nil {
		return err
	}
	return relaytest.Consume(ctx, relaytest.ConsumeOptions{Brokers: s.Brokers, Topics: []string{topic}, Follow: true}, func(m relaytest.Message) error {
		for _, h := range m.Headers {
			if string(h.Value) == last {
				return relaytest.ErrStop
			}
		}
		return nil
	})
}
