package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
	status "outbox-relay/relay"
)

// FailoverOptions configure [Failover]. Servers, Kafka and Builder are required.
type FailoverOptions struct {
	// Servers are the two MySQL servers, the first one the first primary. They are killed, and one is made a clone of the other time and again.
	Servers [2]*sandbox.MySQL
	Kafka   *sandbox.Kafka
	Builder *Builder
	Build   Build
	// Promotions is how often the primary changes.
	Promotions int
	// Seed decides the kinds and the moments.
	Seed uint64
	Load Load
	// Any runs the relay with source.read_from: any, else with primary.
	Any bool
	// Progress gets a line for each promotion.
	Progress func(string)
}

// promotion is one change of the primary.
type promotion struct {
	kind     promotionKind
	primary  int       // index of the new primary
	answers  time.Time // when the new primary takes writes
	marker   string    // key of the first row that is committed on it
	lost     *gtid.Set // what the old primary had and the new one lacks
	reported *gtid.Set // what the relay said that it gave up
	// published are the transactions of messages whose rows the new primary lacks.
	published *gtid.Set
	back      bool          // the old primary came back as it was
	took      time.Duration // from answers to the marker in Kafka
}

type promotionKind string

const (
	// switchover: the old primary becomes read-only, the replica has everything and is promoted, the old one becomes its replica.
	switchover promotionKind = "switchover"
	// switchoverRestart: the same with the old primary stopped and started as the replica, as in an upgrade.
	switchoverRestart promotionKind = "switchover with restart"
	// crash: the old primary is killed, and the replica lacks what it did not receive by then, if anything.
	crash promotionKind = "kill"
	// crashLagging: the replica did not receive for a moment before the kill, so that it lacks transactions for good.
	crashLagging promotionKind = "kill with loss"
	// crashBehind: the replica has received everything and applies it only a while after the kill.
	crashBehind promotionKind = "kill with a late replica"
)

// failoverRun is a campaign under way.
type failoverRun struct {
	o          FailoverOptions
	site       *Site
	writes     *sandbox.Proxy // the address that the order service knows
	relay      *Relay
	random     *rand.Rand
	returns    *rand.Rand // decides whether an old primary comes back
	primary    int
	promotions []*promotion
}

// epochRows is how many ids lie between two primaries: what a lost transaction had is not given again.
const epochRows = 1_000_000

// Failover moves the primary between two servers under load while a relay that knows both reads, half the time by an orderly switch and half by a kill
// under asynchronous replication, and judges every row. The same seed gives the same promotions.
func Failover(ctx context.Context, o FailoverOptions) (*FailoverResult, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if o.Load == (Load{}) {
		o.Load = Load{Rate: 100, MaxRows: 4}
	}
	o.Load.Seed = o.Seed
	r := &failoverRun{o: o, random: rand.New(rand.NewPCG(o.Seed, 5)), returns: rand.New(rand.NewPCG(o.Seed, 7))}
	var err error
	if r.writes, err = sandbox.NewProxy(o.Servers[0].Addr()); err != nil {
		return nil, err
	}
	defer r.writes.Close()
	from := ", read_from: primary"
	if o.Any {
		from = ""
	}
	r.site, err = NewSite(ctx, SiteOptions{
		MySQL: o.Servers[0], Kafka: o.Kafka, Builder: o.Builder, Label: "failover", Sources: []string{o.Servers[0].Addr(), o.Servers[1].Addr()},
		SourceConfig: ", on_divergence: continue" + from, Writes: r.writes.Addr(), AppendTime: true,
	})
	if err != nil {
		return nil, err
	}
	defer r.site.Close()
	res, err := r.run(ctx)
	if err == nil {
		err = r.site.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("seed %d: %w\n%s", o.Seed, err, r.site.LogTails())
	}
	if err := res.Err(); err != nil {
		r.site.Keep()
		res.Folder = r.site.Dir
	}
	return res, nil
}

func (r *failoverRun) run(ctx context.Context) (*FailoverResult, error) {
	if err := r.rebuild(ctx, 1, 0); err != nil {
		return nil, err
	}
	var err error
	if r.relay, err = r.site.Start(ctx, RelayOptions{Build: r.o.Build}); err != nil {
		return nil, err
	}
	if err := r.relay.WaitStatus(ctx, "the relay is connected", func(s status.Status) bool { return s.Source.Connected }); err != nil {
		return nil, err
	}
	load, err := r.site.StartLoad(r.o.Load)
	if err != nil {
		return nil, err
	}
	err = r.promote(ctx)
	stats := load.Stop()
	if err = errors.Join(err, stats.Err); err != nil {
		return nil, err
	}
	if err := r.site.WaitRelayed(ctx, r.relay); err != nil {
		return nil, err
	}
	code, _, err := r.relay.Stop(ctx)
	if err != nil {
		return nil, err
	}
	return r.judge(ctx, stats, code)
}

// promote changes the primary again and again.
func (r *failoverRun) promote(ctx context.Context) error {
	for n, kind := range r.plan() {
		if err := pause(ctx, within(r.random, 300*time.Millisecond, 1500*time.Millisecond)); err != nil {
			return err
		}
		p := &promotion{kind: kind, primary: 1 - r.primary, marker: fmt.Sprintf("promotion-%d", n+1), lost: new(gtid.Set)}
		r.promotions = append(r.promotions, p)
		begin := time.Now()
		if err := r.change(ctx, p); err != nil {
			return fmt.Errorf("promotion %d, %s: %w", n+1, kind, err)
		}
		r.o.Progress(fmt.Sprintf("promotion %d: %s, %d transactions lost, whole again after %.1f s", n+1, kind, p.lost.Count(), time.Since(begin).Seconds()))
	}
	return nil
}

// plan gives the kinds in a random order: half of them orderly.
func (r *failoverRun) plan() []promotionKind {
	var kinds []promotionKind
	for i := range r.o.Promotions {
		kinds = append(kinds, []promotionKind{switchover, crashLagging, switchoverRestart, crashBehind, switchover, crashLagging, switchoverRestart, crash}[i%8])
	}
	r.random.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	return kinds
}

// change makes the replica the primary and the old primary its replica.
func (r *failoverRun) change(ctx context.Context, p *promotion) error {
	ctx, cancel := context.WithTimeout(ctx, recoveryTime)
	defer cancel()
	var err error
	planned := p.kind == switchover || p.kind == switchoverRestart
	if planned {
		err = r.switchOver(ctx, p)
	} else {
		err = r.crash(ctx, p)
	}
	if err != nil {
		return err
	}
	old := r.primary
	r.primary = p.primary
	now := r.o.Servers[r.primary]
	r.writes.Retarget(now.Addr())
	r.writes.Cut()
	if err := r.site.Move(now); err != nil {
		return err
	}
	if err := r.site.Insert(ctx, Row{Kind: "order", Key: p.marker}); err != nil {
		return err
	}
	switch {
	case !planned:
	case p.kind == switchoverRestart:
		if err := r.o.Servers[old].Restart(ctx); err != nil {
			return err
		}
		fallthrough
	default:
		if err := r.o.Servers[old].Follow(ctx, now); err != nil {
			return err
		}
	}
	if err := r.site.WaitRelayed(ctx, r.relay); err != nil {
		return fmt.Errorf("the relay did not recover: %w", err)
	}
	if took := time.Since(p.answers); took > slowRecovery {
		r.o.Progress(fmt.Sprintf("%.1f s until all was published and saved; the end of the relay's log:\n%s", took.Seconds(), r.relay.LogTail(12)))
	}
	if p.kind == crashLagging && r.returns.IntN(2) == 0 {
		if err := r.comesBack(ctx, old, p); err != nil {
			return fmt.Errorf("the old primary came back: %w", err)
		}
	}
	if !planned {
		if err := r.rebuild(ctx, old, r.primary); err != nil {
			return err
		}
	}
	executed, err := r.site.Executed(ctx)
	if err != nil {
		return err
	}
	return r.o.Servers[old].WaitExecuted(ctx, executed.String())
}

// switchOver is what an operator does: no write is lost.
func (r *failoverRun) switchOver(ctx context.Context, p *promotion) error {
	old, next := r.o.Servers[r.primary], r.o.Servers[p.primary]
	if err := old.Exec(ctx, "SET GLOBAL super_read_only = ON"); err != nil {
		return err
	}
	executed, err := r.site.Executed(ctx)
	if err != nil {
		return err
	}
	if err := next.WaitExecuted(ctx, executed.String()); err != nil {
		return err
	}
	return r.take(ctx, p)
}

// take promotes the replica and moves its ids on.
func (r *failoverRun) take(ctx context.Context, p *promotion) error {
	first := len(r.promotions) * epochRows
	database := r.site.Database()
	next := r.o.Servers[p.primary]
	if err := next.Promote(ctx); err != nil {
		return err
	}
	p.answers = time.Now()
	return next.Exec(ctx, fmt.Sprintf("ALTER TABLE %s.orders_outbox AUTO_INCREMENT = %d", database, first+1),
		fmt.Sprintf("ALTER TABLE %s.shipments_outbox AUTO_INCREMENT = %d", database, 1_000_000_000+first+1))
}

// crash kills the primary and promotes the replica as it is.
func (r *failoverRun) crash(ctx context.Context, p *promotion) error {
	old, next := r.o.Servers[r.primary], r.o.Servers[p.primary]
	switch p.kind {
	case crashLagging:
		if err := next.Exec(ctx, "STOP REPLICA IO_THREAD"); err != nil {
			return err
		}
		if err := pause(ctx, within(r.random, 100*time.Millisecond, 700*time.Millisecond)); err != nil {
			return err
		}
	case crashBehind:
		if err := next.Exec(ctx, "STOP REPLICA SQL_THREAD"); err != nil {
			return err
		}
		if err := pause(ctx, within(r.random, 100*time.Millisecond, 700*time.Millisecond)); err != nil {
			return err
		}
	}
	if err := old.Kill(); err != nil {
		return err
	}
	if p.kind == crashBehind {
		if err := pause(ctx, within(r.random, 2*time.Second, 3*time.Second)); err != nil {
			return err
		}
		if err := next.Exec(ctx, "START REPLICA SQL_THREAD"); err != nil {
			return err
		}
	}
	if p.kind != crashLagging || r.random.IntN(2) == 0 { // else what was received and is not applied is lost as well
		received, err := textOf(ctx, next, "SELECT RECEIVED_TRANSACTION_SET FROM performance_schema.replication_connection_status")
		if err != nil {
			return err
		}
		if err := next.WaitExecuted(ctx, received); err != nil {
			return err
		}
	}
	return r.take(ctx, p)
}

// rebuild makes a server a replica of another one from nothing. What it has and the other one lacks is noted as lost in the last promotion.
func (r *failoverRun) rebuild(ctx context.Context, replica, of int) error {
	m, donor := r.o.Servers[replica], r.o.Servers[of]
	if len(r.promotions) > 0 {
		had, err := logged(m.DataDir())
		if err != nil {
			return err
		}
		has, err := executedOn(ctx, donor)
		if err != nil {
			return err
		}
		r.promotions[len(r.promotions)-1].lost = gtid.Minus(had, has)
	}
	if err := m.CloneFrom(ctx, donor); err != nil {
		return err
	}
	return m.Follow(ctx, donor)
}

// comesBack starts a killed primary as it was, with the transactions that the new one lacks, and lets it take writes, and cuts the relay off from the new
// one. It must go on there: the old one lacks what was read since.
func (r *failoverRun) comesBack(ctx context.Context, old int, p *promotion) error {
	p.back = true
	if err := r.o.Servers[old].Start(ctx); err != nil {
		return err
	}
	if err := r.site.KillSessions(ctx); err != nil {
		return err
	}
	if err := r.site.Insert(ctx, Row{Kind: "order", Key: p.marker + "-again"}); err != nil {
		return err
	}
	if err := r.site.WaitRelayed(ctx, r.relay); err != nil {
		return err
	}
	return r.o.Servers[old].Kill()
}

// logged are the transactions in the binlogs of a server that was killed.
func logged(dir string) (*gtid.Set, error) {
	files, err := filepath.Glob(filepath.Join(dir, "binlog.[0-9]*"))
	if err != nil {
		return nil, err
	}
	set := new(gtid.Set)
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		const magic = 4
		for b = b[min(magic, len(b)):]; len(b) >= event.HeaderSize; {
			h, err := event.ParseHeader(b)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if int(h.Size) > len(b) {
				break // torn by the kill
			}
			if h.Type == event.TypeGTID || h.Type == event.TypeGTIDTagged {
				g, err := event.ParseGTID(h.Type, b[event.HeaderSize:h.Size-event.ChecksumSize], nil)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", file, err)
				}
				set.Add(g.GTID)
			}
			b = b[h.Size:]
		}
	}
	return set, nil
}

func executedOn(ctx context.Context, m *sandbox.MySQL) (*gtid.Set, error) {
	text, err := textOf(ctx, m, "SELECT @@global.gtid_executed")
	if err != nil {
		return nil, err
	}
	return gtid.ParseSet(text)
}

// textOf asks a server for one value.
func textOf(ctx context.Context, m *sandbox.MySQL, query string) (string, error) {
	db, err := m.Open("")
	if err != nil {
		return "", err
	}
	defer db.Close()
	var text string
	err = db.QueryRowContext(ctx, query).Scan(&text)
	return strings.ReplaceAll(text, "\n", ""), err
}

// median of times that are sorted in place; 0 without one.
func median(times []time.Duration) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[len(times)/2]
}
