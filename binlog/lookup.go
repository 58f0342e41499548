package binlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"outbox-relay/binlog/event"
	"outbox-relay/binlog/gtid"
)

// Under binlog_row_metadata=MINIMAL the names of columns are asked of the server, which knows those of today, for rows of any age. They are right
// for a row if no statement in between can have changed them. So the server is asked first, and then the binlog between the row and that moment is
// searched for such statements by a reader of its own (package documentation: DESIGN.md, "Columns").

const (
	// lookupTimeout bounds one statement of a lookup. A long transaction that uses the table holds up an ALTER, and that holds up the lookup.
	lookupTimeout = 30 * time.Second
	// aheadAttempts is how many failures in a row end a search of the binlog: it knows one server, and whoever waits for it may know others.
	aheadAttempts = 3
)

// ahead makes a Reader one that only looks for statements that may change the columns of watched tables.
type ahead struct {
	tables []*watchedTable
	found  map[*watchedTable]change // the first such statement of each table
}

// change is a statement that may change columns.
type change struct {
	gtid gtid.GTID
	verb string // its first words
}

// changedColumns notes a statement, that of transaction g, that may have changed columns of watched tables. Statements too large for the
// buffer are not whole.
func (r *Reader) changedColumns(text []byte, whole bool) {
	g := r.group.gtid
	if r.ahead != nil {
		for _, t := range r.ahead.tables {
			if _, found := r.ahead.found[t]; !found && (mayChange(text, whole, t.table) || mayDropSchema(text, t.schema)) {
				r.ahead.found[t] = change{g, verbOf(text)}
			}
		}
		return
	}
	if r.server.namesColumns() && r.columns.empty() {
		return
	}
	for i := range r.watched.tables {
		if t := &r.watched.tables[i]; mayChange(text, whole, t.table) || mayDropSchema(text, t.schema) {
			r.columns.began(t.name, g)
			t.body, t.columns = nil, nil
			r.lookupDue = true
		}
	}
	if len(r.watched.patterns) == 0 {
		return
	}
	for _, name := range r.columns.names() {
		t := r.watched.find([]byte(name.Schema), []byte(name.Name))
		if t != nil && t.name == name && r.watched.isMatched(t) && (mayChange(text, whole, t.table) || mayDropSchema(text, t.schema)) {
			r.columns.began(name, g)
			t.body, t.columns = nil, nil
		}
	}
}

// harmless are the first words of statements that leave the columns of every table as they are, so that one that names an outbox table is
// no reason to doubt them. Statements with comments in front or in between are not recognized and count as harmful.
var harmless = []string{
	"TRUNCATE", "ANALYZE", "OPTIMIZE", "REPAIR", "FLUSH", "GRANT", "REVOKE", "SET",
	"CREATE USER", "CREATE ROLE", "CREATE VIEW", "CREATE TRIGGER", "CREATE PROCEDURE", "CREATE FUNCTION", "CREATE EVENT", "CREATE DEFINER", "CREATE OR", "CREATE ALGORITHM", "CREATE SQL",
	"CREATE INDEX", "CREATE UNIQUE", "CREATE FULLTEXT", "CREATE SPATIAL", "CREATE DATABASE", "CREATE SCHEMA",
	"DROP USER", "DROP ROLE", "DROP VIEW", "DROP TRIGGER", "DROP PROCEDURE", "DROP FUNCTION", "DROP EVENT", "DROP INDEX",
	"ALTER USER", "ALTER VIEW", "ALTER PROCEDURE", "ALTER FUNCTION", "ALTER EVENT", "ALTER DEFINER", "ALTER ALGORITHM", "ALTER SQL", "ALTER DATABASE", "ALTER SCHEMA",
}

// mayChange reports whether a statement may change the columns of a table of that name, in whatever database: to do so it has to name it. A name
// that may be spelt in more than one way counts as named.
func mayChange(text []byte, whole bool, table []byte) bool {
	first, rest := nextWord(text)
	second, _ := nextWord(rest)
	for _, h := range harmless {
		a, b, two := strings.Cut(h, " ")
		if strings.EqualFold(string(first), a) && (!two || strings.EqualFold(string(second), b)) {
			return false
		}
	}
	if !whole {
		return true
	}
	if altersPartitions(text) {
		return false
	}
	for _, c := range table {
		if c >= 0x80 || c == '`' || c == '"' {
			return true
		}
	}
	if created, rest, ifMissing := createdTable(text); len(created) > 0 && (ifMissing || !bytes.EqualFold(created, table)) {
		// IF NOT EXISTS makes a table only behind a statement that dropped it, and that one counts. What follows is where its columns and rows
		// come from.
		return bytes.ContainsAny(rest[:min(len(rest), 1)], "`\"/.")
	}
	return namesTable(bytes.ToLower(text), bytes.ToLower(table))
}

// mayDropSchema reports whether a statement may drop a database with its tables, which it does not name.
func mayDropSchema(text, schema []byte) bool {
	const name = "`\""
	text = bytes.ToLower(text)
	return namesTable(text, []byte("drop")) && (namesTable(text, []byte("database")) || namesTable(text, []byte("schema"))) &&
		(bytes.ContainsAny(schema, name) || bytes.ContainsFunc(schema, func(c rune) bool { return c >= 0x80 }) || namesTable(text, bytes.ToLower(schema)))
}

// partitionVerbs are those of ALTER TABLE with PARTITION behind them. Each stands alone in its statement, without changes of columns, and PARTITION
// is a reserved word, so no name.
var partitionVerbs = []string{"ADD", "DROP", "TRUNCATE", "REORGANIZE", "COALESCE", "REBUILD", "OPTIMIZE", "ANALYZE", "CHECK", "REPAIR"}

// altersPartitions reports whether a statement is an ALTER TABLE that adds, drops or rearranges partitions, as those do that rotate them.
func altersPartitions(text []byte) bool {
	rest, ok := word(text, "ALTER")
	if !ok {
		return false
	}
	if rest, ok = word(rest, "TABLE"); !ok {
		return false
	}
	name, rest := tableName(rest)
	if len(name) == 0 {
		return false
	}
	verb, rest := nextWord(rest)
	if !slices.ContainsFunc(partitionVerbs, func(v string) bool { return strings.EqualFold(v, string(verb)) }) {
		return false
	}
	const noun = "partition"
	rest = bytes.TrimLeft(rest, " \t\r\n")
	return len(rest) > len(noun) && bytes.EqualFold(rest[:len(noun)], []byte(noun)) && bytes.IndexByte([]byte(" \t\r\n(`"), rest[len(noun)]) >= 0
}

// namesTable reports whether the name stands in the text and is not part of a longer one.
func namesTable(text, name []byte) bool {
	part := func(c byte) bool {
		return c >= 0x80 || c == '_' || c == '$' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z'
	}
	for from := 0; ; {
		i := bytes.Index(text[from:], name)
		if i < 0 {
			return false
		}
		i += from
		end := i + len(name)
		if (i == 0 || !part(text[i-1])) && (end == len(text) || !part(text[end])) {
			return true
		}
		from = i + 1
	}
}

// createdTable gives the name of the table that a CREATE TABLE makes, what follows it, and whether it makes it only where there is none; no name
// where it is not sure.
func createdTable(text []byte) (name, rest []byte, ifMissing bool) {
	rest, ok := word(text, "CREATE")
	if !ok {
		return nil, nil, false
	}
	if rest, ok = word(rest, "TABLE"); !ok {
		return nil, nil, false
	}
	if after, ok := word(rest, "IF"); ok {
		if after, ok = word(after, "NOT"); !ok {
			return nil, nil, false
		}
		if rest, ok = word(after, "EXISTS"); !ok {
			return nil, nil, false
		}
		ifMissing = true
	}
	name, rest = tableName(rest)
	return name, rest, ifMissing
}

// tableName takes the name of a table, without that of its database, and the blanks behind it off the text; no name where it is not sure.
func tableName(text []byte) (name, rest []byte) {
	name, rest = identifier(text)
	rest = bytes.TrimLeft(rest, " \t\r\n")
	if len(rest) > 0 && rest[0] == '.' {
		name, rest = identifier(bytes.TrimLeft(rest[1:], " \t\r\n"))
		rest = bytes.TrimLeft(rest, " \t\r\n")
	}
	if bytes.ContainsAny(name, "\"'/(#-") { // another quote, or a comment
		return nil, nil
	}
	return name, rest
}

// verbOf gives the first two words of a statement.
func verbOf(text []byte) string {
	first, rest := nextWord(text)
	second, _ := nextWord(rest)
	return strings.ToUpper(string(first[:min(len(first), 32)]) + " " + string(second[:min(len(second), 32)]))
}

// nextWord takes a word and the blanks around it off the text.
func nextWord(text []byte) (word, rest []byte) {
	text = bytes.TrimLeft(text, " \t\r\n")
	n := bytes.IndexAny(text, " \t\r\n`=")
	if n < 0 {
		n = len(text)
	}
	return text[:n], text[n:]
}

// unknownColumns are the watched tables whose columns are not known.
func (r *Reader) unknownColumns() []*watchedTable {
	var out []*watchedTable
	for i := range r.watched.tables {
		t := &r.watched.tables[i]
		if columns, _ := r.columns.current(t.name); columns == nil {
			out = append(out, t)
		}
	}
	return out
}

// lookUpDue asks for columns that are not known before a row needs them: the sooner, the smaller the chance that they have changed again. That it
// fails is said when a row needs them.
func (r *Reader) lookUpDue() {
	r.lookupDue = false
	if tables := r.unknownColumns(); len(tables) > 0 {
		if why, err := r.lookUp(tables, r.seen); err != nil || len(why) > 0 {
			for _, reason := range why {
				err = errors.Join(err, reason)
			}
			r.log.Debug("columns cannot be had yet", "err", err)
		}
	}
}

// name gives a TABLE_MAP without names those that the table's columns had when its rows were written.
func (r *Reader) name(t *event.Table) error {
	w := r.watched.find([]byte(t.Schema), []byte(t.Name))
	columns, since := r.columns.current(w.name)
	if columns == nil {
		from := r.seen.Clone()
		from.Add(r.group.gtid)
		why, err := r.lookUp([]*watchedTable{w}, from)
		if err != nil {
			return err
		}
		if reason := why[w]; reason != nil {
			return r.unnamed(w, since, reason)
		}
		columns, _ = r.columns.current(w.name)
	}
	if err := nameColumns(t, columns); err != nil {
		return r.unnamed(w, since, err)
	}
	return nil
}

func (r *Reader) unnamed(t *watchedTable, since gtid.GTID, reason error) error {
	detail := fmt.Sprintf("the binlog names no columns (binlog_row_metadata=MINIMAL) and which ones %s had when a row was written is not known", t.name)
	if since != (gtid.GTID{}) {
		detail += fmt.Sprintf(" since transaction %s may have changed them", since)
	}
	return r.stop(ReasonColumnsUnknown, detail,
		"SET PERSIST binlog_row_metadata = 'FULL'; helps for rows written from then on; publish this transaction's rows by hand and set the checkpoint behind it", reason)
}

// deniedError says that the columns of a table may not be seen.
type deniedError struct {
	name TableName
	user string
}

func (e *deniedError) Error() string {
	return fmt.Sprintf("the user may not read the table: run GRANT SELECT ON %s.%s TO '%s'@'%%'", QuoteName(e.name.Schema), QuoteName(e.name.Name), e.user)
}

// lookUp asks the server for the columns of tables and puts those into the memory that are sure to hold at position from. The others are in the
// result, with the reason. The error is one of the connection.
func (r *Reader) lookUp(tables []*watchedTable, from *gtid.Set) (map[*watchedTable]error, error) {
	r.o.BeforeWait()
	l := r.conn.login
	why := map[*watchedTable]error{}
	found := map[*watchedTable][]event.Column{}
	executed, err := func() (*gtid.Set, error) {
		c, err := Dial(r.ctx, l)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		for _, t := range tables {
			if found[t], err = r.askColumns(c, t.name); err != nil {
				var denied *deniedError
				if !errors.As(err, &denied) && !errors.Is(err, errNoTable) {
					return nil, err
				}
				why[t] = err
			}
		}
		return c.Executed(r.ctx, lookupTimeout)
	}()
	if err != nil {
		return nil, fmt.Errorf("asking %s for the columns of outbox tables: %w", l.At(), err)
	}
	a := &ahead{found: map[*watchedTable]change{}}
	for _, t := range tables {
		if why[t] == nil {
			a.tables = append(a.tables, t)
		}
	}
	if len(a.tables) > 0 && !from.ContainsSet(executed) {
		if err := r.lookAhead(a, from); err != nil {
			return nil, fmt.Errorf("searching the binlog for changes of columns: %w", err)
		}
	}
	for _, t := range a.tables {
		if c, changed := a.found[t]; changed {
			why[t] = fmt.Errorf("%s in transaction %s may have changed them", c.verb, c.gtid)
			continue
		}
		r.columns.learnt(t.name, found[t])
		r.log.Info("columns learnt from the server, since the binlog does not name them", "table", t.name.String(), "columns", len(found[t]))
	}
	return why, nil
}

var errNoTable = errors.New("the server has no such table now")

// askColumns asks for the columns of a table such that every statement that has to do with the answer is in gtid_executed afterwards, and that
// of a statement which is in the binlog already the outcome is seen: opening a table waits for the one who changes it, and information_schema does not.
func (r *Reader) askColumns(c *Conn, name TableName) ([]event.Column, error) {
	if r.server.FoldCase {
		name = TableName{strings.ToLower(name.Schema), strings.ToLower(name.Name)}
	}
	var columns []event.Column
	open := "SELECT 1 FROM " + QuoteName(name.Schema) + "." + QuoteName(name.Name) + " LIMIT 0"
	for _, ask := range []func() error{
		func() error { _, err := c.Rows(r.ctx, lookupTimeout, open); return err },
		func() (err error) { columns, err = c.Columns(r.ctx, lookupTimeout, name); return err },
		func() error { _, err := c.Rows(r.ctx, lookupTimeout, open); return err },
	} {
		switch err := ask(); {
		case err == nil:
		case TableDenied(err):
			return nil, &deniedError{name: name, user: r.o.Login.User}
		case TableMissing(err):
			return nil, errNoTable
		default:
			return nil, err
		}
	}
	if len(columns) == 0 {
		return nil, errNoTable
	}
	return columns, nil
}

// lookAhead reads the binlog from a position to what is executed now, on a connection of its own, for statements that may change columns. It ends
// early once there is one for each table.
func (r *Reader) lookAhead(a *ahead, from *gtid.Set) error {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	o := r.o
	o.Name += " looking ahead" // a replica UUID of its own: it must not end the dump of the relay
	o.Login, o.Addresses, o.ServerID, o.Start, o.Columns = r.conn.login, []string{r.conn.login.Address}, 0, from, nil
	o.Place = r.place // not that of the start, which may be far behind
	o.IgnoreStatementWrites, o.SkipUnknownXA = true, true
	o.BeforeWait, o.Linger, o.Allowed, o.Registerer, o.Logger = nil, 0, nil, nil, slog.New(slog.DiscardHandler)
	s, err := New(o)
	if err != nil {
		return err
	}
	defer s.Close()
	s.watched, s.ahead = watched{}, a
	for len(a.found) < len(a.tables) {
		tx, err := s.Next(ctx)
		if err != nil {
			return err
		}
		if tx.CaughtUp {
			return nil
		}
	}
	return nil
}
