package router_test

import (
	"testing"

	"outbox-relay/internal/instructions"
)

func TestInstructionsOfARow(t *testing.T) {
	t.Parallel()
	instructions.Check(t,
		instructions.Bound{Benchmark: "BenchmarkRoute/preset", Most: 8000})
}
