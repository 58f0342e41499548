package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// daemon is what all runs of the relay have in common.
type daemon struct {
	binary  string
	dir     string // configuration, checkpoint, log
	address string // of its HTTP server
}

// newDaemon writes the configuration into dir.
func newDaemon(ctx context.Context, s *screen, binary, dir string, c *cluster) (*daemon, error) {
	d := &daemon{binary: binary, dir: dir}
	if binary == "" {
		s.note("building the relay")
		d.binary = filepath.Join(dir, "outbox-relay")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", d.binary, "outbox-relay/cmd/outbox-relay").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building the relay: %w\n%s", err, out)
		}
	}
	var err error
	if d.binary, err = filepath.Abs(d.binary); err != nil {
		return nil, err
	}
	if d.address, err = freeAddress(); err != nil {
		return nil, err
	}
	text := configuration(c, d.address, filepath.Join(dir, "demo.checkpoint"))
	s.print("", s.paint(dim, indent(text)), "")
	return d, os.WriteFile(d.config(), []byte(text), 0o600)
}

func (d *daemon) config() string { return filepath.Join(d.dir, "outbox-relay.yaml") }
func (d *daemon) log() string    { return filepath.Join(d.dir, "outbox-relay.log") }

func configuration(c *cluster, http, checkpoint string) string {
	return fmt.Sprintf(`name: demo
source: {address: %q, user: relay, password: relay, start: latest}
tables:
  - {table: shop.outbox_events, preset: outbox}
kafka: {brokers: [%q]}
checkpoint: {path: %q}
http: {address: %q}
`, c.mysql.Addr(), strings.Join(c.brokers, `", "`), checkpoint, http)
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

// freeAddress gives the relay's usual port on this machine, or another one where that is taken.
func freeAddress() (string, error) {
	for _, address := range []string{"127.0.0.1:9733", "127.0.0.1:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		defer l.Close()
		return l.Addr().String(), nil
	}
	return "", errors.New("no free port on 127.0.0.1")
}

// child is one run of the relay.
type child struct {
	daemon  *daemon
	process *os.Process
	ended   chan struct{} // closed when it has ended
	err     error         // of its end; valid after ended
}

// start starts the relay. It does not wait until it is ready.
func (d *daemon) start() (*child, error) {
	log, err := os.OpenFile(d.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(d.binary, "run", "--config", d.config())
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, childAttributes()
	c := &child{daemon: d, ended: make(chan struct{})}
	started := make(chan error)
	go func() { // ends with the child
		// The kernel kills the child when this thread ends, so the thread has to stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		c.process = cmd.Process
		started <- err
		if err == nil {
			c.err = cmd.Wait()
			close(c.ended)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting the relay: %w", err)
	}
	return c, nil
}

// awaitReady waits until /readyz answers 200.
func (c *child) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		_, code, err := c.daemon.get(ctx, "/readyz")
		if err == nil && code == http.StatusOK {
			return nil
		}
		select {
		case <-c.ended:
			return fmt.Errorf("the relay ended (%w); the end of its log:\n%s", c.err, c.daemon.logTail())
		case <-ctx.Done():
			return fmt.Errorf("the relay is not ready (%w); the end of its log:\n%s", ctx.Err(), c.daemon.logTail())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// kill ends the child with SIGKILL and waits until it is gone.
func (c *child) kill() {
	_ = c.process.Kill() // an error means that it has ended
	<-c.ended
}

// stop asks the child to end and waits for it. It gives how long that took.
func (c *child) stop() (time.Duration, error) {
	begun := time.Now()
	if err := c.process.Signal(syscall.SIGTERM); err != nil {
		return 0, fmt.Errorf("the relay had ended by itself (%w); the end of its log:\n%s", err, c.daemon.logTail())
	}
	select {
	case <-c.ended:
	case <-time.After(10 * time.Second):
		c.kill()
		return 0, errors.New("the relay did not stop within 10 s after SIGTERM and was killed; the end of its log:\n" + c.daemon.logTail())
	}
	if c.err != nil {
		return 0, fmt.Errorf("the relay stopped with an error (%w); the end of its log:\n%s", c.err, c.daemon.logTail())
	}
	return time.Since(begun), nil
}

// peakMemory gives the most memory that the child has had at once (VmHWM of proc(5), in KiB there), false where the system does not tell.
func (c *child) peakMemory() (bytes int64, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.process.Pid))
	if err != nil {
		return 0, false
	}
	_, rest, found := strings.Cut(string(text), "\nVmHWM:")
	if !found {
		return 0, false
	}
	if _, err := fmt.Sscan(rest, &bytes); err != nil {
		return 0, false
	}
	return bytes << 10, true
}

func (d *daemon) logTail() string {
	text, err := os.ReadFile(d.log())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

func (d *daemon) url(path string) string { return "http://" + d.address + path }

func (d *daemon) get(ctx context.Context, path string) (body []byte, code int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url(path), http.NoBody)
	if err != nil {
		return nil, 0, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	return body, answer.StatusCode, err
}

// status is the part of /status that the demo needs or shows, with the names that the relay gives.
type status struct {
	Role       string  `json:"role"`
	Ready      bool    `json:"ready"`
	LagSeconds float64 `json:"lag_seconds"`
	CaughtUp   bool    `json:"caught_up"`
	Sink       struct {
		InFlightRecords int `json:"in_flight_records"`
	} `json:"sink"`
	Checkpoint struct {
		GTIDSet    string    `json:"gtid_set"`
		BinlogFile string    `json:"binlog_file"`
		Position   uint64    `json:"binlog_position"`
		SavedAt    time.Time `json:"saved_at"`
	} `json:"checkpoint"`
}

func (d *daemon) status(ctx context.Context) (status, error) {
	var st status
	body, _, err := d.get(ctx, "/status")
	if err == nil {
		err = json.Unmarshal(body, &st)
	}
	if err != nil {
		return status{}, fmt.Errorf("asking the relay for its status: %w", err)
	}
	return st, nil
}
