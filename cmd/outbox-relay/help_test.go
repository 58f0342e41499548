package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The help of each command has examples that its own flags take, says what it touches and with which codes it exits.
func TestTheHelpOfEveryCommandTeaches(t *testing.T) {
	t.Parallel()
	root := (&app{out: io.Discard, err: io.Discard}).rootCommand()
	taught := 0
	each(root, func(c *cobra.Command) {
		if c.HasSubCommands() {
			return
		}
		taught++
		name := c.CommandPath()
		if !strings.Contains(c.Long, "\n\nIt ") {
			t.Errorf("%s does not say what it touches", name)
		}
		if !strings.Contains(c.Long, "Exit codes:") && !slices.Contains([]string{"outbox-relay version", "outbox-relay config example"}, name) {
			t.Errorf("%s does not name its exit codes:\n%s", name, c.Long)
		}
		examples := 0
		for line := range strings.Lines(c.Example) {
			_, rest, found := strings.Cut(line, "outbox-relay "+strings.TrimPrefix(name, "outbox-relay "))
			if !found {
				t.Errorf("%s: the example %q is of something else", name, line)
				continue
			}
			examples++
			args := append(strings.Fields(strings.TrimPrefix(name, "outbox-relay ")), words(rest)...)
			fresh := (&app{out: io.Discard, err: io.Discard}).rootCommand()
			found2, left, err := fresh.Find(args)
			if err == nil {
				err = found2.ParseFlags(left)
			}
			if err == nil {
				err = found2.ValidateArgs(found2.Flags().Args())
			}
			if err != nil || found2.CommandPath() != name {
				t.Errorf("%s: the example %q: %v", name, line, err)
			}
		}
		if examples == 0 {
			t.Errorf("%s has no example", name)
		}
	})
	if taught < 14 {
		t.Errorf("%d commands", taught)
	}
}

// words are the arguments of a shell line up to a pipe or a redirection.
func words(line string) (args []string) {
	var b strings.Builder
	quote := rune(0)
	open := false
	end := func() {
		if open {
			args = append(args, b.String())
		}
		b.Reset()
		open = false
	}
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			b.WriteRune(r)
		case r == '\'' || r == '"':
			quote, open = r, true
		case r == '|' || r == '>':
			end()
			return args
		case r == ' ' || r == '\n':
			end()
		default:
			b.WriteRune(r)
			open = true
		}
	}
	end()
	return args
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		var out bytes.Buffer
		if code, err := execute([]string{"completion", shell}, &out, io.Discard); code != 0 || err != nil || !strings.Contains(out.String(), "outbox-relay") {
			t.Errorf("%s: %d, %v", shell, code, err)
		}
	}
	config := newSite(t, "").write("shards.yaml", "name: orders\nsource: {user: relay, start: latest}\nsources:\n  - {name: shard1, address: 'db1:3306'}\n  - {name: shard2, address: 'db2:3306'}\nkafka: {brokers: ['k:9092']}\ntables:\n  - {table: app.o}\n")
	for _, c := range []struct {
		typed []string
		want  []string
	}{
		{[]string{"ch"}, []string{"check", "checkpoint"}},
		{[]string{"run", "--set", "kafka.lin"}, []string{"kafka.linger="}},
		{[]string{"run", "--set", "kafka.delivery="}, []string{"kafka.delivery=at-least-once", "kafka.delivery=exactly-once"}},
		{[]string{"status", "--config", config, "--source", ""}, []string{"shard1", "shard2"}},
	} {
		var out bytes.Buffer
		if code, err := execute(append([]string{"__completeNoDesc"}, c.typed...), &out, io.Discard); code != 0 || err != nil {
			t.Errorf("%q: %d, %v", c.typed, code, err)
		}
		got := strings.Fields(out.String())
		for _, w := range c.want {
			if !slices.Contains(got, w) {
				t.Errorf("%q gives %q, want %q in it", c.typed, got, w)
			}
		}
	}
}
