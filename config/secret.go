package config

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// maxSecret bounds what a password file or command may give; it leaves room
// for long tokens.
const maxSecret = 64 << 10

// commandLimit is how long a password command may run.
const commandLimit = 10 * time.Second

// Secret is a password or where to get it. At most one field is set; with none
// the secret is empty. It renders masked wherever it is printed.
type Secret struct {
	// Value is the secret itself.
	Value string `yaml:"password"`
	// File holds the secret; one line end after it is dropped.
	File string `yaml:"password_file"`
	// Command is a program with its arguments, run without a shell; its
	// standard output is the secret, one line end dropped.
	Command []string `yaml:"password_command"`
}

// Read returns the secret. It is meant to be called at each connect, so that a
// rotated password is picked up. It blocks while the command runs, at most
// until ctx ends or 10 s have passed. It may be called concurrently. Its errors
// hold nothing that the file or the command gave.
func (s Secret) Read(ctx context.Context) (string, error) {
	var out []byte
	var err error
	switch {
	case s.File != "":
		out, err = readSecretFile(s.File)
	case len(s.Command) > 0:
		out, err = runSecretCommand(ctx, s.Command)
	default:
		return s.Value, nil
	}
	if err != nil {
		return "", err
	}
	out = bytes.TrimSuffix(bytes.TrimSuffix(out, []byte("\n")), []byte("\r"))
	if len(out) == 0 {
		return "", fmt.Errorf("the password from %s is empty", s.source())
	}
	return string(out), nil
}

func readSecretFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading the password file: %w", err)
	}
	defer f.Close()
	out, err := io.ReadAll(io.LimitReader(f, maxSecret+1))
	if err != nil {
		return nil, fmt.Errorf("reading the password file: %w", err)
	}
	if len(out) > maxSecret {
		return nil, fmt.Errorf("password file %s is larger than %d bytes", path, maxSecret)
	}
	return out, nil
}

func runSecretCommand(ctx context.Context, command []string) ([]byte, error) {
	limited, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(limited, command[0], command[1:]...)
	// A child of the command can keep the pipes open after it was killed.
	cmd.WaitDelay = time.Second
	stdout := capped{limit: maxSecret}
	cmd.Stdout = &stdout
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("running the password command %s: %w", command[0], context.Cause(ctx))
	case limited.Err() != nil:
		return nil, fmt.Errorf("running the password command %s: it did not end within %v", command[0], commandLimit)
	case errors.As(err, &exit):
		// A program that dies can print what it holds, so its words do not go into logs.
		return nil, fmt.Errorf("running the password command %s: %w (what it writes to standard error is not shown, since that can hold secrets: run it by hand)", command[0], err)
	case err != nil:
		return nil, fmt.Errorf("running the password command %s: %w", command[0], err)
	case stdout.over:
		return nil, fmt.Errorf("password command %s printed more than %d bytes", command[0], maxSecret)
	}
	return stdout.buf.Bytes(), nil
}

// capped keeps the first limit bytes written to it and drops the rest.
type capped struct {
	buf   bytes.Buffer
	limit int
	over  bool
}

func (c *capped) Write(p []byte) (int, error) {
	keep := min(len(p), c.limit-c.buf.Len())
	c.over = c.over || keep < len(p)
	c.buf.Write(p[:keep])
	return len(p), nil
}

// Empty reports whether no secret was configured at all.
func (s Secret) Empty() bool { return s.Value == "" && s.File == "" && len(s.Command) == 0 }

// String names where the secret comes from and never shows it.
func (s Secret) String() string {
	if s.Empty() {
		return "(none)"
	}
	return "(" + s.source() + ")"
}

// GoString keeps the secret out of %#v.
func (s Secret) GoString() string { return s.String() }

// MarshalJSON keeps the secret out of JSON.
func (s Secret) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

func (s Secret) source() string {
	switch {
	case s.File != "":
		return "password_file " + s.File
	case len(s.Command) > 0:
		return "password_command " + s.Command[0]
	default:
		return "password"
	}
}

func (s Secret) masked() Secret {
	if s.Value != "" {
		s.Value = "***"
	}
	if len(s.Command) > 1 { // arguments can hold a secret or print one
		s.Command = []string{s.Command[0], "***"}
	}
	return s
}
