package binlog

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Distance asks a server how many bytes of binlog it keeps before the position pos of file: what may still be purged before that position is
// lost. A file that the server does not have gives an error. The account needs REPLICATION CLIENT. It blocks as Dial does.
func Distance(ctx context.Context, l Login, file string, pos uint64) (int64, error) {
	c, err := Dial(ctx, l)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	logs, err := c.Rows(ctx, 10*time.Second, "SHOW BINARY LOGS")
	if err != nil {
		return 0, fmt.Errorf("listing the binlogs of %s: %w", l.Address, err)
	}
	var sum int64
	for _, row := range logs {
		if row[0] == file {
			return sum + int64(pos), nil
		}
		size, err := strconv.ParseInt(row[1], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("size of binlog %s: %w", row[0], err)
		}
		sum += size
	}
	return 0, fmt.Errorf("the server at %s has no binlog %s", l.Address, file)
}
