package preflight

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
	"outbox-relay/router"
	"outbox-relay/snapshot"
)

// tables looks at each outbox table with the eyes of the router.
func (q *source) tables(ctx context.Context) {
	rules, err := router.New(router.Options{Rules: q.plan.Rules, FoldCase: q.server.FoldCase})
	if err != nil {
		q.add(Unknown, "tables", "the rules cannot be compiled: %v", err)
		return
	}
	seen := map[router.TableName]bool{}
	for _, name := range rules.Tables() {
		if name.IsPattern() {
			q.pattern(ctx, rules, name, seen)
		} else {
			seen[name] = true
			q.table(ctx, rules, name)
		}
	}
}

// pattern looks at the tables that a pattern stands for now and that no rule before has brought up.
func (q *source) pattern(ctx context.Context, rules *router.Router, name router.TableName, seen map[router.TableName]bool) {
	label := "tables " + name.String()
	found, err := q.conn.MatchingTables(ctx, statementTimeout, binlog.TableName{Schema: name.Schema, Name: name.Name}, q.server.FoldCase)
	if err != nil {
		q.add(Unknown, label, "%v", err)
		return
	}
	if len(found) == 0 {
		q.add(Warning, label, "no table that user %q may see matches now; rows are taken as soon as one does", q.login.User).
			do("correct the pattern, in which % is any run of characters and _ is itself, or let the user read the tables to check them", tableGrant(name).SQL(q.account))
		return
	}
	const most = 20
	names := make([]string, 0, len(found))
	for _, t := range found {
		names = append(names, router.TableName{Schema: t.Schema, Name: t.Name}.String())
	}
	q.add(OK, label, "%d match now: %s%s", len(found), strings.Join(names[:min(most, len(names))], ", "), map[bool]string{true: ", ..."}[len(names) > most])
	for _, t := range found {
		if one := (router.TableName{Schema: t.Schema, Name: t.Name}); !seen[one] {
			seen[one] = true
			q.table(ctx, rules, one)
		}
	}
}

func (q *source) table(ctx context.Context, rules *router.Router, name router.TableName) {
	label := "table " + name.String()
	if q.server.FoldCase {
		name = router.TableName{Schema: strings.ToLower(name.Schema), Name: strings.ToLower(name.Name)}
	}
	if _, err := q.ask(ctx, "SELECT 1 FROM "+binlog.QuoteName(name.Schema)+"."+binlog.QuoteName(name.Name)+" LIMIT 0"); err != nil {
		q.noTable(label, name, err)
		return
	}
	t, engine, err := q.describe(ctx, name)
	if err != nil {
		q.add(Unknown, label, "its columns cannot be read: %v", err)
		return
	}
	if engine.view {
		q.add(Failed, label, "it is a view, and the binlog holds rows of tables only").do("name the table behind the view")
		return
	}
	if _, err := rules.Bind(t); err != nil {
		for _, one := range separate(err) {
			q.add(Failed, label, "%v", one).do("correct the rule or the table")
		}
		return
	}
	q.plain(ctx, label, name)
	if !engine.transactional {
		q.add(Warning, label, "its engine %s has no transactions: rows of a transaction that rolls back are published all the same", engine.name).
			do("use InnoDB", "ALTER TABLE "+binlog.QuoteName(name.Schema)+"."+binlog.QuoteName(name.Name)+" ENGINE=InnoDB;")
		return
	}
	q.add(OK, label, "%d columns suit the rules, engine %s", len(t.Columns), engine.name)
}

// snapshot looks at the tables of which the rows that exist are read.
func (q *source) snapshot(ctx context.Context) {
	if len(q.plan.Snapshot) == 0 {
		return
	}
	var tables []snapshot.Table
	for _, t := range q.plan.Snapshot {
		if !t.Name.IsPattern() {
			tables = append(tables, t)
			continue
		}
		matching, err := q.conn.MatchingTables(ctx, statementTimeout, t.Name, q.server.FoldCase)
		if err != nil {
			q.add(Unknown, "snapshot of "+t.Name.String(), "%v", err)
		}
		for _, name := range matching {
			t.Name, t.ID = name, ""
			tables = append(tables, t)
		}
	}
	found, err := snapshot.Check(ctx, q.login, tables)
	if err != nil {
		q.add(Unknown, "snapshot", "the tables cannot be looked at: %v", err)
		return
	}
	for _, f := range found {
		label := "snapshot of " + f.Table
		var fault *snapshot.Fault
		switch {
		case errors.As(f.Err, &fault):
			q.add(Failed, label, "it %s", fault.What).do(fault.Advice)
		case !f.Exists: // the item of the table itself says so
		case !f.Ordered:
			q.add(Warning, label, "its rows are published in the order of %s, which is not AUTO_INCREMENT: not in the order of their commits", strings.Join(f.Key, ", ")).
				do("name a column that tells the order of the commits, with an index, in snapshot.order_by")
		default:
			q.add(OK, label, "its rows are read in the order of %s", strings.Join(f.Key, ", "))
		}
	}
}

// plain looks for columns that SELECT prints in a way which the binlog does not tell: it has their numbers only.
func (q *source) plain(ctx context.Context, label string, name router.TableName) {
	rows, err := q.ask(ctx, fmt.Sprintf(`SELECT COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
 AND (COLUMN_TYPE LIKE '%%zerofill%%' AND DATA_TYPE NOT IN ('enum', 'set') OR DATA_TYPE IN ('float', 'double') AND NUMERIC_SCALE IS NOT NULL)`, binlog.Literal(name.Schema), binlog.Literal(name.Name)))
	if err != nil {
		return // the item of the table itself says so
	}
	for _, r := range rows {
		q.add(Warning, label, "column %s is %s: its number is published without the zeros that SELECT adds", r[0], r[1]).do("where a rule uses it, give it a type that is not deprecated: DECIMAL, or an integer without ZEROFILL")
	}
}

func (q *source) noTable(label string, name router.TableName, err error) {
	var my *mysql.MyError
	switch {
	case !errors.As(err, &my):
		q.add(Unknown, label, "it cannot be looked at: %v", err)
	case binlog.TableDenied(err) && q.server.RowMetadata != "FULL":
		q.add(Failed, label, "user %q may not read it, and while the binlog does not name the columns the relay has to ask for them", q.login.User).
			do("let the user read it, or set binlog_row_metadata", fmt.Sprintf("GRANT SELECT ON %s.%s TO %s;", binlog.QuoteName(name.Schema), binlog.QuoteName(name.Name), q.account))
	case binlog.TableDenied(err):
		q.add(Unknown, label, "its columns cannot be compared with the rules: user %q may not read it, which a run does not need", q.login.User).
			do("to check it too, let the user read it", fmt.Sprintf("GRANT SELECT ON %s.%s TO %s;", binlog.QuoteName(name.Schema), binlog.QuoteName(name.Name), q.account))
	case binlog.TableMissing(err):
		q.add(Failed, label, "there is no such table on the server").do("create it, or correct the name in tables")
	default:
		q.add(Unknown, label, "it cannot be read: %s", my.Message)
	}
}

// separate gives the errors that were joined.
func separate(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()
	}
	return []error{err}
}

// tableEngine is what information_schema says of a table as a whole.
type tableEngine struct {
	name          string
	transactional bool
	view          bool
}

// describe makes of information_schema what a TABLE_MAP with full metadata says of the table.
func (q *source) describe(ctx context.Context, name router.TableName) (*event.Table, tableEngine, error) {
	var engine tableEngine
	where := fmt.Sprintf("TABLE_SCHEMA = %s AND TABLE_NAME = %s", binlog.Literal(name.Schema), binlog.Literal(name.Name))
	rows, err := q.ask(ctx, "SELECT TABLE_TYPE, IFNULL(ENGINE, ''), IFNULL((SELECT TRANSACTIONS FROM information_schema.ENGINES e WHERE e.ENGINE = t.ENGINE), '') FROM information_schema.TABLES t WHERE "+where)
	if err != nil {
		return nil, engine, err
	}
	if len(rows) == 0 {
		return nil, engine, errors.New("information_schema does not list the table")
	}
	engine = tableEngine{name: rows[0][1], transactional: rows[0][2] == "YES", view: strings.Contains(rows[0][0], "VIEW")}
	columns, err := q.conn.Columns(ctx, statementTimeout, binlog.TableName{Schema: name.Schema, Name: name.Name})
	if err != nil {
		return nil, engine, err
	}
	t := &event.Table{Schema: name.Schema, Name: name.Name, Columns: columns, HasNames: true, HasSigns: true}
	return t, engine, nil
}
