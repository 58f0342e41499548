package jsonb_test

import (
	"testing"

	"outbox-relay/internal/instructions"
)

func TestInstructionsOfADocument(t *testing.T) {
	t.Parallel()
	instructions.Check(t,
		instructions.Bound{Benchmark: "BenchmarkOrders/printer/2", Most: 5700},
		instructions.Bound{Benchmark: "BenchmarkOrders/printer/190", Most: 125_000})
}
