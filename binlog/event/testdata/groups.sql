-- Makes groups.binlog (MySQL 9.7) and groups-8.0.binlog: one file each with every shape of transaction that the tests look at.
-- `go generate ./binlog/event` captures both anew and writes what TestGroups sees in them, to be read line by line.
CREATE DATABASE g1; CREATE DATABASE g2; USE g1;
CREATE TABLE o (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, aggregate_id VARCHAR(64), payload JSON);
CREATE TABLE s (y YEAR, u BIGINT UNSIGNED, i BIGINT, /*!90000 v VECTOR(3), */ l VARCHAR(20) CHARACTER SET latin1, b BINARY(16),
  e ENUM('a','é') CHARACTER SET latin1, st SET('x','y','z'), hidden INT INVISIBLE, f INT GENERATED ALWAYS AS (i+1) VIRTUAL, INDEX fx ((i+2)), PRIMARY KEY (u, l(5)));
CREATE TABLE g2.two (a INT);
CREATE TABLE bh (id INT) ENGINE=BLACKHOLE;
INSERT INTO o(aggregate_id, payload) VALUES ('k1', '{"a": 1}');
BEGIN; INSERT INTO o(aggregate_id, payload) VALUES ('k2', NULL); SAVEPOINT x; INSERT INTO bh VALUES (1); ROLLBACK TO x; COMMIT;
INSERT INTO bh VALUES (1);
UPDATE o SET aggregate_id='k1b' WHERE id=1;
DELETE FROM o WHERE id=2;
INSERT INTO s(y,u,i,/*!90000 v, */l,b,e,st,hidden) VALUES (2020,18446744073709551615,-5,/*!90000 TO_VECTOR('[1,2,3]'), */CONVERT('é' USING utf8mb4),UNHEX('00112233445566778899AABBCCDD0000'),2,5,7);
SET SESSION binlog_row_image=MINIMAL; INSERT INTO o(payload) VALUES ('[1]'); SET SESSION binlog_row_image=FULL;
INSERT INTO o(aggregate_id, payload) SELECT CONCAT('bulk', seq), JSON_OBJECT('p', REPEAT('x', 230)) FROM (WITH RECURSIVE q AS (SELECT 1 seq UNION ALL SELECT seq+1 FROM q WHERE seq<60) SELECT seq FROM q) t;
CREATE TABLE ctas SELECT 1 AS one;
XA START 'x1','b1',7; INSERT INTO o(aggregate_id) VALUES ('xa'); XA END 'x1','b1',7; XA PREPARE 'x1','b1',7;
XA COMMIT 'x1','b1',7;
XA START 'x2'; INSERT INTO o(aggregate_id) VALUES ('xa2'); XA END 'x2'; XA COMMIT 'x2' ONE PHASE;
XA START 'x3'; INSERT INTO o(aggregate_id) VALUES ('xa3'); XA END 'x3'; XA PREPARE 'x3';
XA ROLLBACK 'x3';
SET SESSION binlog_transaction_compression=ON; INSERT INTO o(aggregate_id, payload) VALUES ('zip', JSON_OBJECT('p', REPEAT('y', 2000))); SET SESSION binlog_transaction_compression=OFF;
SET /*!80300 gtid_next='AUTOMATIC:zz', */ @tagged=1; INSERT INTO o(aggregate_id) VALUES ('tagged');
SET gtid_next=CONCAT('eeeeeeee-ffff-ffff-ffff-ffffffffffff:', /*!80300 'bar:', */ '36028797018963968'); INSERT INTO o(aggregate_id) VALUES ('tagged2');
SET gtid_next='AUTOMATIC';
SET SESSION binlog_rows_query_log_events=ON; INSERT INTO o(aggregate_id) VALUES ('rq'); SET SESSION binlog_rows_query_log_events=OFF;
SET SESSION binlog_format=STATEMENT; INSERT INTO o(aggregate_id) VALUES ('stmt'); UPDATE g1.o, g2.two SET g1.o.aggregate_id='m', g2.two.a=1; SET SESSION binlog_format=ROW;
DROP TABLE g1.ctas; DROP DATABASE g2;
