// Command bench measures the relay beside others in the same run on the same rows, with a real MySQL and a real Kafka from internal/sandbox. Only
// ratios are judged: absolute figures depend on the host and on who else uses it.
//
//	drain         empties a backlog, in turn by the real binary, by a simple relay built of go-mysql and sarama at their defaults, and by Debezium at its
//	              defaults and tuned; the limits are a reader that only counts packets and a producer that sends prepared records
//	latency       a steady load: the time from a commit to a consumer, and what that costs; the limit is a program that publishes right after the commit
//	idle          what it costs to follow a server that does nothing
//	memory        drains a huge transaction of a foreign table and one of outbox rows, and reports the peak memory
//	skip          reads a stream of foreign rows with the relay's reader, with one that only counts packets and with one that checks sums as well
//	decode        decodes the same outbox row events with the relay's decoder and with go-mysql's parser, and passes by the same foreign events with
//	              the relay's reader and with that parser
//	exactly-once  drains and follows with both deliveries
//	all           all of that
//	serve         keeps the servers and the rows of drain for many runs of drain -state
//
// The program measures all from outside (rusage, /proc, what is visible in Kafka) and deliberately adds nothing to the relay. For -cpuprofile the
// relay's main file is replaced while it is built (go build -overlay), so the product has no switch for it.
package main
