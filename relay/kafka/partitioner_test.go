package kafka_test

import (
	"testing"

	"github.com/IBM/sarama"

	"outbox-relay/relay/kafka"
)

// partitionVectors were produced with librdkafka 2.11.1 (murmur2, consistent) and sarama (hash). Rows: key, then partitions by murmur2,
// crc32 and fnv1a for 3, 12, 16 and 100 partitions.
var partitionVectors = []struct {
	key                                                        string
	m3, c3, f3, m12, c12, f12, m16, c16, f16, m100, c100, f100 int32
}{
	{"21", 0, 1, 0, 0, 4, 0, 12, 4, 4, 40, 32, 52},
	{"foobar", 0, 2, 0, 6, 5, 0, 14, 5, 8, 66, 69, 76},
	{"a-little-bit-long-string", 2, 0, 1, 8, 6, 4, 0, 2, 8, 12, 54, 4},
	{"a-little-bit-longer-string", 2, 2, 0, 11, 2, 9, 3, 10, 9, 19, 90, 13},
	{"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", 2, 1, 1, 5, 1, 10, 13, 1, 14, 77, 33, 66},
	{"abc", 0, 0, 2, 3, 6, 11, 11, 2, 11, 7, 78, 31},
	{"", 0, 0, 0, 9, 0, 3, 9, 0, 11, 81, 0, 35},
	{"kafka", 1, 2, 2, 4, 11, 5, 4, 7, 1, 80, 99, 45},
	{"foo", 2, 2, 1, 8, 5, 1, 0, 1, 9, 16, 69, 73},
	{"bar", 0, 2, 2, 9, 2, 2, 1, 10, 10, 45, 78, 2},
	{"baz", 0, 0, 1, 0, 0, 10, 0, 8, 2, 80, 92, 50},
	{"sarama", 0, 1, 0, 3, 1, 6, 7, 5, 2, 11, 21, 66},
	{"order-1", 1, 1, 1, 10, 7, 1, 6, 15, 13, 26, 79, 49},
	{"order-2", 0, 0, 1, 3, 9, 4, 3, 5, 4, 43, 93, 92},
	{"550e8400-e29b-41d4-a716-446655440000", 2, 1, 1, 11, 1, 4, 15, 1, 8, 91, 73, 24},
	{"1", 0, 2, 1, 3, 11, 4, 15, 7, 12, 59, 83, 44},
	{"42", 1, 2, 2, 4, 8, 5, 12, 8, 13, 72, 88, 85},
	{"ünï", 2, 1, 2, 11, 10, 2, 3, 10, 6, 39, 26, 26},
	{"\x00\x00\x00\x01", 0, 2, 2, 0, 2, 2, 0, 10, 2, 40, 10, 86},
}

func TestPartitionsEqualThoseOfOtherClients(t *testing.T) {
	t.Parallel()
	for _, v := range partitionVectors {
		for _, c := range []struct {
			name string
			n    int32
			want int32
		}{
			{"murmur2", 3, v.m3}, {"crc32", 3, v.c3}, {"fnv1a", 3, v.f3}, {"murmur2", 12, v.m12}, {"crc32", 12, v.c12}, {"fnv1a", 12, v.f12},
			{"murmur2", 16, v.m16}, {"crc32", 16, v.c16}, {"fnv1a", 16, v.f16}, {"murmur2", 100, v.m100}, {"crc32", 100, v.c100}, {"fnv1a", 100, v.f100},
		} {
			if got := kafka.PartitionOf(c.name, []byte(v.key), c.n); got != c.want {
				t.Errorf("%s of %q among %d: %d, want %d", c.name, v.key, c.n, got, c.want)
			}
		}
	}
}

// The vectors of Kafka's own unit test and of sarama's.
func TestMurmur2(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]int64{
		"21": -973932308, "foobar": -790332482, "a-little-bit-long-string": -985981536, "a-little-bit-longer-string": -1486304829,
		"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971, "abc": 479470107,
		"foo": 597841616, "bar": 988958145, "baz": 1973573280, "": 275646681, "kafka": 3496464228, "sarama": 770765511,
	} {
		if got := kafka.Murmur2([]byte(key)); got != uint32(want) {
			t.Errorf("%q: %d, want %d", key, got, uint32(want))
		}
	}
}

// sarama's own partitioners as an oracle for keys that no table has.
func FuzzPartitioners(f *testing.F) {
	for _, v := range partitionVectors {
		f.Add([]byte(v.key), int32(12))
	}
	f.Fuzz(func(t *testing.T, key []byte, n int32) {
		if n < 1 || key == nil {
			return
		}
		for name, constructor := range map[string]sarama.PartitionerConstructor{
			"murmur2": sarama.NewMurmur2Partitioner, "crc32": sarama.NewConsistentCRCHashPartitioner, "fnv1a": sarama.NewHashPartitioner,
		} {
			want, err := constructor("t").Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, n)
			if err != nil {
				t.Fatal(err)
			}
			if got := kafka.PartitionOf(name, key, n); got != want {
				t.Errorf("%s of %q among %d: %d, want %d", name, key, n, got, want)
			}
		}
	})
}
