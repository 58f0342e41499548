package cases_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/filestore"
	"outbox-relay/internal/e2e"
)

// daemon is the relay's binary with a configuration and a checkpoint, printing records instead of publishing them.
type daemon struct {
	*site
	dir    string
	config string
	env    []string
	runs   int
	out    *output // of the last run
	log    *output
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

// daemon makes one whose first position is the site's. tables are lines of YAML; more is added at the top level.
func (s *site) daemon(tables string, more ...string) *daemon {
	s.Helper()
	d := &daemon{site: s, dir: s.TempDir()}
	d.configure(tables, s.position.String(), more...)
	return d
}

// configure writes the configuration.
func (d *daemon) configure(tables, start string, more ...string) {
	d.Helper()
	if !slices.ContainsFunc(more, func(line string) bool { return strings.HasPrefix(line, "on_halt:") }) {
		more = append(slices.Clone(more), "on_halt: exit")
	}
	text := fmt.Sprintf("name: %s\nsource: {address: %q, user: relay, password: relay, start: %q, heartbeat: 1s}\nkafka: {brokers: [\"127.0.0.1:9\"]}\ncheckpoint: {path: %q, interval: 20ms}\nhttp: {address: \"127.0.0.1:0\"}\ntables:\n%s\n%s\n",
		d.name, d.mysql.Addr(), start, d.checkpointPath(), d.fill(tables), strings.Join(more, "\n"))
	d.config = filepath.Join(d.dir, "config.yaml")
	if err := os.WriteFile(d.config, []byte(text), 0o600); err != nil {
		d.Fatal(err)
	}
}

func (d *daemon) checkpointPath() string { return filepath.Join(d.dir, "checkpoint") }

func (d *daemon) checkpoint() *checkpoint.Checkpoint {
	d.Helper()
	c, err := filestore.Read(d.checkpointPath(), d.name)
	if err != nil {
		d.Fatal(err)
	}
	return c
}

// process is a run of the daemon.
type process struct {
	*daemon
	cmd   *exec.Cmd
	ended chan struct{}
}

func (d *daemon) start(args ...string) *process {
	d.Helper()
	binary, err := builder.Binary(d.ctx, e2e.Build{})
	if err != nil {
		d.Fatal(err)
	}
	d.runs++
	d.out, d.log = &output{}, &output{}
	p := &process{daemon: d, ended: make(chan struct{})}
	p.cmd = exec.Command(binary, append([]string{"run", "--config", d.config, "--sink", "stdout"}, args...)...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = d.dir, d.out, d.log
	p.cmd.Env = append(os.Environ(), d.env...)
	if err := p.cmd.Start(); err != nil {
		d.Fatal(err)
	}
	go func() { // ends with the process
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	d.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
	})
	return p
}

// exit waits for the end of the process and gives its code.
func (p *process) exit() int {
	p.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-p.ctx.Done():
		p.Fatalf("the relay does not end:\n%s", p.log)
		return 0
	}
}

// terminate ends the process as an operator does.
func (p *process) terminate() int {
	p.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.Fatal(err)
	}
	return p.exit()
}

// untilCaughtUp runs the daemon until it has read all and gives its exit code.
func (d *daemon) untilCaughtUp() int {
	d.Helper()
	return d.start("--until-caught-up").exit()
}

// wantExit demands an exit code and words of what the run said.
func (d *daemon) wantExit(want, got int, words ...string) {
	d.Helper()
	if got != want {
		d.Errorf("exit code %d, want %d:\n%s", got, want, d.log)
	}
	for _, w := range words {
		if w = d.fill(w); !strings.Contains(d.log.String(), w) {
			d.Errorf("it does not say %q:\n%s", w, d.log)
		}
	}
}

// await polls until ok, as a process has no event to wait on.
func (p *process) await(what string, ok func() bool) {
	p.Helper()
	for !ok() {
		select {
		case <-p.ended:
			p.Fatalf("the relay ended with %d before %s:\n%s", p.cmd.ProcessState.ExitCode(), what, p.log)
		case <-p.ctx.Done():
			p.Fatalf("still not: %s; %.2000s\n%s", what, p.out, p.log)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// printed is a record as the sink prints it.
type printed struct {
	Topic     string
	Key       any
	Value     any
	Headers   [][2]any
	Timestamp string
	Partition *int32
}

// lines gives the records that the last run has printed.
func (d *daemon) lines() []printed {
	d.Helper()
	var out []printed
	for text := range strings.Lines(d.out.String()) {
		if !strings.HasSuffix(text, "\n") {
			break // not yet whole
		}
		var l printed
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			d.Fatalf("%v: %s", err, text)
		}
		out = append(out, l)
	}
	return out
}

// records gives those of the last run as site.records does.
func (d *daemon) records() []string {
	d.Helper()
	var out []string
	for _, l := range d.lines() {
		text := printedText(l.Key) + " " + printedText(l.Value)
		for _, h := range l.Headers[:len(l.Headers)-1] {
			text += " " + printedText(h[0]) + "=" + printedText(h[1])
		}
		out = append(out, text)
	}
	return out
}

func printedText(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case string:
		return v
	case map[string]any:
		b, _ := base64.StdEncoding.DecodeString(v["base64"].(string))
		return string(b)
	}
	return fmt.Sprint(v)
}

// peak gives the most memory that the running process has had, in bytes.
func (p *process) peak() int {
	p.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		p.Fatalf("no VmHWM in:\n%s", status)
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n << 10
}

var listening = regexp.MustCompile(`msg="outbox-relay starts".* http=(\S+)`)

// get asks the process over HTTP; empty while it does not answer.
func (p *process) get(path string) string {
	m := listening.FindStringSubmatch(p.log.String())
	if m == nil {
		return ""
	}
	c := http.Client{Timeout: 5 * time.Second}
	resp, err := c.Get("http://" + m[1] + path)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}
