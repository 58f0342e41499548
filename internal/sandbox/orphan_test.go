package sandbox_test

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

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

func TestWatchdogAloneEndsServersAndRemovesFolders(t *testing.T) {
	t.Parallel()
	// A name with a space shows that the script quotes.
	tmp := filepath.Join(t.TempDir(), "a folder")
	if err := os.Mkdir(tmp, 0o755); err != nil {
		t.Fatal(err)
	}
	parent, fields := startRole(t, "watchdog", "TMPDIR="+tmp)
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
