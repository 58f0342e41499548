package event

import "fmt"

// XABranch is the identity of a branch of an XA transaction. It is comparable: an XA_PREPARE event and the text of
// an XA statement about the same branch give equal values.
type XABranch struct {
	FormatID     uint32
	GTRID, BQUAL string // raw bytes, up to 64 each
}

// String gives the form of the server's own statements: X'gtrid',X'bqual',format.
func (x XABranch) String() string { return fmt.Sprintf("X'%x',X'%x',%d", x.GTRID, x.BQUAL, x.FormatID) }

// maxXAPart is the longest gtrid or bqual in bytes.
const maxXAPart = 64

// XAPrepare ends the rows of an XA branch.
type XAPrepare struct {
	// OnePhase: this is the commit of the transaction. Otherwise it is only prepared, and a later transaction
	// commits it or rolls it back.
	OnePhase bool
	Branch   XABranch
}

// ParseXAPrepare reads an XA_PREPARE:
//
//	0 u8 one phase · 1 u32 format id · 5 u32 gtrid length · 9 u32 bqual length · 13 gtrid · bqual
func ParseXAPrepare(b []byte) (XAPrepare, error) {
	c := cursor{b: b}
	p := XAPrepare{OnePhase: c.u8() != 0}
	p.Branch.FormatID = c.u32()
	gtrid, bqual := c.u32(), c.u32()
	if gtrid > maxXAPart || bqual > maxXAPart {
		return XAPrepare{}, malformed(TypeXAPrepare, "gtrid of %d bytes, bqual of %d", gtrid, bqual)
	}
	p.Branch.GTRID = string(c.bytes(uint64(gtrid)))
	p.Branch.BQUAL = string(c.bytes(uint64(bqual)))
	if c.bad {
		return XAPrepare{}, malformed(TypeXAPrepare, "cut off")
	}
	return p, nil
}

// XAVerb is what an XA statement does.
type XAVerb uint8

const (
	XAStart XAVerb = iota + 1
	XAEnd
	XACommit
	XARollback
)

// XAStatement is an XA statement in the text of a QUERY.
type XAStatement struct {
	Verb     XAVerb
	OnePhase bool // XA COMMIT … ONE PHASE
	Branch   XABranch
}

var xaVerbs = [...]struct {
	word string
	verb XAVerb
}{{"START", XAStart}, {"BEGIN", XAStart}, {"END", XAEnd}, {"COMMIT", XACommit}, {"ROLLBACK", XARollback}}

// ParseXAStatement reads `XA START|END|COMMIT|ROLLBACK X'gtrid',X'bqual',format [ONE PHASE]`, which is how the
// server writes them. It takes any case, blanks between the parts, and a left out format (1) or bqual (empty).
func ParseXAStatement(text []byte) (XAStatement, error) {
	p := xaParser{b: text}
	var s XAStatement
	if !p.word("XA") {
		return s, p.malformed("is no XA statement")
	}
	for _, v := range xaVerbs {
		if p.word(v.word) {
			s.Verb = v.verb
			break
		}
	}
	if s.Verb == 0 {
		return s, p.malformed("has an unknown verb")
	}
	var ok bool
	s.Branch.FormatID = 1
	s.Branch.GTRID, ok = p.hex()
	if ok && p.byte(',') {
		s.Branch.BQUAL, ok = p.hex()
		if ok && p.byte(',') {
			s.Branch.FormatID, ok = p.number()
		}
	}
	if !ok {
		return s, p.malformed("has no valid branch")
	}
	if s.Verb == XACommit && p.word("ONE") {
		if s.OnePhase = p.word("PHASE"); !s.OnePhase {
			return s, p.malformed("ends in ONE without PHASE")
		}
	}
	if p.blanks(); p.at < len(p.b) {
		return s, p.malformed("has text behind the branch")
	}
	return s, nil
}

type xaParser struct {
	b  []byte
	at int
}

func (p *xaParser) malformed(what string) error {
	const limit = 200
	return malformed(TypeQuery, "%q %s", p.b[:min(len(p.b), limit)], what)
}

func (p *xaParser) blanks() {
	for p.at < len(p.b) && (p.b[p.at] == ' ' || p.b[p.at] == '\t' || p.b[p.at] == '\n' || p.b[p.at] == '\r') {
		p.at++
	}
}

// word takes an upper-case word that ends at a blank or at the end.
func (p *xaParser) word(w string) bool {
	p.blanks()
	rest := p.b[p.at:]
	if !foldPrefix(rest, w) {
		return false
	}
	if len(rest) > len(w) && rest[len(w)] != ' ' && rest[len(w)] != '\t' && rest[len(w)] != '\n' && rest[len(w)] != '\r' {
		return false
	}
	p.at += len(w)
	return true
}

func (p *xaParser) byte(c byte) bool {
	p.blanks()
	if p.at < len(p.b) && p.b[p.at] == c {
		p.at++
		return true
	}
	return false
}

// hex takes X'…' of up to 64 bytes.
func (p *xaParser) hex() (string, bool) {
	p.blanks()
	if p.at >= len(p.b) || p.b[p.at]|0x20 != 'x' {
		return "", false
	}
	p.at++
	if p.at >= len(p.b) || p.b[p.at] != '\'' {
		return "", false
	}
	p.at++
	var out [maxXAPart]byte
	for n := 0; p.at < len(p.b); n++ {
		if p.b[p.at] == '\'' {
			p.at++
			return string(out[:n]), true
		}
		if n == maxXAPart || p.at+1 >= len(p.b) {
			return "", false
		}
		hi, lo := hexDigit(p.b[p.at]), hexDigit(p.b[p.at+1])
		if hi > 15 || lo > 15 {
			return "", false
		}
		out[n] = hi<<4 | lo
		p.at += 2
	}
	return "", false
}

func hexDigit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 0xff
}

// number takes a decimal u32.
func (p *xaParser) number() (uint32, bool) {
	p.blanks()
	var v uint64
	from := p.at
	for ; p.at < len(p.b) && p.b[p.at] >= '0' && p.b[p.at] <= '9'; p.at++ {
		if v = v*10 + uint64(p.b[p.at]-'0'); v > 1<<32-1 {
			return 0, false
		}
	}
	return uint32(v), p.at > from
}

// ParseXID reads the body of a XID event: 0 u64 number of the storage engine's transaction. The event commits its
// transaction.
func ParseXID(b []byte) (uint64, error) {
	c := cursor{b: b}
	if x := c.u64(); !c.bad {
		return x, nil
	}
	return 0, malformed(TypeXID, "%d bytes are too few", len(b))
}
