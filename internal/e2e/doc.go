// Package e2e runs the real relay between a real MySQL and a real Kafka, disturbs all three, and judges what a consumer received against
// what SELECT finds in the outbox tables.
//
// A [Site] is where a run takes place: databases, topics and folders of its own on servers that it may share. [Site.StartLoad] is the
// order service: transactions of business rows and outbox rows, some rolled back. [Site.Start] runs the relay as a child process, the
// binary as users run it, which ends with this process. [Site.Judge] gives the account of relaytest's validator.
//
// [Crash], [Faults], [Chaos], [Handover], [XA] and [Failover] are the campaigns: random kills of the relay, faults of the servers and the network one kind
// after the other, all of it at random on three brokers, faults of one of two relays at a time, XA transactions amid ends of the relay and of MySQL, and a
// primary that moves between two servers. The tests beside them are
// deterministic: one for each line of the crash table, the seeded mutants that the validator has to catch, stops, standby, foreign load.
//
// The package knows nothing of the relay's insides besides its configuration, its status and its checkpoint file.
package e2e
