package main

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"outbox-relay/relay/relaytest"
)

func record(id int) relaytest.Message {
	return relaytest.Message{
		Topic: "outbox.event.order", Partition: 2, Offset: 7, Key: []byte("42"), Value: []byte(`{"a": 1}`),
		Headers: []relaytest.Header{{Key: "id", Value: strconv.AppendInt(nil, int64(id), 10)}, {Key: "outbox-relay-position", Value: []byte("u:1#0")}},
	}
}

func TestTapePrintsAllOfARecord(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	newTape(newScreen(&out)).receive(record(1), time.Now())
	for _, part := range []string{"outbox.event.order", "partition 2", "key 42", "id=1", "outbox-relay-position=u:1#0", `{"a": 1}`} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the record is shown without %q:\n%s", part, out.String())
		}
	}
}

func TestTapeIsThrottledAndCountsWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	tape := newTape(newScreen(&out))
	now := time.Now()
	for id := range 1000 {
		tape.receive(record(id), now)
	}
	if got := strings.Count(out.String(), "payload"); got != tapeBurst {
		t.Errorf("%d records of a burst were printed, want %d", got, tapeBurst)
	}
	out.Reset()
	tape.receive(record(1000), now.Add(time.Second))
	if !strings.Contains(out.String(), "and 994 more") {
		t.Errorf("the number of records left out is not told:\n%s", out.String())
	}
}

func TestTapeTellsDuplicates(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	tape := newTape(newScreen(&out))
	for _, id := range []int{1, 2, 1} {
		tape.receive(record(id), time.Now())
	}
	if received, distinct := tape.counts(); received != 3 || distinct != 2 {
		t.Errorf("got %d records of %d rows, want 3 of 2", received, distinct)
	}
	if strings.Count(out.String(), "again:") != 1 {
		t.Errorf("one record came again:\n%s", out.String())
	}
}

func TestTapeCallsTheMarkOnce(t *testing.T) {
	t.Parallel()
	tape := newTape(newScreen(&bytes.Buffer{}))
	calls := 0
	tape.onNext(func() { calls++ })
	for id := range 3 {
		tape.receive(record(id), time.Now())
	}
	if calls != 1 {
		t.Errorf("the mark was called %d times, want 1", calls)
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	s := &screen{width: 4}
	for in, want := range map[string]string{"": "", "Zoë!": "Zoë!", "Zoëëë": "Zoë…"} {
		if got := s.fit(in); got != want {
			t.Errorf("fit(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for in, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		if got := number(in); got != want {
			t.Errorf("number(%d) = %q, want %q", in, got, want)
		}
	}
}
