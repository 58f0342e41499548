package produce

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/IBM/sarama"
)

// fieldsOf makes records of about 590 bytes, as the outbox preset has them.
func fieldsOf(n int) (all [][]byte) {
	for i := range n {
		var b []byte
		put := func(s string) {
			b = binary.AppendVarint(b, int64(len(s)))
			b = append(b, s...)
		}
		put(fmt.Sprintf("order-%08d", i*7919%1000))
		put(fmt.Sprintf(`{"order_id": %d, "customer": {"id": %d, "name": "Some Customer"}, "lines": [{"sku": "ABC-%d", "quantity": 2, "price": "12.34"}, `+
			`{"sku": "DEF-%d", "quantity": 1, "price": "99.00"}], "total": "123.68", "currency": "EUR", "note": "leave at door", "tags": ["a", "b"]}`, i, i*31, i%997, i%13))
		b = binary.AppendVarint(b, 5)
		id := fmt.Sprintf("550e8400-e29b-41d4-a716-%012d", i)
		for _, h := range [][2]string{{"id", id}, {"event_type", "OrderPlaced"}, {"aggregate_type", "order"}, {"idempotency_key", id},
			{"outbox-relay-position", fmt.Sprintf("3e11fa47-71ca-11e1-9e33-c80aa9429562:%d#0", i)}} {
			put(h[0])
			put(h[1])
		}
		all = append(all, b)
	}
	return all
}

func encodeOne(e *Encoder, codec sarama.CompressionCodec, fields [][]byte) []byte {
	return encodeFor(e, "outbox-relay", codec, fields)
}

func encodeFor(e *Encoder, client string, codec sarama.CompressionCodec, fields [][]byte) []byte {
	e.Begin(Head{Version: versionNewest, ClientID: client, TimeoutMillis: 2500, Topics: 1})
	e.Topic("orders", 1, true)
	e.BeginBatch(Batch{Codec: codec, Count: len(fields), Base: 1_700_000_000_000, Latest: 1_700_000_000_000, Size: 600 * len(fields), ProducerID: 7})
	for i, f := range fields {
		e.Record(int64(i/10), f)
	}
	e.EndBatch()
	return e.End()
}

func BenchmarkEncoder(b *testing.B) {
	fields := fieldsOf(800)
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionLZ4, sarama.CompressionSnappy, sarama.CompressionZSTD} {
		b.Run(codec.String(), func(b *testing.B) {
			var e Encoder
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n = len(encodeOne(&e, codec, fields))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(fields)), "ns/record")
			b.ReportMetric(float64(n)/float64(len(fields)), "B/record")
		})
	}
}
