package e2e_test

import (
	"strings"
	"testing"

	"outbox-relay/internal/e2e"
	"outbox-relay/internal/sandbox"
	"outbox-relay/relay"
	"outbox-relay/relay/relaytest"
)

// What keeps a relay out of its source for a while is said in words in the status, in why it is not ready and in the log, and heals without a restart.
func TestWhatKeepsARelayOutOfItsSourceIsToldAndHeals(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	s := site(t, e2e.SiteOptions{MySQL: m, Label: "login"})
	r := start(t, s, e2e.RelayOptions{})
	waitActive(t, r)
	do := func(statements ...string) {
		t.Helper()
		if err := m.Exec(testContext(t), statements...); err != nil {
			t.Fatal(err)
		}
	}
	user := "'" + s.Database() + "'@'%'"
	for _, c := range []struct{ words, begin, end string }{
		{"the account is locked", "ALTER USER " + user + " ACCOUNT LOCK", "ALTER USER " + user + " ACCOUNT UNLOCK"},
		{"refuses user", "ALTER USER " + user + " IDENTIFIED BY 'other'", "ALTER USER " + user + " IDENTIFIED BY 'relay'"},
		{"no connection left", "SET GLOBAL max_connections = 1", "SET GLOBAL max_connections = 151"},
		{"offline mode", "SET GLOBAL offline_mode = ON", "SET GLOBAL offline_mode = OFF"},
	} {
		do(c.begin)
		if err := s.KillSessions(testContext(t)); err != nil {
			t.Fatal(err)
		}
		waitStatus(t, r, "it says: "+c.words, func(st relay.Status) bool {
			return st.Cause == relay.CauseSource && strings.Contains(st.Reason, c.words) && strings.Contains(st.Source.LastError, c.words)
		})
		do(c.end)
		insert(t, s, e2e.Row{Kind: "order", Key: "healed"})
		waitRelayed(t, s, r)
		waitStatus(t, r, "it is ready", func(st relay.Status) bool { return st.Ready && st.LastError == "" })
		if !strings.Contains(r.Log(), c.words) {
			t.Errorf("the log does not say %q", c.words)
		}
	}
	stop(t, r)
	judge(t, s, relaytest.Options{})
}
