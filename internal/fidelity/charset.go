package main

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf16"
)

// charset is a character set of the server with a sample of its characters.
type charset struct {
	name       string
	longest    int // bytes of a character at most
	collations []string
	chars      [][]byte // in the charset's own bytes
	space      []byte
	comma      []byte
}

// loadCharsets asks the server for all charsets, in the order of their names, and for characters of each.
func loadCharsets(c *connection, r *rand.Rand) ([]*charset, error) {
	if err := c.exec("DROP DATABASE IF EXISTS fidelity_0", "CREATE DATABASE fidelity_0", "USE fidelity_0"); err != nil {
		return nil, err
	}
	rows, err := c.query("SELECT character_set_name, maxlen FROM information_schema.character_sets ORDER BY character_set_name")
	if err != nil {
		return nil, err
	}
	var out []*charset
	for _, row := range rows {
		cs := &charset{name: *row[0]}
		if _, err := fmt.Sscan(*row[1], &cs.longest); err != nil {
			return nil, fmt.Errorf("length of a character of %s: %w", cs.name, err)
		}
		if err := cs.load(c, r); err != nil {
			return nil, err
		}
		out = append(out, cs)
	}
	return out, c.exec("DROP DATABASE fidelity_0")
}

func (cs *charset) load(c *connection, r *rand.Rand) error {
	collations, err := c.query("SELECT collation_name FROM information_schema.collations WHERE character_set_name='" + cs.name + "' ORDER BY collation_name")
	if err != nil {
		return err
	}
	for _, row := range collations {
		cs.collations = append(cs.collations, *row[0])
	}
	marks, err := c.query(fmt.Sprintf("SELECT HEX(CONVERT(' ' USING %s)), HEX(CONVERT(',' USING %s))", cs.name, cs.name))
	if err != nil {
		return err
	}
	cs.space, _ = hex.DecodeString(*marks[0][0])
	cs.comma, _ = hex.DecodeString(*marks[0][1])
	var list []string
	for _, b := range cs.candidates(r) {
		list = append(list, fmt.Sprintf("(x'%x',x'%x')", b, b))
	}
	// A column keeps nothing of what is no character of its charset. CONVERT and members of an ENUM are not that strict.
	if err := c.exec("CREATE TABLE sample (x VARBINARY(4), y VARCHAR(4) CHARACTER SET "+cs.name+")", "INSERT INTO sample VALUES "+strings.Join(list, ",")); err != nil {
		return err
	}
	good, err := c.query("SELECT DISTINCT HEX(x) FROM sample WHERE HEX(x) = HEX(y) AND CHAR_LENGTH(y) = 1 ORDER BY 1")
	if err != nil {
		return err
	}
	if err := c.exec("DROP TABLE sample"); err != nil {
		return err
	}
	for _, row := range good {
		b, err := hex.DecodeString(*row[0])
		if err != nil {
			return err
		}
		cs.chars = append(cs.chars, b)
	}
	if len(cs.chars) < 90 {
		return fmt.Errorf("only %d characters of charset %s were found", len(cs.chars), cs.name)
	}
	return nil
}

// candidates gives byte sequences that may be characters.
func (cs *charset) candidates(r *rand.Rand) [][]byte {
	var out [][]byte
	switch cs.name {
	case "utf8mb3", "utf8mb4", "ucs2", "utf16", "utf16le", "utf32":
		for range 1500 {
			out = append(out, encode(cs.name, codePoint(r, cs.longest == 4)))
		}
		return out
	}
	for b := range 256 {
		out = append(out, []byte{byte(b)})
	}
	if cs.longest >= 2 {
		for range 2000 {
			out = append(out, []byte{byte(0x80 + r.IntN(128)), byte(0x30 + r.IntN(0xd0))})
		}
	}
	if cs.longest == 3 {
		for range 1000 {
			out = append(out, []byte{0x8f, byte(0xa1 + r.IntN(94)), byte(0xa1 + r.IntN(94))})
		}
	}
	if cs.longest == 4 { // gb18030
		for range 1000 {
			out = append(out, []byte{byte(0x81 + r.IntN(126)), byte('0' + r.IntN(10)), byte(0x81 + r.IntN(126)), byte('0' + r.IntN(10))})
		}
	}
	return out
}

// codePoint gives one of Unicode, more often of the lower blocks.
func codePoint(r *rand.Rand, beyondBMP bool) rune {
	switch n := r.IntN(10); {
	case n < 2:
		return rune(r.IntN(0x80))
	case n < 4:
		return rune(0x80 + r.IntN(0x780))
	case n < 6 && beyondBMP:
		return rune(0x10000 + r.IntN(0x100000))
	case n == 6:
		return rune(0xe000 + r.IntN(0x2000))
	}
	return rune(0x800 + r.IntN(0xd000))
}

func encode(name string, p rune) []byte {
	var out []byte
	switch name {
	case "utf8mb3", "utf8mb4":
		return []byte(string(p))
	case "utf32":
		return binary.BigEndian.AppendUint32(nil, uint32(p))
	case "utf16le":
		for _, unit := range utf16.Encode([]rune{p}) {
			out = binary.LittleEndian.AppendUint16(out, unit)
		}
		return out
	}
	for _, unit := range utf16.Encode([]rune{p}) {
		out = binary.BigEndian.AppendUint16(out, unit)
	}
	return out
}

// text gives up to n characters: often few, seldom all, sometimes with blanks at the end.
func (cs *charset) text(r *rand.Rand, n int) []byte {
	switch r.IntN(8) {
	case 0:
		n = min(n, r.IntN(2))
	case 1:
	default:
		n = r.IntN(min(n, 24) + 1)
	}
	var out []byte
	blanks := 0
	if r.IntN(8) == 0 {
		blanks = r.IntN(n + 1)
	}
	for range n - blanks {
		out = append(out, cs.chars[r.IntN(len(cs.chars))]...)
	}
	for range blanks {
		out = append(out, cs.space...)
	}
	return out
}

// member gives a member of an ENUM or SET: no comma, not longer than n characters, and ASCII where there is no charset, since the
// server keeps the list as text.
func (cs *charset) member(r *rand.Rand, n int) []byte {
	var out []byte
	if cs.name == "binary" {
		return fmt.Appendf(nil, "%x", randomBytes(r, r.IntN(n)))
	}
	for range r.IntN(n + 1) {
		if c := cs.chars[r.IntN(len(cs.chars))]; !slices.Equal(c, cs.comma) {
			out = append(out, c...)
		}
	}
	return out
}

// literal gives the bytes as text.
func (cs *charset) literal(b []byte) string { return "_" + cs.name + " " + hexLiteral(b) }

// hexLiteral is not x” for no bytes: MySQL 8.0.33 fails to read such a default back.
func hexLiteral(b []byte) string {
	if len(b) == 0 {
		return "''"
	}
	return fmt.Sprintf("x'%x'", b)
}
