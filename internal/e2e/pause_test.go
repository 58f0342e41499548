package e2e_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// control tells the relay to pause or resume and demands that it is done and saved.
func control(t *testing.T, r *e2e.Relay, path string) {
	t.Helper()
	code, text, err := r.Control(testContext(t), path)
	if err != nil || code != http.StatusOK {
		t.Fatalf("POST %s gives %d %q: %v", path, code, text, err)
	}
}

func waitPaused(t *testing.T, r *e2e.Relay) {
	t.Helper()
	waitStatus(t, r, "it is paused, with nothing in flight and no connection to the source", func(s relay.Status) bool {
		return s.Role == relay.RoleActive && s.Cause == relay.CausePaused && s.Sink.InFlightRecords == 0 && s.Sink.InFlightTransactions == 0 && !s.Source.Connected
	})
}

// Rows of a pause are published after it, in order, also when the relay is killed meanwhile; the lag of the pause is told.
func TestRowsOfAPauseArePublishedAfterIt(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]e2e.SiteOptions{
		"at-least-once": {SaveInterval: 100 * time.Millisecond},
		"mysql store":   {SaveInterval: 100 * time.Millisecond, MySQLStore: true},
		"exactly-once":  {SaveInterval: 100 * time.Millisecond, ExactlyOnce: true, TransactionTimeout: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := site(t, o)
			load, err := s.StartLoad(e2e.Load{Seed: 5, Rate: 200, MaxRows: 3})
			if err != nil {
				t.Fatal(err)
			}
			defer load.Stop()
			r := start(t, s, e2e.RelayOptions{})
			waitActive(t, r)
			control(t, r, "/pause")
			waitPaused(t, r)
			before, _ := deliveries(t, s)
			insert(t, s, e2e.Row{Kind: "order", Key: "paused"})
			written := time.Now()
			if o.ExactlyOnce {
				time.Sleep(o.TransactionTimeout + 500*time.Millisecond) // Kafka would end an open transaction
			}
			r.Kill()
			r = start(t, s, e2e.RelayOptions{})
			waitPaused(t, r)
			waitStatus(t, r, "the lag is that of what was written in the pause", func(st relay.Status) bool {
				return st.LagSeconds >= time.Since(written).Seconds()-1
			})
			if after, _ := deliveries(t, s); total(after) != total(before) || after["paused"] != 0 {
				t.Errorf("%d records were published during the pause", total(after)-total(before))
			}
			control(t, r, "/resume")
			if stats := load.Stop(); stats.Err != nil {
				t.Fatal(stats.Err)
			}
			waitMarked(t, s, r)
			stop(t, r)
			if o.ExactlyOnce {
				judgeOnce(t, s)
			} else {
				judge(t, s, relaytest.Options{Restarts: 1})
			}
		})
	}
}

func total(byKey map[string]int) (n int) {
	for _, k := range byKey {
		n += k
	}
	return n
}

// What was handed over before a pause is published when Kafka is back, and nothing else is.
func TestAPauseDuringAnOutageOfKafka(t *testing.T) {
	t.Parallel()
	k := sandbox.RunKafka(t, sandbox.KafkaOptions{Proxied: true})
	s := site(t, e2e.SiteOptions{Kafka: k, SaveInterval: 100 * time.Millisecond})
	r := start(t, s, e2e.RelayOptions{})
	waitMarked(t, s, r)
	proxy := k.Broker(1).Proxy()
	proxy.Freeze()
	insert(t, s, e2e.Row{Kind: "order", Key: "handed"})
	waitStatus(t, r, "a record is in flight", func(s relay.Status) bool { return s.Sink.InFlightRecords == 1 })
	control(t, r, "/pause")
	insert(t, s, e2e.Row{Kind: "order", Key: "paused"})
	proxy.Thaw()
	waitPaused(t, r)
	if got, _ := deliveries(t, s); got["handed"] != 1 || got["paused"] != 0 {
		t.Errorf("published are %v", got)
	}
	control(t, r, "/resume")
	waitRelayed(t, s, r)
	stop(t, r)
	if report := judge(t, s, relaytest.Options{}); report.Duplicates != 0 {
		t.Error(report)
	}
}

// Reading the rows that exist is paused and goes on where it was, again and again.
func TestPausesDuringASnapshot(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]e2e.SiteOptions{
		"at-least-once": {SaveInterval: 50 * time.Millisecond, Config: "limits: {buffer: 1MiB}"},
		"exactly-once":  {SaveInterval: 50 * time.Millisecond, Config: "limits: {buffer: 1MiB}", ExactlyOnce: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := site(t, o)
			const rows = 120_000
			insertMany(t, s, rows)
			r := start(t, s, e2e.RelayOptions{Args: []string{"--set", "source.start=snapshot"}})
			waitStatus(t, r, "it is active", func(st relay.Status) bool { return st.Role == relay.RoleActive })
			ended := func() bool { return strings.Contains(r.Log(), `msg="snapshot ends`) }
			pauses := 0
			for ; !ended() && pauses < 4; pauses++ {
				control(t, r, "/pause")
				waitPaused(t, r)
				before, _ := deliveries(t, s)
				time.Sleep(50 * time.Millisecond)
				if after, _ := deliveries(t, s); total(after) != total(before) {
					t.Errorf("pause %d: %d records were published during it", pauses+1, total(after)-total(before))
				}
				control(t, r, "/resume")
				time.Sleep(20 * time.Millisecond)
			}
			if pauses < 2 {
				t.Errorf("only %d pauses before the snapshot ended", pauses)
			}
			waitStatus(t, r, "the snapshot has ended", func(relay.Status) bool { return ended() })
			waitMarked(t, s, r)
			stop(t, r)
			if got, _ := deliveries(t, s); total(got) != rows+1 {
				t.Errorf("%d records are published, want %d", total(got), rows+1)
			}
			t.Logf("%d pauses", pauses)
		})
	}
}
