package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"outbox-relay/binlog/gtid"
	"outbox-relay/relay/relaytest"
)

// FailoverResult is the account of a failover campaign.
type FailoverResult struct {
	Seed     uint64
	Version  string // of MySQL
	ReadFrom string
	Load     LoadStats
	Report   *relaytest.Report // of the rows that the last primary has
	Connects int               // "source connected" in the log
	StopCode int
	// Kinds are how many promotions there were of each kind.
	Planned, Crashed, WithLoss, Late, Back int
	// Lost counts transactions that the old primaries had and the new ones lacked, Published those of them that had been published, Reported what
	// the relay said that it gave up.
	Lost, Published, Reported int
	// Wrong are promotions in which what was published and lost differs from what the relay reported.
	Wrong []string
	// Recoveries are the times from the new primary's first answer to the first row committed on it in Kafka.
	Recoveries []time.Duration
	// Folder keeps the logs of a campaign that failed.
	Folder string
}

// gaveUp is the line of the relay's log with what on_divergence: continue gave up.
var gaveUp = regexp.MustCompile(`^time=(\S+) .*source\.on_divergence: continue.* transactions=(\S+)`)

// judge compares what the last primary has with what a consumer receives. What it lacks has to be what the relay said.
func (r *failoverRun) judge(ctx context.Context, load LoadStats, code int) (*FailoverResult, error) {
	res := &FailoverResult{
		Seed: r.o.Seed, Version: r.o.Servers[0].Version(), ReadFrom: "primary", Load: load, StopCode: code, Connects: strings.Count(r.relay.Log(), `msg="source connected"`),
	}
	if r.o.Any {
		res.ReadFrom = "any"
	}
	if err := r.reported(); err != nil {
		return nil, err
	}
	have := map[string]bool{}
	for _, table := range []string{"orders_outbox", "shipments_outbox"} {
		if err := r.ids(ctx, table, have); err != nil {
			return nil, err
		}
	}
	v := relaytest.NewValidator(relaytest.Options{})
	if err := r.site.ReadOracle(ctx, v); err != nil {
		return nil, err
	}
	for _, p := range r.promotions {
		p.published = new(gtid.Set)
	}
	err := r.site.Consume(ctx, func(m relaytest.Message) error {
		id := headerOf(m, "id")
		if have[id] {
			r.recovered(m)
			v.Received(m)
			return nil
		}
		return r.phantom(m, id)
	})
	if err != nil {
		return nil, err
	}
	res.Report = v.Report()
	for n, p := range r.promotions {
		res.count(n+1, p)
	}
	return res, nil
}

// recovered notes when the first row of a promotion arrived.
func (r *failoverRun) recovered(m relaytest.Message) {
	for _, p := range r.promotions {
		if string(m.Key) == p.marker {
			p.took = max(time.UnixMilli(m.Appended).Sub(p.answers), 1)
		}
	}
}

// phantom notes a message whose row is not on the last primary: it was lost with the primary of its time, which its id tells.
func (r *failoverRun) phantom(m relaytest.Message, id string) error {
	n, err := strconv.Atoi(id)
	if err != nil {
		return err
	}
	text, _, _ := strings.Cut(headerOf(m, "outbox-relay-position"), "#")
	g, err := gtid.Parse(text)
	if err != nil {
		return err
	}
	epoch := n % 1_000_000_000 / epochRows
	if epoch >= len(r.promotions) {
		return fmt.Errorf("the row %s of the last primary was published in transaction %s and is not there", id, text)
	}
	r.promotions[epoch].published.Add(g)
	return nil
}

func (r *failoverRun) ids(ctx context.Context, table string, have map[string]bool) error {
	rows, err := r.site.DB.QueryContext(ctx, "SELECT id FROM "+table)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return err
		}
		have[id] = true
	}
	return rows.Err()
}

// reported reads what the relay gave up from its log; what it says before the primary after next answers belongs to a promotion.
func (r *failoverRun) reported() error {
	for _, p := range r.promotions {
		p.reported = new(gtid.Set)
	}
	lines := bufio.NewScanner(strings.NewReader(r.relay.Log()))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := gaveUp.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		at, err := time.Parse(time.RFC3339Nano, m[1])
		if err != nil {
			return err
		}
		set, err := gtid.ParseSet(strings.Trim(m[2], `"`))
		if err != nil {
			return err
		}
		last := 0
		for n, p := range r.promotions {
			if p.answers.Before(at.Add(promotionTime)) {
				last = n
			}
		}
		r.promotions[last].reported.AddSet(set)
	}
	return lines.Err()
}

// promotionTime is how long before a primary answers the relay may have found out what it lacks.
const promotionTime = 200 * time.Millisecond

func (r *FailoverResult) count(n int, p *promotion) {
	switch p.kind {
	case switchover, switchoverRestart:
		r.Planned++
	case crashBehind:
		r.Crashed++
		r.Late++
	default:
		r.Crashed++
		if !p.lost.IsEmpty() {
			r.WithLoss++
		}
	}
	if p.back {
		r.Back++
	}
	r.Lost += int(p.lost.Count())
	r.Published += int(p.published.Count())
	r.Reported += int(p.reported.Count())
	wrong := func(format string, args ...any) {
		r.Wrong = append(r.Wrong, fmt.Sprintf("promotion %d, %s: ", n, p.kind)+fmt.Sprintf(format, args...))
	}
	switch {
	case p.took == 0:
		wrong("its first row was not published")
	case !p.published.Equal(p.reported):
		wrong("published and lost were %s, reported as lost %s", p.published, p.reported)
	case !p.lost.ContainsSet(p.published):
		wrong("published and lost were %s, and the old primary had more than the new one only by %s", p.published, p.lost)
	}
	r.Recoveries = append(r.Recoveries, p.took)
}

// wantedRecovery is the median that is asked for.
const wantedRecovery = 3 * time.Second

// Err is nil when the promise was kept in every promotion.
func (r *FailoverResult) Err() error {
	errs := []error{r.Report.Err()}
	if r.Report.Duplicates > 0 {
		errs = append(errs, fmt.Errorf("%d duplicates without a restart", r.Report.Duplicates))
	}
	if r.StopCode != 0 {
		errs = append(errs, fmt.Errorf("the relay stopped with code %d", r.StopCode))
	}
	if m := median(r.Recoveries); m > wantedRecovery {
		errs = append(errs, fmt.Errorf("the median of the recoveries is %v", m))
	}
	for _, w := range r.Wrong {
		errs = append(errs, errors.New(w))
	}
	return errors.Join(errs...)
}

// String is the table of figures.
func (r *FailoverResult) String() string {
	m := median(r.Recoveries) // sorts
	at := func(percent int) time.Duration {
		return r.Recoveries[min(len(r.Recoveries)*percent/100, len(r.Recoveries)-1)]
	}
	rows := [][2]string{
		{"MySQL", r.Version},
		{"source.read_from", r.ReadFrom},
		{"seed", fmt.Sprint(r.Seed)},
		{"promotions, planned", fmt.Sprint(r.Planned)},
		{"promotions after kill -9 of the primary", fmt.Sprintf("%d, %d of them with a loss, %d to a replica that had not applied all, %d whose old primary came back as it was", r.Crashed, r.WithLoss, r.Late, r.Back)},
		{"committed transactions", fmt.Sprintf("%d in %.0f s, %d rolled back, %d of unknown end", r.Load.Transactions, r.Load.Elapsed.Seconds(), r.Load.RolledBack, r.Load.Unknown)},
		{"rows on the last primary", fmt.Sprintf("%d of %d keys", r.Report.Committed, r.Report.Keys)},
		{"received", fmt.Sprintf("%d of these", r.Report.Received)},
		{"lost", fmt.Sprint(r.Report.Count(relaytest.Lost))},
		{"out of order", fmt.Sprint(r.Report.Count(relaytest.OutOfOrder))},
		{"duplicates", fmt.Sprint(r.Report.Duplicates)},
		{"transactions lost by the servers", fmt.Sprint(r.Lost)},
		{"of these, published before", fmt.Sprint(r.Published)},
		{"reported by the relay", fmt.Sprintf("%d, other than these in %d promotions", r.Reported, len(r.Wrong))},
		{"connections to a source", fmt.Sprint(r.Connects)},
		{"recovery", fmt.Sprintf("median %.2f s, 90 %% below %.2f s, longest %.2f s", m.Seconds(), at(90).Seconds(), at(100).Seconds())},
	}
	return table(rows) + "recovery: from the first answer of the new primary to the first row committed on it, in Kafka\n"
}
