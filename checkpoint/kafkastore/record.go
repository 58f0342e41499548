package kafkastore

import "outbox-relay/checkpoint"

// Key is the key of a relay's checkpoint record.
func Key(name string) []byte { return []byte(name) }

// Value is the value of the record that makes c the checkpoint once its transaction is committed. Its error is a *checkpoint.Error with ErrInvalid.
// The caller owns the bytes.
func Value(c *checkpoint.Checkpoint) ([]byte, error) { return checkpoint.Marshal(c) }
