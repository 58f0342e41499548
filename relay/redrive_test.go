package relay_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"outbox-relay/relay"
	"outbox-relay/router"
)

// A row that asks for a partition is published to that one again, and to none that a partitioner chooses.
func TestARedrivenLetterGoesToThePartitionOfItsRow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason    string
		partition int32
		redriven  bool
	}{
		{"too_large", router.AnyPartition, true},
		{"too_large", 7, true},
		{"invalid_partition", 7, true},                    // the topic lacked it
		{"invalid_partition", router.AnyPartition, false}, // the row's column is NULL
		{"null_value", 7, false},
	} {
		rec := &router.Record{Topic: "t", Key: []byte("k"), Value: []byte("v"), Partition: c.partition, Headers: []router.Header{{Key: "h", Value: []byte("x")}}}
		letter := relay.DeadLetter(rec, &relay.Poison{Reason: c.reason, Position: "g#0"}, "dead", "orders", time.Now())
		if letter.Partition != router.AnyPartition {
			t.Errorf("%s, partition %d: the letter goes to partition %d", c.reason, c.partition, letter.Partition)
		}
		got, err := relay.Redrive(letter)
		if (err == nil) != c.redriven {
			t.Errorf("%s, partition %d: %v", c.reason, c.partition, err)
		}
		if err != nil {
			continue
		}
		headers := slices.DeleteFunc(got.Headers, func(h router.Header) bool { return h.Key == "h" || h.Key == router.PositionHeader })
		if got.Partition != c.partition || got.Topic != "t" || len(headers) > 0 {
			t.Errorf("%s, partition %d: %+v", c.reason, c.partition, got)
		}
	}
}

// A letter that did not fit with its value is not published as one that has none, which means that the key is deleted.
func TestARedrivenLetterNeverBecomesATombstone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value    []byte
		dropped  bool
		redriven bool
	}{
		{[]byte("v"), false, true},
		{[]byte("v"), true, false},
		{[]byte{}, false, true},
		{[]byte{}, true, false},
		{nil, false, true}, // it was a tombstone
	} {
		rec := &router.Record{Topic: "t", Key: []byte("k"), Value: c.value, Partition: router.AnyPartition}
		letter := relay.DeadLetter(rec, &relay.Poison{Reason: "too_large", Position: "g#0"}, "dead", "orders", time.Now())
		if c.dropped {
			letter.Value = nil
		}
		got, err := relay.Redrive(letter)
		if (err == nil) != c.redriven || err == nil && (got.Value == nil) != (c.value == nil) {
			t.Errorf("%q, dropped %v: %+v, %v", c.value, c.dropped, got, err)
		}
	}
}

// The letter of a row whose topic is not known is a dead letter, and no record can be made of it.
func TestALetterWithoutATopicIsReadAndNotRedriven(t *testing.T) {
	t.Parallel()
	rec := &router.Record{Key: []byte("k"), Value: []byte("v"), Partition: router.AnyPartition}
	letter := relay.DeadLetter(rec, &relay.Poison{Reason: "null_topic", Table: "app.t", Position: "g#0"}, "dead", "orders", time.Now())
	if d, ok := relay.ReadDeadLetter(letter); !ok || d.Reason != "null_topic" || d.Topic != "" {
		t.Errorf("read as %+v, %v", d, ok)
	}
	if _, err := relay.Redrive(letter); err == nil || !strings.Contains(err.Error(), "null_topic") {
		t.Errorf("redriven: %v", err)
	}
}

// A record has its timestamp again, also where the letter could not have it; a row that gives none is not published with that of its letter.
func TestARedrivenLetterHasTheTimestampOfItsRow(t *testing.T) {
	t.Parallel()
	const row = 1_500_000_000_000
	for _, c := range []struct {
		reason   string
		err      error
		stamp    int64
		redriven bool
	}{
		{"too_large", nil, row, true},
		{"invalid_timestamp", nil, row, true},
		{"invalid_timestamp", nil, 0, true},
		{"invalid_timestamp", nil, 253402300799000, false},                                       // no client can send it
		{"invalid_timestamp", &router.Poison{Reason: router.ReasonInvalidTimestamp}, row, false}, // the row's column is NULL
	} {
		rec := &router.Record{Topic: "t", Key: []byte("k"), Value: []byte("v"), Partition: router.AnyPartition, TimestampMillis: c.stamp}
		letter := relay.DeadLetter(rec, &relay.Poison{Reason: c.reason, Err: c.err, Position: "g#0"}, "dead", "orders", time.Now())
		if refused := c.reason != "too_large"; refused != (letter.TimestampMillis != c.stamp) {
			t.Errorf("%s: the letter has the timestamp %d", c.reason, letter.TimestampMillis)
		}
		if c.reason == "too_large" { // the topic of letters refuses the timestamp
			if letter = relay.Acceptable(letter, &relay.Poison{Reason: "invalid_timestamp"}, time.Now()); letter.Value == nil || letter.TimestampMillis == row {
				t.Errorf("instead of the letter there is %+v", letter)
			}
		}
		if h := letter.Headers[len(letter.Headers)-1]; h.Key != router.PositionHeader {
			t.Errorf("the last header is %s", h.Key)
		}
		got, err := relay.Redrive(letter)
		if (err == nil) != c.redriven || err == nil && (got.TimestampMillis != c.stamp || len(got.Headers) != 1) {
			t.Errorf("%s at %d: %+v, %v", c.reason, c.stamp, got, err)
		}
	}
}

// A record that does not tell its position is published again without it, and its letter tells it.
func TestARedrivenLetterHasTheHeadersOfItsRow(t *testing.T) {
	t.Parallel()
	for _, rec := range []*router.Record{
		{Headers: []router.Header{{Key: "h", Value: []byte("x")}, {Key: router.PositionHeader, Value: []byte("g#1")}}},
		{Headers: []router.Header{{Key: "h", Value: []byte("x")}}, Position: []byte("g#1")},
	} {
		rec.Topic, rec.Partition = "t", router.AnyPartition
		letter := relay.DeadLetter(rec, &relay.Poison{Reason: "parked", Position: "g#1"}, "dead", "orders", time.Now())
		if d, ok := relay.ReadDeadLetter(letter); !ok || d.Position != "g#1" {
			t.Errorf("the letter says %+v", d)
		}
		got, err := relay.Redrive(letter)
		if err != nil || !slices.EqualFunc(got.Headers, rec.Headers, func(a, b router.Header) bool { return a.Key == b.Key && string(a.Value) == string(b.Value) }) {
			t.Errorf("%v of %v, %v", got, rec.Headers, err)
		}
	}
}
