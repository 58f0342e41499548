package binlog

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"outbox-relay/binlog/gtid"
)

// Server is what a MySQL server says of itself: the facts that decide whether and from where it can be read.
type Server struct {
	Address        string
	Version        string // @@version
	VersionComment string
	UUID           gtid.UUID
	LogBin         bool
	Format         string // @@global.binlog_format
	RowImage       string // @@global.binlog_row_image
	RowMetadata    string // @@global.binlog_row_metadata
	GTIDMode       string
	ExpireSeconds  int64 // @@global.binlog_expire_logs_seconds; 0 = never
	ReadOnly       bool  // clients cannot write: @@global.read_only, which super_read_only brings along
	FoldCase       bool  // table names are stored and compared in lower case
	Executed       *gtid.Set
	Purged         *gtid.Set
}

// Inspect connects to a server and asks for its state. It blocks as Dial does.
func Inspect(ctx context.Context, l Login) (*Server, error) {
	c, err := Dial(ctx, l)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Server(l.Address)
}

// Server asks the server for its state. A MariaDB server is refused with a *SourceError.
func (c *Conn) Server(address string) (*Server, error) {
	v := c.GetServerVersion()
	if strings.Contains(strings.ToLower(v), "mariadb") {
		return nil, &SourceError{Reason: ReasonUnsupportedServer, Detail: fmt.Sprintf("the server at %s is MariaDB (%s), whose binlog differs", address, v), Hint: "point source.address at MySQL 8.0 or later"}
	}
	r, err := c.Execute(`SELECT @@version, @@version_comment, @@server_uuid, @@global.log_bin, @@global.binlog_format, @@global.binlog_row_image,
 @@global.gtid_mode, @@global.lower_case_table_names, @@global.gtid_executed, @@global.gtid_purged, @@global.read_only`)
	if err != nil {
		return nil, fmt.Errorf("asking %s for its state: %w", address, err)
	}
	s := &Server{Address: address}
	s.Version, s.VersionComment = text(r, 0), text(r, 1)
	if s.UUID, err = gtid.ParseUUID(text(r, 2)); err != nil {
		return nil, fmt.Errorf("server_uuid of %s: %w", address, err)
	}
	s.LogBin = text(r, 3) == "1"
	s.Format, s.RowImage, s.GTIDMode = text(r, 4), text(r, 5), text(r, 6)
	s.FoldCase = text(r, 7) != "0"
	if s.Executed, err = gtid.ParseSet(text(r, 8)); err != nil {
		return nil, fmt.Errorf("gtid_executed of %s: %w", address, err)
	}
	if s.Purged, err = gtid.ParseSet(text(r, 9)); err != nil {
		return nil, fmt.Errorf("gtid_purged of %s: %w", address, err)
	}
	s.ReadOnly = text(r, 10) != "0"
	if strings.HasPrefix(s.Version, "5.") {
		return nil, &SourceError{Reason: ReasonUnsupportedServer, Detail: fmt.Sprintf("the server at %s is MySQL %s, which is too old", address, s.Version), Hint: "use MySQL 8.0 or later"}
	}
	r, err = c.Execute("SELECT @@global.binlog_row_metadata, @@global.binlog_expire_logs_seconds")
	if err != nil {
		return nil, fmt.Errorf("asking %s for its binlog settings: %w", address, err)
	}
	s.RowMetadata = text(r, 0)
	s.ExpireSeconds, _ = r.GetInt(0, 1)
	return s, nil
}

// Executed asks the server for the transactions that it has executed. It waits at most timeout.
func (c *Conn) Executed(ctx context.Context, timeout time.Duration) (*gtid.Set, error) {
	text, err := c.Query(ctx, timeout, "SELECT @@global.gtid_executed")
	if err != nil {
		return nil, fmt.Errorf("asking for the executed transactions: %w", err)
	}
	set, err := gtid.ParseSet(text)
	if err != nil {
		return nil, fmt.Errorf("gtid_executed: %w", err)
	}
	return set, nil
}

func text(r *mysql.Result, column int) string {
	s, _ := r.GetString(0, column)
	return s
}

// usable returns the reason why the server cannot be read at all, or nil.
func (s *Server) usable() error {
	switch {
	case !s.LogBin:
		return &SourceError{Reason: ReasonBinlogOff, Detail: fmt.Sprintf("the server at %s writes no binlog (log_bin=OFF)", s.Address), Hint: "start it with --log-bin, or without --skip-log-bin"}
	case s.GTIDMode != "ON":
		return &SourceError{Reason: ReasonGTIDMode, Detail: fmt.Sprintf("the server at %s runs with gtid_mode=%s", s.Address, s.GTIDMode), Hint: "switch it on in the steps of the manual: enforce_gtid_consistency=ON, then gtid_mode=OFF_PERMISSIVE, ON_PERMISSIVE, ON; outbox rows that are written until then may have no GTID and are not seen later: publish them by hand"}
	case s.Format != "ROW":
		return &SourceError{Reason: ReasonFormat, Detail: fmt.Sprintf("the server at %s runs with binlog_format=%s", s.Address, s.Format), Hint: "SET PERSIST binlog_format = 'ROW';"}
	}
	return nil
}

// namesColumns reports whether the server writes the names of columns into its binlog now. What it wrote before may be otherwise.
func (s *Server) namesColumns() bool { return s.RowMetadata == "FULL" }

// Rows runs one statement and returns the text of all its rows; NULL is the empty text. It waits at most timeout. The result is small
// and held as a whole.
func (c *Conn) Rows(ctx context.Context, timeout time.Duration, statement string) ([][]string, error) {
	if err := c.net.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	r, err := c.Execute(statement)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, err
	}
	if r.Resultset == nil {
		return nil, nil
	}
	rows := make([][]string, len(r.Values))
	for i := range rows {
		rows[i] = make([]string, len(r.Values[i]))
		for j := range rows[i] {
			if rows[i][j], err = r.GetString(i, j); err != nil {
				return nil, err
			}
		}
	}
	return rows, nil
}

// Query runs one small statement and returns the text of its first column of its first row, empty without one. It waits at most timeout.
func (c *Conn) Query(ctx context.Context, timeout time.Duration, statement string) (string, error) {
	if err := c.net.SetDeadline(time.Now().Add(timeout)); err != nil {
		return "", err
	}
	r, err := c.Execute(statement)
	if err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", err
	}
	if r.Resultset == nil || len(r.Values) == 0 || len(r.Values[0]) == 0 {
		return "", nil
	}
	return text(r, 0), nil
}
