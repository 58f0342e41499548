package binlog

import (
	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
)

// group is the transaction being read: everything between a GTID event and the event that ends it.
type group struct {
	open         bool
	gtid         gtid.GTID
	commitMicros int64
	mayHaveSBR   bool // the GTID event says that the group may hold statement-format changes
	known        bool // it was read before and came again
	begun        bool // BEGIN or XA START was seen
	own, others  bool // tables were written: that of the relay's own checkpoint, any other, or it is not known which
	maps         []tableMap
	rows         *rowLog
}

// tableMap is one TABLE_MAP of the current statement. A nil table is one that nobody watches.
type tableMap struct {
	id    uint64
	table *event.Table
}

// begin starts a group. Whatever a cut connection left behind is dropped: the server sends the whole group again.
func (g *group) begin(h *event.GTID) {
	g.drop()
	g.open, g.gtid, g.commitMicros, g.mayHaveSBR = true, h.GTID, int64(h.OriginalCommit), h.MayHaveStatements
}

// drop forgets an unfinished group.
func (g *group) drop() {
	g.rows.reset()
	g.open, g.known, g.begun, g.own, g.others, g.maps = false, false, false, false, false, g.maps[:0]
}

// table finds the table of a row event.
func (g *group) table(id uint64) (*event.Table, bool) {
	for i := len(g.maps) - 1; i >= 0; i-- {
		if g.maps[i].id == id {
			return g.maps[i].table, true
		}
	}
	return nil, false
}

// branch is a prepared XA branch whose rows wait for its end. first is its PREPARE's GTID: until the end it stays out of the position.
type branch struct {
	prepared []gtid.Range
	micros   int64   // when it was prepared, since 1970
	rows     *rowLog // nil when it has none
}
