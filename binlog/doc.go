// Package binlog reads committed transactions of watched tables from the binlog of a MySQL server, as a replica does.
//
// A Reader holds the replication connection, assembles whole transactions, follows the GTID position and connects again after every failure
// that time can heal. It hands on rows only once their transaction has committed: a rolled-back row or a prepared XA branch
// never leaves it. Rows of tables that nobody watches are skipped where they lie.
//
// It does not turn columns into text (binlog/value), choose topics (router), or store positions (checkpoint). It parses no SQL
// beyond the statements that frame a transaction, and it never guesses: what it does not know ends in a *SourceError that names the transaction.
package binlog
