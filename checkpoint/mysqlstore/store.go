// Package mysqlstore keeps relays' checkpoints in a table of a MySQL server: the source itself or another one.
//
// A save is one statement, an UPDATE that an older fencing token does not match, so that a former active instance cannot overwrite its
// successor's. The server makes it durable. The table is created by the first relay that finds none and may create it.
//
// The package deliberately takes no lock: which instance is active is decided elsewhere. It does not retry, and it does not repair what it cannot
// trust.
package mysqlstore

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"outbox-relay/checkpoint"
)

// Options say which table of which server. All but TLS, TLSOptional and Timeout are required.
type Options struct {
	// Name is the relay's name, the key of its row.
	Name string
	// Schema and Table name the table, as the server has them.
	Schema, Table string
	// Addresses are host:port or paths of sockets, tried in order. A server that cannot be written to is left for the next one.
	Addresses []string
	User      string
	// Password is asked at each connect; nil means none.
	Password func(context.Context) (string, error)
	// TLS gives the settings for a host at each connect; nil, or a nil result, means plain text.
	TLS func(host string) (*tls.Config, error)
	// TLSOptional goes on in plain text with a server that has no TLS.
	TLSOptional bool
	// Program is shown to operators in performance_schema.session_connect_attrs.
	Program string
	// Timeout bounds connecting, and each wait for an answer. 0 means 10 s.
	Timeout time.Duration
}

// Store is a checkpoint.Store in a table.
type Store struct {
	o     Options
	table string // quoted

	mu     sync.Mutex
	db     *sql.DB
	dialer *connector
	closed bool
	// known is true once the row was read, or found missing, without fault: until then a Save reads it first, so that it overwrites nothing
	// that cannot be trusted.
	known bool
}

var _ checkpoint.Store = (*Store)(nil)

// Open checks the options. It connects to nothing: a server that is away is no reason not to start. Its error is a *checkpoint.Error.
func Open(o Options) (*Store, error) {
	if o.Name == "" || o.Schema == "" || o.Table == "" || len(o.Addresses) == 0 || o.User == "" {
		return nil, &checkpoint.Error{Op: "opening checkpoint", Err: checkpoint.ErrInvalid, Detail: "name, table, addresses and user are needed"}
	}
	if len(o.Name) > maxName {
		return nil, &checkpoint.Error{Op: "opening checkpoint", Err: checkpoint.ErrInvalid, Detail: fmt.Sprintf("a name in a table has %d bytes at most", maxName)}
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	s := &Store{o: o, table: quote(o.Schema) + "." + quote(o.Table), dialer: &connector{o: o}}
	s.db = sql.OpenDB(s.dialer)
	// One connection serves all: calls are short, and few.
	s.db.SetMaxOpenConns(1)
	s.db.SetConnMaxIdleTime(time.Minute)
	return s, nil
}

// maxName is the most that a key of the table holds, in bytes.
const maxName = 255

func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// Load returns the checkpoint; see checkpoint.Store.
func (s *Store) Load(ctx context.Context) (*checkpoint.Checkpoint, error) {
	const op = "loading checkpoint"
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, op); err != nil {
		return nil, err
	}
	return s.load(ctx, op)
}

func (s *Store) load(ctx context.Context, op string) (*checkpoint.Checkpoint, error) {
	var data []byte
	err := s.db.QueryRowContext(ctx, "SELECT checkpoint FROM "+s.table+" WHERE name = ?", s.o.Name).Scan(&data)
	switch {
	case errors.Is(err, sql.ErrNoRows) || isMissing(err):
		s.known = true
		return nil, &checkpoint.Error{Op: op, Path: s.path(), Err: checkpoint.ErrNotFound}
	case err != nil:
		return nil, s.failed(ctx, op, err)
	}
	c, err := checkpoint.Unmarshal(data, s.o.Name)
	if err != nil {
		return nil, s.failed(ctx, op, err)
	}
	s.known = true
	return c, nil
}

// Save replaces the checkpoint; see checkpoint.Store. How durable it is depends on the server: on sync_binlog and innodb_flush_log_at_trx_commit.
func (s *Store) Save(ctx context.Context, c *checkpoint.Checkpoint) error {
	const op = "saving checkpoint"
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, op); err != nil {
		return err
	}
	if c.Name != s.o.Name {
		return &checkpoint.Error{Op: op, Path: s.path(), Err: checkpoint.ErrInvalid, Detail: fmt.Sprintf("it is of the relay %q, the store of %q", c.Name, s.o.Name)}
	}
	data, err := checkpoint.Marshal(c)
	if err != nil {
		return s.failed(ctx, op, err)
	}
	if !s.known {
		if _, err := s.load(ctx, op); !s.known {
			return err
		}
	}
	if err := s.write(ctx, c, data); err != nil {
		return s.failed(ctx, op, err)
	}
	return nil
}

// write updates the row, or makes it. A row with a higher token is not touched.
func (s *Store) write(ctx context.Context, c *checkpoint.Checkpoint, data []byte) error {
	// Statements of instances that make the row at the same time may lock each other out, and the server then refuses all but one.
	err := s.tryWrite(ctx, c, data)
	for try := 0; try < 5 && isDeadlock(err) && ctx.Err() == nil; try++ {
		err = s.tryWrite(ctx, c, data)
	}
	return err
}

func (s *Store) tryWrite(ctx context.Context, c *checkpoint.Checkpoint, data []byte) error {
	// Twice, since between the UPDATE that finds no row and the INSERT another instance may make one.
	for range 2 {
		done, err := s.update(ctx, c, data)
		if done || err != nil && !isMissing(err) {
			return err
		}
		if isMissing(err) {
			if err := s.create(ctx); err != nil {
				return err
			}
		}
		var token uint64
		err = s.db.QueryRowContext(ctx, "SELECT fencing_token FROM "+s.table+" WHERE name = ?", s.o.Name).Scan(&token)
		switch {
		case err == nil && token > c.FencingToken:
			return fmt.Errorf("%w: the stored token is %d, this instance's is %d", checkpoint.ErrFenced, token, c.FencingToken)
		case err == nil:
			continue
		case !errors.Is(err, sql.ErrNoRows):
			return err
		}
		_, err = s.db.ExecContext(ctx, "INSERT INTO "+s.table+" (name, fencing_token, gtid_set, checkpoint, instance, saved_at) VALUES (?, ?, ?, ?, ?, UTC_TIMESTAMP(6))",
			s.o.Name, c.FencingToken, c.GTIDSet.String(), data, c.Instance)
		var my *mysql.MySQLError
		if err == nil || !errors.As(err, &my) || my.Number != codeDuplicate {
			return err
		}
	}
	return errors.New("the row comes and goes")
}

func (s *Store) update(ctx context.Context, c *checkpoint.Checkpoint, data []byte) (done bool, err error) {
	r, err := s.db.ExecContext(ctx, "UPDATE "+s.table+" SET fencing_token = ?, gtid_set = ?, checkpoint = ?, instance = ?, saved_at = UTC_TIMESTAMP(6) WHERE name = ? AND fencing_token <= ?",
		c.FencingToken, c.GTIDSet.String(), data, c.Instance, s.o.Name, c.FencingToken)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected() // rows that matched
	return n > 0, err
}

// CreateTable is the statement that makes the table.
func CreateTable(schema, table string) string {
	return "CREATE TABLE " + quote(schema) + "." + quote(table) + ` (
  name VARBINARY(255) NOT NULL PRIMARY KEY,
  fencing_token BIGINT UNSIGNED NOT NULL,
  gtid_set LONGTEXT CHARACTER SET ascii NOT NULL COMMENT 'for people',
  checkpoint LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  instance VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
  saved_at DATETIME(6) NOT NULL COMMENT 'UTC'
) ENGINE=InnoDB`
}

// create makes the table, and its schema if that is missing too. Only where there is none: even an idle CREATE … IF NOT EXISTS is written to the binlog.
func (s *Store) create(ctx context.Context) error {
	statement := CreateTable(s.o.Schema, s.o.Table)
	_, err := s.db.ExecContext(ctx, statement)
	var my *mysql.MySQLError
	if errors.As(err, &my) && my.Number == codeNoSchema {
		if _, err := s.db.ExecContext(ctx, "CREATE DATABASE IF NOT EXISTS "+quote(s.o.Schema)); err != nil {
			return err
		}
		_, err = s.db.ExecContext(ctx, statement)
	}
	if errors.As(err, &my) && my.Number == codeTableExists {
		return nil // another relay was faster
	}
	return err
}

// Probe tells whether the account may do all that the store does, and changes nothing: the server judges rights when a statement is prepared. Its
// error is a *checkpoint.Error with the statement that helps.
func (s *Store) Probe(ctx context.Context) error {
	const op = "trying the rights of the checkpoint"
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, op); err != nil {
		return err
	}
	where := s.table + " WHERE name = ''"
	for _, statement := range []string{
		"SELECT checkpoint FROM " + where, "UPDATE " + s.table + " SET instance = '' WHERE name = ''", "INSERT INTO " + s.table + " (name) VALUES ('')", "DELETE FROM " + where,
	} {
		err := s.prepare(ctx, statement)
		if isMissing(err) {
			err = s.prepare(ctx, CreateTable(s.o.Schema, s.o.Table))
			if isMissing(err) {
				err = s.prepare(ctx, "CREATE DATABASE "+quote(s.o.Schema))
			}
			if err == nil {
				return nil // it comes with the first start, and so do its rights: they are the schema's
			}
		}
		if err != nil {
			return s.failed(ctx, op, err)
		}
	}
	var readOnly bool
	if err := s.db.QueryRowContext(ctx, "SELECT @@global.read_only").Scan(&readOnly); err != nil {
		return s.failed(ctx, op, err)
	}
	if readOnly {
		return s.failed(ctx, op, &mysql.MySQLError{Number: codeOptionPrevents, Message: "the server runs with read_only=ON"})
	}
	return nil
}

func (s *Store) prepare(ctx context.Context, statement string) error {
	p, err := s.db.PrepareContext(ctx, statement)
	if err == nil {
		defer p.Close()
	}
	return err
}

// Remove deletes the checkpoint, whatever is in its row. A missing one is no error. Tokens begin anew.
func (s *Store) Remove(ctx context.Context) error {
	const op = "removing checkpoint"
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx, op); err != nil {
		return err
	}
	if _, err := s.db.ExecContext(ctx, "DELETE FROM "+s.table+" WHERE name = ?", s.o.Name); err != nil && !isMissing(err) {
		return s.failed(ctx, op, err)
	}
	s.known = true
	return nil
}

// Close closes the connection. It may be called twice.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	return s.db.Close()
}

// usable refuses a call on a closed store and one whose ctx has ended.
func (s *Store) usable(ctx context.Context, op string) error {
	if s.closed {
		return &checkpoint.Error{Op: op, Path: s.path(), Err: checkpoint.ErrClosed}
	}
	return ctx.Err()
}

func (s *Store) path() string {
	return s.o.Schema + "." + s.o.Table + " of " + strings.Join(s.o.Addresses, ", ")
}
