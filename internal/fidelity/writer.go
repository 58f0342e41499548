package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
)

// writer writes random rows and notes what SELECT prints for them, inside of the transaction and before anything changes them.
type writer struct {
	c       *connection
	r       *rand.Rand
	palette *palette
	judge   *judge
	xa      int
	pending []pending // of the open transaction
}

type pending struct {
	table string
	n     int64
	want  *expectation
}

// fill writes about count rows into a table.
func (w *writer) fill(ctx context.Context, t *table, count int) error {
	for from := t.next; t.next-from < int64(count); {
		if err := ctx.Err(); err != nil {
			return err
		}
		if w.r.IntN(25) == 0 {
			if err := t.alter(w.c, w.palette, w.r); err != nil {
				return err
			}
		}
		if err := w.transaction(t); err != nil {
			return err
		}
	}
	if w.r.IntN(4) == 0 {
		return w.selectIntoNew(t)
	}
	return nil
}

// selectIntoNew creates a table with rows in it in one statement.
func (w *writer) selectIntoNew(t *table) error {
	name := t.name + "_new"
	if err := w.c.exec("SET SESSION sql_generate_invisible_primary_key=0", fmt.Sprintf("CREATE TABLE %s AS SELECT %s FROM %s LIMIT 20", name, t.layout.list(), t.name)); err != nil {
		return err
	}
	l, err := loadLayout(w.c, name)
	if err != nil {
		return err
	}
	if err := w.capture(name, l, -t.next, t.next, true, "CREATE TABLE … SELECT"); err != nil {
		return err
	}
	w.settle(true)
	return nil
}

// transaction writes one to three statements in one of the ways that transactions have.
func (w *writer) transaction(t *table) error {
	r := w.r
	compressed := r.IntN(2)
	session := fmt.Sprintf("SET SESSION binlog_transaction_compression=%d, binlog_rows_query_log_events=%d, sql_mode='%s'", compressed, r.IntN(2), []string{"", "ALLOW_INVALID_DATES"}[r.IntN(2)])
	kind, begin, end, keep := "single statement", "", []string(nil), true
	switch n := r.IntN(20); {
	case n < 3:
	case n < 5:
		w.xa++
		name := fmt.Sprintf("'fidelity%d'", w.xa)
		kind, begin, keep = "XA", "XA START "+name, r.IntN(4) != 0
		end = []string{"XA END " + name, "XA PREPARE " + name, map[bool]string{true: "XA COMMIT ", false: "XA ROLLBACK "}[keep] + name}
	case n < 7:
		kind, begin, end, keep = "BEGIN", "BEGIN", []string{"ROLLBACK"}, false
	default:
		kind, begin, end = "BEGIN", "BEGIN", []string{"COMMIT"}
	}
	w.judge.report.kinds[kind+map[bool]string{true: " committed", false: " rolled back"}[keep]]++
	if keep && compressed == 1 {
		w.judge.report.kinds["of these compressed"]++
	}
	if err := w.c.exec(session); err != nil {
		return err
	}
	if begin != "" {
		if err := w.c.exec(begin); err != nil {
			return err
		}
	}
	for range 1 + r.IntN(3) {
		undo := begin == "BEGIN" && r.IntN(6) == 0
		mark := len(w.pending)
		if undo {
			if err := w.c.exec("SAVEPOINT s"); err != nil {
				return err
			}
		}
		if err := w.statement(t); err != nil {
			return err
		}
		if undo {
			w.judge.report.kinds["rolled back to a savepoint"]++
			w.pending = w.pending[:mark]
			if err := w.c.exec("ROLLBACK TO s"); err != nil {
				return err
			}
		}
		if begin == "" {
			break
		}
	}
	if err := w.c.exec(end...); err != nil {
		return err
	}
	w.settle(keep)
	return nil
}

// settle ends the open transaction: its rows are expected, or must not come.
func (w *writer) settle(keep bool) {
	if keep {
		for _, p := range w.pending {
			w.judge.expect(p)
		}
	}
	w.pending = w.pending[:0]
}

// way is how a statement writes rows.
type way struct {
	name, verb, suffix string
	conflicts          bool // keys that exist already are among its rows
}

var ways = []way{
	{name: "INSERT", verb: "INSERT INTO"}, {name: "INSERT", verb: "INSERT INTO"},
	{name: "REPLACE", verb: "REPLACE INTO", conflicts: true},
	{name: "ON DUPLICATE KEY UPDATE", verb: "INSERT INTO", suffix: " ON DUPLICATE KEY UPDATE %s = VALUES(%[1]s)", conflicts: true},
	{name: "INSERT IGNORE", verb: "INSERT IGNORE INTO", conflicts: true},
}

// statement writes rows, and sometimes changes or deletes older ones.
func (w *writer) statement(t *table) error {
	r := w.r
	if err := w.c.exec("SET time_zone='" + []string{"+00:00", "+05:30", "-11:00"}[r.IntN(3)] + "'"); err != nil {
		return err
	}
	first, conflict := t.next, false
	var text, name string
	if t.next > 30 && r.IntN(5) == 0 {
		text, name = w.copyRows(t), "INSERT … SELECT"
	} else {
		text, name, conflict = w.writeRows(t)
	}
	if err := w.c.exec(text); err != nil {
		return fmt.Errorf("%w, for\n%s", err, t.layout.ddl)
	}
	last := t.next - 1
	must := !conflict || !t.unique || t.deleteTrigger || name != "REPLACE"
	if err := w.capture(t.name, t.layout, first, last, must, name); err != nil {
		return err
	}
	if t.mirror != "" {
		if err := w.capture(t.mirror, t.mirrorLayout, first, last, true, "trigger"); err != nil {
			return err
		}
	}
	if from := 1 + r.Int64N(t.next); r.IntN(6) == 0 {
		return w.c.exec([]string{
			fmt.Sprintf("UPDATE %s SET n = -n WHERE n BETWEEN %d AND %d", t.name, from, from+3),
			fmt.Sprintf("DELETE FROM %s WHERE n BETWEEN %d AND %d", t.name, from, from+3),
		}[r.IntN(2)])
	}
	return nil
}

// copyRows makes a statement that writes copies of up to 20 rows.
func (w *writer) copyRows(t *table) string {
	count := 1 + w.r.Int64N(20)
	from := 1 + w.r.Int64N(t.next-count)
	offset := t.next - from
	into, values := "n,k", fmt.Sprintf("n+%d,n+%d", offset, offset)
	for _, col := range t.columns {
		if col.generated == "" {
			into += "," + quote(col.name)
			values += "," + quote(col.name)
		}
	}
	t.next += count
	for n := from; n < from+count; n++ {
		t.keys = append(t.keys, n+offset)
	}
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM %s WHERE n BETWEEN %d AND %d", t.name, into, values, t.name, from, from+count-1)
}

// writeRows makes a statement that writes up to 25 rows of random values, and tells whether keys that were used before are among them.
func (w *writer) writeRows(t *table) (text, name string, conflict bool) {
	r := w.r
	how := ways[r.IntN(len(ways))]
	named := []string{"n", "k"}
	var cols []*column
	for _, col := range t.columns {
		mayLack := col.hasDefault || !col.notNull || !col.noImplicit
		if col.generated == "" && !(mayLack && r.IntN(7) == 0) {
			cols, named = append(cols, col), append(named, quote(col.name))
		}
	}
	count := 1 + r.IntN(25)
	asSelect := r.IntN(5) == 0
	if asSelect {
		count = 1
	}
	used := map[int64]bool{}
	var rows []string
	var fresh []int64
	for range count {
		key := t.next
		if how.conflicts && len(t.keys) > 0 && r.IntN(4) == 0 {
			if old := t.keys[r.IntN(len(t.keys))]; !used[old] {
				key, conflict = old, true
			}
		}
		used[key] = true
		fresh = append(fresh, key)
		values := []string{fmt.Sprint(t.next), fmt.Sprint(key)}
		for _, col := range cols {
			values = append(values, col.expression(r, !asSelect))
		}
		rows = append(rows, strings.Join(values, ","))
		t.next++
	}
	t.keys = append(t.keys, fresh...)
	text = fmt.Sprintf("%s %s (%s) ", how.verb, t.name, strings.Join(named, ","))
	if asSelect {
		text += "SELECT " + rows[0]
	} else {
		text += "VALUES (" + strings.Join(rows, "),(") + ")"
	}
	if how.suffix != "" {
		target := "k"
		if len(cols) > 0 {
			target = quote(cols[r.IntN(len(cols))].name)
		}
		text += fmt.Sprintf(how.suffix, target)
	}
	return text, how.name, conflict
}

// capture notes what SELECT prints for the rows first to last.
func (w *writer) capture(name string, l *layout, first, last int64, must bool, how string) error {
	if err := w.c.exec("SET time_zone='+00:00'"); err != nil {
		return err
	}
	rows, err := w.c.query(fmt.Sprintf("SELECT n, %s FROM %s WHERE n BETWEEN %d AND %d", l.list(), name, first, last))
	if err != nil {
		return err
	}
	for _, row := range rows {
		var n int64
		if _, err := fmt.Sscan(*row[0], &n); err != nil {
			return fmt.Errorf("number of a row of %s: %w", name, err)
		}
		w.pending = append(w.pending, pending{name, n, &expectation{layout: l, cells: row[1:], must: must, how: how}})
	}
	return nil
}
