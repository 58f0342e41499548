package fromdebezium

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Loss is a setting without a counterpart, without which records or the connection differ.
type Loss struct {
	// Key is the setting, Text what is missed, in a sentence without a full stop.
	Key, Text string
}

// Translate gives the relay's configuration as YAML, with comments on what is left out, and the losses, in the order of their keys.
// storedOffset is nil for none. An error means that there is nothing to translate.
func Translate(connector, storedOffset []byte) (yaml []byte, losses []Loss, err error) {
	in, err := settings(connector)
	if err != nil {
		return nil, nil, err
	}
	t := &translator{in: in, used: map[string]bool{}}
	if err := t.suits(); err != nil {
		return nil, nil, err
	}
	var start *offset
	if storedOffset != nil {
		o, err := readOffset(storedOffset)
		if err != nil {
			return nil, nil, err
		}
		start = &o
	}
	t.head()
	t.source(start)
	t.tables()
	t.kafka()
	t.line("")
	t.line("checkpoint:")
	t.line("  # On a disk that outlives the relay, or store: mysql.")
	t.line("  path: %s", quote("/var/lib/outbox-relay/"+t.name+".checkpoint"))
	t.rest()
	return []byte(t.out.String()), t.losses, nil
}

type translator struct {
	in     map[string]string
	used   map[string]bool
	router string // prefix of the router's options
	name   string
	out    strings.Builder
	left   []string // comments on settings without a counterpart
	losses []Loss
}

func (t *translator) line(format string, args ...any) { fmt.Fprintf(&t.out, format+"\n", args...) }

// get gives a setting and notes that it was looked at.
func (t *translator) get(key string) string {
	t.used[key] = true
	return strings.TrimSpace(t.in[key])
}

func (t *translator) lose(key, format string, args ...any) {
	t.used[key] = true
	t.losses = append(t.losses, Loss{key, fmt.Sprintf(format, args...)})
}

const routerClass = "io.debezium.transforms.outbox.EventRouter"

// suits refuses what is no MySQL connector with the router.
func (t *translator) suits() error {
	for key := range t.in {
		if strings.HasPrefix(key, "debezium.source.") || strings.HasPrefix(key, "debezium.sink.") {
			return errors.New("this is a configuration of Debezium Server, whose records differ from those of the connector in Kafka Connect: write the configuration by hand, see docs/debezium.md")
		}
	}
	if class := t.get("connector.class"); class != "io.debezium.connector.mysql.MySqlConnector" && class != "MySqlConnector" && class != "MySql" {
		return fmt.Errorf("connector.class is %q: only Debezium's MySQL connector can be translated", class)
	}
	for one := range strings.SplitSeq(t.get("transforms"), ",") {
		one = strings.TrimSpace(one)
		if one == "" {
			continue
		}
		prefix := "transforms." + one + "."
		if class := t.get(prefix + "type"); class == routerClass || strings.HasPrefix(class, routerClass+"$") {
			t.router = prefix
			continue
		}
		for key := range t.in {
			t.used[key] = t.used[key] || strings.HasPrefix(key, prefix)
		}
		t.lose(prefix+"type", "the transformation %s does not run here", t.in[prefix+"type"])
	}
	if t.router == "" {
		return fmt.Errorf("no transformation is an %s: there is no outbox to translate", routerClass)
	}
	return nil
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

func (t *translator) head() {
	t.name = notInName.ReplaceAllString(t.get("name"), "-")
	if t.name == "" {
		t.name = notInName.ReplaceAllString(t.in["topic.prefix"], "-")
	}
	if t.name = t.name[:min(len(t.name), 48)]; t.name == "" {
		t.name = "outbox-relay"
	}
	t.line("# Translated from the configuration of a Debezium MySQL connector. See docs/debezium.md")
	t.line("# for the way from one to the other, and the comments at the end for what was left out.")
	t.line("")
	t.line("name: %s", quote(t.name))
}

func (t *translator) source(start *offset) {
	host, port := t.get("database.hostname"), t.get("database.port")
	if port == "" {
		port = "3306"
	}
	t.line("\nsource:")
	if host == "" {
		t.line("  address:   # the server, as host:port: database.hostname is not given")
	} else {
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		t.line("  address: %s", quote(host+":"+port))
	}
	t.line("  user: %s", quote(t.get("database.user")))
	t.used["database.password"] = true
	t.line("  # The password was not copied: put it into this file, or name a command.")
	t.line("  password_file: /run/secrets/outbox-relay-mysql")
	mode := strings.ReplaceAll(t.get("database.ssl.mode"), "_", "-")
	if mode == "" {
		mode = "preferred"
	}
	t.line("  tls:")
	t.line("    mode: %s", quote(mode))
	for _, key := range t.with("database.ssl.") {
		if !t.used[key] {
			t.used[key] = true
			t.line("    # %s: Java's key stores are not read; give ca, cert and key as PEM files.", key)
		}
	}
	if start == nil {
		t.line("  # Where to begin: the GTID set of Debezium's stored offset (run this command with --offset),")
		t.line("  # latest or earliest. Without it the relay refuses to run.")
		t.line("  # start:")
		return
	}
	t.line("  # Debezium's stored offset. The transaction that it was in is not in the set, and is published")
	t.line("  # again from its first row: event %d, row %d, %s:%d.", start.Event, start.Row, oneLine(start.File), start.Position)
	t.line("  start: %s", quote(start.GTIDs))
}

// with lists the settings that begin with prefix, sorted.
func (t *translator) with(prefix string) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(t.in)) {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	return keys
}

// rest accounts for the settings that were not looked at.
func (t *translator) rest() {
	for _, key := range t.with("") {
		if t.used[key] {
			continue
		}
		v := strings.TrimSpace(t.in[key])
		option, ofRouter := strings.CutPrefix(key, t.router)
		d, hasDefault := defaults[key]
		switch why := whyNeedless(key); {
		case hasDefault && slices.Contains(d.values, v):
		case hasDefault:
			t.lose(key, "%s", d.loss)
		case option == "table.op.invalid.behavior" && ofRouter:
			t.leave(key, "updates of outbox rows publish nothing, and are counted; they never stop the relay")
		case strings.HasPrefix(option, "tracing.") && ofRouter:
			t.leave(key, "there are no spans; a column with a trace context can become a header (additional)")
		case (option == "predicate" || option == "negate") && ofRouter:
			t.leave(key, "the rule names the table")
		case option == "table.field.event.type" && ofRouter:
			t.leave(key, "Debezium does not use it either")
		case option == "table.json.payload.empty.array.behavior" && ofRouter && v == "ignore":
		case ofRouter:
			t.lose(key, "this option of the router is not known here")
		case why != "":
			t.leave(key, why)
		case strings.HasPrefix(key, "topic.creation."):
			t.lose(key, "topics are created in one way: see kafka.create_topics")
		case strings.HasPrefix(key, "column.") || strings.HasPrefix(key, "converters") || strings.HasPrefix(key, "datatype.") || strings.HasPrefix(key, "post.processors"):
			t.lose(key, "columns are published as they are")
		case strings.HasPrefix(key, "gtid.source."):
			t.lose(key, "the transactions of all servers are read")
		case strings.HasPrefix(key, "key.converter.") || strings.HasPrefix(key, "value.converter.") || strings.HasPrefix(key, "header.converter."):
			t.lose(key, "this option of the converter is not known here")
		default:
			t.lose(key, "the setting is not known here")
		}
	}
	slices.SortStableFunc(t.losses, func(a, b Loss) int { return strings.Compare(a.Key, b.Key) })
	if len(t.losses) > 0 {
		t.line("\n# NOT TRANSLATED, and missed:")
		for _, l := range t.losses {
			t.line("#   %s: %s", oneLine(l.Key), oneLine(l.Text))
		}
	}
	if len(t.left) > 0 {
		t.line("\n# Left out, and not missed:")
		for _, l := range t.left {
			t.line("#   %s", oneLine(l))
		}
	}
}

func (t *translator) leave(key, why string) { t.left = append(t.left, key+": "+why) }

// oneLine keeps a text from ending its comment.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0x85 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, s)
}

var plainWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]*$`)

// quote writes a YAML scalar that is text.
func quote(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
	default:
		if plainWord.MatchString(s) {
			return s
		}
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // a string always has JSON, which is YAML
	return strings.TrimSuffix(b.String(), "\n")
}
