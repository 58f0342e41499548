package mysqlstore_test

import (
	"context"
	"errors"
	"testing"

	"outbox-relay/checkpoint"
	"outbox-relay/checkpoint/storetest"
	"outbox-relay/internal/sandbox"
)

// Each right that is missing is found before a save needs it, with nothing changed on the server.
func TestRightsAreTriedWithoutChangingAnything(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*sandbox.MySQL{"newest": sandbox.SharedMySQL(t), "8.0": sandbox.RunMySQL(t, sandbox.MySQLOptions{Version: "8.0"})} {
		t.Run(name, func(t *testing.T) {
			schema := fresh()
			user := "u" + schema
			exec := func(statements ...string) {
				t.Helper()
				if err := m.Exec(context.Background(), statements...); err != nil {
					t.Fatal(err)
				}
			}
			exec("CREATE USER " + user + " IDENTIFIED BY 'secret'")
			t.Cleanup(func() { exec("DROP USER "+user, "DROP DATABASE IF EXISTS "+schema) })
			o := options(m, schema)
			o.User, o.Password = user, func(context.Context) (string, error) { return "secret", nil }
			s := open(t, o)
			db, err := m.Open("")
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			probe := func() error {
				t.Helper()
				var before, after string
				ask := func(to *string) {
					if err := db.QueryRowContext(t.Context(), "SELECT GROUP_CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) IS NULL FROM information_schema.TABLES WHERE TABLE_SCHEMA = ?", schema).Scan(to); err != nil {
						t.Fatal(err)
					}
				}
				ask(&before)
				err := s.Probe(t.Context())
				if ask(&after); before != after {
					t.Error("a table came or went")
				}
				return err
			}
			hint := "GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON `" + schema + "`.* TO '" + user + "'@'%'"
			wantHint(t, probe(), hint)
			exec("GRANT SELECT, INSERT, UPDATE, DELETE ON `" + schema + "`.* TO " + user)
			wantHint(t, probe(), hint) // the table is not there, and CREATE is missing
			exec("GRANT CREATE ON `" + schema + "`.* TO " + user)
			if err := probe(); err != nil {
				t.Fatal(err)
			}
			if err := s.Save(t.Context(), storetest.Checkpoint(1)); err != nil {
				t.Fatal(err)
			}
			for _, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
				exec("REVOKE " + right + " ON `" + schema + "`.* FROM " + user)
				wantHint(t, probe(), hint)
				exec("GRANT " + right + " ON `" + schema + "`.* TO " + user)
			}
			exec("REVOKE CREATE ON `" + schema + "`.* FROM " + user) // the table is there
			if err := probe(); err != nil {
				t.Error(err)
			}
			if name == "8.0" { // the other one is shared
				exec("SET GLOBAL read_only = ON")
				err := probe()
				wantHint(t, err, "read-only")
				var e *checkpoint.Error
				if !errors.As(err, &e) || !e.Passing {
					t.Errorf("a failover ends it: %v", err)
				}
				exec("SET GLOBAL read_only = OFF")
			}
		})
	}
}
