package binlog

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"outbox-relay/binlog/gtid"
)

// Place is where a reader was in the binlog of a server. The zero value is nowhere.
type Place struct {
	Server   gtid.UUID
	File     string
	Position uint64 // bytes; between two events
}

// skippedPage is how many events are asked for at once; each may hold a statement.
const skippedPage = 20

// anonymousBehind looks for transactions without GTID behind the place where this server was read last. In a dump by GTID set the server skips a file
// that has nothing but what is known and such transactions, and says nothing, so that their rows would be lost in silence. It looks as far as to the
// first transaction that the dump will send: from there on the server itself refuses.
func (r *Reader) anonymousBehind(ctx context.Context, c *Conn, s *Server) error {
	place := r.place
	if r.server != nil {
		place = Place{r.server.UUID, r.file, r.pos}
	}
	if place.File == "" || place.Server != s.UUID {
		return nil
	}
	file, pos := place.File, place.Position
	var files []string
	for {
		rows, err := c.Rows(ctx, lookupTimeout, fmt.Sprintf("SHOW BINLOG EVENTS IN %s FROM %d LIMIT %d", quoted(file), max(pos, 4), skippedPage))
		var my *mysql.MyError
		if errors.As(err, &my) {
			return nil // the file is gone, or the place is none of it: then there is nothing behind it that can be told
		}
		if err != nil {
			return fmt.Errorf("looking behind %s:%d: %w", file, pos, err)
		}
		for _, e := range rows {
			typ, end, info := e[2], e[4], e[5]
			switch {
			case strings.HasPrefix(typ, "Anonymous"):
				return &SourceError{
					Reason: ReasonGTIDMode, Hint: hintAnonymous,
					Detail: fmt.Sprintf("the binlog of the server at %s holds a transaction without GTID at %s:%s, which a dump by GTID leaves out", s.Address, file, e[1]),
				}
			case strings.HasPrefix(typ, "Gtid"):
				if g, ok := gtidOf(info); ok && !r.seen.Contains(g) {
					return nil
				}
			}
			if _, err := fmt.Sscan(end, &pos); err != nil {
				return nil
			}
		}
		if len(rows) == skippedPage {
			continue
		}
		if files == nil {
			if files, err = c.binlogs(ctx); err != nil {
				return err
			}
		}
		if file, pos = following(files, file), 4; file == "" {
			return nil
		}
	}
}

// binlogs gives the names of the server's binlog files, oldest first.
func (c *Conn) binlogs(ctx context.Context) ([]string, error) {
	rows, err := c.Rows(ctx, lookupTimeout, "SHOW BINARY LOGS")
	if err != nil {
		return nil, fmt.Errorf("asking for the binlog files: %w", err)
	}
	names := []string{}
	for _, row := range rows {
		names = append(names, row[0])
	}
	return names, nil
}

// following gives the file behind one, empty where there is none.
func following(files []string, file string) string {
	for i, f := range files {
		if f == file && i+1 < len(files) {
			return files[i+1]
		}
	}
	return ""
}

// gtidOf reads the GTID out of `SET @@SESSION.GTID_NEXT= '…'`.
func gtidOf(info string) (gtid.GTID, bool) {
	_, rest, _ := strings.Cut(info, "'")
	text, _, ok := strings.Cut(rest, "'")
	if !ok {
		return gtid.GTID{}, false
	}
	g, err := gtid.Parse(text)
	return g, err == nil
}

// quoted makes a string literal of the name of a file, which has no quotes.
func quoted(file string) string { return "'" + strings.ReplaceAll(file, "'", "''") + "'" }
