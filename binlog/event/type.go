package event

import "strconv"

// Type is the type byte of an event.
type Type uint8

// Event types (MySQL source: mysql::binlog::event::Log_event_type).
const (
	TypeUnknown            Type = 0
	TypeQuery              Type = 2
	TypeStop               Type = 3
	TypeRotate             Type = 4
	TypeIntVar             Type = 5
	TypeAppendBlock        Type = 9
	TypeDeleteFile         Type = 11
	TypeRand               Type = 13
	TypeUserVar            Type = 14
	TypeFormatDescription  Type = 15
	TypeXID                Type = 16
	TypeBeginLoadQuery     Type = 17
	TypeExecuteLoadQuery   Type = 18
	TypeTableMap           Type = 19
	TypeWriteRowsV0        Type = 20
	TypeUpdateRowsV0       Type = 21
	TypeDeleteRowsV0       Type = 22
	TypeWriteRowsV1        Type = 23
	TypeUpdateRowsV1       Type = 24
	TypeDeleteRowsV1       Type = 25
	TypeIncident           Type = 26
	TypeHeartbeat          Type = 27
	TypeIgnorable          Type = 28
	TypeRowsQuery          Type = 29
	TypeWriteRows          Type = 30
	TypeUpdateRows         Type = 31
	TypeDeleteRows         Type = 32
	TypeGTID               Type = 33
	TypeAnonymousGTID      Type = 34
	TypePreviousGTIDs      Type = 35
	TypeTransactionContext Type = 36
	TypeViewChange         Type = 37
	TypeXAPrepare          Type = 38
	TypePartialUpdateRows  Type = 39
	TypeTransactionPayload Type = 40
	TypeHeartbeatV2        Type = 41
	TypeGTIDTagged         Type = 42
)

var typeNames = [...]string{
	TypeQuery: "QUERY", TypeStop: "STOP", TypeRotate: "ROTATE", TypeIntVar: "INTVAR", TypeAppendBlock: "APPEND_BLOCK",
	TypeDeleteFile: "DELETE_FILE", TypeRand: "RAND", TypeUserVar: "USER_VAR", TypeFormatDescription: "FORMAT_DESCRIPTION",
	TypeXID: "XID", TypeBeginLoadQuery: "BEGIN_LOAD_QUERY", TypeExecuteLoadQuery: "EXECUTE_LOAD_QUERY",
	TypeTableMap: "TABLE_MAP", TypeWriteRowsV0: "WRITE_ROWS_V0", TypeUpdateRowsV0: "UPDATE_ROWS_V0",
	TypeDeleteRowsV0: "DELETE_ROWS_V0", TypeWriteRowsV1: "WRITE_ROWS_V1", TypeUpdateRowsV1: "UPDATE_ROWS_V1",
	TypeDeleteRowsV1: "DELETE_ROWS_V1", TypeIncident: "INCIDENT", TypeHeartbeat: "HEARTBEAT", TypeIgnorable: "IGNORABLE",
	TypeRowsQuery: "ROWS_QUERY", TypeWriteRows: "WRITE_ROWS", TypeUpdateRows: "UPDATE_ROWS", TypeDeleteRows: "DELETE_ROWS",
	TypeGTID: "GTID", TypeAnonymousGTID: "ANONYMOUS_GTID", TypePreviousGTIDs: "PREVIOUS_GTIDS",
	TypeTransactionContext: "TRANSACTION_CONTEXT", TypeViewChange: "VIEW_CHANGE", TypeXAPrepare: "XA_PREPARE",
	TypePartialUpdateRows: "PARTIAL_UPDATE_ROWS", TypeTransactionPayload: "TRANSACTION_PAYLOAD",
	TypeHeartbeatV2: "HEARTBEAT_V2", TypeGTIDTagged: "GTID_TAGGED",
}

// Known tells whether this package has a name for the type. A reader must stop at an event of an unknown type
// unless the event has FlagIgnorable.
func (t Type) Known() bool { return int(t) < len(typeNames) && typeNames[t] != "" }

// String gives the server's name, or `TYPE_n` for an unknown type.
func (t Type) String() string {
	if t.Known() {
		return typeNames[t]
	}
	return "TYPE_" + strconv.Itoa(int(t))
}

func (t Type) isRowsV1() bool { return t >= TypeWriteRowsV1 && t <= TypeDeleteRowsV1 }
