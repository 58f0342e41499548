package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/relaytest"
)

// CrashOptions configure [Crash]. MySQL, Kafka and Builder are required.
type CrashOptions struct {
	MySQL   *sandbox.MySQL
	Kafka   *sandbox.Kafka
	Builder *Builder
	Build   Build
	Kills   int
	Seed    uint64
	Load    Load
	// Servers kills MySQL and the Kafka broker at random moments as well, and starts them again; they have to be the campaign's own.
	Servers bool
	// ExactlyOnce runs the relay with kafka.delivery: exactly-once, reads what is committed and demands that no row comes twice.
	ExactlyOnce bool
	// Pauses is how many of the relays are frozen for longer than the transaction time-out, go on, and are killed later. Only with ExactlyOnce; the
	// cluster has to be [ExactlyOnceKafka].
	Pauses int
	// Progress gets a line now and then.
	Progress func(string)
}

// crashTimeout is the transaction time-out of a campaign with pauses: the shortest that the configuration takes.
const crashTimeout = time.Second

// ExactlyOnceKafka is a broker that looks for transactions that ran into their time-out all the time; by default it does so every 10 s.
var ExactlyOnceKafka = sandbox.KafkaOptions{Properties: map[string]string{"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}}

// CrashResult is the account of a crash campaign.
type CrashResult struct {
	Kills    int
	Servers  int // kills of servers
	Pauses   int // of the relay, longer than the transaction time-out
	Aborted  int // sessions that began again from the checkpoint since their transaction was lost
	Exactly  bool
	Twice    []string // under exactly-once: the rows that were received twice
	Seed     uint64
	Load     LoadStats
	Report   *relaytest.Report
	CatchUp  time.Duration // from the last start to everything relayed and saved
	StopCode int           // of the SIGTERM at the end
}

// Crash kills the relay with SIGKILL at random moments under load, starts it again at once each time, and judges the whole. The same seed
// gives the same moments, as far as time can be had twice.
func Crash(ctx context.Context, o CrashOptions) (*CrashResult, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	so := SiteOptions{MySQL: o.MySQL, Kafka: o.Kafka, Builder: o.Builder, Label: "crash", ExactlyOnce: o.ExactlyOnce}
	if o.Pauses > 0 {
		so.TransactionTimeout = crashTimeout
	}
	s, err := NewSite(ctx, so)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	res := &CrashResult{Kills: o.Kills, Pauses: o.Pauses, Seed: o.Seed, Exactly: o.ExactlyOnce}
	o.Load.Seed = o.Seed
	load, err := s.StartLoad(o.Load)
	if err != nil {
		return nil, err
	}
	killing, stop := context.WithCancel(ctx)
	servers := make(chan error, 1)
	go func() { servers <- serverCrashes(killing, o, &res.Servers) }() // stopped by stop
	err = crashes(ctx, s, o, load)
	stop()
	err = errors.Join(err, <-servers)
	res.Load = load.Stop()
	if err = errors.Join(err, res.Load.Err); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.LogTails())
	}
	if err := s.finish(ctx, o.Build, res); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.LogTails())
	}
	return res, nil
}

func crashes(ctx context.Context, s *Site, o CrashOptions, load *Running) error {
	random := rand.New(rand.NewPCG(o.Seed, 0))
	for kill := 1; kill <= o.Kills; kill++ {
		r, err := s.Start(ctx, RelayOptions{Build: o.Build})
		if err != nil {
			return err
		}
		if err := live(ctx, r, lifetime(random)); err != nil {
			return fmt.Errorf("relay %d: %w", kill, err)
		}
		if kill*o.Pauses/o.Kills > (kill-1)*o.Pauses/o.Kills {
			r.Freeze()
			err := live(ctx, r, crashTimeout+time.Duration(200+random.IntN(1500))*time.Millisecond)
			r.Thaw()
			if err = errors.Join(err, live(ctx, r, lifetime(random))); err != nil {
				return fmt.Errorf("relay %d, which was frozen: %w", kill, err)
			}
		}
		r.Kill()
		if kill%20 == 0 {
			o.Progress(fmt.Sprintf("%d kills, %d transactions at %.0f per second", kill, load.Stats().Transactions, load.Stats().PerSecond()))
		}
	}
	return nil
}

// live lets a relay run for a while. An error says that it ended.
func live(ctx context.Context, r *Relay, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-r.Exited():
		return fmt.Errorf("it ended by itself with code %d", r.ExitCode())
	case <-ctx.Done():
		return ctx.Err()
	}
}

// serverCrashes kills MySQL and the broker in turn until ctx ends. Both run when it returns.
func serverCrashes(ctx context.Context, o CrashOptions, kills *int) error {
	random := rand.New(rand.NewPCG(o.Seed, 2))
	for o.Servers && pause(ctx, time.Second+time.Duration(random.IntN(4000))*time.Millisecond) == nil {
		kill, start := o.MySQL.Kill, o.MySQL.Start
		if random.IntN(2) == 0 {
			kill, start = o.Kafka.Broker(1).Kill, o.Kafka.Broker(1).Start
		}
		if err := kill(); err != nil {
			return err
		}
		*kills++
		if err := start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// lifetime is a third of the time so short that the relay is still starting, else up to 2 s.
func lifetime(random *rand.Rand) time.Duration {
	if random.IntN(3) == 0 {
		return time.Duration(random.IntN(300)) * time.Millisecond
	}
	return 300*time.Millisecond + time.Duration(random.IntN(1700))*time.Millisecond
}

// finish lets a last relay catch up, stops it in order and judges.
func (s *Site) finish(ctx context.Context, build Build, res *CrashResult) error {
	begin := time.Now()
	r, err := s.Start(ctx, RelayOptions{Build: build})
	if err != nil {
		return err
	}
	if err := s.Insert(ctx, Row{Kind: "order", Key: "the-end"}); err != nil {
		return err
	}
	if err := s.WaitRelayed(ctx, r); err != nil {
		return err
	}
	res.CatchUp = time.Since(begin)
	if res.StopCode, _, err = r.Stop(ctx); err != nil {
		return err
	}
	if err := s.Check(); err != nil {
		return err
	}
	judge := relaytest.Options{Restarts: res.Kills}
	if res.Exactly {
		judge.Restarts = 0 // whatever ends and begins, no row comes twice
	}
	for _, r := range s.all() {
		res.Aborted += strings.Count(r.Log(), "starting over from the last checkpoint")
	}
	if res.Report, err = s.Judge(ctx, judge); err != nil {
		return err
	}
	if res.Exactly && res.Report.Duplicates > 0 {
		res.Twice, err = s.twice(ctx)
		s.Keep()
	}
	return err
}

// twice tells where the rows are that were received more than once, for the search for the cause.
func (s *Site) twice(ctx context.Context) (lines []string, err error) {
	seen := map[string]string{}
	err = s.Consume(ctx, func(m relaytest.Message) error {
		var id, position string
		for _, h := range m.Headers {
			switch h.Key {
			case "id":
				id = string(h.Value)
			case "outbox-relay-position":
				position = string(h.Value)
			}
		}
		at := fmt.Sprintf("%s[%d]@%d by producer %d, position %s", m.Topic, m.Partition, m.Offset, m.Producer, position)
		if before, ok := seen[id]; ok && len(lines) < 20 {
			lines = append(lines, fmt.Sprintf("id %s: %s; and %s", id, before, at))
		}
		seen[id] = at
		return nil
	})
	return append(lines, "logs are in "+s.Dir), err
}

// Err is nil when the campaign kept the promise.
func (r *CrashResult) Err() error {
	if r.StopCode != 0 {
		return fmt.Errorf("the last relay stopped with code %d", r.StopCode)
	}
	if r.Exactly && r.Report.Duplicates > 0 {
		return errors.Join(r.Report.Err(), fmt.Errorf("%d duplicates under exactly-once:\n%s", r.Report.Duplicates, strings.Join(r.Twice, "\n")))
	}
	return r.Report.Err()
}

// String is the table of figures.
func (r *CrashResult) String() string {
	return table([][2]string{
		{"kills of the relay (SIGKILL)", fmt.Sprint(r.Kills)},
		{"pauses beyond the transaction time-out", fmt.Sprint(r.Pauses)},
		{"sessions that lost their transaction", fmt.Sprint(r.Aborted)},
		{"kills of MySQL and Kafka", fmt.Sprint(r.Servers)},
		{"seed", fmt.Sprint(r.Seed)},
		{"committed transactions", fmt.Sprintf("%d in %.0f s, %.0f per second, %d rolled back", r.Load.Transactions, r.Load.Elapsed.Seconds(), r.Load.PerSecond(), r.Load.RolledBack)},
		{"committed rows", fmt.Sprintf("%d of %d keys in %d partitions", r.Report.Committed, r.Report.Keys, r.Report.Partitions)},
		{"received", fmt.Sprint(r.Report.Received)},
		{"lost", fmt.Sprint(r.Report.Count(relaytest.Lost))},
		{"out of order", fmt.Sprint(r.Report.Count(relaytest.OutOfOrder))},
		{"keys on two partitions", fmt.Sprint(r.Report.Count(relaytest.TwoPartitions))},
		{"not committed but received", fmt.Sprint(r.Report.Count(relaytest.Phantom))},
		{"duplicates", fmt.Sprintf("%d, %.1f per kill", r.Report.Duplicates, float64(r.Report.Duplicates)/float64(max(1, r.Kills)))},
		{"duplicates that are no replayed suffix", fmt.Sprint(r.Report.Count(relaytest.Replay))},
		{"catching up at the end", fmt.Sprintf("%.1f s", r.CatchUp.Seconds())},
	})
}

// table aligns names and figures.
func table(rows [][2]string) string {
	width := 0
	for _, row := range rows {
		width = max(width, len(row[0]))
	}
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&b, "%-*s  %s\n", width, row[0], row[1])
	}
	return b.String()
}
