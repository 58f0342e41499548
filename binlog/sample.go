package binlog

import (
	"fmt"
	"time"

	"outbox-relay/binlog/event"
)

// A server whose binlogs were set back (a restored disk, RESET BINARY LOGS AND GTIDS) and that has kept its server_uuid gives GTIDs again that it has given
// before. While it has executed fewer than were read it is found by comparing the sets. Later the sets are as they should be, and a dump would leave out all that
// was written meanwhile. So the last transaction that was read is asked for once more with every dump, and has to have committed when it did.

// sampleOn gives the place whose Last the server at which it was read has in its binlogs, the zero one if there is none.
func (r *Reader) sampleOn(s *Server) Place {
	p := r.place
	if p.Server != s.UUID || p.Micros == 0 || r.ahead != nil || !r.seen.Contains(p.Last) || !s.Executed.Contains(p.Last) || s.Purged.Contains(p.Last) {
		return Place{}
	}
	return p
}

// compareSample is told the transaction that has come again.
func (r *Reader) compareSample(g *event.GTID) error {
	was, is := r.sample.Micros, int64(g.OriginalCommit)
	r.sample = Place{}
	if was == is {
		return nil
	}
	clock := func(micros int64) string { return time.UnixMicro(micros).UTC().Format("2006-01-02 15:04:05.000000") }
	return r.stop(ReasonDiverged, fmt.Sprintf("the server at %s has given GTIDs a second time: %s committed at %s there and was read as one that committed at %s (UTC); its binlogs were set back",
		r.conn.login.At(), g.GTID, clock(is), clock(was)), hintSetBack, nil)
}
