package e2e_test

import (
	_ "embed"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

//go:embed testdata/ddl.sql
var ddl string

// wantAccepted is how many of the statements the server has to accept at least; which ones depends on its version and edition.
const wantAccepted = 200

// Statements that do not concern the outbox pass while rows flow: nothing stops, nothing is lost, and nothing is even logged.
func TestForeignStatementsPassUnnoticed(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	s := site(t, e2e.SiteOptions{MySQL: m})
	r := start(t, s, e2e.RelayOptions{})
	waitMarked(t, s, r)
	quiet := len(r.Log())
	load, err := s.StartLoad(e2e.Load{Seed: 5, Rate: 100, MaxRows: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer load.Stop()

	// One session: temporary tables, USE and locks are its own.
	conn, err := s.DB.Conn(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	statements := strings.Split(strings.ReplaceAll(ddl, "{db}", s.Database()), "\n;;\n")[1:]
	accepted := 0
	var refused []string
	for _, statement := range statements {
		_, err := conn.ExecContext(testContext(t), statement)
		var no *mysql.MySQLError
		switch {
		case err == nil:
			accepted++
		case errors.As(err, &no):
			refused = append(refused, statement+" -- "+no.Message)
		default:
			t.Fatalf("%s: %v", statement, err)
		}
	}
	t.Logf("%d statements accepted, %d refused by MySQL %s:\n%s", accepted, len(refused), m.Version(), strings.Join(refused, "\n"))
	if accepted < wantAccepted {
		t.Errorf("%d statements were accepted, want at least %d", accepted, wantAccepted)
	}
	if stats := load.Stop(); stats.Err != nil || stats.Transactions < 50 {
		t.Fatalf("%+v", stats)
	}
	waitMarked(t, s, r)
	waitStatus(t, r, "ready", func(st relay.Status) bool { return st.Ready && st.Halted == "" })
	if more := r.Log()[quiet:]; more != "" {
		t.Errorf("the relay logged:\n%s", more)
	}
	stop(t, r)
	if report := judge(t, s, relaytest.Options{}); report.Duplicates != 0 {
		t.Error(report)
	}
}
