package fromdebezium

import (
	"slices"
	"strconv"
	"strings"
)

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
