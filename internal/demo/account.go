package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"outbox-relay/relay/relaytest"
)

// judge compares the rows that a SELECT finds with everything that is in the topics.
func judge(ctx context.Context, c *cluster, s *shop, restarts int) (*relaytest.Report, error) {
	v := relaytest.NewValidator(relaytest.Options{Restarts: restarts})
	for _, id := range s.rolledBack {
		v.RolledBack(id)
	}
	if _, err := relaytest.ReadOutbox(ctx, c.db, relaytest.OutboxQuery{Table: "shop.outbox_events"}, v); err != nil {
		return nil, err
	}
	err := relaytest.Consume(ctx, relaytest.ConsumeOptions{Brokers: c.brokers, Topics: topics}, func(m relaytest.Message) error {
		v.Received(m)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return v.Report(), nil
}

// account gives the lines of the report and whether the promise was kept.
func account(sc *screen, r *relaytest.Report, s *shop) (lines []string, kept bool) {
	line := func(what string, n int, remark string, good bool) {
		value := fmt.Sprintf("%8s", number(n))
		if good {
			value = sc.paint(green, value)
		} else {
			value = sc.paint(red, value)
		}
		lines = append(lines, strings.TrimRight(fmt.Sprintf("  %-22s%s   %s", what, value, sc.paint(dim, remark)), " "))
	}
	lost, disordered, phantoms := r.Count(relaytest.Lost), r.Count(relaytest.OutOfOrder), r.Count(relaytest.Phantom)
	err := r.Err()
	contents := ""
	if err == nil {
		contents = "; keys, values and headers equal what SELECT shows"
	}
	line("committed rows", r.Committed, fmt.Sprintf("with %d keys, in %s transactions", r.Keys, number(int(s.transactions.Load()))), r.Committed > 0)
	line("rows received", r.Distinct, fmt.Sprintf("in %d partitions of %d topics%s", r.Partitions, len(topics), contents), r.Distinct == r.Committed)
	line("lost", lost, "", lost == 0)
	line("out of order", disordered, "per key, by first arrival", disordered == 0)
	line("published rollbacks", phantoms, fmt.Sprintf("%s transactions were rolled back", number(int(s.rollbacks.Load()))), phantoms == 0)
	line("duplicates", r.Duplicates, "sent again after the kill -9, with the same outbox-relay-position header", true)
	if err != nil {
		lines = append(lines, "", sc.paint(red, "  The promise was broken:"), indent(err.Error()))
	}
	return lines, err == nil && r.Committed > 0
}

// pages shows where to look, with an excerpt of what is there now.
func pages(ctx context.Context, sc *screen, d *daemon) error {
	st, err := d.status(ctx)
	if err != nil {
		return err
	}
	excerpt, err := json.MarshalIndent(st, "    ", "  ")
	if err != nil {
		return err
	}
	metrics, _, err := d.get(ctx, "/metrics")
	if err != nil {
		return fmt.Errorf("asking the relay for its metrics: %w", err)
	}
	var shown []string
	for line := range strings.SplitSeq(string(metrics), "\n") {
		for _, name := range []string{"lag_seconds", "rows_total", "published_total", "checkpoint_saves_total", "in_flight_records"} {
			if strings.HasPrefix(line, "outbox_relay_"+name+"{") {
				shown = append(shown, "    "+line)
			}
		}
	}
	sc.print("  "+d.url("/status"), sc.paint(dim, "    "+string(excerpt)), "  "+d.url("/metrics"), sc.paint(dim, strings.Join(shown, "\n")),
		"  "+d.url("/readyz")+"  and  "+d.url("/healthz"))
	return nil
}
