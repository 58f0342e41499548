// Package debezium makes of an outbox row what Debezium's MySQL connector with the Outbox Event Router makes of it: topic, key, value,
// headers, timestamp and partition, byte for byte as release 3.6.1 with the converters of Kafka Connect.
//
// [New] checks the options, which have the router's meaning under names of this project. [Preset.Bind] finds their columns in one version
// of a table. The methods of [Bound] append one part of a record each.
//
// Where Debezium loses data, halts for good or depends on what ran before, this package differs on purpose; golden_test.go lists the cases
// with the reasons. It is pure, and knows nothing of rules, records and what becomes of a row that cannot be published.
package debezium
