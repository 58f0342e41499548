// Package instructions counts what a benchmark costs without a clock: the machine instructions of one more turn, by which a test finds a regression on any
// machine, however busy. They come from callgrind, so the count needs valgrind; where that is not installed, and on other processors
// than the bounds are for, the test is skipped.
package instructions

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// counted is about how many instructions a count goes over: many more than what the runtime does aside, a second or two under valgrind.
const counted = 30_000_000

// Bound is a benchmark of the calling package with the most instructions that one of its turns may take.
type Bound struct {
	Benchmark string // with the names of sub-benchmarks behind slashes
	Most      float64
	Of        int // things in a turn, of which Most is for one; 0 is 1
}

// Check fails the test for every benchmark that takes more than its bound, and for one that takes less than half, since such a bound finds nothing.
func Check(t *testing.T, bounds ...Bound) {
	t.Helper()
	if race {
		t.Skip("valgrind cannot run what the race detector has built")
	}
	if runtime.GOARCH != "amd64" {
		t.Skip("the bounds are of amd64")
	}
	valgrind, err := exec.LookPath("valgrind")
	if err != nil {
		t.Skip("valgrind, which counts instructions, is not installed: ", err)
	}
	for _, b := range bounds {
		of := float64(max(b.Of, 1))
		turns := max(20, int(counted/(b.Most*of)))
		// The beginning of the program and of the benchmark is the same in both runs.
		got := float64(count(t, valgrind, b.Benchmark, turns+10)-count(t, valgrind, b.Benchmark, 10)) / float64(turns) / of
		t.Logf("%s: %.0f instructions, of at most %.0f", b.Benchmark, got, b.Most)
		switch {
		case got > b.Most:
			t.Errorf("%s takes %.0f instructions, more than %.0f: find out why, and let the bound follow only if it must be so", b.Benchmark, got, b.Most)
		case got < b.Most/2:
			t.Errorf("%s takes %.0f instructions, less than half of %.0f: a bound that far away finds nothing", b.Benchmark, got, b.Most)
		}
	}
}

var collected = regexp.MustCompile(`Collected : (\d+)`)

// count runs a benchmark alone in this test's program and gives the instructions of the whole.
func count(t *testing.T, valgrind, benchmark string, turns int) int64 {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	levels := strings.Split(benchmark, "/")
	for i, l := range levels {
		levels[i] = "^" + regexp.QuoteMeta(l) + "$"
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), valgrind, "--tool=callgrind", "--callgrind-out-file="+filepath.Join(dir, "out"), program,
		"-test.run=^$", "-test.bench="+strings.Join(levels, "/"), "-test.benchtime="+strconv.Itoa(turns)+"x", "-test.cpu=1")
	// Callgrind does not bear the signals by which goroutines are interrupted.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=off", "GODEBUG=asyncpreemptoff=1", "GOCOVERDIR="+dir)
	out, err := cmd.CombinedOutput()
	m := collected.FindSubmatch(out)
	if err != nil || m == nil || !strings.Contains(string(out), "ns/op") {
		t.Fatalf("valgrind of %s: %v\n%s", benchmark, err, out)
	}
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
