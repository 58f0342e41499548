package kafka_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/kafka"
	"outbox-relay/router"
)

// BenchmarkPublish drains b.N records with values of 300 bytes into a real broker on the same machine and prints records/s, CPU and
// allocations per record of this process from Publish to the acknowledgement.
func BenchmarkPublish(b *testing.B) {
	k, err := sandbox.StartKafka(context.Background(), sandbox.KafkaOptions{Benchmark: true})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	for _, codec := range []string{"none", "lz4"} {
		for _, partitions := range []int{1, 4, 12} {
			b.Run(fmt.Sprintf("%s/partitions=%d", codec, partitions), func(b *testing.B) {
				topic := k.NewTopic(b, partitions, nil)
				benchmarkPublish(b, k.Addrs(), topic, codec)
			})
		}
	}
}

func benchmarkPublish(b *testing.B, brokers []string, topic, codec string) {
	p, err := kafka.New(kafka.Options{
		Brokers: brokers, Compression: codec, Acked: func([]uint64) {}, Poisoned: func(e *kafka.PoisonError) { panic(e) },
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "aggregate-%08d-%08d", i, i*7919)
	}
	rec := benchRecord(topic)
	feed := func(n int) {
		for i := range n {
			rec.Key = keys[i%len(keys)]
			if err := p.Publish(ctx, rec, uint64(i)); err != nil {
				b.Fatal(err)
			}
		}
		if err := p.Drain(ctx); err != nil {
			b.Fatal(err)
		}
	}
	feed(1000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := cpuTime()
	began := time.Now()
	b.ResetTimer()
	feed(b.N)
	b.StopTimer()
	took := time.Since(began)
	cpu = cpuTime() - cpu
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(b.N)/took.Seconds(), "records/s")
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-µs/record")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "allocs/record")
	b.ReportMetric(float64(maxRSS())/1024, "peak-RSS-MiB")
	b.ReportMetric(0, "ns/op")
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkTrickle publishes one record every 2 ms, each with its Flush, and prints the time to the acknowledgement and the CPU of this
// process per record, most of which is wake-ups. Run it with -benchtime=2000x.
func BenchmarkTrickle(b *testing.B) {
	k, err := sandbox.StartKafka(context.Background(), sandbox.KafkaOptions{Benchmark: true})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	topic := k.NewTopic(b, 4, nil)
	sentAt := make([]time.Time, b.N+100)
	took := make([]time.Duration, 0, b.N)
	p, err := kafka.New(kafka.Options{
		Brokers: k.Addrs(), Poisoned: func(e *kafka.PoisonError) { panic(e) },
		Acked: func(seqs []uint64) {
			for _, s := range seqs {
				took = append(took, time.Since(sentAt[s]))
			}
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	rec := benchRecord(topic)
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	feed := func(from, to int) {
		for i := from; i < to; i++ {
			<-ticker.C
			rec.Key = fmt.Append(rec.Key[:0], i%100)
			sentAt[i] = time.Now()
			if err := p.Publish(ctx, rec, uint64(i)); err != nil {
				b.Fatal(err)
			}
			p.Flush()
		}
		if err := p.Drain(ctx); err != nil {
			b.Fatal(err)
		}
	}
	feed(0, 100)
	took = took[:0]
	cpu := cpuTime()
	b.ResetTimer()
	feed(100, b.N+100)
	b.StopTimer()
	cpu = cpuTime() - cpu
	slices.Sort(took)
	b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-µs/record")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(0, "ns/op")
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// benchRecord has a value of 300 bytes and the five headers of the outbox preset, about 590 bytes on the wire with its key.
func benchRecord(topic string) *router.Record {
	value := []byte(`{"order_id": 1234567, "customer": {"id": 4711, "name": "Some Customer"}, "lines": [{"sku": "ABC-123", "quantity": 2, ` +
		`"price": "12.34"}, {"sku": "DEF-456", "quantity": 1, "price": "99.00"}], "total": "123.68", "currency": "EUR", "note": "leave at door"}`)
	for len(value) < 300 {
		value = append(value, ' ')
	}
	id := []byte("550e8400-e29b-41d4-a716-446655440000")
	return &router.Record{
		Topic: topic, Value: value, TimestampMillis: time.Now().UnixMilli(), Partition: router.AnyPartition, Table: "app.outbox_events", ID: id,
		Headers: []router.Header{
			{Key: "id", Value: id},
			{Key: "event_type", Value: []byte("OrderPlaced")},
			{Key: "aggregate_type", Value: []byte("order")},
			{Key: "idempotency_key", Value: []byte("550e8400-e29b-41d4-a716-446655440000")},
			{Key: router.PositionHeader, Value: []byte("3e11fa47-71ca-11e1-9e33-c80aa9429562:1234567#0")},
		},
	}
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// maxRSS is the peak of resident memory so far, in KiB.
func maxRSS() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Maxrss
}
