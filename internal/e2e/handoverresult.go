package e2e

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"outbox-relay/relay/relaytest"
)

// HandoverResult is the account of a campaign with two relays.
type HandoverResult struct {
	Seed        uint64
	Rounds      int
	ExactlyOnce bool
	Elapsed     time.Duration
	Handovers   []Disturbance
	Load        LoadStats
	Report      *relaytest.Report
	// Sessions of both relays in all, and those of them that began again since their transaction was lost.
	Sessions, Aborted int
	// Polls of both roles, times at which both believed in the lock, and how long both called themselves active.
	Polls    int
	Overlaps []overlap
	Both     time.Duration
	// Folder holds the logs of a campaign that broke the promise.
	Folder string

	begin time.Time
}

// Disturbance is one fault of one relay.
type Disturbance struct {
	Fault     string
	OnStandby bool
	Lasted    time.Duration
	// Takeover tells whether the other relay published meanwhile, Took how long after the fault its first row was acknowledged.
	Takeover bool
	Took     time.Duration
	// Healed is how long after the end of the fault both were whole, and all was published and saved.
	Healed time.Duration
	// Sessions that began: 1 for a change of roles, and 1 for each transaction that was Lost: under exactly-once one that comes back from a freeze asks
	// whether its transaction has timed out, and by that the broker aborts the one that its successor has open.
	Sessions, Lost int
}

func (x Disturbance) String() string {
	of, took := "active", ""
	if x.OnStandby {
		of = "standby"
	}
	if x.Takeover {
		took = fmt.Sprintf(", the other published after %.2f s", x.Took.Seconds())
	}
	return fmt.Sprintf("%s of the %s for %.1f s%s, %d new sessions (%d since a transaction was lost), whole %.1f s later", x.Fault, of, x.Lasted.Seconds(), took, x.Sessions, x.Lost, x.Healed.Seconds())
}

// killTakeover is what half of the hand-overs after a kill must stay below.
const killTakeover = 5 * time.Second

// longOverlap is how long both may believe in the activity lock: one learns that its connection is gone a moment after the server does.
const longOverlap = time.Second

// Err is nil when the promise was kept and the relays did not fight.
func (r *HandoverResult) Err() error {
	errs := []error{r.Report.Err()}
	if r.ExactlyOnce && r.Report.Duplicates > 0 {
		errs = append(errs, fmt.Errorf("%d duplicates under exactly-once", r.Report.Duplicates))
	}
	for _, o := range r.Overlaps {
		if o.to.Sub(o.from) >= longOverlap {
			errs = append(errs, fmt.Errorf("two relays believed in the activity lock: %v", o))
		}
	}
	for i, x := range r.Handovers {
		allowed := 1
		if x.OnStandby {
			allowed = 0
		}
		if x.Sessions-x.Lost > allowed || x.Lost > 1 {
			errs = append(errs, fmt.Errorf("round %d: %v", i+1, x))
		}
	}
	if kills := r.took("kill"); len(kills) > 0 && kills[len(kills)/2] >= killTakeover {
		errs = append(errs, fmt.Errorf("half of the %d hand-overs after a kill took %v or longer", len(kills), kills[len(kills)/2]))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("seed %d broke the promise: %w\nlogs are in %s", r.Seed, err, r.Folder)
	}
	return nil
}

// took gives the sorted times of take-overs after a fault.
func (r *HandoverResult) took(fault string) (all []time.Duration) {
	for _, x := range r.Handovers {
		if x.Fault == fault && x.Takeover {
			all = append(all, x.Took)
		}
	}
	slices.Sort(all)
	return all
}

// String is the table of figures.
func (r *HandoverResult) String() string {
	rows := [][2]string{
		{"seed", fmt.Sprint(r.Seed)},
		{"length", fmt.Sprintf("%.0f s", r.Elapsed.Seconds())},
		{"rounds", fmt.Sprint(len(r.Handovers))},
	}
	for _, f := range handoverFaults {
		active, standby := 0, 0
		for _, x := range r.Handovers {
			switch {
			case x.Fault != f.name:
			case x.OnStandby:
				standby++
			default:
				active++
			}
		}
		if active+standby == 0 {
			continue
		}
		text := fmt.Sprintf("%d of the active, %d of the standby", active, standby)
		if t := r.took(f.name); len(t) > 0 {
			text += fmt.Sprintf("; %d taken over, first row after %.2f .. %.2f .. %.2f s", len(t), t[0].Seconds(), t[len(t)/2].Seconds(), t[len(t)-1].Seconds())
		}
		rows = append(rows, [2]string{"  " + f.name, text})
	}
	rows = append(rows, [][2]string{
		{"sessions", fmt.Sprintf("%d, %d of them since a transaction was lost", r.Sessions, r.Aborted)},
		{"looks at both roles", fmt.Sprintf("%d; both believed in the lock %d times; both called themselves active for %.1f s", r.Polls, len(r.Overlaps), r.Both.Seconds())},
		{"committed transactions", fmt.Sprintf("%d in %.0f s, %d rolled back", r.Load.Transactions, r.Load.Elapsed.Seconds(), r.Load.RolledBack)},
		{"committed rows", fmt.Sprintf("%d of %d keys in %d partitions", r.Report.Committed, r.Report.Keys, r.Report.Partitions)},
		{"received", fmt.Sprint(r.Report.Received)},
		{"lost", fmt.Sprint(r.Report.Count(relaytest.Lost))},
		{"out of order", fmt.Sprint(r.Report.Count(relaytest.OutOfOrder))},
		{"keys on two partitions", fmt.Sprint(r.Report.Count(relaytest.TwoPartitions))},
		{"not committed but received", fmt.Sprint(r.Report.Count(relaytest.Phantom))},
		{"duplicates", fmt.Sprintf("%d, at most %d replays of a partition", r.Report.Duplicates, r.Report.Replays)},
		{"duplicates that are no replayed suffix", fmt.Sprint(r.Report.Count(relaytest.Replay))},
	}...)
	return table(rows) + "first row: least .. median .. most, from the fault until a row of the other relay was acknowledged\n"
}

// Takeovers is how often the other relay took over.
func (r *HandoverResult) Takeovers() (n int) {
	for _, x := range r.Handovers {
		if x.Takeover {
			n++
		}
	}
	return n
}
