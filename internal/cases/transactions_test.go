package cases_test

import (
	"bytes"
	"fmt"
	"net"
	"strings"

	"outbox-relay/binlog"
	"outbox-relay/binlog/gtid"
)

var transactionCases = []failureCase{
	{id: "T1", what: "an XA branch that is prepared, left open over a restart of the relay, and committed", alone: true, steps: preparedAndCommitted},
	{
		id: "T2", what: "an XA branch that is prepared and rolled back", alone: true,
		do: []string{
			"XA START 'r'", "INSERT INTO o(aggregate_id, payload) VALUES ('no', '1')", "XA END 'r'", "XA PREPARE 'r'", "XA ROLLBACK 'r'",
			"XA START 'o'", "INSERT INTO o(aggregate_id, payload) VALUES ('one phase', '2')", "XA END 'o'", "XA COMMIT 'o' ONE PHASE",
			"XA START 'n'", "INSERT INTO o(aggregate_id, payload) VALUES ('no', '3')", "XA END 'n'", "XA ROLLBACK 'n'",
		},
		want: []string{"one phase 2"},
	},
	{id: "T3", what: "an XA branch that is left prepared for long, with other traffic and a restart", alone: true, steps: leftPrepared},
	{id: "T4", what: "two XA branches of one global transaction, one in the other", alone: true, steps: twoBranches},
	{id: "T5", what: "compressed transactions, of several tables and an XA branch", alone: true, steps: compressed},
	{id: "T6", what: "a compressed transaction that inflates to forty-eight million bytes, of another table", steps: foreignBomb},
	{id: "T7", what: "the same with a row of the outbox beyond limits.row", steps: outboxBomb},
	{id: "T8", what: "a transaction of another table that is much larger than the memory", steps: hugeForeign},
	{id: "T9", what: "a transaction of many outbox rows, whose first reading is cut off in the middle", steps: hugeOutbox},
	{id: "T10", what: "a transaction that ends in ROLLBACK in the binlog", steps: rolledBackInBinlog},
	{id: "T11", what: "empty transactions, and numbers out of order", steps: emptyTransactions},
	{id: "T12", what: "a transaction of one outbox row and a thousand of another table, whose bytes nobody looks at", steps: manyForeignRows},
	{
		id: "T14", what: "XA branches that changed nothing, prepared and committed", alone: true,
		do: []string{
			"XA START 'e1'", "XA END 'e1'", "XA PREPARE 'e1'", "XA COMMIT 'e1'", "XA START 'e2'", "UPDATE o SET payload = '1' WHERE id = 99", "XA END 'e2'", "XA PREPARE 'e2'", "XA COMMIT 'e2'",
			"XA START 'e3'", "SELECT * FROM o FOR UPDATE", "XA END 'e3'", "XA PREPARE 'e3'", "XA ROLLBACK 'e3'", "XA START 'e4'", "XA END 'e4'", "XA COMMIT 'e4' ONE PHASE",
			"XA START 'e5'", "SAVEPOINT s", "INSERT INTO o(aggregate_id, payload) VALUES ('no', '1')", "ROLLBACK TO s", "XA END 'e5'", "XA PREPARE 'e5'", "XA COMMIT 'e5'",
			"INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')",
		},
		want: []string{"a 1"},
	},
	{id: "T13", what: "a consumer that looks for the row at once", steps: visibleAtLast},
}

func preparedAndCommitted(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	s.exec("XA START 'x1'", "INSERT INTO o(aggregate_id, payload) VALUES ('held', '1')", "XA END 'x1'", "XA PREPARE 'x1'")
	other := s.connect(s.mysql, s.db)
	s.execOn(other, "INSERT INTO o(aggregate_id, payload) VALUES ('between', '2')")
	s.wantRecords("between 2")
	s.restart()
	s.execOn(other, "INSERT INTO o(aggregate_id, payload) VALUES ('after restart', '3')")
	s.wantRecords("after restart 3")
	s.exec("XA COMMIT 'x1'")
	s.wantRecords("held 1")
	if missing := gtid.Minus(s.executed(), s.position); !missing.IsEmpty() {
		s.Errorf("the position lacks %s", missing)
	}
}

func leftPrepared(s *site) {
	s.exec(outboxTable, "CREATE TABLE f (n INT)")
	s.begin(nil, nil)
	d := s.daemon(`  - {table: {db}.o, preset: none, topic: t, key: "{aggregate_id}", value: "{payload}"}`)
	s.exec("XA START 'h'", "INSERT INTO o(aggregate_id, payload) VALUES ('held', '1')", "XA END 'h'", "XA PREPARE 'h'")
	prepared := s.executed()
	other := s.connect(s.mysql, s.db)
	for i := range 5 {
		s.execOn(other, fmt.Sprintf("INSERT INTO o(aggregate_id, payload) VALUES ('k', '%d')", i), "INSERT INTO f VALUES (1)")
	}
	s.wantRecords("k 0", "k 1", "k 2", "k 3", "k 4")
	hole := gtid.Minus(s.executed(), s.position)
	if hole.Count() != 1 || !prepared.ContainsSet(hole) {
		s.Errorf("the position lacks %s, want the PREPARE alone", hole)
	}
	if n, age := s.metric("xa_pending"), s.metric("xa_oldest_age_seconds"); n != 1 || age <= 0 {
		s.Errorf("%v branches are pending, the oldest for %v s", n, age)
	}

	// The daemon's checkpoint has the same hole.
	d.wantExit(0, d.untilCaughtUp())
	s.equal(d.records(), s.got)
	if missing := gtid.Minus(s.executed(), d.checkpoint().GTIDSet); !missing.Equal(hole) {
		s.Errorf("the checkpoint lacks %s, want %s", missing, hole)
	}
	s.exec("XA COMMIT 'h'")
	d.wantExit(0, d.untilCaughtUp())
	s.equal(d.records(), []string{"held 1"})
	if missing := gtid.Minus(s.executed(), d.checkpoint().GTIDSet); !missing.IsEmpty() {
		s.Errorf("the checkpoint lacks %s", missing)
	}
}

func twoBranches(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	one, two := s.connect(s.mysql, s.db), s.connect(s.mysql, s.db)
	s.execOn(one, "XA START 'g','b1'", "INSERT INTO o(aggregate_id, payload) VALUES ('one', '1')")
	s.execOn(two, "XA START 'g','b2'", "INSERT INTO o(aggregate_id, payload) VALUES ('two', '2')", "XA END 'g','b2'", "XA PREPARE 'g','b2'")
	s.execOn(one, "INSERT INTO o(aggregate_id, payload) VALUES ('one again', '3')", "XA END 'g','b1'", "XA PREPARE 'g','b1'")
	s.wantRecords()
	s.exec("XA COMMIT 'g','b2'")
	s.wantRecords("two 2")
	s.exec("XA COMMIT 'g','b1'")
	s.wantRecords("one 1", "one again 3")
}

func compressed(s *site) {
	s.exec(outboxTable, "CREATE TABLE f (v LONGTEXT)")
	s.begin(nil, nil)
	large := strings.Repeat("p", 300_000)
	s.exec("SET SESSION binlog_transaction_compression = ON", "INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')",
		"BEGIN", "INSERT INTO f VALUES (REPEAT('z', 1000000))", "INSERT INTO o(aggregate_id, payload) VALUES ('b', '2')", "INSERT INTO f VALUES ('z')", "INSERT INTO o(aggregate_id, payload) VALUES ('c', '3'), ('d', '4')", "COMMIT",
		"INSERT INTO o(aggregate_id, payload) VALUES ('e', JSON_QUOTE('"+large+"'))",
		"XA START 'z'", "INSERT INTO o(aggregate_id, payload) VALUES ('xa', '5')", "XA END 'z'", "XA PREPARE 'z'")
	s.wantRecords("a 1", "b 2", "c 3", "d 4", `e "`+large+`"`)
	s.exec("XA COMMIT 'z'")
	s.wantRecords("xa 5")
}

// limit is what the daemon may need for transactions that are larger; it takes about 25 MiB when it does little.
const limit = 40 << 20

// wantPeak runs the daemon until it has printed a record with that key, demands that its memory stayed below limit, and ends it.
func (d *daemon) wantPeak(key string) {
	d.Helper()
	p := d.start()
	p.await("the record "+key, func() bool { return strings.Contains(d.out.String(), `"key":"`+key+`"`) })
	if n := p.peak(); n > limit {
		d.Errorf("the relay needed %d MiB, want at most %d", n>>20, limit>>20)
	}
	if code := p.terminate(); code != 0 {
		d.Errorf("exit code %d:\n%s", code, d.log)
	}
}

const usualTable = `  - {table: {db}.o, preset: none, topic: t, key: "{aggregate_id}", value: "{payload}"}`

func foreignBomb(s *site) {
	s.exec(outboxTable, "CREATE TABLE f (v LONGTEXT)")
	s.begin(nil, nil)
	d := s.daemon(usualTable)
	s.exec("SET SESSION binlog_transaction_compression = ON", "BEGIN", "INSERT INTO f VALUES (REPEAT('z', 24000000))", "INSERT INTO f VALUES (REPEAT('y', 24000000))", "INSERT INTO o(aggregate_id, payload) VALUES ('inside', '1')", "COMMIT",
		"INSERT INTO o(aggregate_id, payload) VALUES ('behind', '2')")
	d.wantPeak("behind")
	s.equal(d.records(), []string{"inside 1", "behind 2"})
}

func outboxBomb(s *site) {
	s.exec("CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(9), payload LONGTEXT)")
	s.begin(nil, nil)
	d := s.daemon(usualTable, "on_halt: wait")
	s.exec("SET SESSION binlog_transaction_compression = ON", "BEGIN", "INSERT INTO o(aggregate_id, payload) VALUES ('before', '1')", "INSERT INTO o(aggregate_id, payload) VALUES ('bomb', REPEAT('z', 24000000))",
		"INSERT INTO o(aggregate_id, payload) VALUES ('behind', '2')", "COMMIT")
	id := s.executed()
	p := d.start()
	p.await("the halt", func() bool { return strings.Contains(p.get("/status"), `"halt_reason": "poison"`) })
	if said := p.get("/readyz"); !strings.Contains(said, "row 2 of "+s.db+".o") {
		s.Errorf("/readyz says %q", said)
	}
	if n := p.peak(); n > limit {
		s.Errorf("the relay needed %d MiB, want at most %d", n>>20, limit>>20)
	}
	if code := p.terminate(); code != 0 {
		s.Errorf("exit code %d:\n%s", code, d.log)
	}
	if d.checkpoint().GTIDSet.ContainsSet(id) {
		s.Error("the checkpoint passed the row")
	}
	d.configure(usualTable, "latest", "limits: {row: 64MiB}") // the checkpoint counts, not the start
	d.wantExit(0, d.untilCaughtUp())
	got := d.records()
	if len(got) == 3 && got[1] == "bomb "+strings.Repeat("z", 24000000) {
		got[1] = "bomb"
	}
	s.equal(got, []string{"before 1", "bomb", "behind 2"})
}

func hugeForeign(s *site) {
	s.exec(outboxTable, "CREATE TABLE f (v LONGBLOB)")
	s.begin(nil, nil)
	d := s.daemon(usualTable, "limits: {buffer: 8MiB}")
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('before', '0')", "BEGIN")
	for range 6 {
		s.exec("INSERT INTO f VALUES (RANDOM_BYTES(1024)), (REPEAT(RANDOM_BYTES(1000), 8000))")
	}
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('inside', '1')", "COMMIT", "INSERT INTO o(aggregate_id, payload) VALUES ('behind', '2')")
	d.wantPeak("behind")
	s.equal(d.records(), []string{"before 0", "inside 1", "behind 2"})
}

func hugeOutbox(s *site) {
	const rows = 40_000
	s.exec("CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id INT, payload VARCHAR(300))")
	cut := 0
	s.begin(nil, func(o *binlog.Options) {
		editor(func(c net.Conn, e []byte) [][]byte {
			if eventType(e) == typeWriteRows && bytes.Contains(e, []byte("yyyyyyyy")) {
				if cut++; cut == 500 { // half of the transaction has been read
					c.Close()
				}
			}
			return unchanged(e)
		})(o)
		o.Memory = 256 << 10
	})
	s.exec("SET SESSION cte_max_recursion_depth = 1000000", fmt.Sprintf("INSERT INTO o(aggregate_id, payload) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d) SELECT i, REPEAT('y', 200) FROM n", rows))
	s.mark()
	var spooled float64
	for len(s.metas) < rows {
		tx, err := s.reader.Next(s.ctx)
		if err != nil {
			s.Fatal(err)
		}
		if tx.HasRows {
			spooled = max(spooled, s.metric("spooled_bytes"))
		}
		if _, err := s.take(tx); err != nil {
			s.Fatal(err)
		}
	}
	if spooled < rows*200 || s.metric("source_connects_total") != 2 {
		s.Errorf("%v bytes were spooled, %v connections made", spooled, s.metric("source_connects_total"))
	}
	for i, text := range s.got {
		if want := fmt.Sprintf("%d %s", i+1, strings.Repeat("y", 200)); text != want {
			s.Fatalf("record %d is %.20q", i, text)
		}
		if want := fmt.Sprintf("%s#%d", s.metas[0].gtid, i); s.metas[i].position != want {
			s.Fatalf("record %d has position %s, want %s", i, s.metas[i].position, want)
		}
	}
}

// rolledBackInBinlog puts a ROLLBACK in the place of an XID: servers write such an end for transactions with tables that cannot be rolled back.
func rolledBackInBinlog(s *site) {
	s.exec(outboxTable)
	inside, begin := false, []byte(nil)
	s.begin(nil, editor(func(_ net.Conn, e []byte) [][]byte {
		switch {
		case eventType(e) == typeQuery && bytes.HasSuffix(e[:len(e)-eventSum], []byte("BEGIN")):
			begin, inside = e, false
		case eventType(e) == typeWriteRows && bytes.Contains(e, []byte("rolled-back")):
			inside = true
		case eventType(e) == typeXID && inside:
			body := bytes.TrimSuffix(begin[eventHead:len(begin)-eventSum], []byte("BEGIN"))
			return unchanged(newEvent(e, typeQuery, append(bytes.Clone(body), "ROLLBACK"...)))
		}
		return unchanged(e)
	}))
	s.exec("INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')", "INSERT INTO o(aggregate_id, payload) VALUES ('rolled-back', '2')", "INSERT INTO o(aggregate_id, payload) VALUES ('c', '3')")
	executed := s.executed()
	s.wantRecords("a 1", "c 3")
	if missing := gtid.Minus(executed, s.position); !missing.IsEmpty() {
		s.Errorf("the position lacks %s", missing)
	}
}

func emptyTransactions(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	id := s.value("SELECT UUID()")
	for _, n := range []int{7, 8, 3} {
		s.exec(fmt.Sprintf("SET gtid_next = '%s:%d'", id, n), "BEGIN", "COMMIT")
	}
	s.exec("SET gtid_next = 'AUTOMATIC'", "INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')")
	s.wantRecords("a 1")
	want, err := gtid.ParseSet(id + ":3:7-8")
	if err != nil || !s.position.ContainsSet(want) {
		s.Errorf("the position %s lacks %s", s.position, want)
	}
	s.exec("SET gtid_next = '"+id+":1'", "INSERT INTO o(aggregate_id, payload) VALUES ('b', '2')", "SET gtid_next = 'AUTOMATIC'")
	s.restart()
	s.wantRecords("b 2")
}

// manyForeignRows damages the foreign rows on the way: whoever decodes them fails.
func manyForeignRows(s *site) {
	s.exec(outboxTable, "CREATE TABLE f (id INT AUTO_INCREMENT PRIMARY KEY, v JSON, w VARCHAR(99))")
	damaged := 0
	s.begin(nil, editor(func(_ net.Conn, e []byte) [][]byte {
		if eventType(e) == typeWriteRows && bytes.Contains(e, []byte("foreign")) {
			damaged++
			for i := eventHead + 10; i < len(e)-eventSum; i++ {
				e[i] = 0xff
			}
		}
		return unchanged(e)
	}))
	s.exec("SET SESSION cte_max_recursion_depth = 10000", "BEGIN", "INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')",
		"INSERT INTO f(v, w) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 1000) SELECT JSON_ARRAY(i), 'foreign' FROM n", "COMMIT")
	s.wantRecords("a 1")
	if damaged < 2 {
		s.Errorf("%d events were damaged", damaged)
	}
}

// visibleAtLast waits for a row that was received: the binlog is sent before the engine has committed, so the first SELECT may come too soon.
func visibleAtLast(s *site) {
	s.exec(outboxTable)
	s.begin(nil, nil)
	for i := range 20 {
		s.exec(fmt.Sprintf("INSERT INTO o(aggregate_id, payload) VALUES ('%d', '1')", i))
		s.wantRecords(fmt.Sprintf("%d 1", i))
		for s.value(fmt.Sprintf("SELECT COUNT(*) FROM o WHERE aggregate_id = '%d'", i)) != "1" {
			if s.ctx.Err() != nil {
				s.Fatal("the row does not appear")
			}
		}
	}
}
