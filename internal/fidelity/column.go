package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// column is a column of a random table.
type column struct {
	name       string
	ddl        string // the type
	generated  string // expression, or empty
	notNull    bool
	hasDefault bool
	noImplicit bool // a NOT NULL column of the type has no implicit default that the server can show
	spatial    bool
	document   bool
	prefix     bool                      // may be part of a key with a prefix of two characters
	value      func(r *rand.Rand) string // a SQL expression
}

// palette is what columns are made from. Charsets and families are dealt like cards, so that even few tables have each of them.
type palette struct {
	charsets []*charset
	vectors  bool // the server has VECTOR
	fixed    bool // tables stay as they were made

	charsetDeck, familyDeck []int
}

// shuffle begins with new decks, so that a round does not depend on those before it.
func (p *palette) shuffle() { p.charsetDeck, p.familyDeck = nil, nil }

// deal gives the next of n cards.
func deal(r *rand.Rand, deck *[]int, n int) int {
	if len(*deck) == 0 {
		*deck = r.Perm(n)
	}
	card := (*deck)[0]
	*deck = (*deck)[1:]
	return card
}

// families of column types; one that is named more often is more frequent.
var families = []func(p *palette, r *rand.Rand) *column{
	integerColumn, integerColumn, decimalColumn, floatingColumn, bitColumn, temporalColumn, temporalColumn, temporalColumn,
	characterColumn, characterColumn, characterColumn, characterColumn, textColumn, textColumn, binaryColumn, blobColumn,
	enumColumn, setColumn, jsonColumn, jsonColumn, geometryColumn, vectorColumn,
}

// column gives a random column with a random nullability and default.
func (p *palette) column(r *rand.Rand, name string) *column {
	c := families[deal(r, &p.familyDeck, len(families))](p, r)
	c.name = name
	c.notNull = r.IntN(3) == 0
	c.hasDefault = r.IntN(3) == 0
	return c
}

// definition is the column's line in CREATE TABLE.
func (c *column) definition(r *rand.Rand) string {
	s := quote(c.name) + " " + c.ddl
	switch {
	case c.generated != "":
		s += " GENERATED ALWAYS AS (" + c.generated + ") " + []string{"VIRTUAL", "STORED"}[r.IntN(2)]
	case c.notNull:
		s += " NOT NULL"
	default:
		s += " NULL"
	}
	if c.hasDefault && c.generated == "" {
		s += " DEFAULT (" + c.value(r) + ")"
	}
	if r.IntN(8) == 0 {
		s += " INVISIBLE"
	}
	return s
}

// expression gives a value, NULL or DEFAULT.
func (c *column) expression(r *rand.Rand, allowDefault bool) string {
	switch n := r.IntN(10); {
	case n == 0 && !c.notNull:
		return "NULL"
	case n == 1 && allowDefault && (c.hasDefault || !c.notNull):
		return "DEFAULT"
	}
	return c.value(r)
}

func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func integerColumn(_ *palette, r *rand.Rand) *column {
	size := r.IntN(5)
	bits := []int{8, 16, 24, 32, 64}[size]
	c := &column{ddl: []string{"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"}[size]}
	if r.IntN(2) == 0 {
		c.ddl += " UNSIGNED"
		top := ^uint64(0) >> (64 - bits)
		c.value = func(r *rand.Rand) string {
			if r.IntN(5) == 0 {
				return fmt.Sprint([]uint64{0, top, top - 1, top >> 1, top>>1 + 1}[r.IntN(5)])
			}
			return fmt.Sprint(r.Uint64() >> (64 - bits) >> r.IntN(bits))
		}
		return c
	}
	lowest := int64(-1) << (bits - 1)
	c.value = func(r *rand.Rand) string {
		if r.IntN(5) == 0 {
			return fmt.Sprint([]int64{0, -1, lowest, -(lowest + 1), lowest + 1}[r.IntN(5)])
		}
		return fmt.Sprint(int64(r.Uint64()) >> (64 - bits) >> r.IntN(bits))
	}
	return c
}

func decimalColumn(_ *palette, r *rand.Rand) *column {
	precision := 1 + r.IntN(65)
	scale := r.IntN(min(precision, 30) + 1)
	c := &column{ddl: fmt.Sprintf("DECIMAL(%d,%d)", precision, scale)}
	if r.IntN(5) == 0 {
		c.ddl += " UNSIGNED"
	}
	c.value = func(r *rand.Rand) string { return decimal(r, precision, scale) }
	return c
}

func floatingColumn(_ *palette, r *rand.Rand) *column {
	unsigned := []string{"", " UNSIGNED"}[r.IntN(5)/4]
	if r.IntN(2) == 0 {
		return &column{ddl: "FLOAT" + unsigned, value: single}
	}
	return &column{ddl: []string{"DOUBLE", "FLOAT(53)"}[r.IntN(2)] + unsigned, value: func(r *rand.Rand) string { return fmt.Sprintf("'%.17e'", double(r)) }}
}

func bitColumn(_ *palette, r *rand.Rand) *column {
	bits := 1 + r.IntN(64)
	return &column{ddl: fmt.Sprintf("BIT(%d)", bits), value: func(r *rand.Rand) string {
		if r.IntN(5) == 0 {
			return fmt.Sprintf("b'%b'", ^uint64(0)>>(64-bits))
		}
		return fmt.Sprintf("b'%b'", r.Uint64()>>(64-bits)>>r.IntN(bits))
	}}
}

// dates under a permissive sql_mode: zero, partial, and with ALLOW_INVALID_DATES impossible ones.
var oddDates = []string{"0000-00-00", "2020-00-00", "2020-02-00", "0000-01-01", "0000-00-15", "2021-02-31", "9999-12-31", "0001-01-01", "1582-10-10"}

func day(r *rand.Rand) string {
	if r.IntN(4) == 0 {
		return oddDates[r.IntN(len(oddDates))]
	}
	return fmt.Sprintf("%04d-%02d-%02d", r.IntN(10000), 1+r.IntN(12), 1+r.IntN(31))
}

func temporalColumn(_ *palette, r *rand.Rand) *column {
	digits := r.IntN(7)
	switch r.IntN(5) {
	case 0:
		return &column{ddl: "DATE", value: func(r *rand.Rand) string { return "'" + day(r) + "'" }}
	case 1:
		return &column{ddl: fmt.Sprintf("TIME(%d)", digits), value: timeOfDay}
	case 2:
		return &column{ddl: fmt.Sprintf("DATETIME(%d)", digits), value: func(r *rand.Rand) string {
			return fmt.Sprintf("'%s %02d:%02d:%02d.%06d'", day(r), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1e6))
		}}
	case 3:
		return &column{ddl: "YEAR", value: func(r *rand.Rand) string {
			return []string{"0", "1901", "2155", fmt.Sprint(1901 + r.IntN(255)), fmt.Sprintf("'%d'", r.IntN(100))}[r.IntN(5)]
		}}
	}
	return &column{ddl: fmt.Sprintf("TIMESTAMP(%d)", digits), value: func(r *rand.Rand) string {
		switch r.IntN(8) {
		case 0:
			return []string{"'0000-00-00 00:00:00'", "'1970-01-02 00:00:00.5'", "'2038-01-18 03:14:07.999999'", "'1970-01-01 00:00:01+00:00'", "'2038-01-19 03:14:07+00:00'"}[r.IntN(5)]
		case 1:
			return "NOW(6)"
		}
		return fmt.Sprintf("'%04d-%02d-%02d %02d:%02d:%02d.%06d'", 1970+r.IntN(68), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1e6))
	}}
}

func (p *palette) charset(r *rand.Rand) *charset {
	return p.charsets[deal(r, &p.charsetDeck, len(p.charsets))]
}

// inCharset is the clause of a random collation of the charset.
func inCharset(cs *charset, r *rand.Rand) string {
	s := " CHARACTER SET " + cs.name
	if r.IntN(2) == 0 {
		s += " COLLATE " + cs.collations[r.IntN(len(cs.collations))]
	}
	return s
}

func characterColumn(p *palette, r *rand.Rand) *column {
	cs := p.charset(r)
	n := []int{0, 1, 2 + r.IntN(30), 2 + r.IntN(30), 60 + r.IntN(196)}[r.IntN(5)]
	typ := "CHAR"
	if r.IntN(2) == 0 {
		typ = "VARCHAR"
		if r.IntN(6) == 0 {
			n = 256 + r.IntN(1000)
		}
	}
	return &column{ddl: fmt.Sprintf("%s(%d)%s", typ, n, inCharset(cs, r)), prefix: n >= 2, value: func(r *rand.Rand) string { return cs.literal(cs.text(r, n)) }}
}

func textColumn(p *palette, r *rand.Rand) *column {
	cs := p.charset(r)
	typ := []string{"TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"}[r.IntN(4)]
	return &column{ddl: typ + inCharset(cs, r), prefix: true, value: func(r *rand.Rand) string {
		n := 255 / cs.longest
		if typ != "TINYTEXT" && r.IntN(100) == 0 {
			n = 16000
		}
		return cs.literal(cs.text(r, n))
	}}
}

// octets gives bytes, sometimes with zeros at the end.
func octets(r *rand.Rand, longest int) string {
	n := r.IntN(min(longest, 40) + 1)
	switch r.IntN(10) {
	case 0:
		n = longest
	case 1:
		n = 0
	}
	b := randomBytes(r, n)
	if r.IntN(4) == 0 {
		clear(b[n-r.IntN(n+1):])
	}
	return hexLiteral(b)
}

func binaryColumn(_ *palette, r *rand.Rand) *column {
	n := []int{0, 1, 2 + r.IntN(30), r.IntN(256)}[r.IntN(4)]
	typ := "BINARY"
	if r.IntN(2) == 0 {
		typ = "VARBINARY"
		if r.IntN(4) == 0 {
			n = 256 + r.IntN(1000)
		}
	}
	return &column{ddl: fmt.Sprintf("%s(%d)", typ, n), value: func(r *rand.Rand) string { return octets(r, n) }}
}

func blobColumn(_ *palette, r *rand.Rand) *column {
	typ := []string{"TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"}[r.IntN(4)]
	return &column{ddl: typ, value: func(r *rand.Rand) string {
		if typ != "TINYBLOB" && r.IntN(100) == 0 {
			return octets(r, 20000)
		}
		return octets(r, 255)
	}}
}

func members(cs *charset, r *rand.Rand, n int) string {
	var list []string
	for range n {
		list = append(list, fmt.Sprintf("x'%x'", cs.member(r, 12)))
	}
	return "(" + strings.Join(list, ",") + ")"
}

func enumColumn(p *palette, r *rand.Rand) *column {
	cs, n := p.charset(r), 1+r.IntN(12)
	if r.IntN(6) == 0 {
		n = 200 + r.IntN(200)
	}
	// By number; 0 is what an invalid value becomes.
	return &column{ddl: "ENUM" + members(cs, r, n) + inCharset(cs, r), value: func(r *rand.Rand) string { return fmt.Sprint(r.IntN(n + 1)) }}
}

func setColumn(p *palette, r *rand.Rand) *column {
	cs, n := p.charset(r), 1+r.IntN(64)
	collation := inCharset(cs, r)
	if cs.longest > 1 { // elsewhere a wide comma is a comma to the server
		collation = " CHARACTER SET " + cs.name + " COLLATE " + cs.name + "_bin"
	}
	return &column{ddl: "SET" + members(cs, r, n) + collation, value: func(r *rand.Rand) string {
		return fmt.Sprint(r.Uint64() >> (64 - n) >> r.IntN(n))
	}}
}

func jsonColumn(_ *palette, _ *rand.Rand) *column {
	return &column{ddl: "JSON", noImplicit: true, document: true, value: wholeDocument}
}

func vectorColumn(p *palette, r *rand.Rand) *column {
	if !p.vectors {
		return jsonColumn(p, r)
	}
	n := 1 + r.IntN(40)
	return &column{ddl: fmt.Sprintf("VECTOR(%d)", n), noImplicit: true, value: func(r *rand.Rand) string {
		var list []string
		for range 1 + r.IntN(n) {
			list = append(list, fmt.Sprintf("%g", float32(r.NormFloat64()*1000)))
		}
		return "STRING_TO_VECTOR('[" + strings.Join(list, ",") + "]')"
	}}
}

func geometryColumn(_ *palette, r *rand.Rand) *column {
	shapes := []string{"POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION"}
	fixed := r.IntN(len(shapes) + 2)
	c := &column{ddl: "GEOMETRY", noImplicit: true, spatial: true}
	if fixed < len(shapes) {
		c.ddl = shapes[fixed]
	}
	srid := []int{0, 4326}[r.IntN(2)]
	if r.IntN(2) == 0 {
		c.ddl += fmt.Sprintf(" SRID %d", srid)
	}
	c.value = func(r *rand.Rand) string {
		shape := fixed
		if shape >= len(shapes) {
			shape = r.IntN(len(shapes))
		}
		return fmt.Sprintf("ST_GeomFromText('%s', %d)", outline(shapes[shape], r), srid)
	}
	return c
}

// outline gives a shape in well-known text.
func outline(shape string, r *rand.Rand) string {
	p := func() string { return fmt.Sprintf("%g %g", float64(r.IntN(1800))/10-90, float64(r.IntN(3500))/10-175) }
	x := r.IntN(80)
	ring := fmt.Sprintf("((%d 0,%d 10,%d 10,%d 0))", x, x, x+5, x)
	switch shape {
	case "POINT":
		return "POINT(" + p() + ")"
	case "LINESTRING":
		return "LINESTRING(" + p() + "," + p() + "," + p() + ")"
	case "POLYGON":
		return "POLYGON" + ring
	case "MULTIPOINT":
		return "MULTIPOINT(" + p() + "," + p() + ")"
	case "MULTILINESTRING":
		return "MULTILINESTRING((" + p() + "," + p() + "),(" + p() + "," + p() + "))"
	case "MULTIPOLYGON":
		return "MULTIPOLYGON(" + ring + ")"
	}
	return []string{"GEOMETRYCOLLECTION EMPTY", "GEOMETRYCOLLECTION(POINT(" + p() + "),LINESTRING(" + p() + "," + p() + "))"}[r.IntN(2)]
}
