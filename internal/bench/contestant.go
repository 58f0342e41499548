package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// contestant is a program that drains a backlog into a topic, or does a part of that.
type contestant struct {
	name     string
	debezium bool // it needs a stored start and does not end by itself
	limit    bool // it is no relay but does a part of the work alone
	silent   bool // it publishes nothing and prints how many seconds it took
	// start starts one run; topic is the prefix that the aggregate type follows.
	start func(ctx context.Context, s *servers, topic string) (*child, error)
}

// theBaseline runs this program itself as the simple relay.
func theBaseline(self, compression string) contestant {
	return contestant{name: "baseline", start: func(ctx context.Context, s *servers, topic string) (*child, error) {
		return startChild(ctx, "baseline", s.Pids, nil, nil, self, "baseline", "-mysql", s.MySQL, "-start", s.Start, "-brokers", strings.Join(s.Brokers, ","),
			"-topic", topic, "-rows", fmt.Sprint(s.Workload.Rows), "-compression", compression)
	}}
}

// theRelay runs the real program until it has caught up, from the position before the backlog.
func theRelay(program, profileDir string, sets []string) contestant {
	return contestant{name: "relay", start: func(ctx context.Context, s *servers, topic string) (*child, error) {
		dir := filepath.Join(s.dir, topic)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		config, err := writeConfig(s, dir, topic, "outbox_events")
		if err != nil {
			return nil, err
		}
		var env []string
		if profileDir != "" {
			env = append(env, profileVariable+"="+filepath.Join(profileDir, strings.TrimSuffix(topic, ".")+".pprof"))
		}
		args := []string{"run", "--until-caught-up", "--no-standby", "--config", config}
		for _, set := range sets {
			args = append(args, "--set", set)
		}
		return startChild(ctx, "relay", s.Pids, env, nil, program, args...)
	}}
}

// writeConfig writes a configuration with as little in it as a user needs; everything else is the default.
func writeConfig(s *servers, dir, topic, table string) (string, error) {
	port, err := freePort()
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf(`name: bench
source:
  address: %s
  user: %s
  password: %s
  start: %q
  tls: {mode: disabled}   # as the baseline
tables:
  - table: %s.%s
    topic: "%s{aggregate_type}"
kafka:
  brokers: [%s]
checkpoint: {path: %s}
http: {address: "127.0.0.1:%d"}
on_halt: exit
`, s.MySQL, account, account, s.Start, database, table, topic, strings.Join(s.Brokers, ", "), filepath.Join(dir, "checkpoint"), port)
	path := filepath.Join(dir, "outbox-relay.yaml")
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// freePort gives a port that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
