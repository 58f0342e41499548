//go:build !race

package kafka_test

import (
	"context"
	"crypto/rand"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"outbox-relay/relay/kafka"
)

// counted counts what a client does on its connections.
type counted struct {
	writes, reads, written atomic.Int64
}

func (c *counted) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &countedConn{conn, c}, err
}

// countedConn counts its system calls.
type countedConn struct {
	net.Conn
	counts *counted
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.counts.writes.Add(1)
	c.counts.written.Add(int64(len(b)))
	return c.Conn.Write(b)
}

func (c *countedConn) Read(b []byte) (int, error) {
	c.counts.reads.Add(1)
	return c.Conn.Read(b)
}

// What a drain costs, apart from time: requests of hundreds of kilobytes, one write and one read for each, no byte sent twice, and allocations for
// batches only. A change that sends small batches, writes in pieces or allocates for each record fails here. It is not parallel, as it counts what
// the process allocates; the fake broker is in it.
func TestDrainCostsFewCallsAndAllocations(t *testing.T) {
	const records, partitions = 40_000, 4
	_, brokers := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(partitions, "cost"))
	var c counted
	h := start(t, brokers, func(o *kafka.Options) { o.Dialer = c.dial })
	h.publish("cost", 100, 1) // connections and producer id are there
	h.drain(time.Minute)
	rec := benchRecord("cost")
	size := len(rec.Key) + len(rec.Value)
	for _, header := range rec.Headers {
		size += len(header.Key) + len(header.Value)
	}
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = []byte{'k', byte(i), byte(i >> 8)}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c.writes.Store(0)
	c.reads.Store(0)
	c.written.Store(0)
	for i := range records {
		rec.Key = keys[i%len(keys)]
		if err := h.p.Publish(t.Context(), rec, uint64(i+10)); err != nil {
			t.Fatal(err)
		}
	}
	h.drain(time.Minute)
	runtime.ReadMemStats(&after)

	writes, reads, bytes := c.writes.Load(), c.reads.Load(), c.written.Load()
	perRecord := float64(after.Mallocs-before.Mallocs) / records
	t.Logf("%d records of about %d bytes: %d writes of %d bytes on average, %d reads, %.3f allocations per record", records, size, writes, bytes/writes, reads, perRecord)
	if most := int64(records*size/(256<<10) + 10); writes > most {
		t.Errorf("%d writes, want %d at most", writes, most)
	}
	if reads > writes+10 {
		t.Errorf("%d reads of %d answers", reads, writes)
	}
	if most := int64(records * (size + 50)); bytes > most {
		t.Errorf("%d bytes were sent for %d bytes of records, want %d at most", bytes, records*size, most)
	}
	if perRecord > 0.08 {
		t.Errorf("%.3f allocations per record, want 0.08 at most", perRecord)
	}
}

// A partition that was not worth a request beside the one under way is worth it when there is more, also if its sender knew of it before.
func TestMuchIsSentBesideARequestInFlight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		first int // records of the second partition before the many
		batch int
	}{{"at once", 0, 512 << 10}, {"after a little", 1, 512 << 10}, {"in small batches", 1, 4 << 10}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster, brokers := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(2, "t"))
			var n counted
			h := start(t, brokers, func(o *kafka.Options) { o.Dialer, o.Idle, o.MaxBatch = n.dial, time.Hour, c.batch })
			to := func(partition int32, records int) {
				for range records {
					h.seq++
					r := record("t", "k", h.seq)
					r.Partition = partition
					noise := make([]byte, 1000)
					_, _ = rand.Read(noise)
					r.Value = append(r.Value, noise...)
					h.send(r)
				}
			}
			to(0, 1)
			to(1, 1)
			h.drain(5 * time.Second)
			held, hold := make(chan struct{}), make(chan struct{})
			var once sync.Once
			cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
				once.Do(func() { close(held); <-hold })
				return nil, nil, false
			})
			defer close(hold)
			to(0, 1)
			h.p.Flush()
			<-held
			if to(1, c.first); c.first > 0 {
				h.p.Flush()
				time.Sleep(50 * time.Millisecond) // the sender looks at it
			}
			before := n.written.Load()
			to(1, 100)
			deadline := time.Now().Add(5 * time.Second)
			for n.written.Load() < before+3000 { // more than a question for metadata
				if time.Now().After(deadline) {
					t.Fatal("100 kB wait for the answer to a small request")
				}
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

// What a single record costs when the relay has nothing else to do: one request.
func TestSingleRecordsCostOneRequestEach(t *testing.T) {
	const records = 200
	_, brokers := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "cost"))
	var c counted
	h := start(t, brokers, func(o *kafka.Options) { o.Dialer, o.Idle = c.dial, time.Hour })
	h.publish("cost", 100, 1)
	h.drain(time.Minute)
	c.writes.Store(0)
	c.reads.Store(0)
	for range records {
		h.publish("cost", 100, 1)
		h.drain(time.Minute)
	}
	if writes := c.writes.Load(); writes > records+5 {
		t.Errorf("%d writes for %d records one by one", writes, records)
	}
	if reads := c.reads.Load(); reads > records+10 {
		t.Errorf("%d reads for %d records one by one", reads, records)
	}
}
