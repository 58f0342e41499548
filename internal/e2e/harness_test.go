package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

var builder *e2e.Builder

func TestMain(m *testing.M) {
	if os.Getenv(roleVariable) != "" {
		if err := roleStartRelay(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	var err error
	if builder, err = e2e.NewBuilder(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	builder.Close()
	os.Exit(code)
}

// site makes a site, on the shared servers where o names none. A relay that had a data race or panicked fails the test.
func site(t *testing.T, o e2e.SiteOptions) *e2e.Site {
	t.Helper()
	if o.MySQL == nil {
		o.MySQL = sandbox.SharedMySQL(t)
	}
	if o.Kafka == nil {
		o.Kafka = sandbox.SharedKafka(t)
	}
	if o.Label == "" {
		o.Label = "t"
	}
	o.Builder = builder
	s, err := e2e.NewSite(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Check(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(s.LogTails())
		}
		if err := s.Close(); err != nil {
			t.Log(err)
		}
	})
	return s
}

// testContext is wide: it is for things that hang, on a machine that does much else.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func start(t *testing.T, s *e2e.Site, o e2e.RelayOptions) *e2e.Relay {
	t.Helper()
	r, err := s.Start(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func insert(t *testing.T, s *e2e.Site, rows ...e2e.Row) {
	t.Helper()
	if err := s.Insert(testContext(t), rows...); err != nil {
		t.Fatal(err)
	}
}

func waitRelayed(t *testing.T, s *e2e.Site, r *e2e.Relay) {
	t.Helper()
	if err := s.WaitRelayed(testContext(t), r); err != nil {
		t.Fatal(err)
	}
}

// waitMarked waits until the relay has published a row of now, and with it all before.
func waitMarked(t *testing.T, s *e2e.Site, r *e2e.Relay) {
	t.Helper()
	insert(t, s, e2e.Row{Kind: "order", Key: "marker"})
	waitRelayed(t, s, r)
}

func waitStatus(t *testing.T, r *e2e.Relay, what string, ok func(relay.Status) bool) {
	t.Helper()
	if err := r.WaitStatus(testContext(t), what, ok); err != nil {
		t.Fatal(err)
	}
}

// waitActive waits until the relay reads and can publish.
func waitActive(t *testing.T, r *e2e.Relay) {
	t.Helper()
	waitStatus(t, r, "the relay is active and connected", func(s relay.Status) bool { return s.Role == relay.RoleActive && s.Source.Connected })
}

// stop ends the relay by SIGTERM and demands the code 0.
func stop(t *testing.T, r *e2e.Relay) time.Duration {
	t.Helper()
	code, took, err := r.Stop(testContext(t))
	if err != nil || code != 0 {
		t.Fatalf("stopped with code %d after %v: %v", code, took, err)
	}
	return took
}

// judge demands that the promise was kept and gives the account.
func judge(t *testing.T, s *e2e.Site, o relaytest.Options) *relaytest.Report {
	t.Helper()
	report, err := s.Judge(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Err(); err != nil {
		t.Error(err)
	}
	return report
}

// deliveries counts how often each row was received, by its key, and gives the GTID of the last record's transaction.
func deliveries(t *testing.T, s *e2e.Site) (byKey map[string]int, gtid string) {
	t.Helper()
	byKey = map[string]int{}
	err := s.Consume(testContext(t), func(m relaytest.Message) error {
		byKey[string(m.Key)]++
		for _, h := range m.Headers {
			if h.Key == "outbox-relay-position" {
				gtid, _, _ = strings.Cut(string(h.Value), "#")
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return byKey, gtid
}

// checkpointOf reads the checkpoint as a restart would; nil if there is none. A damaged one fails the test.
func checkpointOf(t *testing.T, r *e2e.Relay) *checkpoint.Checkpoint {
	t.Helper()
	c, err := r.Checkpoint()
	if err != nil && !errors.Is(err, checkpoint.ErrNotFound) {
		t.Fatalf("the checkpoint cannot be read: %v", err)
	}
	return c
}

// deliveriesOf counts the messages of one key and gives the GTID of the last one's transaction.
func deliveriesOf(t *testing.T, s *e2e.Site, key string) (n int, gtid string) {
	t.Helper()
	err := s.Consume(testContext(t), func(m relaytest.Message) error {
		if string(m.Key) == key {
			n++
			gtid, _, _ = strings.Cut(string(m.Headers[len(m.Headers)-1].Value), "#")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n, gtid
}

// waitStored waits until the checkpoint contains the transaction.
func waitStored(t *testing.T, r *e2e.Relay, transaction string) {
	t.Helper()
	set := &gtid.Set{}
	set.Add(mustParse(t, transaction))
	if err := r.WaitCheckpoint(testContext(t), set); err != nil {
		t.Fatal(err)
	}
}
