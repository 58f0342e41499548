// Command capture writes the files of real servers that the tests of package event read: it runs testdata/groups.sql on each version of MySQL and
// keeps the binlog. It is run in the folder of that package, by go generate.
//
// It deliberately looks at nothing in the files: what is in them is for the tests to say.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"outbox-relay/internal/sandbox"
)

const script = "testdata/groups.sql"

// targets are the files by the version that writes them.
var targets = []struct{ version, file string }{{"9.7", "testdata/groups.binlog"}, {"8.0", "testdata/groups-8.0.binlog"}}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "capture: "+err.Error())
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	text, err := os.ReadFile(script)
	if err != nil {
		return err
	}
	for _, t := range targets {
		b, err := capture(ctx, t.version, statements(string(text)))
		if err != nil {
			return fmt.Errorf("MySQL %s: %w", t.version, err)
		}
		if err := os.WriteFile(t.file, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// statements splits a script at its semicolons, of which no text in it has one.
func statements(script string) []string {
	var out []string
	for line := range strings.Lines(script) {
		if strings.HasPrefix(line, "--") {
			script = strings.Replace(script, line, "", 1)
		}
	}
	for s := range strings.SplitSeq(script, ";") {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return out
}

// capture gives the binlog file in which a server of its own writes the statements.
func capture(ctx context.Context, version string, statements []string) (file []byte, err error) {
	m, err := sandbox.StartMySQL(ctx, sandbox.MySQLOptions{Version: version, Progress: func(s string) { fmt.Fprintln(os.Stderr, "capture: "+s) }})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := m.Exec(ctx, slices.Concat([]string{"FLUSH BINARY LOGS"}, statements, []string{"FLUSH BINARY LOGS"})...); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(m.DataDir(), "binlog.[0-9]*"))
	if err != nil {
		return nil, err
	}
	if len(files) < 2 {
		return nil, fmt.Errorf("only %d binlog files", len(files))
	}
	slices.Sort(files)
	return os.ReadFile(files[len(files)-2])
}
