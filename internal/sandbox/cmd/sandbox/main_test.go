package main_test

import (
	"bufio"
	"database/sql"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	_ "github.com/go-sql-driver/mysql"
)

// start builds and runs the command with MySQL alone and returns its lines up to the last.
func start(t *testing.T) (cmd *exec.Cmd, stdin io.Closer, lines string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "sandbox")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	cmd = exec.Command(program, "-kafka=false", "-mysql-arg=--server-id=4711")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	for s := bufio.NewScanner(out); s.Scan(); {
		lines += s.Text() + "\n"
		if s.Text() == "SANDBOX_READY=1" {
			return cmd, in, lines
		}
	}
	t.Fatalf("the command ended early; it printed\n%s", lines)
	return nil, nil, ""
}

// variable has a shell read the lines.
func variable(t *testing.T, lines, name string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", lines+`printf %s "$`+name+`"`).Output()
	if err != nil {
		t.Fatalf("a shell cannot read the lines: %v\n%s", err, lines)
	}
	return string(out)
}

func serverID(t *testing.T, dsn string) (id string, err error) {
	t.Helper()
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		return "", err
	}
	defer db.Close()
	err = db.QueryRow("SELECT @@server_id").Scan(&id)
	return id, err
}

func TestServersLiveUntilStandardInputCloses(t *testing.T) {
	t.Parallel()
	testEnd(t, func(_ *os.Process, stdin io.Closer) error { return stdin.Close() })
}

func TestServersLiveUntilSIGTERM(t *testing.T) {
	t.Parallel()
	testEnd(t, func(p *os.Process, _ io.Closer) error { return p.Signal(syscall.SIGTERM) })
}

func testEnd(t *testing.T, end func(*os.Process, io.Closer) error) {
	t.Helper()
	cmd, stdin, lines := start(t)
	for _, name := range []string{"TEST_MYSQL_DSN", "MYSQL_RELAY_DSN"} {
		if id, err := serverID(t, variable(t, lines, name)); err != nil || id != "4711" {
			t.Errorf("%s: server_id %q, %v; want 4711", name, id, err)
		}
	}
	if address := variable(t, lines, "MYSQL_ADDRESS"); !strings.Contains(variable(t, lines, "TEST_MYSQL_DSN"), address) {
		t.Errorf("MYSQL_ADDRESS %q is not that of the DSN", address)
	}
	data := variable(t, lines, "MYSQL_DATA")
	if _, err := os.Stat(data); err != nil {
		t.Errorf("MYSQL_DATA: %v", err)
	}
	if err := end(cmd.Process, stdin); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the command ended with %v", err)
	}
	if _, err := serverID(t, variable(t, lines, "TEST_MYSQL_DSN")); err == nil {
		t.Error("the server has outlived the command")
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Error("the data has outlived the command")
	}
}
