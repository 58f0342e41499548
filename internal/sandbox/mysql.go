package sandbox

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
)

// redoCapacity is small so that a server starts fast; one row may still be larger.
const redoCapacity = "32M"

// startTimeout bounds every start whose context has no earlier end.
const startTimeout = 2 * time.Minute

// MySQLOptions says which MySQL to start. The zero value is the newest that is to be had.
type MySQLOptions struct {
	// Version is a prefix of the wanted version, such as "8.0" or "9.7"; empty for any.
	Version string
	// Args are added to mysqld's command line and override the sandbox's own, for example
	// "--binlog-row-metadata=MINIMAL".
	Args []string
	// Certificate is the server's; nil leaves it the one that it makes for itself. ClientCA is the PEM file of the authority that signs clients'.
	Certificate *Certificate
	ClientCA    string
	// FoldNames makes the names of databases and tables lower case (lower_case_table_names=1), which a data folder keeps for life.
	FoldNames bool
	// Progress gets a line about each slow step (fetching, initializing). May be nil.
	Progress func(string)
}

// MySQL is a MySQL server with row binlog and GTIDs. It has the accounts root (no
// password) and relay (password relay: replication, SELECT, its own schema outbox_relay),
// both with caching_sha2_password and from any host. Its methods may be called from
// several goroutines.
type MySQL struct {
	port    port
	dir     string
	program *mysqlProgram // nil if the environment gave the server
	root    *mysql.Config // account with all rights
	fixed   []string      // options that the data folder and the certificate ask for

	mu     sync.Mutex
	args   []string
	run    *process
	closed bool
}

// StartMySQL fetches MySQL if it is not in the cache, makes a server and waits until it
// answers. The caller must Close it. ctx bounds only this call.
func StartMySQL(ctx context.Context, o MySQLOptions) (*MySQL, error) {
	say := o.Progress
	if say == nil {
		say = func(string) {}
	}
	program, empty, err := findMySQL(ctx, o.Version, say)
	if err != nil {
		return nil, err
	}
	m := &MySQL{program: program, args: o.Args}
	if o.FoldNames {
		m.fixed = []string{foldNames}
		if empty, err = program.emptyData(ctx, say, m.fixed...); err != nil {
			return nil, err
		}
	}
	if m.port, err = reservePort(); err != nil {
		return nil, err
	}
	if m.dir, err = newFolder("mysql"); err != nil {
		m.port.release()
		return nil, err
	}
	m.root = rootConfig(m.port.addr())
	if o.Certificate != nil {
		m.fixed = append(m.fixed, "--ssl-cert="+o.Certificate.CertFile, "--ssl-key="+o.Certificate.KeyFile, "--ssl-ca="+o.ClientCA)
		m.root.TLS = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // the sandbox's own server; it may demand TLS, and have any certificate
	}
	if err := copyTree(m.dataDir(), empty); err != nil {
		return nil, errors.Join(fmt.Errorf("copying MySQL's data folder: %w", err), m.Close())
	}
	if err := m.Start(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func rootConfig(addr string) *mysql.Config {
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User = "tcp", addr, "root"
	c.Logger = &mysql.NopLogger{}
	return c
}

func (m *MySQL) dataDir() string { return filepath.Join(m.dir, "data") }
func (m *MySQL) logFile() string { return filepath.Join(m.dir, "mysqld.log") }

// Start starts the server again, on the same data and port, and waits until it answers
// queries. It is an error if it runs already.
func (m *MySQL) Start(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.program == nil {
		return ErrExternal
	}
	if m.closed {
		return errors.New("starting MySQL: it is closed")
	}
	if m.run != nil && m.run.running() {
		return errors.New("starting MySQL: it is running")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	args := append([]string{"--no-defaults"}, m.program.paths...)
	args = append(args,
		"--datadir="+m.dataDir(),
		// Relative to the data folder: a socket's path has room for 107 bytes only.
		"--socket=mysqld.sock",
		"--pid-file=mysqld.pid",
		"--port="+strconv.Itoa(m.port.number),
		"--bind-address=127.0.0.1",
		"--loose-mysqlx=OFF",
		"--secure-file-priv=NULL",
		"--server-id="+strconv.Itoa(m.port.number),
		"--log-bin=binlog",
		"--binlog-format=ROW",
		"--binlog-row-metadata=FULL",
		"--gtid-mode=ON",
		"--enforce-gtid-consistency=ON",
		"--innodb-buffer-pool-size=64M",
		"--innodb-redo-log-capacity="+redoCapacity,
		// Less memory: 370 MB resident instead of 540.
		"--innodb-log-buffer-size=4M",
		"--table-open-cache=400",
		"--table-definition-cache=400",
	)
	args = slices.Concat(args, m.fixed, userArgs(), m.args)
	run, err := startProcess("MySQL "+m.program.version, m.program.command(args...), m.logFile())
	if err != nil {
		return err
	}
	m.run = run
	if err := run.await(ctx, m.answers); err != nil {
		run.kill()
		return err
	}
	return nil
}

func (m *MySQL) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return m.Exec(ctx, "DO 1")
}

// Stop shuts the server down in order and waits for its end. If ctx ends first or a minute
// passes, the server is killed and an error returned. Stopping a stopped server does nothing.
func (m *MySQL) Stop(ctx context.Context) error {
	return m.with(func(run *process) error { return run.stop(ctx) })
}

// Kill ends the server with SIGKILL and waits until it is gone.
func (m *MySQL) Kill() error {
	return m.with(func(run *process) error { run.kill(); return nil })
}

// Pause freezes the server (SIGSTOP): its sockets stay open and nothing is answered. It
// returns once the server is frozen.
func (m *MySQL) Pause() error { return m.with((*process).pause) }

// Resume lets a paused server go on.
func (m *MySQL) Resume() error { return m.with((*process).resume) }

// Restart is Stop and Start.
func (m *MySQL) Restart(ctx context.Context) error {
	if err := m.Stop(ctx); err != nil {
		return err
	}
	return m.Start(ctx)
}

func (m *MySQL) with(verb func(*process) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.program == nil {
		return ErrExternal
	}
	if m.run == nil {
		return ErrNotRunning
	}
	return verb(m.run)
}

// SetArgs replaces MySQLOptions.Args from the next start on.
func (m *MySQL) SetArgs(args ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.args = args
}

// Close kills the server and removes its folder. It may be called more than once.
func (m *MySQL) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.program == nil || m.closed {
		return nil
	}
	m.closed = true
	if m.run != nil {
		m.run.kill()
	}
	m.port.release()
	return removeFolder(m.dir)
}

// Addr returns host:port.
func (m *MySQL) Addr() string { return m.root.Addr }

// Version returns the server's version, such as 9.7.4; empty if the environment gave it.
func (m *MySQL) Version() string {
	if m.program == nil {
		return ""
	}
	return m.program.version
}

// DataDir returns the server's data folder with its binlogs; empty if the environment gave it.
func (m *MySQL) DataDir() string {
	if m.program == nil {
		return ""
	}
	return m.dataDir()
}

// Pid returns the process id of the running or last server process, 0 if there is none.
func (m *MySQL) Pid() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.run == nil {
		return 0
	}
	return m.run.pid()
}

// LogTail returns the last lines that the server has logged.
func (m *MySQL) LogTail() string {
	if m.program == nil {
		return ""
	}
	text, err := os.ReadFile(m.logFile())
	if err != nil {
		return ""
	}
	return tail(string(text), 50)
}

// DSN returns a data source name for go-sql-driver/mysql. An empty database selects none.
func (m *MySQL) DSN(user, password, database string) string {
	c := m.root.Clone()
	c.User, c.Passwd, c.DBName = user, password, database
	return c.FormatDSN()
}

// RootDSN is DSN for the account that may do everything.
func (m *MySQL) RootDSN(database string) string {
	return m.DSN(m.root.User, m.root.Passwd, database)
}

// Open returns a connection pool of the account that may do everything. The caller closes it.
func (m *MySQL) Open(database string) (*sql.DB, error) {
	c := m.root.Clone()
	c.DBName = database
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// Exec runs the statements in order on one new connection of the account that may do
// everything, so SET SESSION and XA hold from one to the next. It stops at the first error.
func (m *MySQL) Exec(ctx context.Context, statements ...string) error {
	db, err := m.Open("")
	if err != nil {
		return err
	}
	defer db.Close()
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connecting to MySQL: %w", err)
	}
	defer conn.Close()
	for _, s := range statements {
		if _, err := conn.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("running %.80q: %w", s, err)
		}
	}
	return nil
}
