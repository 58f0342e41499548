// Package gtid holds global transaction identifiers of MySQL and sets of them.
//
// A [Set] is the position of a relay: it knows every transaction that was handed on, with
// tags (MySQL 8.3 and later) and with holes. Adding the transaction that follows the one added last
// costs O(1) and allocates nothing; every other change finds its place by binary search.
//
// The package is pure: no I/O, no goroutine, no clock. Values are not safe for concurrent use;
// the owner of a set clones it before it hands it to another goroutine.
// It does not know MariaDB's identifiers, and it asks no server whether a set makes sense there.
package gtid

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MaxNumber is the largest transaction number the server accepts (2^63 - 2); the smallest is 1.
const MaxNumber = 1<<63 - 2

// maxTagLength is the longest tag the server accepts, in bytes.
const maxTagLength = 32

// ErrMalformed is wrapped by every error about a text or an encoding that is no valid identifier or set.
var ErrMalformed = errors.New("malformed GTID")

// UUID is the identity of the server that a transaction was first committed on.
type UUID [16]byte

// ParseUUID reads the form with dashes, 8-4-4-4-12 hexadecimal digits of either case.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return UUID{}, fmt.Errorf("%w: UUID %s is not of the form 8-4-4-4-12 hexadecimal digits", ErrMalformed, excerpt(s))
	}
	n := 0
	for i := 0; i < len(s); {
		if i == 8 || i == 13 || i == 18 || i == 23 {
			i++
			continue
		}
		hi, lo := unhex(s[i]), unhex(s[i+1])
		if hi > 15 || lo > 15 {
			return UUID{}, fmt.Errorf("%w: UUID %s has a character that is no hexadecimal digit", ErrMalformed, excerpt(s))
		}
		u[n] = hi<<4 | lo
		n++
		i += 2
	}
	return u, nil
}

func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 0xff
}

// String gives the lower-case form with dashes.
func (u UUID) String() string { return string(u.AppendText(make([]byte, 0, 36))) }

// AppendText appends the form of String to dst.
func (u UUID) AppendText(dst []byte) []byte {
	const digits = "0123456789abcdef"
	for i, b := range u {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, digits[b>>4], digits[b&15])
	}
	return dst
}

// Compare orders UUIDs by their bytes, as the server does in sets.
func (u UUID) Compare(v UUID) int { return bytes.Compare(u[:], v[:]) }

// Tag groups transactions of one server (MySQL 8.3 and later). The empty string is "no tag". Anything else is
// 1 to 32 characters of [a-z0-9_], the first one no digit; functions of this package give lower case only.
type Tag = string

// ParseTag reads a tag that is not empty; upper-case letters become lower-case, as the server does it.
func ParseTag(s string) (Tag, error) {
	if len(s) == 0 || len(s) > maxTagLength {
		return "", fmt.Errorf("%w: tag %s has %d characters, want 1 to %d", ErrMalformed, excerpt(s), len(s), maxTagLength)
	}
	for i := 0; i < len(s); i++ {
		c := s[i] | 0x20
		switch {
		case c >= 'a' && c <= 'z', s[i] == '_':
		case s[i] >= '0' && s[i] <= '9' && i > 0:
		default:
			return "", fmt.Errorf("%w: tag %s has a character that is not allowed at position %d", ErrMalformed, excerpt(s), i+1)
		}
	}
	return strings.ToLower(s), nil
}

// ValidTag tells whether b is a tag in the form the server stores: not empty, lower case. It does not allocate.
func ValidTag(b []byte) bool {
	if len(b) == 0 || len(b) > maxTagLength || b[0] >= '0' && b[0] <= '9' {
		return false
	}
	for _, c := range b {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

// GTID names one transaction. It is comparable. The zero value names none.
type GTID struct {
	UUID   UUID
	Tag    Tag
	Number int64 // 1 … MaxNumber
}

// String gives `uuid:number` or `uuid:tag:number`.
func (g GTID) String() string { return string(g.AppendText(nil)) }

// AppendText appends the form of String to dst.
func (g GTID) AppendText(dst []byte) []byte {
	dst = append(g.UUID.AppendText(dst), ':')
	if g.Tag != "" {
		dst = append(append(dst, g.Tag...), ':')
	}
	return strconv.AppendInt(dst, g.Number, 10)
}

// Parse reads `uuid:number` or `uuid:tag:number`. Blanks around the parts are allowed.
func Parse(s string) (GTID, error) {
	uuid, rest, ok := strings.Cut(s, ":")
	if !ok {
		return GTID{}, fmt.Errorf("%w: %s has no number after the UUID", ErrMalformed, excerpt(s))
	}
	var g GTID
	var err error
	if g.UUID, err = ParseUUID(strings.TrimSpace(uuid)); err != nil {
		return GTID{}, err
	}
	if tag, number, ok := strings.Cut(rest, ":"); ok {
		if g.Tag, err = ParseTag(strings.TrimSpace(tag)); err != nil {
			return GTID{}, err
		}
		rest = number
	}
	if g.Number, err = parseNumber(strings.TrimSpace(rest)); err != nil {
		return GTID{}, err
	}
	return g, nil
}

// Range is a run of transactions of one server and tag, both ends included.
type Range struct {
	UUID        UUID
	Tag         Tag
	First, Last int64 // 1 ≤ First ≤ Last ≤ MaxNumber
}

// parseNumber accepts decimal digits only: no sign, no blank.
func parseNumber(s string) (int64, error) {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, fmt.Errorf("%w: %s is no transaction number", ErrMalformed, excerpt(s))
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 1 || n > MaxNumber {
		return 0, fmt.Errorf("%w: %s is no transaction number from 1 to %d", ErrMalformed, excerpt(s), int64(MaxNumber))
	}
	return n, nil
}

// excerpt quotes a part of the input for an error message, cut to a readable length.
func excerpt(s string) string {
	const limit = 80
	if len(s) > limit {
		return strconv.Quote(s[:limit]) + "…"
	}
	return strconv.Quote(s)
}
