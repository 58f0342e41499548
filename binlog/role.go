package binlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"outbox-relay/binlog/gtid"
)

// notPrimaryError is a server that takes no writes where only the primary may be read. Time heals it: one of the servers will be the primary.
type notPrimaryError struct{ address string }

func (e *notPrimaryError) Error() string {
	return fmt.Sprintf("the server at %s is read-only and source.read_from is primary: waiting for a server of source.address that takes writes", e.address)
}

// roleInterval is between two looks at whether the server is still the primary.
const roleInterval = time.Second

// roleWatch looks, on a connection of its own, whether the server that is read still takes writes, and ends the dump of one that does not.
type roleWatch struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	why    error // set before the dump is ended
}

// watchRole watches the server behind a dump until stop. A server that shuts down is left as well: it takes no writes any more, and keeps its dumps
// until everything else has ended, for seven seconds on 8.0.33. Other looks that fail say nothing: whether the server lives is the dump's own matter.
func watchRole(ctx context.Context, dump *Conn, server gtid.UUID) *roleWatch {
	ctx, cancel := context.WithCancel(ctx)
	w := &roleWatch{cancel: cancel}
	w.done.Go(func() { // ends with stop
		var c *Conn
		defer func() {
			if c != nil {
				c.Close()
			}
		}()
		for t := time.NewTicker(roleInterval); ; {
			select {
			case <-ctx.Done():
				t.Stop()
				return
			case <-t.C:
			}
			var err, why error
			if c == nil {
				c, err = Dial(ctx, dump.login)
			}
			if err == nil {
				if why, err = roleOf(ctx, c, dump.login, server); err != nil {
					c.Close()
				}
			}
			if err != nil {
				c = nil
				if isShutdown(err) {
					why = fmt.Errorf("the server at %s shuts down: %w", dump.login.At(), err)
				}
			}
			if why != nil {
				w.mu.Lock()
				w.why = why
				w.mu.Unlock()
				dump.net.Close()
				return
			}
		}
	})
	return w
}

// isShutdown reports whether a connection failed as they do on a server that ends.
func isShutdown(err error) bool {
	var my *mysql.MyError
	return errors.As(err, &my) && my.Code == mysql.ER_SERVER_SHUTDOWN || isAbsent(err)
}

// roleOf gives the reason why the server behind a connection is not to be read, nil where there is none.
func roleOf(ctx context.Context, c *Conn, l Login, server gtid.UUID) (why, err error) {
	rows, err := c.Rows(ctx, askTimeout, "SELECT @@server_uuid, @@global.read_only")
	switch {
	case err != nil:
		return nil, err
	case len(rows) != 1 || len(rows[0]) != 2:
		return nil, errors.New("no answer about the server's role")
	case rows[0][0] != server.String(): // a name or a proxy that has moved on
		return fmt.Errorf("%s names another server now (%s)", l.At(), rows[0][0]), nil
	case rows[0][1] != "0":
		return &notPrimaryError{l.At()}, nil
	}
	return nil, nil
}

// stop ends the watch, waits for its end and gives the reason for which it ended the dump; nil where it did not.
func (w *roleWatch) stop() error {
	w.cancel()
	w.done.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.why
}
