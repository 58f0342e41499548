package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// usage is what a child process cost.
type usage struct {
	Wall    time.Duration // start to exit
	CPU     time.Duration // user and system time of all its threads
	Peak    int64         // bytes: VmHWM of /proc/<pid>/status as it was last seen, at most peakEvery before the exit
	Servers time.Duration // the same of MySQL and Kafka meanwhile
	Others  float64       // cores that processes of other people kept busy meanwhile
}

// peakEvery is how often the peak is read. The kernel keeps it as a maximum, so only growth in the last moment is missed. The
// maximum of getrusage is of no use here: a child inherits its parent's.
const peakEvery = 10 * time.Millisecond

// runTimeout bounds one run of one program.
const runTimeout = 10 * time.Minute

// child is a started process that is being measured.
type child struct {
	cmd     *exec.Cmd
	name    string
	start   time.Time
	output  *tailBuffer
	before  hostCPU
	pids    []int // of the servers
	peak    int64
	killed  atomic.Bool
	printed *bytes.Buffer // of startPrinting
	done    chan struct{} // closed once the process has ended and u and err are set
	u       usage
	err     error
}

// startPrinting is startChild for a program whose standard output is a number of seconds; see child.seconds.
func startPrinting(ctx context.Context, name string, pids []int, program string, args ...string) (*child, error) {
	var printed bytes.Buffer
	c, err := startChild(ctx, name, pids, nil, &printed, program, args...)
	if err == nil {
		c.printed = &printed
	}
	return c, err
}

// seconds is what the program printed, once it has ended.
func (c *child) seconds() (float64, error) {
	return strconv.ParseFloat(strings.TrimSpace(c.printed.String()), 64)
}

// startChild starts a program and measures it until it ends. pids are the servers it works with, whose time is not that of others.
// The process is killed when ctx ends, and after runTimeout, so that one that hangs is an error and not a long wait.
func startChild(ctx context.Context, name string, pids []int, env []string, stdout io.Writer, program string, args ...string) (*child, error) {
	c := &child{name: name, pids: pids, output: &tailBuffer{}, done: make(chan struct{})}
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	c.cmd = exec.CommandContext(ctx, program, args...)
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Stderr = c.output
	if c.cmd.Stdout = stdout; stdout == nil {
		c.cmd.Stdout = c.output
	}
	c.cmd.WaitDelay = 5 * time.Second
	var err error
	if c.before, err = readHostCPU(pids); err != nil {
		cancel()
		return nil, err
	}
	c.start = time.Now()
	if err := c.cmd.Start(); err != nil {
		cancel()
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	stopPeak := make(chan struct{})
	var peak sync.WaitGroup
	peak.Go(func() { c.watchPeak(stopPeak) }) // ends with stopPeak
	go func() {                               // ends with the process
		err := c.cmd.Wait()
		c.u.Wall = time.Since(c.start)
		if ctx.Err() != nil {
			err = fmt.Errorf("ended after %v: %w (%w)", c.u.Wall, ctx.Err(), err)
		}
		cancel()
		close(stopPeak)
		peak.Wait()
		c.finish(err)
		close(c.done)
	}()
	return c, nil
}

func (c *child) finish(err error) {
	if err != nil && !c.killed.Load() {
		c.err = fmt.Errorf("%s: %w; the end of its output:\n%s", c.name, err, c.output)
		return
	}
	c.u.CPU = c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()
	c.u.Peak = c.peak
	after, err := readHostCPU(c.pids)
	if err != nil {
		c.err = err
		return
	}
	c.u.Servers = after.servers - c.before.servers
	c.u.Others = max(0, (after.total-c.before.total-(after.ours-c.before.ours)-c.u.CPU).Seconds()) / c.u.Wall.Seconds()
}

// used is the processor time of the process so far, in ticks; that of its whole life once it has ended.
func (c *child) used() time.Duration {
	if d, err := processCPU(c.cmd.Process.Pid); err == nil {
		return d
	}
	<-c.done
	return c.u.CPU
}

// wakeups is how often the threads of the process have given up the processor to wait for something, so far.
func (c *child) wakeups() int64 {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", c.cmd.Process.Pid)) // the pattern is right
	var sum int64
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // the thread has ended
		}
		_, rest, _ := bytes.Cut(text, []byte("\nvoluntary_ctxt_switches:"))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		n, _ := strconv.ParseInt(strings.TrimSpace(string(line)), 10, 64)
		sum += n
	}
	return sum
}

// calls is how often the process has read or written, sockets included, so far; 0 where the kernel keeps no account of it.
func (c *child) calls() int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/io", c.cmd.Process.Pid))
	var sum int64
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && (name == "syscr" || name == "syscw") {
			sum += n
		}
	}
	return sum
}

// kill ends a process that does not end by itself. What wait gives then is right, without the error.
func (c *child) kill() {
	c.killed.Store(true)
	_ = c.cmd.Process.Kill()
}

// stop asks the process to end and blocks until it has.
func (c *child) stop() error {
	c.killed.Store(true) // whatever its exit code is
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-c.done:
		return nil
	case <-time.After(time.Minute):
		c.kill()
		<-c.done
		return fmt.Errorf("%s did not stop within a minute; the end of its output:\n%s", c.name, c.output)
	}
}

// wait blocks until the process has ended.
func (c *child) wait() (usage, error) {
	<-c.done
	return c.u, c.err
}

func (c *child) watchPeak(stop <-chan struct{}) {
	t := time.NewTicker(peakEvery)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
			if p, err := peakMemory(c.cmd.Process.Pid); err == nil {
				c.peak = max(c.peak, p)
			}
		}
	}
}

// peakMemory gives the largest resident size that a running process has had, in bytes.
func peakMemory(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return parsePeak(text)
}

func parsePeak(status []byte) (int64, error) {
	_, rest, ok := bytes.Cut(status, []byte("VmHWM:"))
	if !ok {
		return 0, errors.New("no VmHWM: the process has ended")
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(line)), " kB"), 10, 64)
	return kb << 10, err
}

// hostCPU is the processor time spent so far: by the whole host, by this process and the servers, and by the servers alone.
type hostCPU struct{ total, ours, servers time.Duration }

// tick is the unit of /proc: USER_HZ is 100 on all architectures of Linux that Go knows.
const tick = 10 * time.Millisecond

func readHostCPU(pids []int) (h hostCPU, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return h, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, f := range strings.Fields(line)[1:] {
		const idle, iowait, guest = 3, 4, 8
		if i == idle || i == iowait || i >= guest {
			continue
		}
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return h, fmt.Errorf("reading /proc/stat: %w", err)
		}
		h.total += time.Duration(n) * tick
	}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return h, err
	}
	h.ours = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	for _, pid := range pids {
		d, err := processCPU(pid)
		if err != nil {
			return h, err
		}
		h.servers += d
	}
	h.ours += h.servers
	return h, nil
}

func processCPU(pid int) (time.Duration, error) { return cpuOf(fmt.Sprintf("/proc/%d/stat", pid)) }

// cpuOf reads the processor time of a process or a thread.
func cpuOf(stat string) (time.Duration, error) {
	text, err := os.ReadFile(stat)
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold blanks; utime and stime are the 12th and 13th field behind it.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var d time.Duration
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading %s: %w", stat, err)
		}
		d += time.Duration(n) * tick
	}
	return d, nil
}

// tailBuffer keeps the last bytes written to it. Its methods may be called from several goroutines.
type tailBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (t *tailBuffer) Write(p []byte) (int, error) {
	const keep = 8 << 10
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 2*keep {
		t.b = append(t.b[:0], t.b[len(t.b)-keep:]...)
	}
	return len(p), nil
}

func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}
