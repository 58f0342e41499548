package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written as 512B, 64KiB, 16MiB, 10GiB or 1TiB.
type Size int64

// Units of Size.
const (
	KiB Size = 1 << (10 * (iota + 1))
	MiB
	GiB
	TiB
)

var units = []struct {
	name string
	size Size
}{{"TiB", TiB}, {"GiB", GiB}, {"MiB", MiB}, {"KiB", KiB}, {"B", 1}}

// UnmarshalText parses a whole number with a binary unit; without a unit it
// counts bytes.
func (s *Size) UnmarshalText(text []byte) error {
	digits := strings.TrimRight(string(text), "BKMGTikmgtb")
	unit := string(text[len(digits):])
	digits = strings.TrimRight(digits, " ")
	n, err := strconv.ParseInt(digits, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%q is too large", text)
	}
	if err != nil || n < 0 {
		return &valueError{fmt.Sprintf("%q is not a size", text), "write a whole number with a unit, such as 16MiB"}
	}
	if unit == "" {
		*s = Size(n)
		return nil
	}
	for _, u := range units {
		if u.name != unit {
			continue
		}
		if n > math.MaxInt64/int64(u.size) {
			return fmt.Errorf("%q is too large", text)
		}
		*s = Size(n) * u.size
		return nil
	}
	return &valueError{fmt.Sprintf("%q has an unknown unit", text), "use B, KiB, MiB, GiB or TiB"}
}

// String renders the size with the largest unit that divides it.
func (s Size) String() string {
	if s == 0 {
		return "0B"
	}
	for _, u := range units {
		if s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// MarshalText renders as String does.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
