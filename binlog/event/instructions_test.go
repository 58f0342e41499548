package event_test

import (
	"testing"

	"outbox-relay/internal/instructions"
)

func TestInstructionsOfAnEvent(t *testing.T) {
	t.Parallel()
	instructions.Check(t,
		instructions.Bound{Benchmark: "BenchmarkRowWalk", Of: 30, Most: 370},
		instructions.Bound{Benchmark: "BenchmarkTableMapName", Most: 90})
}
