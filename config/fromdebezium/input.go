package fromdebezium

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// settings reads a connector's configuration: the JSON of Connect's REST interface, {"name": …, "config": {…}} or the inner object alone, or
// a properties file.
func settings(text []byte) (map[string]string, error) {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
	if len(text) == 0 {
		return nil, errors.New("the file is empty")
	}
	if text[0] != '{' {
		return properties(string(text))
	}
	var outer map[string]json.RawMessage
	if err := json.Unmarshal(text, &outer); err != nil {
		return nil, fmt.Errorf("the file is no JSON object: %w", err)
	}
	out := map[string]string{}
	if inner, ok := outer["config"]; ok {
		var name string
		if err := json.Unmarshal(outer["name"], &name); err == nil {
			out["name"] = name
		}
		outer = nil
		if err := json.Unmarshal(inner, &outer); err != nil {
			return nil, fmt.Errorf("config is no JSON object: %w", err)
		}
	}
	for key, value := range outer {
		value = bytes.TrimSpace(value)
		switch {
		case len(value) == 0, string(value) == "null":
		case value[0] == '"':
			var s string
			if err := json.Unmarshal(value, &s); err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			out[key] = s
		case value[0] == '{', value[0] == '[':
			return nil, fmt.Errorf("%s is no single value, which the configuration of a connector never has", key)
		default:
			out[key] = string(value)
		}
	}
	return out, nil
}

// properties reads a file of Java properties.
func properties(text string) (map[string]string, error) {
	out := map[string]string{}
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := strings.TrimLeft(lines[i], " \t\f")
		number := i + 1
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for continues(line) && i+1 < len(lines) {
			i++
			line = line[:len(line)-1] + strings.TrimLeft(lines[i], " \t\f")
		}
		key, value, ok := property(line)
		if !ok {
			return nil, fmt.Errorf("line %d is neither JSON nor key=value", number)
		}
		out[key] = value
	}
	return out, nil
}

// continues tells whether a line ends in a backslash that is not escaped itself.
func continues(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// property cuts a line at the first separator that is not escaped, and undoes the escapes.
func property(line string) (key, value string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case c == '\\' && i+1 < len(line):
			i++
			switch line[i] {
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			default:
				b.WriteByte(line[i])
			}
		case (c == '=' || c == ':') && !ok:
			key, ok = strings.TrimRight(b.String(), " \t"), true
			b.Reset()
			line = line[:i+1] + strings.TrimLeft(line[i+1:], " \t")
		default:
			b.WriteByte(c)
		}
	}
	return key, b.String(), ok
}

// offset is the part of a stored offset that counts.
type offset struct {
	GTIDs    string `json:"gtids"`
	File     string `json:"file"`
	Position int64  `json:"pos"`
	Event    int64  `json:"event"`
	Row      int64  `json:"row"`
	Snapshot any    `json:"snapshot"`
}

// readOffset reads the value of the connector's record in the topic of offsets, or the answer of Connect's GET /connectors/NAME/offsets.
func readOffset(text []byte) (offset, error) {
	var list struct {
		Offsets []struct {
			Offset json.RawMessage `json:"offset"`
		} `json:"offsets"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return offset{}, fmt.Errorf("the offset is no JSON object: %w", err)
	}
	if n := len(list.Offsets); n > 1 {
		return offset{}, fmt.Errorf("the file holds the offsets of %d partitions, a MySQL connector has one", n)
	} else if n == 1 {
		text = list.Offsets[0].Offset
	}
	var o offset
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("the offset cannot be read: %w", err)
	}
	if s := fmt.Sprint(o.Snapshot); o.Snapshot != nil && s != "false" && s != "" {
		return o, errors.New("the offset is one of a snapshot that is not finished: let Debezium finish it, or start the relay at a GTID set of your own")
	}
	if o.GTIDs = strings.Join(strings.Fields(o.GTIDs), ""); o.GTIDs == "" {
		return o, errors.New("the offset has no gtids, only a file and a position, which the relay cannot start from: set gtid_mode=ON, let Debezium publish one more row and store its offset, and try again")
	}
	return o, nil
}
