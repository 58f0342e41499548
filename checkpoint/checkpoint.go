package checkpoint

import (
	"encoding/json"
	"time"

	"outbox-relay/binlog/gtid"
)

// Begun is a transaction of which some rows are done with.
type Begun struct {
	// GTID is what the source calls the transaction.
	GTID string `json:"gtid"`
	// Rows is how many of its rows in watched tables, counted from the first
	// one, need not be read again. At least 1. The count holds for the watched
	// tables of the checkpoint only.
	Rows int `json:"rows"`
	// CommitMicros is when it committed, in microseconds since 1970, 0 where
	// that is not known: a server that has lost it may give its GTID to
	// another transaction, of which nothing is done.
	CommitMicros int64 `json:"commit_micros,omitempty"`
}

// Last is a transaction and when it committed.
type Last struct {
	GTID         string `json:"gtid"`
	CommitMicros int64  `json:"commit_micros"` // microseconds since 1970
}

// Checkpoint is the progress of a relay as it is stored. A restart continues
// after GTIDSet; the other fields tell people and the next start about it.
type Checkpoint struct {
	// Name is the name of the relay that owns the checkpoint.
	Name string
	// GTIDSet are the transactions that need not be read again: everything
	// before the start position and everything that was acknowledged. Never nil.
	GTIDSet *gtid.Set
	// Begun are transactions outside GTIDSet of which the first rows were
	// acknowledged. A restart gets them again from the source and skips those
	// rows. Empty but under exactly-once delivery.
	Begun []Begun
	// Snapshot is the progress of reading existing rows; nil without.
	Snapshot *Snapshot
	// SourceUUID is the server_uuid of the server that was read last.
	SourceUUID string
	// BinlogFile and BinlogPosition are where the last transaction of GTIDSet
	// ended on that server. They are for people, never for a start.
	BinlogFile     string
	BinlogPosition uint64
	// Last is that transaction, by which a start knows whether the server has
	// given its GTID to another one since; nil where it is not known.
	Last *Last
	// Tables are the watched tables.
	Tables []string
	// Columns is what the reader remembers of the tables' columns where the
	// binlog does not name them. JSON of the reader's own, kept in value,
	// not in form; may be empty.
	Columns json.RawMessage
	// Paused is since when publishing is paused on a person's word, stored in
	// UTC; zero while it is not. A restart stays paused.
	Paused time.Time
	// FencingToken grows with each relay instance that takes over.
	FencingToken uint64
	// Instance identifies the relay instance that saved.
	Instance string
	// Time is when it was saved; stored in UTC.
	Time time.Time
}
