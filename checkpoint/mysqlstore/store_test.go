package mysqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/mysqlstore"
	"outbox-relay/checkpoint/storetest"
	"outbox-relay/internal/sandbox"
)

func options(m *sandbox.MySQL, schema string) mysqlstore.Options {
	return mysqlstore.Options{
		Name: storetest.Name, Schema: schema, Table: "check`points", Addresses: []string{m.Addr()}, User: "root", Program: "test, of: stores",
		Password: func(context.Context) (string, error) { return "", nil },
	}
}

func open(t *testing.T, o mysqlstore.Options) *mysqlstore.Store {
	t.Helper()
	s, err := mysqlstore.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// fresh is a schema that does not exist yet.
func fresh() string { return fmt.Sprintf("cp_%08x", rand.Uint32()) }

func TestConformance(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	storetest.Run(t, func(t *testing.T) storetest.Place {
		o := options(m, fresh())
		return func() (checkpoint.Store, error) { return mysqlstore.Open(o) }
	})
}

func wantHint(t *testing.T, err error, words ...string) {
	t.Helper()
	var e *checkpoint.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v, want a *checkpoint.Error", err)
	}
	for _, w := range words {
		if text := e.Error() + " | " + e.Hint; !strings.Contains(text, w) {
			t.Errorf("%q does not say %q", text, w)
		}
	}
}

func TestWhatCannotBeTrustedIsNotOverwritten(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	o := options(m, fresh())
	s := open(t, o)
	if err := s.Save(t.Context(), storetest.Checkpoint(1)); err != nil {
		t.Fatal(err)
	}
	db := m.DB(t, o.Schema)
	for damage, want := range map[string]error{
		"checkpoint = ''": checkpoint.ErrDamaged,
		"checkpoint = REPLACE(checkpoint, '4', '5')": checkpoint.ErrDamaged,
		"checkpoint = '{}'":                          checkpoint.ErrForeign,
	} {
		var before string
		if err := db.QueryRow("SELECT checkpoint FROM `check``points`").Scan(&before); err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("UPDATE `check``points` SET " + damage); err != nil {
			t.Fatal(err)
		}
		s := open(t, o)
		if _, err := s.Load(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: Load gives %v", damage, err)
		}
		if err := s.Save(t.Context(), storetest.Checkpoint(2)); !errors.Is(err, want) {
			t.Errorf("%s: Save gives %v", damage, err)
		}
		if _, err := db.Exec("UPDATE `check``points` SET checkpoint = ?", before); err != nil {
			t.Fatal(err)
		}
	}
}

// Instances that save at the same time: the row is made once, and a lower token never wins over a higher one.
func TestInstancesThatSaveAtOnce(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	o := options(m, fresh())
	var wg sync.WaitGroup
	for token := range uint64(6) {
		wg.Go(func() {
			s := open(t, o)
			for n := range uint64(20) {
				c := storetest.Checkpoint(token*100 + n)
				c.FencingToken = token + 1
				if err := s.Save(t.Context(), c); err != nil && !errors.Is(err, checkpoint.ErrFenced) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	c, err := open(t, o).Load(t.Context())
	if err != nil || c.FencingToken != 6 || c.BinlogPosition != 4+519 {
		t.Errorf("stored is %+v, %v", c, err)
	}
}

// wantPassing demands that an error says whether time heals it.
func wantPassing(t *testing.T, err error, want bool) {
	t.Helper()
	var e *checkpoint.Error
	if !errors.As(err, &e) || e.Passing != want {
		t.Errorf("passing is not %t: %v", want, err)
	}
}

func TestPrivileges(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	schema := fresh()
	user := "u" + schema
	if err := m.Exec(t.Context(), "CREATE USER "+user+" IDENTIFIED BY 'secret'"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Exec(context.Background(), "DROP USER "+user) })
	o := options(m, schema)
	o.User, o.Password = user, func(context.Context) (string, error) { return "wrong", nil }
	err := open(t, o).Save(t.Context(), storetest.Checkpoint(1))
	wantHint(t, err, "Access denied", "check user and password")
	wantPassing(t, err, false)
	o.Password = func(context.Context) (string, error) { return "secret", nil }
	s := open(t, o)
	grant := "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON `" + schema + "`.* TO '" + user + "'@'%'"
	wantHint(t, s.Save(t.Context(), storetest.Checkpoint(1)), grant, "CREATE TABLE")
	if err := m.Exec(t.Context(), grant); err != nil {
		t.Fatal(err)
	}
	// Exactly what the hint says is enough, and it heals without a new store.
	for n := range uint64(2) {
		if err := s.Save(t.Context(), storetest.Checkpoint(n)); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Load(t.Context()); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := s.Remove(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Load(t.Context()); !errors.Is(err, checkpoint.ErrNotFound) {
		t.Error(err)
	}
	if err := s.Save(t.Context(), storetest.Checkpoint(1)); err != nil { // a token lower than before
		t.Error(err)
	}
}

func TestATableOfAnotherProgramIsNamed(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	o := options(m, fresh())
	if err := m.Exec(t.Context(), "CREATE DATABASE "+o.Schema, "CREATE TABLE "+o.Schema+".`check``points` (id INT)"); err != nil {
		t.Fatal(err)
	}
	wantHint(t, open(t, o).Save(t.Context(), storetest.Checkpoint(1)), "another program", "checkpoint.table")
}

// A server that went read-only is left for the next one, and the connection comes back after a restart.
func TestServersThatComeAndGo(t *testing.T) {
	t.Parallel()
	first, second := sandbox.RunMySQL(t, sandbox.MySQLOptions{}), sandbox.SharedMySQL(t)
	o := options(first, fresh())
	o.Addresses = append(o.Addresses, second.Addr())
	s := open(t, o)
	save := func(n uint64) error { return s.Save(t.Context(), storetest.Checkpoint(n)) }
	if err := save(1); err != nil {
		t.Fatal(err)
	}
	if err := first.Exec(t.Context(), "SET GLOBAL super_read_only = ON"); err != nil {
		t.Fatal(err)
	}
	err := save(2)
	wantHint(t, err, "read-only")
	wantPassing(t, err, true)
	if err := save(3); err != nil {
		t.Error(err)
	}
	only := o
	only.Addresses = only.Addresses[1:]
	if c, err := open(t, only).Load(t.Context()); err != nil || c.BinlogPosition != 4+3 {
		t.Errorf("the second server has %+v, %v", c, err)
	}
	only.Addresses = o.Addresses[:1]
	s = open(t, only)
	if c, err := s.Load(t.Context()); err != nil || c.BinlogPosition != 4+1 {
		t.Errorf("the first server has %+v, %v", c, err)
	}
	if err := first.Restart(t.Context()); err != nil { // it is writable again
		t.Fatal(err)
	}
	if err := save(4); err != nil {
		t.Error(err)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	err = save(5)
	wantHint(t, err, first.Addr(), "can be reached")
	wantPassing(t, err, true)
}

func TestAFrozenServerDoesNotHoldASave(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	o := options(m, fresh())
	o.Timeout = 300 * time.Millisecond
	s := open(t, o)
	if err := s.Save(t.Context(), storetest.Checkpoint(1)); err != nil {
		t.Fatal(err)
	}
	if err := m.Pause(); err != nil {
		t.Fatal(err)
	}
	defer m.Resume()
	wantHint(t, s.Save(t.Context(), storetest.Checkpoint(2)), m.Addr())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.Save(ctx, storetest.Checkpoint(3)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := m.Resume(); err != nil {
		t.Fatal(err)
	}
	for {
		if s.Save(t.Context(), storetest.Checkpoint(4)) == nil {
			break
		}
	}
}
