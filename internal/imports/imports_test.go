// Package imports_test keeps the table of which package may import which: data moves from the binlog to Kafka, and only the top knows all.
package imports_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "outbox-relay"

// rule says what a package may import from the project. Names are relative to the module; a name that ends in /* stands for all packages
// below it.
type rule struct {
	name    string
	imports []string
	pure    bool // no I/O, no log, no metrics
}

// rules holds every package of the project. The first rule that fits counts.
var rules = []rule{
	{name: "binlog", imports: []string{"binlog/*", "internal/tlsfault", "internal/redact", "internal/labels"}},
	{name: "binlog/gtid", pure: true},
	{name: "binlog/*", imports: []string{"binlog/*"}, pure: true},
	{name: "router", imports: []string{"binlog", "binlog/*", "router/debezium"}, pure: true},
	{name: "router/debezium", imports: []string{"binlog/*"}, pure: true},
	{name: "checkpoint", imports: []string{"binlog/gtid"}},
	{name: "checkpoint/kafkastore", imports: []string{"binlog/gtid", "checkpoint", "relay/kafka/conn", "relay/kafka/txn"}},
	{name: "checkpoint/*", imports: []string{"binlog/gtid", "checkpoint", "internal/tlsfault", "internal/redact"}},
	{name: "snapshot", imports: []string{"binlog", "binlog/*", "checkpoint"}},
	{name: "relay", imports: []string{"binlog", "binlog/*", "router", "checkpoint", "snapshot", "internal/labels"}},
	{name: "relay/kafka", imports: []string{"router", "relay/kafka/*"}},
	{name: "relay/kafka/produce"},
	{name: "relay/kafka/conn", imports: []string{"internal/tlsfault", "internal/redact"}},
	{name: "relay/kafka/txn", imports: []string{"relay/kafka/conn"}},
	{name: "relay/stdout", imports: []string{"router"}},
	{name: "relay/fleet", imports: []string{"relay"}},
	{name: "relay/httpd", imports: []string{"relay"}},
	{name: "relay/preflight", imports: []string{"snapshot", "binlog", "binlog/*", "router", "checkpoint", "checkpoint/kafkastore", "relay/kafka"}},
	{name: "relay/relaytest"},
	{name: "config"},
	{name: "config/fromdebezium", pure: true},
	{name: "cmd/*", imports: []string{"snapshot", "binlog", "binlog/*", "router", "router/debezium", "checkpoint", "checkpoint/*", "relay", "relay/*", "config", "config/*", "internal/app"}},
	{name: "internal/app", imports: []string{"snapshot", "binlog", "binlog/*", "router", "router/debezium", "checkpoint", "checkpoint/*", "relay", "relay/*", "config"}},
	{name: "internal/sandbox"},
	{name: "internal/tlsfault"},
	{name: "internal/redact", pure: true},
	{name: "internal/labels", pure: true},
	{name: "internal/fakemysql", imports: []string{"binlog/*"}},
	{name: "internal/*", imports: []string{"*"}},
}

// notForProduction are packages that only tests, the demo and other programs of this repository use.
var notForProduction = []string{"relay/relaytest", "checkpoint/storetest", "internal/sandbox", "internal/fakemysql", "internal/instructions", "deploy/*"}

// impure are packages of the standard library and others that a pure package does without.
var impure = []string{"os", "os/*", "net", "net/*", "database/sql", "database/sql/*", "log", "log/*", "math/rand", "math/rand/*", "github.com/prometheus/*", "github.com/IBM/*"}

// onlyIn are libraries that production packages use in one place.
var onlyIn = map[string][]string{
	"github.com/IBM/sarama":             {"relay/kafka", "relay/kafka/*", "checkpoint/kafkastore"},
	"github.com/go-mysql-org/go-mysql/": {"binlog", "relay", "relay/preflight"}, // the handshake; never its reader
	"github.com/spf13/cobra":            {"cmd/*"},
	"github.com/knadh/koanf/":           {"config"},
}

type listed struct {
	ImportPath string
	Imports    []string
}

func TestImports(t *testing.T) {
	t.Parallel()
	packages := list(t)
	if len(packages) < 10 {
		t.Fatalf("only %d packages were found", len(packages))
	}
	for _, p := range packages {
		for _, fault := range faultsOf(p) {
			t.Error(fault)
		}
	}
}

// TestFaultsAreFound sees that the check is able to fail.
func TestFaultsAreFound(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]listed{
		"upwards":             {"outbox-relay/router", []string{"outbox-relay/relay"}},
		"across":              {"outbox-relay/relay/kafka", []string{"outbox-relay/binlog"}},
		"a leaf":              {"outbox-relay/config", []string{"outbox-relay/router"}},
		"I/O in a pure one":   {"outbox-relay/binlog/jsonb", []string{"net/http"}},
		"a log in a pure one": {"outbox-relay/router", []string{"log/slog"}},
		"tests in production": {"outbox-relay/cmd/outbox-relay", []string{"outbox-relay/relay/relaytest"}},
		"a second publisher":  {"outbox-relay/relay", []string{"github.com/IBM/sarama"}},
		"a stranger":          {"outbox-relay/helpers", nil},
	} {
		if len(faultsOf(p)) == 0 {
			t.Errorf("%s: %s may not import %v, and nothing was found", name, p.ImportPath, p.Imports)
		}
	}
}

func list(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-pgo=off", "-json=ImportPath,Imports", module+"/...").Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		t.Fatalf("go list: %v", err)
	}
	var packages []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		packages = append(packages, p)
	}
}

func faultsOf(p listed) (faults []string) {
	name := strings.TrimPrefix(p.ImportPath, module+"/")
	at := slices.IndexFunc(rules, func(r rule) bool { return fits(r.name, name) })
	if at < 0 {
		return []string{name + " is not in the table of packages: say what it may import"}
	}
	for _, imported := range p.Imports {
		if own, ok := strings.CutPrefix(imported, module+"/"); ok {
			if !anyFits(rules[at].imports, own) {
				faults = append(faults, fmt.Sprintf("%s imports %s, and may import of the project only %v", name, own, rules[at].imports))
			}
			if !strings.HasPrefix(name, "internal/") && anyFits(notForProduction, own) {
				faults = append(faults, fmt.Sprintf("%s imports %s, which is not for production", name, own))
			}
			continue
		}
		if rules[at].pure && anyFits(impure, imported) {
			faults = append(faults, fmt.Sprintf("%s imports %s, and has to do without I/O, log and metrics", name, imported))
		}
		for library, places := range onlyIn {
			if strings.HasPrefix(imported, library) && !anyFits(append(places, "internal/*", "relay/relaytest"), name) {
				faults = append(faults, fmt.Sprintf("%s imports %s, which only %v may", name, imported, places))
			}
		}
	}
	return faults
}

func anyFits(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return fits(p, name) })
}

// fits tells whether name is the pattern or, for one that ends in *, below it.
func fits(pattern, name string) bool {
	if dir, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, dir) && name != path.Clean(dir)
	}
	return pattern == name
}
