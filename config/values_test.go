package config_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"outbox-relay/config"
)

func TestExampleLoadsWithoutFaults(t *testing.T) {
	t.Parallel()
	c, err := config.Load(config.Options{File: write(t, string(config.Example()))})
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "orders" || len(c.Tables) != 1 {
		t.Errorf("got %+v", c)
	}
}

// TestExampleNamesEveryKey compares the example with what Print knows. Keys that
// stand behind a # count.
func TestExampleNamesEveryKey(t *testing.T) {
	t.Parallel()
	example := string(config.Example())
	c := load(t, everything, config.Options{})
	c.Source.Password.Command, c.Source.Password.File = []string{"x"}, "x"
	for line := range strings.SplitSeq(string(config.Print(c)), "\n") {
		key, _, ok := strings.Cut(strings.TrimLeft(line, " -"), ":")
		switch {
		case !ok || strings.ContainsAny(key, `./"'`):
		case key == "event_type" || key == "region" || key == "park_keys" || strings.HasSuffix(key, "0a000000-0000-0000-0000-000000000001"):
		default:
			if !strings.Contains(example, key+":") && !strings.Contains(example, key+" ") {
				t.Errorf("the example lacks %q", key)
			}
		}
	}
}

// TestExampleDefaultsAreTheDefaults takes the # off every "# key: value" line
// of which the value is a default, and expects the same configuration.
func TestExampleDefaultsAreTheDefaults(t *testing.T) {
	t.Parallel()
	notDefaults := []string{"ca", "cert", "key", "address", "timestamp", "time_zone", "partition", "debezium", "cloudevents", "when", "from", "configs", "sasl", "mechanism", "user", "password", "password_file", "password_command", "spool_dir"}
	var b strings.Builder
	changed := 0
	for line := range strings.SplitSeq(string(config.Example()), "\n") {
		rest, ok := strings.CutPrefix(strings.TrimLeft(line, " "), "# ")
		key, _, isKey := strings.Cut(rest, ":")
		if ok && isKey && !strings.ContainsAny(key, " `") {
			skip := false
			for _, one := range notDefaults {
				skip = skip || key == one
			}
			if !skip {
				line = line[:len(line)-len(rest)-2] + rest
				changed++
			}
		}
		b.WriteString(line + "\n")
	}
	if changed < 20 {
		t.Fatalf("only %d defaults found in the example", changed)
	}
	want, got := load(t, string(config.Example()), config.Options{}), load(t, b.String(), config.Options{})
	if diff := cmp.Diff(want, got, withoutOrigins); diff != "" {
		t.Errorf("with the defaults written out, -want +got\n%s\n%s", diff, b.String())
	}
}

func TestPrintMasksSecretsAndLoadsAgain(t *testing.T) {
	t.Parallel()
	text := strings.Replace(everything, "password_file: /secret", "password: hunter2", 1)
	want := load(t, text, config.Options{})
	printed := string(config.Print(want))
	if strings.Contains(printed, "0123") || strings.Contains(printed, "pw") || strings.Contains(printed, "hunter2") {
		t.Errorf("a secret is in\n%s", printed)
	}
	if want.Source.Password.Value != "0123" {
		t.Error("Print changed the configuration")
	}
	got := load(t, printed, config.Options{})
	if got.Source.Password.Value != "***" || got.Kafka.SASL.Password.Value != "***" {
		t.Errorf("a password is not shown as masked in\n%s", printed)
	}
	want.Source.Password.Value, want.Kafka.SASL.Password.Value, want.Checkpoint.Password.Value = "***", "***", "***"
	if diff := cmp.Diff(want, got, withoutOrigins, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("what was printed loads differently, -want +got\n%s", diff)
	}
	if _, err := config.Load(config.Options{File: write(t, string(config.Print(load(t, least, config.Options{}))))}); err != nil {
		t.Errorf("the printed defaults do not load: %v", err)
	}
}

func TestSecretIsMaskedWhereverItIsPrinted(t *testing.T) {
	t.Parallel()
	s := config.Secret{Value: "hunter2"}
	encoded, err := json.Marshal(struct{ S config.Secret }{s})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{fmt.Sprint(s), fmt.Sprintf("%v %+v %#v %s %q", s, &s, s, s, s), fmt.Sprintf("%+v", config.Source{Password: s}), string(encoded)} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("the secret is in %s", text)
		}
	}
}

func TestSecretRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	keep := func(content string) config.Secret {
		path := filepath.Join(t.TempDir(), "password")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return config.Secret{File: path}
	}
	shell := func(script string) config.Secret { return config.Secret{Command: []string{"/bin/sh", "-c", script}} }
	for _, c := range []struct {
		name   string
		secret config.Secret
		want   string
		fault  string
	}{
		{"none", config.Secret{}, "", ""},
		{"value", config.Secret{Value: " a b\n"}, " a b\n", ""},
		{"file", keep(" a b \n"), " a b ", ""},
		{"file with one of two line ends", keep("a\n\n"), "a\n", ""},
		{"file from Windows", keep("a\r\n"), "a", ""},
		{"file without line end", keep("a"), "a", ""},
		{"empty file", keep("\n"), "", "is empty"},
		{"missing file", config.Secret{File: file}, "", "no such file"},
		{"large file", keep(strings.Repeat("a", 1<<17)), "", "larger than"},
		{"command", shell("echo secret"), "secret", ""},
		{"command with arguments", config.Secret{Command: []string{"echo", "a b", "$HOME"}}, "a b $HOME", ""},
		{"failing command", shell("echo hunter2; echo hunter2 >&2; exit 3"), "", "running the password command /bin/sh: exit status 3 (what it writes to standard error is not shown"},
		{"command that hangs", shell("echo hunter2; sleep 1000"), "", "it did not end within 10s"},
		{"silent command", shell("exit 0"), "", "is empty"},
		{"missing command", config.Secret{Command: []string{"/no/such/program"}}, "", "no such file"},
		{"talkative command", shell("head -c 200000 /dev/zero"), "", "printed more than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := c.secret.Read(t.Context())
			if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
				t.Fatalf("got error %v, want %q", err, c.fault)
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the secret is in %v", err)
			}
		})
	}
}

func TestSecretReadSeesARotatedFile(t *testing.T) {
	t.Parallel()
	s := config.Secret{File: filepath.Join(t.TempDir(), "password")}
	for _, want := range []string{"old", "new"} {
		if err := os.WriteFile(s.File, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Read(t.Context()); got != want || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
}

// The command's child keeps the output open; it must not keep the caller.
func TestSecretReadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := config.Secret{Command: []string{"/bin/sh", "-c", "sleep 30 & wait"}}.Read(ctx)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]config.Size{
		"0": 0, "1": 1, "100B": 100, "64KiB": 64 << 10, "16 MiB": 16 << 20, "10GiB": 10 << 30, "1TiB": 1 << 40, "8388607TiB": 8388607 << 40,
	} {
		var got config.Size
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s is %d, %v, want %d", text, got, err, want)
		}
		var again config.Size
		if err := again.UnmarshalText([]byte(got.String())); err != nil || again != got {
			t.Errorf("%s is printed as %s, which is %d, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "MiB", "-1MiB", "1.5GiB", "1e3", "16mib", "16MB", "16M", "16MiBMiB", "8388608TiB", "99999999999999999999", "0x10"} {
		var got config.Size
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %s, want an error", text, got)
		}
	}
	for size, want := range map[config.Size]string{1536: "1536B", 1024: "1KiB", 3 << 20: "3MiB", 0: "0B"} {
		if got := size.String(); got != want {
			t.Errorf("%d is printed as %s, want %s", size, got, want)
		}
	}
}

func TestTableName(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]config.TableName{
		"app.outbox":                   {Schema: "app", Table: "outbox"},
		"my-app.outbox events":         {Schema: "my-app", Table: "outbox events"},
		"`my.app`.`outbox events`":     {Schema: "my.app", Table: "outbox events"},
		"app.`a``b`":                   {Schema: "app", Table: "a`b"},
		"`app`.`50%`":                  {Schema: "app", Table: "50%"},
		"app_%.outbox_%":               {Schema: "app_%", Table: "outbox_%"},
		"ä." + strings.Repeat("ö", 64): {Schema: "ä", Table: strings.Repeat("ö", 64)},
	} {
		var got, again config.TableName
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s is %+v, %v, want %+v", text, got, err, want)
		}
		if err := again.UnmarshalText([]byte(got.String())); err != nil || again != got {
			t.Errorf("%s is printed as %s, which is %+v, %v", text, got, again, err)
		}
	}
	for text, want := range map[string]string{
		"": "is empty", "app": "lacks a schema", "app.": "is empty", ".t": "is empty", "a.b.c": "more than two parts", "`a`.``": "is empty",
		"`a.b": "not closed", "a.b`c": "holds a quote", "a.'b'": "holds a quote", "`a`b.c": "lacks a schema", "a. b": "white space",
		"a." + strings.Repeat("x", 65): "64 characters", "`a`.`b`c": "more than two parts",
	} {
		var got config.TableName
		if err := got.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is %+v, %v, want an error with %q", text, got, err, want)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add(least)
	f.Add(everything)
	f.Add(string(config.Example()))
	f.Add("a: &a [*a]\nsource: &b {<<: [*b, *b], tls: *b}\ntables: [*b, *a]")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := config.Load(config.Options{File: write(t, text)})
		var faults *config.Faults
		if err != nil {
			if !errors.As(err, &faults) || len(faults.List) == 0 {
				t.Fatalf("error %v is no list of faults", err)
			}
			return
		}
		if _, err := config.Load(config.Options{File: write(t, string(config.Print(c)))}); err != nil {
			t.Fatalf("the printed configuration does not load: %v\n%s", err, config.Print(c))
		}
	})
}
