package fromdebezium

import "strings"

// routerOptions are the options of the router that have a key in the section debezium.
var routerOptions = []struct{ debezium, key string }{
	{"table.field.event.id", "id"},
	{"table.field.event.key", "key"},
	{"table.field.event.payload", "payload"},
	{"table.field.event.timestamp", "timestamp"},
	{"route.by.field", "route"},
	{"route.topic.regex", "topic_regex"},
	{"route.topic.replacement", "topic_replacement"},
	{"table.field.additional.missing", "additional_missing"},
	{"table.expand.json.payload", "expand_json"},
	{"table.json.payload.null.behavior", "json_null"},
	{"route.tombstone.on.empty.payload", "tombstone_on_empty"},
}

// needless are settings without a counterpart that change no record. A key that ends in a star stands for all that begin so; the first that
// fits counts.
var needless = []struct{ key, why string }{
	{"tasks.max", "there is one reader"},
	{"database.server.id", "the relay derives an id of its own, so that both can run"},
	{"database.server.name", "topic.prefix counts"},
	{"database.include.list", "the tables are named"},
	{"database.exclude.list", "the tables are named"},
	{"table.exclude.list", "the tables are named"},
	{"snapshot.*", "the relay takes no snapshot: it starts at source.start"},
	{"incremental.snapshot.*", "the relay takes no snapshot"},
	{"read.only", "the relay takes no snapshot"},
	{"signal.*", "there are no signals"},
	{"notification.*", "there are no notifications"},
	{"schema.history.*", "no history is kept: columns come with the binlog"},
	{"database.history.*", "no history is kept: columns come with the binlog"},
	{"include.schema.changes", "changes of tables are not published"},
	{"include.query", "statements are not published"},
	{"provide.transaction.metadata*", "transactions are not published; the header outbox-relay-position names them"},
	{"tombstones.on.delete", "deletes of outbox rows publish nothing"},
	{"skipped.operations", "updates, deletes and truncates of outbox rows publish nothing, and are counted"},
	{"heartbeat.*", "the checkpoint moves with every transaction of the server"},
	{"topic.heartbeat.prefix", "the checkpoint moves with every transaction of the server"},
	{"max.batch.size", "rows are published as they come"}, {"max.queue.size*", "limits.buffer bounds the memory"},
	{"poll.interval.ms", "rows are published as they come"}, {"binlog.buffer.size", "limits bounds the memory"},
	{"connect.*", "the relay reconnects for ever"}, {"database.connectionTimeZone", "times are read as UTC"},
	{"errors.*", "nothing is skipped: a row that cannot be published halts the relay, or goes where poison says"},
	{"retriable.restart.connector.wait.ms", "the relay reconnects for ever"}, {"custom.retriable.exception", "the relay reconnects for ever"},
	{"event.processing.failure.handling.mode", "what cannot be read halts the relay"},
	{"event.converting.failure.handling.mode", "what cannot be read halts the relay"},
	{"inconsistent.schema.handling.mode", "what cannot be read halts the relay"},
	{"exactly.once.support", "delivery is at least once: consumers drop duplicates by the header outbox-relay-position"},
	{"transaction.boundary*", "delivery is at least once: consumers drop duplicates by the header outbox-relay-position"},
	{"offset.*", "the checkpoint is the relay's own, see checkpoint"}, {"offsets.*", "the checkpoint is the relay's own, see checkpoint"},
	{"message.key.columns", "the router sets the key"}, {"topic.naming.strategy", "the router sets the topic"}, {"topic.delimiter", "the router sets the topic"},
	{"topic.cache.size", "the router sets the topic"}, {"topic.transaction", "transactions are not published"},
	{"gtid.ignore.on.recovery", "the relay goes on from its checkpoint"}, {"gtid.new.channel.position", "the relay goes on from its checkpoint"},
	{"value.converter.delegate.*", "it serves records besides the outbox"}, {"driver.*", "the relay has its own driver"}, {"database.jdbc.*", "the relay has its own driver"},
	{"database.protocol", "the relay has its own driver"}, {"database.allowPublicKeyRetrieval", "the relay has its own driver"},
	{"predicates*", "the rule names the table"}, {"producer.override.acks", "always all"}, {"producer.override.enable.idempotence", "always on"},
	{"producer.override.max.request.size", "the limit is that of the topic"}, {"producer.override.batch.size", "batches size themselves"},
	{"producer.override.buffer.memory", "limits.buffer bounds the memory"}, {"producer.override.max.in.flight.requests.per.connection", "order is kept"},
	{"producer.override.retries", "sending is repeated until it is acknowledged"}, {"producer.override.delivery.timeout.ms", "sending is repeated until it is acknowledged"},
	{"producer.override.request.timeout.ms", "sending is repeated until it is acknowledged"}, {"producer.override.client.id", "the relay names itself"},
	{"table.ignore.builtin", "the tables are named"}, {"min.row.count.to.stream.results", "the relay takes no snapshot"},
	{"database.initial.statements", "there is no session that reads tables"}, {"database.query.timeout.ms", "there is no session that reads tables"},
	{"event.deserialization.failure.handling.mode", "what cannot be read halts the relay"}, {"enable.time.adjuster", "years are as the column has them"},
	{"sourceinfo.struct.maker", "the router leaves out the source"}, {"source.struct.version", "the router leaves out the source"},
}

// whyNeedless gives the reason for leaving a setting out, "" where it would be missed.
func whyNeedless(key string) string {
	for _, n := range needless {
		if prefix, star := strings.CutSuffix(n.key, "*"); key == n.key || star && strings.HasPrefix(key, prefix) {
			return n.why
		}
	}
	return ""
}

// defaults are settings that cannot be translated and lose nothing at these values, the first of which is Debezium's own.
var defaults = map[string]struct {
	values []string
	loss   string
}{
	"time.precision.mode":         {[]string{"adaptive_time_microseconds"}, "times in headers, envelopes and keys have the form of adaptive_time_microseconds here"},
	"decimal.handling.mode":       {[]string{"precise"}, "decimals in headers, envelopes and keys have the form of precise here"},
	"field.name.adjustment.mode":  {[]string{"none"}, "names of fields are not changed here"},
	"schema.name.adjustment.mode": {[]string{"none"}, "names of schemas are not changed here"},
}
