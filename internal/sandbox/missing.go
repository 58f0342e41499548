package sandbox

import (
	"errors"
	"strings"
)

// MissingError says that the host lacks something the sandbox cannot bring along, such as
// Java. Only the demo may go on without the server then; a test fails.
type MissingError struct {
	Need   string // what is missing, for example "java 17 or newer"
	For    string // what needs it, for example "Kafka"
	Remedy string // what the user can do, empty if there is nothing short to say
}

// Error is one sentence that names what is missing, what needs it and the remedy.
func (e *MissingError) Error() string {
	s := e.Need + " is missing on this machine and " + e.For + " needs it"
	if e.Remedy != "" {
		s += ": " + e.Remedy
	}
	return s
}

// ErrExternal is returned by the verbs of a server that the environment gave
// (TEST_MYSQL_DSN, TEST_KAFKA_BROKERS): the sandbox does not own it.
var ErrExternal = errors.New("the server was given by the environment and is not the sandbox's to start or stop")

// ErrNotRunning is returned by verbs that need a running server.
var ErrNotRunning = errors.New("the server is not running")

// tail returns the last n lines of text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
