package binlog

import (
	"errors"
	"fmt"
	"strings"

	"outbox-relay/binlog/gtid"
)

// Reason names why a source cannot continue. It is a metric label, so the set is fixed.
type Reason string

const (
	ReasonUnsupportedServer Reason = "unsupported_server"
	ReasonBinlogOff         Reason = "binlog_off"
	ReasonGTIDMode          Reason = "gtid_mode"
	ReasonFormat            Reason = "binlog_format"
	ReasonColumnsUnknown    Reason = "columns_unknown"
	ReasonTableNames        Reason = "table_names"
	ReasonPurged            Reason = "purged"
	ReasonDiverged          Reason = "diverged"
	ReasonUnsent            Reason = "unsent"
	ReasonPrivilege         Reason = "privilege"
	ReasonIncident          Reason = "incident"
	ReasonStatementWrite    Reason = "statement_write"
	ReasonUnknownXA         Reason = "unknown_xa"
	ReasonUnknownEvent      Reason = "unknown_event"
	ReasonCorrupt           Reason = "corrupt"
	ReasonCompression       Reason = "compression"
	ReasonSpoolFull         Reason = "spool_full"
	ReasonServerRefused     Reason = "server_refused"
	ReasonSnapshot          Reason = "snapshot"
)

// SourceError is a condition that time cannot heal: the relay halts with it, or follows the policy that the user wrote down.
// Its text is a sentence of what, where and what to do.
type SourceError struct {
	Reason Reason
	GTID   string // the transaction concerned, where there is one
	Detail string
	Hint   string
	Err    error
	// Missing are the transactions that are purged; nil with other reasons, and where the server does not tell.
	Missing *gtid.Set
}

func (e *SourceError) Unwrap() error { return e.Err }

func (e *SourceError) Error() string {
	var b strings.Builder
	b.WriteString(e.Detail)
	if e.GTID != "" {
		fmt.Fprintf(&b, " (transaction %s)", e.GTID)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, "; %s", e.Hint)
	}
	return b.String()
}

// ErrFenced is returned when a second reader of the same name has connected to the source, which then ends this one's stream.
// Connecting again would end the other one's in turn.
var ErrFenced = errors.New("another relay of this name reads from the source")

// serverError is an ERR packet in the stream.
type serverError struct {
	Code uint16
	Text string
}

func (e *serverError) Error() string { return fmt.Sprintf("server error %d: %s", e.Code, e.Text) }

const (
	hintNewer     = "use a relay that knows this server version"
	hintAnonymous = "switch it to gtid_mode=ON; publish by hand the outbox rows that were written before, if any, and set the checkpoint behind them"
	hintPurged    = "their outbox rows, if any, were not published: publish them by hand, then remove the checkpoint and set source.start to earliest"
	hintSetBack   = "find the last transaction that the server had before it was set back, and run outbox-relay checkpoint set with the GTIDs up to it: what was written since is published; give a restored server a new server_uuid (remove auto.cnf) before it takes writes"
	hintDiverged  = "the server lost them in a failover or is the wrong one: point source.address at the right one, or remove the checkpoint and set source.start to what this server has"
)

const (
	codeSourceFatal = 1236 // ER_SOURCE_FATAL_ERROR_READING_BINLOG: the text tells which
	codeNoPrivilege = 1227 // ER_SPECIFIC_ACCESS_DENIED_ERROR
)

// classify turns the error that ended a stream into the one the caller gets: a *SourceError or ErrFenced for what time cannot heal,
// otherwise the error itself. Code 1236 stands for many conditions which only the fixed part of the text tells apart;
// servers before 8.0.26 say slave and master.
func classify(err error, address, user string) error {
	var s *serverError
	if !errors.As(err, &s) {
		return err
	}
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(s.Text, p) {
				return true
			}
		}
		return false
	}
	switch {
	case s.Code == codeNoPrivilege:
		return &SourceError{Reason: ReasonPrivilege, Err: s, Detail: fmt.Sprintf("the server at %s does not let user %q read its binlog", address, user), Hint: fmt.Sprintf("run GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '%s'@'%%'", user)}
	case s.Code != codeSourceFatal:
		return err
	case has("with the same server_uuid/server_id"):
		return ErrFenced
	case has("purged required binary logs"):
		return &SourceError{Reason: ReasonPurged, Err: s, Detail: "the server at " + address + " has purged binlogs that the checkpoint still needs", Hint: hintPurged}
	case has("has more GTIDs than the"):
		return &SourceError{Reason: ReasonDiverged, Err: s, Detail: "the server at " + address + " lacks transactions that the relay has read", Hint: hintDiverged}
	case has("anonymous transaction"):
		return &SourceError{Reason: ReasonGTIDMode, Err: s, Detail: "the binlog of the server at " + address + " holds a transaction without GTID", Hint: hintAnonymous}
	case has("AUTO_POSITION mode", "GTID_MODE"):
		return &SourceError{Reason: ReasonGTIDMode, Err: s, Detail: "the server at " + address + " cannot send its binlog by GTID", Hint: "switch it to gtid_mode=ON"}
	default:
		return &SourceError{Reason: ReasonServerRefused, Err: s, Detail: "the server at " + address + " ended the binlog dump", Hint: "look into its error log"}
	}
}
