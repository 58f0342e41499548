package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sync/errgroup"

	"outbox-relay/internal/sandbox"
)

//go:embed schema.sql
var schema string

const partitions = 3

// topics of the aggregate types that the order service writes.
var topics = []string{"outbox.event.order", "outbox.event.payment"}

// cluster is the two servers.
type cluster struct {
	mysql   *sandbox.MySQL
	db      *sql.DB // of the database shop
	brokers []string
	kafka   string // what the brokers are, for people

	mu      sync.Mutex
	closers []func() error
}

// startCluster fetches both servers where the cache lacks them, starts them and makes the table and the topics.
func startCluster(ctx context.Context, s *screen) (*cluster, error) {
	c := &cluster{}
	stop := showFetching(s)
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.startMySQL(groupCtx, s) })
	group.Go(func() error { return c.startKafka(groupCtx, s) })
	err := group.Wait()
	stop()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Close ends both servers and removes their data.
func (c *cluster) Close() error {
	var all error
	for i := len(c.closers) - 1; i >= 0; i-- {
		all = errors.Join(all, c.closers[i]())
	}
	c.closers = nil
	return all
}

func (c *cluster) closeLater(f func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closers = append(c.closers, f)
}

func (c *cluster) startMySQL(ctx context.Context, s *screen) error {
	m, err := sandbox.StartMySQL(ctx, sandbox.MySQLOptions{Progress: func(line string) { s.note("MySQL: %s", line) }})
	if err != nil {
		return err
	}
	c.mysql = m
	c.closeLater(m.Close)
	for statement := range strings.SplitSeq(schema, ";\n") {
		if strings.TrimSpace(statement) == "" {
			continue
		}
		if err := m.Exec(ctx, statement); err != nil {
			return fmt.Errorf("making the tables: %w", err)
		}
	}
	if c.db, err = m.Open("shop"); err != nil {
		return err
	}
	c.closeLater(c.db.Close)
	s.note("MySQL %s runs at %s", m.Version(), m.Addr())
	return nil
}

func (c *cluster) startKafka(ctx context.Context, s *screen) error {
	k, err := sandbox.StartKafka(ctx, sandbox.KafkaOptions{Progress: func(line string) { s.note("Kafka: %s", line) }})
	var missing *sandbox.MissingError
	if errors.As(err, &missing) {
		return c.startStandIn(s, missing)
	}
	if err != nil {
		return err
	}
	c.closeLater(k.Close)
	for _, topic := range topics {
		if err := k.CreateTopic(ctx, topic, partitions, 0, nil); err != nil {
			return err
		}
	}
	c.brokers, c.kafka = k.Addrs(), "Kafka "+sandbox.KafkaVersion
	s.note("Kafka %s runs at %s", sandbox.KafkaVersion, strings.Join(c.brokers, ","))
	return nil
}

// startStandIn starts a broker in this process, for a machine that cannot run Kafka.
func (c *cluster) startStandIn(s *screen, missing *sandbox.MissingError) error {
	k, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topics...))
	if err != nil {
		return fmt.Errorf("starting a stand-in for Kafka: %w", err)
	}
	c.closeLater(func() error { k.Close(); return nil })
	c.brokers, c.kafka = k.ListenAddrs(), "a stand-in broker inside this program"
	s.note("%s", s.paint(red, "NOT A REAL KAFKA: "+missing.Error()))
	s.note("%s", s.paint(red, "this run uses a stand-in broker inside the demo at "+strings.Join(c.brokers, ",")+" that keeps records in memory only"))
	return nil
}

// showFetching prints a sign of life while the servers are being fetched, until stop is called.
func showFetching(s *screen) (stop func()) {
	ended, gone := make(chan struct{}), make(chan struct{})
	before := cacheSize()
	go func() { // ends with stop
		defer close(gone)
		begun := time.Now()
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				s.note("… %.0f s, %d MB fetched and unpacked", time.Since(begun).Seconds(), max(0, cacheSize()-before)/1e6)
			}
		}
	}()
	return func() { close(ended); <-gone }
}

// cacheSize gives the bytes in the cache folder; files that come and go meanwhile are left out.
func cacheSize() (bytes int64) {
	dir, err := sandbox.CacheDir()
	if err != nil {
		return 0
	}
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // an estimate for people
		}
		if info, err := d.Info(); err == nil {
			bytes += info.Size()
		}
		return nil
	})
	return bytes
}
