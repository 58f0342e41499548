package event_test

import (
	"testing"

	"outbox-relay/binlog/event"
)

func TestCreatesWithRows(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"CREATE TABLE o SELECT * FROM src":                                       true,
		"create table if not exists `a b`.o (id INT) as\nselect 1 AS id":         true,
		"CREATE TABLE o (SELECT 1)":                                              true,
		"CREATE TABLE o IGNORE SELECT 1":                                         true,
		"CREATE TABLE o AS WITH c AS (SELECT 1) SELECT * FROM c":                 true,
		"CREATE TABLE o TABLE src":                                               true,
		"CREATE TABLE o AS VALUES ROW(1, 2)":                                     true,
		"/* x */ CREATE /* SELECT */ TABLE o # a line\n SELECT 1":                true,
		"CREATE TABLE o /*!50000 SELECT 1 */":                                    true,
		"CREATE TABLE o (v VARCHAR(9) DEFAULT 'it''s \\' SELECT') SELECT 1 AS x": true,

		"":             false,
		"CREATE":       false,
		"CREATE TABLE": false,
		"CREATE TABLE o (id INT, `select` INT) COMMENT='SELECT' /* SELECT */ -- SELECT":                             false,
		"CREATE TABLE o (id INT) COMMENT \"a '' SELECT\"":                                                           false,
		"CREATE TABLE selected (id INT)":                                                                            false,
		"CREATE TABLE o LIKE src":                                                                                   false,
		"CREATE TABLE o (id INT) PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (10))":                       false,
		"CREATE TABLE o (id INT) PARTITION BY LIST (id) (PARTITION p VALUES IN (1))":                                false,
		"CREATE TABLE o (id INT) TABLESPACE t":                                                                      false,
		"CREATE VIEW v AS SELECT 1":                                                                                 false,
		"CREATE DEFINER=`a`@`b` PROCEDURE p() CREATE TABLE o SELECT 1":                                              false,
		"CREATE TEMPORARY TABLE o SELECT 1":                                                                         false,
		"ALTER TABLE o ADD c INT":                                                                                   false,
		"CREATE TABLE o (id INT) COMMENT='unfinished":                                                               false,
		"CREATE TABLE o /* unfinished":                                                                              false,
		"CREATE TABLE `o` (\n  `id` int DEFAULT NULL\n) START TRANSACTION":                                          false,
		"CREATE TABLE o (id INT GENERATED ALWAYS AS (1) STORED, CHECK (id > 0), v VARCHAR(9) CHARACTER SET latin1)": false,
	} {
		if got := event.CreatesWithRows([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
