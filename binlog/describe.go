package binlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"outbox-relay/binlog/event"
)

// Columns asks the server for the columns of a table as they are now, in the shape of a TABLE_MAP with full metadata. Without the table, or
// without a right on it, there are none. ENUM and SET members that information_schema cannot show are left out. It waits at most timeout.
func (c *Conn) Columns(ctx context.Context, timeout time.Duration, name TableName) ([]event.Column, error) {
	// A generated invisible primary key is in the row image, so it has to be listed whatever the server's default. Only servers from 8.0.30
	// on know the variable; without it there are no such keys.
	_, _ = c.Rows(ctx, timeout, "SET SESSION show_gipk_in_create_table_and_information_schema = ON")
	rows, err := c.Rows(ctx, timeout, fmt.Sprintf(`SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLUMN_KEY, IFNULL(ID, 0), IFNULL(NUMERIC_PRECISION, 0), IFNULL(NUMERIC_SCALE, 0),
 IFNULL(CHARACTER_OCTET_LENGTH, 0), IFNULL(DATETIME_PRECISION, 0), EXTRA
FROM information_schema.COLUMNS LEFT JOIN information_schema.COLLATIONS USING (COLLATION_NAME) WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION`,
		Literal(name.Schema), Literal(name.Name)))
	if err != nil {
		return nil, err
	}
	var columns []event.Column
	for _, r := range rows {
		columns = append(columns, describeColumn(r))
	}
	return columns, nil
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

// fixedMeta is Column.Meta of the types where it depends on the type alone.
var fixedMeta = map[string]uint16{
	"float": 4, "double": 8, "json": 4, "vector": 4,
	"tinytext": 1, "text": 2, "mediumtext": 3, "longtext": 4, "tinyblob": 1, "blob": 2, "mediumblob": 3, "longblob": 4,
	"geometry": 4, "point": 4, "linestring": 4, "polygon": 4, "multipoint": 4, "multilinestring": 4, "multipolygon": 4, "geomcollection": 4, "geometrycollection": 4,
}

// binaryTypes have no collation in information_schema and that of bytes in a TABLE_MAP.
var binaryTypes = []string{"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"}

// membersCollation is that of Column.Members where they come from information_schema, whose text is UTF-8: utf8mb4_0900_ai_ci.
const membersCollation = 255

// describeColumn makes a column of a row that Columns asked for.
func describeColumn(r []string) event.Column {
	number := func(i int) uint16 {
		n, _ := strconv.ParseUint(r[i], 10, 64)
		return uint16(min(n, 0xffff))
	}
	data, full := strings.ToLower(r[1]), r[2]
	typ, ok := columnTypes[data]
	if !ok {
		typ = event.ColumnTypedArray // of which no value can be read
	}
	c := event.Column{
		Name: r[0], Type: typ, Meta: fixedMeta[data], Nullable: r[3] == "YES", PrimaryKey: r[4] == "PRI", Collation: number(5),
		Visible: !strings.Contains(r[10], "INVISIBLE"),
	}
	c.Unsigned = typ == event.ColumnYear || typ.IsNumeric() && strings.Contains(strings.ToLower(full), "unsigned")
	if slices.Contains(binaryTypes, data) {
		c.Collation = event.CollationBinary
	}
	switch typ {
	case event.ColumnVarchar, event.ColumnString:
		c.Meta = number(8)
	case event.ColumnDecimal:
		c.Meta = number(6)<<8 | number(7)
	case event.ColumnBit:
		c.Meta = number(6)
	case event.ColumnTime, event.ColumnDatetime, event.ColumnTimestamp:
		c.Meta = number(9)
	case event.ColumnEnum, event.ColumnSet:
		describeMembers(&c, full)
	case event.ColumnJSON, event.ColumnGeometry:
		c.Collation = 0
	}
	return c
}

// describeMembers reads the members of an ENUM or SET out of its COLUMN_TYPE.
func describeMembers(c *event.Column, full string) {
	members, ok := parseMembers(full)
	n := len(members)
	switch {
	case c.Type == event.ColumnEnum && n > 255:
		c.Meta = 2
	case c.Type == event.ColumnEnum:
		c.Meta = 1
	case n > 32:
		c.Meta = 8
	default:
		c.Meta = uint16(n+7) / 8
	}
	c.Collation = membersCollation
	for _, m := range members {
		// The text of information_schema has three bytes per character at most and a question mark in place of the others.
		ok = ok && !strings.Contains(m, "?")
	}
	if ok {
		c.Members = members
	}
}

// parseMembers reads `enum('a','b')` as the server writes it: a quote is doubled; backslash, NUL, LF and CR stand behind a backslash.
func parseMembers(full string) (members []string, ok bool) {
	_, rest, ok := strings.Cut(full, "(")
	for ok && strings.HasPrefix(rest, "'") {
		var m strings.Builder
		i := 1
		for ; i < len(rest); i++ {
			b := rest[i]
			if b == '\'' {
				if !strings.HasPrefix(rest[i+1:], "'") {
					break
				}
				i++
			} else if b == '\\' && i+1 < len(rest) {
				i++
				b = rest[i]
				if at := strings.IndexByte("0nr", b); at >= 0 {
					b = "\x00\n\r"[at]
				}
			}
			m.WriteByte(b)
		}
		if i >= len(rest) {
			return members, false
		}
		members, rest = append(members, m.String()), rest[i+1:]
		if rest == ")" || strings.HasPrefix(rest, ") ") {
			return members, true
		}
		rest, ok = strings.CutPrefix(rest, ",")
	}
	return members, false
}

// Codes of a server that lets the user see nothing of a table.
const (
	codeDatabaseDenied = 1044 // ER_DBACCESS_DENIED_ERROR
	codeTableDenied    = 1142 // ER_TABLEACCESS_DENIED_ERROR
	codeColumnDenied   = 1143 // ER_COLUMNACCESS_DENIED_ERROR
)

// TableDenied reports whether a server refused a statement because the user has no right on its table.
func TableDenied(err error) bool {
	return hasCode(err, codeDatabaseDenied, codeTableDenied, codeColumnDenied)
}

// TableMissing reports whether a server refused a statement because its table or the database is not there.
func TableMissing(err error) bool { return hasCode(err, mysql.ER_NO_SUCH_TABLE, mysql.ER_BAD_DB_ERROR) }

// StatementWrong reports whether a server refused a statement as it is written: at each attempt it will.
func StatementWrong(err error) bool {
	return hasCode(err, mysql.ER_PARSE_ERROR, mysql.ER_BAD_FIELD_ERROR, mysql.ER_SP_DOES_NOT_EXIST, mysql.ER_WRONG_FIELD_WITH_GROUP, mysql.ER_INVALID_GROUP_FUNC_USE,
		mysql.ER_OPERAND_COLUMNS, mysql.ER_WRONG_PARAMCOUNT_TO_NATIVE_FCT)
}

func hasCode(err error, codes ...uint16) bool {
	var my *mysql.MyError
	return errors.As(err, &my) && slices.Contains(codes, my.Code)
}

// QuoteName quotes a name for a statement.
func QuoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// Literal makes a string literal that is the same in every sql_mode.
func Literal(s string) string { return fmt.Sprintf("CONVERT(x'%x' USING utf8mb4)", s) }
