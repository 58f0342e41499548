package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay/relaytest"
)

// XAOptions configure [XA]. MySQL, Kafka and Builder are required; MySQL is restarted and killed, so it has to be the campaign's own.
type XAOptions struct {
	MySQL   *sandbox.MySQL
	Kafka   *sandbox.Kafka
	Builder *Builder
	Build   Build
	// Transactions is the number of XA transactions; ordinary ones come in between.
	Transactions int
	Seed         uint64
	// Gentle never kills the relay: it is only stopped by SIGTERM, so that no duplicate is allowed.
	Gentle bool
	// Progress gets a line for each disturbance.
	Progress func(string)
}

// XAResult is the account of an XA campaign.
type XAResult struct {
	Seed    uint64
	Load    XAStats
	Stops   int // relays ended by SIGTERM
	Kills   int // relays ended by SIGKILL
	Server  int // orderly restarts of MySQL
	Crashes int // kills of MySQL
	// Held is how many branches were prepared when a relay or MySQL was ended, in all.
	Held int
	// RolledBackReceived counts messages of rows that were rolled back.
	RolledBackReceived int
	Report             *relaytest.Report
	CatchUp            time.Duration // from the end of the load to everything relayed and saved
	Codes              []int         // of the SIGTERMs
}

// XA runs XA transactions of all shapes while the relay and MySQL are ended in order and by force, and judges what a consumer received: the
// committed rows in the order of their XA COMMITs, none of the others, and duplicates only where a relay was killed.
func XA(ctx context.Context, o XAOptions) (*XAResult, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	// Little memory, so that branches are spooled.
	s, err := NewSite(ctx, SiteOptions{MySQL: o.MySQL, Kafka: o.Kafka, Builder: o.Builder, Label: "xa", Config: "limits: {buffer: 2MiB}"})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	load, err := s.newXALoad(ctx, o.Transactions, o.Seed)
	if err != nil {
		return nil, err
	}
	defer load.close()
	c := &xaCampaign{o: o, site: s, load: load, res: &XAResult{Seed: o.Seed}, random: rand.New(rand.NewPCG(o.Seed, 3))}
	if err := c.run(ctx); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.LogTails())
	}
	return c.res, nil
}

type xaCampaign struct {
	o      XAOptions
	site   *Site
	load   *xaLoad
	relay  *Relay
	res    *XAResult
	random *rand.Rand
}

func (c *xaCampaign) run(ctx context.Context) error {
	var err error
	if c.relay, err = c.site.Start(ctx, RelayOptions{Build: c.o.Build}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	loaded := make(chan error, 1)
	go func() { // ends with its transactions or with ctx
		err := c.load.run(ctx)
		if err != nil {
			cancel()
		}
		loaded <- err
	}()
	err = c.disturb(ctx)
	if err != nil {
		cancel()
	}
	failed := <-loaded
	if err == nil || failed != nil && !errors.Is(failed, context.Canceled) {
		err = failed // the cause, where one has ended the other
	}
	if err != nil {
		return err
	}
	return c.finish(ctx)
}

// disturbance is one way to disturb.
type disturbance struct {
	name string
	make func(context.Context) error
}

// disturb makes the disturbances of all phases, spread over each.
func (c *xaCampaign) disturb(ctx context.Context) error {
	first := 0
	for _, p := range c.load.phases {
		deck := c.deck(p)
		for i, d := range deck {
			due := int64(first + (p.last-first)*(i+1)/(len(deck)+1))
			err := poll(ctx, func() (bool, error) {
				if !c.relay.Running() {
					return false, fmt.Errorf("the relay ended by itself with code %d", c.relay.ExitCode())
				}
				if strings.Contains(c.relay.Log(), "msg=halted") {
					return false, errors.New("the relay has halted")
				}
				return c.load.ended.Load() >= due, nil
			})
			if err != nil {
				return err
			}
			held := int(c.load.pending.Load())
			c.res.Held += held
			if err := d.make(ctx); err != nil {
				return err
			}
			c.o.Progress(fmt.Sprintf("%s with %d branches prepared; %d XA transactions have ended", d.name, held, c.load.ended.Load()))
		}
		close(p.disturbed)
		first = p.last
	}
	return nil
}

// deck gives the disturbances of a phase in a random order.
func (c *xaCampaign) deck(p *xaPhase) []disturbance {
	deck := []disturbance{{"relay stopped", c.stopRelay}}
	if !c.o.Gentle {
		deck = append(deck, disturbance{"relay killed", c.killRelay})
	}
	if p.uniform {
		deck = append(deck, disturbance{"MySQL restarted", c.restartMySQL}, disturbance{"MySQL killed", c.killMySQL})
	}
	c.random.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	return deck
}

func (c *xaCampaign) stopRelay(ctx context.Context) error {
	c.res.Stops++
	if err := c.stop(ctx); err != nil {
		return err
	}
	var err error
	c.relay, err = c.site.Start(ctx, RelayOptions{Build: c.o.Build})
	return err
}

func (c *xaCampaign) stop(ctx context.Context) error {
	// A process that has hardly begun knows no signal yet.
	err := poll(ctx, func() (bool, error) {
		return !c.relay.Running() || strings.Contains(c.relay.Log(), "outbox-relay starts"), nil
	})
	if err != nil {
		return err
	}
	code, _, err := c.relay.Stop(ctx)
	c.res.Codes = append(c.res.Codes, code)
	return err
}

func (c *xaCampaign) killRelay(ctx context.Context) error {
	c.res.Kills++
	c.relay.Kill()
	var err error
	c.relay, err = c.site.Start(ctx, RelayOptions{Build: c.o.Build})
	return err
}

func (c *xaCampaign) restartMySQL(ctx context.Context) error {
	c.res.Server++
	defer c.load.endMySQL()()
	return c.o.MySQL.Restart(ctx)
}

func (c *xaCampaign) killMySQL(ctx context.Context) error {
	c.res.Crashes++
	defer c.load.endMySQL()()
	if err := c.o.MySQL.Kill(); err != nil {
		return err
	}
	return c.o.MySQL.Start(ctx)
}

// finish writes a marker into each topic behind everything else, waits until the checkpoint has it and with it all before, and judges. What was
// rolled back and came anyway would have come by then.
func (c *xaCampaign) finish(ctx context.Context) error {
	begin := time.Now()
	left, err := recoverXA(ctx, c.site.DB)
	if err != nil {
		return err
	}
	for _, xid := range left {
		if _, back := c.load.forgotten[xid]; !back { // MySQL remembers some after another restart
			return fmt.Errorf("branch %s is still prepared", xid)
		}
		delete(c.load.forgotten, xid)
		if _, err := c.site.DB.ExecContext(ctx, "XA ROLLBACK "+xid); err != nil {
			return err
		}
	}
	for _, kind := range kinds {
		if err := c.site.Insert(ctx, Row{Kind: kind, Key: xaMarker}); err != nil {
			return err
		}
	}
	if err := c.relayed(ctx); err != nil {
		return err
	}
	c.res.CatchUp = time.Since(begin)
	if err := c.stop(ctx); err != nil {
		return err
	}
	if err := c.site.Check(); err != nil {
		return err
	}
	c.res.Load = c.load.stats()
	return c.judge(ctx)
}

// relayed waits until the stored checkpoint contains the markers, which are the last that was executed. It then lacks the PREPAREs of the branches
// that MySQL has forgotten and nothing else: no end of them is in the binlog, so the relay holds their rows.
func (c *xaCampaign) relayed(ctx context.Context) error {
	executed, err := c.site.Executed(ctx)
	if err != nil {
		return err
	}
	marker := new(gtid.Set)
	for g := range executed.Ranges() {
		g.First = g.Last
		marker.AddRange(g)
	}
	if err := c.relay.WaitCheckpoint(ctx, marker); err != nil {
		return err
	}
	stored, err := c.relay.Checkpoint()
	if err != nil {
		return err
	}
	missing := gtid.Minus(executed, stored.GTIDSet)
	if n := int(missing.Count()); n != len(c.load.forgotten) {
		return fmt.Errorf("the checkpoint lacks %s, and MySQL has forgotten %d branches", missing, len(c.load.forgotten))
	}
	return nil
}

const xaMarker = "the-end"

// judge compares the tables with the topics. The order of a key's rows is that in which their transactions ended, which ids do not tell.
func (c *xaCampaign) judge(ctx context.Context) error {
	if err := c.load.writeOrder(ctx); err != nil {
		return err
	}
	v := relaytest.NewValidator(relaytest.Options{Restarts: c.res.Kills})
	rows := 0
	for _, table := range []string{"orders_outbox", "shipments_outbox"} {
		n, err := relaytest.ReadOutbox(ctx, c.site.DB, relaytest.OutboxQuery{Table: table + " o", TopicPrefix: c.site.Name + ".", Order: orderOfCommits}, v)
		if err != nil {
			return err
		}
		rows += n
	}
	if want := c.res.Load.Rows + len(kinds); rows != want {
		return fmt.Errorf("the tables have %d rows, and %d were committed: the campaign's own account is wrong", rows, want)
	}
	err := c.site.Consume(ctx, func(m relaytest.Message) error {
		v.Received(m)
		for _, h := range m.Headers {
			if _, rolledBack := c.load.rolledBack[string(h.Value)]; rolledBack && h.Key == "idempotency_key" {
				c.res.RolledBackReceived++
			}
		}
		return nil
	})
	c.res.Report = v.Report()
	return err
}

// Err is nil when the campaign kept the promise.
func (r *XAResult) Err() error {
	var errs []error
	for _, code := range r.Codes {
		if code != 0 {
			errs = append(errs, fmt.Errorf("a relay stopped with code %d", code))
		}
	}
	if r.RolledBackReceived > 0 {
		errs = append(errs, fmt.Errorf("%d messages of rows that were rolled back", r.RolledBackReceived))
	}
	return errors.Join(append(errs, r.Report.Err())...)
}

// String is the table of figures.
func (r *XAResult) String() string {
	l := r.Load
	var ends []string
	for i, name := range xaEnds {
		ends = append(ends, fmt.Sprintf("%d %s", l.Ends[i], name))
	}
	return table([][2]string{
		{"seed", fmt.Sprint(r.Seed)},
		{"XA transactions", fmt.Sprintf("%d in %.0f s: %s", l.Transactions, l.Elapsed.Seconds(), strings.Join(ends, ", "))},
		{"of them", fmt.Sprintf("%d without outbox rows, %d over compressed binlog, %d with a row beyond the memory of open transactions, %d not detached at PREPARE", l.Foreign, l.Compressed, l.Large, l.Attached)},
		{"names", fmt.Sprintf("%d that were used before, %d of 64 + 64 bytes, %d without bqual", l.Again, l.Longest, l.NoBqual)},
		{"most branches prepared at once", fmt.Sprint(l.Most)},
		{"ordinary transactions in between", fmt.Sprint(l.Ordinary)},
		{"binlogs flushed", fmt.Sprint(l.Flushes)},
		{"relay stopped (SIGTERM), killed (SIGKILL)", fmt.Sprintf("%d, %d", r.Stops, r.Kills)},
		{"MySQL restarted, killed", fmt.Sprintf("%d, %d; %d prepared branches were forgotten by it", r.Server, r.Crashes, l.Forgotten)},
		{"branches prepared at these moments", fmt.Sprintf("%.1f on average", float64(r.Held)/float64(max(1, r.Stops+r.Kills+r.Server+r.Crashes)))},
		{"committed rows", fmt.Sprintf("%d of %d keys in %d partitions", r.Report.Committed, r.Report.Keys, r.Report.Partitions)},
		{"received", fmt.Sprint(r.Report.Received)},
		{"lost", fmt.Sprint(r.Report.Count(relaytest.Lost))},
		{"out of the order of commits", fmt.Sprint(r.Report.Count(relaytest.OutOfOrder))},
		{"rolled-back rows written, received", fmt.Sprintf("%d, %d", l.RolledBackRows, r.RolledBackReceived)},
		{"not committed but received", fmt.Sprint(r.Report.Count(relaytest.Phantom))},
		{"duplicates", fmt.Sprintf("%d, %.1f per SIGKILL of the relay", r.Report.Duplicates, float64(r.Report.Duplicates)/float64(max(1, r.Kills)))},
		{"duplicates that are no replayed suffix", fmt.Sprint(r.Report.Count(relaytest.Replay))},
		{"catching up at the end", fmt.Sprintf("%.1f s", r.CatchUp.Seconds())},
	})
}
