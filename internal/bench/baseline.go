package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/IBM/sarama"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

// baselineCommand is the yardstick: a relay as one writes it in an afternoon, of go-mysql's BinlogSyncer and sarama's idempotent
// AsyncProducer at their defaults. It publishes what the relay's outbox preset publishes and keeps no checkpoint. It ends once the
// wanted number of rows is acknowledged.
func baselineCommand(ctx context.Context, args []string, _ io.Writer) error {
	var b baseline
	flags := flag.NewFlagSet("baseline", flag.ContinueOnError)
	address := flags.String("mysql", "", "address of MySQL")
	start := flags.String("start", "", "GTID set to start behind")
	brokers := flags.String("brokers", "", "addresses of Kafka")
	compression := flags.String("compression", "none", "compression of batches")
	flags.StringVar(&b.topic, "topic", "", "prefix of the topic; the aggregate type follows")
	flags.IntVar(&b.rows, "rows", 0, "outbox rows to publish")
	if err := flags.Parse(args); err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(*address)
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	set, err := mysql.ParseMysqlGTIDSet(*start)
	if err != nil {
		return err
	}
	if b.producer, err = newBaselineProducer(strings.Split(*brokers, ","), *compression); err != nil {
		return fmt.Errorf("connecting to Kafka: %w", err)
	}
	syncer := replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID: 4_000_001, Flavor: "mysql", Host: host, Port: uint16(number), User: account, Password: account,
		Logger: slog.New(slog.DiscardHandler),
	})
	defer syncer.Close()
	stream, err := syncer.StartSyncGTID(set)
	if err != nil {
		return fmt.Errorf("starting the replication: %w", err)
	}
	return b.run(ctx, stream)
}

func newBaselineProducer(brokers []string, compression string) (sarama.AsyncProducer, error) {
	c := sarama.NewConfig()
	c.Version = sarama.V2_8_0_0
	c.Producer.Idempotent = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Net.MaxOpenRequests = 1 // the idempotent producer demands it
	c.Producer.Return.Successes = true
	if err := c.Producer.Compression.UnmarshalText([]byte(compression)); err != nil {
		return nil, err
	}
	return sarama.NewAsyncProducer(brokers, c)
}

type baseline struct {
	producer sarama.AsyncProducer
	topic    string
	rows     int

	gtid    string
	inGroup int
	columns baselineColumns
}

// baselineColumns are the places of the published columns in the table, found by name.
type baselineColumns struct {
	table                                                              uint64
	id, aggregateType, aggregateID, eventType, payload, idempotencyKey int
}

func (b *baseline) run(ctx context.Context, stream *replication.BinlogStreamer) error {
	acked := make(chan error, 1)
	go func() { acked <- b.count() }() // ends with the last acknowledgement or the first error
	sent := 0
	for sent < b.rows {
		ev, err := stream.GetEvent(ctx)
		if err != nil {
			return fmt.Errorf("reading the binlog after %d rows: %w", sent, err)
		}
		events := []*replication.BinlogEvent{ev}
		if e, ok := ev.Event.(*replication.TransactionPayloadEvent); ok {
			events = e.Events
		}
		for _, ev := range events {
			n, err := b.take(ev)
			if err != nil {
				return err
			}
			sent += n
		}
	}
	if err := <-acked; err != nil {
		return err
	}
	return b.producer.Close()
}

// take publishes the outbox rows of an event and tells how many there were.
func (b *baseline) take(ev *replication.BinlogEvent) (int, error) {
	switch e := ev.Event.(type) {
	case *replication.GTIDEvent:
		u := e.SID
		b.gtid, b.inGroup = fmt.Sprintf("%x-%x-%x-%x-%x:%d", u[:4], u[4:6], u[6:8], u[8:10], u[10:], e.GNO), 0
	case *replication.RowsEvent:
		if e.Type() != replication.EnumRowsEventTypeInsert || string(e.Table.Table) != "outbox_events" || string(e.Table.Schema) != database {
			return 0, nil
		}
		return len(e.Rows), b.publish(e)
	}
	return 0, nil
}

func (b *baseline) count() error {
	for range b.rows {
		select {
		case <-b.producer.Successes():
		case err := <-b.producer.Errors():
			return err
		}
	}
	return nil
}

func (b *baseline) publish(e *replication.RowsEvent) error {
	if b.columns.table != e.TableID {
		if err := b.columns.find(e.Table); err != nil {
			return err
		}
	}
	c := &b.columns
	for _, row := range e.Rows {
		position := b.gtid + "#" + strconv.Itoa(b.inGroup)
		b.inGroup++
		aggregate := text(row[c.aggregateType])
		b.producer.Input() <- &sarama.ProducerMessage{
			Topic: b.topic + aggregate, Key: sarama.StringEncoder(text(row[c.aggregateID])), Value: sarama.StringEncoder(text(row[c.payload])),
			Headers: []sarama.RecordHeader{
				{Key: []byte("id"), Value: []byte(text(row[c.id]))},
				{Key: []byte("event_type"), Value: []byte(text(row[c.eventType]))},
				{Key: []byte("aggregate_type"), Value: []byte(aggregate)},
				{Key: []byte("idempotency_key"), Value: []byte(text(row[c.idempotencyKey]))},
				{Key: []byte("outbox-relay-position"), Value: []byte(position)},
			},
		}
	}
	return nil
}

func (c *baselineColumns) find(t *replication.TableMapEvent) error {
	places := map[string]int{}
	for i, name := range t.ColumnNameString() {
		places[name] = i
	}
	for name, place := range map[string]*int{
		"id": &c.id, "aggregate_type": &c.aggregateType, "aggregate_id": &c.aggregateID, "event_type": &c.eventType,
		"payload": &c.payload, "idempotency_key": &c.idempotencyKey,
	} {
		i, ok := places[name]
		if !ok {
			return errors.New("the outbox table has no column " + name)
		}
		*place = i
	}
	c.table = t.TableID
	return nil
}

// text prints a value as go-mysql decodes it.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case uint64:
		return strconv.FormatUint(v, 10)
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return fmt.Sprint(v)
}
