package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
)

// roleVariable makes this test binary start a relay, print its process id and wait to be killed.
const roleVariable = "E2E_TEST_ROLE"

func roleStartRelay() error {
	tb := outside{}
	b, err := e2e.NewBuilder()
	if err != nil {
		return err
	}
	s, err := e2e.NewSite(context.Background(), e2e.SiteOptions{MySQL: sandbox.SharedMySQL(tb), Kafka: sandbox.SharedKafka(tb), Builder: b, Label: "orphan"})
	if err != nil {
		return err
	}
	r, err := s.Start(context.Background(), e2e.RelayOptions{})
	if err != nil {
		return err
	}
	fmt.Println(r.Pid())
	select {}
}

// outside is a sandbox.TB without a test.
type outside struct{}

func (outside) Helper()                   {}
func (outside) Name() string              { return "outside" }
func (outside) Failed() bool              { return false }
func (outside) Cleanup(func())            {}
func (outside) Logf(string, ...any)       {}
func (outside) Fatalf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }

func TestRelayEndsWithTheProcessThatStartedIt(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties a child to its parent")
	}
	m, k := sandbox.SharedMySQL(t), sandbox.SharedKafka(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=relay", "TEST_MYSQL_DSN="+m.RootDSN(""), "TEST_KAFKA_BROKERS="+strings.Join(k.Addrs(), ","), "TMPDIR="+t.TempDir())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, perr := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || perr != nil || !alive(pid) {
		t.Fatalf("the starting process says %q: %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	for deadline := time.Now().Add(20 * time.Second); alive(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("the relay %d lives on", pid)
		}
	}
}

// alive reports whether the process exists and is no zombie (proc(5), field 3 of stat).
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	i := bytes.LastIndexByte(stat, ')')
	return i >= 0 && i+2 < len(stat) && stat[i+2] != 'Z'
}
