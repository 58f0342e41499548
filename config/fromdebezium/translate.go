package fromdebezium

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
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

// plainTable is a pattern of table.include.list that names one table.
var plainTable = regexp.MustCompile(`^[A-Za-z0-9_$-]+\\?\.[A-Za-z0-9_$-]+$`)

func (t *translator) tables() {
	t.line("\ntables:")
	list := t.get("table.include.list")
	if list == "" {
		list = t.get("table.whitelist")
	}
	if list == "" {
		t.line("  # Debezium reads all tables, or all of some databases: name the outbox tables, each with the section below.")
		t.rule("", "")
		return
	}
	for one := range strings.SplitSeq(list, ",") {
		if one = strings.TrimSpace(one); plainTable.MatchString(one) {
			t.rule(strings.ReplaceAll(one, `\`, ""), "")
		} else {
			t.rule("", one)
		}
	}
}

// rule writes the rule of one table.
func (t *translator) rule(table, pattern string) {
	switch {
	case table != "":
		t.line("  - table: %s", quote(table))
	case pattern != "":
		t.line("  - table:   # name each table that the pattern %s stands for, as schema.table", oneLine(pattern))
	default:
		t.line("  - table:   # as schema.table")
	}
	t.line("    preset: debezium")
	t.line("    debezium:")
	t.line("      topic_prefix: %s", quote(t.get("topic.prefix")))
	for _, o := range routerOptions {
		if v := t.get(t.router + o.debezium); v != "" {
			t.line("      %s: %s", o.key, quoteOption(o.key, v))
		}
	}
	if v := t.get(t.router + "table.fields.additional.placement"); v != "" {
		var items []string
		for one := range strings.SplitSeq(v, ",") {
			items = append(items, quote(strings.TrimSpace(one)))
		}
		t.line("      additional: [%s]", strings.Join(items, ", "))
	}
	t.converter("key")
	t.converter("value")
	t.converter("header")
	if t.get("extended.headers.enabled") == "false" {
		t.line("      context_headers: false")
	}
	for _, o := range []struct{ debezium, key string }{{"binary.handling.mode", "binary"}, {"bigint.unsigned.handling.mode", "bigint_unsigned"}} {
		if v := t.get(o.debezium); v != "" {
			t.line("      %s: %s", o.key, quote(v))
		}
	}
}

// quoteOption writes a word as it is and anything else in quotes.
func quoteOption(key, v string) string {
	if key == "expand_json" || key == "tombstone_on_empty" {
		return strings.ToLower(v)
	}
	return quote(v)
}

// converter writes a converter of the rule. A class that is not known stays, so that the configuration is refused until someone decides.
func (t *translator) converter(part string) {
	key := part + ".converter"
	class := t.get(key)
	schemas := t.get(key+".schemas.enable") != "false"
	t.used[key+".delegate.converter.type"] = true
	word := ""
	switch short := class[strings.LastIndexByte(class, '.')+1:]; {
	case class == "" && part == "header", short == "SimpleHeaderConverter" && part == "header":
		return
	case class == "":
		t.line("      # %s is not given: that of the Connect worker counts. This is the preset's default.", key)
		word = "string"
	case short == "StringConverter":
		word = "string"
	case short == "JsonConverter" && schemas:
		word = "json-with-schema"
	case short == "JsonConverter":
		word = "json"
	case short == "BinaryDataConverter" && part == "value":
		word = "binary"
	default:
		word = class
		if !slices.ContainsFunc(t.losses, func(l Loss) bool { return l.Key == key }) {
			t.lose(key, "the converter %s is not known here", class)
		}
	}
	t.line("      %s_converter: %s", part, quote(word))
}

func (t *translator) kafka() {
	t.line("\nkafka:")
	brokers, from := t.get("producer.override.bootstrap.servers"), "producer.override.bootstrap.servers"
	if brokers == "" {
		from = "schema.history.internal.kafka.bootstrap.servers"
		brokers = t.get(from)
	}
	if brokers == "" {
		t.line("  brokers:   # bootstrap.servers of the Connect worker")
	} else {
		var list []string
		for one := range strings.SplitSeq(brokers, ",") {
			list = append(list, quote(strings.TrimSpace(one)))
		}
		t.line("  brokers: [%s]   # from %s; those of the Connect worker count", strings.Join(list, ", "), from)
	}
	if v := t.get("producer.override.compression.type"); v != "" {
		t.line("  compression: %s", quote(v))
	}
	if v := t.get("producer.override.linger.ms"); v != "" {
		t.line("  linger: %sms", v)
	}
	partitions, factor := t.get("topic.creation.default.partitions"), t.get("topic.creation.default.replication.factor")
	if partitions != "" || factor != "" {
		t.line("  create_topics:")
		t.line("    enabled: true")
		t.positive("partitions", partitions)
		t.positive("replication_factor", factor)
		t.topicConfigs()
	}
	secured := slices.ContainsFunc(t.with(""), func(key string) bool {
		return strings.Contains(key, "security.protocol") || strings.Contains(key, ".sasl.") || strings.HasPrefix(key, "producer.override.ssl.")
	})
	if secured {
		t.line("  # Debezium reaches Kafka by TLS or with a login: see tls and sasl of `outbox-relay config example`.")
	}
	for _, key := range t.with("producer.override.s") { // security.protocol, sasl, ssl
		t.used[key] = true
	}
}

// positive writes a number of create_topics; Debezium's -1 is the broker's own default.
func (t *translator) positive(key, v string) {
	if n, err := strconv.Atoi(v); err == nil && n > 0 {
		t.line("    %s: %d", key, n)
	} else if v != "" {
		t.line("    # %s: %s is the broker's own; there is no such setting, so this is the relay's default.", key, oneLine(v))
	}
}

func (t *translator) topicConfigs() {
	const prefix = "topic.creation.default."
	var items []string
	for _, key := range t.with(prefix) {
		if short := strings.TrimPrefix(key, prefix); !t.used[key] && short != "include" && short != "exclude" {
			items = append(items, short+": "+quote(t.get(key)))
		}
	}
	if len(items) > 0 {
		t.line("    configs: {%s}", strings.Join(items, ", "))
	}
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
