// Package relaytest judges a run of the relay from end to end: what was committed against what a consumer received.
//
// A [Validator] is told every committed row (the oracle: rows that a SELECT finds after the run, in the commit order of their key) and
// then every message of the outbox topics, each partition in the order of its offsets. Its [Report] says whether the promise was kept:
// nothing lost, nothing that was not committed, rows of one key in order and in one partition, duplicates only as a replayed suffix,
// contents equal to what SELECT shows, position headers right. [Consume] reads topics for it, [ReadOutbox] reads the oracle.
//
// # What a replay is
//
// Let F be the sequence of first occurrences in one partition. After a restart the relay goes back to a checkpoint and publishes
// everything from there again, in the same order. So the partition's log is F, interrupted at most once per restart by a jump back to
// some place in F, from which every element follows again until the end of F as it was when the jump happened; only then new ones come.
// A jump may hit a replay that is under way. Everything else is a fault: a replay that leaves out an element (a jump forward), one that
// ends before the end of F (new elements, or the end of the log, come too early), more jumps back than restarts.
//
// All rows of a key are in one partition, so the same holds for the rows of each key alone: a key's consumer sees its rows in order, and
// after a restart an unbroken run of rows that it has seen.
//
// The package starts no servers. It is for tests and campaigns: the relay never imports it.
package relaytest
