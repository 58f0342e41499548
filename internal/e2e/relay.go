package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/filestore"
	"outbox-relay/checkpoint/kafkastore"
	"outbox-relay/checkpoint/mysqlstore"
	"outbox-relay/relay"
	"outbox-relay/relay/httpd"
)

// RelayOptions say how to start a relay. The zero value is a plain `run` of the binary that users run.
type RelayOptions struct {
	Build Build
	// Failpoint is the moment at which a build with failpoints kills itself: "acked:1,before-save:1".
	Failpoint string
	// Args are added to the command line behind run.
	Args []string
	// Checkpoint is the path of another checkpoint file than the site's.
	Checkpoint string
	// Source and Brokers are how this relay reaches the servers; empty means the site's way.
	Source  string
	Brokers []string
}

// Relay is a relay process. Its methods may be called from several goroutines.
type Relay struct {
	cmd        *exec.Cmd
	log        string
	checkpoint string
	name       string
	user       string        // in MySQL
	source     string        // of a checkpoint in MySQL
	brokers    []string      // of a checkpoint in Kafka
	done       chan struct{} // closed once the process has ended and is reaped
}

// Start starts a relay of the site and waits for nothing: it may end at once.
func (s *Site) Start(ctx context.Context, o RelayOptions) (*Relay, error) {
	if o.Checkpoint == "" {
		o.Checkpoint = s.CheckpointPath()
	}
	binary, err := s.o.Builder.Binary(ctx, o.Build)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	number := len(s.relays) + 1
	r := &Relay{checkpoint: o.Checkpoint, name: s.Name, user: s.Database()}
	if s.o.ExactlyOnce || s.o.KafkaStore {
		r.brokers = s.o.Kafka.Addrs()
	}
	if s.o.MySQLStore {
		r.source = s.o.MySQL.Addr()
	}
	if err := r.start(binary, filepath.Join(s.Dir, fmt.Sprintf("relay-%d", number)), s.config(o), o); err != nil {
		return nil, err
	}
	s.relays = append(s.relays, r)
	return r, nil
}

// start starts the process with a configuration. Its files are path with .yaml and .log at the end.
func (r *Relay) start(binary, path, config string, o RelayOptions) error {
	if err := os.WriteFile(path+".yaml", []byte(config), 0o600); err != nil {
		return err
	}
	r.log, r.done = path+".log", make(chan struct{})
	f, err := os.Create(r.log)
	if err != nil {
		return err
	}
	defer f.Close()
	if len(o.Args) > 0 {
		fmt.Fprintln(f, "started with", strings.Join(o.Args, " "))
	}
	r.cmd = exec.Command(binary, append([]string{"run", "--config", path + ".yaml"}, o.Args...)...)
	r.cmd.Stdout, r.cmd.Stderr = f, f
	r.cmd.SysProcAttr = ownProcess()
	// Nothing of the caller's environment may change the relay's configuration.
	r.cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "OUTBOX_RELAY_") })
	if o.Failpoint != "" {
		r.cmd.Env = append(r.cmd.Env, "OUTBOX_RELAY_FAILPOINT="+o.Failpoint)
	}
	if err := spawn(r.cmd); err != nil {
		return fmt.Errorf("starting the relay: %w", err)
	}
	go func() { // ends with the process
		_ = r.cmd.Wait() // ExitCode tells
		close(r.done)
	}()
	return nil
}

// allow makes the relay's account in MySQL with what the relay itself says that it needs.
func (s *Site) allow(ctx context.Context) error {
	binary, err := s.o.Builder.Binary(ctx, Build{})
	if err != nil {
		return err
	}
	config := filepath.Join(s.Dir, "grants.yaml")
	if err := os.WriteFile(config, []byte(s.config(RelayOptions{Checkpoint: s.CheckpointPath()})), 0o600); err != nil {
		return err
	}
	statements, err := exec.CommandContext(ctx, binary, "config", "grants", "--mysql", "--config", config).Output()
	if err != nil {
		return fmt.Errorf("asking for the rights of the relay: %w", err)
	}
	for line := range strings.Lines(strings.ReplaceAll(string(statements), "<password>", "relay")) {
		if strings.HasPrefix(line, "--") {
			continue
		}
		err := s.o.MySQL.Exec(ctx, strings.TrimSuffix(line, ";\n"))
		var my *mysql.MySQLError
		if errors.As(err, &my) && my.Number == 1146 { // a table that the test makes later, with what rights that needs
			continue
		}
		if err != nil {
			return fmt.Errorf("giving the relay its rights: %w", err)
		}
	}
	return nil
}

func (s *Site) config(o RelayOptions) string {
	if o.Source == "" {
		o.Source = s.o.Source
	}
	if len(o.Brokers) == 0 {
		o.Brokers = s.o.Kafka.Addrs()
	}
	var b strings.Builder
	addresses := s.o.Sources
	if len(addresses) == 0 {
		addresses = []string{o.Source}
	}
	fmt.Fprintf(&b, "name: %s\nsource: {address: [\"%s\"], user: %s, password: relay, start: %q, heartbeat: 1s%s}\ntables:\n", s.Name, strings.Join(addresses, `", "`), s.Database(), s.First, s.o.SourceConfig)
	database := s.Database()
	fmt.Fprintf(&b, "  - {table: %s.orders_outbox, preset: outbox, topic: \"%s.order\", when: {aggregate_type: [order]}}\n", database, s.Name)
	fmt.Fprintf(&b, "  - {table: %s.orders_outbox, preset: outbox, topic: \"%s.{aggregate_type}\"}\n", database, s.Name)
	fmt.Fprintf(&b, "  - {table: %s.shipments_outbox, preset: outbox, topic: \"%s.shipment\"}\n", database, s.Name)
	b.WriteString(strings.ReplaceAll(s.o.Rules, "<database>", database))
	fmt.Fprintf(&b, "kafka: {brokers: [%s]", `"`+strings.Join(o.Brokers, `", "`)+`"`)
	if s.o.ExactlyOnce {
		b.WriteString(", delivery: exactly-once")
		if s.o.TransactionTimeout > 0 {
			fmt.Fprintf(&b, ", transaction_timeout: %s", s.o.TransactionTimeout)
		}
	}
	fmt.Fprintf(&b, "}\ncheckpoint: {path: %q", o.Checkpoint)
	switch {
	case s.o.ExactlyOnce, s.o.KafkaStore:
		b.WriteString(", store: kafka")
	case s.o.MySQLStore:
		b.WriteString(", store: mysql")
	}
	if s.o.SaveInterval > 0 {
		fmt.Fprintf(&b, ", interval: %s", s.o.SaveInterval)
	}
	fmt.Fprintf(&b, "}\nhttp: {address: \"127.0.0.1:0\"}\n%s\n", s.o.Config)
	return b.String()
}

// Kill ends the process with SIGKILL, also a frozen one, and waits until it is gone.
func (r *Relay) Kill() {
	r.signal(syscall.SIGKILL)
	<-r.done
}

// Stop asks the process to end by SIGTERM and waits for it. When ctx ends first the process is killed.
func (r *Relay) Stop(ctx context.Context) (code int, took time.Duration, err error) {
	begin := time.Now()
	r.signal(syscall.SIGTERM)
	select {
	case <-r.done:
		return r.ExitCode(), time.Since(begin), nil
	case <-ctx.Done():
		r.Kill()
		return -1, time.Since(begin), errors.New("the relay did not stop in time and was killed")
	}
}

// Freeze stops the process (SIGSTOP) as a paused virtual machine is; Thaw lets it go on.
func (r *Relay) Freeze() { r.signal(syscall.SIGSTOP) }

// Thaw ends Freeze.
func (r *Relay) Thaw() { r.signal(syscall.SIGCONT) }

func (r *Relay) signal(s syscall.Signal) { _ = r.cmd.Process.Signal(s) } // an ended process is refused

// Exited is closed once the process has ended.
func (r *Relay) Exited() <-chan struct{} { return r.done }

// Running reports whether the process still runs.
func (r *Relay) Running() bool {
	select {
	case <-r.done:
		return false
	default:
		return true
	}
}

// WaitExit waits for the end of the process and gives its exit code, -1 after a signal.
func (r *Relay) WaitExit(ctx context.Context) (int, error) {
	select {
	case <-r.done:
		return r.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("the relay still runs: %w", ctx.Err())
	}
}

// ExitCode is the code of an ended process, -1 after a signal.
func (r *Relay) ExitCode() int { return r.cmd.ProcessState.ExitCode() }

// Pid is the process id.
func (r *Relay) Pid() int { return r.cmd.Process.Pid }

var httpAddress = regexp.MustCompile(`msg="outbox-relay starts".* http=(\S+)`)

// ErrNotYet is returned while the relay has not said where it listens.
var ErrNotYet = errors.New("the relay has not started yet")

// Status asks the relay for its status.
func (r *Relay) Status(ctx context.Context) (relay.Status, error) {
	var st relay.Status
	_, body, err := r.ask(ctx, http.MethodGet, "/status")
	if err != nil {
		return st, err
	}
	return st, json.Unmarshal(body, &st)
}

// Overview asks a relay with several sources for its status.
func (r *Relay) Overview(ctx context.Context) (v relay.Overview, err error) {
	_, body, err := r.ask(ctx, http.MethodGet, "/status")
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(body, &v)
}

// WaitOverview polls the status of a relay with several sources until ok. It fails when the relay ends.
func (r *Relay) WaitOverview(ctx context.Context, what string, ok func(relay.Overview) bool) error {
	var last relay.Overview
	err := poll(ctx, func() (bool, error) {
		if !r.Running() {
			return false, fmt.Errorf("the relay ended with code %d", r.ExitCode())
		}
		v, err := r.Overview(ctx)
		if err != nil {
			return false, nil
		}
		last = v
		return ok(v), nil
	})
	if err != nil {
		text, _ := json.Marshal(last)
		return fmt.Errorf("waiting until %s: %w; the last status was %s", what, err, text)
	}
	return nil
}

// Metric asks the relay for one metric, by its name and labels as the relay writes them.
func (r *Relay) Metric(ctx context.Context, name string) (float64, error) {
	_, body, err := r.ask(ctx, http.MethodGet, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("the relay has no metric %s", name)
}

// Control posts to a path as outbox-relay pause and resume do, and gives the answer.
func (r *Relay) Control(ctx context.Context, path string) (code int, text string, err error) {
	code, body, err := r.ask(ctx, http.MethodPost, path)
	return code, strings.TrimSpace(string(body)), err
}

// ask sends a request to the relay's HTTP server.
func (r *Relay) ask(ctx context.Context, method, path string) (code int, body []byte, err error) {
	log, err := os.ReadFile(r.log)
	if err != nil {
		return 0, nil, err
	}
	m := httpAddress.FindSubmatch(log)
	if m == nil {
		return 0, nil, ErrNotYet
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+string(m[1])+path, nil)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set(httpd.ControlHeader, "1")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return resp.StatusCode, body, err
}

// WaitStatus polls the status, which has no event to wait on, until ok. It fails when the relay ends.
func (r *Relay) WaitStatus(ctx context.Context, what string, ok func(relay.Status) bool) error {
	var last relay.Status
	err := poll(ctx, func() (bool, error) {
		if !r.Running() {
			return false, fmt.Errorf("the relay ended with code %d", r.ExitCode())
		}
		st, err := r.Status(ctx)
		if err != nil {
			return false, nil
		}
		last = st
		return ok(st), nil
	})
	if err != nil {
		text, _ := json.Marshal(last)
		return fmt.Errorf("waiting until %s: %w; the last status was %s", what, err, text)
	}
	return nil
}

// WaitCheckpoint waits until the stored checkpoint contains the set. It reads the file, as a restart would. Of a topic, which is long to read, it
// asks the relay first.
func (r *Relay) WaitCheckpoint(ctx context.Context, set *gtid.Set) error {
	if len(r.brokers) > 0 {
		err := r.WaitStatus(ctx, "the checkpoint contains "+set.String(), func(s relay.Status) bool {
			have, err := gtid.ParseSet(s.Checkpoint.GTIDSet)
			return err == nil && have.ContainsSet(set)
		})
		if err != nil {
			return err
		}
	}
	var last *gtid.Set
	err := poll(ctx, func() (bool, error) {
		if !r.Running() {
			return false, fmt.Errorf("the relay ended with code %d", r.ExitCode())
		}
		c, err := r.Checkpoint()
		if err != nil {
			if errors.Is(err, checkpoint.ErrNotFound) {
				return false, nil
			}
			return false, err
		}
		last = c.GTIDSet
		return last.ContainsSet(set), nil
	})
	if err != nil {
		return fmt.Errorf("waiting for the checkpoint to contain %s: %w; it has %s", set, err, last)
	}
	return nil
}

// Checkpoint reads the relay's checkpoint as a restart would.
func (r *Relay) Checkpoint() (*checkpoint.Checkpoint, error) {
	if len(r.brokers) > 0 {
		o := kafkastore.Options{Name: r.name, Topic: "outbox-relay." + r.name + ".checkpoint", Brokers: r.brokers, Timeout: 5 * time.Second}
		return kafkastore.Read(context.Background(), o)
	}
	if r.source == "" {
		return filestore.Read(r.checkpoint, r.name)
	}
	s, err := mysqlstore.Open(mysqlstore.Options{
		Name: r.name, Schema: "outbox_relay", Table: "checkpoints", Addresses: []string{r.source}, User: r.user, Program: "e2e",
		Password: func(context.Context) (string, error) { return "relay", nil },
	})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Load(context.Background())
}

func poll(ctx context.Context, ok func() (bool, error)) error {
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}

// Log is all that the process has written.
func (r *Relay) Log() string {
	b, _ := os.ReadFile(r.log) // no log reads as an empty one
	return string(b)
}

// LogTail gives the last lines of the log.
func (r *Relay) LogTail(lines int) string {
	all := strings.Split(strings.TrimRight(r.Log(), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

var crashMarks = [][]byte{[]byte("WARNING: DATA RACE"), []byte("panic: "), []byte("fatal error: "), []byte("[signal SIG")}

// Check looks for data races and panics in the log.
func (r *Relay) Check() error {
	log := []byte(r.Log())
	for _, mark := range crashMarks {
		if i := bytes.Index(log, mark); i >= 0 {
			return fmt.Errorf("the relay's log has %q:\n%s", mark, log[i:min(len(log), i+4000)])
		}
	}
	return nil
}

type spawnRequest struct {
	cmd    *exec.Cmd
	result chan error
}

// spawner starts all children from one thread that lives as long as the process: "kill the child when the parent dies" hangs on the
// parent's thread.
var spawner = sync.OnceValue(func() chan<- spawnRequest {
	requests := make(chan spawnRequest)
	go func() { // lives as long as the process
		runtime.LockOSThread()
		for r := range requests {
			r.result <- r.cmd.Start()
		}
	}()
	return requests
})

func spawn(cmd *exec.Cmd) error {
	r := spawnRequest{cmd, make(chan error, 1)}
	spawner() <- r
	return <-r.result
}
