package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Codes of answers that are no failure here.
const (
	codePluginInstalled = 1125 // ER_UDF_EXISTS, of 8.0
	codePluginExists    = 1968 // ER_PLUGIN_INSTALLED
)

// CloneFrom makes the server a copy of donor, which runs and goes on: its data, accounts and executed transactions, with an empty binlog. Whatever the
// server was and did is gone but its UUID. It runs when CloneFrom returns, and replicates from nobody. It takes two or three seconds.
func (m *MySQL) CloneFrom(ctx context.Context, donor *MySQL) error {
	err := donor.Exec(ctx, "INSTALL PLUGIN clone SONAME 'mysql_clone.so'")
	if code := codeOf(err); err != nil && code != codePluginExists && code != codePluginInstalled {
		return fmt.Errorf("cloning MySQL: %w", err)
	}
	if err := m.Kill(); err != nil {
		return err
	}
	clone, identity := filepath.Join(m.dir, "clone"), "auto.cnf"
	if err := donor.Exec(ctx, "CLONE LOCAL DATA DIRECTORY = '"+clone+"'"); err != nil {
		return fmt.Errorf("cloning MySQL: %w", err)
	}
	if err := os.Rename(filepath.Join(m.dataDir(), identity), filepath.Join(clone, identity)); err != nil {
		return err
	}
	if err := os.RemoveAll(m.dataDir()); err != nil {
		return err
	}
	if err := os.Rename(clone, m.dataDir()); err != nil {
		return err
	}
	return m.Start(ctx)
}

// Follow makes the server a replica of source, read-only, from what it has executed on. Sessions see the difference at once.
func (m *MySQL) Follow(ctx context.Context, source *MySQL) error {
	host, port, err := net.SplitHostPort(source.Addr())
	if err != nil {
		return err
	}
	return m.Exec(ctx, "SET GLOBAL super_read_only = ON", "STOP REPLICA", "RESET REPLICA ALL",
		fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_PORT=%s, SOURCE_USER='relay', SOURCE_PASSWORD='relay', SOURCE_AUTO_POSITION=1, "+
			"GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1, SOURCE_RETRY_COUNT=1000, SOURCE_HEARTBEAT_PERIOD=1", host, port),
		"START REPLICA")
}

// Promote ends the replication of the server and lets clients write. What it has received and not applied is gone.
func (m *MySQL) Promote(ctx context.Context) error {
	return m.Exec(ctx, "STOP REPLICA", "RESET REPLICA ALL", "SET GLOBAL super_read_only = OFF", "SET GLOBAL read_only = OFF")
}

// WaitExecuted waits until the server has executed a GTID set.
func (m *MySQL) WaitExecuted(ctx context.Context, set string) error {
	db, err := m.Open("")
	if err != nil {
		return err
	}
	defer db.Close()
	limit := time.Minute
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end))
	}
	late := 0
	if err := db.QueryRowContext(ctx, "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?)", set, max(limit.Seconds(), 1)).Scan(&late); err != nil {
		return fmt.Errorf("waiting for transactions on MySQL: %w", err)
	}
	if late != 0 {
		return fmt.Errorf("MySQL has not executed %s after %v", set, limit)
	}
	return nil
}

// codeOf is the number of an error of the server, 0 for others.
func codeOf(err error) uint16 {
	var my *mysql.MySQLError
	if errors.As(err, &my) {
		return my.Number
	}
	return 0
}
