// Command fidelity looks for values that the relay shows otherwise than the server does:
//
//	fidelity -rows 200000 -seed 1 [-mysql 8.0] [-metadata MINIMAL] [-round 17]
//
// It creates random tables on a real MySQL, writes random rows into them in random ways, reads the rows with binlog.Reader and
// binlog/value, and compares every column of every row with what SELECT prints (text protocol, time zone '+00:00', utf8mb4; BIT
// as an unsigned number, columns without a charset as bytes). Rows that were rolled back, ignored or turned into updates must not
// arrive, all others exactly once. Then the rows that are left are copied, and what package snapshot selects of the copies has to be equal,
// byte for byte, to what the binlog says of them. Each round of tables depends on the seed and its own number alone, so -round repeats a single one.
//
// Left out because a row event does not tell them (see package value): ZEROFILL, and the decimals of FLOAT(M,D) and DOUBLE(M,D).
// Left out because columns are absent: row images other than FULL. Left out because the server contradicts itself:
//
//   - a NULL forced into a NOT NULL JSON, GEOMETRY or VECTOR, which it cannot show;
//   - generated columns over a NOT NULL column that a statement leaves out, in a table with a BEFORE trigger: it logs NULL, and prints
//     the value of the implicit default if the column is VIRTUAL;
//   - generated columns over DATE and DATETIME: of an impossible date that came in under ALLOW_INVALID_DATES and is copied without it,
//     it logs the zero date and prints the impossible one.
package main
