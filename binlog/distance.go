package binlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// Kept is what a server keeps of its binlog, seen from a position.
type Kept struct {
	// Before is how many bytes it keeps before the position: what may still be purged before the position is lost.
	Before int64
	// Oldest is true where the position is in the oldest binlog and there are newer ones: the next purge takes it.
	Oldest bool
	// Purged is true where the server has purged binlogs before.
	Purged bool
	// Retention is how long a binlog is kept after its end (binlog_expire_logs_seconds); 0 where none is purged by age.
	Retention time.Duration
}

// Distance asks a server what it keeps of its binlog before the position pos of file. A file that the server does not have gives an error, and so does
// an account without REPLICATION CLIENT, a *SourceError with the statement that helps. It blocks as Dial does.
func Distance(ctx context.Context, l Login, file string, pos uint64) (Kept, error) {
	c, err := Dial(ctx, l)
	if err != nil {
		return Kept{}, err
	}
	defer c.Close()
	return c.Kept(ctx, l, file, pos)
}

// Kept is Distance by a connection that is open.
func (c *Conn) Kept(ctx context.Context, l Login, file string, pos uint64) (Kept, error) {
	var k Kept
	logs, err := c.binlogs(ctx)
	var my *mysql.MyError
	if errors.As(err, &my) && my.Code == codeNoPrivilege {
		return k, &SourceError{Reason: ReasonPrivilege, Detail: fmt.Sprintf("user %q may not list the binlogs of the server at %s", l.User, l.At()), Hint: fmt.Sprintf("run GRANT REPLICATION CLIENT ON *.* TO '%s'@'%%'", l.User)}
	}
	if err != nil {
		return k, fmt.Errorf("the server at %s: %w", l.At(), err)
	}
	at := slices.IndexFunc(logs, func(f binlogFile) bool { return f.name == file })
	if at < 0 {
		return k, fmt.Errorf("the server at %s has no binlog %s", l.At(), file)
	}
	for _, f := range logs[:at] {
		k.Before += f.size
	}
	k.Before += int64(pos)
	k.Oldest = at == 0 && len(logs) > 1
	rows, err := c.Rows(ctx, askTimeout, "SELECT @@global.binlog_expire_logs_seconds, @@global.gtid_purged <> ''")
	if err != nil {
		return k, fmt.Errorf("asking %s how long it keeps binlogs: %w", l.At(), err)
	}
	seconds, err := strconv.ParseInt(rows[0][0], 10, 64)
	if err != nil {
		return k, fmt.Errorf("binlog_expire_logs_seconds of %s: %w", l.At(), err)
	}
	k.Retention, k.Purged = time.Duration(seconds)*time.Second, rows[0][1] == "1"
	if auto, err := c.Query(ctx, askTimeout, "SELECT @@global.binlog_expire_logs_auto_purge"); err == nil && auto == "0" { // servers before 8.0.29 do not know it
		k.Retention = 0
	}
	return k, nil
}
