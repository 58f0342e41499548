package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The tests run the command as users do, in a process of its own: this test binary again, with childVariable set.
const childVariable = "OUTBOX_RELAY_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// site is a folder with a configuration for one relay.
type site struct {
	t    *testing.T
	dir  string
	http string
}

// newSite writes a configuration; `name`, `http`, `checkpoint` and `on_halt` are set by it.
func newSite(t *testing.T, config string) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), http: freeAddress(t)}
	head := fmt.Sprintf("name: %s\nhttp: {address: %q}\ncheckpoint: {path: %q}\non_halt: exit\n", relayName(t), s.http, s.checkpoint())
	s.write("outbox-relay.yaml", head+config)
	return s
}

// relayName is a name that no other test uses: the activity lock is one per server and name.
func relayName(t *testing.T) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, t.Name())
	return name[max(0, len(name)-48):]
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *site) checkpoint() string { return filepath.Join(s.dir, "relay.checkpoint") }

func (s *site) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// child is a running command.
type child struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err output
	ended    chan struct{}
	code     int
}

// output may be read while it is written.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start runs the command in the site's folder.
func (s *site) start(args ...string) *child {
	s.t.Helper()
	c := &child{t: s.t, cmd: exec.Command(os.Args[0], args...), ended: make(chan struct{})}
	c.cmd.Dir = s.dir
	c.cmd.Env = append(os.Environ(), childVariable+"=1")
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.err
	c.cmd.SysProcAttr = childAttributes()
	if err := c.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { // ends with the child
		_ = c.cmd.Wait()
		c.code = c.cmd.ProcessState.ExitCode()
		close(c.ended)
	}()
	s.t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.ended
	})
	return c
}

// wait waits for the end and gives the exit code.
func (c *child) wait() int {
	c.t.Helper()
	select {
	case <-c.ended:
		return c.code
	case <-time.After(30 * time.Second):
		c.t.Fatalf("%v does not end; it said:\n%s%s", c.cmd.Args[1:], c.out.String(), c.err.String())
		return 0
	}
}

// stop asks the child to end and gives the exit code.
func (c *child) stop() int {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Error(err)
	}
	return c.wait()
}

// last is the last line that the command said, which is its sentence.
func (c *child) last() string {
	lines := strings.Split(strings.TrimSpace(c.err.String()), "\n")
	return lines[len(lines)-1]
}

// awaitReadyz waits until /readyz answers with code and a text that holds part.
func (s *site) awaitReadyz(c *child, code int, part string) {
	s.t.Helper()
	var got string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		select {
		case <-c.ended:
			s.t.Fatalf("the relay ended with %d:\n%s", c.code, c.err.String())
		default:
		}
		var n int
		if n, got = s.get("/readyz"); n == code && strings.Contains(got, part) {
			return
		}
	}
	s.t.Fatalf("/readyz does not become %d with %q; it says %q, the log:\n%s", code, part, got, c.err.String())
}

// awaitLog waits until the log holds part.
func (c *child) awaitLog(part string) {
	c.t.Helper()
	c.await(&c.err, part)
}

func (c *child) await(o *output, part string) {
	c.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(o.String(), part) {
			return
		}
	}
	c.t.Fatalf("it does not say %q:\n%s\n%s", part, o.String(), c.err.String())
}

func (s *site) get(path string) (int, string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(body)
}
