package mysqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"outbox-relay/checkpoint"
	"outbox-relay/internal/tlsfault"
)

// Codes of the server.
const (
	codeTooMany        = 1040 // ER_CON_COUNT_ERROR
	codeDatabaseDenied = 1044 // ER_DBACCESS_DENIED_ERROR
	codeLoginDenied    = 1045 // ER_ACCESS_DENIED_ERROR
	codeNoSchema       = 1049 // ER_BAD_DB_ERROR
	codeTableExists    = 1050 // ER_TABLE_EXISTS_ERROR
	codeShutdown       = 1053 // ER_SERVER_SHUTDOWN
	codeNoColumn       = 1054 // ER_BAD_FIELD_ERROR
	codeDuplicate      = 1062 // ER_DUP_ENTRY
	codeTableDenied    = 1142 // ER_TABLEACCESS_DENIED_ERROR
	codeNoTable        = 1146 // ER_NO_SUCH_TABLE
	codeLockWait       = 1205 // ER_LOCK_WAIT_TIMEOUT
	codeDeadlock       = 1213 // ER_LOCK_DEADLOCK
	codeOptionPrevents = 1290 // ER_OPTION_PREVENTS_STATEMENT: --read-only, --super-read-only
	codeReadOnlyMode   = 1836 // ER_READ_ONLY_MODE
	codeTLSRequired    = 3159 // ER_SECURE_TRANSPORT_REQUIRED
)

func isMissing(err error) bool {
	var my *mysql.MySQLError
	return errors.As(err, &my) && (my.Number == codeNoTable || my.Number == codeNoSchema)
}

func isDeadlock(err error) bool {
	var my *mysql.MySQLError
	return errors.As(err, &my) && my.Number == codeDeadlock
}

// failed makes the error for the caller. After one that another server may not give, the connection is left, so that the next call tries that one.
func (s *Store) failed(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var fault *checkpoint.Error // of Marshal and Unmarshal
	if errors.As(err, &fault) {
		fault.Op, fault.Path = op, s.path()
		return fault
	}
	e := &checkpoint.Error{Op: op, Path: s.path(), Err: err}
	if errors.Is(err, checkpoint.ErrFenced) {
		e.Err, e.Detail = checkpoint.ErrFenced, strings.TrimPrefix(err.Error(), checkpoint.ErrFenced.Error()+": ")
		return e
	}
	var my *mysql.MySQLError
	if !errors.As(err, &my) {
		e.Passing = true
		e.Hint = s.connectHint(err)
		return e
	}
	switch my.Number {
	case codeTooMany, codeShutdown, codeLockWait, codeDeadlock:
		e.Passing = true
	case codeLoginDenied:
		e.Hint = "check user and password, and whether the account demands TLS or a certificate"
	case codeTLSRequired:
		e.Hint = "the server accepts encrypted connections only: set tls.mode to required or stricter"
	case codeDatabaseDenied, codeTableDenied:
		e.Hint = fmt.Sprintf("run GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON %s.* TO '%s'@'%%'; or create the table yourself: %s;", quote(s.o.Schema), s.o.User, CreateTable(s.o.Schema, s.o.Table))
	case codeNoColumn:
		e.Hint = fmt.Sprintf("the table is of another program: choose another name in checkpoint.table, or drop it; the relay's is made by %s;", CreateTable(s.o.Schema, s.o.Table))
	case codeOptionPrevents, codeReadOnlyMode:
		e.Hint = "the server is read-only: keep the checkpoint on the primary, or on another server"
		e.Passing = true // until the failover is over
		s.dialer.leave()
		s.db.SetMaxIdleConns(0) // closes the idle connection
		s.db.SetMaxIdleConns(1)
	}
	return e
}

// connectHint is what to do about a connection that does not come about. Its settings are those of checkpoint.address, or of the source without one.
func (s *Store) connectHint(err error) string {
	var setting *settingError
	switch {
	case errors.As(err, &setting):
		return "check " + setting.key
	case errors.Is(err, mysql.ErrNoTLS):
		return "enable TLS on the server, or set tls.mode to preferred or disabled"
	}
	own := false
	if s.o.TLS != nil {
		c, err := s.o.TLS("")
		own = err == nil && c != nil && len(c.Certificates) > 0
	}
	if f, ok := tlsfault.Find(err, "tls", "the address", own); ok {
		if f.Client() {
			return "the server " + f.What + ": " + f.Do
		}
		return "the certificate " + f.What + ": " + f.Do
	}
	return "check that the server runs and can be reached"
}

// settingError is a part of the login that cannot be had.
type settingError struct {
	what, key string
	err       error
}

func (e *settingError) Unwrap() error { return e.err }
func (e *settingError) Error() string { return e.what + " cannot be read: " + e.err.Error() }
