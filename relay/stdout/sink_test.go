package stdout_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"outbox-relay/relay/stdout"
	"outbox-relay/router"
)

func TestARecordIsALineAndAcknowledgedOnceWritten(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	var acked []uint64
	s := stdout.New(&out, func(seqs []uint64) { acked = append(acked, seqs...) })
	rec := &router.Record{
		Topic: "t", Key: []byte("k"), Value: []byte(`{"a": "<é>"}`), Partition: router.AnyPartition, TimestampMillis: 1_700_000_000_123,
		Headers: []router.Header{{Key: "id", Value: []byte("1")}, {Key: "none", Null: true}, {Key: "bytes", Value: []byte{0xff, 0}}},
	}
	if err := s.Publish(context.Background(), rec, 7); err != nil {
		t.Fatal(err)
	}
	tombstone := &router.Record{Topic: "t", Partition: 3}
	if err := s.Publish(context.Background(), tombstone, 8); err != nil {
		t.Fatal(err)
	}
	if out.Len() > 0 || len(acked) > 0 {
		t.Errorf("before the flush %q was written, %v acknowledged", out.String(), acked)
	}
	s.Flush()
	want := `{"topic":"t","key":"k","headers":[["id","1"],["none",null],["bytes",{"base64":"/wA="}]],"timestamp":"2023-11-14T22:13:20.123Z","value":"{\"a\": \"<é>\"}"}
{"topic":"t","partition":3,"key":null,"headers":null,"timestamp":"1970-01-01T00:00:00.000Z","value":null}
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	if len(acked) != 2 || acked[0] != 7 || acked[1] != 8 {
		t.Errorf("acknowledged %v", acked)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("pipe closed") }

func TestWhatCouldNotBeWrittenIsNotAcknowledged(t *testing.T) {
	t.Parallel()
	s := stdout.New(broken{}, func(seqs []uint64) { t.Errorf("acknowledged %v", seqs) })
	if err := s.Publish(context.Background(), &router.Record{Topic: "t"}, 1); err != nil {
		t.Fatal(err)
	}
	s.Flush()
	if err := s.Publish(context.Background(), &router.Record{Topic: "t"}, 2); err == nil {
		t.Error("the failure of the flush is not reported")
	}
	if err := s.Drain(context.Background()); err == nil {
		t.Error("a drain does not report it")
	}
}
