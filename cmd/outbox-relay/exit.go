package main

import (
	"errors"

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
	case errors.As(err, &halt) && halt.Poison != nil:
		return exitPoison
	case errors.As(err, &halt):
		return exitSource
	case errors.Is(err, relay.ErrActive):
		return exitActive
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &faults), errors.As(err, &rules), errors.As(err, &conf):
		return exitConfiguration
	}
	return exitFailure
}
