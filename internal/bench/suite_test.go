package main

import (
	"strings"
	"testing"
)

func TestNamesStandForBenchmarks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		args  []string
		quick bool
		want  string
	}{
		{"idle", nil, false, "idle"},
		{"drain", []string{"-workload", "single"}, false, "drain -workload single"},
		{"drain-large", nil, false, "drain -workload large"},
		{"drain-large", []string{"-rounds", "1"}, false, "drain -workload large -rounds 1"},
		{"latency", nil, false, "latency -rate 500; latency -rate 2000"},
		{"latency-2000", nil, true, "latency -rate 2000"},
		{"nothing", nil, false, ""},
	} {
		var got []string
		for _, b := range suiteOf(c.name, c.args, c.quick) {
			got = append(got, strings.Join(append([]string{b.name}, b.args...), " "))
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s %v is %q, want %q", c.name, c.args, text, c.want)
		}
	}
	if n := len(suiteOf("all", nil, false)); n != len(workloads)+len(latencyRates)+5 {
		t.Errorf("all are %d benchmarks", n)
	}
	for _, b := range suiteOf("all", nil, true) {
		if args := strings.Join(b.args, " "); strings.Contains(args, "-long") {
			t.Errorf("a quick run has %s %s in it, which takes minutes", b.name, args)
		}
	}
}

func TestTheRelayRunsBetweenTheOthers(t *testing.T) {
	t.Parallel()
	var all []contestant
	for _, name := range []string{"relay", "baseline", "debezium", "debezium-tuned", "packets", "producer"} {
		all = append(all, contestant{name: name, debezium: strings.HasPrefix(name, "debezium")})
	}
	for _, c := range []struct {
		takesPart func(contestant) bool
		want      string
	}{
		{func(contestant) bool { return true }, "relay baseline debezium relay debezium-tuned packets relay producer"},
		{func(c contestant) bool { return !c.debezium }, "relay baseline packets relay producer"},
		{func(c contestant) bool { return c.name == "relay" }, "relay"},
	} {
		var got []string
		for _, c := range turns(all, c.takesPart) {
			got = append(got, c.name)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("got %s, want %s", s, c.want)
		}
	}
}
