package sandbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"outbox-relay/internal/sandbox"
)

// Some tests need a process of their own to kill, or several: they run this test binary
// again with SANDBOX_TEST_ROLE.
func TestMain(m *testing.M) {
	roles := map[string]func() error{
		"servers":  roleServers,
		"watchdog": roleWatchdog,
		"filler":   roleFiller,
		"external": roleExternal,
	}
	name := os.Getenv("SANDBOX_TEST_ROLE")
	if name == "" {
		os.Exit(m.Run())
	}
	if err := roles[name](); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// roleServers starts servers, one of them paused, prints their pids and folders and waits
// to be killed.
func roleServers() error {
	m, err := sandbox.StartMySQL(context.Background(), sandbox.MySQLOptions{})
	if err != nil {
		return err
	}
	k, err := sandbox.StartKafka(context.Background(), sandbox.KafkaOptions{})
	if err != nil {
		return err
	}
	if err := m.Pause(); err != nil {
		return err
	}
	fmt.Println(m.Pid(), k.Broker(1).Pid(), filepath.Dir(m.DataDir()), filepath.Dir(filepath.Dir(k.Broker(1).DataDir())))
	select {}
}

// roleWatchdog starts a process that the kernel does not tie to this one.
func roleWatchdog() error {
	dir, err := sandbox.NewFolder("test")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		return err
	}
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		return err
	}
	if err := sandbox.WatchPid(cmd.Process.Pid); err != nil {
		return err
	}
	fmt.Println(cmd.Process.Pid, dir)
	select {}
}

// roleFiller fills one cache entry that other processes fill at the same time and counts
// how often that really happened.
func roleFiller() error {
	count := os.Getenv("SANDBOX_TEST_COUNT")
	_, err := sandbox.Cached(context.Background(), "entry", func(string) {}, func(dir string) error {
		f, err := os.OpenFile(count, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer f.Close()
		if _, err := f.WriteString("x"); err != nil {
			return err
		}
		// Long enough for the others to arrive.
		time.Sleep(300 * time.Millisecond)
		return os.WriteFile(filepath.Join(dir, "part"), []byte("whole"), 0o644)
	})
	return err
}

// roleExternal uses the servers that the environment gives and prints their addresses.
func roleExternal() error {
	tb := plainTB{}
	m, k := sandbox.SharedMySQL(tb), sandbox.SharedKafka(tb)
	for _, verb := range []func() error{m.Kill, m.Pause, k.Kill} {
		if err := verb(); !errors.Is(err, sandbox.ErrExternal) {
			return fmt.Errorf("a verb on a server from outside: got %v, want ErrExternal", err)
		}
	}
	name, topic := m.NewDatabase(tb), k.NewTopic(tb, 2, nil)
	if _, err := k.Leader(context.Background(), topic, 1); err != nil {
		return err
	}
	if err := errors.Join(m.Exec(context.Background(), "DROP DATABASE "+name), m.Close(), k.Close()); err != nil {
		return err
	}
	fmt.Println(m.Addr(), strings.Join(k.Addrs(), ","))
	return nil
}

// plainTB is a sandbox.TB outside of a test.
type plainTB struct{}

func (plainTB) Helper()                   {}
func (plainTB) Name() string              { return "TestOutside/of a test" }
func (plainTB) Failed() bool              { return false }
func (plainTB) Cleanup(func())            {}
func (plainTB) Logf(string, ...any)       {}
func (plainTB) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

// startRole runs this binary in a role and returns it with the fields of its first line.
func startRole(t *testing.T, role string, env ...string) (*exec.Cmd, []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "SANDBOX_TEST_ROLE="+role), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line := make([]byte, 0, 512)
	for b := make([]byte, 1); len(line) == 0 || line[len(line)-1] != '\n'; {
		if _, err := out.Read(b); err != nil {
			t.Fatalf("role %s ended without a line: %v", role, err)
		}
		line = append(line, b[0])
	}
	return cmd, strings.Fields(string(line))
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls for a state of another process, for which there is no event to wait on.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
	}
}
