package event_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"outbox-relay/binlog/event"
)

func TestParseQuery(t *testing.T) {
	t.Parallel()
	q, err := event.ParseQuery(unhex(t, "08000000 02000000 02 0100 0500 00aabbccdd 6731 00 424547494e"))
	if err != nil || q.ThreadID != 8 || q.ExecutionTime != 2 || q.ErrorCode != 1 || string(q.Schema) != "g1" || len(q.StatusVars) != 5 || string(q.Text) != "BEGIN" {
		t.Errorf("got %+v, %v", q, err)
	}
	for _, b := range []string{"", "08000000 02000000 02 0100 0500 00aabbccdd 6731", "08000000 02000000 ff 0100 0000 6731 00", "08000000 02000000 00 0100 ffff 6731 00"} {
		if q, err := event.ParseQuery(unhex(t, b)); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%s: %+v, %v", b, q, err)
		}
	}
}

func TestUpdatedSchemas(t *testing.T) {
	t.Parallel()
	// Every variable that has a length of its own, in front of the list.
	before := "00 00000000 | 01 0000000000000000 | 02 03 73746400 | 06 03 737464 | 03 01000100 | 04 ff00ff00ff00 | 05 06 53595354454d | 07 0000 | 08 ff00 |" +
		"09 0000000000000000 | 0a 00000000 | 0b 01 75 02 6868 | 0d 010203 | 10 01 | 11 0000000000000000 | 12 ff00 | 13 01 | 14 01 |"
	for _, c := range []struct {
		name, vars, want string
		state            event.SchemasState
	}{
		{"behind everything", before + "0c 02 613100 6200", "a1,b", event.SchemasListed},
		{"first, something unknown behind it", "0c 01 6100 | 63 01", "a", event.SchemasListed},
		{"empty list", "0c 00", "", event.SchemasListed},
		{"too many", "0c fe", "", event.SchemasTooMany},
		{"17, which the server never lists", "0c 11" + strings.Repeat("6100", 17), "", event.SchemasUnknown},
		{"16", "0c 10" + strings.Repeat("6100", 16), strings.Repeat("a,", 15) + "a", event.SchemasListed},
		{"no list", before, "", event.SchemasUnknown},
		{"nothing", "", "", event.SchemasUnknown},
		{"behind an unknown variable", "15 01 | 0c 01 6100", "", event.SchemasUnknown},
		{"name without an end", "0c 02 6100 62", "", event.SchemasUnknown},
		{"cut in a variable", "01 0000", "", event.SchemasUnknown},
		{"no count", "0c", "", event.SchemasUnknown},
	} {
		got, state := event.Query{StatusVars: unhex(t, c.vars)}.UpdatedSchemas(nil)
		if state != c.state || string(bytes.Join(got, []byte(","))) != c.want {
			t.Errorf("%s: %s, state %d", c.name, got, state)
		}
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]event.Statement{
		"BEGIN": event.StatementBegin, "begin": event.StatementBegin, "COMMIT": event.StatementCommit, "ROLLBACK": event.StatementRollback,
		"SAVEPOINT `x`": event.StatementSavepoint, "ROLLBACK TO `x`": event.StatementRollbackTo, "rollback to x": event.StatementRollbackTo,
		"XA START X'',X'',1": event.StatementXA, "CREATE TABLE `t` (\n `a` int) START TRANSACTION": event.StatementCreateTransaction,
		"": event.StatementOther, "BEGIN ": event.StatementOther, "COMMITTED": event.StatementOther, "ROLLBACK TOO": event.StatementOther,
		"INSERT INTO t VALUES ('START TRANSACTION": event.StatementOther, "START TRANSACTION": event.StatementOther,
		"SAVEPOINTS": event.StatementOther, "XAVIER": event.StatementOther, "/* x */ BEGIN": event.StatementOther,
	} {
		if got := event.Classify([]byte(text)); got != want {
			t.Errorf("Classify(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestXAKeysOfTextAndEventAreEqual(t *testing.T) {
	t.Parallel()
	p, err := event.ParseXAPrepare(unhex(t, "00 07000000 03000000 02000000 00ff27 6231"))
	if err != nil || p.OnePhase {
		t.Fatalf("%+v, %v", p, err)
	}
	for text, want := range map[string]event.XAStatement{
		"XA START X'00ff27',X'6231',7":                     {Verb: event.XAStart},
		"XA END X'00FF27',X'6231',7":                       {Verb: event.XAEnd},
		"XA COMMIT X'00ff27',X'6231',7":                    {Verb: event.XACommit},
		"XA ROLLBACK X'00ff27',X'6231',7":                  {Verb: event.XARollback},
		"XA COMMIT X'00ff27',X'6231',7 ONE PHASE":          {Verb: event.XACommit, OnePhase: true},
		" xa  commit\tx'00ff27' , x'6231' , 7 one\nphase ": {Verb: event.XACommit, OnePhase: true},
	} {
		want.Branch = p.Branch
		if got, err := event.ParseXAStatement([]byte(text)); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
		again, err := event.ParseXAStatement([]byte("XA END " + want.Branch.String()))
		if err != nil || again.Branch != p.Branch {
			t.Errorf("%s: %+v, %v", want.Branch, again, err)
		}
	}
}

func TestXAStatement(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ab", 64)
	for text, want := range map[string]event.XABranch{
		"XA START X'61'":                             {FormatID: 1, GTRID: "a"},
		"XA START X'61',X'62'":                       {FormatID: 1, GTRID: "a", BQUAL: "b"},
		"XA START X'',X'',0":                         {},
		"XA BEGIN X'61',X'',4294967295":              {FormatID: 1<<32 - 1, GTRID: "a"},
		"XA START X'" + long + "',X'" + long + "',1": {FormatID: 1, GTRID: strings.Repeat("\xab", 64), BQUAL: strings.Repeat("\xab", 64)},
	} {
		if got, err := event.ParseXAStatement([]byte(text)); err != nil || got.Branch != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "XA", "XA ", "XASTART X'61'", "XA STARTX'61'", "XA PREPARE X'61',X'',1", "XA RECOVER", "XA START", "XA START 'a'", "XA START X61", "XA START X'6'",
		"XA START X'6g'", "XA START X'61", "XA START X'61',", "XA START X'61',X'62',", "XA START X'61',X'62',x", "XA START X'61',X'62',4294967296",
		"XA START X'61',X'62',-1", "XA START X'61',X'62',1 ONE PHASE", "XA COMMIT X'61',X'62',1 ONE", "XA COMMIT X'61',X'62',1 TWO PHASE",
		"XA COMMIT X'61',X'62',1;", "XA START X'" + long + "00'", "XA START X'\xff\xff'",
	} {
		if got, err := event.ParseXAStatement([]byte(text)); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

func TestXAPrepare(t *testing.T) {
	t.Parallel()
	p, err := event.ParseXAPrepare(unhex(t, "01 01000000 01000000 00000000 61"))
	if want := (event.XAPrepare{OnePhase: true, Branch: event.XABranch{FormatID: 1, GTRID: "a"}}); err != nil || p != want {
		t.Errorf("got %+v, %v", p, err)
	}
	for _, b := range []string{"", "01 01000000 01000000 00000000", "00 01000000 41000000 00000000" + strings.Repeat("61", 65), "00 01000000 00000000 ffffffff 61"} {
		if p, err := event.ParseXAPrepare(unhex(t, b)); !errors.Is(err, event.ErrMalformed) {
			t.Errorf("%q: %+v, %v", b, p, err)
		}
	}
}
