// Package checkpoint keeps the progress of a relay.
//
// Tracker follows the transactions in flight and gives the position up to which
// everything is acknowledged. Checkpoint is that position as it is stored, Store
// the contract of every place that keeps one. Marshal and Unmarshal are the one
// encoding of all stores: versioned, and with a checksum, so that a torn or
// edited checkpoint is refused instead of followed.
//
// The package itself does no I/O and starts no goroutine. It does not decide
// when to save, does not retry, and does not know what a record is. Stores live
// in packages of their own: filestore. The suite storetest holds for all of
// them. DESIGN.md beside this file has the write order and the crash cases.
package checkpoint
