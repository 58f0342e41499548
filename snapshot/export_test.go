package snapshot

import "time"

// SetHold sets how long a chunk may be read.
func (r *Reader) SetHold(d time.Duration) { r.hold = d }
