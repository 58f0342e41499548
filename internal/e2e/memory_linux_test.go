package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
)

// peakMemory is the most memory that the relay has had at once (VmHWM of proc(5)), in bytes.
func peakMemory(t *testing.T, r *e2e.Relay) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nVmHWM:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// A row of nearly limits.row is in memory three times at most: as row, text and waiting record, and then as waiting record, encoded records and
// request. Buffers that it has gone through are given back meanwhile.
func TestARowOfNearlyTheLimitTakesThreeTimesItsSize(t *testing.T) {
	t.Parallel()
	const size = 15_900_000
	k := sandbox.SharedKafka(t)
	s := site(t, e2e.SiteOptions{Kafka: k})
	raiseLimit(t, k, s.Name+".order", 24<<20)
	text := make([]byte, size)
	for i := range text {
		text[i] = "0123456789abcdef"[rand.N(16)] // does not become smaller by lz4
	}
	r := start(t, s, e2e.RelayOptions{})
	waitMarked(t, s, r)
	for range 100 {
		insert(t, s, three...)
	}
	waitMarked(t, s, r)
	before := peakMemory(t, r)
	large := func() {
		if _, err := s.DB.ExecContext(testContext(t), "INSERT INTO orders_outbox (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('order', 'large', 'Written', JSON_OBJECT('a', ?), UUID())", string(text)); err != nil {
			t.Fatal(err)
		}
		waitRelayed(t, s, r)
	}
	large() // with nothing behind it that would take the place of its buffers
	load, err := s.StartLoad(e2e.Load{Seed: 1, MaxRows: 3, Rate: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer load.Stop()
	large()
	more := peakMemory(t, r) - before
	if stats := load.Stop(); stats.Err != nil {
		t.Fatal(stats.Err)
	}
	stop(t, r)
	if n, _ := deliveriesOf(t, s, "large"); n != 2 {
		t.Errorf("%d large records were published", n)
	}
	if more > size*7/2 {
		t.Errorf("the peak rose by %.1f times the row: from %d to %d bytes", float64(more)/size, before, before+more)
	}
	t.Logf("the peak rose from %d to %d bytes, by %.1f times the row", before, before+more, float64(more)/size)
}
