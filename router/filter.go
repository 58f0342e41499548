package router

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
)

// filter changes the bytes of a column into text.
type filter uint8

const (
	filterNone   filter = iota
	filterUUID          // 16 bytes as 8-4-4-4-12 lower-case hexadecimal digits
	filterHex           // two lower-case hexadecimal digits per byte
	filterBase64        // standard alphabet with padding
)

func (f filter) String() string {
	switch f {
	case filterUUID:
		return "uuid"
	case filterHex:
		return "hex"
	case filterBase64:
		return "base64"
	}
	return ""
}

func parseFilter(name string) (filter, error) {
	for f := filterUUID; f <= filterBase64; f++ {
		if f.String() == name {
			return f, nil
		}
	}
	return filterNone, fmt.Errorf("unknown filter %q: there are uuid, hex and base64", name)
}

// lengthError is the one way in which a filter can fail.
type lengthError int

func (e lengthError) Error() string {
	return fmt.Sprintf("filter uuid wants 16 bytes, the column has %d", int(e))
}

// append adds the text of raw to dst. The two must not overlap.
func (f filter) append(dst, raw []byte) ([]byte, error) {
	switch f {
	case filterUUID:
		if len(raw) != 16 {
			return dst, lengthError(len(raw))
		}
		for i, group := range [...][2]int{{0, 4}, {4, 6}, {6, 8}, {8, 10}, {10, 16}} {
			if i > 0 {
				dst = append(dst, '-')
			}
			dst = hex.AppendEncode(dst, raw[group[0]:group[1]])
		}
		return dst, nil
	case filterHex:
		return hex.AppendEncode(dst, raw), nil
	case filterBase64:
		return base64.StdEncoding.AppendEncode(dst, raw), nil
	}
	return append(dst, raw...), nil
}
