package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/binlog/value"
	"outbox-relay/internal/sandbox"
)

const (
	documentsPerTable  = 2000
	documentsPerInsert = 200
)

// nodes are the kinds of JSON nodes, with the SQL that makes one, for the report.
var nodes = [][2]string{
	{"array", "JSON_ARRAY("}, {"object", "JSON_OBJECT("}, {"literal or number from text", "CAST('"}, {"DECIMAL", " AS DECIMAL("}, {"TIME", " AS TIME("}, {"DATE", " AS DATE)"}, {"DATETIME", " AS DATETIME"},
	{"opaque bytes", "CAST(x'"}, {"opaque from a column", "FROM opaque"}, {"string", "_utf8mb4 "}, {"large container", "REPEAT("}, {"deep nesting", "AS deep"},
}

// opaqueTable has columns of the types that become opaque values, or numbers and strings of their own, inside JSON.
const opaqueTable = `CREATE TABLE opaque (e ENUM('é','x'), s SET('a','b'), b BINARY(5), bl BLOB, tb TINYBLOB, bt BIT(12), f FLOAT, g GEOMETRY, ts TIMESTAMP(3) NULL, y YEAR, vc VARBINARY(90), mb MEDIUMBLOB, lb LONGBLOB)`

// rootDocument is wholeDocument, or a deep one, or one with values out of columns.
func rootDocument(r *rand.Rand) string {
	switch r.IntN(100) {
	case 0:
		depth := 1 + r.IntN(99)
		open, end := "[", "]"
		if r.IntN(2) == 0 {
			open, end = `{"k": `, "}"
		}
		return fmt.Sprintf("(SELECT CAST('%s1%s' AS JSON) AS deep)", strings.Repeat(open, depth), strings.Repeat(end, depth))
	case 1:
		columns := []string{"e", "s", "b", "bl", "tb", "bt", "f", "g", "ts", "y", "vc", "mb", "lb"}
		return fmt.Sprintf("(SELECT JSON_ARRAY(%s, %s, %s) FROM opaque ORDER BY %s LIMIT %d, 1)", columns[r.IntN(13)], document(r, 1), columns[r.IntN(13)], columns[r.IntN(6)], r.IntN(20))
	}
	return wholeDocument(r)
}

// documents compares random JSON documents with what SELECT prints.
func documents(ctx context.Context, m *sandbox.MySQL, c *connection, o options, out *report) error {
	r := rand.New(rand.NewPCG(o.seed, 1<<40))
	if err := c.exec("DROP DATABASE IF EXISTS fidelity_json", "CREATE DATABASE fidelity_json", "USE fidelity_json", "SET NAMES utf8mb4", opaqueTable); err != nil {
		return err
	}
	for range 20 {
		if err := c.exec(fmt.Sprintf("INSERT INTO opaque VALUES (%d, %d, x'%x', x'%x', x'%x', %d, %g, ST_GeomFromText('LINESTRING(%d 0,1.5 %g)',%d), '2020-01-02 03:04:05.678', %d, x'%x', x'%x', x'%x')",
			1+r.IntN(2), r.IntN(4), randomBytes(r, r.IntN(5)), randomBytes(r, r.IntN(300)), randomBytes(r, r.IntN(200)), r.IntN(4096), float32(r.NormFloat64()), r.IntN(90), r.Float64()*90, []int{0, 4326}[r.IntN(2)],
			1901+r.IntN(200), randomBytes(r, r.IntN(90)), randomBytes(r, r.IntN(300)), randomBytes(r, r.IntN(300)))); err != nil {
			return err
		}
	}
	for n := 0; out.documents < o.documents; n++ {
		if err := documentTable(ctx, m, c, o, r, fmt.Sprintf("docs%05d", n), out); err != nil {
			return fmt.Errorf("JSON, seed %d, table %d: %w", o.seed, n, err)
		}
		if o.progress != nil {
			o.progress(fmt.Sprintf("%d documents, %d differences", out.documents, out.differences))
		}
	}
	return nil
}

func documentTable(ctx context.Context, m *sandbox.MySQL, c *connection, o options, r *rand.Rand, table string, out *report) (err error) {
	count := min(documentsPerTable, o.documents-out.documents)
	from, err := position(c)
	if err != nil {
		return err
	}
	if err := c.exec("CREATE TABLE " + table + " (n INT AUTO_INCREMENT PRIMARY KEY, j JSON)"); err != nil {
		return err
	}
	for left := count; left > 0; left -= documentsPerInsert {
		roots := make([]string, min(left, documentsPerInsert))
		for i := range roots {
			roots[i] = "(" + rootDocument(r) + ")"
			for _, node := range nodes {
				out.nodes[node[0]] += strings.Count(roots[i], node[1])
			}
		}
		if err := c.exec("INSERT INTO " + table + " (j) VALUES " + strings.Join(roots, ",")); err != nil {
			return err
		}
	}
	want, err := c.query("SELECT j FROM " + table + " ORDER BY n")
	if err != nil {
		return err
	}
	if len(want) != count {
		return fmt.Errorf("%d documents were written, SELECT finds %d", count, len(want))
	}
	spool, err := os.MkdirTemp("", "outbox-relay-fidelity-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(spool)) }()
	reader, err := binlog.New(binlog.Options{
		Name: "fidelity", Addresses: []string{m.Addr()}, Tables: []binlog.TableName{{Schema: "fidelity_json", Name: table}}, Start: from, Heartbeat: time.Second,
		Login:  binlog.Login{User: "relay", Password: func(context.Context) (string, error) { return "relay", nil }},
		Memory: 64 << 10, RowLimit: 64 << 20, SpoolDir: spool, SpoolLimit: 1 << 30,
	})
	if err != nil {
		return err
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var text []byte
	for i := 0; i < count; {
		tx, err := reader.Next(ctx)
		if err != nil {
			return fmt.Errorf("reading the binlog: %w", err)
		}
		var row binlog.Row
		for {
			ok, err := tx.NextRow(&row)
			if err != nil {
				return fmt.Errorf("reading rows: %w", err)
			}
			if !ok {
				break
			}
			text, err = value.Append(text[:0], &row.Table.Columns[1], row.Cells[1].Raw)
			if err != nil || want[i][0] == nil || string(text) != *want[i][0] {
				shown := "NULL"
				if want[i][0] != nil {
					shown = strconv.QuoteToASCII(*want[i][0])
				}
				out.differ(table+strconv.Itoa(i), fmt.Sprintf("JSON, seed %d, %s, document %d: %v\n  got  %.2000s\n  want %.2000s\n  bytes %.4000x", o.seed, table, i, err, strconv.QuoteToASCII(string(text)), shown, row.Cells[1].Raw))
			}
			i++
		}
	}
	out.documents += count
	return c.exec("DROP TABLE " + table)
}

// position is what the server has executed.
func position(c *connection) (*gtid.Set, error) {
	rows, err := c.query("SELECT @@global.gtid_executed")
	if err != nil {
		return nil, err
	}
	return gtid.ParseSet(*rows[0][0])
}

// nodeReport tells what the documents held.
func (r *report) nodeReport() string {
	var s strings.Builder
	fmt.Fprintf(&s, "\n%-28s %10s\n", "JSON nodes, at least", "")
	for _, node := range slices.Sorted(slices.Values(nodeNames())) {
		fmt.Fprintf(&s, "%-28s %10d\n", node, r.nodes[node])
	}
	return s.String()
}

func nodeNames() []string {
	names := make([]string, len(nodes))
	for i := range nodes {
		names[i] = nodes[i][0]
	}
	return names
}
