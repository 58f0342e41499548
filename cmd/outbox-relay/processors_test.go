package main

import (
	"runtime"
	"testing"

	"outbox-relay/config"
)

// Not parallel: the number of processors is the process's.
func TestOneProcessorForEachSource(t *testing.T) {
	before := runtime.GOMAXPROCS(4)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	for _, c := range []struct {
		environment   string
		sources, want int
	}{{"", 0, 1}, {"", 1, 1}, {"", 3, 3}, {"", 20, 4}, {"2", 1, 4}} {
		runtime.GOMAXPROCS(4)
		t.Setenv("GOMAXPROCS", c.environment)
		limitProcessors(&config.Config{Sources: make([]config.NamedSource, c.sources)})
		if got := runtime.GOMAXPROCS(0); got != c.want {
			t.Errorf("GOMAXPROCS=%q, %d sources: %d processors, want %d", c.environment, c.sources, got, c.want)
		}
	}
}
