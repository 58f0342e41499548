// Package preflight looks at everything that a relay needs before it runs: the source and its binlog, the outbox tables against the rules,
// the brokers and topics, the checkpoint and the spool.
//
// Each precondition becomes an [Item] with its state, the reason and what to run. A fault of one does not hide the others. The package
// changes nothing on any server and nothing that lasts on disk, and it never shows a secret or a row.
//
// It does not decide what a relay does about a fault: a run finds the same faults by itself.
package preflight
