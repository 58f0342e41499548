package binlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
)

// Place is where a reader was in the binlog of a server. The zero value is nowhere.
type Place struct {
	Server   gtid.UUID
	File     string
	Position uint64 // bytes; between two events
	// Last is the transaction that was read last, and Micros when it committed: what tells it from another one of the same GTID. 0 where that is not known.
	Last   gtid.GTID
	Micros int64
}

// skippedPage is how many events are asked for at once; each may hold a statement.
const skippedPage = 20

// lookBehind looks into the binlog behind the place where this server was read last, as far as to the first transaction that the reader lacks, and
// gives the file of that one, empty where there is none. It finds what the server would leave out in silence:
//
//   - transactions without GTID, in a file that has nothing else for the reader. They are an error;
//   - transactions that the PREVIOUS_GTIDS of the next file lack, as those of a binlog that begins amid XA PREPAREs and XA COMMITs may (8.0.33 and
//     9.7.4): the server begins with the last file of which the reader has all PREVIOUS_GTIDS, which then is one behind them. See Reader.rotate.
func (r *Reader) lookBehind(ctx context.Context, c *Conn, s *Server) (lacking string, err error) {
	place := r.place
	if place.File == "" || place.Server != s.UUID {
		return "", nil
	}
	file, pos := place.File, place.Position
	var files []binlogFile
	for {
		rows, err := c.Rows(ctx, lookupTimeout, fmt.Sprintf("SHOW BINLOG EVENTS IN %s FROM %d LIMIT %d", quoted(file), max(pos, 4), skippedPage))
		var my *mysql.MyError
		if errors.As(err, &my) {
			return "", nil // the file is gone, or the place is none of it: then there is nothing behind it that can be told
		}
		if err != nil {
			return "", fmt.Errorf("looking behind %s:%d: %w", file, pos, err)
		}
		for _, e := range rows {
			typ, end, info := e[2], e[4], e[5]
			switch {
			case strings.HasPrefix(typ, "Anonymous"):
				return "", &SourceError{
					Reason: ReasonGTIDMode, Hint: hintAnonymous,
					Detail: fmt.Sprintf("the binlog of the server at %s holds a transaction without GTID at %s:%s, which a dump by GTID leaves out", s.Address, file, e[1]),
				}
			case strings.HasPrefix(typ, "Gtid"):
				if g, ok := gtidOf(info); ok && !r.seen.Contains(g) {
					return file, nil
				}
			}
			if pos, err = strconv.ParseUint(end, 10, 64); err != nil {
				return "", nil
			}
		}
		if len(rows) == skippedPage {
			continue
		}
		if files == nil {
			if files, err = c.binlogs(ctx); err != nil {
				return "", err
			}
		}
		if file, pos = following(files, file), 4; file == "" {
			return "", nil
		}
	}
}

// binlogFile is one of a server's binlogs.
type binlogFile struct {
	name string
	size int64 // bytes
}

// binlogs gives the server's binlog files, oldest first. The account needs REPLICATION CLIENT.
func (c *Conn) binlogs(ctx context.Context) ([]binlogFile, error) {
	rows, err := c.Rows(ctx, lookupTimeout, "SHOW BINARY LOGS")
	if err != nil {
		return nil, fmt.Errorf("asking for the binlog files: %w", err)
	}
	files := []binlogFile{}
	for _, row := range rows {
		size, err := strconv.ParseInt(row[1], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("size of binlog %s: %w", row[0], err)
		}
		files = append(files, binlogFile{row[0], size})
	}
	return files, nil
}

// following gives the file behind one, empty where there is none.
func following(files []binlogFile, file string) string {
	for i, f := range files {
		if f.name == file && i+1 < len(files) {
			return files[i+1].name
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

// errLeftOut ends a connection whose dump begins behind transactions that the reader lacks. The next one asks for the file that has them.
var errLeftOut = errors.New("the server leaves out transactions, its binlog is asked for again from an earlier file")

// beginsAt is told the file with which the dump of a new connection begins.
func (r *Reader) beginsAt(file string) error {
	lacking := r.lacking
	r.lacking = ""
	if lacking == "" || binlogNumber(file) <= binlogNumber(lacking) {
		return nil
	}
	r.from = lacking
	return errLeftOut
}

// binlogNumber gives the number of a binlog file, by which they are ordered.
func binlogNumber(file string) uint64 {
	n, _ := strconv.ParseUint(file[strings.LastIndexByte(file, '.')+1:], 10, 64)
	return n
}

// behindFile gives a set behind which the dump begins with a file or an earlier one: nothing but what its PREVIOUS_GTIDS hold, of what was read, and
// what the server has purged.
func (r *Reader) behindFile(ctx context.Context, c *Conn, s *Server, file string) (*gtid.Set, error) {
	rows, err := c.Rows(ctx, lookupTimeout, "SHOW BINLOG EVENTS IN "+quoted(file)+" LIMIT 3")
	if err != nil {
		return nil, fmt.Errorf("reading the head of %s: %w", file, err)
	}
	set := s.Purged.Clone()
	for _, e := range rows {
		if e[2] != "Previous_gtids" {
			continue
		}
		previous, err := gtid.ParseSet(e[5])
		if err != nil {
			return nil, fmt.Errorf("PREVIOUS_GTIDS of %s: %w", file, err)
		}
		previous.Subtract(gtid.Minus(previous, r.seen))
		set.AddSet(previous)
	}
	return set, nil
}

// known handles an event of a transaction that was read before and came again, since the dump began earlier than it had to.
func (r *Reader) known(ev *raw) error {
	g := &r.group
	switch ev.Type {
	case event.TypeXID, event.TypeXAPrepare, event.TypeTransactionPayload:
		if err := ev.skip(); err != nil {
			return err
		}
		r.closeKnown()
		return nil
	case event.TypeQuery:
		q, err := r.parseQuery(ev)
		if err != nil {
			return err
		}
		switch event.Classify(q.Text) {
		case event.StatementBegin:
			g.begun = true
		case event.StatementCommit, event.StatementRollback:
			r.closeKnown()
		case event.StatementXA:
			x, err := event.ParseXAStatement(q.Text)
			if err != nil {
				return fmt.Errorf("%w: %w", errCorrupt, err)
			}
			switch x.Verb {
			case event.XAStart:
				g.begun = true
			case event.XACommit, event.XARollback:
				r.closeKnown()
			}
		default:
			if !g.begun {
				r.closeKnown()
			}
		}
		return nil
	}
	return ev.skip()
}

// closeKnown ends a group that came again. It is no progress: what a connection fails at may come right behind it each time.
func (r *Reader) closeKnown() {
	r.group.open, r.group.known = false, false
	r.group.maps = r.group.maps[:0]
}
