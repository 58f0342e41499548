package relay_test

import (
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"outbox-relay/binlog/gtid"
	"outbox-relay/relay"
)

// What a source remembers of columns is stored with the position that it belongs to, also when the position stands still, and the next source
// gets it.
func TestRememberedColumnsGoWithThePosition(t *testing.T) {
	scenario(t, func(t *testing.T, g *rig) {
		var altered atomic.Bool
		g.source.columns = func(p *gtid.Set) json.RawMessage {
			if altered.Load() {
				return json.RawMessage(`{"altered, at":"` + p.String() + `"}`)
			}
			return json.RawMessage(`{"at":"` + p.String() + `"}`)
		}
		var got []string
		open := g.options.OpenSource
		g.options.OpenSource = func(start *gtid.Set, hooks relay.SourceHooks, reg prometheus.Registerer) (relay.Source, error) {
			got = append(got, string(hooks.Columns))
			return open(start, hooks, reg)
		}
		stored := func(want string) {
			t.Helper()
			g.place.with(func() {
				if s := string(g.place.stored.Columns); s != want {
					t.Errorf("stored are %s, want %s", s, want)
				}
			})
		}
		g.start()
		g.source.foreign(t, 11, true)
		after(2 * interval)
		stored(`{"at":"` + uuid + `:1-11"}`)
		altered.Store(true)
		after(2 * interval)
		stored(`{"altered, at":"` + uuid + `:1-11"}`)
		saves := g.place.saves
		after(10 * interval)
		if g.place.saves != saves {
			t.Errorf("%d saves without a change", g.place.saves-saves)
		}
		g.mustStop()

		// The token that the next session stores at its start must not lose them.
		g.done = make(chan error, 1)
		g.source.columns = nil
		g.start()
		after(time.Millisecond)
		g.place.with(func() {
			if g.place.stored.FencingToken != 2 {
				t.Errorf("the token is %d", g.place.stored.FencingToken)
			}
		})
		g.mustStop()
		if len(got) != 2 || got[0] != "" || got[1] != `{"altered, at":"`+uuid+`:1-11"}` {
			t.Errorf("the sources got %q", got)
		}
	})
}
