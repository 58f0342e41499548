package sandbox

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"

	"github.com/go-sql-driver/mysql"
)

// TB is the part of testing.TB that the helpers for tests need.
type TB interface {
	Helper()
	Name() string
	Failed() bool
	Cleanup(func())
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// RunMySQL starts a MySQL server of the test's own and closes it at the test's end; the
// end of its log is shown if the test failed.
func RunMySQL(tb TB, o MySQLOptions) *MySQL {
	tb.Helper()
	if o.Progress == nil {
		o.Progress = func(s string) { tb.Logf("sandbox: %s", s) }
	}
	m, err := StartMySQL(context.Background(), o)
	if err != nil {
		tb.Fatalf("sandbox: %v", err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the end of MySQL's log:\n%s", m.LogTail())
		}
		if err := m.Close(); err != nil {
			tb.Logf("sandbox: closing MySQL: %v", err)
		}
	})
	return m
}

// RunKafka starts a Kafka cluster of the test's own and closes it at the test's end; the
// end of the brokers' logs is shown if the test failed.
func RunKafka(tb TB, o KafkaOptions) *Kafka {
	tb.Helper()
	if o.Progress == nil {
		o.Progress = func(s string) { tb.Logf("sandbox: %s", s) }
	}
	k, err := StartKafka(context.Background(), o)
	if err != nil {
		tb.Fatalf("sandbox: %v", err)
	}
	tb.Cleanup(func() {
		for _, b := range k.brokers {
			if tb.Failed() {
				tb.Logf("the end of the log of broker %d:\n%s", b.ID(), b.LogTail())
			}
		}
		if err := k.Close(); err != nil {
			tb.Logf("sandbox: closing Kafka: %v", err)
		}
	})
	return k
}

// RunProxy starts a proxy before an address and closes it at the test's end.
func RunProxy(tb TB, target string) *Proxy {
	tb.Helper()
	p, err := NewProxy(target)
	if err != nil {
		tb.Fatalf("sandbox: %v", err)
	}
	tb.Cleanup(func() { _ = p.Close() })
	return p
}

// SharedMySQL returns the one MySQL server of this test process, started by the first
// call and ended with the process. Tests must not stop, kill or pause it, change its
// global settings or rely on its GTID set standing still; they make databases of their
// own (NewDatabase). If TEST_MYSQL_DSN is set, that server is used; its account must have
// all rights.
func SharedMySQL(tb TB) *MySQL {
	tb.Helper()
	m, err := sharedMySQL()
	if err != nil {
		tb.Fatalf("sandbox: the shared MySQL: %v", err)
	}
	return m
}

var sharedMySQL = sync.OnceValues(func() (*MySQL, error) {
	dsn := os.Getenv("TEST_MYSQL_DSN")
	if dsn == "" {
		return StartMySQL(context.Background(), MySQLOptions{Progress: sayOnStderr})
	}
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, fmt.Errorf("reading TEST_MYSQL_DSN: %w", err)
	}
	config.Logger = &mysql.NopLogger{}
	m := &MySQL{root: config}
	statements := strings.ReplaceAll(accountsSQL, "CREATE USER 'relay'", "CREATE USER IF NOT EXISTS 'relay'")
	for s := range strings.SplitSeq(statements, ";\n") {
		if !strings.Contains(s, "'relay'") {
			continue
		}
		if err := m.Exec(context.Background(), s); err != nil {
			return nil, fmt.Errorf("making the account relay on the server of TEST_MYSQL_DSN: %w", err)
		}
	}
	return m, nil
})

// SharedKafka returns the one Kafka broker of this test process, started by the first call
// and ended with the process. Tests must not stop, kill or pause it and make topics of
// their own (NewTopic). If TEST_KAFKA_BROKERS (comma-separated) is set, that cluster is used.
func SharedKafka(tb TB) *Kafka {
	tb.Helper()
	k, err := sharedKafka()
	if err != nil {
		tb.Fatalf("sandbox: the shared Kafka: %v", err)
	}
	return k
}

var sharedKafka = sync.OnceValues(func() (*Kafka, error) {
	if brokers := os.Getenv("TEST_KAFKA_BROKERS"); brokers != "" {
		return &Kafka{external: strings.Split(brokers, ",")}, nil
	}
	return StartKafka(context.Background(), KafkaOptions{Progress: sayOnStderr})
})

func sayOnStderr(s string) { fmt.Fprintln(os.Stderr, "sandbox: "+s) }

// DB returns a connection pool of the account that may do everything, closed at the test's
// end. An empty database selects none.
func (m *MySQL) DB(tb TB, database string) *sql.DB {
	tb.Helper()
	db, err := m.Open(database)
	if err != nil {
		tb.Fatalf("sandbox: %v", err)
	}
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

// NewDatabase creates a database with a name of its own and drops it at the test's end,
// if the server runs then.
func (m *MySQL) NewDatabase(tb TB) string {
	tb.Helper()
	name := uniqueName(tb, "_", 40)
	if err := m.Exec(context.Background(), "CREATE DATABASE "+name); err != nil {
		tb.Fatalf("sandbox: %v", err)
	}
	tb.Cleanup(func() {
		if m.program == nil || m.takesQueries() {
			_ = m.Exec(context.Background(), "DROP DATABASE IF EXISTS "+name)
		}
	})
	return name
}

// takesQueries is false while the server is stopped or paused.
func (m *MySQL) takesQueries() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.run != nil && m.run.running() && !m.run.paused.Load()
}

// NewTopic creates a topic with a name of its own and the cluster's default number of
// replicas. It stays until the cluster ends.
func (k *Kafka) NewTopic(tb TB, partitions int, configs map[string]string) string {
	tb.Helper()
	name := uniqueName(tb, "-", 100)
	if err := k.CreateTopic(context.Background(), name, partitions, 0, configs); err != nil {
		tb.Fatalf("sandbox: %v", err)
	}
	return name
}

// uniqueName makes a name of the test's name and a random end; only letters, digits and sep.
func uniqueName(tb TB, sep string, limit int) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return rune(sep[0])
	}, strings.ToLower(tb.Name()))
	if len(name) > limit {
		name = name[:limit]
	}
	return fmt.Sprintf("%s%s%08x", name, sep, rand.Uint32())
}
