package binlog

import "time"

const (
	// muchBytes is what a read has to bring for more to be waited for before the next one.
	muchBytes = 16 << 10
	// coalescedBytes is how much is waited for.
	coalescedBytes = 128 << 10
	// coalesceTime is how long at most; timers are a millisecond late at times.
	coalesceTime = time.Millisecond
)
