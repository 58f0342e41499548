package binlog

import (
	"fmt"

	"outbox-relay/binlog/gtid"
)

// unsent is called at each heartbeat. Two of them at one place say that the server has sent all that it will send. What it had executed when the
// connection was made and did not send by then, it never sends: MySQL chooses the binlog to begin with by the PREVIOUS_GTIDS, and those of a binlog that
// begins amid XA PREPAREs and XA COMMITs may lack the last transactions of the one before (8.0.33 and 9.7.4).
func (r *Reader) unsent() error {
	before := r.idle
	r.idle = Place{Server: r.server.UUID, File: r.file, Position: r.pos}
	if r.idle != before || r.target == nil {
		return nil
	}
	missing := gtid.Minus(r.target, r.seen)
	if missing.IsEmpty() {
		return nil
	}
	position := joined(r.seen, missing)
	for _, b := range r.branches { // as the checkpoint has it
		for _, g := range b.prepared {
			position.RemoveRange(g)
		}
	}
	return r.stop(ReasonUnsent, fmt.Sprintf("the server at %s has executed transactions that it does not send, although it has sent all up to %s:%d: %s", r.conn.login.At(), r.file, r.pos, missing),
		fmt.Sprintf("look for them with mysqlbinlog --include-gtids and publish their outbox rows by hand, then stop the relay and run outbox-relay checkpoint set '%s'", position), nil)
}
