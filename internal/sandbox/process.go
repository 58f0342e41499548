package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// process is one run of a server program. Its output goes to the end of a log file.
type process struct {
	name    string
	cmd     *exec.Cmd
	log     string
	logFrom int64         // size of the log file before this run
	done    chan struct{} // closed once the process has ended and is reaped
	err     error         // of Wait; valid after done
	paused  atomic.Bool
}

// startProcess starts the command with its own process group. The process ends with this
// one: the kernel and the watchdog both see to it.
func startProcess(name string, cmd *exec.Cmd, log string) (*process, error) {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", name, err)
	}
	defer f.Close()
	p := &process{name: name, cmd: cmd, log: log, done: make(chan struct{})}
	if info, err := f.Stat(); err == nil {
		p.logFrom = info.Size()
	}
	cmd.Stdout, cmd.Stderr = f, f
	dog, err := theWatchdog()
	if err != nil {
		return nil, err
	}
	if err := spawn(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	dog.watchProcess(cmd.Process.Pid)
	// Ends when the process ends.
	go func() {
		p.err = cmd.Wait()
		dog.forgetProcess(cmd.Process.Pid)
		close(p.done)
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// output returns what this run has written to its log, at most the last MiB.
func (p *process) output() string {
	f, err := os.Open(p.log)
	if err != nil {
		return ""
	}
	defer f.Close()
	from := p.logFrom
	if info, err := f.Stat(); err == nil {
		from = max(from, info.Size()-1<<20)
	}
	b, _ := io.ReadAll(io.NewSectionReader(f, from, 1<<20))
	return string(b)
}

// await polls ready until it returns nil. It fails early when the process ends, and each
// failure shows the end of the log.
func (p *process) await(ctx context.Context, ready func(context.Context) error) error {
	var last error
	for {
		if last = ready(ctx); last == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended while starting (%v); the end of its log:\n%s", p.name, p.err, tail(p.output(), 20))
		case <-ctx.Done():
			return fmt.Errorf("%s did not become ready (%w; last: %v); the end of its log:\n%s", p.name, ctx.Err(), last, tail(p.output(), 20))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stopTimeout bounds every stop whose context has no earlier end.
const stopTimeout = time.Minute

// stop asks the process to end and waits for it; when ctx ends first it is killed and the
// error says so.
func (p *process) stop(ctx context.Context) error {
	if !p.running() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	p.signal(syscall.SIGCONT)
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		p.kill()
		return fmt.Errorf("%s did not stop in time and was killed: %w", p.name, ctx.Err())
	}
}

// kill ends the process with SIGKILL and waits until it is gone.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// pause freezes the process and returns once it is frozen.
func (p *process) pause() error {
	if !p.running() {
		return fmt.Errorf("pausing %s: %w", p.name, ErrNotRunning)
	}
	p.signal(syscall.SIGSTOP)
	for deadline := time.Now().Add(5 * time.Second); !stopped(p.pid()); time.Sleep(time.Millisecond) {
		if !p.running() {
			return fmt.Errorf("pausing %s: %w", p.name, ErrNotRunning)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("pausing %s: it is still not stopped", p.name)
		}
	}
	p.paused.Store(true)
	return nil
}

func (p *process) resume() error {
	if !p.running() {
		return fmt.Errorf("resuming %s: %w", p.name, ErrNotRunning)
	}
	p.signal(syscall.SIGCONT)
	p.paused.Store(false)
	return nil
}

// signal goes through os.Process, which refuses a pid that is already reaped.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

type spawnRequest struct {
	cmd    *exec.Cmd
	result chan error
}

// spawner starts all children from one thread that lives as long as the process: the
// kernel ties "kill the child when the parent dies" to the parent's thread.
var spawner = sync.OnceValue(func() chan<- spawnRequest {
	requests := make(chan spawnRequest)
	// Runs for ever, on purpose.
	go func() {
		runtime.LockOSThread()
		for r := range requests {
			r.result <- r.cmd.Start()
		}
	}()
	return requests
})

func spawn(cmd *exec.Cmd) error {
	cmd.SysProcAttr = ownGroup()
	r := spawnRequest{cmd, make(chan error, 1)}
	spawner() <- r
	return <-r.result
}

// runTool runs a command to its end and returns its output. A failure carries the end of it.
func runTool(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	// Children that keep the pipe open must not make Wait hang.
	cmd.WaitDelay = 5 * time.Second
	if err := spawn(cmd); err != nil {
		return "", fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	// Ends with the command.
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		select {
		case <-ctx.Done():
			// The whole group: tools such as mvn and apt-get have children.
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		case <-finished:
		}
	}()
	err := cmd.Wait()
	if ctx.Err() != nil {
		return out.String(), errors.Join(ctx.Err(), err)
	}
	if err != nil {
		return out.String(), fmt.Errorf("%s failed: %w\n%s", cmd.Path, err, tail(out.String(), 20))
	}
	return out.String(), nil
}
