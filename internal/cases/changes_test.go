package cases_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"outbox-relay/router"
)

var changeCases = []failureCase{
	{id: "A1", what: "the outbox is swapped for a copy with another column, as gh-ost does it, while rows flow", steps: swapped(false)},
	{id: "A2", what: "the same with triggers that fill the copy, as pt-online-schema-change does it", steps: swapped(true)},
	{
		id: "A3", what: "the outbox is dropped and created again with other columns, twice, while the relay is stopped",
		do: []string{
			"INSERT INTO o(aggregate_id, payload) VALUES ('a', '1')", "DROP TABLE o", "CREATE TABLE o (payload BLOB, z INT, aggregate_id BINARY(3))", "INSERT INTO o VALUES ('2', 5, 'b')",
			"DROP TABLE o", "CREATE TABLE o (aggregate_id DECIMAL(5,2), x YEAR, payload TEXT CHARACTER SET utf16)", "INSERT INTO o VALUES (3, 2020, 'é')",
		},
		want: []string{"a 1", "b\x00\x00 2", "3.00 é"},
	},
	{
		id: "A4", what: "every form of ALTER while the relay is behind, with a row before and after each",
		setup: []string{"CREATE TABLE o (id INT AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(64) CHARACTER SET latin1, payload TEXT, e ENUM('a','b'), n INT UNSIGNED) ENGINE=InnoDB"},
		rules: []router.Rule{{Table: "{db}.o", Preset: "none", Topic: "t", Key: "{aggregate_id}", Value: "{payload}", Headers: []router.HeaderRule{{Name: "e", Value: "{e}"}, {Name: "n", Value: "{n}"}}}},
		do: slices.Concat(
			alter("é0", ""), alter("é1", "ADD c1 VARCHAR(9) DEFAULT 'c' FIRST"), alter("é2", "ADD c2 INT UNSIGNED DEFAULT 7 AFTER id, ALGORITHM=INSTANT"),
			alter("é3", "ADD c3 JSON, ALGORITHM=INPLACE"), alter("é4", "MODIFY n BIGINT UNSIGNED, ALGORITHM=COPY"), alter("é5", "MODIFY aggregate_id VARCHAR(300) CHARACTER SET latin1"),
			alter("é6", "CONVERT TO CHARACTER SET utf8mb4"), alter("é7", "MODIFY e ENUM('b','x','a')"), alter("é8", "DROP COLUMN c1"), alter("é9", "DROP COLUMN c2, ALGORITHM=INSTANT"),
			alter("é10", "RENAME COLUMN c3 TO e3, MODIFY payload JSON FIRST"), alter("é11", "DROP PRIMARY KEY, CHANGE id n INT, CHANGE n id BIGINT UNSIGNED"),
		),
		want: []string{
			`é0 {} e=a n=4000000000`, `é1 {} e=a n=4000000000`, `é2 {} e=a n=4000000000`, `é3 {} e=a n=4000000000`, `é4 {} e=a n=4000000000`, `é5 {} e=a n=4000000000`,
			`é6 {} e=a n=4000000000`, `é7 {} e=a n=4000000000`, `é8 {} e=a n=4000000000`, `é9 {} e=a n=4000000000`, `é10 {} e=a n=4000000000`, `é11 {} e=a n=-5`,
		},
	},
	{
		id: "A5", what: "a partition with rows is exchanged into the outbox, and a table with rows gets its name: neither is an INSERT",
		setup: []string{
			"CREATE TABLE o (aggregate_id INT, payload INT) PARTITION BY RANGE (aggregate_id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))",
			"CREATE TABLE ex (aggregate_id INT, payload INT)", "CREATE TABLE next LIKE ex",
		},
		do: []string{
			"INSERT INTO ex VALUES (5, 1)", "ALTER TABLE o EXCHANGE PARTITION p0 WITH TABLE ex", "INSERT INTO o VALUES (15, 2)", "INSERT INTO next VALUES (1, 3)", "RENAME TABLE o TO old, next TO o", "INSERT INTO o VALUES (2, 4)", "INSERT INTO old VALUES (16, 5)",
		},
		want: []string{"15 2", "2 4"},
	},
}

// alter is an ALTER of o, if any, and a row behind it. n becomes a signed column in the end.
func alter(key, change string) []string {
	n := "4000000000"
	if strings.Contains(change, "CHANGE id n") {
		n = "-5"
	}
	insert := fmt.Sprintf("INSERT INTO o(aggregate_id, payload, e, n) VALUES ('%s', '{}', 'a', %s)", key, n)
	if change == "" {
		return []string{insert}
	}
	return []string{"ALTER TABLE o " + change, insert}
}

// swapped lets two writers insert while a copy of the outbox is made and takes its place, three times. All that was written has to come once, in
// the order of each writer, and nothing of what the tools copy.
func swapped(triggers bool) func(*site) {
	return func(s *site) {
		s.exec(outboxTable)
		s.begin([]router.Rule{outboxRule(s.db, "o")}, nil)
		const rows, writers = 120, 2
		var all sync.WaitGroup
		for w := range writers {
			c := s.connect(s.mysql, s.db)
			all.Add(1)
			go func() { // ends when its rows are written
				defer all.Done()
				for i := range rows {
					if _, err := c.Execute(fmt.Sprintf("INSERT INTO o(aggregate_id, payload) VALUES ('w%d', '%d')", w, i)); err != nil {
						s.Error(err)
						return
					}
				}
			}()
		}
		for round := range 3 {
			s.exec("CREATE TABLE _o_new LIKE o", fmt.Sprintf("ALTER TABLE _o_new ADD c%d VARCHAR(30) DEFAULT 'w9' FIRST", round))
			if triggers {
				s.exec("CREATE TRIGGER tr AFTER INSERT ON o FOR EACH ROW REPLACE INTO _o_new (id, aggregate_id, payload) VALUES (NEW.id, NEW.aggregate_id, NEW.payload)")
			}
			s.exec("INSERT IGNORE INTO _o_new (id, aggregate_id, payload) SELECT id, aggregate_id, payload FROM o", "ALTER TABLE _o_new AUTO_INCREMENT = 100000"+strings.Repeat("0", round))
			s.exec("RENAME TABLE o TO _o_old, _o_new TO o")
			if triggers {
				s.exec("DROP TRIGGER tr")
			}
			s.exec("DROP TABLE _o_old")
		}
		all.Wait()
		next := map[string]int{}
		got := s.records()
		for _, text := range got {
			key, number, _ := strings.Cut(text, " ")
			if number != fmt.Sprint(next[key]) {
				s.Fatalf("%s came where %d was due", text, next[key])
			}
			next[key]++
		}
		if len(got) != rows*writers {
			s.Errorf("%d records, want %d", len(got), rows*writers)
		}
	}
}
