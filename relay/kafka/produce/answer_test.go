package produce

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// randomAnswer is an answer by another implementation, and what it says.
func randomAnswer(version int16, random *rand.Rand) (*kmsg.ProduceResponse, *sarama.ProduceResponse) {
	text := func() *string {
		if random.IntN(2) == 0 {
			return nil
		}
		s := string(rune('a'+random.IntN(26))) + " reason"
		return &s
	}
	from := &kmsg.ProduceResponse{Version: version, ThrottleMillis: random.Int32()}
	want := &sarama.ProduceResponse{Version: version, ThrottleTime: time.Duration(from.ThrottleMillis) * time.Millisecond, Blocks: map[string]map[int32]*sarama.ProduceResponseBlock{}}
	for topic := range random.IntN(4) {
		name := "topic-" + string(rune('a'+topic))
		to := kmsg.NewProduceResponseTopic()
		to.Topic = name
		want.Blocks[name] = map[int32]*sarama.ProduceResponseBlock{}
		for i := range int32(random.IntN(5)) {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode, p.BaseOffset, p.LogAppendTime, p.LogStartOffset = i, int16(random.IntN(110)-1), random.Int64(), random.Int64N(1e13)-1, random.Int64()
			b := &sarama.ProduceResponseBlock{Err: sarama.KError(p.ErrorCode), Offset: p.BaseOffset, StartOffset: p.LogStartOffset}
			if p.LogAppendTime >= 0 {
				b.Timestamp = time.UnixMilli(p.LogAppendTime)
			}
			if version >= 8 {
				for k := range int32(random.IntN(3)) {
					e := kmsg.NewProduceResponseTopicPartitionErrorRecord()
					e.RelativeOffset, e.ErrorMessage = k, text()
					p.ErrorRecords = slices.Insert(p.ErrorRecords, random.IntN(len(p.ErrorRecords)+1), e) // in any order
					if k == 0 {                                                                           // the first is kept
						b.RecordErrors = []sarama.ProduceResponseRecordError{{BatchIndex: k, BatchIndexErrorMessage: e.ErrorMessage}}
					}
				}
				p.ErrorMessage = text()
				b.ErrorMessage = p.ErrorMessage
			}
			if version >= 10 && random.IntN(2) == 0 {
				p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = random.Int32(), random.Int32()
				b.CurrentLeader = &sarama.ProduceResponseCurrentLeader{LeaderID: p.CurrentLeader.LeaderID, LeaderEpoch: p.CurrentLeader.LeaderEpoch}
			}
			if version >= 9 && random.IntN(2) == 0 {
				p.UnknownTags.Set(99, []byte("of a later version"))
			}
			to.Partitions = append(to.Partitions, p)
			want.Blocks[name][i] = b
		}
		from.Topics = append(from.Topics, to)
	}
	if version >= 10 {
		for range random.IntN(3) {
			n := kmsg.NewProduceResponseBroker()
			n.NodeID, n.Host, n.Port, n.Rack = random.Int32(), "broker", random.Int32(), text()
			from.Brokers = append(from.Brokers, n)
			want.NodeEndpoints = append(want.NodeEndpoints, &sarama.ProduceResponseNodeEndpoint{NodeID: n.NodeID, Host: n.Host, Port: n.Port, Rack: n.Rack})
		}
	}
	return from, want
}

// body is what stands behind the correlation id.
func body(from *kmsg.ProduceResponse) (b []byte) {
	if from.Version >= 9 {
		b = append(b, 0)
	}
	return from.AppendTo(b)
}

func TestAnswersOfAnotherImplementationAreRead(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, version := range []int16{7, 8, 9, 10} {
		for range 500 {
			from, want := randomAnswer(version, random)
			got, err := parse(body(from), version)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("version %d (-want +got):\n%s", version, diff)
			}
		}
	}
}

// A part of an answer, or one with something behind it, is an error and not a shorter answer.
func TestDamagedAnswersAreRefused(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, version := range []int16{7, 8, 9, 10} {
		for range 50 {
			from, _ := randomAnswer(version, random)
			b := body(from)
			for n := range b {
				if _, err := parse(b[:n], version); err == nil {
					t.Fatalf("version %d: %d bytes of %d are taken for an answer", version, n, len(b))
				}
			}
			if _, err := parse(append(b, 0), version); err == nil {
				t.Fatalf("version %d: a byte more is taken", version)
			}
		}
	}
}

// What a damaged answer says of its length costs no memory that it does not have.
func TestDamagedAnswerCostsNoMoreThanItHas(t *testing.T) {
	b := binary.BigEndian.AppendUint32(nil, 1) // topics
	b = append(b, 0, 1, 't')
	b = binary.BigEndian.AppendUint32(b, 1) // partitions
	b = append(b, make([]byte, 4+2+8+8+8)...)
	const size = 8 << 20
	b = binary.BigEndian.AppendUint32(b, size) // errors of records
	b = append(b, bytes.Repeat([]byte{0, 0, 0, 0, 0x7f, 0xff}, size/6+1)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := parse(b, 8); err == nil {
		t.Error("it is taken for an answer")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 4*size {
		t.Errorf("%d MiB for an answer of %d", n>>20, size>>20)
	}
}

// FuzzAnswer: whatever comes, reading it ends, without panic and without memory beyond what came.
func FuzzAnswer(f *testing.F) {
	random := rand.New(rand.NewPCG(7, 8))
	for _, version := range []int16{7, 8, 9, 10} {
		for range 5 {
			from, _ := randomAnswer(version, random)
			f.Add(body(from), uint8(version))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, version uint8) {
		v := 7 + int16(version%4)
		resp, err := parse(b, v)
		if (resp == nil) == (err == nil) {
			t.Fatalf("answer %v with error %v", resp, err)
		}
	})
}
