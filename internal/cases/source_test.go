package cases_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
	"outbox-relay/internal/sandbox"
)

var sourceCases = []failureCase{
	{id: "G1", what: "tagged and plain transactions in turn, and a connection that is cut between them", only: "9", steps: taggedAndCut},
	{id: "G2", what: "a tagged transaction with a number that is far ahead", only: "9", steps: largeNumber},
	{id: "G3", what: "thousands of gaps in what the server has executed", only: "9", steps: manyGaps},
	{id: "G4", what: "a quiet outbox on a busy server whose old binlogs are purged", alone: true, steps: quietOutbox},
	{id: "G5", what: "a checkpoint that is older than what the server has kept", alone: true, steps: purgedCheckpoint},
	{id: "G6", what: "a checkpoint ahead of the server, which came back from a backup", only: "9", steps: aheadOfServer},
	{id: "G7", what: "a checkpoint of another server", only: "8", steps: wrongServer},
	{id: "G8", what: "a failover to a replica with other file names and another server UUID", only: "9", steps: failover},
	{id: "G9", what: "the first transaction of a promoted replica, right after the failover", only: "8", steps: promoted},
	{id: "G10", what: "a start at the latest position of a server that has purged binlogs, and a restart", alone: true, steps: startOnPurged},
	{id: "G11", what: "rows that were in the outbox before the first start", alone: true, steps: firstStart},
	{id: "G12", what: "a second relay of the same name", steps: secondRelay},
	{id: "G13", what: "another program with the same server id", steps: sameServerID},
	{id: "G14", what: "a server that cannot be read: MariaDB, MySQL 5.7, no REPLICATION SLAVE, other binlog_format or gtid_mode", alone: true, steps: unsuitableServers},
	{id: "G15", what: "an INCIDENT in the binlog: the server says that it has lost events", steps: incident},
	{id: "G16", what: "an event of an unknown type, with and without the mark that it may be ignored", steps: unknownEvents},
	{id: "G17", what: "binlog files of a few kilobytes, which are rotated all the time", alone: true, steps: smallFiles},
	{id: "G18", what: "binlog_checksum is switched off and on while the relay reads", alone: true, steps: withoutChecksums},
}

func taggedAndCut(s *site) {
	s.exec(outboxTable)
	cut := false
	s.begin(nil, editor(func(c net.Conn, e []byte) [][]byte {
		if eventType(e) == typeWriteRows && bytes.Contains(e, []byte("cut here")) && !cut {
			cut = true
			c.Close()
		}
		return unchanged(e)
	}))
	var want []string
	insert := func(key string) {
		want = append(want, key+" 1")
		s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('" + key + "', '1')")
	}
	s.exec("SET gtid_next = 'AUTOMATIC:zz'")
	for i := range 40 {
		insert(fmt.Sprint("t", i))
	}
	s.exec("SET gtid_next = 'AUTOMATIC'")
	insert("plain")
	insert("cut here")
	for i := range 40 {
		insert(fmt.Sprint("p", i))
	}
	s.wantRecords(want...)
	if n := s.metric("source_connects_total"); n != 2 {
		s.Errorf("%v connections", n)
	}
}

func largeNumber(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	id := s.value("SELECT UUID()")
	s.exec("SET gtid_next = '"+id+":bar:36028797018963968'", "INSERT INTO o(aggregate_id, payload) VALUES ('large', '1')", "SET gtid_next = 'AUTOMATIC'")
	d := s.daemon(usualTable)
	s.wantRecords("large 1")
	if want := id + ":bar:36028797018963968"; s.metas[0].position != want+"#0" || !strings.Contains(s.position.String(), want) {
		s.Errorf("record at %s, position %s, want %s", s.metas[0].position, s.position, want)
	}
	d.wantExit(0, d.untilCaughtUp())
	s.equal(d.records(), []string{"large 1"})
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('behind', '2')")
	d.wantExit(0, d.untilCaughtUp())
	s.equal(d.records(), []string{"behind 2"})
}

// manyGaps runs on a server of its own, since the others would carry the gaps along.
func manyGaps(s *site) {
	m, err := s.version.newServer()
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = m.Close() })
	s.mysql, s.conn = m, s.connect(m, "")
	s.exec("CREATE DATABASE {db}", "USE {db}", outboxTable, "CREATE TABLE f (n INT)")
	set := "+" + s.value("SELECT UUID()")
	for i := range 10_000 {
		set += fmt.Sprintf(":%d", 2*i+1)
	}
	s.exec("SET GLOBAL gtid_purged = '" + set + "'")
	s.begin(nil, nil)
	id := s.value("SELECT UUID()")
	var want []string
	for i := range 100 {
		s.exec("INSERT INTO f VALUES (1)", fmt.Sprintf("SET gtid_next = '%s:%d'", id, 2*i+2), fmt.Sprintf("INSERT INTO o(aggregate_id, payload) VALUES ('k', '%d')", i), "SET gtid_next = 'AUTOMATIC'")
		want = append(want, fmt.Sprintf("k %d", i))
	}
	s.wantRecords(want...)
	if missing := gtid.Minus(s.executed(), s.position); !missing.IsEmpty() {
		s.Errorf("the position lacks %s", missing)
	}
	s.restart() // with a dump command that holds all the gaps
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('l', '1')")
	s.wantRecords("l 1")
}

// purge leaves only the newest binlog.
func (s *site) purge() {
	s.Helper()
	s.exec("FLUSH BINARY LOGS")
	logs := s.query(s.conn, "SHOW BINARY LOGS")
	last := logs[len(logs)-1][0]
	for {
		// The server keeps a file that a dump still has open: of a case that has just ended.
		for _, row := range s.query(s.conn, "SELECT ID FROM performance_schema.processlist WHERE COMMAND = 'Binlog Dump GTID'") {
			_, _ = s.conn.Execute("KILL " + row[0]) // it may have ended by itself
		}
		s.exec("PURGE BINARY LOGS TO '" + last + "'")
		if len(s.query(s.conn, "SHOW BINARY LOGS")) == 1 {
			return
		}
		if s.ctx.Err() != nil {
			s.Fatal("the binlogs cannot be purged")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func quietOutbox(s *site) {
	s.exec(outboxTable, "CREATE TABLE f (n INT)")
	s.begin(nil, nil)
	d := s.daemon(usualTable)
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')")
	p := d.start()
	for range 50 {
		s.exec("INSERT INTO f VALUES (1)")
	}
	executed := s.executed()
	p.await("the checkpoint", func() bool {
		return strings.Contains(p.get("/status"), strings.ReplaceAll(executed.String(), ", ", ","))
	})
	if code := p.terminate(); code != 0 {
		s.Errorf("exit code %d:\n%s", code, d.log)
	}
	if c := d.checkpoint(); !c.GTIDSet.ContainsSet(executed) {
		s.Errorf("the checkpoint %s lacks %s", c.GTIDSet, executed)
	}
	s.purge()
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('b', '2')")
	d.wantExit(0, d.untilCaughtUp())
	s.equal(d.records(), []string{"b 2"})
}

func purgedCheckpoint(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	d := s.daemon(usualTable)
	d.wantExit(0, d.untilCaughtUp())
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('lost', '1')")
	lost := gtid.Minus(s.executed(), d.checkpoint().GTIDSet)
	s.purge()
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('kept', '2')")
	d.wantExit(3, d.untilCaughtUp(), "has purged binlogs that the relay has not read; missing are "+lost.String(), "source.start to earliest")
	s.equal(d.records(), nil)
	s.wantStop("purged", lost.String())
	if n := s.metric("gap_transactions"); n != float64(lost.Count()) {
		s.Errorf("the metric tells of %v transactions", n)
	}
}

func aheadOfServer(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	ahead := s.value("SELECT @@server_uuid") + ":1000000000"
	set, err := gtid.ParseSet(s.position.String() + "," + ahead)
	if err != nil {
		s.Fatal(err)
	}
	s.position = set
	d := s.daemon(usualTable)
	d.wantExit(3, d.untilCaughtUp(), "lacks transactions that the relay has read: "+ahead, "point source.address at the right one")
}

func wrongServer(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	set, err := gtid.ParseSet("01020300-0000-0000-0000-000000000000:5-9") // the server itself would take it: it is not of its own UUID
	if err != nil {
		s.Fatal(err)
	}
	s.position = set
	s.restart()
	s.wantStop("diverged", "01020300-0000-0000-0000-000000000000:5-9")
	if n := s.metric("diverged_transactions"); n != 5 {
		s.Errorf("the metric tells of %v transactions", n)
	}
}

// replica starts a replica that follows from now on, as far as the case's databases go: others had begun before. Errors of what passes the
// filters all the same, such as stored programs, are skipped.
func (s *site) replica() *sandbox.MySQL {
	s.Helper()
	m, err := s.version.newServer("--log-bin=elsewhere", "--replica-skip-errors=all", "--replicate-wild-do-table="+s.db+"%.%")
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = m.Close() })
	if err := follow(m, s.mysql); err != nil {
		s.Fatal(err)
	}
	s.exec("DROP DATABASE IF EXISTS {db}", "CREATE DATABASE {db}", "USE {db}")
	return m
}

// follow makes m a replica that begins at what the source has executed by now.
func follow(m, source *sandbox.MySQL) error {
	_, port, err := net.SplitHostPort(source.Addr())
	if err != nil {
		return err
	}
	db, err := source.Open("")
	if err != nil {
		return err
	}
	defer db.Close()
	var executed string
	if err := db.QueryRow("SELECT @@global.gtid_executed").Scan(&executed); err != nil {
		return err
	}
	return m.Exec(context.Background(), "SET GLOBAL gtid_purged = '"+executed+"'",
		"CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT="+port+", SOURCE_USER='root', GET_SOURCE_PUBLIC_KEY=1, SOURCE_AUTO_POSITION=1, SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT=100000, SOURCE_HEARTBEAT_PERIOD=1",
		"START REPLICA")
}

// awaitReplica waits until the replica has all that the source has executed by now.
func (s *site) awaitReplica(m *sandbox.MySQL) {
	s.Helper()
	c := s.connect(m, "")
	r := s.query(c, "SELECT WAIT_FOR_EXECUTED_GTID_SET('"+s.executed().String()+"', 60)")
	if r[0][0] != "0" {
		s.Fatalf("the replica does not follow: %v", s.query(c, `SELECT LAST_ERROR_MESSAGE FROM performance_schema.replication_applier_status_by_worker
 UNION ALL SELECT LAST_ERROR_MESSAGE FROM performance_schema.replication_applier_status_by_coordinator UNION ALL SELECT LAST_ERROR_MESSAGE FROM performance_schema.replication_connection_status`))
	}
}

// beginBefore makes a relay of the source and, behind it, the replica. The proxy is how it reaches the source.
func (s *site) beginBefore(m *sandbox.MySQL) *sandbox.Proxy {
	s.Helper()
	proxy := sandbox.RunProxy(s, s.mysql.Addr())
	s.exec(outboxTable)
	s.begin(nil, func(o *binlog.Options) { o.Addresses = []string{proxy.Addr(), m.Addr()} })
	return proxy
}

func failover(s *site) {
	m := s.replica()
	proxy := s.beginBefore(m)
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')")
	s.wantRecords("a 1")
	before := s.reader.Status().ServerUUID
	s.awaitReplica(m)
	proxy.Refuse(true)
	proxy.Cut()
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('b', '2')")
	s.mark()
	if err := s.read(); err != nil {
		s.Fatal(err)
	}
	s.equal(s.got, []string{"b 2"})
	_, file, _ := s.reader.Source()
	if after := s.reader.Status().ServerUUID; after == before || !strings.HasPrefix(file, "elsewhere") {
		s.Errorf("the source is %s as before, file %s", after, file)
	}
}

func promoted(s *site) {
	m := s.replica()
	proxy := s.beginBefore(m)
	s.wantRecords()
	s.awaitReplica(m)
	proxy.Refuse(true)
	proxy.Cut()
	other := s.connect(m, s.db)
	s.execOn(other, "INSERT INTO o(aggregate_id, payload) VALUES ('first of the new one', '1')", "INSERT INTO marker VALUES (1000)")
	s.markers = 1000
	if err := s.read(); err != nil {
		s.Fatal(err)
	}
	s.equal(s.got, []string{"first of the new one 1"})
	if uuid := s.query(other, "SELECT @@server_uuid")[0][0]; !strings.HasPrefix(s.metas[0].gtid, uuid) {
		s.Errorf("the record is of %s, want one of %s", s.metas[0].gtid, uuid)
	}
}

func startOnPurged(s *site) {
	s.exec(outboxTable)
	s.purge()
	s.begin(nil, nil)
	d := s.daemon(usualTable)
	d.configure(usualTable, "latest")
	d.wantExit(0, d.untilCaughtUp())
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')")
	d.wantExit(0, d.untilCaughtUp())
	s.equal(d.records(), []string{"a 1"})
}

func firstStart(s *site) {
	s.exec(outboxTable)
	s.purge()
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('old', '1')")
	s.begin(nil, nil)
	now := s.position.String()
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('new', '2')")
	for start, want := range map[string][]string{"latest": nil, "earliest": {"old 1", "new 2"}, now: {"new 2"}} {
		d := s.daemon(usualTable)
		d.configure(usualTable, start)
		d.wantExit(0, d.untilCaughtUp())
		s.equal(d.records(), want)
		d.wantExit(0, d.untilCaughtUp()) // nothing again
		s.equal(d.records(), nil)
	}
	d := s.daemon(usualTable)
	d.configure(usualTable, "")
	d.wantExit(78, d.untilCaughtUp(), "source.start")
}

func secondRelay(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	s.wantRecords()
	first := s.reader
	ended := make(chan error, 1)
	go func() { // ends when the second reader has the name
		for {
			if _, err := first.Next(s.ctx); err != nil {
				ended <- err
				return
			}
		}
	}()
	s.reader = nil // it stays open
	s.restart()
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')")
	s.wantRecords("a 1")
	if err := <-ended; !errors.Is(err, binlog.ErrFenced) {
		s.Errorf("the first one ended with %v", err)
	}
}

func sameServerID(s *site) {
	s.exec(outboxTable)
	s.begin(nil, func(o *binlog.Options) { o.ServerID = 4711 })
	s.wantRecords()
	first := s.reader
	s.reader, s.name = nil, s.name+"-other" // another name, the same server id
	s.restart()
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')")
	s.wantRecords("a 1")
	s.reader.Close()
	s.reader = first
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('b', '2')")
	s.wantRecords("a 1", "b 2")
	if n := s.metric("source_connects_total"); n != 1 {
		s.Errorf("%v connections", n)
	}
}

// saying makes a connection on which the server says one thing in the place of another of the same length.
func saying(instead, said string) func(*binlog.Options) {
	return dialer(func(c net.Conn) net.Conn { return sayingConn{c, []byte(instead), []byte(said)} })
}

type sayingConn struct {
	net.Conn
	instead, said []byte
}

func (c sayingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	copy(p, bytes.ReplaceAll(p[:n], c.instead, c.said))
	return n, err
}

func unsuitableServers(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	number := s.version.number
	// The greeting begins with the version.
	s.configure(nil, dialer(func(c net.Conn) net.Conn { return &greetingConn{Conn: c} }))
	s.wantStop("unsupported_server", "is MariaDB (5.5.5-10.11.4-MariaDB)", "MySQL 8.0 or later")
	s.configure(nil, saying(number, "5.7"+strings.Repeat("4", len(number)-3)))
	s.wantStop("unsupported_server", "is MySQL 5.7", "too old")

	s.exec("CREATE USER IF NOT EXISTS nothing IDENTIFIED BY 'relay'", "GRANT REPLICATION CLIENT ON *.* TO nothing")
	s.configure(nil, func(o *binlog.Options) { o.Login.User = "nothing" })
	s.wantStop("privilege", `does not let user "nothing" read its binlog`, "GRANT REPLICATION SLAVE")
	s.exec("DROP USER nothing")

	for _, c := range []struct{ set, reset, reason, word string }{
		{"SET GLOBAL binlog_format = MIXED", "SET GLOBAL binlog_format = ROW", "binlog_format", "binlog_format=MIXED"},
		{"SET GLOBAL gtid_mode = ON_PERMISSIVE", "SET GLOBAL gtid_mode = ON", "gtid_mode", "gtid_mode=ON_PERMISSIVE"},
	} {
		s.exec(c.set)
		s.configure(nil, nil)
		_, err := s.reader.Next(s.ctx)
		s.exec(c.reset)
		var source *binlog.SourceError
		if !errors.As(err, &source) || string(source.Reason) != c.reason || !strings.Contains(err.Error(), c.word) {
			s.Errorf("%s: %v", c.set, err)
		}
	}
}

// greetingConn makes the server greet as MariaDB does: packet head, protocol 10, version ended by 0.
type greetingConn struct {
	net.Conn
	in   []byte
	done bool
}

func (c *greetingConn) Read(p []byte) (int, error) {
	if !c.done {
		buf := make([]byte, 4096)
		n, err := c.Conn.Read(buf)
		if err != nil {
			return 0, err
		}
		_, rest, _ := bytes.Cut(buf[5:n], []byte{0})
		body := append([]byte{10}, "5.5.5-10.11.4-MariaDB\x00"...)
		body = append(body, rest...)
		c.in = append([]byte{byte(len(body)), byte(len(body) >> 8), 0, 0}, body...)
		c.done = true
	}
	if len(c.in) > 0 {
		n := copy(p, c.in)
		c.in = c.in[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// insertBefore puts an event before the row event that holds the word.
func insertBefore(word string, made func(model []byte) []byte) func(*binlog.Options) {
	return editor(func(_ net.Conn, e []byte) [][]byte {
		if eventType(e) == typeWriteRows && bytes.Contains(e, []byte(word)) {
			return [][]byte{made(e), e}
		}
		return unchanged(e)
	})
}

func incident(s *site) {
	s.exec(outboxTable)
	s.begin(nil, insertBefore("behind", func(model []byte) []byte {
		return newEvent(model, typeIncident, append([]byte{1, 0, 11}, "LOST EVENTS"...))
	}))
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')", "INSERT INTO o(aggregate_id, payload) VALUES ('behind', '2')")
	s.wantStop("incident", "lost events: incident 1 (LOST EVENTS)", "(transaction ")
	s.equal(s.got, []string{"a 1"})
}

func unknownEvents(s *site) {
	s.exec(outboxTable)
	const unknown, ignorable = 200, 0x80
	flags := uint16(ignorable)
	s.begin(nil, insertBefore("behind", func(model []byte) []byte {
		e := newEvent(slices.Clone(model), unknown, []byte("of the future"))
		binary.LittleEndian.PutUint16(e[17:], flags)
		return e
	}))
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('behind', '1')")
	s.wantRecords("behind 1")
	flags = 0
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('a', '2')", "INSERT INTO o(aggregate_id, payload) VALUES ('behind', '3')")
	s.wantStop("unknown_event", "unknown type 200", "(transaction ", "use a relay that knows this server version")
	s.equal(s.got, []string{"a 2"})
}

func smallFiles(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	s.exec("SET GLOBAL max_binlog_size = 4096")
	defer s.exec("SET GLOBAL max_binlog_size = DEFAULT")
	for round := range 3 {
		var want []string
		for i := range 20 {
			s.exec(fmt.Sprintf("INSERT INTO o(aggregate_id, payload) VALUES ('%d', JSON_QUOTE(REPEAT('x', 300)))", i))
			want = append(want, fmt.Sprintf("%d \"%s\"", i, strings.Repeat("x", 300)))
		}
		if round == 1 {
			s.exec("FLUSH BINARY LOGS")
			s.restart()
		}
		s.wantRecords(want...)
	}
}

func withoutChecksums(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	defer s.exec("SET GLOBAL binlog_checksum = CRC32")
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')", "SET GLOBAL binlog_checksum = NONE", "INSERT INTO o(aggregate_id, payload) VALUES ('b', '2')")
	s.wantRecords("a 1", "b 2")
	s.exec("SET SESSION binlog_transaction_compression = ON", "INSERT INTO o(aggregate_id, payload) VALUES ('c', JSON_QUOTE(REPEAT('x', 1000000)))", "SET GLOBAL binlog_checksum = CRC32", "INSERT INTO o(aggregate_id, payload) VALUES ('d', '4')")
	s.restart()
	s.wantRecords("c \""+strings.Repeat("x", 1000000)+"\"", "d 4")
}
