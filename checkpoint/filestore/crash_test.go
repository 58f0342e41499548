package filestore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/filestore"
	"outbox-relay/checkpoint/storetest"
)

const target = "/data/orders.checkpoint"

// steps are the changing calls of a save, as the table below counts them.
var steps = []string{"create", "write", "sync", "close", "rename", "sync directory"}

func openOn(t *testing.T, d *disk) *filestore.Store {
	t.Helper()
	s, err := filestore.Open(filestore.Options{Path: target, Name: storetest.Name, Layer: d})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// onDisk loads what the next process would, and says which checkpoint it is:
// "none", "old" or "new"; any other text is a failure.
func onDisk(t *testing.T, d *disk) string {
	t.Helper()
	s := openOn(t, d)
	defer s.Close()
	c, err := s.Load(t.Context())
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		return "none"
	case err != nil:
		return err.Error()
	case cmp.Equal(c, storetest.Checkpoint(1)):
		return "old"
	case cmp.Equal(c, storetest.Checkpoint(2)):
		return "new"
	}
	return fmt.Sprintf("unknown checkpoint %+v", c)
}

// diskWith returns a disk with the old checkpoint safely on it, or with none.
func diskWith(t *testing.T, before string) *disk {
	t.Helper()
	d := newDisk()
	if before == "old" {
		s := openOn(t, d)
		if err := s.Save(t.Context(), storetest.Checkpoint(1)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(d.trace, steps) {
			t.Fatalf("a save is %q, the table expects %q", d.trace, steps)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return d.reboot(nothingLost)
}

// TestCrashDuringSave is the table: where the machine crashes in a save, what
// becomes of unsynced writes, and which checkpoint is there afterwards.
func TestCrashDuringSave(t *testing.T) {
	t.Parallel()
	table := []struct {
		before string // the machine crashes before this step; "" is after the last
		after  map[loss]string
	}{
		{"create", all("old")},
		{"write", all("old")},
		{"sync", all("old")},
		{"close", all("old")},
		{"rename", all("old")},
		// The new content is durable, its name may not be yet.
		{"sync directory", map[loss]string{nothingLost: "new", allLost: "old", contentsLost: "new", contentsTorn: "new"}},
		{"", all("new")},
	}
	for i, row := range table {
		for _, l := range losses {
			for _, first := range []string{"old", "none"} {
				t.Run(fmt.Sprintf("before %q/%s/%s before it", row.before, l, first), func(t *testing.T) {
					t.Parallel()
					d := diskWith(t, first)
					d.crashAt = i
					s := openOn(t, d)
					err := s.Save(t.Context(), storetest.Checkpoint(2))
					if crashed := errors.Is(err, errCrash); crashed != (row.before != "") {
						t.Fatalf("Save gave %v", err)
					}
					want := row.after[l]
					if want == "old" {
						want = first
					}
					next := d.reboot(l)
					if got := onDisk(t, next); got != want {
						t.Errorf("after the crash: %s, want %s", got, want)
					}
					if n := len(next.names); n > 1 {
						t.Errorf("%d files are left after recovery", n)
					}
				})
			}
		}
	}
}

func all(what string) map[loss]string {
	m := map[loss]string{}
	for _, l := range losses {
		m[l] = what
	}
	return m
}

// TestCrashTableNoticesMissingSyncs shows that the table can fail: with a sync
// left out, some crash after a finished save loses or tears the checkpoint.
func TestCrashTableNoticesMissingSyncs(t *testing.T) {
	t.Parallel()
	for name, breakIt := range map[string]func(*disk){
		"file not synced":      func(d *disk) { d.lazySync = true },
		"directory not synced": func(d *disk) { d.lazySyncDir = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var bad []string
			for _, l := range losses {
				d := diskWith(t, "old")
				breakIt(d)
				if err := openOn(t, d).Save(t.Context(), storetest.Checkpoint(2)); err != nil {
					t.Fatal(err)
				}
				if got := onDisk(t, d.reboot(l)); got != "new" {
					bad = append(bad, got)
				}
			}
			if len(bad) == 0 {
				t.Error("no crash showed the missing sync")
			}
		})
	}
}

// TestFailureDuringSave fails each step once: the error is typed, says what to
// do, the old checkpoint (or, after the rename, the new one) is there, and the
// next save works.
func TestFailureDuringSave(t *testing.T) {
	t.Parallel()
	for i, step := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			d := diskWith(t, "old")
			s := openOn(t, d)
			d.failAt, d.failure = i, syscall.ENOSPC
			err := s.Save(t.Context(), storetest.Checkpoint(2))
			var typed *checkpoint.Error
			if !errors.As(err, &typed) || !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("Save gave %v", err)
			}
			if typed.Path != target || !strings.Contains(typed.Hint, "disk is full") {
				t.Errorf("path %q, hint %q", typed.Path, typed.Hint)
			}
			want := "old"
			if step == "sync directory" {
				want = "new"
			}
			if got := onDisk(t, d.reboot(nothingLost)); got != want {
				t.Errorf("after the failure: %s, want %s", got, want)
			}
			if got := onDisk(t, d.reboot(allLost)); got != "old" {
				t.Errorf("after the failure and a crash: %s, want old", got)
			}
			if _, left := d.names[target+".tmp"]; left {
				t.Error("the temporary file still takes space")
			}
			if err := s.Save(t.Context(), storetest.Checkpoint(2)); err != nil {
				t.Fatalf("the next save: %v", err)
			}
			if got := onDisk(t, d.reboot(allLost)); got != "new" {
				t.Errorf("after the next save: %s", got)
			}
		})
	}
}

// TestCrashDuringRemove ends with the checkpoint or without, never in between.
func TestCrashDuringRemove(t *testing.T) {
	t.Parallel()
	for i, want := range []map[loss]string{
		all("old"),
		{nothingLost: "none", allLost: "old", contentsLost: "none", contentsTorn: "none"},
		all("none"),
	} {
		for _, l := range losses {
			d := diskWith(t, "old")
			d.crashAt = i
			err := openOn(t, d).Remove(t.Context())
			if (err == nil) != (i == 2) {
				t.Fatalf("Remove with a crash before step %d gave %v", i, err)
			}
			if got := onDisk(t, d.reboot(l)); got != want[l] {
				t.Errorf("crash before step %d, %s: %s, want %s", i, l, got, want[l])
			}
		}
	}
}
