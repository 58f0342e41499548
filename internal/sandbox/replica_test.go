package sandbox_test

import (
	"testing"

	"outbox-relay/internal/sandbox"
)

func TestACloneFollowsAndIsPromoted(t *testing.T) {
	t.Parallel()
	source, replica := sandbox.RunMySQL(t, sandbox.MySQLOptions{}), sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(source.Exec(t.Context(), "CREATE DATABASE d", "CREATE TABLE d.t (a INT PRIMARY KEY)", "INSERT INTO d.t VALUES (1)"))
	do(replica.Exec(t.Context(), "CREATE DATABASE gone"))
	uuid := value(t, replica.DB(t, ""), "SELECT @@server_uuid")
	do(replica.CloneFrom(t.Context(), source))
	do(replica.Follow(t.Context(), source))
	do(source.Exec(t.Context(), "INSERT INTO d.t VALUES (2)"))
	do(replica.WaitExecuted(t.Context(), value(t, source.DB(t, ""), "SELECT @@global.gtid_executed")))
	if err := replica.Exec(t.Context(), "INSERT INTO d.t VALUES (3)"); err == nil {
		t.Error("a replica takes writes")
	}
	do(replica.Promote(t.Context()))
	do(replica.Exec(t.Context(), "INSERT INTO d.t VALUES (3)"))
	db := replica.DB(t, "")
	if n := value(t, db, "SELECT COUNT(*) FROM d.t"); n != "3" {
		t.Errorf("%s rows, want 3", n)
	}
	if now := value(t, db, "SELECT @@server_uuid"); now != uuid {
		t.Errorf("the server is %s now and was %s", now, uuid)
	}
}
