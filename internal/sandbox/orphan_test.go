package sandbox_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
)

// leaveNothing ends, if the test fails, what it was to see ended, and removes the folders.
func leaveNothing(t *testing.T, pids, dirs []string) {
	t.Cleanup(func() {
		for _, pid := range pids {
			if n, err := strconv.Atoi(pid); err == nil && t.Failed() {
				_ = syscall.Kill(n, syscall.SIGKILL)
			}
		}
		for _, dir := range dirs {
			_ = os.RemoveAll(dir)
		}
	})
}

// gone reports whether a process has ended; one that nobody has reaped yet has.
func gone(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return true
	}
	i := bytes.LastIndexByte(stat, ')')
	return stat[i+2] == 'Z' || stat[i+2] == 'X'
}

func TestServersEndWhenTheirParentIsKilled(t *testing.T) {
	t.Parallel()
	parent, fields := startRole(t, "servers")
	if len(fields) != 4 {
		t.Fatalf("role printed %q, want 2 pids and 2 folders", fields)
	}
	leaveNothing(t, fields[:2], fields[2:])
	for _, pid := range fields[:2] {
		if gone(pid) {
			t.Fatalf("server %s does not run before the kill", pid)
		}
	}
	if err := parent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	for _, pid := range fields[:2] {
		eventually(t, "server "+pid+" is gone", func() bool { return gone(pid) })
	}
	for _, dir := range fields[2:] {
		eventually(t, dir+" is removed", func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) })
	}
}

func TestKernelAloneEndsServers(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties a process to its parent")
	}
	parent, fields := startRole(t, "servers")
	leaveNothing(t, fields[:2], fields[2:])
	dogs := shells(t, parent.Process.Pid)
	if len(dogs) != 1 {
		t.Fatalf("found the watchdogs %v, want 1", dogs)
	}
	if err := syscall.Kill(dogs[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the watchdog is gone", func() bool { return gone(strconv.Itoa(dogs[0])) })
	if err := parent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	for _, pid := range fields[:2] {
		eventually(t, "server "+pid+" is gone", func() bool { return gone(pid) })
	}
}

// shells returns the pids of a process's children that are called sh (proc(5): stat is
// "pid (name) state ppid ...").
func shells(t *testing.T, parent int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // ended meanwhile
		}
		var pid, ppid int
		var comm, state string
		if n, _ := fmt.Sscanf(string(text), "%d %s %s %d", &pid, &comm, &state, &ppid); n == 4 && ppid == parent && comm == "(sh)" {
			found = append(found, pid)
		}
	}
	return found
}

func TestWatchdogAloneEndsServersAndRemovesFolders(t *testing.T) {
	t.Parallel()
	// A name with a space shows that the script quotes.
	tmp := filepath.Join(t.TempDir(), "a folder")
	if err := os.Mkdir(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	parent, fields := startRole(t, "watchdog", "TMPDIR="+tmp)
	leaveNothing(t, fields[:1], nil)
	entries, err := os.ReadDir(tmp)
	if err != nil || len(entries) != 1 {
		t.Fatalf("folders before the kill: %v, %v; want 1", entries, err)
	}
	if gone(fields[0]) {
		t.Fatal("the process does not run before the kill")
	}
	if err := parent.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait()
	eventually(t, "the process is gone", func() bool { return gone(fields[0]) })
	eventually(t, "its folder is removed", func() bool { left, _ := os.ReadDir(tmp); return len(left) == 0 })
}
