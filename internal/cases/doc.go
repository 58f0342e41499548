// Package cases holds the table of failure cases that docs/cases.md lists: one line for each, with the SQL or the steps that bring it about and
// what the relay has to make of it. Each was a fault of some program that reads binlogs, or is an oddity of the servers.
//
// The cases run on real servers of both supported major versions, through the real path: binlog.Reader, router.Route, record; those about the
// whole daemon run its binary. `go test ./internal/cases -run 'Case/V7'` runs one.
//
// The package has no code of its own: the table is tests.
package cases
