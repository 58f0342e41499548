package e2e_test

import (
	"fmt"
	"testing"

	"outbox-relay/internal/e2e"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// fill writes rows into both tables at once.
func fill(t *testing.T, s *e2e.Site, rows int) {
	t.Helper()
	if err := s.Fill(testContext(t), rows, 200); err != nil {
		t.Fatal(err)
	}
}

// judgeSnapshot compares the tables with the topics after a snapshot with so many ends of the relay. What was committed after the first position and
// before its row was read comes a second time.
func judgeSnapshot(t *testing.T, s *e2e.Site, ends int) *relaytest.Report {
	t.Helper()
	report, err := s.Judge(testContext(t), relaytest.Options{Restarts: ends + 1, LateRequests: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Err(); err != nil {
		t.Fatal(err)
	}
	return report
}

func TestAStartBySnapshotPublishesTheRowsThatExistAndThenTheBinlog(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]e2e.SiteOptions{
		"file": {}, "mysql": {MySQLStore: true}, "exactly-once": {ExactlyOnce: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := site(t, o)
			const rows = 5000
			fill(t, s, rows)
			s.First = "snapshot"
			load, err := s.StartLoad(e2e.Load{Seed: 1, MaxRows: 2, Rate: 100})
			if err != nil {
				t.Fatal(err)
			}
			defer load.Stop()
			for i, failpoint := range []string{"before-save:1", "before-publish:700", "snapshot-step:1", "snapshot-step:3", "before-save:2"} {
				r := start(t, s, e2e.RelayOptions{Build: e2e.Build{Failpoints: true}, Failpoint: failpoint})
				if _, err := r.WaitExit(testContext(t)); err != nil {
					t.Fatalf("end %d at %s: %v\n%s", i, failpoint, err, r.Log())
				}
			}
			r := start(t, s, e2e.RelayOptions{})
			waitStatus(t, r, "the snapshot has ended", func(st relay.Status) bool {
				return st.Role == relay.RoleActive && st.Source.Connected && st.Snapshot == nil
			})
			load.Stop()
			waitMarked(t, s, r)
			report := judgeSnapshot(t, s, 5)
			t.Log(report, fmt.Sprint(rows))
			stop(t, r)
		})
	}
}
