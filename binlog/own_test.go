package binlog_test

import (
	"testing"

	"outbox-relay/binlog"
	"outbox-relay/internal/sandbox"
)

// A step is the relay's own only if nothing but its checkpoint table was written.
func TestStepsOfTheRelaysOwnCheckpointSaySo(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	b := newBench(t, m, func(o *binlog.Options) { o.Own = binlog.TableName{Schema: "cp", Name: "cp"} })
	b.exec("CREATE DATABASE cp", "CREATE TABLE cp.cp (id INT)")
	for _, c := range []struct {
		name       string
		statements []string
		want       bool
	}{
		{"the table alone", []string{"INSERT INTO cp.cp VALUES (1)"}, true},
		{"twice", []string{"UPDATE cp.cp SET id = 2", "DELETE FROM cp.cp"}, true},
		{"compressed", []string{"SET binlog_transaction_compression = ON", "INSERT INTO cp.cp VALUES (1)"}, true},
		{"with another table", []string{"BEGIN", "INSERT INTO cp.cp VALUES (1)", "INSERT INTO f(v) VALUES ('x')", "COMMIT"}, false},
		{"besides another transaction", []string{"INSERT INTO f(v) VALUES ('x')", "INSERT INTO cp.cp VALUES (1)"}, false},
		{"a change of the table itself", []string{"ALTER TABLE cp.cp ADD x INT"}, false},
		{"an empty transaction", []string{"SET gtid_next = 'eeeeeeee-ffff-ffff-ffff-ffffffffffff:7'", "BEGIN", "COMMIT", "SET gtid_next = 'AUTOMATIC'"}, false},
		{"a branch", []string{"XA START 'own'", "INSERT INTO cp.cp(id) VALUES (1)", "XA END 'own'", "XA PREPARE 'own'", "XA COMMIT 'own'"}, false},
	} {
		b.exec("INSERT INTO f(v) VALUES ('start')")
		b.caughtUp()
		b.reader.Close()
		b.exec(c.statements...)
		b.open(b.done, func(o *binlog.Options) { o.Own = binlog.TableName{Schema: "cp", Name: "cp"} })
		all, steps := true, 0
		for !b.done.ContainsSet(b.executed()) {
			tx, err := b.reader.Next(b.ctx)
			if err != nil {
				t.Fatal(err)
			}
			b.position(tx)
			if len(tx.Ranges) > 0 {
				all, steps = all && tx.Own, steps+1
			}
		}
		if all != c.want || steps == 0 {
			t.Errorf("%s: own is %v in %d steps", c.name, all, steps)
		}
	}
}
