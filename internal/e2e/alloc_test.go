package e2e_test

import (
	"testing"

	"outbox-relay/internal/e2e"
	"outbox-relay/relay/relaytest"
)

// A row passes through the whole program without an allocation of its own, also where the parts of the program meet: what each of them needs is per
// batch, request, save and second.
func TestTheProgramAllocatesNothingForARow(t *testing.T) {
	t.Parallel()
	const rows = 100_000
	for _, c := range []struct {
		name        string
		exactlyOnce bool
	}{{"at-least-once", false}, {"exactly-once", true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := site(t, e2e.SiteOptions{ExactlyOnce: c.exactlyOnce})
			r := start(t, s, e2e.RelayOptions{})
			waitMarked(t, s, r)
			mallocs := func() float64 {
				t.Helper()
				n, err := r.Metric(testContext(t), "go_memstats_mallocs_total")
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			before := mallocs()
			if err := s.Fill(testContext(t), rows, 100); err != nil {
				t.Fatal(err)
			}
			waitMarked(t, s, r)
			perRow := (mallocs() - before) / rows
			t.Logf("%.3f allocations per row", perRow)
			if perRow > 0.4 {
				t.Errorf("%.3f allocations per row, want 0.4 at most", perRow)
			}
			stop(t, r)
			judge(t, s, relaytest.Options{})
		})
	}
}
