package main

import (
	"errors"
	"strings"

	"outbox-relay/config"
	"outbox-relay/relay"
	"outbox-relay/router"
)

// Exit codes. 2 is Go's panic.
const (
	exitOK            = 0
	exitFailure       = 1
	exitSource        = 3
	exitPoison        = 4
	exitActive        = 5
	exitUsage         = 64
	exitConfiguration = 78
)

// usageError is a command line that cannot be understood.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() + "; see outbox-relay --help" }

// configurationError is a fault of the configuration that only shows once the relay's state is known.
type configurationError string

func (e configurationError) Error() string { return string(e) }

// errReported ends a command with exit 1 that has said already what is wrong.
var errReported = errors.New("reported")

// sentence is what the user reads when a command fails: what, where and what to do. Only the faults of a configuration take several lines.
func sentence(err error) string {
	var faults *config.Faults
	if errors.As(err, &faults) {
		return err.Error()
	}
	text := relay.Sentence(err)
	if errors.Is(err, relay.ErrActive) {
		text += "; stop that one, or leave out --no-standby to take over when it ends"
	}
	return strings.ReplaceAll(text, "\n", "; ")
}

func exitCode(err error) int {
	var (
		halt   *relay.HaltError
		faults *config.Faults
		rules  router.Faults
		usage  usageError
		conf   configurationError
	)
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &halt) && (halt.Poison != nil || halt.Columns()):
		return exitPoison
	case errors.As(err, &halt):
		return exitSource
	case errors.Is(err, relay.ErrActive):
		return exitActive
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &faults), errors.As(err, &rules), errors.As(err, &conf), errors.Is(err, relay.ErrTables):
		return exitConfiguration
	}
	return exitFailure
}
