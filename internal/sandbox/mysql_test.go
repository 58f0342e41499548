package sandbox_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"outbox-relay/internal/sandbox"
)

// value runs a query with one value.
func value(t *testing.T, db *sql.DB, query string) string {
	t.Helper()
	var v string
	if err := db.QueryRowContext(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func TestMySQLIsSetUpForARelay(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	name := m.NewDatabase(t)
	db := m.DB(t, name)
	got := value(t, db, "SELECT CONCAT_WS(' ', @@log_bin, @@binlog_format, @@binlog_row_image, @@binlog_row_metadata, @@gtid_mode)")
	if want := "1 ROW FULL FULL ON"; got != want {
		t.Errorf("settings are %q, want %q", got, want)
	}
	if err := m.Exec(t.Context(), "CREATE TABLE "+name+".t (a INT)", "INSERT INTO "+name+".t VALUES (7)"); err != nil {
		t.Fatal(err)
	}

	relay, err := sql.Open("mysql", m.DSN("relay", "relay", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	if got := value(t, relay, "SELECT a FROM "+name+".t"); got != "7" {
		t.Errorf("relay reads %q, want 7", got)
	}
	if got := value(t, relay, "SELECT plugin FROM mysql.user WHERE user = 'relay'"); got != "caching_sha2_password" {
		t.Errorf("relay's authentication is %q", got)
	}
	for _, statement := range []string{
		"XA RECOVER",
		"CREATE DATABASE IF NOT EXISTS outbox_relay",
		"CREATE TABLE IF NOT EXISTS outbox_relay.c (a INT)",
		"INSERT INTO outbox_relay.c VALUES (1)",
	} {
		if _, err := relay.ExecContext(t.Context(), statement); err != nil {
			t.Errorf("relay may not %s: %v", statement, err)
		}
	}
	if _, err := relay.ExecContext(t.Context(), "DELETE FROM "+name+".t"); err == nil {
		t.Error("relay may delete foreign rows")
	}
	if got := grants(t, relay); !strings.Contains(got, "REPLICATION SLAVE") || !strings.Contains(got, "REPLICATION CLIENT") {
		t.Errorf("relay has only %s", got)
	}
}

func grants(t *testing.T, db *sql.DB) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SHOW GRANTS")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return strings.Join(all, "\n")
}

func TestMySQLVerbs(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Args: []string{"--binlog-row-metadata=MINIMAL"}})
	addr, pid := m.Addr(), m.Pid()
	db := m.DB(t, "")
	if got := value(t, db, "SELECT @@binlog_row_metadata"); got != "MINIMAL" {
		t.Errorf("binlog_row_metadata is %s: Args have no effect", got)
	}
	if err := m.Exec(ctx, "CREATE DATABASE d", "CREATE TABLE d.t (a INT)", "INSERT INTO d.t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	uuid := value(t, db, "SELECT @@server_uuid")
	if err := m.Start(ctx); err == nil {
		t.Error("Start of a running server gives no error")
	}

	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := m.Exec(ctx, "DO 1"); err == nil {
		t.Error("a killed server answers")
	}
	if err := errors.Join(m.Kill(), m.Stop(ctx)); err != nil {
		t.Errorf("ending a server that has ended: %v", err)
	}
	for name, verb := range map[string]func() error{"Pause": m.Pause, "Resume": m.Resume} {
		if err := verb(); !errors.Is(err, sandbox.ErrNotRunning) {
			t.Errorf("%s of an ended server: got %v, want ErrNotRunning", name, err)
		}
	}
	m.SetArgs()
	if err := m.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if m.Addr() != addr || m.Pid() == pid {
		t.Errorf("started again at %s as %d; was %s as %d; want the same address, another process", m.Addr(), m.Pid(), addr, pid)
	}
	got := value(t, db, "SELECT CONCAT_WS(' ', (SELECT COUNT(*) FROM d.t), @@server_uuid, @@binlog_row_metadata)")
	if want := "1 " + uuid + " FULL"; got != want {
		t.Errorf("started again with %q, want %q", got, want)
	}

	if err := m.Pause(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if err := m.Exec(short, "DO 1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a paused server: got %v, want a timeout", err)
	}
	if err := m.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := m.Exec(ctx, "DO 1"); err != nil {
		t.Errorf("a resumed server: %v", err)
	}

	if err := m.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(m.LogTail(), "Shutdown complete") {
		t.Errorf("the log shows no shutdown in order:\n%s", m.LogTail())
	}
	if got := value(t, db, "SELECT COUNT(*) FROM d.t"); got != "1" {
		t.Errorf("after the restart %s rows, want 1", got)
	}

	data := m.DataDir()
	if err := errors.Join(m.Close(), m.Close()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("after Close %s is still there", data)
	}
	if err := m.Start(ctx); err == nil {
		t.Error("a closed server starts")
	}
}

func TestMySQLStopOfAPausedServer(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	if err := m.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(m.LogTail(), "Shutdown complete") {
		t.Errorf("no shutdown in order:\n%s", m.LogTail())
	}
}

func TestMySQLStopKillsWhenTheTimeIsUp(t *testing.T) {
	t.Parallel()
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Stop(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want Canceled", err)
	}
	if strings.Contains(m.LogTail(), "Shutdown complete") {
		t.Error("the server had time to shut down")
	}
	if err := m.Exec(t.Context(), "DO 1"); err == nil {
		t.Error("the server still answers")
	}
}

func TestMySQLStartErrorShowsTheLog(t *testing.T) {
	t.Parallel()
	m, err := sandbox.StartMySQL(testContext(t), sandbox.MySQLOptions{Args: []string{"--no-such-option=1"}})
	if err == nil {
		m.Close()
		t.Fatal("a server with an unknown option starts")
	}
	if !strings.Contains(err.Error(), "no-such-option") {
		t.Errorf("the error does not show what the server says: %v", err)
	}
}

func TestManyMySQLsSideBySide(t *testing.T) {
	t.Parallel()
	servers := make(chan *sandbox.MySQL, 3)
	for range cap(servers) {
		go func() { // ends when the server has started
			m, err := sandbox.StartMySQL(t.Context(), sandbox.MySQLOptions{})
			if err != nil {
				t.Error(err)
			}
			servers <- m
		}()
	}
	var ids, uuids []string
	for range cap(servers) {
		m := <-servers
		if m == nil {
			continue
		}
		t.Cleanup(func() { m.Close() })
		ids = append(ids, value(t, m.DB(t, ""), "SELECT @@server_id"))
		uuids = append(uuids, value(t, m.DB(t, ""), "SELECT @@server_uuid"))
	}
	for _, all := range [][]string{ids, uuids} {
		slices.Sort(all)
		if len(slices.Compact(slices.Clone(all))) != cap(servers) {
			t.Errorf("got %q, want all different", all)
		}
	}
}

func TestMySQLThroughAProxy(t *testing.T) {
	t.Parallel()
	m := sandbox.SharedMySQL(t)
	p := sandbox.RunProxy(t, m.Addr())
	db, err := sql.Open("mysql", strings.Replace(m.RootDSN(""), m.Addr(), p.Addr(), 1))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p.Freeze()
	answer := make(chan error, 1)
	go func() { // ends when the proxy thaws
		_, err := conn.ExecContext(context.WithoutCancel(t.Context()), "DO 1")
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Fatalf("an answer through a frozen proxy: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	p.Thaw()
	if err := <-answer; err != nil {
		t.Errorf("after Thaw: %v", err)
	}
	cut := p.CutAfter(100)
	if _, err := conn.ExecContext(t.Context(), "SELECT REPEAT('x', 1000)"); err == nil {
		t.Error("an answer of 1000 bytes came through a proxy that cuts after 100")
	}
	<-cut
	if err := db.PingContext(t.Context()); err != nil {
		t.Errorf("a new connection after the cut: %v", err)
	}
}

func TestMySQL80(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("fetches 550 MB on first use")
	}
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{Version: "8.0"})
	if got := value(t, m.DB(t, ""), "SELECT CONCAT_WS(' ', LEFT(VERSION(), 4), @@gtid_mode, @@binlog_row_metadata)"); got != "8.0. ON FULL" {
		t.Errorf("got %q, want 8.0. ON FULL", got)
	}
	relay, err := sql.Open("mysql", m.DSN("relay", "relay", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer relay.Close()
	if err := relay.PingContext(t.Context()); err != nil {
		t.Errorf("relay cannot log in: %v", err)
	}
}

func TestServersOfTheEnvironmentAreUsed(t *testing.T) {
	t.Parallel()
	m, k := sandbox.SharedMySQL(t), sandbox.SharedKafka(t)
	tmp := t.TempDir()
	child, fields := startRole(t, "external", "TEST_MYSQL_DSN="+m.RootDSN(""),
		"TEST_KAFKA_BROKERS="+strings.Join(k.Addrs(), ","), "TMPDIR="+tmp)
	if err := child.Wait(); err != nil {
		t.Error(err)
	}
	if want := []string{m.Addr(), k.Addrs()[0]}; !slices.Equal(fields, want) {
		t.Errorf("got %q, want the given %q", fields, want)
	}
	if left, _ := os.ReadDir(tmp); len(left) != 0 {
		t.Errorf("servers were started all the same: %v", left)
	}
}
