package preflight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"outbox-relay/binlog/event"
	"outbox-relay/router"
)

// tables looks at each outbox table with the eyes of the router.
func (q *source) tables(ctx context.Context) {
	rules, err := router.New(router.Options{Rules: q.plan.Rules, FoldCase: q.server.FoldCase})
	if err != nil {
		q.add(Unknown, "tables", "the rules cannot be compiled: %v", err)
		return
	}
	for _, name := range rules.Tables() {
		q.table(ctx, rules, name)
	}
}

func (q *source) table(ctx context.Context, rules *router.Router, name router.TableName) {
	label := "table " + name.String()
	if q.server.FoldCase {
		name = router.TableName{Schema: strings.ToLower(name.Schema), Name: strings.ToLower(name.Name)}
	}
	if _, err := q.ask(ctx, "SELECT 1 FROM "+quoteName(name.Schema)+"."+quoteName(name.Name)+" LIMIT 0"); err != nil {
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
	if !engine.transactional {
		q.add(Warning, label, "its engine %s has no transactions: rows of a transaction that rolls back are published all the same", engine.name).
			do("use InnoDB", "ALTER TABLE "+quoteName(name.Schema)+"."+quoteName(name.Name)+" ENGINE=InnoDB;")
		return
	}
	q.add(OK, label, "%d columns suit the rules, engine %s", len(t.Columns), engine.name)
}

const (
	codeDatabaseDenied = 1044 // ER_DBACCESS_DENIED_ERROR
	codeTableDenied    = 1142 // ER_TABLEACCESS_DENIED_ERROR
)

func (q *source) noTable(label string, name router.TableName, err error) {
	var my *mysql.MyError
	switch {
	case !errors.As(err, &my):
		q.add(Unknown, label, "it cannot be looked at: %v", err)
	case my.Code == codeTableDenied || my.Code == codeDatabaseDenied:
		q.add(Unknown, label, "its columns cannot be compared with the rules: user %q may not read it, which a run does not need", q.login.User).
			do("to check it too, let the user read it", fmt.Sprintf("GRANT SELECT ON %s.%s TO %s;", quoteName(name.Schema), quoteName(name.Name), q.account))
	case my.Code == mysql.ER_NO_SUCH_TABLE || my.Code == mysql.ER_BAD_DB_ERROR:
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
	where := fmt.Sprintf("TABLE_SCHEMA = %s AND TABLE_NAME = %s", literal(name.Schema), literal(name.Name))
	rows, err := q.ask(ctx, "SELECT TABLE_TYPE, IFNULL(ENGINE, ''), IFNULL((SELECT TRANSACTIONS FROM information_schema.ENGINES e WHERE e.ENGINE = t.ENGINE), '') FROM information_schema.TABLES t WHERE "+where)
	if err != nil {
		return nil, engine, err
	}
	if len(rows) == 0 {
		return nil, engine, errors.New("information_schema does not list the table")
	}
	engine = tableEngine{name: rows[0][1], transactional: rows[0][2] == "YES", view: strings.Contains(rows[0][0], "VIEW")}
	rows, err = q.ask(ctx, `SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLUMN_KEY, IFNULL(ID, 0), IFNULL(NUMERIC_PRECISION, 0), IFNULL(NUMERIC_SCALE, 0)
FROM information_schema.COLUMNS LEFT JOIN information_schema.COLLATIONS USING (COLLATION_NAME) WHERE `+where+" ORDER BY ORDINAL_POSITION")
	if err != nil {
		return nil, engine, err
	}
	t := &event.Table{Schema: name.Schema, Name: name.Name, HasNames: true, HasSigns: true}
	for _, r := range rows {
		t.Columns = append(t.Columns, column(r))
	}
	return t, engine, nil
}

// columnTypes are the types of DATA_TYPE in a TABLE_MAP.
var columnTypes = map[string]event.ColumnType{
	"tinyint": event.ColumnTiny, "smallint": event.ColumnShort, "mediumint": event.ColumnInt24, "int": event.ColumnLong, "bigint": event.ColumnLongLong,
	"decimal": event.ColumnDecimal, "float": event.ColumnFloat, "double": event.ColumnDouble, "bit": event.ColumnBit,
	"date": event.ColumnDate, "time": event.ColumnTime, "datetime": event.ColumnDatetime, "timestamp": event.ColumnTimestamp, "year": event.ColumnYear,
	"char": event.ColumnString, "binary": event.ColumnString, "varchar": event.ColumnVarchar, "varbinary": event.ColumnVarchar,
	"tinytext": event.ColumnBlob, "text": event.ColumnBlob, "mediumtext": event.ColumnBlob, "longtext": event.ColumnBlob,
	"tinyblob": event.ColumnBlob, "blob": event.ColumnBlob, "mediumblob": event.ColumnBlob, "longblob": event.ColumnBlob,
	"json": event.ColumnJSON, "enum": event.ColumnEnum, "set": event.ColumnSet, "vector": event.ColumnVector,
	"geometry": event.ColumnGeometry, "point": event.ColumnGeometry, "linestring": event.ColumnGeometry, "polygon": event.ColumnGeometry,
	"multipoint": event.ColumnGeometry, "multilinestring": event.ColumnGeometry, "multipolygon": event.ColumnGeometry,
	"geomcollection": event.ColumnGeometry, "geometrycollection": event.ColumnGeometry,
}

var binaryTypes = []string{"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"}

// column makes a column of a row of information_schema.COLUMNS. Lengths are left out: a rule does not depend on them.
func column(r []string) event.Column {
	name, data, full := r[0], strings.ToLower(r[1]), strings.ToLower(r[2])
	typ, ok := columnTypes[data]
	if !ok {
		typ = event.ColumnTypedArray // of which no value can be read
	}
	c := event.Column{Name: name, Type: typ, Nullable: r[3] == "YES", PrimaryKey: r[4] == "PRI", Visible: true}
	c.Unsigned = typ.IsNumeric() && strings.Contains(full, "unsigned")
	if id, err := strconv.ParseUint(r[5], 10, 16); err == nil {
		c.Collation = uint16(id)
	}
	if slices.Contains(binaryTypes, data) {
		c.Collation = event.CollationBinary
	}
	switch typ {
	case event.ColumnEnum, event.ColumnSet:
		c.Members = []string{full} // that there are some is what counts
	case event.ColumnDecimal:
		precision, _ := strconv.Atoi(r[6])
		scale, _ := strconv.Atoi(r[7])
		c.Meta = uint16(precision<<8 | scale)
	}
	return c
}

func quoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// literal makes a string literal that is the same in every sql_mode.
func literal(s string) string { return fmt.Sprintf("CONVERT(x'%x' USING utf8mb4)", s) }
