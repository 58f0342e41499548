package binlog

import (
	"context"
	"fmt"
	"time"
)

// MatchingTables asks which tables a pattern stands for now, in the order of their names. Only those are found that the account may see: SELECT on a table is
// enough. With fold the server does not tell upper from lower case in names. It blocks up to timeout.
func (c *Conn) MatchingTables(ctx context.Context, timeout time.Duration, pattern TableName, fold bool) ([]TableName, error) {
	rows, err := c.Rows(ctx, timeout, "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE' ORDER BY TABLE_SCHEMA, TABLE_NAME")
	if err != nil {
		return nil, fmt.Errorf("asking for the tables of %s: %w", pattern, err)
	}
	var out []TableName
	for _, r := range rows {
		if pattern.Matches([]byte(r[0]), []byte(r[1]), fold) {
			out = append(out, TableName{Schema: r[0], Name: r[1]})
		}
	}
	return out, nil
}
