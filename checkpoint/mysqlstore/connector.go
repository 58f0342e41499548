package mysqlstore

import (
	"context"
	"crypto/tls"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/go-sql-driver/mysql"

	"outbox-relay/internal/redact"
)

// connector makes connections to the first server of a list that answers.
type connector struct {
	o  Options
	mu sync.Mutex
	at int // index of the address that worked last
}

var _ driver.Connector = (*connector)(nil)

// Connect tries each address once, from the one that worked last on.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for range c.o.Addresses {
		address := c.o.Addresses[c.at]
		conn, err := c.connect(ctx, address)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		errs = append(errs, fmt.Errorf("connecting to %s: %w", address, err))
		c.next()
	}
	return nil, errors.Join(errs...)
}

// Driver is part of driver.Connector.
func (c *connector) Driver() driver.Driver { return mysql.MySQLDriver{} }

// leave makes the next connection go to another server.
func (c *connector) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next()
}

func (c *connector) next() { c.at = (c.at + 1) % len(c.o.Addresses) }

func (c *connector) connect(ctx context.Context, address string) (driver.Conn, error) {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Addr, cfg.Net = c.o.User, address, "tcp"
	if strings.Contains(address, "/") {
		cfg.Net = "unix"
	}
	cfg.Timeout, cfg.ReadTimeout, cfg.WriteTimeout = c.o.Timeout, c.o.Timeout, c.o.Timeout
	cfg.ClientFoundRows = true // an UPDATE that changes nothing has matched all the same
	cfg.InterpolateParams = true
	cfg.ConnectionAttributes = "program_name:" + strings.NewReplacer(",", " ", ":", " ").Replace(c.o.Program)
	cfg.Logger = silent{}
	// A row lock is held by a statement of another instance at most.
	cfg.Params = map[string]string{"innodb_lock_wait_timeout": "5", "lock_wait_timeout": "5"}
	if c.o.Password != nil {
		var err error
		if cfg.Passwd, err = c.o.Password(ctx); err != nil {
			return nil, &settingError{"the password", "password_file and password_command", err}
		}
	}
	if c.o.TLS != nil {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			host = address
		}
		var secure *tls.Config
		if secure, err = c.o.TLS(host); err != nil {
			return nil, &settingError{"a TLS file", "tls", err}
		}
		cfg.TLS = secure
		cfg.AllowFallbackToPlaintext = secure != nil && c.o.TLSOptional
	}
	m, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	conn, err := m.Connect(ctx)
	return conn, redact.Error(err, cfg.Passwd, cfg.User)
}

// silent drops what the driver logs: errors come back to the caller.
type silent struct{}

func (silent) Print(...any) {}
