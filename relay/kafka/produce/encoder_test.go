package produce

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/IBM/sarama"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// decoded is a batch as another implementation reads it.
type decoded struct {
	Topic     string
	Partition int32
	Head      kmsg.RecordBatch
	Records   []kmsg.Record
}

// decode reads a request with another implementation of the protocol, and checks what no part of it tells: lengths and checksums.
func decode(t *testing.T, frame []byte, version int16) (*kmsg.ProduceRequest, []decoded) {
	t.Helper()
	if n := int(int32(be(frame[:4]))); n != len(frame)-4 {
		t.Fatalf("frame of %d bytes says %d", len(frame), n)
	}
	if key, v := be(frame[4:6]), be(frame[6:8]); key != 0 || v != uint64(version) {
		t.Fatalf("call %d of version %d", key, v)
	}
	n := int(be(frame[12:14]))
	if id := string(frame[14 : 14+n]); id != "relay" {
		t.Fatalf("client id %q", id)
	}
	body := frame[14+n:]
	if version >= 9 {
		if body[0] != 0 {
			t.Fatal("the header has tags")
		}
		body = body[1:]
	}
	req := &kmsg.ProduceRequest{Version: version}
	if err := req.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	if again := req.AppendTo(nil); !bytes.Equal(again, body) {
		t.Fatal("another encoder writes the same request differently")
	}
	var all []decoded
	for _, topic := range req.Topics {
		for _, p := range topic.Partitions {
			all = append(all, decoded{topic.Topic, p.Partition, kmsg.RecordBatch{}, nil})
			d := &all[len(all)-1]
			if err := d.Head.ReadFrom(p.Records); err != nil {
				t.Fatal(err)
			}
			if want := crc32.Checksum(p.Records[21:], crc32.MakeTable(crc32.Castagnoli)); uint32(d.Head.CRC) != want {
				t.Errorf("checksum %x, want %x", uint32(d.Head.CRC), want)
			}
			if int(d.Head.Length) != len(p.Records)-12 {
				t.Errorf("a batch of %d bytes says %d", len(p.Records), d.Head.Length+12)
			}
			d.Records = recordsOf(t, &d.Head)
		}
	}
	return req, all
}

func be(b []byte) (v uint64) {
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

func recordsOf(t *testing.T, head *kmsg.RecordBatch) (records []kmsg.Record) {
	t.Helper()
	raw := expand(t, sarama.CompressionCodec(head.Attributes&7), head.Records)
	for range head.NumRecords {
		var r kmsg.Record
		length, n := varint(raw)
		if err := r.ReadFrom(raw[:n+int(length)]); err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
		raw = raw[n+int(length):]
	}
	if len(raw) > 0 {
		t.Errorf("%d bytes behind the last record", len(raw))
	}
	return records
}

func varint(b []byte) (v int64, n int) {
	u, shift := uint64(0), 0
	for {
		u |= uint64(b[n]&0x7f) << shift
		n++
		if b[n-1] < 0x80 {
			return int64(u>>1) ^ -int64(u&1), n
		}
		shift += 7
	}
}

func expand(t *testing.T, codec sarama.CompressionCodec, b []byte) []byte {
	t.Helper()
	var out []byte
	var err error
	switch codec {
	case sarama.CompressionNone:
		return b
	case sarama.CompressionLZ4:
		out, err = io.ReadAll(lz4.NewReader(bytes.NewReader(b)))
	case sarama.CompressionGZIP:
		r, failed := gzip.NewReader(bytes.NewReader(b))
		if failed != nil {
			t.Fatal(failed)
		}
		out, err = io.ReadAll(r)
	case sarama.CompressionZSTD:
		r, failed := zstd.NewReader(bytes.NewReader(b))
		if failed != nil {
			t.Fatal(failed)
		}
		defer r.Close()
		out, err = io.ReadAll(r)
	case sarama.CompressionSnappy:
		out, err = xerial.Decode(b)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Requests of every version and codec, with several topics, are what another implementation reads and would write.
func TestRequestsAreReadByAnotherImplementation(t *testing.T) {
	id := "transactional"
	for _, version := range []int16{7, 8, 9, 10} {
		for _, codec := range []sarama.CompressionCodec{sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD} {
			t.Run(fmt.Sprintf("version %d, %s", version, codec), func(t *testing.T) {
				random := rand.New(rand.NewPCG(uint64(version), uint64(codec)))
				var e Encoder
				for round := range 6 { // buffers are used again
					topics := 1 + random.IntN(3)
					head := Head{Version: version, ClientID: "relay", TimeoutMillis: 2500, Topics: topics}
					if round%2 == 1 {
						head.TransactionalID = &id
					}
					e.Begin(head)
					var batches []Batch
					var fields [][][]byte
					for topic := range topics {
						partitions := 1 + random.IntN(4)
						e.Topic(fmt.Sprintf("topic-%d", topic), partitions, topic == 0)
						for partition := range partitions {
							all := fieldsOf(1 + random.IntN(300))
							b := Batch{
								Partition: int32(partition), Codec: codec, Count: len(all), Base: 1_700_000_000_000 + random.Int64N(1e9), Size: random.IntN(1000),
								ProducerID: random.Int64(), Epoch: int16(random.IntN(1000)), Sequence: random.Int32(), Transactional: round%2 == 1,
							}
							b.Latest = b.Base + int64(len(all))
							e.BeginBatch(b)
							for i, f := range all {
								e.Record(int64(-i*i), f)
							}
							e.EndBatch()
							batches, fields = append(batches, b), append(fields, all)
						}
					}
					req, got := decode(t, e.End(), version)
					if req.Acks != -1 || req.TimeoutMillis != 2500 || (req.TransactionID != nil) != (round%2 == 1) || len(req.Topics) != topics {
						t.Fatalf("request with acks %d, time-out %d, transaction %v, %d topics", req.Acks, req.TimeoutMillis, req.TransactionID, len(req.Topics))
					}
					if len(got) != len(batches) {
						t.Fatalf("%d batches, want %d", len(got), len(batches))
					}
					for i := range got {
						compare(t, &got[i], &batches[i], fields[i])
					}
				}
			})
		}
	}
}

func compare(t *testing.T, d *decoded, want *Batch, fields [][]byte) {
	t.Helper()
	attributes := int16(want.Codec)
	if want.Transactional {
		attributes |= 16
	}
	if h := &d.Head; d.Partition != want.Partition || h.Magic != 2 || h.Attributes != attributes && h.Attributes != attributes&^7 || h.FirstOffset != 0 || int(h.LastOffsetDelta) != len(fields)-1 ||
		h.FirstTimestamp != want.Base || h.MaxTimestamp != want.Latest || h.ProducerID != want.ProducerID || h.ProducerEpoch != want.Epoch || h.FirstSequence != want.Sequence ||
		int(h.NumRecords) != len(fields) {
		t.Fatalf("batch %+v of partition %d, want %+v", h, d.Partition, want)
	}
	if len(fields) > 10 && d.Head.Attributes&7 != int16(want.Codec) {
		t.Errorf("%d records alike are not compressed", len(fields))
	}
	for i, r := range d.Records {
		again := kmsg.Record{Key: r.Key, Value: r.Value, Headers: r.Headers}
		b := again.AppendTo(nil)
		_, n := varint(b)
		if !bytes.Equal(fields[i], b[n+3:]) {
			t.Fatalf("record %d is %q, want %q", i, b[n+3:], fields[i])
		}
		if r.TimestampDelta64 != int64(-i*i) || int(r.OffsetDelta) != i {
			t.Fatalf("record %d has deltas %d and %d", i, r.TimestampDelta64, r.OffsetDelta)
		}
	}
}

// What does not get smaller is sent as it is: a batch never grows beyond what its topic takes.
func TestBatchesThatDoNotGetSmallerStayAsTheyAre(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 1000)
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	r := kmsg.Record{Value: noise}
	b := r.AppendTo(nil)
	_, n := varint(b)
	fields := b[n+3:]
	for _, codec := range []sarama.CompressionCodec{sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD} {
		var e Encoder
		e.Begin(Head{Version: 10, ClientID: "relay", Topics: 1})
		e.Topic("t", 1, true)
		e.BeginBatch(Batch{Codec: codec, Count: 1})
		e.Record(0, fields)
		e.EndBatch()
		_, got := decode(t, e.End(), 10)
		if got[0].Head.Attributes != 0 || !bytes.Equal(got[0].Records[0].Value, noise) {
			t.Errorf("%s: attributes %d", codec, got[0].Head.Attributes)
		}
		// What the codec left off with is gone with the next batch.
		if _, got := decode(t, encodeFor(&e, "relay", codec, fieldsOf(300)), versionNewest); got[0].Head.Attributes != int16(codec) || len(got[0].Records) != 300 {
			t.Errorf("%s: attributes %d and %d records in the batch behind it", codec, got[0].Head.Attributes, len(got[0].Records))
		}
	}
}
