// Package txn owns one transactional.id at its coordinator: it finds the coordinator, takes the id over from whoever had it, adds partitions
// to the transaction, commits it and aborts it. What time heals is tried again until the caller's context ends; what an answer means for the
// transaction is one of few errors.
//
// It deliberately does not produce records, number batches or know what a transaction holds: whoever sends them takes the producer id and
// epoch from [Coordinator.Producer] and begins all sequences at 0 after each new epoch. There is no plain abort: the only one is
// [Coordinator.Abort], which takes a new epoch, so that a late batch of the aborted transaction can never join the next one.
package txn
