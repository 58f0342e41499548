package main

import (
	"bytes"
	"strings"
	"testing"

	"outbox-relay/relay/relaytest"
)

// report gives the report of a run in which rows 0 to 2 of one key were committed, 9 was rolled back, and the messages arrived.
func report(messages ...int) *relaytest.Report {
	v := relaytest.NewValidator(relaytest.Options{Restarts: 1})
	v.RolledBack([]byte("9"))
	position := func(id int) []byte { return []byte("u:" + number(id+1) + "#0") }
	for id := range 3 {
		m := record(id)
		v.Committed(relaytest.Row{ID: m.Headers[0].Value, Topic: m.Topic, Key: m.Key, Value: m.Value, Headers: m.Headers[:1]})
	}
	for offset, id := range messages {
		m := record(id)
		m.Offset = int64(offset)
		m.Headers[1].Value = position(id)
		v.Received(m)
	}
	return v.Report()
}

func TestAccount(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		messages []int
		kept     bool
		line     string
	}{
		"all in order":           {[]int{0, 1, 2}, true, "lost                         0"},
		"a replay":               {[]int{0, 1, 0, 1, 2}, true, "duplicates                   2"},
		"a lost row":             {[]int{0, 1}, false, "lost                         1"},
		"two rows swapped":       {[]int{0, 2, 1}, false, "out of order                 1"},
		"a published rollback":   {[]int{0, 9, 1, 2}, false, "published rollbacks          1"},
		"replays without reason": {[]int{0, 0, 1, 1, 2}, false, "The promise was broken"},
		"nothing at all":         {nil, false, "lost                         3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines, kept := account(newScreen(&bytes.Buffer{}), report(c.messages...), newShop(nil, 1))
			text := strings.Join(lines, "\n")
			if kept != c.kept {
				t.Errorf("kept is %v, want %v:\n%s", kept, c.kept, text)
			}
			if !strings.Contains(text, c.line) {
				t.Errorf("%q is not in the account:\n%s", c.line, text)
			}
		})
	}
}

func TestAccountOfNoRowsIsNoSuccess(t *testing.T) {
	t.Parallel()
	empty := relaytest.NewValidator(relaytest.Options{}).Report()
	if _, kept := account(newScreen(&bytes.Buffer{}), empty, newShop(nil, 1)); kept {
		t.Error("a run without a committed row counts as a success")
	}
}
