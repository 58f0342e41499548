// Package fakemysql plays a MySQL server in memory for tests and benchmarks of the binlog reader: the handshake, the questions that a reader asks, and
// then a replication stream that the caller has written.
//
// Its connections have no goroutine, no socket and no clock, so what a reader does with a stream depends on the bytes alone. It knows no SQL beyond the
// reader's own statements, accepts any password and offers no TLS. Real servers come from package sandbox.
package fakemysql
