package produce

import (
	"testing"

	"outbox-relay/internal/instructions"
)

func TestInstructionsOfARecord(t *testing.T) {
	t.Parallel()
	instructions.Check(t,
		instructions.Bound{Benchmark: "BenchmarkEncoder/none", Of: 800, Most: 475},
		instructions.Bound{Benchmark: "BenchmarkEncoder/lz4", Of: 800, Most: 4500})
}
