package checkpoint_test

import (
	"slices"
	"testing"

	"outbox-relay/checkpoint"
)

func TestTrackerTellsCommitTimesOfDoneTransactionsWithRecords(t *testing.T) {
	t.Parallel()
	tr := checkpoint.NewTracker(setOf())
	var got []int64
	tr.Observe(func(commit int64) { got = append(got, commit) })
	tr.Skip(tx(1))
	two := open(tr, 2, 2)
	tr.Skip(tx(3))
	four := open(tr, 4, 1)
	empty := tr.Begin(tx(5))
	tr.Close(empty)
	tr.Acked([]uint64{four, two})
	if len(got) > 0 {
		t.Errorf("told %v before the first is acknowledged", got)
	}
	tr.Acked([]uint64{two})
	if want := []int64{2, 4}; !slices.Equal(got, want) {
		t.Errorf("told %v, want %v", got, want)
	}
}
