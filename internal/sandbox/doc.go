// Package sandbox starts real MySQL and real Kafka servers on this machine for the
// demo, the tests and the benchmarks: without Docker, as any user, on 127.0.0.1, each
// instance on free ports and in a temporary folder of its own.
//
// The programs are fetched once into a cache folder (CacheDir) with the tools that the
// host has (apt-get and dpkg-deb, mvn) and from the places those are configured for.
// A missing tool is a *MissingError. The servers end with the process that started them,
// however it ends. The package does not configure the relay and knows nothing of it.
//
// For tests (tb is a *testing.T, B or F; any fault is tb.Fatalf):
//
//	m := sandbox.SharedMySQL(tb)             // one server per test process; TEST_MYSQL_DSN replaces it
//	m := sandbox.RunMySQL(tb, MySQLOptions{}) // a server of this test's own: may be killed and paused
//	name := m.NewDatabase(tb)                // a database of this test's own, dropped at its end
//	db := m.DB(tb, name)                     // *sql.DB of root, closed at the test's end
//
//	k := sandbox.SharedKafka(tb)             // one broker per test process; TEST_KAFKA_BROKERS replaces it
//	k := sandbox.RunKafka(tb, KafkaOptions{Brokers: 3})
//	topic := k.NewTopic(tb, 4, nil)          // a topic of this test's own
//
//	p := sandbox.RunProxy(tb, m.Addr())      // TCP proxy with faults
//
// The same without a test, with contexts and errors: StartMySQL, StartKafka, NewProxy,
// m.Open, m.Exec, m.DSN, k.Addrs, k.CreateTopic, k.Leader, k.WaitInSync, k.Admin.
//
// Verbs of a MySQL and of each k.Broker(1..n): Stop, Kill, Pause, Resume, Start, Restart
// (same data, same ports), Close. A MySQL takes SetArgs and a broker SetProperties for
// the next start. A proxy has Cut, CutAfter, Freeze, Thaw, Mute, Unmute, Delay, Refuse, Stats.
package sandbox
