package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// table is a random table. Beside its random columns it has n, the number of the row that was written, and k, which may be a key.
type table struct {
	name          string
	columns       []*column
	unique        bool    // k is a key
	deleteTrigger bool    // a REPLACE deletes and inserts; without the trigger it may update
	mirror        string  // a trigger writes each inserted row into this table too; or empty
	next          int64   // n of the next row
	keys          []int64 // values of k that are in use, or were
	altered       int
	layout        *layout
	mirrorLayout  *layout
}

// layout is a table's columns as the server lists them.
type layout struct {
	ddl     string
	columns []listed
}

type listed struct {
	name, columnType, label, charset string
	bits                             bool
}

// list is the columns for SELECT, invisible ones too.
func (l *layout) list() string {
	var names []string
	for _, c := range l.columns {
		names = append(names, quote(c.name))
	}
	return strings.Join(names, ",")
}

// loadLayout asks the server for the columns of a table of the current database.
func loadLayout(c *connection, name string) (*layout, error) {
	rows, err := c.query("SELECT column_name, column_type, data_type, character_set_name FROM information_schema.columns WHERE table_schema=DATABASE() AND table_name='" + name + "' ORDER BY ordinal_position")
	if err != nil {
		return nil, err
	}
	l := &layout{}
	for _, row := range rows {
		col := listed{name: *row[0], columnType: *row[1], label: strings.ToUpper(*row[2]), bits: *row[2] == "bit"}
		if strings.Contains(col.columnType, " unsigned") {
			col.label += " UNSIGNED"
		}
		if row[3] != nil {
			col.charset = *row[3]
		}
		l.columns = append(l.columns, col)
	}
	ddl, err := c.query("SHOW CREATE TABLE " + quote(name))
	if err != nil {
		return nil, err
	}
	l.ddl = *ddl[0][1]
	return l, nil
}

// createTable creates a random table with its triggers.
func createTable(c *connection, p *palette, r *rand.Rand, name string) (*table, error) {
	t := &table{name: name, next: 1}
	count := 3 + r.IntN(12)
	for i := range count {
		columnName := fmt.Sprintf("c%d", i)
		if r.IntN(10) == 0 {
			columnName += ` "ä'` // a backtick makes CREATE TRIGGER fail in MySQL 9.7
		}
		t.columns = append(t.columns, p.column(r, columnName))
	}
	for i := range r.IntN(3) { // generated ones of any type
		base := t.columns[r.IntN(count)]
		// Refused by the server: over a default that stands behind, and over VECTOR. For the others see the package comment.
		if base.hasDefault || base.notNull || strings.HasPrefix(base.ddl, "VECTOR") || strings.HasPrefix(base.ddl, "DATE") {
			continue
		}
		g := *base
		g.name, g.generated, g.notNull, g.hasDefault = fmt.Sprintf("g%d", i), quote(base.name), false, false
		g.ddl, _, _ = strings.Cut(g.ddl, " SRID") // not allowed before AS
		t.columns = append(t.columns, &g)
	}
	definition := t.definition(r)
	hiddenKey := r.IntN(2) == 1 && !strings.Contains(definition, "PARTITION BY") // not together
	if err := c.exec(fmt.Sprintf("SET SESSION sql_generate_invisible_primary_key=%t", hiddenKey), definition); err != nil {
		return nil, err
	}
	var err error
	if t.layout, err = loadLayout(c, t.name); err != nil {
		return nil, err
	}
	return t, t.createTriggers(c, r)
}

// definition makes the CREATE TABLE statement and notes what it decides.
func (t *table) definition(r *rand.Rand) string {
	lines := []string{"n BIGINT NOT NULL", "k BIGINT NOT NULL"}
	spatial := false
	for _, col := range t.columns {
		lines = append(lines, col.definition(r))
		spatial = spatial || col.spatial
	}
	r.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	partitioned := !spatial && r.IntN(4) == 0
	switch r.IntN(4) {
	case 0, 1:
		t.unique = true
		lines = append(lines, "PRIMARY KEY (k)")
	case 2:
		t.unique = true
		lines = append(lines, "UNIQUE KEY (k)")
		for _, col := range t.columns {
			if col.prefix && col.notNull && col.generated == "" && !partitioned {
				lines = append(lines, "PRIMARY KEY (n, "+quote(col.name)+"(2))")
				break
			}
		}
	}
	if r.IntN(4) == 0 { // the server keeps a hidden column for each of these
		lines = append(lines, "KEY f ((n + 1))")
		for _, col := range t.columns {
			if col.document && col.generated == "" && !partitioned {
				lines = append(lines, "KEY m ((CAST("+quote(col.name)+"->'$.zones' AS UNSIGNED ARRAY)))")
				break
			}
		}
	}
	s := "CREATE TABLE " + t.name + " (\n" + strings.Join(lines, ",\n") + ") DEFAULT CHARACTER SET " + []string{"utf8mb4", "latin1", "gbk"}[r.IntN(3)]
	if partitioned {
		s += []string{" PARTITION BY KEY (k) PARTITIONS 3", " PARTITION BY HASH (k) PARTITIONS 5", " PARTITION BY RANGE (k) (PARTITION a VALUES LESS THAN (50), PARTITION b VALUES LESS THAN MAXVALUE)"}[r.IntN(3)]
	}
	return s
}

func (t *table) createTriggers(c *connection, r *rand.Rand) error {
	if r.IntN(4) == 0 {
		for _, col := range t.columns {
			if col.generated == "" && !col.notNull { // NEW is NULL where the statement left such a column out
				if err := c.exec(fmt.Sprintf("CREATE TRIGGER %s_before BEFORE INSERT ON %s FOR EACH ROW SET NEW.%s = IF(NEW.n %% 3 = 0, %s, NEW.%s)", t.name, t.name, quote(col.name), col.value(r), quote(col.name))); err != nil {
					return err
				}
				break
			}
		}
	}
	if r.IntN(4) == 0 {
		t.deleteTrigger = true
		if err := c.exec(fmt.Sprintf("CREATE TRIGGER %s_delete BEFORE DELETE ON %s FOR EACH ROW SET @deleted = OLD.n", t.name, t.name)); err != nil {
			return err
		}
	}
	if r.IntN(3) != 0 {
		return nil
	}
	t.mirror = t.name + "_mirror"
	var values []string
	for _, col := range t.layout.columns {
		values = append(values, "NEW."+quote(col.name))
	}
	if err := c.exec("SET SESSION sql_generate_invisible_primary_key=0", fmt.Sprintf("CREATE TABLE %s AS SELECT %s FROM %s WHERE FALSE", t.mirror, t.layout.list(), t.name),
		fmt.Sprintf("CREATE TRIGGER %s_after AFTER INSERT ON %s FOR EACH ROW INSERT INTO %s (%s) VALUES (%s)", t.name, t.name, t.mirror, t.layout.list(), strings.Join(values, ","))); err != nil {
		return err
	}
	var err error
	t.mirrorLayout, err = loadLayout(c, t.mirror)
	return err
}

// alter adds a column in a random place, or drops the one that it added before. The mirror's trigger names all columns, so tables
// with one stay as they are.
func (t *table) alter(c *connection, p *palette, r *rand.Rand) error {
	if t.mirror != "" || p.fixed {
		return nil
	}
	t.altered++
	last := t.columns[len(t.columns)-1]
	if last.name == fmt.Sprintf("a%d", t.altered-1) && r.IntN(2) == 0 {
		if err := c.exec("ALTER TABLE " + t.name + " DROP COLUMN " + quote(last.name)); err != nil {
			return err
		}
		t.columns = t.columns[:len(t.columns)-1]
	} else {
		col := p.column(r, fmt.Sprintf("a%d", t.altered))
		if col.spatial { // partitioned tables refuse it
			col = integerColumn(p, r)
			col.name = fmt.Sprintf("a%d", t.altered)
		}
		if col.noImplicit && col.notNull {
			col.hasDefault = true
		}
		place := []string{"", " FIRST", " AFTER n"}[r.IntN(3)]
		if err := c.exec("ALTER TABLE " + t.name + " ADD COLUMN " + col.definition(r) + place); err != nil {
			return err
		}
		t.columns = append(t.columns, col)
	}
	var err error
	t.layout, err = loadLayout(c, t.name)
	return err
}
