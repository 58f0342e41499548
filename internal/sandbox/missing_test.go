package sandbox_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"outbox-relay/internal/sandbox"
)

// onlyPrograms lets the PATH have these programs alone, and the cache be empty. Tests that
// call it are not parallel.
func onlyPrograms(t *testing.T, names ...string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Setenv("OUTBOX_RELAY_CACHE", t.TempDir())
}

func wantMissing(t *testing.T, err error, words ...string) {
	t.Helper()
	var missing *sandbox.MissingError
	if !errors.As(err, &missing) {
		t.Fatalf("got error %v, want a MissingError", err)
	}
	for _, w := range words {
		if !strings.Contains(missing.Error(), w) {
			t.Errorf("%q does not name %s", missing.Error(), w)
		}
	}
	if strings.Contains(missing.Error(), "\n") {
		t.Errorf("%q is more than a sentence", missing.Error())
	}
}

func TestWithoutJavaKafkaIsMissing(t *testing.T) {
	onlyPrograms(t)
	_, err := sandbox.StartKafka(t.Context(), sandbox.KafkaOptions{})
	wantMissing(t, err, "Java 17", "Kafka")
}

func TestWithAnOldJavaKafkaIsMissing(t *testing.T) {
	onlyPrograms(t)
	fakeProgram(t, "java", `echo 'openjdk version "11.0.2" 2019-01-15' >&2`)
	_, err := sandbox.StartKafka(t.Context(), sandbox.KafkaOptions{})
	wantMissing(t, err, "Java 17", "Java 11")
}

func TestWithoutMavenKafkaIsMissing(t *testing.T) {
	onlyPrograms(t, "java")
	_, err := sandbox.StartKafka(t.Context(), sandbox.KafkaOptions{})
	wantMissing(t, err, "mvn", "kafka")
}

func TestWithoutAnyToolMySQLIsMissing(t *testing.T) {
	onlyPrograms(t)
	_, err := sandbox.StartMySQL(t.Context(), sandbox.MySQLOptions{})
	wantMissing(t, err, "MySQL", "mysqld", "apt-get", "mvn")
}

func TestMariaDBOnThePathIsNoMySQL(t *testing.T) {
	onlyPrograms(t)
	fakeProgram(t, "mysqld", "echo 'mysqld  Ver 10.11.19-MariaDB for debian-linux-gnu on x86_64'")
	t.Setenv("OUTBOX_RELAY_SANDBOX_MYSQL", "path")
	_, err := sandbox.StartMySQL(t.Context(), sandbox.MySQLOptions{})
	wantMissing(t, err, "MariaDB")
}

func TestUnknownMySQLSourceIsAnError(t *testing.T) {
	t.Setenv("OUTBOX_RELAY_SANDBOX_MYSQL", "docker")
	_, err := sandbox.StartMySQL(t.Context(), sandbox.MySQLOptions{})
	if err == nil || !strings.Contains(err.Error(), "docker") {
		t.Errorf("got error %v, want one that names the bad value", err)
	}
}

// fakeProgram puts a shell script into the PATH of onlyPrograms.
func fakeProgram(t *testing.T, name, script string) {
	t.Helper()
	path := filepath.Join(os.Getenv("PATH"), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestMySQLFromThePath(t *testing.T) {
	// Debian's unpacked server, behind a script, stands for an installed one.
	m := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	onlyPrograms(t, "sh")
	fakeProgram(t, "mysqld", "exec "+sandbox.ShellCommand(m))
	t.Setenv("OUTBOX_RELAY_SANDBOX_MYSQL", "path")
	own := sandbox.RunMySQL(t, sandbox.MySQLOptions{})
	if got := value(t, own.DB(t, ""), "SELECT @@gtid_mode"); got != "ON" {
		t.Errorf("gtid_mode is %s, want ON", got)
	}
}
