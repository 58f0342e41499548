package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestMain is also the entry of the child processes that the commands start: they start this program itself.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"baseline", "read", "produce"}, os.Args[1]) {
		main()
		return
	}
	os.Exit(m.Run())
}

// One small backlog on real servers goes through everything that a benchmark does but the judging.
func TestContestantsAndReadersOnRealServers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	b := &broker{}
	s, err := startServers(ctx, b)
	if err != nil {
		t.Fatal(errors.Join(err, b.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(s.Close(), b.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := s.backlog(ctx, workload{Name: "tiny", Rows: 505, PerTx: 10, Foreign: 3, JSON: 290, Partitions: 4}, false); err != nil {
		t.Fatal(err)
	}
	want, err := s.truth(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if want.Rows != 505 {
		t.Fatalf("%d rows were written, want 505", want.Rows)
	}
	t.Run("drain", func(t *testing.T) { drainAll(ctx, t, s) })
	t.Run("a topic that lacks rows is found out", func(t *testing.T) {
		if err := s.createTopic("empty", 1); err != nil {
			t.Fatal(err)
		}
		if err := s.verify(ctx, "empty", want); err == nil || !strings.Contains(err.Error(), "holds 0 records") {
			t.Errorf("verifying an empty topic: %v", err)
		}
	})
	t.Run("readers", func(t *testing.T) { readEachWay(ctx, t, s) })
	t.Run("decoders", func(t *testing.T) { decodeBoth(t, s, int(want.Rows)) })
}

// Debezium is left out: it takes a quarter of a minute to start.
func drainAll(ctx context.Context, t *testing.T, s *servers) {
	f := drainFlags{rounds: 1, only: "relay,baseline,packets,producer"}
	table, err := f.drain(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"relay", "baseline", "producer"} {
		if peak, ok := table.median(figurePeak, c); !ok || peak < 5 {
			t.Errorf("the peak memory of %s is %v MiB", c, peak)
		}
	}
	for _, c := range table.Contestants {
		if rate, ok := table.median(figureRate, c); !ok || rate <= 0 {
			t.Errorf("the rate of %s is %v rows/s", c, rate)
		}
	}
	if first, ok := table.median(figureFirst, "relay"); !ok || first <= 0 {
		t.Errorf("the relay's first record came after %v s", first)
	}
}

// readEachWay reads the workload's foreign transactions only: those of the outbox table end the relay's reader with an error.
func readEachWay(ctx context.Context, t *testing.T, s *servers) {
	db, err := s.open()
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	start, err := executed(ctx, db)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeBulk(ctx, s, 8); err != nil {
		t.Fatal(err)
	}
	for _, how := range readers {
		var out bytes.Buffer
		if err := readCommand(ctx, []string{"-how", how, "-mysql", s.MySQL, "-start", start, "-transactions", "8", "-dir", t.TempDir()}, &out); err != nil {
			t.Errorf("reading by %s: %v", how, err)
			continue
		}
		if seconds, err := strconv.ParseFloat(strings.TrimSpace(out.String()), 64); err != nil || seconds <= 0 {
			t.Errorf("reading by %s took %q", how, out.String())
		}
	}
	if err := readCommand(ctx, []string{"-how", "reader", "-mysql", s.MySQL, "-start", s.Start, "-transactions", "8", "-dir", t.TempDir()}, &bytes.Buffer{}); err == nil {
		t.Error("outbox rows passed for foreign ones")
	}
}

func decodeBoth(t *testing.T, s *servers, rows int) {
	c, err := captureEvents(s, rows)
	if err != nil {
		t.Fatal(err)
	}
	for name, decode := range map[string]func(*capture) (int, error){"go-mysql": goMySQL, "relay": relayDecoder} {
		if n, err := decode(c); err != nil || n != rows {
			t.Errorf("%s decoded %d rows, %v; want %d", name, n, err, rows)
		}
	}
}
