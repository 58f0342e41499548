// Package storetest holds for every implementation of checkpoint.Store: the
// contract written there, as tests. It does not crash anything; what a crash
// leaves behind is for the tests of each store.
package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
)

// Name is the relay name that the stores under test are opened for.
const Name = "conformance"

// Place opens stores on one and the same place, for the relay called Name. A
// store that the suite opened is closed before the next is opened.
type Place func() (checkpoint.Store, error)

// Run runs the suite. fresh is called once for each test, possibly at the same
// time as for others, and gives a place without a checkpoint.
func Run(t *testing.T, fresh func(t *testing.T) Place) {
	for name, test := range map[string]func(*place){
		"an empty place has no checkpoint":        testEmpty,
		"load gives what was saved":               testRoundTrip,
		"each save replaces the one before":       testReplace,
		"a large checkpoint is kept whole":        testLarge,
		"save and load share no memory":           testOwnership,
		"a reopened store has the last save":      testReopen,
		"an older fencing token is refused":       testFencing,
		"an invalid checkpoint is refused":        testInvalid,
		"an ended context stops a call":           testContext,
		"a closed store says so":                  testClosed,
		"a load during saves is one of the saves": testConcurrent,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&place{T: t, open: fresh(t)})
		})
	}
}

// Checkpoint gives a checkpoint with every field set, different for each n.
func Checkpoint(n uint64) *checkpoint.Checkpoint {
	set, err := gtid.ParseSet(fmt.Sprintf("0a000000-0000-0000-0000-000000000001:1-%d:%d:blue:1-3,0b000000-0000-0000-0000-000000000002:7", n+1, n+3))
	if err != nil {
		panic(err)
	}
	return &checkpoint.Checkpoint{
		Name: Name, GTIDSet: set, SourceUUID: "0a000000-0000-0000-0000-000000000001",
		BinlogFile: fmt.Sprintf("binlog.%06d", n), BinlogPosition: 4 + n, Tables: []string{"app.outbox_events", "`my.app`.`ä`"},
		Columns: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n)), FencingToken: 1, Instance: "host-1/77",
		Time: time.Date(2026, 5, 6, 7, 8, 9, 123456000, time.UTC).Add(time.Duration(n) * time.Second),
	}
}

// place is a Place with failures turned into test failures.
type place struct {
	*testing.T
	open Place
}

func (p *place) store() checkpoint.Store {
	p.Helper()
	s, err := p.open()
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { s.Close() })
	return s
}

func (p *place) save(s checkpoint.Store, c *checkpoint.Checkpoint) {
	p.Helper()
	if err := s.Save(p.Context(), c); err != nil {
		p.Fatal(err)
	}
}

func (p *place) wantStored(s checkpoint.Store, want *checkpoint.Checkpoint) {
	p.Helper()
	got, err := s.Load(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		p.Errorf("stored checkpoint, -want +got\n%s", diff)
	}
}

func (p *place) close(s checkpoint.Store) {
	p.Helper()
	if err := s.Close(); err != nil {
		p.Fatal(err)
	}
}

// wantError checks the reason, and that the error is one an operator can read.
func (p *place) wantError(err, reason error) {
	p.Helper()
	var typed *checkpoint.Error
	if !errors.Is(err, reason) || !errors.As(err, &typed) {
		p.Errorf("got error %v, want an *Error with %v", err, reason)
		return
	}
	if typed.Op == "" || typed.Path == "" {
		p.Errorf("error %v does not say what was done and where", err)
	}
}

func testEmpty(p *place) {
	s := p.store()
	for range 2 {
		c, err := s.Load(p.Context())
		p.wantError(err, checkpoint.ErrNotFound)
		if c != nil {
			p.Errorf("Load gave %+v with its error", c)
		}
	}
}

func testRoundTrip(p *place) {
	s := p.store()
	p.save(s, Checkpoint(1))
	p.wantStored(s, Checkpoint(1))
	least := &checkpoint.Checkpoint{Name: Name, GTIDSet: new(gtid.Set), FencingToken: 1}
	p.save(s, least)
	p.wantStored(s, least)
}

func testReplace(p *place) {
	s := p.store()
	for n := range uint64(20) {
		p.save(s, Checkpoint(n))
		p.wantStored(s, Checkpoint(n))
	}
}

func testLarge(p *place) {
	s := p.store()
	c := Checkpoint(1)
	for i := range int64(5000) {
		c.GTIDSet.Add(gtid.GTID{UUID: gtid.UUID{1}, Number: 2*i + 1})
	}
	c.Columns = json.RawMessage(`"` + strings.Repeat("columns ", 20_000) + `"`)
	p.save(s, c)
	p.wantStored(s, c)
	p.save(s, Checkpoint(2))
	p.wantStored(s, Checkpoint(2))
}

func testOwnership(p *place) {
	s := p.store()
	c := Checkpoint(1)
	p.save(s, c)
	if diff := cmp.Diff(Checkpoint(1), c); diff != "" {
		p.Errorf("Save changed its argument, -want +got\n%s", diff)
	}
	spoil := func(c *checkpoint.Checkpoint) {
		c.GTIDSet.AddRange(gtid.Range{UUID: gtid.UUID{2}, First: 1, Last: 9})
		c.Tables[0], c.Columns[0], c.FencingToken = "x", 'x', 99
	}
	spoil(c)
	loaded, err := s.Load(p.Context())
	if err != nil {
		p.Fatal(err)
	}
	spoil(loaded)
	p.wantStored(s, Checkpoint(1))
	p.save(s, Checkpoint(2))
}

func testReopen(p *place) {
	for n := range uint64(3) {
		s := p.store()
		if n > 0 {
			p.wantStored(s, Checkpoint(n))
		}
		p.save(s, Checkpoint(n))
		p.save(s, Checkpoint(n+1))
		p.close(s)
	}
}

func testFencing(p *place) {
	with := func(n, token uint64) *checkpoint.Checkpoint {
		c := Checkpoint(n)
		c.FencingToken = token
		return c
	}
	s := p.store()
	p.save(s, with(1, 5))
	p.save(s, with(2, 5))
	p.wantError(s.Save(p.Context(), with(3, 4)), checkpoint.ErrFenced)
	p.wantStored(s, with(2, 5))
	p.save(s, with(4, 1<<64-1))
	p.close(s)
	// The token that counts is the stored one, also for a store that has not
	// loaded.
	s = p.store()
	p.wantError(s.Save(p.Context(), with(5, 5)), checkpoint.ErrFenced)
	p.wantStored(s, with(4, 1<<64-1))
	p.save(s, with(6, 1<<64-1))
}

func testInvalid(p *place) {
	s := p.store()
	p.save(s, Checkpoint(1))
	for _, spoil := range []func(*checkpoint.Checkpoint){
		func(c *checkpoint.Checkpoint) { c.GTIDSet = nil },
		func(c *checkpoint.Checkpoint) { c.Name = "" },
		func(c *checkpoint.Checkpoint) { c.Name = "somebody else" },
		func(c *checkpoint.Checkpoint) { c.Columns = json.RawMessage("{") },
	} {
		c := Checkpoint(2)
		spoil(c)
		p.wantError(s.Save(p.Context(), c), checkpoint.ErrInvalid)
	}
	p.wantStored(s, Checkpoint(1))
}

func testContext(p *place) {
	s := p.store()
	p.save(s, Checkpoint(1))
	ctx, cancel := context.WithCancel(p.Context())
	cancel()
	if err := s.Save(ctx, Checkpoint(2)); !errors.Is(err, context.Canceled) {
		p.Errorf("Save with an ended context: %v", err)
	}
	if _, err := s.Load(ctx); !errors.Is(err, context.Canceled) {
		p.Errorf("Load with an ended context: %v", err)
	}
	p.wantStored(s, Checkpoint(1))
}

func testClosed(p *place) {
	s := p.store()
	p.save(s, Checkpoint(1))
	p.close(s)
	p.close(s)
	p.wantError(s.Save(p.Context(), Checkpoint(2)), checkpoint.ErrClosed)
	_, err := s.Load(p.Context())
	p.wantError(err, checkpoint.ErrClosed)
	p.wantStored(p.store(), Checkpoint(1))
}

func testConcurrent(p *place) {
	const saves = 30
	s := p.store()
	p.save(s, Checkpoint(0))
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for n := range uint64(saves) {
				if err := s.Save(p.Context(), Checkpoint(n)); err != nil {
					p.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range saves {
				got, err := s.Load(p.Context())
				if err != nil {
					p.Error(err)
					continue
				}
				if diff := cmp.Diff(Checkpoint(got.BinlogPosition-4), got); diff != "" {
					p.Errorf("a load gave none of the saves, -want +got\n%s", diff)
				}
			}
		})
	}
	wg.Wait()
	p.wantStored(s, Checkpoint(saves-1))
}
