package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"outbox-relay/internal/sandbox"
)

// suite is a list of benchmarks with their arguments.
type suite []planned

// planned is one of them.
type planned struct {
	bench
	args []string
}

// latencyRates are the steady loads that are measured.
var latencyRates = []string{"500", "2000"}

// suiteOf gives what a name stands for: a benchmark with the arguments, one with a workload, all of a family, or all; nil for an unknown name.
func suiteOf(name string, args []string, quick bool) (s suite) {
	add := func(b bench, args ...string) {
		s = append(s, planned{b, args})
	}
	brief := quick && name == "all"
	for _, b := range benches() {
		var variants []string // of the flag that chooses a workload
		choose := "-workload"
		switch b.name {
		case "drain":
			for _, w := range workloads {
				if !w.Long || !brief {
					variants = append(variants, w.Name)
				}
			}
		case "latency":
			choose, variants = "-rate", latencyRates
			if brief {
				variants = latencyRates[:1]
			}
		}
		switch {
		case name == b.name && (len(args) > 0 || variants == nil):
			add(b, args...)
			return s
		case name == b.name || name == "all":
			for _, v := range variants {
				add(b, choose, v)
			}
			if variants == nil {
				add(b)
			}
		default:
			for _, v := range variants {
				if name == b.name+"-"+v {
					add(b, append([]string{choose, v}, args...)...)
				}
			}
		}
	}
	if name == "all" && len(args) > 0 {
		return nil
	}
	return s
}

// run runs the benchmarks, prints each table when it is there and keeps all in the file. One that fails does not stop the next.
func (s suite) run(ctx context.Context, g global, out io.Writer) error {
	r := report{Date: time.Now().UTC().Format(time.DateOnly), Commit: commit(ctx), Quick: g.quick, Host: thisHost(), Versions: versions(ctx)}
	begun := time.Now()
	var all []error
	missed := false
	for _, b := range s {
		if len(s) > 1 {
			say(strings.Join(append([]string{b.name}, b.args...), " "))
		}
		tables, err := b.run(ctx, g, b.args)
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", b.name, err))
		}
		for _, t := range tables {
			r.Tables = append(r.Tables, t)
			t.print(out)
			missed = missed || !t.met()
		}
		r.Minutes = time.Since(begun).Minutes()
		if g.out != "" {
			all = append(all, r.write(g.out))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	if missed {
		all = append(all, errMissed)
	}
	return errors.Join(all...)
}

// report is the file of figures.
type report struct {
	Date     string   `json:"date"`
	Commit   string   `json:"commit"`
	Quick    bool     `json:"quick,omitempty"`
	Minutes  float64  `json:"minutes"`
	Host     host     `json:"host"`
	Versions []string `json:"versions"`
	Tables   []*table `json:"tables"`
}

// host is the machine that all ran on: the contestants, MySQL, Kafka and the load.
type host struct {
	Processor string  `json:"processor"`
	Cores     int     `json:"cores"`
	MemoryGiB float64 `json:"memoryGiB"`
	Kernel    string  `json:"kernel"`
}

func thisHost() host {
	h := host{Cores: runtime.NumCPU()}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		_, rest, _ := strings.Cut(string(text), "model name")
		line, _, _ := strings.Cut(rest, "\n")
		h.Processor = strings.TrimLeft(line, "\t :")
	}
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) == nil {
		h.MemoryGiB = spreadOf([]float64{float64(info.Totalram) * float64(info.Unit) / (1 << 30)}).Median
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		h.Kernel = strings.TrimSpace(string(text))
	}
	return h
}

func commit(ctx context.Context) string {
	text, err := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

// versions names what is measured and what with.
func versions(ctx context.Context) []string {
	v := []string{runtime.Version(), "Kafka " + sandbox.KafkaVersion, "Debezium " + sandbox.DebeziumVersion}
	if text, err := exec.CommandContext(ctx, "java", "-version").CombinedOutput(); err == nil {
		line, _, _ := strings.Cut(string(text), "\n")
		v = append(v, line)
	}
	return v
}

func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

func readReport(path string) (*report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := new(report)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return r, nil
}
