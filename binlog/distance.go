package binlog

import (
	"context"
	"fmt"
)

// Distance asks a server how many bytes of binlog it keeps before the position pos of file: what may still be purged before that position is
// lost. A file that the server does not have gives an error. The account needs REPLICATION CLIENT. It blocks as Dial does.
func Distance(ctx context.Context, l Login, file string, pos uint64) (int64, error) {
	c, err := Dial(ctx, l)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	logs, err := c.binlogs(ctx)
	if err != nil {
		return 0, fmt.Errorf("the server at %s: %w", l.At(), err)
	}
	var sum int64
	for _, log := range logs {
		if log.name == file {
			return sum + int64(pos), nil
		}
		sum += log.size
	}
	return 0, fmt.Errorf("the server at %s has no binlog %s", l.At(), file)
}
