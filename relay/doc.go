// Package relay moves rows from a MySQL binlog to Kafka: it reads transactions, routes their rows to records, publishes them and
// stores the position once everything before it is acknowledged.
//
// A Relay alternates between standby and active. While active it is a session: one goroutine reads, routes and hands over (the pump), the
// sink publishes, one goroutine saves the checkpoint, one watches the activity lease. Back-pressure is the sink's window: a full window
// blocks the pump, which then reads no more.
//
// The package does not decode, does not speak Kafka's protocol and stores nothing itself: see binlog, router, relay/kafka and checkpoint.
package relay
