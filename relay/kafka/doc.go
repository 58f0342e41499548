// Package kafka publishes records to Kafka, at least once and in order: the records of a partition reach its log in the order in which
// they were published, whatever fails meanwhile, and nothing behind a record is sent before that record is acknowledged by all in-sync
// replicas.
//
// It keeps own batches, one of a partition in flight, and sends them with idempotent produce requests over connections of its own, one
// sender per broker. A batch whose fate is unknown is sent again unchanged until it is acknowledged, so that while a [Publisher] lives
// there are no duplicates. Memory is bounded by the window of bytes that may be unacknowledged.
//
// It deliberately does not decide what happens to a record that Kafka can never take: it stops the partition at that record, reports it
// as a [PoisonError] and holds back what is behind it. It does not know transactions of the source, checkpoints or tables.
// See DESIGN.md in this folder for the states of a partition and the table of errors.
package kafka
