package checkpoint_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"outbox-relay/binlog/gtid"
	"outbox-relay/checkpoint"
)

func example() *checkpoint.Checkpoint {
	set, err := gtid.ParseSet("0a000000-0000-0000-0000-000000000001:1-100:102:blue:1-3,0b000000-0000-0000-0000-000000000002:7")
	if err != nil {
		panic(err)
	}
	return &checkpoint.Checkpoint{
		Name: "orders", GTIDSet: set, SourceUUID: "0a000000-0000-0000-0000-000000000001",
		BinlogFile: "binlog.000042", BinlogPosition: 1 << 40,
		Tables:  []string{"app.outbox_events", "`my.app`.`<outbox> \u2028 events`"},
		Columns: json.RawMessage(`{"app.outbox_events":["id","payload & more"]}`), FencingToken: 1<<64 - 1,
		Instance: "host-1/77", Time: time.Date(2026, 5, 6, 7, 8, 9, 123456789, time.UTC),
	}
}

func encode(t *testing.T, c *checkpoint.Checkpoint) []byte {
	t.Helper()
	data, err := checkpoint.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestEncodingRoundTrip(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*checkpoint.Checkpoint){
		"all fields": func(*checkpoint.Checkpoint) {},
		"first save": func(c *checkpoint.Checkpoint) { *c = checkpoint.Checkpoint{Name: "orders", GTIDSet: new(gtid.Set)} },
		"other zone": func(c *checkpoint.Checkpoint) { c.Time = c.Time.In(time.FixedZone("", 3600)) },
		"no columns": func(c *checkpoint.Checkpoint) { c.Columns = nil },
		"begun": func(c *checkpoint.Checkpoint) {
			c.Begun = []checkpoint.Begun{{GTID: "0a000000-0000-0000-0000-000000000001:101", Rows: 70000}}
		},
		"empty tables": func(c *checkpoint.Checkpoint) { c.Tables = []string{} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := example()
			change(want)
			got, err := checkpoint.Unmarshal(encode(t, want), "orders")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got, decodedColumns); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// decodedColumns compares JSON by its value: the encoding indents it.
var decodedColumns = cmp.Transformer("json", func(m json.RawMessage) any {
	var v any
	if len(m) > 0 && json.Unmarshal(m, &v) != nil {
		return string(m)
	}
	return v
})

func TestEncodingIsReadableAndSurvivesIndentation(t *testing.T) {
	t.Parallel()
	data := encode(t, example())
	for _, want := range []string{`"name": "orders"`, `"gtid_set": "0a000000-`, `"version": 1`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("%s is not in\n%s", want, data)
		}
	}
	var v json.RawMessage = data
	compact, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Unmarshal(compact, "orders"); err != nil {
		t.Errorf("the same JSON on one line: %v", err)
	}
}

func TestEncodingRefuses(t *testing.T) {
	t.Parallel()
	good := string(encode(t, example()))
	replace := func(old, by string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("%s is not in\n%s", old, good)
		}
		return strings.Replace(good, old, by, 1)
	}
	for _, c := range []struct {
		name, data string
		reason     error
		text       string
	}{
		{"empty", "", checkpoint.ErrDamaged, "reading checkpoint: damaged checkpoint: it is empty"},
		{"zeros", "\x00\x00\x00\x00", checkpoint.ErrDamaged, "nothing but zero bytes"},
		{"torn", good[:len(good)/2], checkpoint.ErrDamaged, "cut off after"},
		{"zero tail", good[:len(good)/2] + strings.Repeat("\x00", len(good)/2), checkpoint.ErrDamaged, "invalid character"},
		{"two of them", good + good, checkpoint.ErrDamaged, "something follows"},
		{"edited set", replace(":1-100:", ":1-999:"), checkpoint.ErrDamaged, "checksum does not match"},
		{"edited checksum", replace(`"checksum": "`, `"checksum": "0`), checkpoint.ErrDamaged, "checksum does not match"},
		{"no content", `{"format":"outbox-relay checkpoint","version":1}`, checkpoint.ErrDamaged, "no content"},
		{"text", "binlog.000001 154\n", checkpoint.ErrForeign, "it is no checkpoint"},
		{"other JSON", `{"pos": 154}`, checkpoint.ErrForeign, "JSON, but no checkpoint"},
		{"newer", replace(`"version": 1`, `"version": 99`), checkpoint.ErrVersion, "it has version 99, this relay knows up to "},
		{"version zero", replace(`"version": 1`, `"version": 0`), checkpoint.ErrDamaged, "it has version 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := checkpoint.Unmarshal([]byte(c.data), "orders")
			if !errors.Is(err, c.reason) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %v with %q", err, c.reason, c.text)
			}
			var typed *checkpoint.Error
			if !errors.As(err, &typed) || typed.Hint == "" {
				t.Errorf("%v has no hint", err)
			}
		})
	}
	t.Run("other relay", func(t *testing.T) {
		t.Parallel()
		_, err := checkpoint.Unmarshal([]byte(good), "billing")
		if !errors.Is(err, checkpoint.ErrForeign) || !strings.Contains(err.Error(), `it belongs to the relay "orders", this one is "billing"`) {
			t.Errorf("got %v", err)
		}
	})
}

// TestEncodingRefusesEveryCut is the torn file in all its lengths.
func TestEncodingRefusesEveryCut(t *testing.T) {
	t.Parallel()
	good := encode(t, example())
	whole := len(strings.TrimSpace(string(good)))
	for n := range whole {
		if _, err := checkpoint.Unmarshal(good[:n], "orders"); !errors.Is(err, checkpoint.ErrDamaged) {
			t.Fatalf("the first %d of %d bytes: %v", n, whole, err)
		}
	}
}

// TestEncodingNoticesEveryChangedByte flips each byte that is not white space.
func TestEncodingNoticesEveryChangedByte(t *testing.T) {
	t.Parallel()
	good := encode(t, example())
	want, err := checkpoint.Unmarshal(good, "orders")
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x02
		if got, err := checkpoint.Unmarshal(bad, "orders"); err == nil && !cmp.Equal(want, got, decodedColumns) {
			t.Fatalf("byte %d changed from %q to %q was not noticed", i, good[i], bad[i])
		}
	}
}

func TestMarshalRefuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*checkpoint.Checkpoint){
		"no name":         func(c *checkpoint.Checkpoint) { c.Name = "" },
		"no set":          func(c *checkpoint.Checkpoint) { c.GTIDSet = nil },
		"begun by 0 rows": func(c *checkpoint.Checkpoint) { c.Begun = []checkpoint.Begun{{GTID: "a:1"}} },
		"begun nothing":   func(c *checkpoint.Checkpoint) { c.Begun = []checkpoint.Begun{{Rows: 1}} },
		"broken columns":  func(c *checkpoint.Checkpoint) { c.Columns = json.RawMessage(`{"a"`) },
		"impossible time": func(c *checkpoint.Checkpoint) { c.Time = time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := example()
			change(c)
			if _, err := checkpoint.Marshal(c); !errors.Is(err, checkpoint.ErrInvalid) {
				t.Errorf("got %v, want ErrInvalid", err)
			}
		})
	}
}

// TestReadsVersion1 keeps files of released versions readable.
func TestReadsVersion1(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/version1.json")
	if err != nil {
		t.Fatal(err)
	}
	got, err := checkpoint.Unmarshal(data, "orders")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(example(), got, decodedColumns); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// An older relay would read the rows of a begun transaction again if it did not refuse the checkpoint.
func TestBegunTransactionsNeedANewerVersion(t *testing.T) {
	t.Parallel()
	c := example()
	c.Begun = []checkpoint.Begun{{GTID: "0a000000-0000-0000-0000-000000000001:101", Rows: 7}}
	if text := string(encode(t, c)); !strings.Contains(text, `"version": 2`) || !strings.Contains(text, `"rows": 7`) {
		t.Errorf("got %s", text)
	}
	c.Begun = nil
	if text := string(encode(t, c)); !strings.Contains(text, `"version": 1`) || strings.Contains(text, "begun") {
		t.Errorf("without any: got %s", text)
	}
}

// An older relay would go on publishing if it did not refuse the checkpoint.
func TestAPauseNeedsANewerVersion(t *testing.T) {
	t.Parallel()
	c := example()
	c.Paused = time.Date(2026, 5, 6, 7, 8, 9, 0, time.FixedZone("", 3600))
	data := encode(t, c)
	if !strings.Contains(string(data), `"version": 3`) || !strings.Contains(string(data), `"paused": "2026-05-06T06:08:09Z"`) {
		t.Errorf("got %s", data)
	}
	if got, err := checkpoint.Unmarshal(data, "orders"); err != nil || !got.Paused.Equal(c.Paused) {
		t.Errorf("got %+v, %v", got, err)
	}
	if text := string(encode(t, example())); !strings.Contains(text, `"version": 1`) || strings.Contains(text, "paused") {
		t.Errorf("without one: got %s", text)
	}
}

// An older relay would drop it, and the next start could not tell a server that was set back.
func TestTheLastTransactionNeedsANewerVersion(t *testing.T) {
	t.Parallel()
	c := example()
	c.Last = &checkpoint.Last{GTID: "0a000000-0000-0000-0000-000000000001:101", CommitMicros: 1_700_000_000_000_001}
	data := encode(t, c)
	if !strings.Contains(string(data), `"version": 5`) {
		t.Errorf("got %s", data)
	}
	if got, err := checkpoint.Unmarshal(data, "orders"); err != nil || got.Last == nil || *got.Last != *c.Last {
		t.Errorf("got %+v, %v", got, err)
	}
}

func FuzzUnmarshal(f *testing.F) {
	data, err := checkpoint.Marshal(example())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"format":"outbox-relay checkpoint","version":1,"checksum":"","checkpoint":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := checkpoint.Unmarshal(data, "orders")
		var typed *checkpoint.Error
		switch {
		case err != nil && !errors.As(err, &typed):
			t.Fatalf("error %v is no *Error", err)
		case err != nil:
			return
		}
		if _, err := checkpoint.Marshal(c); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
	})
}
