// Package snapshot reads the rows that exist in tables, by SELECT, and gives them as the binlog would: as cells of a row image.
//
// A table is read in chunks, each by one statement in a read-only transaction of its own, in the order of a key that no two rows share. So nothing is
// locked, no read view is open for long, and a reader that ends goes on behind the last key that is done. The columns are asked for within the
// same transaction, which keeps the table from being altered, so that values never stand under wrong names.
//
// It deliberately does not know what is done with the rows, keeps no position in the binlog and stores nothing: progress comes with each step and is the
// caller's to keep. It does not see changes: a row that is written while it reads is given or not, and the binlog behind the position at which the
// snapshot was begun has it in any case.
package snapshot
