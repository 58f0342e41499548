package sandbox_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"outbox-relay/internal/sandbox"
)

func TestProcessesFillACacheEntryOnce(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	count := filepath.Join(t.TempDir(), "count")
	var fillers []*exec.Cmd
	for range 4 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SANDBOX_TEST_ROLE=filler", "SANDBOX_TEST_COUNT="+count, "OUTBOX_RELAY_CACHE="+cache)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		fillers = append(fillers, cmd)
	}
	for _, cmd := range fillers {
		if err := cmd.Wait(); err != nil {
			t.Errorf("a filler failed: %v", err)
		}
	}
	if got, _ := os.ReadFile(count); string(got) != "x" {
		t.Errorf("the entry was filled %d times, want 1", len(got))
	}
	if got, _ := os.ReadFile(filepath.Join(cache, "entry", "part")); string(got) != "whole" {
		t.Errorf("the entry holds %q, want whole", got)
	}
}

// Not parallel: it sets the environment.
func TestUnfinishedCacheEntryIsMadeAnew(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("OUTBOX_RELAY_CACHE", cache)
	silent := func(string) {}
	broken := errors.New("broken download")
	_, err := sandbox.Cached(context.Background(), "entry", silent, func(dir string) error {
		_ = os.WriteFile(filepath.Join(dir, "half"), nil, 0o644)
		return broken
	})
	if !errors.Is(err, broken) {
		t.Fatalf("got error %v, want %v", err, broken)
	}
	if _, err := os.Stat(filepath.Join(cache, "entry")); !os.IsNotExist(err) {
		t.Error("a failed fill left an entry")
	}
	// As a killed process leaves it.
	if err := os.MkdirAll(filepath.Join(cache, "entry.partial", "rest"), 0o755); err != nil {
		t.Fatal(err)
	}
	dir, err := sandbox.Cached(context.Background(), "entry", silent, func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "whole"), nil, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(dir)
	if len(entries) != 1 || entries[0].Name() != "whole" {
		t.Errorf("entry holds %v, want the new file alone", entries)
	}
}
