package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"outbox-relay/internal/sandbox"
	status "outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// DrillOptions configure [FarBehind] and [Outage]. MySQL, Kafka and Builder are required; Outage kills the broker.
type DrillOptions struct {
	MySQL    *sandbox.MySQL
	Kafka    *sandbox.Kafka
	Builder  *Builder
	Build    Build
	Seed     uint64
	Progress func(string)
}

// DrillResult is the account of a drill, which one connection to the source has to live through.
type DrillResult struct {
	What     string
	Report   *relaytest.Report
	Connects int
	Took     time.Duration // until all was published and saved
}

// Err is nil when the promise was kept on one connection.
func (r *DrillResult) Err() error {
	errs := []error{r.Report.Err()}
	if r.Report.Duplicates > 0 {
		errs = append(errs, fmt.Errorf("%s: %d duplicates without a restart", r.What, r.Report.Duplicates))
	}
	if r.Connects != 1 {
		errs = append(errs, fmt.Errorf("%s: %d connections to the source, and one was enough", r.What, r.Connects))
	}
	return errors.Join(errs...)
}

// String is a line of figures.
func (r *DrillResult) String() string {
	return fmt.Sprintf("%s: %d rows, %d lost, %d out of order, %d duplicates, %d connections, all published and saved after %.1f s\n", r.What, r.Report.Committed,
		r.Report.Count(relaytest.Lost), r.Report.Count(relaytest.OutOfOrder), r.Report.Duplicates, r.Connects, r.Took.Seconds())
}

// FarBehind starts a relay with a position that lies a number of binlog files back, among other files that the server has to search.
func FarBehind(ctx context.Context, o DrillOptions, files int) (*DrillResult, error) {
	s, err := NewSite(ctx, SiteOptions{MySQL: o.MySQL, Kafka: o.Kafka, Builder: o.Builder, Label: "far"})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	for i := range files {
		if err := s.Insert(ctx, Row{Kind: kinds[i%len(kinds)], Key: fmt.Sprintf("far-%d", i%7)}); err != nil {
			return nil, err
		}
		if _, err := s.DB.ExecContext(ctx, "FLUSH BINARY LOGS"); err != nil {
			return nil, err
		}
	}
	begin := time.Now()
	r, err := s.Start(ctx, RelayOptions{Build: o.Build})
	if err != nil {
		return nil, err
	}
	if err := s.WaitRelayed(ctx, r); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.LogTails())
	}
	return s.drilled(ctx, fmt.Sprintf("a start %d binlogs behind", files), r, time.Since(begin))
}

// Outage kills the broker for a while. The relay's window fills, and then it stops reading, so that the server has to keep a stream that nobody reads.
func Outage(ctx context.Context, o DrillOptions, length time.Duration) (*DrillResult, error) {
	s, err := NewSite(ctx, SiteOptions{MySQL: o.MySQL, Kafka: o.Kafka, Builder: o.Builder, Label: "outage", Config: "limits: {buffer: 1MiB}"})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	r, err := s.Start(ctx, RelayOptions{Build: o.Build})
	if err != nil {
		return nil, err
	}
	err = r.WaitStatus(ctx, "the relay is connected", func(st status.Status) bool { return st.Source.Connected && st.Role == status.RoleActive })
	if err != nil {
		return nil, err
	}
	load, err := s.StartLoad(Load{Rate: 20, Workers: 4, Seed: o.Seed})
	if err != nil {
		return nil, err
	}
	defer load.Stop()
	broker := o.Kafka.Broker(1)
	if err := broker.Kill(); err != nil {
		return nil, err
	}
	for i := range outageBulks {
		if err := s.bulk(ctx, i); err != nil {
			return nil, err
		}
	}
	if err := pause(ctx, length); err != nil {
		return nil, err
	}
	if err := broker.Start(ctx); err != nil {
		return nil, err
	}
	begin := time.Now()
	if stats := load.Stop(); stats.Err != nil {
		return nil, stats.Err
	}
	limited, cancel := context.WithTimeout(ctx, recoveryTime)
	defer cancel()
	if err := s.WaitRelayed(limited, r); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, s.LogTails())
	}
	return s.drilled(ctx, fmt.Sprintf("an outage of Kafka for %v", length), r, time.Since(begin))
}

// outageBulks are as many statements as fill the relay's window and all buffers on the way to it: about 5 MB each.
const outageBulks = 6

// bulk writes many rows in one statement.
func (s *Site) bulk(ctx context.Context, number int) error {
	return s.ExecMany(ctx, fmt.Sprintf("SET SESSION cte_max_recursion_depth = %d; INSERT INTO orders_outbox (aggregate_type, aggregate_id, event_type, payload, idempotency_key) "+
		"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %[1]d) "+
		"SELECT 'order', CONCAT('bulk-', i %% 50), 'bulk', JSON_OBJECT('n', i, 'padding', REPEAT('x', 500)), CONCAT('bulk-%d-', i) FROM n", bulkRows, number))
}

// drilled ends the relay and judges.
func (s *Site) drilled(ctx context.Context, what string, r *Relay, took time.Duration) (*DrillResult, error) {
	code, _, err := r.Stop(ctx)
	if err == nil && code != 0 {
		err = fmt.Errorf("the relay stopped with code %d", code)
	}
	if err = errors.Join(err, s.Check()); err != nil {
		return nil, err
	}
	report, err := s.Judge(ctx, relaytest.Options{})
	if err != nil {
		return nil, err
	}
	return &DrillResult{What: what, Report: report, Connects: strings.Count(r.Log(), `msg="source connected"`), Took: took}, nil
}
