package router_test

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"outbox-relay/binlog/event"
	"outbox-relay/router"
)

// TestTemplatesRenderAsTheyAreWritten compares random templates over random rows with a rendering that replaces piece by piece.
func TestTemplatesRenderAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	tbl := plainTable()
	outcomes := map[string]int{}
	for range 5000 {
		cells := []event.Cell{text("k"), randomCell(random), randomCell(random), randomCell(random), null, bigint(1), null, null}
		template, want := randomTemplate(random, map[string]event.Cell{"v": cells[1], "e": cells[2], "b": cells[3]})
		if template == "" {
			continue
		}
		outcome, rec, err := route(t, tbl, cells, none(func(r *router.Rule) { r.Value, r.Tombstone = template, true }))
		got := show(rec.Value)
		if err != nil {
			var p *router.Poison
			if !errors.As(err, &p) || outcome != router.Rejected {
				t.Fatalf("%q: %v, %v", template, outcome, err)
			}
			got = string(p.Reason)
		}
		if got != want {
			t.Fatalf("%q: %s, want %s (seed %d)", template, got, want, seed)
		}
		outcomes[strings.TrimRight(want, `"`)]++
	}
	for _, seen := range []string{"NULL", "missing_column", "null_in_template"} {
		if outcomes[seen] == 0 {
			t.Errorf("no template came out as %s: %d outcomes", seen, len(outcomes))
		}
	}
}

func randomCell(random *rand.Rand) event.Cell {
	switch random.IntN(8) {
	case 0:
		return null
	case 1:
		return absent
	}
	b := make([]byte, random.IntN(40))
	for i := range b {
		b[i] = "{}|`ab 0\x00\xff"[random.IntN(10)]
	}
	return raw(b)
}

// randomTemplate gives a template and what show makes of its value, or the reason why there is none.
func randomTemplate(random *rand.Rand, cells map[string]event.Cell) (template, want string) {
	var plain, written strings.Builder
	reason := ""
	parts, nulls, literals := 0, 0, 0
	for range 1 + random.IntN(4) {
		if random.IntN(2) == 0 {
			literal := []string{"{", "}", "x", "a.b", " ", "{}"}[random.IntN(6)]
			written.WriteString(strings.NewReplacer("{", "{{", "}", "}}").Replace(literal))
			plain.WriteString(literal)
			literals++
			continue
		}
		name := []string{"v", "e", "b"}[random.IntN(3)]
		filter := []string{"", "|hex", " | base64 "}[random.IntN(3)]
		fmt.Fprintf(&written, "{%s%s}", name, filter)
		parts++
		cell := cells[name]
		switch {
		case reason != "":
		case cell.State == event.CellAbsent:
			reason = "missing_column"
		case cell.State == event.CellNull:
			nulls++
			reason = "null_in_template"
		case filter == "|hex":
			plain.WriteString(hex.EncodeToString(cell.Raw))
		case filter != "":
			plain.WriteString(base64.StdEncoding.EncodeToString(cell.Raw))
		default:
			plain.Write(cell.Raw)
		}
	}
	switch {
	case parts == 1 && literals == 0 && nulls == 1:
		return written.String(), "NULL"
	case reason != "":
		return written.String(), reason
	}
	return written.String(), fmt.Sprintf("%q", plain.String())
}
