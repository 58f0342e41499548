package e2e_test

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
)

// A short campaign: one of three servers freezes and dies, and the rows of the others arrive as before. Times are not judged tightly here: what waits
// for the dead server waits for seconds.
func TestASourceThatIsDownDisturbsNoOther(t *testing.T) {
	t.Parallel()
	res, err := e2e.RunShards(testContext(t), e2e.ShardsRun{Kafka: sandbox.SharedKafka(t), Builder: builder, Sources: 3, Length: 6 * time.Second, Rate: 50})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%v", res)
	res.LimitDuringBefore = 3
	if res.Before.P99 < 500*time.Millisecond {
		res.Before.P99 = 500 * time.Millisecond
	}
	if err := res.Err(); err != nil {
		t.Error(err)
	}
}

func newShards(t *testing.T, sources int, config string) *e2e.Shards {
	t.Helper()
	s, err := e2e.NewShards(testContext(t), e2e.ShardsOptions{Kafka: sandbox.SharedKafka(t), Builder: builder, Sources: sources, Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func startShards(t *testing.T, s *e2e.Shards) *e2e.Relay {
	t.Helper()
	r, err := s.Start(testContext(t), e2e.RelayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func waitOverview(t *testing.T, r *e2e.Relay, what string, ok func(relay.Overview) bool) {
	t.Helper()
	if err := r.WaitOverview(testContext(t), what, ok); err != nil {
		t.Fatalf("%v\n%s", err, r.LogTail(30))
	}
}

func write(t *testing.T, x *e2e.Shard, n int) {
	t.Helper()
	if err := x.Insert(n); err != nil {
		t.Fatal(err)
	}
}

// poison writes a row that no rule takes: its topic has a name that Kafka refuses.
func poison(t *testing.T, x *e2e.Shard) {
	t.Helper()
	if err := x.Exec(testContext(t), "INSERT INTO app.orders_outbox (aggregate_type, aggregate_id, event_type, payload, idempotency_key) VALUES ('order', REPEAT('x', 64), 'Large', JSON_OBJECT('a', REPEAT('y', 2000000)), UUID())"); err != nil {
		t.Fatal(err)
	}
}

// One halts, one is paused, one fails at its start, and the fourth goes on.
func TestSourcesHaltPauseAndFailForThemselves(t *testing.T) {
	t.Parallel()
	s := newShards(t, 4, "")
	if err := s.Shard(2).Exec(testContext(t), "ALTER USER relay IDENTIFIED BY 'another'"); err != nil {
		t.Fatal(err)
	}
	r := startShards(t, s)
	name := func(i int) string { return s.Shard(i).Name }
	is := func(i int, ok func(relay.Status) bool) func(relay.Overview) bool {
		return func(v relay.Overview) bool {
			st, found := e2e.SourceOf(v, name(i))
			return found && ok(st)
		}
	}
	waitOverview(t, r, "the third fails", is(2, func(st relay.Status) bool { return st.Cause == "failed" && strings.Contains(st.Reason, "denied") }))
	waitOverview(t, r, "the fourth is ready", is(3, func(st relay.Status) bool { return st.Ready && st.CaughtUp }))
	poison(t, s.Shard(0))
	waitOverview(t, r, "the first halts", is(0, func(st relay.Status) bool { return st.HaltReason == "poison" }))
	waitOverview(t, r, "the second is ready", is(1, func(st relay.Status) bool { return st.Ready }))
	if code, text, err := r.Control(testContext(t), "/pause?source="+name(1)); err != nil || code != http.StatusOK || text != "shards-"+name(1)+": paused" {
		t.Errorf("%d %q: %v", code, text, err)
	}
	for i := range 20 {
		write(t, s.Shard(3), i)
	}
	waitOverview(t, r, "the fourth has published", is(3, func(st relay.Status) bool {
		return st.CaughtUp && !st.LastAckedAt.IsZero() && st.Sink.InFlightRecords == 0
	}))
	waitOverview(t, r, "all say what they are", func(v relay.Overview) bool {
		return !v.Ready && is(0, func(st relay.Status) bool { return st.Cause == relay.CauseHalted })(v) && is(1, func(st relay.Status) bool { return st.Cause == relay.CausePaused })(v)
	})
	if err := s.Shard(2).Exec(testContext(t), "ALTER USER relay IDENTIFIED BY 'relay'"); err != nil {
		t.Fatal(err)
	}
	waitOverview(t, r, "the third works once it is let in", is(2, func(st relay.Status) bool { return st.Ready && st.Role == relay.RoleActive }))
	if code, _, err := r.Stop(testContext(t)); err != nil || code != 0 {
		t.Errorf("stopped with code %d: %v", code, err)
	}
}

// on_halt: exit is about the process: the others are drained and saved.
func TestOnHaltExitEndsTheProcessOfSeveralSources(t *testing.T) {
	t.Parallel()
	s := newShards(t, 2, "on_halt: exit")
	r := startShards(t, s)
	waitOverview(t, r, "both are ready", func(v relay.Overview) bool { return v.Ready && len(v.Sources) == 2 })
	write(t, s.Shard(1), 1)
	poison(t, s.Shard(0))
	if code, err := r.WaitExit(testContext(t)); err != nil || code != 4 {
		t.Fatalf("ended with code %d, want 4: %v\n%s", code, err, r.LogTail(20))
	}
	if log := r.Log(); !strings.Contains(log, `msg="checkpoint saved" source=shards-shard2`) {
		t.Errorf("the other one did not save at its end:\n%s", log)
	}
}

// The commands are about all sources or, with --source, about one.
func TestCommandsOfSeveralSources(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	s := newShards(t, 2, "")
	set := []string{"--set", "http.address=" + address}
	r, err := s.Start(testContext(t), e2e.RelayOptions{Args: set})
	if err != nil {
		t.Fatal(err)
	}
	waitOverview(t, r, "both are ready", func(v relay.Overview) bool { return v.Ready && len(v.Sources) == 2 })
	write(t, s.Shard(0), 1)
	run := func(want int, texts []string, args ...string) {
		t.Helper()
		code, out, err := s.Command(testContext(t), append(args, set...)...)
		if err != nil || code != want {
			t.Errorf("%s ends with code %d, want %d: %v\n%s", args, code, want, err, out)
		}
		for _, text := range texts {
			name, lacks := strings.CutPrefix(text, "!")
			if strings.Contains(out, name) == lacks {
				t.Errorf("%s: %q in\n%s", args, text, out)
			}
		}
	}
	run(0, []string{"shards-shard1 (", "shards-shard2 ("}, "status")
	run(0, []string{"!shards-shard1 (", "shards-shard2 ("}, "status", "--source", "shard2")
	run(64, []string{"none of this configuration, which has shards-shard1, shards-shard2"}, "status", "--source", "shard3")
	run(0, []string{`"name": "shards"`, `"sources": [`}, "status", "--json")
	run(0, []string{"shards-shard2: paused", "!shard1"}, "pause", "--source", "shard2")
	run(1, []string{"no: paused since"}, "status")
	run(0, nil, "status", "--source", "shards-shard1")
	run(0, []string{"shards-shard1.checkpoint", "shards-shard2.checkpoint", "outbox-relay resume"}, "checkpoint", "show")
	run(0, []string{"!shards-shard1"}, "checkpoint", "show", "--source", "shard2", "--json")
	run(64, []string{"the configuration has 2 sources: choose one with --source"}, "checkpoint", "reset")
	run(1, []string{`a relay called "shards-shard1" runs`}, "checkpoint", "reset", "--source", "shard1")
	run(0, []string{"shards-shard1: publishing goes on", "shards-shard2: publishing goes on"}, "resume")
	run(0, []string{"shards-shard1\n", "shards-shard2\n", s.Shard(0).Addr(), s.Shard(1).Addr(), "1 match now: app.orders_outbox"}, "check")
	run(0, []string{`"name": "shards-shard2"`, "!" + s.Shard(0).Addr()}, "check", "--source", "shard2", "--json")
	run(1, []string{"shards-shard1\n", "shards-shard2\n", "does not exist"}, "dead-letter", "list") // nothing was ever poison
	if code, _, err := r.Stop(testContext(t)); err != nil || code != 0 {
		t.Errorf("stopped with code %d: %v", code, err)
	}
	run(1, []string{"no relay runs at http.address"}, "pause")
	run(0, []string{"is removed"}, "checkpoint", "reset", "--source", "shard1")
	run(0, []string{"name: shard1", "name: shard2"}, "config", "print")
}
