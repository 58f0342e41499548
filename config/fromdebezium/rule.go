package fromdebezium

import (
	"regexp"
	"slices"
	"strings"
)

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
	switch t.get("extended.headers.enabled") {
	case "false":
		t.line("      context_headers: false")
	case "":
		t.line("      # Older releases of Debezium send no headers __debezium.context.*: look at your topics, and set false then.")
		t.line("      context_headers: true")
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
	case (short == "BinaryDataConverter" || short == "ByteBufferConverter") && part == "value":
		word = "binary"
	default:
		word = class
		if !slices.ContainsFunc(t.losses, func(l Loss) bool { return l.Key == key }) {
			t.lose(key, "the converter %s is not known here", class)
		}
	}
	t.line("      %s_converter: %s", part, quote(word))
}
