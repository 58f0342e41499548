package router_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/router"
)

func TestObjectMembers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		want [][2]string
	}{
		{`{}`, nil},
		{`{"a": "b"}`, [][2]string{{"a", "b"}}},
		{`{"a": 1.0, "b": null, "c": true}`, [][2]string{{"a", "1.0"}, {"b", "null"}, {"c", "true"}}},
		{`{"a": {"x": [1, "]}"]}, "b": []}`, [][2]string{{"a", `{"x": [1, "]}"]}`}, {"b", "[]"}}},
		{`{"": ""}`, [][2]string{{"", ""}}},
		{`{"q\"\\": "\/\b\f\n\r\t\u0001é\u00e9😀\ud83d\ude00"}`, [][2]string{{`q"\`, "/\b\f\n\r\t\x01éé😀😀"}}},
		{" {\n\"a\"\t:\r1 , \"b\" : 2 } ", [][2]string{{"a", "1"}, {"b", "2"}}},
		{`{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`, [][2]string{{"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}},
	} {
		got, err := router.ObjectMembers(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.text, diff)
		}
	}
}

func TestObjectMembersRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "null", "[]", `"a"`, "1", "{", `{"a"`, `{"a":`, `{"a":}`, `{"a":1`, `{"a":1,}`, `{,"a":1}`, `{"a":1 "b":2}`, `{"a" 1}`, `{a:1}`, `{"a":1}}`,
		`{"a":1} x`, `{"a":"b}`, `{"a":"\`, `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\u12g4"}`, `{"a":"\ud83d"}`, `{"a":"\ud83dx"}`, `{"a":"\ud83d\u0041"}`, `{"a":"\ude00"}`, `{"a":[1}`, `{"a\":1}`,
	} {
		if got, err := router.ObjectMembers(text); err == nil {
			t.Errorf("%s: accepted as %q", text, got)
		}
	}
}

func FuzzObjectMembers(f *testing.F) {
	for _, s := range []string{`{"a": 1, "b": "x\u00e9\n"}`, `{"a": {"b": ["}"]}, "c": null}`, `{"\ud83d\ude00": ""}`, `{}`, `[1]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := router.ObjectMembers(string(text))
		if !json.Valid(text) || !utf8.Valid(text) {
			return // only the absence of a panic counts
		}
		if err != nil {
			if bytes.HasPrefix(bytes.TrimLeft(text, " \n\t\r"), []byte("{")) && !strings.Contains(err.Error(), "surrogate") {
				t.Fatalf("valid object %q refused: %v", text, err)
			}
			return
		}
		if diff := cmp.Diff(standardMembers(t, text), got); diff != "" {
			t.Fatalf("%q (-encoding/json +got):\n%s", text, diff)
		}
	})
}

// standardMembers does the same with encoding/json.
func standardMembers(t *testing.T, text []byte) (members [][2]string) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			t.Fatal(err)
		}
		value := string(raw)
		if raw[0] == '"' {
			if err := json.Unmarshal(raw, &value); err != nil {
				t.Fatal(err)
			}
		}
		members = append(members, [2]string{name.(string), value})
	}
	return members
}
