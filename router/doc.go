// Package router turns one row of an outbox table into one record: topic, key, value, headers, timestamp and partition.
//
// [New] compiles the rules and reports every fault of them at once. [Router.Bind] resolves the column names of a rule against one
// version of a table, as the binlog describes it. [Router.Route] renders a row and allocates nothing once its buffers have grown.
//
// A value that cannot become a record as the rule asks is a [Poison], never a guess: a column that the row image lacks is not a NULL,
// a NULL is not an empty text, and an empty text stays one.
//
// The package is pure: no goroutine, clock, network, logger or metric. It does not publish, does not decide what happens to a poison
// record, and does not know which topics exist.
package router
