package filestore_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/filestore"
	"outbox-relay/checkpoint/storetest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("on the operating system", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T) storetest.Place {
			path := filepath.Join(t.TempDir(), "checkpoint")
			return func() (checkpoint.Store, error) {
				return filestore.Open(filestore.Options{Path: path, Name: storetest.Name})
			}
		})
	})
	t.Run("on the disk of the crash tests", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(*testing.T) storetest.Place {
			d := newDisk()
			return func() (checkpoint.Store, error) {
				return filestore.Open(filestore.Options{Path: target, Name: storetest.Name, Layer: d})
			}
		})
	})
}

// options are for a file called "checkpoint" with the given content in a new
// directory; without content it does not exist.
func options(t *testing.T, content string) filestore.Options {
	t.Helper()
	o := filestore.Options{Path: filepath.Join(t.TempDir(), "checkpoint"), Name: storetest.Name}
	if content != "" {
		if err := os.WriteFile(o.Path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

func open(t *testing.T, o filestore.Options) *filestore.Store {
	t.Helper()
	s, err := filestore.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestStoreNeverOverwritesWhatItCannotTrust(t *testing.T) {
	t.Parallel()
	good, err := checkpoint.Marshal(storetest.Checkpoint(1))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		content string
		reason  error
	}{
		"another program's file": {"[mysqld]\nserver_id = 1\n", checkpoint.ErrForeign},
		"another relay's":        {strings.ReplaceAll(string(good), storetest.Name, "billing"), checkpoint.ErrDamaged},
		"a torn one":             {string(good[:100]), checkpoint.ErrDamaged},
		"a newer one":            {strings.Replace(string(good), `"version": 1`, `"version": 9`, 1), checkpoint.ErrVersion},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t, c.content)
			s := open(t, o)
			if err := s.Save(t.Context(), storetest.Checkpoint(2)); !errors.Is(err, c.reason) {
				t.Errorf("Save without Load gave %v, want %v", err, c.reason)
			}
			_, err := s.Load(t.Context())
			var typed *checkpoint.Error
			if !errors.Is(err, c.reason) || !errors.As(err, &typed) || typed.Path != o.Path || typed.Hint == "" {
				t.Errorf("Load gave %v, want %v with path and hint", err, c.reason)
			}
			if err := s.Save(t.Context(), storetest.Checkpoint(2)); !errors.Is(err, c.reason) {
				t.Errorf("Save after Load gave %v, want %v", err, c.reason)
			}
			if now, err := os.ReadFile(o.Path); err != nil || string(now) != c.content {
				t.Errorf("the file was changed: %v", err)
			}
			if err := s.Remove(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.Save(t.Context(), storetest.Checkpoint(2)); err != nil {
				t.Errorf("Save after Remove gave %v", err)
			}
		})
	}
}

func TestEmptyFileIsDamaged(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	if err := os.WriteFile(o.Path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, o).Load(t.Context()); !errors.Is(err, checkpoint.ErrDamaged) {
		t.Errorf("got %v, want ErrDamaged: an empty file must not pass for a first start", err)
	}
}

func TestReadWorksWhileAStoreIsOpen(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	s := open(t, o)
	if _, err := filestore.Read(o.Path, o.Name); !errors.Is(err, checkpoint.ErrNotFound) {
		t.Errorf("Read without a file gave %v", err)
	}
	if err := s.Save(t.Context(), storetest.Checkpoint(3)); err != nil {
		t.Fatal(err)
	}
	if c, err := filestore.Read(o.Path, o.Name); err != nil || c.BinlogPosition != 7 {
		t.Errorf("Read gave %+v, %v", c, err)
	}
}

func TestOpenRemovesWhatACrashLeft(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	if err := os.WriteFile(o.Path+".tmp", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, o)
	if _, err := os.Stat(o.Path + ".tmp"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary file is still there: %v", err)
	}
}

func TestSecondStoreIsToldWhoHoldsTheFirst(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	first := open(t, o)
	_, err := filestore.Open(o)
	if want := fmt.Sprintf("process %d on ", os.Getpid()); !errors.Is(err, checkpoint.ErrHeld) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want ErrHeld with %q", err, want)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, o)
}

// holderVariable makes the test binary a process that holds a checkpoint.
const holderVariable = "CHECKPOINT_HELD_BY_TEST"

func TestMain(m *testing.M) {
	if path := os.Getenv(holderVariable); path != "" {
		if _, err := filestore.Open(filestore.Options{Path: path, Name: storetest.Name}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("held")
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestLockOfAKilledProcessIsFree(t *testing.T) {
	t.Parallel()
	o := options(t, "")
	holder := exec.Command(os.Args[0])
	holder.Env = append(os.Environ(), holderVariable+"="+o.Path)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := holder.StdinPipe(); err != nil { // open for as long as this process lives
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer holder.Wait()
	defer holder.Process.Kill()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "held\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	_, err = filestore.Open(o)
	if want := fmt.Sprintf("process %d on ", holder.Process.Pid); !errors.Is(err, checkpoint.ErrHeld) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want ErrHeld with %q", err, want)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // "signal: killed"
	open(t, o)
}

func TestErrorsOfTheSystemHaveHints(t *testing.T) {
	t.Parallel()
	missing := options(t, "")
	missing.Path = filepath.Join(filepath.Dir(missing.Path), "no", "such", "checkpoint")
	_, err := filestore.Open(missing)
	wantHint(t, err, fs.ErrNotExist, "create the directory")

	// A directory in the place of the file.
	directory := options(t, "")
	if err := os.Mkdir(directory.Path, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err = open(t, directory).Load(t.Context())
	wantHint(t, err, nil, "is a directory: name a file in it")

	_, err = filestore.Open(filestore.Options{Path: "x"})
	if !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("Open without a name gave %v", err)
	}
}

func TestFailuresOfADiskHaveHints(t *testing.T) {
	t.Parallel()
	for failure, hint := range map[error]string{
		syscall.EROFS:  "read-only",
		syscall.EACCES: "let the relay's user write",
		syscall.EDQUOT: "quota",
		syscall.EIO:    "disk fails",
		syscall.EBUSY:  "mount its directory instead",
	} {
		d := diskWith(t, "old")
		s := openOn(t, d)
		d.failAt, d.failure = 0, failure
		wantHint(t, s.Save(t.Context(), storetest.Checkpoint(2)), failure, hint)
		if got := onDisk(t, d.reboot(nothingLost)); got != "old" {
			t.Errorf("after %v: %s", failure, got)
		}
	}
}

func wantHint(t *testing.T, err, reason error, hint string) {
	t.Helper()
	var typed *checkpoint.Error
	if !errors.As(err, &typed) || !strings.Contains(typed.Hint, hint) || reason != nil && !errors.Is(err, reason) {
		t.Errorf("got %v (%+v), want hint %q", err, typed, hint)
	}
}

func BenchmarkSave(b *testing.B) {
	s, err := filestore.Open(filestore.Options{Path: filepath.Join(b.TempDir(), "checkpoint"), Name: storetest.Name})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	c := storetest.Checkpoint(1)
	for b.Loop() {
		if err := s.Save(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
}
