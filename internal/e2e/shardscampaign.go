package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"outbox-relay/internal/sandbox"
	status "outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// ShardsRun configures [RunShards].
type ShardsRun struct {
	Kafka   *sandbox.Kafka
	Builder *Builder
	Build   Build
	Version string
	Sources int
	Length  time.Duration // of each part: before the fault, the fault
	Rate    int           // transactions per second and source
	// Progress gets a line now and then.
	Progress func(string)
}

// ShardsResult is the account of [RunShards].
type ShardsResult struct {
	Sources, Rows int
	// Before and During are of all sources but the one that is down.
	Before, During Quantiles
	// RSS is the most memory that the relay has had at once, in bytes. CPU is processor time by time, under load and idle.
	RSS               int
	LoadCPU, IdleCPU  float64
	CatchUp           time.Duration // from the start of the server that was down to its rows relayed and saved
	Report            *relaytest.Report
	StopTook          time.Duration
	StopCode          int
	ServerRSS         int // of the largest server, in bytes
	LimitRSS          int // what RSS may be
	LimitDuringBefore float64
}

// Quantiles of times from commit to consumer.
type Quantiles struct {
	Count    int
	P50, P99 time.Duration
}

func quantilesOf(sorted []time.Duration) Quantiles {
	if len(sorted) == 0 {
		return Quantiles{}
	}
	at := func(q float64) time.Duration { return sorted[int(q*float64(len(sorted)-1))] }
	return Quantiles{len(sorted), at(0.5), at(0.99)}
}

func (q Quantiles) String() string {
	return fmt.Sprintf("p50 %v, p99 %v (%d rows)", q.P50.Round(time.Millisecond), q.P99.Round(time.Millisecond), q.Count)
}

// RunShards has one relay read many servers under load. One server is frozen for half of Length and killed for the other half; then it comes back.
func RunShards(ctx context.Context, o ShardsRun) (res *ShardsResult, err error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	s, err := NewShards(ctx, ShardsOptions{Kafka: o.Kafka, Builder: o.Builder, Sources: o.Sources, Version: o.Version, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r, err := s.Start(ctx, RelayOptions{Build: o.Build})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, r.LogTail(40))
		}
	}()
	ready := func(v status.Overview) bool { return v.Ready && len(v.Sources) == o.Sources }
	if err := r.WaitOverview(ctx, "all sources are ready", ready); err != nil {
		return nil, err
	}
	res = &ShardsResult{Sources: o.Sources, LimitRSS: 128 << 20, LimitDuringBefore: 1.5}
	if err := s.disturb(ctx, o, r, res); err != nil {
		return nil, err
	}
	if res.CatchUp, err = timed(func() error { return s.WaitRelayed(ctx, r) }); err != nil {
		return nil, err
	}
	if res.IdleCPU, err = cpuWhile(r.Pid(), func() error { return pause(ctx, max(o.Length/6, time.Second)) }); err != nil {
		return nil, err
	}
	if res.RSS, err = PeakRSS(r.Pid()); err != nil {
		return nil, err
	}
	if res.StopCode, res.StopTook, err = r.Stop(ctx); err != nil {
		return nil, err
	}
	if err := r.Check(); err != nil {
		return nil, err
	}
	res.Report, err = s.Judge(ctx, relaytest.Options{})
	return res, err
}

// disturb is the load and the fault; when it ends, all servers run and nothing writes.
func (s *Shards) disturb(ctx context.Context, o ShardsRun, r *Relay, res *ShardsResult) error {
	took := &latencies{since: map[string][]time.Duration{}}
	following, stopFollowing := context.WithCancel(ctx)
	followed := make(chan error, 1)
	go func() { followed <- took.follow(following, s.o.Kafka.Addrs(), s.Topic) }() // ended by stopFollowing
	stop := make(chan struct{})
	var writers sync.WaitGroup
	var mu sync.Mutex
	for _, x := range s.shards {
		writers.Go(func() { // ended by stop
			n := x.Write(o.Rate, stop)
			mu.Lock()
			defer mu.Unlock()
			res.Rows += n
		})
	}
	ended := sync.OnceFunc(func() { close(stop); writers.Wait(); stopFollowing() })
	defer ended()

	victim := s.shards[len(s.shards)/2]
	if err := pause(ctx, o.Length/6); err != nil {
		return err
	}
	took.take("")
	o.Progress("all run")
	var err error
	if res.LoadCPU, err = cpuWhile(r.Pid(), func() error { return pause(ctx, o.Length) }); err != nil {
		return err
	}
	res.Before = quantilesOf(took.take(victim.Name))
	for _, x := range s.shards {
		rss, err := PeakRSS(x.Pid())
		if err != nil {
			return err
		}
		res.ServerRSS = max(res.ServerRSS, rss)
	}
	o.Progress(victim.Name + " is frozen")
	if err := victim.Pause(); err != nil {
		return err
	}
	if err := pause(ctx, o.Length/2); err != nil {
		return err
	}
	o.Progress(victim.Name + " is killed")
	if err := victim.Kill(); err != nil {
		return err
	}
	if err := pause(ctx, o.Length/2); err != nil {
		return err
	}
	res.During = quantilesOf(took.take(victim.Name))
	v, err := r.Overview(ctx)
	if err != nil {
		return err
	}
	if st, ok := SourceOf(v, victim.Name); !ok || v.Ready || st.Ready && o.Length > 20*time.Second {
		return fmt.Errorf("with %s down the relay says ready %t, and of it %+v", victim.Name, v.Ready, st)
	}
	o.Progress(victim.Name + " comes back")
	if err := victim.Start(ctx); err != nil {
		return err
	}
	if err := pause(ctx, o.Length/6); err != nil {
		return err
	}
	ended()
	return <-followed
}

func timed(f func() error) (time.Duration, error) {
	begin := time.Now()
	err := f()
	return time.Since(begin), err
}

// PeakRSS is the most memory that a process has had at once (VmHWM of proc(5)), in bytes.
func PeakRSS(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "\nVmHWM:")
	var kib int
	_, err = fmt.Sscan(rest, &kib)
	return kib << 10, err
}

// cpuWhile is the processor time of a process during f, as a part of the time that f takes.
func cpuWhile(pid int, f func() error) (float64, error) {
	before, err := cpuOf(pid)
	if err != nil {
		return 0, err
	}
	took, err := timed(f)
	if err != nil {
		return 0, err
	}
	after, err := cpuOf(pid)
	return (after - before).Seconds() / took.Seconds(), err
}

// cpuOf is the processor time of a process (utime and stime of proc(5), in ticks of 10 ms).
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	var user, system int64
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		return 0, err
	}
	return time.Duration(user+system) * 10 * time.Millisecond, nil
}

// Err is nil if the promise was kept and the sources did not disturb each other.
func (res *ShardsResult) Err() error {
	var errs []error
	if err := res.Report.Err(); err != nil {
		errs = append(errs, err)
	}
	if res.Report.Duplicates != 0 {
		errs = append(errs, fmt.Errorf("%d rows came twice without a restart of the relay", res.Report.Duplicates))
	}
	if limit := time.Duration(float64(res.Before.P99) * res.LimitDuringBefore); res.During.P99 > limit {
		errs = append(errs, fmt.Errorf("with one source down the others' p99 was %v, more than %.1f times the %v of before", res.During.P99, res.LimitDuringBefore, res.Before.P99))
	}
	if res.RSS > res.LimitRSS {
		errs = append(errs, fmt.Errorf("the relay had %d MiB at once, more than %d", res.RSS>>20, res.LimitRSS>>20))
	}
	if res.StopCode != 0 {
		errs = append(errs, fmt.Errorf("the relay ended with code %d", res.StopCode))
	}
	return errors.Join(errs...)
}

func (res *ShardsResult) String() string {
	return fmt.Sprintf(`%d sources, %d rows committed
the others, all up     %v
the others, one down   %v
relay, peak memory     %.1f MiB
relay, processor time  %.1f %% of a core under load, %.2f %% idle
one that was down      caught up %v after the end of the load
stop                   code %d after %v
servers                %d MiB at most each
%v
`, res.Sources, res.Rows, res.Before, res.During, float64(res.RSS)/(1<<20), 100*res.LoadCPU, 100*res.IdleCPU, res.CatchUp.Round(time.Millisecond), res.StopCode, res.StopTook.Round(time.Millisecond), res.ServerRSS>>20, res.Report)
}
