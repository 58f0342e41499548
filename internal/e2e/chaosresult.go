package e2e

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"outbox-relay/relay/relaytest"
)

// ChaosResult is the account of a chaos campaign.
type ChaosResult struct {
	Seed         uint64
	Elapsed      time.Duration
	ExactlyOnce  bool
	Faults       []ChaosCount
	Kills, Stops int // of the relay
	Takeovers    int // by the other relay, from one that lived on
	Partitions   int // of the topic that got some; 0 means that it did not
	Load         LoadStats
	Report       *relaytest.Report
	// Disorder are rows whose payload has a lower number than one of their key that came before.
	Disorder []string
	// Samples of checkpoints, how many arrivals could be Compared with them, those that were Ahead of Kafka, and those that went Back.
	Samples, Compared int
	Ahead, Back       []string
	// Folder holds what is known of a campaign that broke the promise.
	Folder string

	longest, healed stall
}

// ChaosCount is how often a fault was made. Refused ones were begun, and the servers did not do all of it.
type ChaosCount struct {
	Name          string
	Made, Refused int
}

// Err is nil when the campaign kept the promise.
func (r *ChaosResult) Err() error {
	errs := []error{r.Report.Err()}
	few := func(what string, all []string) {
		if len(all) > 0 {
			errs = append(errs, fmt.Errorf("%d %s: %q", len(all), what, all[:min(5, len(all))]))
		}
	}
	few("payloads out of order", r.Disorder)
	few("checkpoints ahead of Kafka", r.Ahead)
	few("checkpoints that went back", r.Back)
	if r.ExactlyOnce && r.Report.Duplicates > 0 {
		errs = append(errs, fmt.Errorf("%d duplicates under exactly-once", r.Report.Duplicates))
	}
	if err := errors.Join(errs...); err != nil {
		if r.Folder != "" {
			err = fmt.Errorf("%w\nwhat is known of it is in %s", err, r.Folder)
		}
		return fmt.Errorf("seed %d broke the promise: %w", r.Seed, err)
	}
	return nil
}

// String is the table of figures.
func (r *ChaosResult) String() string {
	made := 0
	var faults [][2]string
	for _, f := range r.Faults {
		made += f.Made
		count := fmt.Sprint(f.Made)
		if f.Refused > 0 {
			count += fmt.Sprintf(", %d not taken by the servers", f.Refused)
		}
		faults = append(faults, [2]string{"  " + f.Name, count})
	}
	says := func(s stall) string {
		return fmt.Sprintf("%.1f s, %.1f s of them with all undone: %s", s.length().Seconds(), s.alone.Seconds(), s.causes)
	}
	rows := slices.Concat([][2]string{
		{"seed", fmt.Sprint(r.Seed)},
		{"length", fmt.Sprintf("%.0f s", r.Elapsed.Seconds())},
		{"faults", fmt.Sprint(made)},
	}, faults, [][2]string{
		{"kills, stops, takeovers of the relay", fmt.Sprintf("%d, %d, %d", r.Kills, r.Stops, r.Takeovers)},
		{"committed transactions", fmt.Sprintf("%d in %.0f s, %d rolled back, %d of unknown end", r.Load.Transactions, r.Load.Elapsed.Seconds(), r.Load.RolledBack, r.Load.Unknown)},
		{"committed rows", fmt.Sprintf("%d of %d keys in %d partitions, %.0f per second", r.Report.Committed, r.Report.Keys, r.Report.Partitions, float64(r.Report.Committed)/r.Elapsed.Seconds())},
		{"received", fmt.Sprint(r.Report.Received)},
		{"lost", fmt.Sprint(r.Report.Count(relaytest.Lost))},
		{"out of order", fmt.Sprint(r.Report.Count(relaytest.OutOfOrder) + len(r.Disorder))},
		{"keys on two partitions", fmt.Sprint(r.Report.Count(relaytest.TwoPartitions))},
		{"not committed but received", fmt.Sprint(r.Report.Count(relaytest.Phantom))},
		{"duplicates", fmt.Sprintf("%d, at most %d replays of a partition", r.Report.Duplicates, r.Report.Replays)},
		{"duplicates that are no replayed suffix", fmt.Sprint(r.Report.Count(relaytest.Replay))},
		{"checkpoints read", fmt.Sprintf("%d, compared with %d arrivals in Kafka", r.Samples, r.Compared)},
		{"checkpoints ahead of Kafka", fmt.Sprint(len(r.Ahead))},
		{"longest time without acknowledgement", says(r.longest)},
		{"longest after all was undone", says(r.healed)},
	})
	return table(rows)
}
