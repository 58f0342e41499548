package gtid

import (
	"fmt"
	"strconv"
	"strings"
)

// String gives the text form the server reads and prints, without blanks and line breaks:
// `uuid:1-5:8:tag:1-3,uuid2:7`. The empty set gives the empty string.
func (s *Set) String() string { return string(s.AppendText(nil)) }

// AppendText appends the form of String to dst.
func (s *Set) AppendText(dst []byte) []byte {
	for i := range s.entries {
		e := &s.entries[i]
		if i == 0 || s.entries[i-1].uuid != e.uuid {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = e.uuid.AppendText(dst)
		}
		if e.tag != "" {
			dst = append(append(dst, ':'), e.tag...)
		}
		for _, r := range e.runs {
			dst = strconv.AppendInt(append(dst, ':'), r.first, 10)
			if r.last > r.first {
				dst = strconv.AppendInt(append(dst, '-'), r.last, 10)
			}
		}
	}
	return dst
}

// ParseSet reads the text form. Blanks and line breaks around the parts, upper-case digits and letters, any order
// and overlapping ranges are accepted; empty parts (`uuid:1,,`), tags without numbers and descending ranges are not.
// The error names the part that is wrong.
func ParseSet(text string) (*Set, error) {
	s := &Set{}
	if strings.TrimSpace(text) == "" {
		return s, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		if err := s.addText(strings.TrimSpace(part)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// addText adds one `uuid:…` part.
func (s *Set) addText(part string) error {
	uuidText, rest, ok := strings.Cut(part, ":")
	if !ok {
		return fmt.Errorf("%w: %s is not of the form uuid:numbers", ErrMalformed, excerpt(part))
	}
	uuid, err := ParseUUID(strings.TrimSpace(uuidText))
	if err != nil {
		return err
	}
	tag, numbers := Tag(""), true // numbers: at least one number follows the tag (or the UUID)
	for item := range strings.SplitSeq(rest, ":") {
		item = strings.TrimSpace(item)
		if item != "" && (item[0] < '0' || item[0] > '9') {
			if !numbers {
				return fmt.Errorf("%w: tag %q of %s has no numbers", ErrMalformed, tag, uuid)
			}
			if tag, err = ParseTag(item); err != nil {
				return fmt.Errorf("in the numbers of %s: %w", uuid, err)
			}
			numbers = false
			continue
		}
		first, last, err := parseRun(item)
		if err != nil {
			return fmt.Errorf("in the numbers of %s: %w", uuid, err)
		}
		s.AddRange(Range{UUID: uuid, Tag: tag, First: first, Last: last})
		numbers = true
	}
	if !numbers {
		return fmt.Errorf("%w: tag %q of %s has no numbers", ErrMalformed, tag, uuid)
	}
	return nil
}

func parseRun(item string) (first, last int64, err error) {
	from, to, isRange := strings.Cut(item, "-")
	if first, err = parseNumber(strings.TrimSpace(from)); err != nil {
		return 0, 0, err
	}
	if !isRange {
		return first, first, nil
	}
	if last, err = parseNumber(strings.TrimSpace(to)); err != nil {
		return 0, 0, err
	}
	if last < first {
		return 0, 0, fmt.Errorf("%w: range %s descends", ErrMalformed, excerpt(item))
	}
	return first, last, nil
}

// MarshalText gives the form of String, so that sets are strings in JSON and YAML.
func (s Set) MarshalText() ([]byte, error) { return s.AppendText(nil), nil }

// UnmarshalText replaces the set by the one in text; on an error the set stays as it was.
func (s *Set) UnmarshalText(text []byte) error {
	parsed, err := ParseSet(string(text))
	if err != nil {
		return err
	}
	*s = *parsed
	return nil
}
