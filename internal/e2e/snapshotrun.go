package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// SnapshotOptions configure [Snapshot]. MySQL, Kafka and Builder are required.
type SnapshotOptions struct {
	MySQL   *sandbox.MySQL
	Kafka   *sandbox.Kafka
	Builder *Builder
	Build   Build
	Rows    int // that exist before the first start
	Kills   int // of the relay, at random moments of the snapshot
	Seed    uint64
	Load    Load
	// Servers kills or freezes MySQL now and then while the relay reads; it has to be the campaign's own.
	Servers     bool
	ExactlyOnce bool
	MySQLStore  bool
	Progress    func(string)
}

// SnapshotResult is the account of a snapshot campaign.
type SnapshotResult struct {
	Rows, Kills int
	Servers     int // kills and freezes of MySQL
	Seed        uint64
	Load        LoadStats
	Report      *relaytest.Report
	Took        time.Duration // of the snapshot, with all kills
	Read        int64         // rows read by relays that had begun to read, and in which time
	Reading     time.Duration
	Selected    int64 // rows of the snapshot that counts: those of the checkpoint at its end
	Peak        int   // most memory of a relay, in bytes; 0 where it cannot be told
	Overlap     int   // rows that came from the binlog too, at most
	Exactly     bool
	StopCode    int
}

// Snapshot starts a relay by a snapshot of rows that exist while others are written, kills it at random moments of the snapshot, and judges the whole.
func Snapshot(ctx context.Context, o SnapshotOptions) (*SnapshotResult, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	s, err := NewSite(ctx, SiteOptions{MySQL: o.MySQL, Kafka: o.Kafka, Builder: o.Builder, Label: "snap", ExactlyOnce: o.ExactlyOnce, MySQLStore: o.MySQLStore})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := s.Fill(ctx, o.Rows, 1000); err != nil {
		return nil, err
	}
	o.Progress(fmt.Sprintf("%d rows exist", o.Rows))
	s.First = "snapshot"
	o.Load.Seed = o.Seed
	load, err := s.StartLoad(o.Load)
	if err != nil {
		return nil, err
	}
	res := &SnapshotResult{Rows: o.Rows, Kills: o.Kills, Seed: o.Seed, Exactly: o.ExactlyOnce}
	err = s.snapshotKills(ctx, o, res)
	res.Load = load.Stop()
	if err = errors.Join(err, res.Load.Err); err == nil {
		err = s.snapshotEnd(ctx, res)
	}
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.LogTails())
	}
	return res, nil
}

// snapshotKills runs relays until the snapshot has ended, and kills all but the last. It stops that one.
func (s *Site) snapshotKills(ctx context.Context, o SnapshotOptions, res *SnapshotResult) error {
	random := rand.New(rand.NewPCG(o.Seed, 3))
	begin := time.Now()
	for life := 0; ; life++ {
		r, err := s.Start(ctx, RelayOptions{Build: o.Build})
		if err != nil {
			return err
		}
		left := o.Kills - life
		if left <= 0 {
			if err := s.snapshotLife(ctx, r, res, -1); err != nil {
				return err
			}
			res.Took = time.Since(begin)
			res.Peak = max(res.Peak, PeakMemory(r))
			return nil
		}
		if o.Servers && random.IntN(3) == 0 {
			res.Servers++
			if err := disturb(ctx, o.MySQL, random.IntN(2) == 0); err != nil {
				return err
			}
		}
		if random.IntN(4) == 0 {
			err = live(ctx, r, time.Duration(random.IntN(200))*time.Millisecond) // often before the first row
		} else {
			// So many rows more that some are left for each kill to come.
			share := int64(o.Rows) * 3 / 4 / int64(o.Kills)
			err = s.snapshotLife(ctx, r, res, 1+random.Int64N(2*share+1))
		}
		if err != nil {
			return fmt.Errorf("relay %d: %w", life+1, err)
		}
		res.Peak = max(res.Peak, PeakMemory(r))
		r.Kill()
	}
}

// disturb kills MySQL and starts it again, or freezes it for a while.
func disturb(ctx context.Context, m *sandbox.MySQL, kill bool) error {
	if kill {
		return errors.Join(m.Kill(), m.Start(context.WithoutCancel(ctx)))
	}
	if err := m.Pause(); err != nil {
		return err
	}
	return errors.Join(pause(ctx, 2*time.Second), m.Resume())
}

// snapshotLife lets a relay read so many rows more, or to the end of the snapshot where that comes before, or is meant with -1.
func (s *Site) snapshotLife(ctx context.Context, r *Relay, res *SnapshotResult, rows int64) error {
	var first, last int64 = -1, -1
	var since, until time.Time
	defer func() {
		if first >= 0 && last > first {
			res.Read += last - first
			res.Reading += until.Sub(since)
		}
	}()
	return poll(ctx, func() (bool, error) {
		if !r.Running() {
			return false, fmt.Errorf("it ended by itself with code %d", r.ExitCode())
		}
		st, err := r.Status(ctx)
		if err != nil || st.Role != relay.RoleActive {
			return false, nil
		}
		if st.Snapshot == nil {
			return st.Source.Connected || rows >= 0, nil
		}
		if first < 0 {
			first, since = st.Snapshot.Rows, time.Now()
		}
		last, until = st.Snapshot.Rows, time.Now()
		return rows >= 0 && last-first >= rows, nil
	})
}

// snapshotEnd waits for what is left, stops the last relay and judges.
func (s *Site) snapshotEnd(ctx context.Context, res *SnapshotResult) error {
	all := s.all()
	r := all[len(all)-1]
	if err := s.Insert(ctx, Row{Kind: "order", Key: "the-end"}); err != nil {
		return err
	}
	if err := s.WaitRelayed(ctx, r); err != nil {
		return err
	}
	res.Peak = max(res.Peak, PeakMemory(r))
	var err error
	if res.StopCode, _, err = r.Stop(ctx); err != nil {
		return err
	}
	for _, r := range all {
		for line := range strings.SplitSeq(r.Log(), "\n") {
			if _, rest, found := strings.Cut(line, `may have been published twice" rows=`); found {
				_, _ = fmt.Sscan(rest, &res.Overlap)
			}
			if strings.Contains(line, `msg="snapshot ends`) {
				_, rest, _ := strings.Cut(line, " rows=")
				_, _ = fmt.Sscan(rest, &res.Selected)
			}
		}
	}
	if err := s.Check(); err != nil {
		return err
	}
	// What was committed between the first position and the reading of its row comes a second time, from the binlog.
	res.Report, err = s.Judge(ctx, relaytest.Options{Restarts: res.Kills + 1, LateRequests: true})
	return err
}

// PeakMemory is the most memory that a relay has had at once (VmHWM of proc(5)), in bytes; 0 where that cannot be told.
func PeakMemory(r *Relay) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.Pid()))
	_, rest, _ := strings.Cut(string(text), "\nVmHWM:")
	var kib int
	_, _ = fmt.Sscan(rest, &kib)
	return kib << 10
}

// memoryLimit is how much memory a relay may have during a snapshot.
const memoryLimit = 64 << 20

// Err is nil when the campaign kept the promise.
func (r *SnapshotResult) Err() error {
	var errs []error
	if r.StopCode != 0 {
		errs = append(errs, fmt.Errorf("the last relay stopped with code %d", r.StopCode))
	}
	if r.Exactly && r.Report.Duplicates > r.Overlap { // no kill may repeat a row
		errs = append(errs, fmt.Errorf("%d duplicates under exactly-once, where the binlog can have repeated %d rows", r.Report.Duplicates, r.Overlap))
	}
	if r.Peak > memoryLimit {
		errs = append(errs, fmt.Errorf("a relay had %.1f MiB", float64(r.Peak)/(1<<20)))
	}
	return errors.Join(append(errs, r.Report.Err())...)
}

// String is the table of figures.
func (r *SnapshotResult) String() string {
	return table([][2]string{
		{"rows that existed", fmt.Sprint(r.Rows)},
		{"kills of the relay (SIGKILL)", fmt.Sprint(r.Kills)},
		{"kills and freezes of MySQL", fmt.Sprint(r.Servers)},
		{"seed", fmt.Sprint(r.Seed)},
		{"committed transactions meanwhile", fmt.Sprintf("%d in %.0f s, %.0f per second, %d rolled back", r.Load.Transactions, r.Load.Elapsed.Seconds(), r.Load.PerSecond(), r.Load.RolledBack)},
		{"snapshot", fmt.Sprintf("%d rows, %.1f s with all kills", r.Selected, r.Took.Seconds())},
		{"rows per second while reading", fmt.Sprintf("%.0f (%d rows read, also again)", float64(r.Read)/r.Reading.Seconds(), r.Read)},
		{"peak memory of a relay (VmHWM)", fmt.Sprintf("%.1f MiB", float64(r.Peak)/(1<<20))},
		{"committed rows", fmt.Sprintf("%d of %d keys in %d partitions", r.Report.Committed, r.Report.Keys, r.Report.Partitions)},
		{"received", fmt.Sprint(r.Report.Received)},
		{"lost", fmt.Sprint(r.Report.Count(relaytest.Lost))},
		{"out of order", fmt.Sprint(r.Report.Count(relaytest.OutOfOrder))},
		{"keys on two partitions", fmt.Sprint(r.Report.Count(relaytest.TwoPartitions))},
		{"not committed but received", fmt.Sprint(r.Report.Count(relaytest.Phantom))},
		{"duplicates", fmt.Sprint(r.Report.Duplicates)},
		{"of them, at most, from the binlog after the snapshot", fmt.Sprint(r.Overlap)},
	})
}
