package event

import (
	"bytes"
	"encoding/binary"
)

// Query is a statement in text form. Its slices alias the body.
type Query struct {
	ThreadID      uint32
	ExecutionTime uint32 // seconds
	ErrorCode     uint16
	Schema        []byte // the connection's current database, empty without one
	StatusVars    []byte // see UpdatedSchemas
	Text          []byte
}

// ParseQuery reads a QUERY:
//
//	0 u32 thread · 4 u32 execution time · 8 u8 length of the database name · 9 u16 error · 11 u16 length of the status block ·
//	13 status block · database name · 0 · text to the end
func ParseQuery(b []byte) (Query, error) {
	c := cursor{b: b}
	q := Query{ThreadID: c.u32(), ExecutionTime: c.u32()}
	schemaLen := uint64(c.u8())
	q.ErrorCode = c.u16()
	q.StatusVars = c.bytes(uint64(c.u16()))
	q.Schema = c.bytes(schemaLen)
	if c.u8(); c.bad {
		return Query{}, malformed(TypeQuery, "%d bytes are too few for its status block and database name", len(b))
	}
	q.Text = c.b
	return q, nil
}

// IsBegin tells whether the body b of a QUERY is the BEGIN that the server writes, and nothing but its text is looked at. Every
// transaction has one; ParseQuery and Classify say the same at ten times the cost.
func IsBegin(b []byte) bool {
	const postHeader, begin = 13, "BEGIN"
	if len(b) < postHeader+1+len(begin) {
		return false
	}
	at := len(b) - len(begin) // of the text: behind post-header, status block, database name and its 0
	return postHeader+int(binary.LittleEndian.Uint16(b[11:]))+int(b[8])+1 == at && string(b[at:]) == begin
}

// SchemasState says what UpdatedSchemas knows.
type SchemasState uint8

const (
	SchemasUnknown SchemasState = iota // the event does not tell, or tells it behind something this package cannot read
	SchemasListed                      // the list is complete
	SchemasTooMany                     // more than the 16 databases that the server lists
)

// Codes of the status block (MySQL source: Query_event::Query_event_status_vars).
const (
	statusFlags2            = 0
	statusSQLMode           = 1
	statusCatalog           = 2
	statusAutoIncrement     = 3
	statusCharset           = 4
	statusTimeZone          = 5
	statusCatalogNZ         = 6
	statusLCTimeNames       = 7
	statusCharsetDatabase   = 8
	statusTableMapForUpdate = 9
	statusMasterDataWritten = 10
	statusInvoker           = 11
	statusUpdatedDBNames    = 12
	statusMicroseconds      = 13
	statusExplicitDefaults  = 16
	statusDDLXid            = 17
	statusCollationUTF8MB4  = 18
	statusRequirePrimaryKey = 19
	statusTableEncryption   = 20

	overMaxSchemas = 254 // written instead of a count above 16
	maxSchemas     = 16
)

// UpdatedSchemas appends the databases that the statement may change to dst, as the server wrote them for its own
// parallel replicas. The names alias the body. Only under SchemasListed is the list of use; under the other states
// any database may be meant.
func (q Query) UpdatedSchemas(dst [][]byte) ([][]byte, SchemasState) {
	c := cursor{b: q.StatusVars}
	for len(c.b) > 0 {
		switch c.u8() {
		case statusFlags2, statusAutoIncrement, statusMasterDataWritten:
			c.skip(4)
		case statusSQLMode, statusTableMapForUpdate, statusDDLXid:
			c.skip(8)
		case statusCatalog: // before 5.0.4: length, name, 0
			c.skip(uint64(c.u8()) + 1)
		case statusCharset:
			c.skip(6)
		case statusTimeZone, statusCatalogNZ:
			c.skip(uint64(c.u8()))
		case statusLCTimeNames, statusCharsetDatabase, statusCollationUTF8MB4:
			c.skip(2)
		case statusInvoker: // user, host
			c.skip(uint64(c.u8()))
			c.skip(uint64(c.u8()))
		case statusMicroseconds:
			c.skip(3)
		case statusExplicitDefaults, statusRequirePrimaryKey, statusTableEncryption:
			c.skip(1)
		case statusUpdatedDBNames:
			return updatedSchemas(dst, &c)
		default:
			return dst, SchemasUnknown
		}
	}
	return dst, SchemasUnknown
}

// updatedSchemas reads `u8 count, names each ended by 0`.
func updatedSchemas(dst [][]byte, c *cursor) ([][]byte, SchemasState) {
	n := c.u8()
	switch {
	case c.bad:
		return dst, SchemasUnknown
	case n == overMaxSchemas:
		return dst, SchemasTooMany
	case n > maxSchemas:
		return dst, SchemasUnknown
	}
	out := dst
	for range n {
		name, rest, ok := bytes.Cut(c.b, []byte{0})
		if !ok {
			return dst, SchemasUnknown
		}
		out, c.b = append(out, name), rest
	}
	return out, SchemasListed
}

// Statement is what a QUERY does to the transaction it is in.
type Statement uint8

const (
	StatementOther             Statement = iota // DDL, or DML in statement format
	StatementBegin                              // BEGIN
	StatementCommit                             // COMMIT
	StatementRollback                           // ROLLBACK
	StatementSavepoint                          // SAVEPOINT …
	StatementRollbackTo                         // ROLLBACK TO …
	StatementXA                                 // XA …: see ParseXAStatement
	StatementCreateTransaction                  // … START TRANSACTION: CREATE TABLE … SELECT, its rows follow
)

const startTransaction = "START TRANSACTION"

// Classify compares the text with the statements that the server itself writes to frame transactions. It reads
// nothing else: comments and text of users end as StatementOther, unless they end like an atomic CREATE TABLE …
// SELECT, which only counts inside a transaction that is open.
func Classify(text []byte) Statement {
	if len(text) == 0 {
		return StatementOther
	}
	switch text[0] | 0x20 {
	case 'b':
		if foldEqual(text, "BEGIN") {
			return StatementBegin
		}
	case 'c':
		if foldEqual(text, "COMMIT") {
			return StatementCommit
		}
		if n := len(text) - len(startTransaction); n > 0 && foldEqual(text[n:], startTransaction) {
			return StatementCreateTransaction
		}
	case 'r':
		if foldEqual(text, "ROLLBACK") {
			return StatementRollback
		}
		if foldPrefix(text, "ROLLBACK TO ") {
			return StatementRollbackTo
		}
	case 's':
		if foldPrefix(text, "SAVEPOINT ") {
			return StatementSavepoint
		}
	case 'x':
		if foldPrefix(text, "XA ") {
			return StatementXA
		}
	}
	return StatementOther
}

// foldEqual compares b with upper-case ASCII text, without regard to the case of b. It does not allocate.
func foldEqual(b []byte, upper string) bool {
	if len(b) != len(upper) {
		return false
	}
	for i := range b {
		c := b[i]
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		if c != upper[i] {
			return false
		}
	}
	return true
}

func foldPrefix(b []byte, upper string) bool {
	return len(b) >= len(upper) && foldEqual(b[:len(upper)], upper)
}
