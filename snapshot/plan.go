package snapshot

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/event"
)

// Table says how a table is read.
type Table struct {
	Name    binlog.TableName
	ID      string // its name in the progress; empty for that of Name
	Where   string // a condition in SQL that rows have to meet; empty for all
	OrderBy string // a column by which rows are read; empty for the key alone
	Chunk   int    // rows that one statement reads at most; 0 means DefaultChunk
	// JSONTypes asks for the types of values within JSON whose text does not tell them. It costs a statement for each row with one that may be of
	// another type; see jsonb.Unsure.
	JSONTypes bool
}

func (t *Table) id() string {
	if t.ID == "" {
		return t.Name.String()
	}
	return t.ID
}

// DefaultChunk is how many rows one statement reads at most.
const DefaultChunk = 10_000

// askTimeout is for one small statement.
const askTimeout = 30 * time.Second

// plan is how a table is read as it is at a moment.
type plan struct {
	table *event.Table
	key   []keyColumn // OrderBy, then the unique key
	own   int         // where the unique key begins in key
	large []int       // columns whose values may be large
	index string      // of the key; empty with OrderBy, which may have none
}

// names are the columns of the key.
func (p *plan) names() []string {
	var names []string
	for i := range p.key {
		names = append(names, p.key[i].Name)
	}
	return names
}

// Fault is a table that cannot be read as it is configured.
type Fault struct {
	Table        string
	What, Advice string
}

func (f *Fault) Error() string { return "table " + f.Table + " " + f.What + "; " + f.Advice }

// makePlan asks the server how a table is made. It gives nil without the table.
func makePlan(ctx context.Context, c *binlog.Conn, t *Table) (*plan, error) {
	columns, err := c.Columns(ctx, askTimeout, t.Name)
	if err != nil || len(columns) == 0 {
		return nil, err
	}
	p := &plan{table: &event.Table{Schema: t.Name.Schema, Name: t.Name.Name, Columns: columns, HasNames: true, HasSigns: true}}
	find := func(name string) int {
		return slices.IndexFunc(columns, func(c event.Column) bool { return strings.EqualFold(c.Name, name) })
	}
	if t.OrderBy != "" {
		i := find(t.OrderBy)
		if i < 0 {
			return nil, &Fault{t.Name.String(), "has no column " + strconv.Quote(t.OrderBy), "correct snapshot.order_by"}
		}
		p.key, p.own = []keyColumn{{&columns[i], i}}, 1
		if !p.key[0].usable() {
			return nil, &Fault{t.Name.String(), fmt.Sprintf("cannot be read in the order of column %q, which is %s", columns[i].Name, columns[i].Type), "set snapshot.order_by to another column"}
		}
	}
	rows, err := c.Rows(ctx, askTimeout, fmt.Sprintf(`SELECT INDEX_NAME, COLUMN_NAME, NULLABLE FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0 ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX`,
		binlog.Literal(t.Name.Schema), binlog.Literal(t.Name.Name)))
	if err != nil {
		return nil, err
	}
	index, key := firstKey(rows, columns, find)
	if len(key) == 0 {
		return nil, &Fault{t.Name.String(), "has no primary key and no unique key of columns that are NOT NULL, so it cannot be read in chunks",
			"add one, such as ALTER TABLE " + t.Name.String() + " ADD COLUMN outbox_seq BIGINT UNSIGNED NOT NULL AUTO_INCREMENT INVISIBLE UNIQUE, or publish its rows by hand and start from latest"}
	}
	for _, k := range key {
		if t.OrderBy == "" || k.index != p.key[0].index {
			p.key = append(p.key, k)
		}
	}
	if t.OrderBy == "" {
		p.index = index
	} else if len(p.key) == 1 {
		p.own = 0 // the column is the key
	}
	for i := range columns {
		switch columns[i].Type {
		case event.ColumnJSON, event.ColumnGeometry, event.ColumnVector:
			p.large = append(p.large, i)
		case event.ColumnBlob:
			if columns[i].Meta > 1 {
				p.large = append(p.large, i)
			}
		}
	}
	return p, nil
}

// firstKey gives the first index whose columns can serve as a key: the primary one if there is.
func firstKey(rows [][]string, columns []event.Column, find func(string) int) (string, []keyColumn) {
	for from := 0; from < len(rows); {
		to := from
		var key []keyColumn
		ok := true
		for ; to < len(rows) && rows[to][0] == rows[from][0]; to++ {
			i := find(rows[to][1]) // none for an expression
			if ok = ok && i >= 0 && rows[to][2] != "YES"; !ok {
				continue
			}
			k := keyColumn{&columns[i], i}
			ok = k.usable()
			key = append(key, k)
		}
		if ok {
			return rows[from][0], key
		}
		from = to
	}
	return "", nil
}

// commitOrder reports whether the order of the key is about that of the inserts: an AUTO_INCREMENT column, or the user's choice.
func commitOrder(ctx context.Context, c *binlog.Conn, t *Table, p *plan) (bool, error) {
	if t.OrderBy != "" {
		return true, nil
	}
	extra, err := c.Query(ctx, askTimeout, fmt.Sprintf("SELECT EXTRA FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND COLUMN_NAME = %s",
		binlog.Literal(t.Name.Schema), binlog.Literal(t.Name.Name), binlog.Literal(p.key[0].Name)))
	return strings.Contains(strings.ToLower(extra), "auto_increment"), err
}

// from is the FROM of all statements.
func (p *plan) from() string {
	out := " FROM " + binlog.QuoteName(p.table.Schema) + "." + binlog.QuoteName(p.table.Name)
	if p.index != "" {
		out += " FORCE INDEX (" + binlog.QuoteName(p.index) + ")"
	}
	return out
}

// selected is what is selected of a column so that value.AppendImage takes it.
func selected(c *event.Column) string {
	name := binlog.QuoteName(c.Name)
	switch c.Type {
	case event.ColumnFloat, event.ColumnDouble:
		return name + "*1e0"
	case event.ColumnEnum, event.ColumnSet:
		return "CAST(" + name + " AS UNSIGNED)"
	}
	return name
}

// keyList selects the columns of the key, and order sorts by them.
func (p *plan) keyList() string {
	var out []string
	for i := range p.key {
		out = append(out, selected(p.key[i].Column))
	}
	return strings.Join(out, ", ")
}

func (p *plan) order(direction string) string {
	var out []string
	for i := range p.key {
		out = append(out, p.key[i].expression()+direction)
	}
	return " ORDER BY " + strings.Join(out, ", ")
}

// lastStatement selects the key of the last row.
func (p *plan) lastStatement() string {
	return "SELECT " + p.keyList() + p.from() + p.order(" DESC") + " LIMIT 1"
}

// endStatement selects the key of the row that ends a chunk, for tables of which not all rows are wanted: how many of them are looked at must not depend
// on how many are found.
func (p *plan) endStatement(conditions []string, chunk int) string {
	return "SELECT " + p.keyList() + p.from() + where(conditions) + p.order("") + " LIMIT 1 OFFSET " + strconv.Itoa(chunk-1)
}

// statement selects the rows of a chunk: the columns, and where values may be large, their bytes in all and, for a row beyond the limit, of each of them
// (-1 for NULL). Of such a row only values up to event.KeptValue are given: it is never in memory here.
func (p *plan) statement(conditions []string, chunk int, rowLimit int64) string {
	var sum, each []string
	for _, i := range p.large {
		c := &p.table.Columns[i]
		sum = append(sum, "IFNULL("+sizeOf(c)+", 0)")
		each = append(each, "IFNULL("+sizeOf(c)+", -1)")
	}
	all := strings.Join(sum, "+")
	var list []string
	for i := range p.table.Columns {
		c := &p.table.Columns[i]
		one := selected(c)
		if slices.Contains(p.large, i) {
			one = fmt.Sprintf("IF(%s > %d AND %s > %d, NULL, %s)", all, rowLimit, sizeOf(c), event.KeptValue, one)
		}
		list = append(list, one)
	}
	if len(p.large) > 0 {
		list = append(list, all, fmt.Sprintf("IF(%s > %d, CONCAT_WS(',', %s), NULL)", all, rowLimit, strings.Join(each, ", ")))
	}
	return "SELECT " + strings.Join(list, ", ") + p.from() + where(conditions) + p.order("") + " LIMIT " + strconv.Itoa(chunk)
}

// sizeOf is the size of a value in a row image, without its length.
func sizeOf(c *event.Column) string {
	if c.Type == event.ColumnJSON {
		return "JSON_STORAGE_SIZE(" + binlog.QuoteName(c.Name) + ")"
	}
	return "OCTET_LENGTH(" + binlog.QuoteName(c.Name) + ")"
}

func where(conditions []string) string {
	if len(conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(conditions, " AND ")
}
